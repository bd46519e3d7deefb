//! The partitions, as many as one can look at, and the others in one.

use serde::Serialize;

use crate::event_time::{EventTime, MonotonicTime, Now, PartitionId, WatermarkStatus};
use crate::insight::explain::ms;
use crate::insight::{Overview, PartitionSnapshot, words};

/// The partitions of all subtasks: all of them where they are few, and else those to look at first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lanes {
    /// How many there are.
    pub partitions: usize,
    /// Those that take part in the minimum and have a watermark.
    pub active: usize,
    /// Those that are idle.
    pub idle: usize,
    /// Those that take part in the minimum and have no watermark yet: they hold everything.
    pub no_watermark: usize,
    /// Those that are not read for now, since they are too far ahead of the watermark.
    pub paused: usize,
    /// Those shown, in the order of their names.
    pub shown: Vec<Lane>,
    /// The others, if there are any.
    pub rest: Option<Rest>,
}

/// One partition. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lane {
    /// `topic/number`.
    pub name: String,
    /// The subtask that reads it.
    pub subtask: u16,
    /// `active`, `idle`, `no_watermark` or `paused`.
    pub state: &'static str,
    /// Whether it holds the watermark of its subtask.
    pub holds: bool,
    /// Its own watermark.
    pub watermark: Option<i64>,
    /// The greatest event time accepted.
    pub max_event_time: Option<i64>,
    /// The out-of-orderness bound in force.
    pub bound_ms: Option<u64>,
    /// Records not read yet.
    pub lag: Option<u64>,
    /// How long no record has come.
    pub silent_ms: Option<u64>,
    /// How much silence is left until it is idle, while it is silent.
    pub idle_in_ms: Option<u64>,
    /// How far it is ahead of the watermark, while it is paused for that.
    pub ahead_ms: Option<u64>,
}

/// The partitions that are not shown one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rest {
    /// How many they are.
    pub partitions: usize,
    /// Those of them that are idle.
    pub idle: usize,
    /// Those of them without a watermark.
    pub no_watermark: usize,
    /// Those of them that are paused.
    pub paused: usize,
    /// The least watermark of those that are active or paused.
    pub least_watermark: Option<i64>,
    /// The greatest watermark of those.
    pub greatest_watermark: Option<i64>,
    /// The greatest event time accepted.
    pub max_event_time: Option<i64>,
    /// Records not read yet.
    pub lag: u64,
}

struct Seen<'a> {
    partition: &'a PartitionSnapshot,
    subtask: u16,
    holds: bool,
    taken: Option<MonotonicTime>,
}

impl Lanes {
    /// Up to so many partitions are shown, each in its place.
    pub const ALL: usize = 24;
    /// Of more, so many.
    pub const WORST: usize = 20;

    /// Looks at all partitions; `first` is shown in any case.
    pub fn new(
        overview: &Overview,
        topics: &[String],
        first: Option<PartitionId>,
        now: Now,
    ) -> Self {
        let mut seen: Vec<_> = overview
            .subtasks()
            .flat_map(|(subtask, snapshot)| {
                snapshot.partitions.iter().map(move |partition| Seen {
                    partition,
                    subtask,
                    holds: snapshot.holder == Some(partition.id),
                    taken: snapshot.taken,
                })
            })
            .collect();
        let count = |state| seen.iter().filter(|seen| seen.state() == state).count();
        let (active, idle, no_watermark) = (count(ACTIVE), count(IDLE), count(NO_WATERMARK));
        let paused = count(PAUSED);
        let partitions = seen.len();
        if partitions > Self::ALL {
            seen.sort_by_key(|seen| (Some(seen.partition.id) != first, seen.concern()));
        }
        let others = if partitions > Self::ALL { seen.split_off(Self::WORST) } else { Vec::new() };
        seen.sort_by_key(|seen| (seen.partition.id, seen.subtask));
        Self {
            partitions,
            active,
            idle,
            no_watermark,
            paused,
            shown: seen.iter().map(|seen| seen.lane(topics, now)).collect(),
            rest: (!others.is_empty()).then(|| rest(&others)),
        }
    }
}

impl Seen<'_> {
    fn state(&self) -> &'static str {
        match (self.partition.status, self.partition.watermark) {
            (WatermarkStatus::Idle, _) => IDLE,
            (WatermarkStatus::Active, _) if self.partition.paused.is_some() => PAUSED,
            (WatermarkStatus::Active, None) => NO_WATERMARK,
            (WatermarkStatus::Active, Some(_)) => ACTIVE,
        }
    }

    /// The less, the more it is worth a look: holders, those without a watermark, those furthest behind, idle ones last.
    fn concern(&self) -> (bool, bool, Option<EventTime>, PartitionId) {
        let partition = self.partition;
        (!self.holds, self.state() == IDLE, partition.watermark, partition.id)
    }

    fn lane(&self, topics: &[String], now: Now) -> Lane {
        let Self { partition, subtask, holds, taken } = self;
        let last = partition.history.last_record;
        let is_silent = partition.is_silent(now.wall) && self.state() != IDLE;
        // It ran on since the snapshot was taken.
        let age = taken.map(|taken| now.monotonic.since(taken)).unwrap_or_default();
        Lane {
            name: words::partition(partition.id, topics),
            subtask: *subtask,
            state: self.state(),
            holds: *holds,
            watermark: partition.watermark.map(|time| time.0),
            max_event_time: partition.max_event_time.map(|time| time.0),
            bound_ms: partition.bound.map(ms),
            lag: partition.lag(),
            silent_ms: last.map(|last| ms(now.monotonic.since(last))),
            idle_in_ms: partition
                .idle_in
                .filter(|_| is_silent)
                .map(|left| ms(left.saturating_sub(age))),
            ahead_ms: partition.paused.map(|paused| ms(paused.ahead)),
        }
    }
}

fn rest(others: &[Seen<'_>]) -> Rest {
    let count = |state| others.iter().filter(|seen| seen.state() == state).count();
    let counts = |seen: &&Seen<'_>| matches!(seen.state(), ACTIVE | PAUSED);
    let watermarks = || others.iter().filter(counts).filter_map(|seen| seen.partition.watermark);
    let newest = others.iter().filter_map(|seen| seen.partition.max_event_time).max();
    Rest {
        partitions: others.len(),
        idle: count(IDLE),
        no_watermark: count(NO_WATERMARK),
        paused: count(PAUSED),
        least_watermark: watermarks().min().map(|time| time.0),
        greatest_watermark: watermarks().max().map(|time| time.0),
        max_event_time: newest.map(|time| time.0),
        lag: others.iter().filter_map(|seen| seen.partition.lag()).sum(),
    }
}

const ACTIVE: &str = "active";
const IDLE: &str = "idle";
const NO_WATERMARK: &str = "no_watermark";
const PAUSED: &str = "paused";
