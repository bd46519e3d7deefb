//! The open windows of one shard: add, fire, fire again when late, free.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use indexmap::IndexMap;

use super::Event;
use super::aggregate::{Accumulator, AggregateFunction};
use super::time::{EventTime, Watermark, millis};
use super::window::{TimeWindow, TumblingWindows};

/// Whether a pane holds all of the window so far or only what is new since the pane before.
///
/// ```
/// use tidegate::event_time::Panes;
///
/// assert_eq!(Panes::default(), Panes::Accumulating);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panes {
    /// A later pane replaces the earlier ones (Flink: `EventTimeTrigger`).
    #[default]
    Accumulating,
    /// Panes add up; for sinks that sum (Flink: `PurgingTrigger` around it).
    Discarding,
}

/// What the windows are and what they compute.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{AggregateFunction, Panes, TumblingWindows, WindowSettings};
///
/// let settings = WindowSettings {
///     windows: TumblingWindows::new(Duration::from_secs(60), 0).unwrap(),
///     allowed_lateness: Duration::ZERO,
///     panes: Panes::Accumulating,
///     aggregates: vec![AggregateFunction::Count, AggregateFunction::Sum],
/// };
/// assert_eq!(settings.windows.size().as_secs(), 60);
/// ```
#[derive(Clone, Debug)]
pub struct WindowSettings {
    /// How event time is cut.
    pub windows: TumblingWindows,
    /// How long after its end a window still takes records and fires again.
    pub allowed_lateness: Duration,
    /// What a pane holds.
    pub panes: Panes,
    /// The aggregates, in the order of the event's values.
    pub aggregates: Vec<AggregateFunction>,
}

/// Why a pane was fired (Beam's pane timing).
///
/// ```
/// use tidegate::event_time::Timing;
///
/// assert_eq!(Timing::OnTime.name(), "on_time");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The watermark passed the window's end.
    OnTime,
    /// A record came after that, within the allowed lateness.
    Late,
}

impl Timing {
    /// The word used in results and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnTime => "on_time",
            Self::Late => "late",
        }
    }
}

/// Where a pane that fires stands in the operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaneAt {
    start: EventTime,
    entry: usize,
    timing: Timing,
}

/// A pane as the operator lends it out.
#[derive(Debug)]
pub(crate) struct FiredPane<'a> {
    pub(crate) window: TimeWindow,
    pub(crate) key: &'a [u8],
    pub(crate) aggregates: &'a [Accumulator],
    pub(crate) timing: Timing,
    pub(crate) index: u32,
}

/// Keeps one entry per (window, key) and says which panes fire (Flink: `WindowOperator`).
///
/// Adding to a key that is already there allocates nothing. Panes of one watermark come in order of their windows'
/// ends, then of the keys' bytes. The cost of a watermark depends on what it fires and frees, not on what stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowOperator {
    open: BTreeMap<EventTime, OpenWindow>,
    /// Windows whose on-time panes are to be fired, in order.
    due: VecDeque<EventTime>,
    entries: usize,
    /// Windows freed since the owner asked last.
    freed: u64,
}

#[derive(Clone, Debug)]
struct OpenWindow {
    window: TimeWindow,
    keys: IndexMap<Box<[u8]>, Entry, foldhash::fast::RandomState>,
    /// As many per entry as there are aggregates, in the order of the entries.
    accumulators: Vec<Accumulator>,
    /// The entries still to be fired on time, the last key first; `None` until the window's firing has begun.
    firing: Option<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// How many panes of it were fired.
    panes: u32,
    /// Its contents were handed out by a discarding pane: the next record begins anew.
    discarded: bool,
}

impl WindowOperator {
    /// Adds an event to its window. The pane to fire at once, if the clock has passed the window's end already.
    pub(crate) fn add(
        &mut self,
        event: &Event<'_>,
        window: TimeWindow,
        clock: Watermark,
        settings: &WindowSettings,
    ) -> Option<PaneAt> {
        let open = self.open.entry(window.start).or_insert_with(|| OpenWindow::new(window));
        let (index, new) = open.entry(event.key, &settings.aggregates);
        self.entries += usize::from(new);
        open.add(index, event, settings);
        window.is_due(clock).then_some(PaneAt {
            start: window.start,
            entry: index,
            timing: Timing::Late,
        })
    }

    /// Notes the windows that became due by a clock going from `from` to `to`.
    pub(crate) fn advance(&mut self, from: Watermark, to: Watermark, settings: &WindowSettings) {
        let Some(last) = last_due_start(to, settings) else { return };
        let not_due_before = starts_not_due(from, settings);
        if !matches!(not_due_before, Bound::Excluded(before) if before >= last) {
            let due = self.open.range((not_due_before, Bound::Included(last)));
            self.due.extend(due.map(|(start, _)| *start));
        }
    }

    /// Notes the windows that are due and have entries that never fired: what a restored operator still owes.
    pub(crate) fn find_owed(&mut self, clock: Watermark) {
        let owes = |open: &OpenWindow| {
            open.window.is_due(clock) && open.keys.values().any(|entry| entry.panes == 0)
        };
        self.due =
            self.open.iter().filter(|(_, open)| owes(open)).map(|(start, _)| *start).collect();
    }

