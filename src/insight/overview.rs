//! All subtasks of a process at one glance.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Phase, Snapshot, sentence};
use crate::event_time::{EventTime, MonotonicTime};

/// Where the subtasks of a process stand, each as of its last emit tick; at least one.
///
/// The process is as well as the one that is least well.
///
/// ```
/// use tidegate::insight::{Phase, Snapshot, Watches};
///
/// let watches = Watches::new(2);
/// watches.of(0).publish(Snapshot { phase: Phase::Running, ..Snapshot::default() });
/// let reason = watches.overview().not_ready();
/// assert_eq!(reason.as_deref(), Some("subtask 1: waiting for the first assignment"));
/// ```
#[derive(Clone, Debug)]
pub struct Overview(Vec<(Arc<Snapshot>, Option<MonotonicTime>)>);

impl Overview {
    pub(super) fn new(snapshots: Vec<(Arc<Snapshot>, Option<MonotonicTime>)>) -> Self {
        Self(snapshots)
    }

    /// The subtasks with their numbers.
    pub fn subtasks(&self) -> impl Iterator<Item = (u16, &Snapshot)> {
        (0..).zip(self.0.iter().map(|(snapshot, _)| snapshot.as_ref()))
    }

    /// Since when a subtask has had a commit under way.
    pub fn committing_since(&self, subtask: u16) -> Option<MonotonicTime> {
        self.0.get(usize::from(subtask)).and_then(|(_, since)| *since)
    }

    /// What the subtask does that is least well.
    pub fn phase(&self) -> Phase {
        let phases = self.0.iter().map(|(snapshot, _)| &snapshot.phase);
        phases.max_by_key(|phase| concern(phase)).cloned().unwrap_or_default()
    }

    /// What the Kafka client of a subtask said last that cannot reach a broker.
    pub fn blocked(&self) -> Option<&str> {
        self.0.iter().find_map(|(snapshot, _)| snapshot.phase.blocked())
    }

    /// What is wrong with the first loop that only a restart helps: see [`Snapshot::stalled`].
    pub fn stalled(&self, now: MonotonicTime) -> Option<String> {
        self.subtasks().find_map(|(subtask, snapshot)| {
            snapshot.stalled(now).map(|reason| self.of_subtask(subtask, &reason))
        })
    }

    /// What stands in the way of readiness: that of the first subtask that is not ready.
    pub fn not_ready(&self) -> Option<String> {
        self.subtasks().find_map(|(subtask, snapshot)| {
            snapshot.phase.not_ready().map(|reason| self.of_subtask(subtask, reason))
        })
    }

    /// Up to where all results are out: the least watermark of the subtasks that read anything. `None` while one of
    /// them has none.
    pub fn watermark(&self) -> Option<EventTime> {
        let reading = self.0.iter().filter(|(snapshot, _)| !snapshot.partitions.is_empty());
        reading.map(|(snapshot, _)| snapshot.watermark).min().flatten()
    }

    /// The sentence of the subtask that is furthest behind, with its number where there are several.
    pub fn sentence(&self, topics: &[String], wall: EventTime) -> String {
        let last = self.subtasks().min_by_key(|(_, snapshot)| {
            let reads = !snapshot.partitions.is_empty();
            (Reverse(concern(&snapshot.phase)), Reverse(reads), snapshot.watermark)
        });
        let Some((subtask, snapshot)) = last else { return String::new() };
        let said = sentence(snapshot, topics, wall);
        match self.0.len() {
            1 => said,
            all => format!("Subtask {subtask}, the furthest behind of {all}: {said}"),
        }
    }

    /// Says of which subtask something holds, where there are several.
    fn of_subtask(&self, subtask: u16, what: &str) -> String {
        if self.0.len() == 1 { what.to_owned() } else { format!("subtask {subtask}: {what}") }
    }
}

