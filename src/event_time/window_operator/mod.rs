//! The open windows of one shard: add, fire, fire again when late, free.

mod open_window;
mod rows;
mod saved;
mod settings;

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use super::Event;
use super::aggregate::Aggregates;
use super::time::{EventTime, Watermark, millis};
use super::window::TimeWindow;
use open_window::OpenWindow;
pub(crate) use saved::Reopened;
pub use settings::{LimitExceeded, Panes, StateLimits, WindowSettings};

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
    entry: u32,
    timing: Timing,
}

/// A pane as the operator lends it out.
#[derive(Debug)]
pub(crate) struct FiredPane<'a> {
    pub(crate) entry: EntryView<'a>,
    pub(crate) timing: Timing,
    pub(crate) index: u32,
}

/// What is held of a window for a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryView<'a> {
    pub(crate) window: TimeWindow,
    /// How many of its window come in this walk over the entries, from this one on.
    pub(crate) left: usize,
    pub(crate) key: &'a [u8],
    /// How many panes of it were fired.
    pub(crate) panes: u32,
    /// Its contents were handed out by a discarding pane: the next record begins anew.
    pub(crate) discarded: bool,
    pub(crate) aggregates: Aggregates<'a>,
}

/// What is held: windows, (window, key) entries, and an estimate of their bytes that leaves out what sums with floats, or
/// of more than 64 bits, have elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) windows: usize,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl Size {
    /// There is more.
    pub(crate) fn add(&mut self, new: Self) {
        self.windows += new.windows;
        self.entries += new.entries;
        self.bytes += new.bytes;
    }

    /// A part of the whole has changed.
    pub(crate) fn replace(&mut self, before: Self, after: Self) {
        self.windows = self.windows + after.windows - before.windows;
        self.entries = self.entries + after.entries - before.entries;
        self.bytes = self.bytes + after.bytes - before.bytes;
    }
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
    size: Size,
    /// Windows freed since the owner asked last.
    freed: u64,
}

impl WindowOperator {
    /// Adds an event to its window, where the limits have room for it beside what the subtask holds. The pane to fire at
    /// once, if the clock has passed the window's end already.
    pub(crate) fn add(
        &mut self,
        event: &Event<'_>,
        window: TimeWindow,
        clock: Watermark,
        settings: &WindowSettings,
        held: Size,
    ) -> Result<Option<PaneAt>, LimitExceeded> {
        let open = match self.open.entry(window.start) {
            Place::Occupied(open) => open.into_mut(),
            Place::Vacant(place) => {
                let new = OpenWindow::new(window, &settings.aggregates);
                settings.limits.check(held, new.size(), 0)?;
                self.size.add(new.size());
                place.insert(new)
            }
        };
        let (entry, new) = open.entry(event.key, settings.limits, held)?;
        self.size.add(new);
        open.add(entry, event);
        Ok(window.is_due(clock).then_some(PaneAt {
            start: window.start,
            entry,
            timing: Timing::Late,
        }))
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
        let owes = |open: &OpenWindow| open.window.is_due(clock) && open.has_unfired();
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
        let (entry, index) = open.fire(at.entry, settings.panes)?;
        Some(FiredPane { entry, timing: at.timing, index })
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
        self.open.values().map(|open| (open.window, open.keys()))
    }

    /// How much is held.
    pub(crate) fn size(&self) -> Size {
        self.size
    }

    fn first_not_due(&self, clock: Watermark, settings: &WindowSettings) -> Option<TimeWindow> {
        let mut not_due = self.open.range((starts_not_due(clock, settings), Bound::Unbounded));
        not_due.next().map(|(_, open)| open.window)
    }

    fn remove(&mut self, start: EventTime) {
        if let Some(open) = self.open.remove(&start) {
            self.size.replace(open.size(), Size::default());
            self.freed += 1;
        }
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
