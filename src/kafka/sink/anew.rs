//! Producers that can go on no more, and those that come after them.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{Consumer, ConsumerGroupMetadata};
use rdkafka::error::KafkaResult;
use rdkafka::producer::{BaseProducer, Producer};

use super::{Deliveries, KafkaSink, Life, message_bytes};
use crate::config::Guarantee;
use crate::kafka::client::REQUEST_TIMEOUT;
use crate::pipeline::SinkError;

impl KafkaSink {
    /// Makes a call of the producer's transaction, and polls for what it waits to be told meanwhile. The outer error: the
    /// call has not come back, and `what` it did says the message.
    ///
    /// The limits that these calls take do not hold for all that is in them. librdkafka has none for the part in which
    /// `send_offsets_to_transaction` looks for the group's coordinator (where an answer is lost with its broker, the call
    /// returns when any other connection comes or goes, if one ever does), nor where an abort waits for each broker's
    /// thread. So they are made where they can be left behind, together with their producer.
    pub(super) fn aside(
        &mut self,
        what: &'static str,
        call: impl FnOnce(&BaseProducer<Deliveries>) -> KafkaResult<()> + Send + 'static,
    ) -> Result<KafkaResult<()>, SinkError> {
        let producer = Arc::clone(&self.producer);
        let (answer, answered) = mpsc::sync_channel(1);
        let body = move || {
            let outcome = call(&producer);
            drop(producer);
            // Nobody listens any more to one that was left behind.
            drop(answer.send(outcome));
        };
        let started = thread::Builder::new().name("transaction".to_owned()).spawn(body);
        started.map_err(|error| SinkError::Retry(format!("starting a thread: {error}")))?;
        let began = self.clock.monotonic();
        loop {
            match answered.recv_timeout(POLL_EVERY) {
                Ok(outcome) => return Ok(outcome),
                Err(RecvTimeoutError::Timeout)
                    if self.clock.monotonic().since(began) < REQUEST_TIMEOUT + GRACE =>
                {
                    self.producer.poll(Duration::ZERO);
                }
                Err(_) => {
                    let cause = format!("the client does not come to an end of {what}");
                    return Err(self.break_down(cause));
                }
            }
        }
    }

    /// Adds the offsets to the transaction.
    pub(super) fn send_offsets(
        &mut self,
        offsets: TopicPartitionList,
        group: ConsumerGroupMetadata,
    ) -> Result<(), SinkError> {
        self.aside("adding the offsets to the transaction", move |producer| {
            producer.send_offsets_to_transaction(&offsets, &group, REQUEST_TIMEOUT)
        })?
        .map_err(|error| self.classify(&error))
    }

    /// Whether the broker has ended the open transaction by now.
    pub(super) fn timed_out(&self) -> bool {
        self.guarantee == Guarantee::ExactlyOnce
            && self
                .begun
                .is_some_and(|begun| self.clock.monotonic().since(begun) > self.transaction_timeout)
    }

    pub(super) fn make_anew(&mut self) -> Result<(), SinkError> {
        tracing::warn!("the producer is made anew");
        let (least, greatest) = message_bytes(&self.limits);
        let producer = self
            .clients
            .producer(least, greatest)
            // It could be made before: a machine that is too busy to start its threads within 5 s.
            .map_err(|error| SinkError::Retry(error.to_string()))?;
        self.producer = Arc::new(producer);
        if self.life == Life::Broken {
            self.made_anew += 1;
        }
        self.life = Life::Created;
        self.begun = None;
        Ok(())
    }

    /// Whether another instance runs under this one's name, and so under its transactional id: a new producer would take
    /// the id from it, and it would take it back. It has to be there for longer than the group keeps a member that is
    /// gone, since that may have been this one before its restart.
    pub(super) fn look_for_a_rival(&mut self) -> Result<(), SinkError> {
        let now = self.clock.monotonic();
        let rivals = self.clients.rivals(self.consumer.client());
        let rivals = rivals.map_err(|error| SinkError::Retry(error.to_string()))?;
        let Some(rival) = rivals.first() else {
            self.rival_since = None;
            return Ok(());
        };
        let since = *self.rival_since.get_or_insert(now);
        let cause = format!(
            "another instance runs under transactional id `{}` ({rival}) and has taken over",
            self.clients.transactional_id
        );
        if now.since(since) <= self.session_timeout + TAKEN_OUT_WITHIN {
            return Err(SinkError::Retry(format!("{cause}, or did until a moment ago")));
        }
        Err(SinkError::Fatal(format!(
            "{cause}; give each instance a `kafka.instance_id` of its own"
        )))
    }
}

/// How often the delivery reports are taken that a call may wait for.
const POLL_EVERY: Duration = Duration::from_millis(1);

/// How much later than it was asked to may the client answer.
const GRACE: Duration = Duration::from_secs(2);

/// How much longer than a session the group may list a member that is gone: it may be in the middle of a rebalance.
const TAKEN_OUT_WITHIN: Duration = Duration::from_secs(5);
