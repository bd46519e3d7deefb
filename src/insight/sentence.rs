//! The one sentence: where the watermark stands, and who holds it there.

use std::time::Duration;

use super::{PartitionSnapshot, Phase, RestoringPartition, Snapshot, words};
use crate::event_time::{EventTime, WatermarkStatus};

/// Says where the watermark is, how far behind now, and which partition holds it back and why, as far as the snapshot
/// tells. `topics` are the names of the sources in the order of the configuration.
///
/// ```
/// use tidegate::event_time::EventTime;
/// use tidegate::insight::{Snapshot, sentence};
///
/// let said = sentence(&Snapshot::default(), &["orders".to_owned()], EventTime(1_800_000_000_000));
/// assert_eq!(said, "No watermark yet: no partition has been assigned yet");
/// ```
pub fn sentence(snapshot: &Snapshot, topics: &[String], wall: EventTime) -> String {
    let phase = match &snapshot.phase {
        Phase::Starting | Phase::Running if snapshot.restoring.is_empty() => String::new(),
        Phase::Starting | Phase::Running | Phase::Restoring => restoring(snapshot),
        Phase::Standby(why) => format!("Standing by ({why}). "),
        Phase::Blocked(why) => format!("Brokers out of reach ({why}). "),
        Phase::Draining => "Firing what is open before the end. ".to_owned(),
        Phase::Stopping => "Committing and closing. ".to_owned(),
        Phase::Stopped => "Ended. ".to_owned(),
    };
    let Some(watermark) = snapshot.watermark else {
        return format!("{phase}No watermark yet{}", waiting(snapshot, topics, wall));
    };
    format!(
        "{phase}Watermark {}, {} now{}",
        words::time(watermark, wall),
        words::distance(watermark, wall),
        held_back(snapshot, watermark, topics, wall)
    )
}

/// How far the state has been read back.
fn restoring(snapshot: &Snapshot) -> String {
    let sum = |of: fn(&RestoringPartition) -> u64| snapshot.restoring.iter().map(of).sum();
    let progress = match snapshot.restoring.len() {
        0 => String::new(),
        partitions => format!(
            " ({partitions} partition{}, {} of {} changelog records)",
            if partitions == 1 { "" } else { "s" },
            words::count(sum(|partition| partition.read)),
            words::count(sum(|partition| partition.end))
        ),
    };
    format!("Reading back what open windows held{progress}. ")
}

/// Who holds a watermark where it is.
fn held_back(
    snapshot: &Snapshot,
    watermark: EventTime,
    topics: &[String],
    wall: EventTime,
) -> String {
    let Some(holder) = holder(snapshot) else { return nobody(snapshot) };
    let mut causes = causes(holder, wall);
    if let Some(own) = holder.watermark.filter(|own| *own < watermark) {
        causes.insert(0, format!("back from idle, its own is {}", words::time(own, wall)));
    }
    let idle = match (count_idle(snapshot), snapshot.partitions.len()) {
        (0, _) => String::new(),
        (1, all) => format!("; 1 of {all} partitions is idle"),
        (idle, all) => format!("; {idle} of {all} partitions are idle"),
    };
    format!(", held back by {} ({}){idle}", words::partition(holder.id, topics), causes.join(", "))
}

/// Who is waited for before the first watermark.
fn waiting(snapshot: &Snapshot, topics: &[String], wall: EventTime) -> String {
    let mut without = snapshot.partitions.iter().filter(|partition| {
        partition.status == WatermarkStatus::Active && partition.watermark.is_none()
    });
    let Some(first) = without.next().or_else(|| holder(snapshot)) else {
        return nobody(snapshot);
    };
    let causes = causes(first, wall).join(", ");
    let more = match without.count() {
        0 => String::new(),
        1 => " and 1 more partition".to_owned(),
        more => format!(" and {more} more partitions"),
    };
    format!(": waiting for {} ({causes}){more}", words::partition(first.id, topics))
}

/// What is said when no active partition holds: there is none, or all are idle.
fn nobody(snapshot: &Snapshot) -> String {
    match snapshot.partitions.len() {
        0 if snapshot.phase == Phase::Starting => ": no partition has been assigned yet".to_owned(),
        0 => ": no partition is assigned here".to_owned(),
        all if all > count_idle(snapshot) => String::new(),
        1 => ": its only partition is idle".to_owned(),
        all => format!(": all {all} partitions are idle"),
    }
}

