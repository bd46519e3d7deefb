//! Partitions that come and go, and the shards that come along with them.

use super::{Partition, Pending, Subtask};
use crate::event_time::facts::PartitionState;
use crate::event_time::shard::{Shard, ShardId, Sharding};
use crate::event_time::time::PartitionId;
use crate::event_time::watermark::{IdleClock, IdlenessTimer};

impl Subtask {
    /// Takes in a partition, active from now on, with what it brings along; without, it is new and its shard starts at
    /// the subtask watermark. A partition that is here already stays as it is.
    pub fn assign(&mut self, id: PartitionId, state: Option<PartitionState>) {
        if self.place(id).is_some() {
            return;
        }
        let Some(topic) = self.settings.topics.get(usize::from(id.topic)) else { return };
        let state = state.unwrap_or_default();
        let mut generator = topic.strategy.generator();
        generator.restore(&state.generator);
        let idleness = topic.idle_timeout.map(IdlenessTimer::new);
        let shard = self.join_shard(id, state.shard);
        let clock_at_assignment = self.clock_of(shard);
        self.partitions.push(Partition {
            id,
            channel: self.multiplexer.register(state.watermark),
            generator,
            idleness,
            idle_clock: IdleClock::default(),
            shard,
            max_event_time: state.max_event_time,
            clock_at_assignment,
        });
        self.find_places();
    }

    /// Gives a partition up, with its shard where that is its own; with the last partition the shared shard goes too. The
    /// watermark stays, so that no window which was closed here is opened again by a partition that comes without a
    /// clock of its own. What it holds back is let go at the next combine.
    ///
    /// # Panics
    /// If the late pane of the last record is still there. On-time panes that were not taken go along.
    pub fn revoke(&mut self, id: PartitionId) -> Option<PartitionState> {
        let late_pane = matches!(self.pending.front(), Some(Pending::LatePane(..)));
        assert!(!late_pane, "a late pane must be taken before its window leaves");
        let mut state = self.retire(id)?;
        let own = ShardId::Partition(id);
        if let Some(place) =
            self.shards.iter_mut().find(|place| place.as_ref().is_some_and(|shard| shard.id == own))
        {
            let watermark = self.watermark;
            state.shard = place.take().map(|mut shard| {
                shard.own_clock = Some(shard.clock(watermark));
                shard
            });
        }
        if self.partitions.is_empty() {
            self.shards.clear();
            self.next_change = None;
            self.all_idle_since = None;
        }
        Some(state)
    }

    /// Forgets a partition, its generator and its channel; its records stay in their windows.
    pub fn retire(&mut self, id: PartitionId) -> Option<PartitionState> {
        let partition = self.partitions.remove(self.place(id)?);
        let watermark = self.multiplexer.watermark(partition.channel);
        self.multiplexer.unregister(partition.channel);
        self.find_places();
        Some(PartitionState {
            watermark,
            generator: partition.generator.snapshot(),
            max_event_time: partition.max_event_time,
            shard: None,
        })
    }

    pub(super) fn find_places(&mut self) {
        self.places.clear();
        for (place, partition) in self.partitions.iter().enumerate() {
            let (topic, number) =
                (usize::from(partition.id.topic), usize::try_from(partition.id.partition));
            let Ok(number) = number else { continue };
            if self.places.len() <= topic {
                self.places.resize_with(topic + 1, Vec::new);
            }
            let Some(places) = self.places.get_mut(topic) else { continue };
            if places.len() <= number {
                places.resize(number + 1, None);
            }
            if let Some(slot) = places.get_mut(number) {
                *slot = Some(place);
            }
        }
    }

    /// The place of the shard that a partition belongs to; a shard that comes along fires what it still owes.
    pub(super) fn join_shard(&mut self, partition: PartitionId, brought: Option<Shard>) -> usize {
        let id = match self.settings.sharding {
            Sharding::OneForAll => ShardId::All,
            Sharding::PerPartition => ShardId::Partition(partition),
        };
        let held =
            self.shards.iter().position(|place| place.as_ref().is_some_and(|shard| shard.id == id));
        if let Some(place) = held {
            return place;
        }
        let owes = brought.is_some();
        self.own_clocks |= owes;
        let mut shard = brought.unwrap_or_else(|| Shard::following(id));
        shard.id = id;
        if owes {
            shard.operator.find_owed(shard.clock(self.watermark));
        }
        let place = self.shards.iter().position(Option::is_none).unwrap_or(self.shards.len());
        match self.shards.get_mut(place) {
            Some(empty) => *empty = Some(shard),
            None => self.shards.push(Some(shard)),
        }
        if owes {
            self.pending.push_back(Pending::DuePanes(place));
        }
        place
    }
}