    /// The next on-time pane, `None` once all that is due has been fired.
    pub(crate) fn next_due(
        &mut self,
        clock: Watermark,
        settings: &WindowSettings,
    ) -> Option<PaneAt> {
        loop {
            let start = *self.due.front()?;
            let next = self.open.get_mut(&start).and_then(OpenWindow::next_to_fire);
            if let Some(entry) = next {
                return Some(PaneAt { start, entry, timing: Timing::OnTime });
            }
            self.due.pop_front();
            let freed = self
                .open
                .get(&start)
                .is_some_and(|open| open.window.is_freed(clock, settings.allowed_lateness));
            if freed {
                self.remove(start);
            }
        }
    }

    /// Drops the windows that are past their allowed lateness; to be called when nothing is due.
    pub(crate) fn free(&mut self, clock: Watermark, settings: &WindowSettings) {
        while let Some((start, open)) = self.open.first_key_value()
            && open.window.is_freed(clock, settings.allowed_lateness)
        {
            self.remove(*start);
        }
    }

    /// How many windows were freed since the last call.
    pub(crate) fn take_freed(&mut self) -> u64 {
        std::mem::take(&mut self.freed)
    }

    /// Counts the pane as fired and lends it out.
    pub(crate) fn fire(&mut self, at: PaneAt, settings: &WindowSettings) -> Option<FiredPane<'_>> {
        let open = self.open.get_mut(&at.start)?;
        let (key, entry) = open.keys.get_index_mut(at.entry)?;
        let index = entry.panes;
        entry.panes += 1;
        entry.discarded = settings.panes == Panes::Discarding;
        let count = settings.aggregates.len();
        let aggregates = open.accumulators.get(at.entry * count..(at.entry + 1) * count)?;
        Some(FiredPane { window: open.window, key, aggregates, timing: at.timing, index })
    }

    /// The least watermark at which a window becomes due or is freed; `None` if none ever does.
    pub(crate) fn next_change(
        &self,
        clock: Watermark,
        settings: &WindowSettings,
    ) -> Option<EventTime> {
        let next_due = self.first_not_due(clock, settings).map(TimeWindow::max_timestamp);
        let next_freed = self
            .open
            .first_key_value()
            .map(|(_, open)| open.window.max_timestamp() + settings.allowed_lateness)
            .filter(|freed_at| *freed_at != EventTime::MAX);
        next_due.into_iter().chain(next_freed).min()
    }

    /// The greatest timestamp of the last window that is not due yet: where a drain has to go.
    pub(crate) fn last_not_due(&self, clock: Watermark) -> Option<EventTime> {
        let last = self.open.last_key_value()?.1.window;
        (!last.is_due(clock)).then(|| last.max_timestamp())
    }

    /// The windows held, in order.
    pub(crate) fn windows(&self) -> impl ExactSizeIterator<Item = (TimeWindow, usize)> {
        self.open.values().map(|open| (open.window, open.keys.len()))
    }

    /// How many (window, key) entries are held.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    fn first_not_due(&self, clock: Watermark, settings: &WindowSettings) -> Option<TimeWindow> {
        let mut not_due = self.open.range((starts_not_due(clock, settings), Bound::Unbounded));
        not_due.next().map(|(_, open)| open.window)
    }

    fn remove(&mut self, start: EventTime) {
        if let Some(open) = self.open.remove(&start) {
            self.entries -= open.keys.len();
            self.freed += 1;
        }
    }
}

impl OpenWindow {
    fn new(window: TimeWindow) -> Self {
        Self { window, keys: IndexMap::default(), accumulators: Vec::new(), firing: None }
    }

    /// The entry of a key, and whether it is new.
    fn entry(&mut self, key: &[u8], aggregates: &[AggregateFunction]) -> (usize, bool) {
        if let Some(index) = self.keys.get_index_of(key) {
            return (index, false);
        }
        let (index, _) = self.keys.insert_full(key.into(), Entry::default());
        self.accumulators.extend(aggregates.iter().map(|function| function.accumulator()));
        (index, true)
    }

    fn add(&mut self, index: usize, event: &Event<'_>, settings: &WindowSettings) {
        let count = settings.aggregates.len();
        let Some(accumulators) = self.accumulators.get_mut(index * count..(index + 1) * count)
        else {
            return;
        };
        if let Some((_, entry)) = self.keys.get_index_mut(index)
            && entry.discarded
        {
            entry.discarded = false;
            accumulators.iter_mut().for_each(Accumulator::reset);
        }
        for (accumulator, value) in accumulators.iter_mut().zip(event.values) {
            if let Some(value) = value {
                accumulator.add(*value);
            }
        }
    }

    /// Takes the next entry off the firing; sorts the keys when the firing begins.
    fn next_to_fire(&mut self) -> Option<usize> {
        let keys = &self.keys;
        let firing = self.firing.get_or_insert_with(|| {
            let unfired = (0u32..).zip(keys.values()).filter(|(_, entry)| entry.panes == 0);
            let mut order: Vec<u32> = unfired.map(|(index, _)| index).collect();
            let key_of = |index: u32| keys.get_index(index as usize).map(|(key, _)| key);
            order.sort_unstable_by(|a, b| key_of(*b).cmp(&key_of(*a)));
            order
        });
        firing.pop().map(|index| index as usize)
    }
}

/// The greatest start of a window that is due at this clock, if any can be.
fn last_due_start(clock: Watermark, settings: &WindowSettings) -> Option<EventTime> {
    let end = clock.time()?.0.saturating_add(1);
    end.checked_sub(millis(settings.windows.size())).map(EventTime)
}

/// Where the starts of windows begin that are not due at this clock.
fn starts_not_due(clock: Watermark, settings: &WindowSettings) -> Bound<EventTime> {
    last_due_start(clock, settings).map_or(Bound::Unbounded, Bound::Excluded)
}
