//! Partitions that are not read for now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::{Offset, TopicPartitionList};

use super::source::{KafkaSource, fatal};
use crate::event_time::PartitionId;
use crate::pipeline::SourceError;

impl KafkaSource {
    /// The client keeps where they stand, and throws away what it has fetched.
    pub(super) fn hold_them_back(
        &self,
        partitions: &BTreeSet<PartitionId>,
    ) -> Result<(), SourceError> {
        if partitions.is_empty() {
            return Ok(());
        }
        let list = self.list(partitions.iter().map(|id| (*id, Offset::Invalid)))?;
        self.consumer.pause(&list).map_err(|error| fatal(&error))?;
        self.held_back.borrow_mut().extend(partitions);
        let mut stalls = self.stalls.borrow_mut();
        for id in partitions {
            stalls.forget_one(*id);
        }
        Ok(())
    }

    /// Reads them on where they stand.
    pub(super) fn read_them_on(
        &self,
        partitions: &BTreeSet<PartitionId>,
    ) -> Result<(), SourceError> {
        let mut places = self.positions();
        places.retain(|id, _| partitions.contains(id));
        let list = self.list(places.iter().map(|(id, at)| (*id, Offset::Offset(*at))))?;
        self.consumer.resume(&list).map_err(|error| fatal(&error))?;
        self.forget_held_back(partitions);
        // Only a seek wakes the fetchers up; its answer is not waited for. The client forgets its own positions with it.
        match self.consumer.seek_partitions(list, Duration::ZERO) {
            Ok(_) => self.begun.borrow_mut().extend(places),
            Err(error) => {
                tracing::debug!(%error, "a seek failed; partitions are read on all the same");
            }
        }
        Ok(())
    }

    /// They are read again, or not at all.
    pub(super) fn forget_held_back<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a PartitionId>,
    ) {
        let mut held_back = self.held_back.borrow_mut();
        for id in partitions {
            held_back.remove(id);
        }
    }

    /// The offset of the next record of each partition that was begun.
    pub(super) fn positions(&self) -> BTreeMap<PartitionId, i64> {
        let mut positions = self.begun.borrow().clone();
        let known = self.consumer.position().unwrap_or_else(|_| TopicPartitionList::new());
        for element in known.elements() {
            let held = self
                .topics
                .id(element.topic(), element.partition())
                .and_then(|id| positions.get_mut(&id));
            if let (Some(held), Offset::Offset(offset)) = (held, element.offset()) {
                *held = offset.max(*held);
            }
        }
        positions
    }
}