/// Why a partition's watermark is where it is, the nearest cause first.
fn causes(partition: &PartitionSnapshot, wall: EventTime) -> Vec<String> {
    let mut causes = Vec::new();
    match unread(partition) {
        Some(1) => causes.push("1 record not read yet".to_owned()),
        Some(unread) => causes.push(format!("{} records not read yet", words::count(unread))),
        None => {}
    }
    match partition.max_event_time {
        None => causes.push("no record yet".to_owned()),
        Some(newest) if newest > wall => {
            causes.push(format!("newest event {} ahead of now", words::span(wall.behind(newest))));
        }
        Some(newest) => {
            causes.push(format!("newest event {} ago", words::span(newest.behind(wall))));
        }
    }
    if partition.max_event_time.is_some() {
        match (partition.watermark, partition.bound) {
            (None, _) => causes.push("none of them has brought a watermark".to_owned()),
            (Some(_), Some(bound)) if bound > Duration::ZERO => {
                causes.push(format!("bound {}", words::span(bound)));
            }
            (Some(_), _) => {}
        }
    }
    if partition.status == WatermarkStatus::Active && partition.is_silent(wall) {
        causes.push(match partition.idle_in {
            Some(left) => format!("idle in {} if nothing comes", words::countdown(left)),
            None => "never idle, since it has no idle timeout".to_owned(),
        });
    }
    causes
}

/// The active partition that holds the watermark.
fn holder(snapshot: &Snapshot) -> Option<&PartitionSnapshot> {
    let id = snapshot.holder?;
    snapshot.partitions.iter().find(|partition| partition.id == id)
}

/// How many records lie in front of a partition, if any do.
fn unread(partition: &PartitionSnapshot) -> Option<u64> {
    let unread = partition.end_offset?.checked_sub(partition.position?)?;
    u64::try_from(unread).ok().filter(|unread| *unread > 0)
}

