//! One open window: its keys, what they add up to, what is still to be fired and to be saved.

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::RawEntryApiV1 as _;
use indexmap::map::raw_entry_v1::RawEntryMut;
use std::hash::BuildHasher as _;

use super::held_key::HeldKey;
use super::{EntryView, LimitExceeded, Panes, Size, WindowSettings};
use crate::event_time::Event;
use crate::event_time::aggregate::Accumulator;
use crate::event_time::window::TimeWindow;

#[derive(Clone, Debug)]
pub(super) struct OpenWindow {
    pub(super) window: TimeWindow,
    keys: IndexMap<HeldKey, Entry, RandomState>,
    /// As many per entry as there are aggregates, in the order of the entries.
    accumulators: Vec<Accumulator>,
    /// The entries still to be fired on time, the last key first; `None` until the window's firing has begun.
    firing: Option<Vec<u32>>,
    /// The entries that are not as they were last saved, each once.
    changed: Vec<u32>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// How many panes of it were fired.
    panes: u32,
    /// Its contents were handed out by a discarding pane: the next record begins anew.
    discarded: bool,
    /// It is among those that changed.
    changed: bool,
}

impl OpenWindow {
    pub(super) fn new(window: TimeWindow) -> Self {
        Self {
            window,
            keys: IndexMap::default(),
            accumulators: Vec::new(),
            firing: None,
            changed: Vec::new(),
            bytes: size_of::<Self>(),
        }
    }

    /// Makes room for so many keys with so many accumulators each.
    pub(super) fn reserve(&mut self, keys: usize, aggregates: usize) {
        self.keys.reserve(keys);
        self.accumulators.reserve(keys.saturating_mul(aggregates));
    }

    /// What it holds.
    pub(super) fn size(&self) -> Size {
        Size { windows: 1, entries: self.keys.len(), bytes: self.bytes }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The entry of a key, and what it adds where it is new.
    pub(super) fn entry(
        &mut self,
        key: &[u8],
        settings: &WindowSettings,
        held: Size,
    ) -> Result<(usize, Size), LimitExceeded> {
        let count = self.keys.len();
        let hash = self.keys.hasher().hash_one(key);
        match self.keys.raw_entry_mut_v1().from_hash(hash, |held| **held == *key) {
            RawEntryMut::Occupied(entry) => Ok((entry.index(), Size::default())),
            RawEntryMut::Vacant(vacant) => {
                let new = Size::of_entry(key, settings.aggregates.len());
                settings.limits.check(held, new, count)?;
                let index = vacant.index();
                vacant.insert_hashed_nocheck(hash, key.into(), Entry::default());
                let empty = settings.aggregates.iter().map(|function| function.accumulator());
                self.accumulators.extend(empty);
                self.bytes += new.bytes;
                Ok((index, new))
            }
        }
    }

    pub(super) fn add(&mut self, index: usize, event: &Event<'_>, settings: &WindowSettings) {
        let count = settings.aggregates.len();
        let Some(accumulators) = self.accumulators.get_mut(index * count..(index + 1) * count)
        else {
            return;
        };
        let Some((_, entry)) = self.keys.get_index_mut(index) else { return };
        if entry.discarded {
            entry.discarded = false;
            accumulators.iter_mut().for_each(Accumulator::reset);
        }
        note_change(entry, index, &mut self.changed);
        for (accumulator, value) in accumulators.iter_mut().zip(event.values) {
            if let Some(value) = value {
                accumulator.add(*value);
            }
        }
    }

    /// Counts a pane of an entry as fired and gives it as it then is, with the pane's index.
    pub(super) fn fire(&mut self, index: usize, panes: Panes) -> Option<(EntryView<'_>, u32)> {
        let (_, entry) = self.keys.get_index_mut(index)?;
        let pane = entry.panes;
        entry.panes = pane.saturating_add(1);
        entry.discarded = panes == Panes::Discarding;
        note_change(entry, index, &mut self.changed);
        Some((self.view(index, 1)?, pane))
    }

    /// Takes the next entry off the firing; sorts the keys when the firing begins.
    pub(super) fn next_to_fire(&mut self) -> Option<usize> {
        let keys = &self.keys;
        let firing = self.firing.get_or_insert_with(|| {
            let unfired = (0u32..).zip(keys.values()).filter(|(_, entry)| entry.panes == 0);
            let mut order: Vec<u32> = unfired.map(|(index, _)| index).collect();
            let key_of = |index: u32| keys.get_index(index as usize).map(|(key, _)| &**key);
            order.sort_unstable_by(|a, b| key_of(*b).cmp(&key_of(*a)));
            order
        });
        firing.pop().map(|index| index as usize)
    }

    /// Whether it has entries that were never fired.
    pub(super) fn has_unfired(&self) -> bool {
        match &self.firing {
            Some(rest) => !rest.is_empty(),
            None => self.keys.values().any(|entry| entry.panes == 0),
        }
    }

    /// Sets an entry to what was saved of it. What it adds where it is new; `None`, and nothing done, where there is an
    /// accumulator that cannot be had.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        panes: u32,
        discarded: bool,
        accumulators: impl Iterator<Item = Option<Accumulator>>,
    ) -> Option<Size> {
        // Where the key is new they are in their place at once.
        let last = self.accumulators.len();
        for accumulator in accumulators {
            let Some(accumulator) = accumulator else {
                self.accumulators.truncate(last);
                return None;
            };
            self.accumulators.push(accumulator);
        }
        let count = self.accumulators.len() - last;
        let entry = Entry { panes, discarded, changed: false };
        let hash = self.keys.hasher().hash_one(key);
        match self.keys.raw_entry_mut_v1().from_hash(hash, |held| **held == *key) {
            RawEntryMut::Occupied(mut held) => {
                let first = held.index() * count;
                held.insert(entry);
                for nth in 0..count {
                    self.accumulators.swap(first + nth, last + nth);
                }
                self.accumulators.truncate(last);
                Some(Size::default())
            }
            RawEntryMut::Vacant(vacant) => {
                vacant.insert_hashed_nocheck(hash, key.into(), entry);
                let new = Size::of_entry(key, count);
                self.bytes += new.bytes;
                Some(new)
            }
        }
    }

