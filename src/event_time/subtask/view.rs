//! What can be seen of a subtask; nothing here changes it.

use std::collections::BTreeSet;

use super::Subtask;
use crate::event_time::facts::PartitionView;
use crate::event_time::shard::{Shard, ShardId, ShardView};
use crate::event_time::time::{EventTime, PartitionId, Watermark};
use crate::event_time::window::TimeWindow;
use crate::event_time::window_operator::WindowSettings;

impl Subtask {
    /// The subtask watermark: the greatest candidate so far; `None` before the first.
    pub fn watermark(&self) -> Option<EventTime> {
        self.watermark.time()
    }

    /// The first window that a shard has not fired yet although its clock has passed it.
    pub(crate) fn first_owed(&self, id: ShardId) -> Option<TimeWindow> {
        self.shards.iter().flatten().find(|shard| shard.id == id)?.operator.first_due()
    }

    /// The partition that holds the watermark where it is: the active one with the least.
    pub fn holder(&self) -> Option<PartitionId> {
        let channel = self.multiplexer.holder()?;
        self.partitions
            .iter()
            .find(|partition| partition.channel == channel)
            .map(|partition| partition.id)
    }

    /// What can be seen of the partitions, in the order of their assignment.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView> {
        self.partitions.iter().map(|partition| PartitionView {
            id: partition.id,
            watermark: self.multiplexer.watermark(partition.channel).time(),
            max_event_time: partition.max_event_time,
            status: self.multiplexer.status(partition.channel),
            bound: partition.generator.bound(),
            gauges: partition.generator.gauges(),
            idle_in: partition
                .idleness
                .map(|idleness| idleness.remaining(partition.idle_clock, self.idle_clock)),
            idle_clock_held: partition.idle_clock.is_held(),
            paused: partition.read_ahead.paused,
        })
    }

    /// The greatest event time of a partition so far.
    pub fn max_event_time(&self, id: PartitionId) -> Option<EventTime> {
        self.partitions.get(self.place(id)?)?.max_event_time
    }

    /// The windows held by any shard, in order.
    pub fn open_windows(&self) -> BTreeSet<TimeWindow> {
        self.shards
            .iter()
            .flatten()
            .flat_map(|shard| shard.operator.windows().map(|(window, _)| window))
            .collect()
    }

    /// How many distinct windows are held; at once where one shard has them all.
    pub fn open_window_count(&self) -> usize {
        let mut holding = self
            .shards
            .iter()
            .flatten()
            .map(|shard| &shard.operator)
            .filter(|held| held.size().entries > 0);
        match (holding.next(), holding.next()) {
            (None, _) => 0,
            (Some(only), None) => only.windows().len(),
            (Some(_), Some(_)) => self.open_windows().len(),
        }
    }

    /// The first of the windows held by any shard, in order; at most so many.
    pub fn first_open_windows(&self, most: usize) -> Vec<TimeWindow> {
        let mut first = BTreeSet::new();
        for shard in self.shards.iter().flatten() {
            first.extend(shard.operator.windows().map(|(window, _)| window).take(most));
        }
        first.into_iter().take(most).collect()
    }

    /// The least clock of the shards: what it has passed has fired everywhere.
    pub fn least_clock(&self) -> Option<EventTime> {
        if !self.own_clocks {
            return self.watermark();
        }
        self.clocks().map(|(_, clock)| clock).min().and_then(Watermark::time)
    }

    /// The first of the windows held.
    pub fn oldest_open_window(&self) -> Option<TimeWindow> {
        self.shards
            .iter()
            .flatten()
            .filter_map(|shard| shard.operator.windows().next())
            .map(|(window, _)| window)
            .min()
    }

    /// How many (window, key) entries are held.
    pub fn open_panes(&self) -> usize {
        self.size.entries
    }

    /// How many bytes all that is held has, by an estimate: keys and accumulators, without what sums with floats,
    /// or of more than 64 bits, have elsewhere.
    pub fn state_bytes(&self) -> usize {
        self.size.bytes
    }

    /// How many windows have been freed since the start.
    pub fn windows_freed(&self) -> u64 {
        self.windows_freed
    }

    /// How often the candidate went below the subtask watermark, which then stayed, since the start.
    pub fn regressions_suppressed(&self) -> u64 {
        self.regressions_suppressed
    }

    /// What the windows are and what they compute.
    pub fn window_settings(&self) -> &WindowSettings {
        &self.settings.window
    }

    /// The clocks of the shards.
    pub fn clocks(&self) -> impl Iterator<Item = (ShardId, Watermark)> {
        self.shards.iter().flatten().map(|shard| (shard.id, shard.clock(self.watermark)))
    }

    /// How many entries of a shard are not as they were last saved.
    pub fn changed_count(&self, id: ShardId) -> usize {
        self.shard(id).map_or(0, |shard| shard.changed_count())
    }

    /// Notes that everything of a shard is saved as it is now.
    pub fn mark_saved(&mut self, id: ShardId) {
        let shard = self.shards.iter_mut().flatten().find(|shard| shard.id == id);
        if let Some(shard) = shard {
            shard.operator.mark_saved();
        }
    }

    /// What is to be saved of a shard.
    pub(crate) fn shard(&self, id: ShardId) -> Option<ShardView<'_>> {
        let shard: &Shard = self.shards.iter().flatten().find(|shard| shard.id == id)?;
        let (clock, settings) = (shard.clock(self.watermark), &self.settings.window);
        Some(ShardView { shard, clock, settings })
    }
}
