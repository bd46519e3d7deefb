//! Partitions of which the client has ended its reading, since the offset to go on from is not there.

use std::collections::BTreeMap;

use rdkafka::Offset;
use rdkafka::consumer::{Consumer, RebalanceProtocol};

use super::client::REQUEST_TIMEOUT;
use super::source::{KafkaSource, fatal};
use crate::event_time::PartitionId;
use crate::pipeline::{Source as _, SourceError};

impl KafkaSource {
    /// Records were deleted in front of a partition that lags behind: goes on at the oldest where that is allowed, and
    /// says how many are missing.
    pub(super) fn go_on_at_the_oldest(&self) -> Result<Vec<(PartitionId, u64)>, SourceError> {
        let mut missing = Vec::new();
        let mut positions = BTreeMap::new();
        for (id, progress) in self.progress(self.clock.monotonic()) {
            let ends = self
                .consumer
                .fetch_watermarks(&self.topics.name(id), id.partition, REQUEST_TIMEOUT)
                .map_err(|error| self.retry(&error))?;
            positions.insert(id, self.check(id, progress.position, ends, &mut missing)?);
        }
        // One that was assigned a moment ago may have been fetched from once, where nothing is, before it was paused.
        let held = self.consumer.assignment().map_err(|error| self.retry(&error))?;
        if held.count() > positions.len() {
            self.ended_early.set(true);
        }
        self.read_anew(positions)?;
        self.out_of_range.set(false);
        Ok(missing)
    }

    /// Has the client begin anew with partitions, at these offsets: in one that it does not read it cannot seek.
    pub(super) fn read_anew(&self, offsets: BTreeMap<PartitionId, i64>) -> Result<(), SourceError> {
        let list = self.list(offsets.iter().map(|(id, offset)| (*id, Offset::Offset(*offset))))?;
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self
                .consumer
                .incremental_unassign(&list)
                .and_then(|()| self.consumer.incremental_assign(&list)),
            RebalanceProtocol::Eager | RebalanceProtocol::None => self.consumer.assign(&list),
        }
        .map_err(|error| fatal(&error))?;
        self.begun.borrow_mut().extend(offsets);
        // What is assigned anew is read.
        let held_back = self.held_back.borrow().clone();
        self.hold_them_back(&held_back)
    }
}
