//! Round trips, snapshots and slots, layouts, hostile bytes.

use std::time::Duration;

use super::*;
use crate::config::{Key, KeyFrom};
use crate::event_time::*;

const ALL: ShardId = ShardId::All;

fn partition(partition: i32) -> PartitionId {
    PartitionId { topic: 0, partition }
}

fn settings() -> SubtaskSettings {
    SubtaskSettings {
        topics: vec![TopicSettings {
            strategy: WatermarkStrategy::AscendingTimestamps,
            idle_timeout: None,
        }],
        window: WindowSettings {
            windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
            allowed_lateness: Duration::from_secs(5),
            panes: Panes::Accumulating,
            aggregates: vec![AggregateFunction::Count, AggregateFunction::Sum],
            limits: StateLimits::default(),
        },
        sharding: Sharding::OneForAll,
        all_idle: AllIdle::Hold,
    }
}

fn some_layout() -> Layout {
    let windows = TumblingWindows::new(Duration::from_secs(10), 0).unwrap();
    let key = Key { from: KeyFrom::Fields(vec!["origin".to_owned()]), partial: false };
    Layout::new(windows, Panes::Accumulating, &key, &[])
}

fn add(subtask: &mut Subtask, ms: i64, key: &str, value: i64) -> Disposition {
    let values = [Some(Value::Integer(value)), Some(Value::Integer(value))];
    subtask.on_event(partition(0), &Event::new(EventTime(ms), key.as_bytes(), &values))
}

fn tick(subtask: &mut Subtask) -> Vec<String> {
    let now = Now { monotonic: MonotonicTime::default(), wall: EventTime(0) };
    subtask.on_periodic_emit(now);
    outputs(subtask)
}

fn outputs(subtask: &mut Subtask) -> Vec<String> {
    let mut outputs = Vec::new();
    while let Some(output) = subtask.poll_output() {
        outputs.push(format!("{output:?}"));
    }
    outputs
}

fn saved(subtask: &Subtask, offset: i64) -> Vec<SavedPartition> {
    let state = subtask.partition_state(partition(0)).unwrap();
    vec![SavedPartition { topic: "flights".to_owned(), partition: 0, offset, state }]
}

/// Commits and gives the messages.
fn commit(writer: &mut ShardWriter, subtask: &mut Subtask, offset: i64) -> Option<Written> {
    let written = writer.write(subtask, ALL, &saved(subtask, offset), &some_layout(), 1 << 20)?;
    writer.committed();
    subtask.mark_saved(ALL);
    Some(written)
}

fn restore(messages: &[(Vec<u8>, Vec<u8>)]) -> Result<Option<Restored>, ChangelogFault> {
    let mut restorer = Restorer::new(&settings().window, &some_layout());
    for (key, value) in messages {
        restorer.take(Some(key), value)?;
    }
    restorer.finish(ALL)
}

#[test]
fn a_shard_goes_on_where_it_was() {
    let mut original = Subtask::new(settings());
    original.assign(partition(0), None);
    let (mut writer, mut log) = (ShardWriter::new(), Vec::new());
    for (offset, ms, key) in [(0, 1_000, "a"), (1, 2_000, "b"), (2, 11_000, "a"), (3, 3_000, "a")] {
        add(&mut original, ms, key, 1);
        outputs(&mut original);
        tick(&mut original);
        log.extend(commit(&mut writer, &mut original, offset).unwrap().messages);
    }
    assert!(commit(&mut writer, &mut original, 3).is_none());
    let restored = restore(&log).unwrap().unwrap();
    assert_eq!(restored.writer.sequence(), 4);
    let mut copy = Subtask::new(settings());
    let saved = restored.partitions.into_iter().next().unwrap();
    let state = PartitionState { shard: Some(restored.shard), ..saved.state };
    assert_eq!(copy.assign(partition(0), Some(state)), Assigned::AsItWas);
    assert_eq!(outputs(&mut copy), Vec::<String>::new());
    assert_eq!(copy.open_panes(), original.open_panes());
    assert_eq!(copy.state_bytes(), original.state_bytes());
    for ms in [4_000, 12_000, 40_000] {
        assert_eq!(add(&mut copy, ms, "a", 5), add(&mut original, ms, "a", 5), "{ms}");
        assert_eq!(outputs(&mut copy), outputs(&mut original));
        let panes = |outputs: Vec<String>| -> Vec<String> {
            outputs.into_iter().filter(|output| output.starts_with("Fired")).collect()
        };
        assert_eq!(panes(tick(&mut copy)), panes(tick(&mut original)));
    }
}
