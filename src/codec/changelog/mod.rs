//! The state of shards as the messages of a changelog topic, and back. Pure: what reads and writes the topic is elsewhere.
//!
//! A shard has one partition of the topic. At each commit that touches it, a [`ShardWriter`] makes one **commit
//! sequence** of one or more messages, its parts; a [`Restorer`] makes the shard of them again.
//!
//! # Slots
//!
//! A message's key is its slot: four bytes, big-endian. A snapshot is a sequence whose parts hold everything there is; it
//! and the changes after it are a generation, whose messages take one slot after the other, by turns from 0 and from 2^31
//! on. So compaction replaces the messages of the generation before the last by those of the newest, and never touches
//! what a snapshot that is still being written will replace (without transactions a crash may leave it incomplete). Once
//! a snapshot is committed, everything before its first message may be deleted.
//!
//! A snapshot is written at first, where so much has been written since the last one that reading it all would take
//! longer than reading a new one, and where nearly everything has changed anyway: the topic stays as short as what is
//! open, whatever the age of the service. Entries are absolute, not differences: the later one holds.
//!
//! # Bytes
//!
//! *Number*: of as few bytes as it needs, seven bits in each, the lowest first; a set top bit says that more follow.
//! *Signed*: zigzag, then as a number. *Bytes*: their length as a number, then themselves.
//!
//! A message's value is one part:
//!
//! | | what |
//! |---|---|
//! | one byte | the format's version, 1 |
//! | one byte | 1: the last part of its sequence; 2: of a snapshot; added up |
//! | number | the sequence: from 1, one more for each commit that touches the shard |
//! | number | the part: from 0 within its sequence |
//! | bytes | the aggregates' functions in their order: count 0, sum 1, min 2, max 3, avg 4 |
//! | entries | each begins with a number: 1, a window follows, to which the entries after it belong; from 2 on, a key of two bytes less follows; 0, there are no more |
//! | state record | in the last part only |
//!
//! | window | what |
//! |---|---|
//! | signed | its start, in milliseconds since the epoch |
//! | number | its length in milliseconds |
//! | number | how many entries of it are in this sequence from here on: to make room for them |
//!
//! | entry | what |
//! |---|---|
//! | its bytes | the key |
//! | number | twice the panes that were fired of it; plus one: a discarding pane has handed its contents out |
//! | accumulators | one for each function; their bytes are described in `event_time::aggregate` |
//!
//! | state record | what |
//! |---|---|
//! | signed | the shard's clock; the least 64-bit number: none yet |
//! | signed | windows whose greatest timestamp is not above this are closed and of no interest any more |
//! | number, then signed | how many windows are excepted from that, since they have not fired for each key, and their starts |
//! | bytes | the layout, as text |
//! | number | how many source partitions follow |
//!
//! | source partition | what |
//! |---|---|
//! | bytes | its topic |
//! | number | its number |
//! | signed | the offset to go on at |
//! | signed | its watermark; the least 64-bit number: none yet |
//! | bytes | the snapshot of its generator, in a format of its own |
//! | one byte | 1: the greatest event time follows, signed; 0: there is none |
//!
//! A change of any of this is another version, and the versions before it are still read.
//!
//! ```
//! use std::time::Duration;
//! use tidegate::codec::changelog::{Layout, Restorer, SavedPartition, ShardWriter};
//! use tidegate::config::{Key, KeyFrom};
//! use tidegate::event_time::*;
//!
//! let settings = SubtaskSettings {
//!     topics: vec![TopicSettings { strategy: WatermarkStrategy::AscendingTimestamps, idle_timeout: None }],
//!     window: WindowSettings {
//!         windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
//!         allowed_lateness: Duration::ZERO,
//!         panes: Panes::Accumulating,
//!         aggregates: vec![],
//!         limits: StateLimits::default(),
//!     },
//!     sharding: Sharding::PerPartition,
//!     all_idle: AllIdle::Hold,
//! };
//! let key = Key { from: KeyFrom::Message, partial: false, across_topics: false };
//! let layout = Layout::new(settings.window.windows, settings.window.panes, &key, &[]);
//! let (id, shard) = (PartitionId { topic: 0, partition: 3 }, ShardId::Partition(PartitionId { topic: 0, partition: 3 }));
//! let mut subtask = Subtask::new(settings.clone());
//! subtask.assign(id, None);
//! subtask.on_event(id, &Event::new(EventTime(1_000), b"EWR", &[]));
//!
//! let saved = SavedPartition {
//!     topic: "flights".to_owned(),
//!     partition: 3,
//!     offset: 1,
//!     state: subtask.partition_state(id).unwrap(),
//! };
//! let mut writer = ShardWriter::new();
//! let written = writer.write(&subtask, shard, &[saved], &layout, 1 << 20).unwrap();
//! writer.committed();
//! subtask.mark_saved(shard);
//!
//! let mut restorer = Restorer::new(&settings.window, &layout);
//! for (key, value) in &written.messages {
//!     restorer.take(Some(key), value)?;
//! }
//! let restored = restorer.finish(shard)?.unwrap();
//! assert_eq!((restored.writer.sequence(), restored.partitions[0].offset), (1, 1));
//! # Ok::<(), tidegate::codec::changelog::ChangelogFault>(())
//! ```

mod layout;
mod part;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use layout::{Layout, layout};
pub use read::{ChangelogFault, Restored, Restorer};
pub use write::{ShardWriter, Written};

use crate::event_time::PartitionState;

/// A source partition as the state record holds it.
#[derive(Clone, Debug)]
pub struct SavedPartition {
    /// The source topic.
    pub topic: String,
    /// The partition's number there.
    pub partition: i32,
    /// The offset to go on at.
    pub offset: i64,
    /// Its own state; the shard is beside it, not in it.
    pub state: PartitionState,
}
