//! Rows on their way into the database, each once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::types::ToSql;

use super::row::{Identity, Pane};
use super::table::Layout;
use crate::event_time::PartitionId;

/// What one database transaction writes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The last pane of each row. The order is that of the index, so that two exporters never wait for each other.
    rows: BTreeMap<Identity, Pane>,
    /// For each partition that was read from, the offset of the next record.
    next: BTreeMap<PartitionId, i64>,
}

impl Batch {
    /// Takes in a row. Of several panes of one row the last one stays, by its index.
    pub(super) fn add(&mut self, identity: Identity, pane: Pane) {
        match self.rows.entry(identity) {
            Entry::Vacant(entry) => {
                entry.insert(pane);
            }
            Entry::Occupied(mut entry) => {
                if entry.get().index <= pane.index {
                    entry.insert(pane);
                }
            }
        }
    }

    /// Everything before this offset is in the batch, or needs no place in it.
    pub(super) fn read_up_to(&mut self, partition: PartitionId, next: i64) {
        self.next.insert(partition, next);
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn next(&self) -> &BTreeMap<PartitionId, i64> {
        &self.next
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.next.clear();
    }

    pub(super) fn arrays<'a>(&'a self, layout: &Layout) -> Arrays<'a> {
        let mut arrays = Arrays {
            window_start: Vec::new(),
            keys: vec![Vec::new(); layout.keys.len()],
            key_types: layout.typed_keys.then(Vec::new),
            partition: layout.partition.map(|_| Vec::new()),
            window_end: Vec::new(),
            values: vec![Vec::new(); layout.aggregates.len()],
            overflow: Vec::new(),
            pane_index: Vec::new(),
            pane_timing: Vec::new(),
        };
        for (identity, pane) in &self.rows {
            arrays.add(identity, pane);
        }
        arrays
    }
}

/// The rows, a column at a time, in the order of [`Layout::columns`] without the last.
#[derive(Debug)]
pub(super) struct Arrays<'a> {
    window_start: Vec<SystemTime>,
    keys: Vec<Vec<&'a str>>,
    key_types: Option<Vec<&'a str>>,
    partition: Option<Vec<i32>>,
    window_end: Vec<SystemTime>,
    values: Vec<Vec<Option<&'a str>>>,
    overflow: Vec<Option<&'a str>>,
    pane_index: Vec<i64>,
    pane_timing: Vec<&'a str>,
}

impl<'a> Arrays<'a> {
    fn add(&mut self, identity: &'a Identity, pane: &'a Pane) {
        self.window_start.push(system_time(identity.window_start));
        for (column, key) in self.keys.iter_mut().zip(&identity.keys) {
            column.push(key);
        }
        if let Some(column) = &mut self.key_types {
            column.push(&identity.key_types);
        }
        if let Some(column) = &mut self.partition {
            column.push(identity.partition);
        }
        self.window_end.push(system_time(pane.window_end));
        for (column, value) in self.values.iter_mut().zip(&pane.values) {
            column.push(value.as_deref());
        }
        self.overflow.push(pane.overflow.as_deref());
        self.pane_index.push(pane.index);
        self.pane_timing.push(&pane.timing);
    }

    /// As the statement takes them.
    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&self.window_start];
        parameters.extend(self.keys.iter().map(|column| column as &(dyn ToSql + Sync)));
        parameters.extend(self.key_types.iter().map(|column| column as &(dyn ToSql + Sync)));
        parameters.extend(self.partition.iter().map(|column| column as &(dyn ToSql + Sync)));
        parameters.push(&self.window_end);
        parameters.extend(self.values.iter().map(|column| column as &(dyn ToSql + Sync)));
        parameters.push(&self.overflow);
        parameters.push(&self.pane_index);
        parameters.push(&self.pane_timing);
        parameters
    }
}

/// The same moment; rows have only those of PostgreSQL's calendar, which are within the system's.
fn system_time(ms: i64) -> SystemTime {
    let distance = Duration::from_millis(ms.unsigned_abs());
    let moment =
        if ms < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    moment.unwrap_or(UNIX_EPOCH)
}