fn count_idle(snapshot: &Snapshot) -> usize {
    let idle = |partition: &&PartitionSnapshot| partition.status == WatermarkStatus::Idle;
    snapshot.partitions.iter().filter(idle).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_time::PartitionId;
    use crate::insight::PartitionHistory;

    /// 12:03:46.0.
    const NOW: EventTime = EventTime(1_800_014_626_000);

    fn partition(partition: i32, watermark_behind: u64) -> PartitionSnapshot {
        let watermark = NOW - Duration::from_millis(watermark_behind);
        PartitionSnapshot {
            id: PartitionId { topic: 0, partition },
            watermark: Some(watermark),
            max_event_time: Some(watermark + Duration::from_secs(2)),
            status: WatermarkStatus::Active,
            bound: Some(Duration::from_secs(2)),
            gauges: Vec::new(),
            idle_in: Some(Duration::from_millis(28_400)),
            paused: None,
            caught_up: true,
            position: Some(1_204),
            end_offset: Some(1_204),
            last_stable_offset: None,
            committed: None,
            history: PartitionHistory::default(),
        }
    }

    fn idle(number: i32) -> PartitionSnapshot {
        PartitionSnapshot { status: WatermarkStatus::Idle, ..partition(number, 60_000) }
    }

    fn empty(number: i32) -> PartitionSnapshot {
        PartitionSnapshot { watermark: None, max_event_time: None, ..partition(number, 0) }
    }

    fn snapshot(partitions: Vec<PartitionSnapshot>) -> Snapshot {
        let active = partitions.iter().filter(|p| p.status == WatermarkStatus::Active);
        let least = active.min_by_key(|partition| partition.watermark);
        let greatest = partitions.iter().map(|partition| partition.watermark).max().flatten();
        Snapshot {
            phase: Phase::Running,
            watermark: least.map_or(greatest, |least| least.watermark),
            holder: least.map(|least| least.id),
            partitions,
            ..Snapshot::default()
        }
    }

    #[track_caller]
    fn check(snapshot: &Snapshot, said: &str) {
        assert_eq!(sentence(snapshot, &["orders".to_owned()], NOW), said);
    }

    #[test]
    fn before_anything_is_assigned() {
        check(&Snapshot::default(), "No watermark yet: no partition has been assigned yet");
        check(&snapshot(Vec::new()), "No watermark yet: no partition is assigned here");
    }

    #[test]
    fn before_the_first_watermark() {
        check(
            &snapshot(vec![partition(0, 2_000), empty(1)]),
            "No watermark yet: waiting for orders/1 (no record yet, idle in 29 s if nothing comes)",
        );
        check(
            &snapshot(vec![empty(0), empty(1), empty(2)]),
            "No watermark yet: waiting for orders/0 (no record yet, idle in 29 s if nothing comes) \
             and 2 more partitions",
        );
        check(
            &snapshot(vec![PartitionSnapshot {
                watermark: None,
                bound: None,
                caught_up: false,
                ..partition(0, 3_000)
            }]),
            "No watermark yet: waiting for orders/0 (newest event 1.0 s ago, none of them has brought \
             a watermark)",
        );
    }

    #[test]
    fn a_silent_holder() {
        check(
            &snapshot(vec![partition(0, 2_500), partition(7, 33_000)]),
            "Watermark 12:03:13.0, 33.0 s behind now, held back by orders/7 (newest event 31.0 s ago, \
             bound 2.0 s, idle in 29 s if nothing comes)",
        );
        check(
            &snapshot(vec![PartitionSnapshot { idle_in: None, ..partition(7, 4_800) }]),
            "Watermark 12:03:41.2, 4.8 s behind now, held back by orders/7 (newest event 2.8 s ago, \
             bound 2.0 s, never idle, since it has no idle timeout)",
        );
    }

    #[test]
    fn a_holder_that_is_as_far_as_it_can_be() {
        check(
            &snapshot(vec![partition(0, 2_300), partition(7, 2_800)]),
            "Watermark 12:03:43.2, 2.8 s behind now, held back by orders/7 (newest event 0.8 s ago, \
             bound 2.0 s)",
        );
    }

    #[test]
    fn a_holder_with_records_to_read() {
        let behind = PartitionSnapshot {
            end_offset: Some(3_708),
            caught_up: false,
            ..partition(7, 3_600_000)
        };
        check(
            &snapshot(vec![partition(0, 2_500), behind, idle(1), idle(2)]),
            "Watermark 11:03:46.0, 1 h 0 min behind now, held back by orders/7 (2,504 records not read \
             yet, newest event 59 min 58 s ago, bound 2.0 s); 2 of 4 partitions are idle",
        );
    }

    #[test]
    fn a_holder_that_came_back_from_idle() {
        let snapshot = Snapshot {
            watermark: Some(NOW - Duration::from_secs(3)),
            ..snapshot(vec![partition(0, 2_000), partition(7, 10_000)])
        };
        check(
            &snapshot,
            "Watermark 12:03:43.0, 3.0 s behind now, held back by orders/7 (back from idle, its own is \
             12:03:36.0, newest event 8.0 s ago, bound 2.0 s, idle in 29 s if nothing comes)",
        );
    }

    #[test]
    fn all_are_idle() {
        check(
            &snapshot(vec![idle(0), idle(1)]),
            "Watermark 12:02:46.0, 1 min 0 s behind now: all 2 partitions are idle",
        );
        check(
            &snapshot(vec![idle(0)]),
            "Watermark 12:02:46.0, 1 min 0 s behind now: its only partition is idle",
        );
        let never_any = PartitionSnapshot { watermark: None, max_event_time: None, ..idle(0) };
        check(
            &snapshot(vec![never_any.clone(), never_any]),
            "No watermark yet: all 2 partitions are idle",
        );
    }

    #[test]
    fn a_watermark_ahead_of_now() {
        let ahead = PartitionSnapshot {
            watermark: Some(NOW + Duration::from_millis(1_200)),
            max_event_time: Some(NOW + Duration::from_millis(3_200)),
            ..partition(7, 0)
        };
        check(
            &snapshot(vec![ahead]),
            "Watermark 12:03:47.2, 1.2 s ahead of now, held back by orders/7 (newest event 3.2 s ahead \
             of now, bound 2.0 s)",
        );
    }

    #[test]
    fn a_restore_says_how_far_it_is_while_others_are_read() {
        let restoring = |partition: i32, read| RestoringPartition {
            id: PartitionId { topic: 0, partition },
            read,
            end: 4_000,
        };
        let with = |restoring| Snapshot { restoring, ..snapshot(vec![idle(0)]) };
        let rest = "Watermark 12:02:46.0, 1 min 0 s behind now: its only partition is idle";
        check(
            &with(vec![restoring(1, 1_204)]),
            &format!(
                "Reading back what open windows held (1 partition, 1,204 of 4,000 changelog records). {rest}"
            ),
        );
        check(
            &with(vec![restoring(1, 1_204), restoring(2, 0)]),
            &format!(
                "Reading back what open windows held (2 partitions, 1,204 of 8,000 changelog records). {rest}"
            ),
        );
    }

    #[test]
    fn what_the_loop_is_doing_comes_first() {
        let with = |phase| Snapshot { phase, ..snapshot(vec![idle(0), idle(1)]) };
        let rest = "Watermark 12:02:46.0, 1 min 0 s behind now: all 2 partitions are idle";
        let blocked = Phase::Blocked("connection refused".to_owned());
        check(&with(blocked), &format!("Brokers out of reach (connection refused). {rest}"));
        let standby = Phase::Standby("one reads all partitions".to_owned());
        check(&with(standby), &format!("Standing by (one reads all partitions). {rest}"));
        check(&with(Phase::Restoring), &format!("Reading back what open windows held. {rest}"));
        check(&with(Phase::Draining), &format!("Firing what is open before the end. {rest}"));
        check(&with(Phase::Stopping), &format!("Committing and closing. {rest}"));
        check(&with(Phase::Stopped), &format!("Ended. {rest}"));
    }
}
