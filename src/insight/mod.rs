//! What the loop knows, for people: a snapshot of where it stands, and a tally of what became of the records.
//!
//! The pipeline writes both and nothing else looks into it. The [`Snapshot`] is replaced at each emit tick behind a
//! [`Watch`]; the [`Tally`] is added to the metrics when a transaction has committed.

pub mod advise;
mod distribution;
pub mod explain;
mod export;
mod health;
pub mod live;
mod overview;
mod sentence;
mod terms;
mod watch;
pub mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::codec::Reason;
use crate::event_time::{
    EventTime, LateCause, MonotonicTime, PartitionId, Paused, TimeWindow, Timing, WatermarkStatus,
};

pub use distribution::Distribution;
pub use export::{ExportProgress, ExportWatch};
pub use overview::Overview;
pub use sentence::sentence;
pub use terms::{JobTerms, ReadTerms, read_terms};
pub use watch::{Watch, Watches};

/// Where the subtask stands, as of its last emit tick.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken; `None` before the loop's first turn.
    pub taken: Option<MonotonicTime>,
    /// What the loop is doing.
    pub phase: Phase,
    /// The subtask watermark.
    pub watermark: Option<EventTime>,
    /// The active partition with the least watermark.
    pub holder: Option<PartitionId>,
    /// The partitions assigned, in their order.
    pub partitions: Vec<PartitionSnapshot>,
    /// Distinct windows held.
    pub windows_open: usize,
    /// (window, key) entries held.
    pub panes_open: usize,
    /// The start of the oldest window held.
    pub oldest_open_window: Option<EventTime>,
    /// About how much memory the state takes, in bytes.
    pub state_bytes: usize,
    /// The partitions whose state is being read back, in their order.
    pub restoring: Vec<RestoringPartition>,
    /// The windows that fired last, the newest at the end; at most [`Snapshot::RECENT`].
    pub recent: Vec<FiredWindow>,
    /// When the last commit ended.
    pub last_commit: Option<MonotonicTime>,
    /// The least clock of the shards: what has fired everywhere.
    pub least_clock: Option<EventTime>,
    /// The first of the windows held, in order; at most [`Snapshot::OPEN`].
    pub open: Vec<TimeWindow>,
    /// Since when a write has been tried in vain.
    pub write_blocked_since: Option<MonotonicTime>,
    /// Messages sent that no broker has taken yet.
    pub producer_queue: usize,
    /// While it drains: how many partitions the input has, here and elsewhere.
    pub input_partitions: Option<usize>,
}

impl Snapshot {
    /// How many fired windows are remembered.
    pub const RECENT: usize = 32;
    /// How many of the windows held are named.
    pub const OPEN: usize = 256;
}

/// What the loop is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Before the first assignment.
    #[default]
    Starting,
    /// Reading.
    Running,
    /// Reading back what open windows held, before anything else.
    Restoring,
    /// Keeping out of the group while another instance has to read all partitions; why.
    Standby(String),
    /// Trying to reach the brokers again; what the client said last.
    Blocked(String),
    /// Firing what is open before it ends.
    Draining,
    /// Committing and closing.
    Stopping,
    /// Ended.
    Stopped,
}

/// How far the state of a partition has been read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoringPartition {
    /// Which one.
    pub id: PartitionId,
    /// Records of the changelog read so far.
    pub read: u64,
    /// Records of the changelog to read in all.
    pub end: u64,
}

/// Why state was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RestoreCause {
    /// Partitions came in.
    Assigned,
    /// A transaction was aborted.
    Aborted,
}

impl RestoreCause {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Assigned, Self::Aborted];

    /// The word used in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Aborted => "aborted",
        }
    }
}

/// One partition as of the last emit tick.
#[derive(Clone, Debug)]
pub struct PartitionSnapshot {
    /// Which one.
    pub id: PartitionId,
    /// Its own watermark.
    pub watermark: Option<EventTime>,
    /// The greatest event time accepted.
    pub max_event_time: Option<EventTime>,
    /// Whether it takes part in the minimum.
    pub status: WatermarkStatus,
    /// The out-of-orderness bound in force.
    pub bound: Option<Duration>,
    /// The generator's own numbers.
    pub gauges: Vec<(&'static str, f64)>,
    /// How much silence is left until it is idle; `None` without a timeout.
    pub idle_in: Option<Duration>,
    /// Whether it is not read for now, since it is too far ahead of the watermark.
    pub paused: Option<Paused>,
    /// Whether its silence means anything: caught up, and the broker answers.
    pub caught_up: bool,
    /// The offset of the next record to read; `None` before the first fetch.
    pub position: Option<i64>,
    /// The end offset that the last fetch reported.
    pub end_offset: Option<i64>,
    /// The last stable offset, where it is known: what is behind it belongs to an open transaction of a producer.
    pub last_stable_offset: Option<i64>,
    /// The offset of the next record after those whose outcome is committed; `None` before the first commit of all.
    pub committed: Option<i64>,
    /// What became of its records since it came here.
    pub history: PartitionHistory,
}

/// What became of a partition's records since it came here, as of the last emit tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionHistory {
    /// When it came, its state restored.
    pub since: MonotonicTime,
    /// Records read.
    pub records: u64,
    /// Records accepted: added to a window, or late.
    pub accepted: u64,
    /// Records refused since the last one that was accepted.
    pub refused_in_row: u64,
    /// Why the last of those became a dead letter.
    pub last_refusal: Option<(Reason, String)>,
    /// Records read in the last two seconds that were looked at; `None` before there were two.
    pub records_lately: Option<u64>,
    /// When records last came.
    pub last_record: Option<MonotonicTime>,
    /// Records accepted since its own watermark rose last.
    pub accepted_since_rise: u64,
    /// The out-of-orderness bound when it rose last.
    pub bound_at_rise: Option<Duration>,
}

