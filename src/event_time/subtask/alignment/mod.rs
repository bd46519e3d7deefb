//! Which partitions are to be read no further for now.

use std::time::Duration;

use super::{Partition, Subtask};
use crate::event_time::alignment::{Aligned, Unread};
use crate::event_time::multiplexer::WatermarkStatus;
use crate::event_time::time::{EventTime, MonotonicTime, PartitionId, Watermark};

impl Subtask {
    /// Looks which partitions are more than `max_drift` of event time ahead of the watermark: these are paused, and read
    /// on once they are no further ahead than half of it. What is said to be paused here, the owner reads no further; it
    /// is forgotten with the partition.
    ///
    /// Where a partition stands is the least event time of its last records (256 or more) less its bound, and never more
    /// than its own watermark: so those that are level with each other are not ahead, however large the bound. Never
    /// paused are a partition without a backlog (one that was caught up within the last 3 s has none), the one that holds
    /// the watermark, and one that is idle, which holds nobody either. Before there is a watermark, it is the least event
    /// time read so far that the others are ahead of.
    pub fn align(
        &mut self,
        max_drift: Duration,
        now: MonotonicTime,
        unread: impl Fn(PartitionId) -> Unread,
    ) -> Aligned {
        let watermark = self.to_align_with(&unread);
        let mut aligned = Aligned::default();
        for place in 0..self.partitions.len() {
            let stands = self.stands(place);
            let Some(partition) = self.partitions.get_mut(place) else { break };
            let read_ahead = &mut partition.read_ahead;
            let has_backlog = read_ahead.has_backlog(unread(partition.id), now);
            if !read_ahead.look(stands, watermark, has_backlog, max_drift) {
                continue;
            }
            if read_ahead.paused.is_some() {
                partition.idle_clock.hold(self.idle_clock);
                aligned.paused.insert(partition.id);
            } else {
                aligned.resumed.insert(partition.id);
            }
        }
        aligned
    }

    /// The watermark, or what it would be without the partitions that bring nothing more.
    fn to_align_with(&self, unread: impl Fn(PartitionId) -> Unread) -> Option<EventTime> {
        let waited_for = || {
            self.partitions.iter().filter(|partition| {
                self.multiplexer.status(partition.channel) == WatermarkStatus::Active
                    && unread(partition.id) != Unread::Ended
            })
        };
        let own = |partition: &Partition| self.multiplexer.watermark(partition.channel);
        let least = waited_for().map(own).min();
        let watermark = least.max(Some(self.watermark)).and_then(Watermark::time);
        let first = |partition: &Partition| Some(partition.read_ahead.least()? - bound(partition));
        watermark.or_else(|| waited_for().filter_map(first).min())
    }

    /// Where an active partition stands; `None` where it cannot be ahead.
    fn stands(&self, place: usize) -> Option<EventTime> {
        let partition = self.partitions.get(place)?;
        if self.multiplexer.status(partition.channel) == WatermarkStatus::Idle {
            return None;
        }
        let own = self.multiplexer.watermark(partition.channel).time()?;
        Some(own.min(partition.read_ahead.least_lately()? - bound(partition)))
    }
}

fn bound(partition: &Partition) -> Duration {
    partition.generator.bound().unwrap_or_default()
}

#[cfg(test)]
mod tests;
