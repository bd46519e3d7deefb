//! The state as JSON; times are milliseconds since the epoch.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::event_time::{EventTime, Now, PartitionId, WatermarkStatus};
use crate::insight::{
    FiredWindow, Overview, PartitionSnapshot, RestoringPartition, Snapshot, sentence,
};

/// Where the service stands.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    now: i64,
    /// Of the subtask that is least well.
    phase: &'static str,
    /// Of the subtask that is furthest behind.
    sentence: String,
    /// Up to where all results are out: the least of the subtasks.
    watermark: Option<i64>,
    watermark_lag_ms: Option<i64>,
    subtasks: Vec<SubtaskStatus>,
}

/// Where one subtask stands.
#[derive(Debug, Serialize)]
struct SubtaskStatus {
    subtask: u16,
    phase: &'static str,
    /// What the Kafka client said last, while no broker can be reached.
    blocked: Option<String>,
    sentence: String,
    /// How old all of this is.
    age_ms: Option<i64>,
    watermark: Option<i64>,
    watermark_lag_ms: Option<i64>,
    /// The partition that results wait for.
    holder: Option<Partition>,
    partitions: Vec<PartitionStatus>,
    windows_open: usize,
    panes_open: usize,
    oldest_open_window: Option<i64>,
    state_bytes: usize,
    /// The partitions whose state is being read back.
    restoring: Vec<Restoring>,
    /// The newest at the end.
    recent: Vec<RecentWindow>,
    last_commit: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Partition {
    topic: String,
    partition: i32,
}

#[derive(Debug, Serialize)]
struct PartitionStatus {
    #[serde(flatten)]
    id: Partition,
    status: &'static str,
    watermark: Option<i64>,
    watermark_lag_ms: Option<i64>,
    max_event_time: Option<i64>,
    bound_ms: Option<i64>,
    idle_in_ms: Option<i64>,
    /// It is not read for now, since it is too far ahead of the watermark.
    paused: bool,
    ahead_ms: Option<i64>,
    /// The watermark at which it is read on.
    resumes_at: Option<i64>,
    caught_up: bool,
    position: Option<i64>,
    end_offset: Option<i64>,
    lag: Option<u64>,
    /// The generator's own numbers.
    gauges: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize)]
struct Restoring {
    #[serde(flatten)]
    id: Partition,
    /// Records of the changelog.
    read: u64,
    end: u64,
}

#[derive(Debug, Serialize)]
struct RecentWindow {
    window_start: i64,
    window_end: i64,
    on_time: u64,
    late: u64,
    fired_at: i64,
}

impl Status {
    pub(super) fn new(overview: &Overview, topics: &[String], now: Now) -> Self {
        let watermark = overview.watermark();
        Self {
            now: now.wall.0,
            phase: overview.phase().name(),
            sentence: overview.sentence(topics, now.wall),
            watermark: watermark.map(|time| time.0),
            watermark_lag_ms: lag(now, watermark),
            subtasks: overview
                .subtasks()
                .map(|(subtask, snapshot)| SubtaskStatus::new(subtask, snapshot, topics, now))
                .collect(),
        }
    }
}

impl SubtaskStatus {
    fn new(subtask: u16, snapshot: &Snapshot, topics: &[String], now: Now) -> Self {
        let ago = |then| now.monotonic.since(then);
        Self {
            subtask,
            phase: snapshot.phase.name(),
            blocked: snapshot.phase.blocked().map(str::to_owned),
            sentence: sentence(snapshot, topics, now.wall),
            age_ms: snapshot.taken.map(|taken| ms(ago(taken))),
            watermark: snapshot.watermark.map(|time| time.0),
            watermark_lag_ms: lag(now, snapshot.watermark),
            holder: snapshot.holder.map(|id| Partition::new(id, topics)),
            partitions: snapshot
                .partitions
                .iter()
                .map(|partition| PartitionStatus::new(partition, topics, now))
                .collect(),
            windows_open: snapshot.windows_open,
            panes_open: snapshot.panes_open,
            oldest_open_window: snapshot.oldest_open_window.map(|time| time.0),
            state_bytes: snapshot.state_bytes,
            restoring: snapshot
                .restoring
                .iter()
                .map(|restoring| Restoring::new(restoring, topics))
                .collect(),
            recent: snapshot.recent.iter().map(RecentWindow::new).collect(),
            last_commit: snapshot.last_commit.map(|then| (now.wall - ago(then)).0),
        }
    }
}

impl Partition {
    fn new(id: PartitionId, topics: &[String]) -> Self {
        let topic = topics.get(usize::from(id.topic)).cloned().unwrap_or_default();
        Self { topic, partition: id.partition }
    }
}

impl PartitionStatus {
    fn new(partition: &PartitionSnapshot, topics: &[String], now: Now) -> Self {
        Self {
            id: Partition::new(partition.id, topics),
            status: match partition.status {
                WatermarkStatus::Active => "active",
                WatermarkStatus::Idle => "idle",
            },
            watermark: partition.watermark.map(|time| time.0),
            watermark_lag_ms: lag(now, partition.watermark),
            max_event_time: partition.max_event_time.map(|time| time.0),
            bound_ms: partition.bound.map(ms),
            idle_in_ms: partition.idle_in.map(ms),
            paused: partition.paused.is_some(),
            ahead_ms: partition.paused.map(|paused| ms(paused.ahead)),
            resumes_at: partition.paused.map(|paused| paused.resumes_at.0),
            caught_up: partition.caught_up,
            position: partition.position,
            end_offset: partition.end_offset,
            lag: partition.lag(),
            gauges: partition.gauges.iter().copied().collect(),
        }
    }
}

impl Restoring {
    fn new(restoring: &RestoringPartition, topics: &[String]) -> Self {
        let RestoringPartition { id, read, end } = *restoring;
        Self { id: Partition::new(id, topics), read, end }
    }
}

impl RecentWindow {
    fn new(fired: &FiredWindow) -> Self {
        Self {
            window_start: fired.window.start.0,
            window_end: fired.window.end.0,
            on_time: fired.on_time,
            late: fired.late,
            fired_at: fired.fired_at.0,
        }
    }
}

fn lag(now: Now, time: Option<EventTime>) -> Option<i64> {
    time.map(|time| now.wall.0.saturating_sub(time.0))
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
