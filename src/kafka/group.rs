//! This member and its group.

use std::time::Duration;

use rdkafka::Offset;
use rdkafka::consumer::Consumer;

use super::client::REQUEST_TIMEOUT;
use super::members::Member;
use super::rebalance::{RebalanceEvent, unassign};
use super::source::{KafkaSource, fatal};
use crate::pipeline::{Source, SourceError};

impl KafkaSource {
    /// Gives up all that the group gave, also what nobody here has heard of yet: the client would wait for an answer for
    /// ever. From now on it is answered at once.
    pub(super) fn answer_all(&self) {
        let context = self.consumer.context();
        while let Some(event) = context.next_rebalance() {
            let answered = match event {
                RebalanceEvent::Assigned(partitions) => self.accept(&partitions),
                RebalanceEvent::Revoking(partitions) | RebalanceEvent::Lost(partitions) => {
                    self.list(partitions.iter().map(|id| (*id, Offset::Invalid))).and_then(|list| {
                        unassign(&self.consumer, &list).map_err(|error| fatal(&error))
                    })
                }
            };
            if let Err(error) = answered {
                tracing::warn!(%error, "answering the group failed");
            }
        }
        context.closes(true);
    }

    pub(super) fn leave_group(&self) {
        self.answer_all();
        self.consumer.unsubscribe();
        if self.consumer.assignment_lost() {
            let given_up =
                self.consumer.assignment().and_then(|held| unassign(&self.consumer, &held));
            if let Err(error) = given_up {
                tracing::warn!(%error, "giving partitions up failed");
            }
        }
        let began = self.clock.monotonic();
        // The partitions go in a callback of a poll. Nothing is read from them, so no record can come.
        while self.consumer.assignment().is_ok_and(|held| held.count() > 0)
            && self.clock.monotonic().since(began) < REQUEST_TIMEOUT
        {
            drop(self.consumer.poll(Duration::from_millis(50)));
        }
        self.begun.borrow_mut().clear();
    }

    /// The members that go by another name: one of ours is what was here before a restart.
    pub(super) fn other_members(&self) -> Result<Vec<String>, SourceError> {
        let others =
            self.clients.others(self.consumer.client()).map_err(|error| self.retry(&error))?;
        Ok(others.iter().map(Member::to_string).collect())
    }
}
