//! What has happened lately, as far as the page shows it, in bounded memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::Outcomes;
use crate::event_time::{EventTime, MonotonicTime, Now, PartitionId, WatermarkStatus};
use crate::insight::{Overview, Phase, Snapshot, words};

/// Looks at the snapshots and counts now and then, and remembers what changed.
///
/// It sees what is different from one look to the next: a partition that was idle for less than that in between is not
/// noticed.
#[derive(Debug, Default)]
pub struct Journal {
    events: VecDeque<Event>,
    points: VecDeque<Point>,
    next_event: u64,
    /// When the last point began, and the counts then.
    point_began: Option<(MonotonicTime, Outcomes)>,
    before: Option<Outcomes>,
    subtasks: BTreeMap<u16, Seen>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Counted from 1.
    pub id: u64,
    /// When, on the wall clock; of several in a row the last.
    pub at: i64,
    /// What: `start`, `assigned`, `given_up`, `idle`, `active`, `phase`, `regression`, `abort`.
    pub kind: &'static str,
    /// In words.
    pub text: String,
    /// How many times in a row.
    pub times: u64,
}

/// What happened in [`Journal::POINT`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// When it began, on the wall clock.
    pub at: i64,
    /// The greatest watermark lag seen; `None` without a watermark.
    pub lag_ms: Option<i64>,
    /// Records read.
    pub records: u64,
    /// Records for the late topic.
    pub late: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Panes on time.
    pub on_time_panes: u64,
    /// Panes of windows that had fired before.
    pub late_panes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    phase: Option<&'static str>,
    partitions: BTreeMap<PartitionId, WatermarkStatus>,
}

impl Journal {
    /// How many events are kept.
    pub const EVENTS: usize = 60;
    /// How many points are kept: an hour.
    pub const POINTS: usize = 360;
    /// How long a point takes.
    pub const POINT: Duration = Duration::from_secs(10);
    /// The same again within this time is not another event.
    pub const AGAIN: Duration = Duration::from_secs(10);

    /// Looks.
    pub fn look(&mut self, overview: &Overview, topics: &[String], counts: Outcomes, now: Now) {
        if self.before.is_none() {
            let version = env!("CARGO_PKG_VERSION");
            self.note(now, "start", &format!("the service has started (tidegate {version})"));
        }
        let several = overview.subtasks().count() > 1;
        for (subtask, snapshot) in overview.subtasks() {
            let before = self.subtasks.remove(&subtask).unwrap_or_default();
            let whose = if several { format!("subtask {subtask}: ") } else { String::new() };
            let seen = self.compare(&before, snapshot, topics, &whose, now);
            self.subtasks.insert(subtask, seen);
        }
        self.count(&counts, now);
        self.draw(overview, &counts, now);
        self.before = Some(counts);
    }