impl PartitionSnapshot {
    /// Records not read yet; `None` while an end is unknown. Never negative: the end offset may be the older of the two.
    pub fn lag(&self) -> Option<u64> {
        let behind = self.end_offset?.saturating_sub(self.position?);
        Some(u64::try_from(behind).unwrap_or(0))
    }

    /// Whether its silence is worth a word: it is caught up, and its newest event is some seconds old or there is none.
    pub fn is_silent(&self, wall: EventTime) -> bool {
        const A_WHILE: Duration = Duration::from_secs(2);
        self.caught_up && self.max_event_time.is_none_or(|newest| newest.behind(wall) > A_WHILE)
    }
}

/// A window that fired, over all its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiredWindow {
    /// The window.
    pub window: TimeWindow,
    /// On-time panes.
    pub on_time: u64,
    /// Late panes.
    pub late: u64,
    /// When its last pane fired, on the wall clock.
    pub fired_at: EventTime,
}

/// What became of the records since the last commit: counts that are true only once the commit is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By partition.
    pub partitions: BTreeMap<PartitionId, PartitionTally>,
    /// By topic number.
    pub topics: BTreeMap<u16, TopicTally>,
    /// Dead letters by topic number and reason.
    pub dead_letters: BTreeMap<(u16, Reason), u64>,
    /// Panes written, by timing.
    pub panes: BTreeMap<&'static str, u64>,
    /// Those that were on time, by the end of their window.
    pub on_time: BTreeMap<EventTime, u64>,
    /// Panes that became dead letters instead, because their topic takes no message of their size.
    pub panes_undeliverable: u64,
    /// Windows that were freed.
    pub windows_freed: u64,
    /// Output records whose own time was replaced by the current one, since their topic would have deleted or
    /// refused them.
    pub timestamps_replaced: u64,
    /// Times the multiplexer's candidate was below the subtask watermark.
    pub watermark_regressions: u64,
}

/// What was seen of the accepted records of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicTally {
    /// How far they were behind the greatest event time of their partition.
    pub out_of_orderness: Distribution,
    /// How far their event time was behind the wall clock when they were read.
    pub event_time_lag: Distribution,
    /// How far those for the late topic were behind the clock they were judged by.
    pub late_by: Distribution,
    /// The gaps between those of a partition by their Kafka timestamps.
    pub interarrival: Distribution,
}

impl TopicTally {
    /// Takes in another one.
    pub fn merge(&mut self, other: &Self) {
        let Self { out_of_orderness, event_time_lag, late_by, interarrival } = other;
        self.out_of_orderness.merge(out_of_orderness);
        self.event_time_lag.merge(event_time_lag);
        self.late_by.merge(late_by);
        self.interarrival.merge(interarrival);
    }
}

/// The counts of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionTally {
    /// Records read, whatever became of them.
    pub records: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Records without a payload.
    pub tombstones: u64,
    /// Records that were signs of life and nothing more.
    pub heartbeats: u64,
    /// Records of a partition that is not assigned.
    pub ignored: u64,
    /// Records that became dead letters.
    pub refused: u64,
    /// Records that went to the late topic, by cause.
    pub late: [u64; LateCause::ALL.len()],
    /// Records added to a window that had fired.
    pub refired: u64,
    /// Changes to idle.
    pub to_idle: u64,
    /// Changes to active.
    pub to_active: u64,
    /// Records that had been deleted before they were read.
    pub missing: u64,
    /// Times it was paused since it was too far ahead of the watermark.
    pub pauses: u64,
}

impl PartitionTally {
    /// Records that were added to a window, or late.
    pub fn accepted(&self) -> u64 {
        let others = self.tombstones + self.heartbeats + self.ignored + self.refused;
        self.records.saturating_sub(others)
    }
}

impl Tally {
    /// The counts of a partition.
    pub fn partition(&mut self, id: PartitionId) -> &mut PartitionTally {
        self.partitions.entry(id).or_default()
    }

    /// Counts a pane of the window that ends then.
    pub fn pane(&mut self, timing: Timing, end: EventTime) {
        *self.panes.entry(timing.name()).or_default() += 1;
        if timing == Timing::OnTime {
            *self.on_time.entry(end).or_default() += 1;
        }
    }

    /// Counts a dead letter.
    pub fn dead_letter(&mut self, topic: u16, reason: Reason) {
        *self.dead_letters.entry((topic, reason)).or_default() += 1;
    }
}