/// The greater, the less well. While subtasks end one after the other, the process is not at its end.
fn concern(phase: &Phase) -> u8 {
    match phase {
        Phase::Running => 0,
        Phase::Blocked(_) => 1,
        Phase::Standby(_) => 2,
        Phase::Restoring => 3,
        Phase::Starting => 4,
        Phase::Stopped => 5,
        Phase::Draining => 6,
        Phase::Stopping => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_time::{PartitionId, WatermarkStatus};
    use crate::insight::{PartitionHistory, PartitionSnapshot};

    /// 12:03:46.0.
    const NOW: EventTime = EventTime(1_800_014_626_000);

    fn reading(partition: i32, watermark: Option<i64>) -> Snapshot {
        let watermark = watermark.map(EventTime);
        Snapshot {
            phase: Phase::Running,
            watermark,
            partitions: vec![PartitionSnapshot {
                id: PartitionId { topic: 0, partition },
                watermark,
                max_event_time: watermark,
                status: WatermarkStatus::Idle,
                bound: None,
                gauges: Vec::new(),
                idle_in: None,
                paused: None,
                caught_up: true,
                position: None,
                end_offset: None,
                last_stable_offset: None,
                committed: None,
                history: PartitionHistory::default(),
            }],
            ..Snapshot::default()
        }
    }

    fn in_phase(phase: Phase) -> Snapshot {
        Snapshot { phase, ..Snapshot::default() }
    }

    fn overview(snapshots: impl IntoIterator<Item = Snapshot>) -> Overview {
        Overview(snapshots.into_iter().map(|snapshot| (Arc::new(snapshot), None)).collect())
    }

    #[test]
    fn the_process_is_as_well_as_its_worst_subtask() {
        let blocked = || in_phase(Phase::Blocked("refused".to_owned()));
        let of = |phases: [Snapshot; 2]| overview(phases).phase().name();
        assert_eq!(of([in_phase(Phase::Running), in_phase(Phase::Running)]), "running");
        assert_eq!(of([in_phase(Phase::Running), blocked()]), "blocked");
        assert_eq!(of([in_phase(Phase::Starting), blocked()]), "starting");
        assert_eq!(of([in_phase(Phase::Stopped), in_phase(Phase::Running)]), "stopped");
        assert_eq!(of([in_phase(Phase::Stopped), in_phase(Phase::Stopping)]), "stopping");
        let overview = overview([in_phase(Phase::Running), blocked()]);
        assert_eq!((overview.blocked(), overview.not_ready()), (Some("refused"), None));
    }

    #[test]
    fn a_subtask_without_partitions_is_a_standby_and_holds_nobody() {
        let overview = overview([in_phase(Phase::Running), reading(0, Some(NOW.0 - 5_000))]);
        assert_eq!(overview.not_ready(), None);
        assert_eq!(overview.watermark(), Some(EventTime(NOW.0 - 5_000)));
        assert_eq!(
            overview.sentence(&["orders".to_owned()], NOW),
            "Subtask 1, the furthest behind of 2: Watermark 12:03:41.0, 5.0 s behind now: its only \
             partition is idle"
        );
    }

    #[test]
    fn the_watermark_is_the_least_and_missing_while_one_reads_without() {
        let both = overview([reading(0, Some(7)), reading(1, Some(5))]);
        assert_eq!(both.watermark(), Some(EventTime(5)));
        let one = overview([reading(0, Some(7)), reading(1, None)]);
        assert_eq!(one.watermark(), None);
        assert!(
            one.sentence(&[], NOW).starts_with("Subtask 1, the furthest behind of 2: No watermark")
        );
        assert_eq!(overview([Snapshot::default()]).watermark(), None);
    }

    #[test]
    fn what_is_wrong_is_said_of_a_subtask_only_where_there_are_several() {
        let now = MonotonicTime(Snapshot::FIRST_TURN + Snapshot::STALLED);
        let turned = Snapshot { taken: Some(now), ..Snapshot::default() };
        let alone = overview([Snapshot::default()]);
        assert_eq!(alone.stalled(now).as_deref(), Some("the loop has not begun for 90 s"));
        assert_eq!(alone.not_ready().as_deref(), Some("waiting for the first assignment"));
        assert!(alone.sentence(&[], NOW).starts_with("No watermark yet"));
        let two = overview([turned.clone(), Snapshot::default()]);
        assert_eq!(two.stalled(now).as_deref(), Some("subtask 1: the loop has not begun for 90 s"));
        assert_eq!(overview([turned.clone(), turned]).stalled(now), None);
    }
}
