//! One partition of a topic as a broker keeps it: records and transaction markers at offsets.

use std::collections::{BTreeMap, BTreeSet};

/// The number of a transaction, by which a broker tells its records from others.
pub(crate) type TransactionId = u64;

#[derive(Clone, Debug)]
enum Entry<T> {
    Record { transaction: Option<TransactionId>, record: T },
    Marker,
}

/// A partition's log.
///
/// A transaction's records are there at once, and its marker comes later; until then nobody who reads committed records
/// sees anything from its first record on.
#[derive(Clone, Debug)]
pub(crate) struct Log<T> {
    beginning: i64,
    end: i64,
    entries: BTreeMap<i64, Entry<T>>,
    /// Where the transactions begin whose marker is not here.
    undecided: BTreeMap<TransactionId, i64>,
    aborted: BTreeSet<TransactionId>,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self {
            beginning: 0,
            end: 0,
            entries: BTreeMap::new(),
            undecided: BTreeMap::new(),
            aborted: BTreeSet::new(),
        }
    }
}

impl<T> Log<T> {
    /// Appends a record. Its offset.
    pub(crate) fn append(&mut self, transaction: Option<TransactionId>, record: T) -> i64 {
        if let Some(transaction) = transaction {
            self.undecided.entry(transaction).or_insert(self.end);
        }
        self.put(Entry::Record { transaction, record })
    }

    /// Appends the marker that ends a transaction here.
    pub(crate) fn end_transaction(&mut self, transaction: TransactionId, committed: bool) {
        assert!(
            self.undecided.remove(&transaction).is_some(),
            "a marker of a transaction that is not here"
        );
        if !committed {
            self.aborted.insert(transaction);
        }
        self.put(Entry::Marker);
    }

    fn put(&mut self, entry: Entry<T>) -> i64 {
        let offset = self.end;
        self.entries.insert(offset, entry);
        self.end += 1;
        offset
    }

    pub(crate) fn beginning(&self) -> i64 {
        self.beginning
    }

    /// The end offset, undecided records included.
    pub(crate) fn end(&self) -> i64 {
        self.end
    }

    /// The first offset that a reader of committed records cannot pass.
    pub(crate) fn last_stable(&self) -> i64 {
        self.undecided.values().copied().min().unwrap_or(self.end)
    }

    /// The next committed record from here on; without one, how far a reader of committed records comes.
    pub(crate) fn next_committed(&self, from: i64) -> Result<(i64, &T), i64> {
        self.committed_from(from).next().ok_or(self.last_stable().max(from))
    }

    /// The next record from here on, whatever became of its transaction.
    pub(crate) fn next_uncommitted(&self, from: i64) -> Result<(i64, &T), i64> {
        let mut records = self.entries.range(from..).filter_map(|(offset, entry)| match entry {
            Entry::Record { record, .. } => Some((*offset, record)),
            Entry::Marker => None,
        });
        records.next().ok_or(self.end)
    }

    /// What a reader of committed records sees.
    pub(crate) fn committed(&self) -> impl Iterator<Item = (i64, &T)> {
        self.committed_from(self.beginning)
    }

    /// The same without regard to undecided records in front: what will be seen, whatever becomes of those.
    pub(crate) fn decided(&self) -> impl Iterator<Item = (i64, &T)> {
        let decided = self.entries.iter().filter(|(_, entry)| match entry {
            Entry::Record { transaction: Some(id), .. } => !self.undecided.contains_key(id),
            Entry::Record { transaction: None, .. } | Entry::Marker => true,
        });
        decided.filter_map(|(offset, entry)| Some((*offset, self.committed_record(entry)?)))
    }

    fn committed_from(&self, from: i64) -> impl Iterator<Item = (i64, &T)> {
        let stable = self.last_stable();
        let visible = self.entries.range(from.min(stable)..stable);
        visible.filter_map(|(offset, entry)| Some((*offset, self.committed_record(entry)?)))
    }

