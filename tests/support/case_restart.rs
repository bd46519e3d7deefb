//! What a case's service would find after a restart: its changelog.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::codec::changelog::{
    ChangelogFault, Layout, Restored, Restorer, SavedPartition, ShardWriter,
};
use tidegate::event_time::{
    PartitionId, PartitionState, ShardId, Sharding, Subtask, SubtaskSettings,
};

/// Keys and values, in their order.
type Log = Vec<(Vec<u8>, Vec<u8>)>;

/// Keeps what a service has committed.
#[derive(Debug)]
pub(crate) struct Changelog {
    settings: SubtaskSettings,
    layout: Layout,
    /// The messages of each shard's partition.
    logs: BTreeMap<ShardId, Log>,
    writers: BTreeMap<ShardId, ShardWriter>,
}

impl Changelog {
    pub(crate) fn new(settings: SubtaskSettings, layout: Layout) -> Self {
        Self { settings, layout, logs: BTreeMap::new(), writers: BTreeMap::new() }
    }

    fn shard(&self, id: PartitionId) -> ShardId {
        match self.settings.sharding {
            Sharding::OneForAll => ShardId::All,
            Sharding::PerPartition => ShardId::Partition(id),
        }
    }

    fn shards(&self, assigned: &BTreeSet<PartitionId>) -> BTreeMap<ShardId, Vec<PartitionId>> {
        let mut shards: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for id in assigned {
            shards.entry(self.shard(*id)).or_default().push(*id);
        }
        shards
    }

    /// Commits everything.
    pub(crate) fn commit(&mut self, subtask: &mut Subtask, assigned: &BTreeSet<PartitionId>) {
        for (shard, partitions) in self.shards(assigned) {
            let saved = partitions.iter().map(|id| SavedPartition {
                topic: "events".to_owned(),
                partition: id.partition,
                offset: 0,
                state: subtask.partition_state(*id).unwrap_or_default(),
            });
            let saved: Vec<_> = saved.collect();
            let writer = self.writers.entry(shard).or_default();
            if let Some(written) = writer.write(subtask, shard, &saved, &self.layout, 1 << 20) {
                self.logs.entry(shard).or_default().extend(written.messages);
                writer.committed();
                subtask.mark_saved(shard);
            }
        }
    }

    fn read(&self, shard: ShardId) -> Result<Option<Restored>, ChangelogFault> {
        let mut restorer = Restorer::new(&self.settings.window, &self.layout);
        for (key, value) in self.logs.get(&shard).into_iter().flatten() {
            restorer.take(Some(key), value)?;
        }
        restorer.finish(shard)
    }

    /// A new process that goes on where the last commit was.
    pub(crate) fn restart(&mut self, assigned: &BTreeSet<PartitionId>) -> Result<Subtask, String> {
        let mut subtask = Subtask::new(self.settings.clone());
        let mut states = BTreeMap::new();
        let mut clocks = Vec::new();
        self.writers.clear();
        for shard in self.shards(assigned).into_keys() {
            let Some(restored) = self.read(shard).map_err(|fault| fault.to_string())? else {
                continue;
            };
            clocks.extend(restored.shard.clock_brought());
            self.writers.insert(shard, restored.writer);
            let mut shard = Some(restored.shard);
            for saved in restored.partitions {
                let id = PartitionId { topic: 0, partition: saved.partition };
                states.insert(id, PartitionState { shard: shard.take(), ..saved.state });
            }
        }
        if let Some(least) = clocks.into_iter().min() {
            subtask.restore_watermark(least);
        }
        for id in assigned {
            subtask.assign(*id, states.remove(id));
        }
        Ok(subtask)
    }
}
