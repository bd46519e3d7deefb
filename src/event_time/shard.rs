//! The unit of window state: its windows and one clock.

use std::collections::BTreeSet;

use super::aggregate::AggregateFunction;
use super::time::{EventTime, PartitionId, Watermark};
use super::window::TimeWindow;
use super::window_operator::{EntryView, Reopened, WindowOperator, WindowSettings};

/// Which records share a shard.
///
/// ```
/// use tidegate::event_time::Sharding;
///
/// assert_ne!(Sharding::OneForAll, Sharding::PerPartition);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// A key's records are in many partitions: one shard holds them all.
    OneForAll,
    /// A key's records are in one partition: each partition has a shard of its own.
    PerPartition,
}

/// The name of a shard.
///
/// ```
/// use tidegate::event_time::{PartitionId, ShardId};
///
/// assert_eq!(ShardId::Partition(PartitionId { topic: 0, partition: 3 }).partition().unwrap().partition, 3);
/// assert_eq!(ShardId::All.partition(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardId {
    /// The one shard for all partitions.
    All,
    /// The shard of one partition.
    Partition(PartitionId),
}

impl ShardId {
    /// The partition whose records it holds, if it is that of one.
    pub fn partition(self) -> Option<PartitionId> {
        match self {
            Self::All => None,
            Self::Partition(partition) => Some(partition),
        }
    }
}

/// Windows that move, fire and are judged together.
///
/// A shard's clock is the greatest multiplexer candidate since the shard came here, and never below the clock that it
/// brought along. As long as that equals the subtask watermark the shard follows it and costs nothing when it rises.
///
/// ```
/// use tidegate::event_time::{PartitionState, Shard};
///
/// /// What a partition takes along besides its own watermark.
/// fn luggage(state: &PartitionState) -> Option<&Shard> {
///     state.shard.as_ref()
/// }
///
/// assert!(luggage(&PartitionState::default()).is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Shard {
    pub(crate) id: ShardId,
    /// `None` while the shard follows the subtask watermark.
    pub(crate) own_clock: Option<Watermark>,
    /// The clock with which it came here.
    pub(crate) first_clock: Watermark,
    /// Windows whose greatest timestamp is not above this are closed for good, whatever the allowed lateness says now:
    /// they were freed under another one, or belonged to another configuration.
    pub(crate) closed: EventTime,
    pub(crate) operator: WindowOperator,
}

impl Shard {
    pub(crate) fn following(id: ShardId) -> Self {
        Self {
            id,
            own_clock: None,
            first_clock: Watermark::NONE,
            closed: EventTime::MIN,
            operator: WindowOperator::default(),
        }
    }

    /// A shard that stood at this clock, to be filled with what was saved of it.
    pub(crate) fn restored(id: ShardId, clock: Watermark) -> Self {
        Self { own_clock: Some(clock), ..Self::following(id) }
    }

    /// An empty shard of another name that has closed what this one has.
    pub(crate) fn successor(&self, id: ShardId) -> Self {
        Self {
            closed: self.closed,
            ..Self::restored(id, self.own_clock.unwrap_or(Watermark::NONE))
        }
    }

    /// Closes what another one has closed, too.
    pub(crate) fn succeed(&mut self, other: &Self) {
        self.own_clock = self.own_clock.max(other.own_clock);
        self.closed = self.closed.max(other.closed);
    }

    /// Its name.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// The clock that it brings along; `None` while it follows the watermark of a subtask.
    pub fn clock_brought(&self) -> Option<Watermark> {
        self.own_clock
    }

    /// The clock its records are judged by.
    pub(crate) fn clock(&self, subtask_watermark: Watermark) -> Watermark {
        self.own_clock.unwrap_or(subtask_watermark)
    }

    /// Whether the window was closed before the shard came here.
    pub(crate) fn has_closed(&self, window: TimeWindow) -> bool {
        window.max_timestamp() <= self.closed
    }

