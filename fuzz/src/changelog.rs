//! The changelog: any messages give a shard, nothing or a fault in words, and a shard that came of them is written and
//! read back as it is.

use std::time::Duration;

use tidegate::codec::changelog::{
    Layout, Restored, Restorer, SavedPartition, ShardWriter, Written,
};
use tidegate::event_time::{
    AggregateFunction, AllIdle, Panes, PartitionId, PartitionState, ShardId, Sharding, StateLimits,
    Subtask, SubtaskSettings, TopicSettings, TumblingWindows, WatermarkStrategy, WindowSettings,
};

use crate::layout::layout_of;

/// Reads the bytes as messages, each after its length in two bytes, the lower one first. What is over is one more.
pub(crate) fn check(data: &[u8]) {
    let settings = settings();
    let layout = layout_of(&settings);
    let mut restorer = Restorer::new(&settings.window, &layout);
    for (slot, value) in (0u32..).zip(messages(data)) {
        if let Err(fault) = restorer.take(Some(&slot.to_be_bytes()), value) {
            assert!(!fault.to_string().is_empty());
            return;
        }
    }
    let Ok(Some(found)) = restorer.finish(SHARD) else { return };
    if found.layout_changed {
        return;
    }
    let (entries, first) = write(&settings, &layout, found);
    let (again, second) = write(&settings, &layout, read(&settings, &layout, &first));
    assert_eq!(entries, again, "open entries");
    assert_eq!(first.messages, second.messages, "what was written came back as something else");
}

fn messages(mut data: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length));
        let (message, rest) = rest.split_at(length.min(rest.len()));
        messages.push(message);
        data = rest;
    }
    messages
}

/// How many entries are open, and a snapshot of them.
fn write(settings: &SubtaskSettings, layout: &Layout, restored: Restored) -> (usize, Written) {
    let mut subtask = Subtask::new(settings.clone());
    subtask.assign(
        P0,
        Some(PartitionState { shard: Some(restored.shard), ..PartitionState::default() }),
    );
    let state = subtask.partition_state(P0).unwrap();
    let saved = [SavedPartition { topic: "in".to_owned(), partition: 0, offset: 7, state }];
    let written = ShardWriter::new().write(&subtask, SHARD, &saved, layout, 1 << 20);
    (subtask.open_panes(), written.unwrap())
}

fn read(settings: &SubtaskSettings, layout: &Layout, written: &Written) -> Restored {
    let mut restorer = Restorer::new(&settings.window, layout);
    for (key, value) in &written.messages {
        restorer.take(Some(key), value).unwrap();
    }
    restorer.finish(SHARD).unwrap().unwrap()
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
            aggregates: vec![
                AggregateFunction::Count,
                AggregateFunction::Sum,
                AggregateFunction::Min,
                AggregateFunction::Max,
                AggregateFunction::Avg,
            ],
            limits: StateLimits::default(),
        },
        sharding: Sharding::PerPartition,
        all_idle: AllIdle::Hold,
    }
}

const P0: PartitionId = PartitionId { topic: 0, partition: 0 };
const SHARD: ShardId = ShardId::Partition(P0);
