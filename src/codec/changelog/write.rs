//! What has changed of a shard into the messages of its next commit.

use super::part::{Head, StateRecord, end_entries, mark_last, write_entry};
use super::{Layout, SavedPartition};
use crate::event_time::{EntryView, ShardId, ShardView, Subtask, TimeWindow};

/// Writes one shard's changelog; it knows what the topic holds of the shard.
///
/// It lives as long as the shard: where a transaction was aborted both are thrown away, and come back from a
/// [`super::Restorer`].
#[derive(Clone, Debug, Default)]
pub struct ShardWriter {
    log: Log,
    /// The log with the messages last made, until they are committed.
    next: Option<Log>,
    /// The topic may hold what other shards still have to be made of.
    past: bool,
}

/// The messages of one commit.
#[derive(Clone, Debug)]
pub struct Written {
    /// The commit sequence.
    pub sequence: u64,
    /// Whether they hold everything: once they are committed, what lies before the first of them is of no use.
    pub snapshot: bool,
    /// Keys and values, in their order.
    pub messages: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Written {
    /// How many bytes all of them have.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

/// What a partition of the changelog holds since its last snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// Of the last commit; 0 before the first.
    pub(super) sequence: u64,
    /// The slot after the last message's.
    pub(super) next_slot: u32,
    pub(super) snapshot_bytes: usize,
    pub(super) bytes_since: usize,
    /// Its last state record.
    pub(super) state: Vec<u8>,
    /// Whether a snapshot is there that can be built upon.
    pub(super) has_snapshot: bool,
}

impl Log {
    /// Takes in a sequence of so many bytes that ends before this slot.
    pub(super) fn take(
        &mut self,
        sequence: u64,
        snapshot: bool,
        next_slot: u32,
        bytes: usize,
        state: Vec<u8>,
    ) {
        let (snapshot_bytes, bytes_since) = if snapshot {
            (bytes, 0)
        } else {
            (self.snapshot_bytes, self.bytes_since.saturating_add(bytes))
        };
        *self =
            Self { sequence, next_slot, snapshot_bytes, bytes_since, state, has_snapshot: true };
    }

    /// Where the next snapshot begins: in the other half of the slots.
    fn next_generation(&self) -> u32 {
        if (1..=HALF).contains(&self.next_slot) { HALF } else { 0 }
    }

    /// Whether the next sequence is to be a snapshot.
    fn wants_snapshot(&self, shard: &ShardView<'_>) -> bool {
        let bearable = self.snapshot_bytes.saturating_mul(2).saturating_add(BYTES_SINCE);
        !self.has_snapshot
            || self.bytes_since > bearable
            || shard.changed_count() * 10 >= shard.entry_count() * 7
    }
}

impl ShardWriter {
    /// The writer of a shard that has never been written.
    pub fn new() -> Self {
        Self::default()
    }

    /// The writer of a shard that succeeds the shard of this one: its sequences follow.
    #[must_use]
    pub fn successor(&self) -> Self {
        let Log { sequence, next_slot, .. } = self.log;
        Self { log: Log { sequence, next_slot, ..Log::default() }, next: None, past: true }
    }

    /// The same where it succeeds another shard too.
    pub fn succeed(&mut self, other: &Self) {
        self.log.sequence = self.log.sequence.max(other.log.sequence);
        self.log.next_slot = self.log.next_slot.max(other.log.next_slot);
    }

    /// Whether nothing of what the topic holds may be deleted or replaced yet.
    pub fn keeps_the_past(&self) -> bool {
        self.past || (self.log.sequence > 0 && !self.log.has_snapshot)
    }

    /// Whether the topic holds what was written under another layout, which other shards may still have to be made of.
    pub fn has_past(&self) -> bool {
        self.past
    }

    /// No other shard needs what was written under another layout.
    pub fn forget_the_past(&mut self) {
        self.past = false;
    }

    /// Has the next commit write the shard also where nothing of it has changed.
    pub fn write_again(&mut self) {
        self.log.state.clear();
    }

    /// Whether the next commit writes the shard in any case.
    pub fn is_to_be_written(&self) -> bool {
        self.log.state.is_empty()
    }

