//! What a subtask gives: where records went, what fired, what can be seen of it, what moves with a partition.

use std::time::Duration;

use super::aggregate::Aggregates;
use super::alignment::Paused;
use super::multiplexer::WatermarkStatus;
use super::shard::{Shard, ShardId};
use super::time::{EventTime, PartitionId, Watermark};
use super::window::TimeWindow;
use super::window_operator::{LimitExceeded, Timing};

/// Where a record went. Nothing else happens to a record: it is in a window, late, or refused.
///
/// ```
/// use tidegate::event_time::Disposition;
///
/// assert_ne!(Disposition::Windowed, Disposition::NotAssigned);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It was added to its window.
    Windowed,
    /// It was added to its window, which had fired or was due: a late pane follows.
    Refired,
    /// Its window is past the allowed lateness.
    Late(Lateness),
    /// Its window would leave the range of time; it moved nothing.
    TimestampOutOfRange,
    /// Its key is new in its window, and a limit is reached: it is in no window, but moved its partition's watermark.
    KeyLimit(LimitExceeded),
    /// Its partition is not assigned here (any more); it moved nothing.
    NotAssigned,
}

impl Disposition {
    /// Whether the record is in its window.
    pub fn is_windowed(self) -> bool {
        matches!(self, Self::Windowed | Self::Refired)
    }
}

/// What became of a partition that was to be taken in.
///
/// ```
/// use tidegate::event_time::Assigned;
///
/// assert_ne!(Assigned::AsItWas, Assigned::GeneratorAnew);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// It goes on as it was, or begins where nothing was brought along.
    AsItWas,
    /// The snapshot of its generator is of another kind or version: the generator begins anew. The partition's
    /// watermark holds all the same.
    GeneratorAnew,
    /// It is here already, or its topic is none of the settings': nothing has changed.
    NotTaken,
}

/// How a record was found to be late.
///
/// ```
/// use tidegate::event_time::LateCause;
///
/// assert_eq!(LateCause::AfterIdle.name(), "after_idle");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// The window it belonged to.
    pub window: TimeWindow,
    /// The clock it was judged by.
    pub watermark: Watermark,
    /// Which setting to look at.
    pub cause: LateCause,
}

/// Which setting made a record late. Exact, since the clock cannot pass an active partition's own watermark.
///
/// ```
/// use tidegate::event_time::LateCause;
///
/// assert_eq!(LateCause::ALL.map(LateCause::name), ["out_of_order", "after_idle", "joined"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateCause {
    /// The partition's own watermark had passed the window: the bound is too small.
    OutOfOrder,
    /// It had not; the others went on while this one was idle: the timeout is too short, or it was really away.
    AfterIdle,
    /// It had not; the others had gone on before this one came in.
    Joined,
}

impl LateCause {
    /// All causes, for counters that exist before anything happened.
    pub const ALL: [Self; 3] = [Self::OutOfOrder, Self::AfterIdle, Self::Joined];

    /// The word used in headers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfOrder => "out_of_order",
            Self::AfterIdle => "after_idle",
            Self::Joined => "joined",
        }
    }
}

/// A fact that the subtask gives, in the order in which it came about.
///
/// ```
/// use tidegate::event_time::{EventTime, Output, Watermark};
///
/// let output = Output::WatermarkAdvanced(Watermark(EventTime(999)));
/// assert!(matches!(output, Output::WatermarkAdvanced(watermark) if watermark.time() == Some(EventTime(999))));
/// ```
#[derive(Debug)]
pub enum Output<'a> {
    /// A window fired for a key.
    Fired(Pane<'a>),
    /// The subtask watermark rose; the panes it fired follow.
    WatermarkAdvanced(Watermark),
    /// A partition fell idle or came back.
    StatusChanged(PartitionId, WatermarkStatus),
}

/// The contents of a window for one key at a firing.
///
/// ```
/// use tidegate::event_time::{
///     Aggregates, EventTime, Pane, ShardId, TimeWindow, Timing, Watermark,
/// };
///
/// let window = TimeWindow { start: EventTime(0), end: EventTime(10_000) };
/// let pane = Pane {
///     window,
///     key: b"EWR",
///     aggregates: Aggregates::default(),
///     timing: Timing::OnTime,
///     index: 0,
///     watermark: Watermark(EventTime(9_999)),
///     shard: ShardId::All,
/// };
/// assert!(pane.window.is_due(pane.watermark));
/// ```
#[derive(Debug)]
pub struct Pane<'a> {
    /// The window.
    pub window: TimeWindow,
    /// The key, as the event gave it.
    pub key: &'a [u8],
    /// The aggregates, in their configured order.
    pub aggregates: Aggregates<'a>,
    /// Why it fired.
    pub timing: Timing,
    /// How many panes of this window and key came before.
    pub index: u32,
    /// The shard's clock at the firing.
    pub watermark: Watermark,
    /// The shard, and so the partition whose records are in it.
    pub shard: ShardId,
}

/// What a partition brings along from where it was before.
///
/// ```
/// use tidegate::event_time::{EventTime, PartitionState, Watermark};
///
/// let state = PartitionState { watermark: Watermark(EventTime(5)), ..PartitionState::default() };
/// assert!(state.shard.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct PartitionState {
    /// Its own watermark.
    pub watermark: Watermark,
    /// The snapshot of its generator.
    pub generator: Vec<u8>,
    /// The greatest event time accepted so far.
    pub max_event_time: Option<EventTime>,
    /// Its shard, where it has one of its own.
    pub shard: Option<Shard>,
}

impl Default for PartitionState {
    fn default() -> Self {
        Self {
            watermark: Watermark::NONE,
            generator: Vec::new(),
            max_event_time: None,
            shard: None,
        }
    }
}

/// What can be seen of a partition from outside.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{EventTime, PartitionView};
///
/// /// How far the partition's watermark is behind the wall clock.
/// fn lag(view: &PartitionView, wall: EventTime) -> Option<Duration> {
///     Some(view.watermark?.behind(wall))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct PartitionView {
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
    /// Whether its idle clock stands still.
    pub idle_clock_held: bool,
    /// Whether it reads too far ahead of the watermark, and until when.
    pub paused: Option<Paused>,
}