    /// Every entry, in the order of their arrival.
    pub(super) fn entries(&self) -> impl Iterator<Item = EntryView<'_>> {
        (0..self.keys.len()).filter_map(|index| self.view(index, self.keys.len() - index))
    }

    /// The entries that are not as they were last saved.
    pub(super) fn changed(&self) -> impl Iterator<Item = EntryView<'_>> {
        let left = (1..=self.changed.len()).rev();
        self.changed.iter().zip(left).filter_map(|(index, left)| self.view(*index as usize, left))
    }

    pub(super) fn changed_count(&self) -> usize {
        self.changed.len()
    }

    pub(super) fn mark_saved(&mut self) {
        for index in self.changed.drain(..) {
            if let Some((_, entry)) = self.keys.get_index_mut(index as usize) {
                entry.changed = false;
            }
        }
    }

    fn view(&self, index: usize, left: usize) -> Option<EntryView<'_>> {
        let (key, entry) = self.keys.get_index(index)?;
        let count = self.accumulators.len() / self.keys.len();
        Some(EntryView {
            window: self.window,
            left,
            key,
            panes: entry.panes,
            discarded: entry.discarded,
            accumulators: self.accumulators.get(index * count..(index + 1) * count)?,
        })
    }
}

/// Of an entry that has changed already it costs one look.
fn note_change(entry: &mut Entry, index: usize, changed: &mut Vec<u32>) {
    if !entry.changed {
        entry.changed = true;
        // A window with more keys than this does not fit into memory.
        changed.extend(u32::try_from(index));
    }
}

impl Size {
    fn of_entry(key: &[u8], aggregates: usize) -> Self {
        let held = size_of::<(u64, HeldKey, Entry)>() + INDEX + HeldKey::bytes_elsewhere(key.len());
        let bytes = held + aggregates * size_of::<Accumulator>();
        Self { windows: 0, entries: 1, bytes }
    }
}

/// A place in the map's table, at its usual load.
const INDEX: usize = 16;