    pub(super) fn going_on(log: Log, past: bool) -> Self {
        Self { log, next: None, past }
    }

    /// The sequence of the last commit; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.log.sequence
    }

    /// The messages of the next commit; `None` if nothing has changed since the last.
    ///
    /// A value has at most `max_bytes`, which the topic has to take together with a key of four bytes, or 512 KiB if
    /// that is less; a single entry or the state record may be larger, since they are not divided. Nothing of the
    /// shard may change until the commit is known.
    pub fn write(
        &mut self,
        subtask: &Subtask,
        shard: ShardId,
        partitions: &[SavedPartition],
        layout: &Layout,
        max_bytes: usize,
    ) -> Option<Written> {
        self.next = None;
        let functions = &subtask.window_settings().aggregates;
        let shard = subtask.shard(shard)?;
        let mut state = Vec::new();
        StateRecord::write(&shard, partitions, layout, &mut state);
        let same = self.log.has_snapshot && self.log.state == state;
        if same && shard.changed().next().is_none() {
            return None;
        }
        let snapshot = self.log.wants_snapshot(&shard);
        let head = Head {
            snapshot,
            sequence: self.log.sequence + 1,
            part: 0,
            functions: functions.clone(),
        };
        let sequence = head.sequence;
        let first_slot =
            if snapshot && !self.past { self.log.next_generation() } else { self.log.next_slot };
        let mut parts = Parts::new(head, first_slot, max_bytes.min(PART_BYTES));
        if snapshot {
            shard.entries().for_each(|entry| parts.add(&entry));
        } else {
            shard.changed().for_each(|entry| parts.add(&entry));
        }
        let (messages, next_slot) = parts.finish(&state);
        let written = Written { sequence, snapshot, messages };
        let mut next = self.log.clone();
        next.take(sequence, snapshot, next_slot, written.bytes(), state);
        self.next = Some(next);
        Some(written)
    }

    /// The messages last made have been committed.
    pub fn committed(&mut self) {
        if let Some(next) = self.next.take() {
            self.log = next;
        }
    }
}

/// Keys and values.
type Messages = Vec<(Vec<u8>, Vec<u8>)>;

/// The parts of one sequence.
#[derive(Debug)]
struct Parts {
    head: Head,
    slot: u32,
    most: usize,
    messages: Messages,
    part: Vec<u8>,
    /// Where the entries of this part begin.
    begin: usize,
    window: Option<TimeWindow>,
}

impl Parts {
    fn new(head: Head, slot: u32, most: usize) -> Self {
        let (messages, part) = (Vec::new(), Vec::new());
        let mut parts = Self { head, slot, most, messages, part, begin: 0, window: None };
        parts.begin();
        parts
    }

    fn begin(&mut self) {
        self.head.write(&mut self.part);
        self.begin = self.part.len();
        self.window = None;
    }

    fn add(&mut self, entry: &EntryView<'_>) {
        let before = self.part.len();
        write_entry(entry, &mut self.window, &mut self.part);
        if self.part.len() >= self.most && before > self.begin {
            self.part.truncate(before);
            self.end();
            self.begin();
            write_entry(entry, &mut self.window, &mut self.part);
        }
    }

    fn end(&mut self) {
        end_entries(&mut self.part);
        self.put();
        self.head.part += 1;
    }

    fn put(&mut self) {
        let key = self.slot.to_be_bytes().to_vec();
        self.messages.push((key, std::mem::take(&mut self.part)));
        self.slot = self.slot.saturating_add(1);
    }

    /// All messages, and the slot after the last.
    fn finish(mut self, state: &[u8]) -> (Messages, u32) {
        if self.part.len() + state.len() >= self.most && self.part.len() > self.begin {
            self.end();
            self.begin();
        }
        end_entries(&mut self.part);
        mark_last(&mut self.part);
        self.part.extend_from_slice(state);
        self.put();
        (self.messages, self.slot)
    }
}

/// The first slot of every other generation.
const HALF: u32 = 1 << 31;

/// The most that a part has, so that no message is near what brokers take by default.
const PART_BYTES: usize = 512 << 10;

/// So much is written after a snapshot, however small it is, before the next.
const BYTES_SINCE: usize = 256 << 10;
