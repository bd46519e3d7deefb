//! One open window: its entries, what of them is still to be fired and to be saved.

use super::rows::{Row, Rows};
use super::{EntryView, LimitExceeded, Panes, Size, StateLimits};
use crate::event_time::Event;
use crate::event_time::aggregate::AggregateFunction;
use crate::event_time::snapshot::Reader;
use crate::event_time::window::TimeWindow;

#[derive(Clone, Debug)]
pub(super) struct OpenWindow {
    pub(super) window: TimeWindow,
    rows: Rows,
    /// The entries still to be fired on time, the last key first; `None` until the window's firing has begun.
    firing: Option<Vec<u32>>,
    /// The entries that are not as they were last saved, each once.
    changed: Vec<u32>,
    bytes: usize,
}

impl OpenWindow {
    pub(super) fn new(window: TimeWindow, functions: &[AggregateFunction]) -> Self {
        Self {
            window,
            rows: Rows::new(functions),
            firing: None,
            changed: Vec::new(),
            bytes: size_of::<Self>(),
        }
    }

    /// Makes room for so many entries.
    pub(super) fn reserve(&mut self, entries: usize) {
        self.rows.reserve(entries);
    }

    /// What it holds.
    pub(super) fn size(&self) -> Size {
        Size { windows: 1, entries: self.rows.len(), bytes: self.bytes }
    }

    pub(super) fn keys(&self) -> usize {
        self.rows.len()
    }

    /// The entry of a key, and what it adds where it is new.
    pub(super) fn entry(
        &mut self,
        key: &[u8],
        limits: StateLimits,
        held: Size,
    ) -> Result<(u32, Size), LimitExceeded> {
        let new = self.size_of_entry(key);
        let (entry, is_new) = self.rows.of(key, |keys| limits.check(held, new, keys))?;
        Ok((entry, self.grown_by(new, is_new)))
    }

    pub(super) fn add(&mut self, entry: u32, event: &Event<'_>) {
        let has_changed = self.rows.add(entry, event.values);
        self.changed.extend(has_changed.unwrap_or_default().then_some(entry));
    }

    /// Counts a pane of an entry as fired and gives it as it then is, with the pane's index.
    pub(super) fn fire(&mut self, entry: u32, panes: Panes) -> Option<(EntryView<'_>, u32)> {
        let (pane, has_changed) = self.rows.fire(entry, panes == Panes::Discarding)?;
        self.changed.extend(has_changed.then_some(entry));
        Some((self.view(entry, 1)?, pane))
    }

    /// Takes the next entry off the firing; sorts the keys when the firing begins.
    pub(super) fn next_to_fire(&mut self) -> Option<u32> {
        let rows = &self.rows;
        let firing = self.firing.get_or_insert_with(|| {
            let mut order: Vec<_> =
                rows.places().filter(|entry| rows.panes(*entry) == Some(0)).collect();
            order.sort_unstable_by(|a, b| rows.key(*b).cmp(&rows.key(*a)));
            order
        });
        firing.pop()
    }

    /// Whether it has entries that were never fired.
    pub(super) fn has_unfired(&self) -> bool {
        match &self.firing {
            Some(rest) => !rest.is_empty(),
            None => self.rows.places().any(|entry| self.rows.panes(entry) == Some(0)),
        }
    }

    /// Sets an entry to what was saved of it. What it adds where it is new; `None` where the accumulators cannot be had.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        panes: u32,
        discarded: bool,
        accumulators: &mut Reader<'_>,
    ) -> Option<Size> {
        let (entry, is_new) = self.rows.of(key, |_| Ok(())).ok()?;
        self.rows.put(entry, panes, discarded, accumulators)?;
        let new = self.size_of_entry(key);
        Some(self.grown_by(new, is_new))
    }

    /// Every entry, in the order of their arrival.
    pub(super) fn entries(&self) -> impl Iterator<Item = EntryView<'_>> {
        let left = (1..=self.rows.len()).rev();
        self.rows.places().zip(left).filter_map(|(entry, left)| self.view(entry, left))
    }

    /// The entries that are not as they were last saved.
    pub(super) fn changed(&self) -> impl Iterator<Item = EntryView<'_>> {
        let left = (1..=self.changed.len()).rev();
        self.changed.iter().zip(left).filter_map(|(entry, left)| self.view(*entry, left))
    }

    pub(super) fn changed_count(&self) -> usize {
        self.changed.len()
    }

    pub(super) fn mark_saved(&mut self) {
        for entry in self.changed.drain(..) {
            self.rows.mark_saved(entry);
        }
    }

    fn view(&self, entry: u32, left: usize) -> Option<EntryView<'_>> {
        let Row { key, panes, discarded, aggregates } = self.rows.get(entry)?;
        Some(EntryView { window: self.window, left, key, panes, discarded, aggregates })
    }

    fn size_of_entry(&self, key: &[u8]) -> Size {
        Size { windows: 0, entries: 1, bytes: self.rows.bytes_of(key) }
    }

    fn grown_by(&mut self, new: Size, is_new: bool) -> Size {
        if !is_new {
            return Size::default();
        }
        self.bytes += new.bytes;
        new
    }
}
