//! Several shards are taken in at the same time as one after the other.

use super::*;
use crate::codec::changelog::{Layout, SavedPartition, ShardWriter};
use crate::config::{Guarantee, Key, KeyFrom};
use crate::event_time::{
    AggregateFunction, AllIdle, Event, EventTime, Panes, Sharding, StateLimits, Subtask,
    SubtaskSettings, TopicSettings, TumblingWindows, Value, WatermarkStrategy, WindowSettings,
};

const SHARDS: i32 = 5;
const KEYS: i64 = 3_000;

/// A changelog partition, and a message's key and value.
type Sent = (PartitionId, Vec<u8>, Vec<u8>);

/// With the messages of all shards, which are worth more than one thread.
fn written() -> (Terms, Vec<Sent>) {
    let windows = WindowSettings {
        windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
        allowed_lateness: Duration::ZERO,
        panes: Panes::Accumulating,
        aggregates: vec![AggregateFunction::Sum],
        limits: StateLimits::default(),
    };
    let strategy = WatermarkStrategy::AscendingTimestamps;
    let mut subtask = Subtask::new(SubtaskSettings {
        topics: vec![TopicSettings { strategy, idle_timeout: None }],
        window: windows.clone(),
        sharding: Sharding::PerPartition,
        all_idle: AllIdle::Hold,
    });
    let key = Key { from: KeyFrom::Message, partial: false, across_topics: false };
    let layout = Layout::new(windows.windows, windows.panes, &key, &[]);
    let mut messages = Vec::new();
    for partition in 0..SHARDS {
        let id = PartitionId { topic: 0, partition };
        subtask.assign(id, None);
        for number in 0..KEYS + i64::from(partition) {
            let values = [Some(Value::Integer(number * 1_000))];
            let key = format!("key-{number}");
            subtask.on_event(id, &Event::new(EventTime(1_000), key.as_bytes(), &values));
        }
        let state = subtask.partition_state(id).unwrap();
        let saved = SavedPartition { topic: "in".to_owned(), partition, offset: 7, state };
        let shard = ShardId::Partition(id);
        let written = ShardWriter::new().write(&subtask, shard, &[saved], &layout, 5_000).unwrap();
        messages.extend(written.messages.into_iter().map(|(key, value)| (id, key, value)));
    }
    let terms = Terms {
        sharding: Sharding::PerPartition,
        windows,
        layout,
        guarantee: Guarantee::ExactlyOnce,
        topics: vec!["in".to_owned()],
        of_all: PartitionId { topic: 0, partition: 0 },
        threads: 1,
    };
    (terms, messages)
}

fn reading(terms: &Terms) -> Reading {
    let log = |partition| {
        let at = PartitionId { topic: 0, partition };
        Log {
            at,
            shard: ShardId::Partition(at),
            wanted: Some(1),
            ends_there: false,
            restorer: Restorer::new(&terms.windows, &terms.layout),
            done: false,
        }
    };
    let logs = (0..SHARDS).map(log).collect();
    Reading { committed: BTreeMap::new(), logs, last: MonotonicTime::default() }
}

fn events(messages: &[Sent]) -> Vec<ChangelogEvent<'_>> {
    let ends = (0..SHARDS).map(|partition| PartitionId { topic: 0, partition });
    let ends = ends.map(ChangelogEvent::End);
    let messages = (0..).zip(messages).map(|(offset, (partition, key, value))| {
        ChangelogEvent::Message { partition: *partition, offset, key: Some(key), value }
    });
    messages.chain(ends).collect()
}

#[test]
fn shards_come_back_the_same_with_any_number_of_threads() {
    let (mut terms, messages) = written();
    assert!(messages.iter().map(|(.., value)| value.len()).sum::<usize>() > 2 * WORTH_A_THREAD);
    for threads in [1, 2, 3, 64] {
        terms.threads = threads;
        let mut reading = reading(&terms);
        reading.take(&events(&messages), &terms).unwrap();
        for (log, more) in reading.logs.iter().zip(0..) {
            assert!(log.done);
            assert_eq!(log.restorer.sequence(), Some(1));
            assert_eq!(log.restorer.entries(), usize::try_from(KEYS + more).unwrap());
        }
    }
}

#[test]
fn the_first_damaged_shard_is_named_whatever_thread_saw_it() {
    let (mut terms, mut messages) = written();
    for partition in [3, 1] {
        let damaged = messages.iter().rposition(|(at, ..)| at.partition == partition).unwrap();
        messages[damaged].2.truncate(100);
    }
    for threads in [1, 4] {
        terms.threads = threads;
        let failure = reading(&terms).take(&events(&messages), &terms).unwrap_err();
        let Failure::Fatal(error) = failure else { panic!("{failure:?}") };
        assert!(error.to_string().contains("partition 1 of the changelog of `in`"), "{error}");
    }
}

#[test]
fn an_end_before_the_commit_that_must_be_there_is_an_error() {
    let (mut terms, mut messages) = written();
    terms.threads = 2;
    let last = messages.iter().rposition(|(at, ..)| at.partition == 2).unwrap();
    messages.remove(last);
    let failure = reading(&terms).take(&events(&messages), &terms).unwrap_err();
    let Failure::Fatal(error) = failure else { panic!("{failure:?}") };
    let expected = "partition 2 of the changelog of `in` ends without the state of commit 1";
    assert!(error.to_string().contains(expected), "{error}");
}