    fn committed_record<'a>(&self, entry: &'a Entry<T>) -> Option<&'a T> {
        match entry {
            Entry::Record { transaction, record } => {
                let aborted = transaction.is_some_and(|id| self.aborted.contains(&id));
                (!aborted).then_some(record)
            }
            Entry::Marker => None,
        }
    }

    /// Deletes everything before an offset, as `DeleteRecords` does; the end offset is as far as it goes.
    pub(crate) fn delete_before(&mut self, offset: i64) {
        self.beginning = self.beginning.max(offset.min(self.end));
        self.entries = self.entries.split_off(&self.beginning);
    }

    /// Compacts what lies before an offset, and is stable: of each key the last committed record stays. Offsets stay as
    /// they are.
    pub(crate) fn compact<K: Ord>(&mut self, before: i64, key: impl Fn(&T) -> K) {
        let before = before.min(self.last_stable());
        let mut later = BTreeSet::new();
        let mut gone = Vec::new();
        for (offset, entry) in self.entries.range(..before).rev() {
            let stays =
                self.committed_record(entry).is_some_and(|record| later.insert(key(record)));
            if !stays {
                gone.push(*offset);
            }
        }
        for offset in gone {
            self.entries.remove(&offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Log;

    fn seen(log: &Log<&'static str>) -> Vec<(i64, &'static str)> {
        log.committed().map(|(offset, record)| (offset, *record)).collect()
    }

    #[test]
    fn readers_of_committed_records_stop_at_the_first_undecided_one() {
        let mut log = Log::default();
        log.append(None, "a");
        log.append(Some(1), "b");
        log.append(Some(2), "c");
        log.end_transaction(2, true);
        assert_eq!((log.last_stable(), log.end()), (1, 4));
        assert_eq!(seen(&log), [(0, "a")]);
        assert_eq!(log.next_committed(1), Err(1));
        assert_eq!(log.next_uncommitted(1), Ok((1, &"b")));
        assert_eq!(log.decided().map(|(offset, _)| offset).collect::<Vec<_>>(), [0, 2]);
        log.end_transaction(1, true);
        assert_eq!(log.last_stable(), 5);
        assert_eq!(seen(&log), [(0, "a"), (1, "b"), (2, "c")]);
        assert_eq!(log.next_committed(3), Err(5), "markers are passed");
    }

    #[test]
    fn aborted_records_are_passed() {
        let mut log = Log::default();
        log.append(Some(1), "a");
        log.append(Some(2), "b");
        log.end_transaction(1, false);
        assert_eq!(log.last_stable(), 1);
        log.end_transaction(2, true);
        assert_eq!(seen(&log), [(1, "b")]);
        assert_eq!(log.next_committed(0), Ok((1, &"b")));
        assert_eq!(log.next_uncommitted(0), Ok((0, &"a")));
    }

    #[test]
    fn deleting_moves_the_beginning_and_no_offset() {
        let mut log = Log::default();
        for record in ["a", "b", "c"] {
            log.append(None, record);
        }
        log.delete_before(2);
        assert_eq!((log.beginning(), log.end()), (2, 3));
        assert_eq!(seen(&log), [(2, "c")]);
        log.delete_before(1);
        log.delete_before(9);
        assert_eq!((log.beginning(), log.end()), (3, 3));
        assert_eq!(log.append(None, "d"), 3);
    }

    #[test]
    fn compaction_leaves_the_last_committed_record_of_each_key() {
        let mut log = Log::default();
        log.append(None, "a1");
        log.append(None, "b1");
        log.append(Some(1), "a2");
        log.end_transaction(1, true);
        log.append(Some(2), "b2");
        log.end_transaction(2, false);
        log.append(None, "a3");
        log.append(Some(3), "b3");
        log.compact(6, |record| record.as_bytes()[0]);
        assert_eq!(seen(&log), [(1, "b1"), (2, "a2"), (6, "a3")]);
        log.compact(i64::MAX, |record| record.as_bytes()[0]);
        assert_eq!(seen(&log), [(1, "b1"), (6, "a3")]);
        log.end_transaction(3, true);
        assert_eq!(seen(&log), [(1, "b1"), (6, "a3"), (7, "b3")]);
    }
}
