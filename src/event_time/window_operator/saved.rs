//! What of the open windows is saved, and how they are made of what was.

use std::collections::BTreeSet;
use std::time::Duration;

use super::open_window::OpenWindow;
use super::{EntryView, Size, WindowOperator};
use crate::event_time::aggregate::AggregateFunction;
use crate::event_time::snapshot::Reader;
use crate::event_time::time::{EventTime, Watermark};
use crate::event_time::window::TimeWindow;

/// A window that is being filled with what was saved of it.
#[derive(Debug)]
pub(crate) struct Reopened<'a> {
    open: &'a mut OpenWindow,
    /// That of all windows.
    size: &'a mut Size,
}

impl Reopened<'_> {
    /// Sets an entry to what was saved of it; it counts as saved. `None` where the accumulators cannot be had.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        panes: u32,
        discarded: bool,
        accumulators: &mut Reader<'_>,
    ) -> Option<()> {
        let new = self.open.put(key, panes, discarded, accumulators)?;
        self.size.add(new);
        Some(())
    }
}

impl WindowOperator {
    /// Every entry, window by window; those excepted that nobody will ever see again at this clock.
    pub(crate) fn entries(
        &self,
        clock: Watermark,
        lateness: Duration,
    ) -> impl Iterator<Item = EntryView<'_>> {
        self.wanted(clock, lateness).flat_map(OpenWindow::entries)
    }

    /// The same of the entries that are not as they were last saved.
    pub(crate) fn changed(
        &self,
        clock: Watermark,
        lateness: Duration,
    ) -> impl Iterator<Item = EntryView<'_>> {
        self.wanted(clock, lateness).flat_map(OpenWindow::changed)
    }

    /// How many entries are not as they were last saved.
    pub(crate) fn changed_count(&self) -> usize {
        self.open.values().map(OpenWindow::changed_count).sum()
    }

    /// Everything is saved.
    pub(crate) fn mark_saved(&mut self) {
        self.open.values_mut().for_each(OpenWindow::mark_saved);
    }

    /// The windows with no timestamp above this one that have not all been fired.
    pub(crate) fn owed(&self, closed: EventTime) -> impl Iterator<Item = TimeWindow> {
        self.up_to(closed).filter(|open| open.has_unfired()).map(|open| open.window)
    }

    /// The first window whose on-time panes are being fired.
    pub(crate) fn first_due(&self) -> Option<TimeWindow> {
        self.due.front().and_then(|start| self.open.get(start)).map(|open| open.window)
    }

    /// How many windows have entries that were never fired.
    pub(crate) fn unfired_windows(&self) -> usize {
        self.open.values().filter(|open| open.has_unfired()).count()
    }

    /// The greatest timestamp of the last window held.
    pub(crate) fn last_held(&self) -> Option<EventTime> {
        self.open.last_key_value().map(|(_, open)| open.window.max_timestamp())
    }

    /// A window to be filled with what was saved of it. Makes room for so many entries, those that it has counted as
    /// some of them.
    pub(crate) fn reopen(
        &mut self,
        window: TimeWindow,
        entries: usize,
        functions: &[AggregateFunction],
    ) -> Reopened<'_> {
        let size = &mut self.size;
        let open = self.open.entry(window.start).or_insert_with(|| {
            let new = OpenWindow::new(window, functions);
            size.add(new.size());
            new
        });
        open.reserve(entries.saturating_sub(open.keys()));
        Reopened { open, size }
    }

    /// Drops the windows that were closed when they were saved, those excepted that were still owed. How many entries.
    pub(crate) fn drop_closed(&mut self, closed: EventTime, owed: &BTreeSet<EventTime>) -> usize {
        self.drop_up_to(closed, |open| owed.contains(&open.window.start))
    }

    /// Drops the windows with no timestamp above this one that have all been fired. How many entries.
    pub(crate) fn drop_freed(&mut self, closed: EventTime) -> usize {
        self.drop_up_to(closed, OpenWindow::has_unfired)
    }

    /// Of the windows with no timestamp above this one, drops those which `kept` does not name.
    fn drop_up_to(&mut self, closed: EventTime, kept: impl Fn(&OpenWindow) -> bool) -> usize {
        let closed = self.up_to(closed).filter(|open| !kept(open));
        let dropped: Vec<EventTime> = closed.map(|open| open.window.start).collect();
        let before = self.size.entries;
        for start in dropped {
            self.remove(start);
        }
        self.freed = 0;
        before - self.size.entries
    }

    fn up_to(&self, closed: EventTime) -> impl Iterator<Item = &OpenWindow> {
        self.open.values().take_while(move |open| open.window.max_timestamp() <= closed)
    }

    fn wanted(&self, clock: Watermark, lateness: Duration) -> impl Iterator<Item = &OpenWindow> {
        let done =
            move |open: &OpenWindow| open.window.is_freed(clock, lateness) && !open.has_unfired();
        self.open.values().filter(move |open| !done(open))
    }
}
