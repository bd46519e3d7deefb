//! Partitions that come and go, and the shards that come along with them.

use super::{Partition, Pending, Subtask};
use crate::event_time::alignment::ReadAhead;
use crate::event_time::facts::{Assigned, PartitionState};
use crate::event_time::settings::TopicSettings;
use crate::event_time::shard::{Shard, ShardId, Sharding};
use crate::event_time::time::{PartitionId, Watermark};
use crate::event_time::watermark::{IdleClock, IdlenessTimer};
use crate::event_time::window_operator::Size;

impl Subtask {
    /// Makes one more topic known; the number that it has.
    ///
    /// # Panics
    /// With more topics than there are numbers.
    pub fn add_topic(&mut self, topic: TopicSettings) -> u16 {
        let number = u16::try_from(self.settings.topics.len());
        self.settings.topics.push(topic);
        number.unwrap_or_else(|_| panic!("there are numbers for {} topics", u16::MAX))
    }

    /// Has event time follow a partition in another way than the others of its topic, from its next assignment on.
    pub fn except(&mut self, id: PartitionId, terms: TopicSettings) {
        self.exceptions.insert(id, terms);
    }

    /// Takes in a partition, active from now on, with what it brings along; without, it is new and its shard starts at
    /// the subtask watermark. A partition that is here already stays as it is. The shard that all share is brought by
    /// the first of them.
    ///
    /// # Panics
    /// If it brings a shard along and one of that name is here: neither may be dropped.
    pub fn assign(&mut self, id: PartitionId, state: Option<PartitionState>) -> Assigned {
        let state = state.unwrap_or_default();
        let shard = self.shard_of(id);
        assert!(state.shard.is_none() || !self.holds(shard), "{shard:?} is here already");
        let topic = self.settings.topics.get(usize::from(id.topic));
        let topic = topic.map(|topic| self.exceptions.get(&id).unwrap_or(topic));
        let Some(topic) = topic.filter(|_| self.place(id).is_none()) else {
            return Assigned::NotTaken;
        };
        let mut generator = topic.strategy.generator();
        let restored = generator.restore(&state.generator);
        let idleness = topic.idle_timeout.map(IdlenessTimer::new);
        let shard = self.join_shard(shard, state.shard);
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
            read_ahead: ReadAhead::default(),
        });
        self.find_places();
        if restored { Assigned::AsItWas } else { Assigned::GeneratorAnew }
    }

    /// Gives a partition up, with its shard where that is its own; with the last partition the shared shard goes too. The
    /// watermark stays, so that no window which was closed here is opened again by a partition that comes without a
    /// clock of its own. What it holds back is let go at the next combine.
    ///
    /// # Panics
    /// If the late pane of the last record is still there. On-time panes that were not taken go along.
    pub fn revoke(&mut self, id: PartitionId) -> Option<PartitionState> {
        assert!(!self.late_pane_is_next(), "a late pane must be taken before its window leaves");
        let mut state = self.retire(id)?;
        let own = ShardId::Partition(id);
        if let Some(place) =
            self.shards.iter_mut().find(|place| place.as_ref().is_some_and(|shard| shard.id == own))
        {
            state.shard = place.take();
            if let Some(shard) = &mut state.shard {
                shard.own_clock = Some(shard.clock(self.watermark));
                self.size.replace(shard.operator.size(), Size::default());
            }
        }
        if self.partitions.is_empty() {
            self.shards.clear();
            self.size = Size::default();
            self.next_change = None;
            self.all_idle_since = None;
        }
        Some(state)
    }

    /// Forgets all partitions with their shards, and every output that was not taken: what an aborted transaction leads
    /// to. The watermark stays, though records may have raised it that will be read again: shards that are restored
    /// bring their own clocks, and one that comes back without anything has the clock that it had at first.
    pub fn abandon(&mut self) {
        for shard in self.shards.drain(..).flatten() {
            self.abandoned.insert(shard.id, shard.first_clock);
        }
        for partition in self.partitions.drain(..) {
            self.multiplexer.unregister(partition.channel);
        }
        self.find_places();
        self.pending.clear();
        self.size = Size::default();
        self.own_clocks = false;
        self.next_change = None;
        self.all_idle_since = None;
    }

    /// Sets the watermark where there is none yet: after a restart, to the least clock of what is restored, so that it
    /// does not begin anew. Shards that are here already keep the clock that they have.
    pub fn restore_watermark(&mut self, watermark: Watermark) {
        if self.watermark != Watermark::NONE {
            return;
        }
        for shard in self.shards.iter_mut().flatten() {
            shard.own_clock.get_or_insert(Watermark::NONE);
            self.own_clocks = true;
        }
        self.watermark = watermark;
    }

    /// What [`Self::retire`] would give of a partition.
    pub fn partition_state(&self, id: PartitionId) -> Option<PartitionState> {
        let partition = self.partitions.get(self.place(id)?)?;
        Some(PartitionState {
            watermark: self.multiplexer.watermark(partition.channel),
            generator: partition.generator.snapshot(),
            max_event_time: partition.max_event_time,
            shard: None,
        })
    }

    /// Forgets a partition, its generator and its channel; its records stay in their windows.
    pub fn retire(&mut self, id: PartitionId) -> Option<PartitionState> {
        let state = self.partition_state(id)?;
        let partition = self.partitions.remove(self.place(id)?);
        self.multiplexer.unregister(partition.channel);
        self.find_places();
        Some(state)
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

    fn shard_of(&self, partition: PartitionId) -> ShardId {
        match self.settings.sharding {
            Sharding::OneForAll => ShardId::All,
            Sharding::PerPartition => ShardId::Partition(partition),
        }
    }

    fn holds(&self, id: ShardId) -> bool {
        self.shards.iter().flatten().any(|shard| shard.id == id)
    }

    /// The place of a shard; one that comes along fires what it still owes.
    fn join_shard(&mut self, id: ShardId, brought: Option<Shard>) -> usize {
        let held =
            self.shards.iter().position(|place| place.as_ref().is_some_and(|shard| shard.id == id));
        if let Some(place) = held {
            return place;
        }
        let abandoned = self.abandoned.remove(&id).map(|clock| Shard::restored(id, clock));
        let brought = brought.or(abandoned);
        let owes = brought.is_some();
        self.own_clocks |= owes;
        let mut shard = brought.unwrap_or_else(|| Shard::following(id));
        shard.id = id;
        shard.first_clock = shard.clock(self.watermark);
        if owes {
            shard.operator.find_owed(shard.clock(self.watermark));
            self.size.replace(Size::default(), shard.operator.size());
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