    /// A window to be filled with what was saved of it. Makes room for so many entries, those that it has counted as
    /// some of them.
    pub(crate) fn reopen(
        &mut self,
        window: TimeWindow,
        entries: usize,
        functions: &[AggregateFunction],
    ) -> Reopened<'_> {
        self.operator.reopen(window, entries, functions)
    }

    /// Forgets all windows; the clock stays.
    pub(crate) fn forget_entries(&mut self) {
        self.operator = WindowOperator::default();
    }

    /// Drops the windows that were closed when they were saved, those excepted that were still owed. How many entries.
    pub(crate) fn drop_closed(&mut self, closed: EventTime, owed: &BTreeSet<EventTime>) -> usize {
        self.operator.drop_closed(closed, owed)
    }

    /// Drops the windows that are closed, or past their allowed lateness at its clock, and have all been fired. How many
    /// entries.
    pub(crate) fn drop_freed(&mut self, settings: &WindowSettings) -> usize {
        let closed = closed_at(self.clock(Watermark::NONE), settings);
        self.operator.drop_freed(self.closed.max(closed))
    }

    /// Closes windows up to this greatest timestamp for good, where its clock alone does not.
    pub(crate) fn close(&mut self, closed: EventTime, settings: &WindowSettings) {
        if closed > closed_at(self.clock(Watermark::NONE), settings) {
            self.closed = self.closed.max(closed);
        }
    }

    /// Closes all windows that it holds, and forgets them.
    pub(crate) fn close_all(&mut self) {
        self.closed = self.operator.last_held().map_or(self.closed, |last| self.closed.max(last));
        self.forget_entries();
    }

    /// How many windows it holds that have not fired for each of their keys.
    pub(crate) fn unfired_windows(&self) -> usize {
        self.operator.unfired_windows()
    }

    /// The windows that it holds, in order.
    pub(crate) fn windows(&self) -> impl Iterator<Item = TimeWindow> {
        self.operator.windows().map(|(window, _)| window)
    }

    /// How many (window, key) entries it holds.
    pub(crate) fn entry_count(&self) -> usize {
        self.operator.size().entries
    }
}

/// What is to be saved of a shard.
#[derive(Debug)]
pub(crate) struct ShardView<'a> {
    pub(super) shard: &'a Shard,
    pub(super) clock: Watermark,
    pub(super) settings: &'a WindowSettings,
}

impl<'a> ShardView<'a> {
    pub(crate) fn clock(&self) -> Watermark {
        self.clock
    }

    /// Windows whose greatest timestamp is not above this are closed for good; those excepted that are owed.
    pub(crate) fn closed(&self) -> EventTime {
        self.shard.closed.max(closed_at(self.clock, self.settings))
    }

    /// The windows that are excepted from that, since they have not all been fired.
    pub(crate) fn owed(&self) -> impl Iterator<Item = TimeWindow> + use<'a> {
        self.shard.operator.owed(self.closed())
    }

    /// Every entry that somebody may see again, window by window.
    pub(crate) fn entries(&self) -> impl Iterator<Item = EntryView<'a>> + use<'a> {
        self.shard.operator.entries(self.clock, self.settings.allowed_lateness)
    }

    /// The same of those that are not as they were last saved.
    pub(crate) fn changed(&self) -> impl Iterator<Item = EntryView<'a>> + use<'a> {
        self.shard.operator.changed(self.clock, self.settings.allowed_lateness)
    }

    pub(crate) fn entry_count(&self) -> usize {
        self.shard.operator.size().entries
    }

    pub(crate) fn changed_count(&self) -> usize {
        self.shard.operator.changed_count()
    }
}

/// Windows whose greatest timestamp is not above this are past their allowed lateness at this clock.
fn closed_at(clock: Watermark, settings: &WindowSettings) -> EventTime {
    // A window that would be freed at the end of time never is.
    let clock = clock.time().map(|clock| clock.min(EventTime(i64::MAX - 1)));
    clock.map_or(EventTime::MIN, |clock| clock - settings.allowed_lateness)
}