    /// The events, the newest at the end.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// The points, the newest at the end; it is still going on.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.points.iter()
    }

    /// What is different in a subtask.
    fn compare(
        &mut self,
        before: &Seen,
        snapshot: &Snapshot,
        topics: &[String],
        whose: &str,
        now: Now,
    ) -> Seen {
        let names = |ids: &[PartitionId]| {
            let named: Vec<_> =
                ids.iter().take(NAMED).map(|id| words::partition(*id, topics)).collect();
            match ids.len().saturating_sub(NAMED) {
                0 => named.join(", "),
                more => format!("{} and {more} more", named.join(", ")),
            }
        };
        let phase = Some(snapshot.phase.name());
        if phase != before.phase && (before.phase.is_some() || snapshot.phase != Phase::Starting) {
            self.note(now, "phase", &format!("{whose}{}", said(&snapshot.phase)));
        }
        let partitions: BTreeMap<_, _> =
            snapshot.partitions.iter().map(|partition| (partition.id, partition.status)).collect();
        let ids = |of: &BTreeMap<PartitionId, WatermarkStatus>| of.keys().copied().collect();
        let (held, holds): (BTreeSet<_>, BTreeSet<_>) = (ids(&before.partitions), ids(&partitions));
        let came: Vec<_> = holds.difference(&held).copied().collect();
        let went: Vec<_> = held.difference(&holds).copied().collect();
        for (ids, kind, what) in
            [(&went, "given_up", "are no longer read here"), (&came, "assigned", "are read here")]
        {
            if !ids.is_empty() {
                let text = match ids.as_slice() {
                    [_] => what.replacen("are", "is", 1),
                    _ => what.to_owned(),
                };
                self.note(now, kind, &format!("{whose}{} {text}", names(ids)));
            }
        }
        let turned = |to: WatermarkStatus| -> Vec<PartitionId> {
            let changed = partitions.iter().filter(|(id, status)| {
                **status == to && before.partitions.get(id).is_some_and(|was| *was != to)
            });
            changed.map(|(id, _)| *id).collect()
        };
        for (to, kind, what) in [
            (WatermarkStatus::Idle, "idle", "idle: no longer waited for"),
            (WatermarkStatus::Active, "active", "active again: waited for"),
        ] {
            let ids = turned(to);
            if !ids.is_empty() {
                let is = if ids.len() == 1 { "is" } else { "are" };
                self.note(now, kind, &format!("{whose}{} {is} {what}", names(&ids)));
            }
        }
        Seen { phase, partitions }
    }

    /// What the counts tell that no snapshot does.
    fn count(&mut self, counts: &Outcomes, now: Now) {
        let before = self.before.clone().unwrap_or_default();
        if counts.regressions > before.regressions {
            let text = "the watermark stayed, since a partition that came back is below it";
            self.note(now, "regression", text);
        }
        if counts.aborts > before.aborts {
            let text = "a commit was aborted; reading again from the one before";
            self.note(now, "abort", text);
        }
    }

    fn draw(&mut self, overview: &Overview, counts: &Outcomes, now: Now) {
        let due = |began: &(MonotonicTime, Outcomes)| now.monotonic.since(began.0) >= Self::POINT;
        if self.point_began.as_ref().is_none_or(due) {
            let since = self.before.clone().unwrap_or_default();
            self.point_began = Some((now.monotonic, since));
            push(
                &mut self.points,
                Self::POINTS,
                Point {
                    at: now.wall.0,
                    lag_ms: None,
                    records: 0,
                    late: 0,
                    dead_letters: 0,
                    on_time_panes: 0,
                    late_panes: 0,
                },
            );
        }
        let (Some((_, since)), Some(point)) = (&self.point_began, self.points.back_mut()) else {
            return;
        };
        let lag = |watermark: EventTime| now.wall.0.saturating_sub(watermark.0);
        point.lag_ms = point.lag_ms.max(overview.watermark().map(lag));
        point.records = counts.records.saturating_sub(since.records);
        point.late = counts.late.saturating_sub(since.late);
        point.dead_letters = counts.dead_letters.saturating_sub(since.dead_letters);
        point.on_time_panes = counts.on_time_panes.saturating_sub(since.on_time_panes);
        point.late_panes = counts.late_panes.saturating_sub(since.late_panes);
    }

    fn note(&mut self, now: Now, kind: &'static str, text: &str) {
        let text: String = text.chars().take(LONGEST).collect();
        let again = |held: &&mut Event| {
            held.kind == kind
                && held.text == text
                && EventTime(held.at).behind(now.wall) <= Self::AGAIN
        };
        if let Some(held) = self.events.back_mut().filter(again) {
            (held.at, held.times) = (now.wall.0, held.times + 1);
            return;
        }
        self.next_event += 1;
        let event = Event { id: self.next_event, at: now.wall.0, kind, text, times: 1 };
        push(&mut self.events, Self::EVENTS, event);
    }
}

fn push<T>(ring: &mut VecDeque<T>, most: usize, item: T) {
    if ring.len() >= most {
        ring.pop_front();
    }
    ring.push_back(item);
}

fn said(phase: &Phase) -> String {
    match phase {
        Phase::Starting => "starting".to_owned(),
        Phase::Running => "reading".to_owned(),
        Phase::Restoring => "reading back what open windows held".to_owned(),
        Phase::Standby(why) => format!("standing by: {why}"),
        Phase::Blocked(why) => format!("brokers out of reach: {why}"),
        Phase::Draining => "firing what is open before the end".to_owned(),
        Phase::Stopping => "committing and closing".to_owned(),
        Phase::Stopped => "ended".to_owned(),
    }
}

/// How many partitions an event names.
const NAMED: usize = 4;

/// The longest text of an event, in characters: what a client library says may be of any length.
const LONGEST: usize = 400;
