//! Everything that a commit covers, out: one transaction at a time.

#![expect(clippy::wildcard_enum_match_arm, reason = "librdkafka has two hundred error codes")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaError};
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::admin::{self, ConnectError};
use super::client::{Clients, REQUEST_TIMEOUT, TopicNumbers};
use super::rebalance::ConsumerEvents;
use super::report::Reports;
use crate::clock::Clock;
use crate::config::{Config, Guarantee};
use crate::event_time::{MonotonicTime, PartitionId};
use crate::pipeline::{
    Aborted, Message, OutputTopic, SinkError, Time, TopicLimits, TransactionalSink,
};

/// The producer of one subtask, transactional if the guarantee asks for it.
pub struct KafkaSink {
    producer: BaseProducer<Deliveries>,
    consumer: Arc<BaseConsumer<ConsumerEvents>>,
    clients: Clients,
    inputs: TopicNumbers,
    topics: BTreeMap<OutputTopic, String>,
    limits: BTreeMap<OutputTopic, TopicLimits>,
    guarantee: Guarantee,
    transaction_timeout: Duration,
    clock: Clock,
    /// When the open transaction was begun.
    begun: Option<MonotonicTime>,
    /// The offsets of a commit whose outcome is not known.
    in_doubt: Option<BTreeMap<PartitionId, i64>>,
    /// Whether the producer has its epoch.
    initialised: bool,
    rebuild: bool,
    rebuilt: Option<MonotonicTime>,
    since_poll: u32,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink")
            .field("topics", &self.topics)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

/// Remembers the first message since the last look that a broker refused or that never got there.
pub(super) struct Deliveries {
    failure: Mutex<Option<(RDKafkaErrorCode, String)>>,
    reports: Reports,
}

impl Deliveries {
    pub(super) fn new(reports: Reports) -> Self {
        Self { failure: Mutex::default(), reports }
    }

    fn first_failure(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget(&self) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.reports.line(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.reports.take(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let Err((error, message)) = result else { return };
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        // Purged is what an abort does to the rest.
        if matches!(code, RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) {
            return;
        }
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| (code, message.topic().to_owned()));
    }
}

impl KafkaSink {
    /// Ends what a predecessor left open. `Ok(None)` if the service was asked
    /// to stop before the brokers answered.
    pub(super) fn new(
        config: &Config,
        clients: Clients,
        consumer: Arc<BaseConsumer<ConsumerEvents>>,
        limits: BTreeMap<OutputTopic, TopicLimits>,
        clock: Clock,
        time: &impl Time,
    ) -> Result<Option<Self>, ConnectError> {
        let topics = admin::output_topics(config);
        let (least, greatest) = message_bytes(&limits);
        let producer = clients.producer(least, greatest)?;
        let mut sink = Self {
            producer,
            consumer,
            clients,
            inputs: TopicNumbers::new(config),
            topics,
            limits,
            guarantee: config.delivery.guarantee,
            transaction_timeout: config.delivery.transaction_timeout,
            clock,
            begun: None,
            in_doubt: None,
            initialised: false,
            rebuild: false,
            rebuilt: None,
            since_poll: 0,
        };
        while let Err(error) = sink.init() {
            match error {
                SinkError::Retry(cause) if !time.stopping() => {
                    tracing::warn!(cause, "waiting for the transaction coordinator");
                    time.wait(RETRY_AFTER);
                }
                SinkError::Retry(_) => return Ok(None),
                other => return Err(ConnectError::Producer(other.to_string())),
            }
        }
        Ok(Some(sink))
    }

    /// Fences and ends what a predecessor under the same transactional id left open.
    fn init(&mut self) -> Result<(), SinkError> {
        if self.guarantee == Guarantee::AtLeastOnce || self.initialised {
            return Ok(());
        }
        // After a timeout the next call goes on where this one was.
        self.producer.init_transactions(REQUEST_TIMEOUT).map_err(|error| self.judge(&error))?;
        self.initialised = true;
        Ok(())
    }

    /// What a failed call means for the caller.
    fn classify(&mut self, error: &KafkaError) -> SinkError {
        // A refused message fails the transaction before a poll has told of the message.
        let requires_abort = matches!(error, KafkaError::Transaction(e) if e.txn_requires_abort());
        let began = self.clock.monotonic();
        while requires_abort
            && self.producer.context().first_failure().is_none()
            && self.producer.in_flight_count() > 0
            && self.clock.monotonic().since(began) < TOLD_WITHIN
        {
            self.producer.poll(Duration::from_millis(1));
        }
        self.refusal().unwrap_or_else(|| self.judge(error))
    }

    /// The same where messages are of no account, since they are undone.
    fn judge(&mut self, error: &KafkaError) -> SinkError {
        match error {
            KafkaError::Transaction(error) => self.classify_transaction(error),
            KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut) => {
                SinkError::Retry("the brokers have not taken everything yet".to_owned())
            }
            _ => match self.producer.client().fatal_error() {
                Some((code, reason)) => self.fatal(code, &reason),
                None => SinkError::Abort(error.to_string()),
            },
        }
    }

    fn classify_transaction(&mut self, error: &RDKafkaError) -> SinkError {
        let cause = format!("{} ({})", error.string(), error.name());
        match error.code() {
            RDKafkaErrorCode::TransactionalIdAuthorizationFailed => SinkError::Fatal(format!(
                "no right to write under transactional id `{}` (operation Write): {cause}",
                self.clients.transactional_id
            )),
            RDKafkaErrorCode::GroupAuthorizationFailed => SinkError::Fatal(format!(
                "no right to commit the group's offsets (operation Read on the group): {cause}"
            )),
            code if error.is_fatal() => self.fatal(code, &cause),
            RDKafkaErrorCode::UnknownMemberId
            | RDKafkaErrorCode::IllegalGeneration
            | RDKafkaErrorCode::FencedInstanceId
            | RDKafkaErrorCode::RebalanceInProgress
            | RDKafkaErrorCode::StaleMemberEpoch => SinkError::NotAMember(cause),
            _ if error.txn_requires_abort() => SinkError::Abort(cause),
            _ if error.is_retriable() => SinkError::Retry(cause),
            _ => SinkError::Fatal(cause),
        }
    }

    /// A topic that refuses a message for good, or that may not be written.
    fn refusal(&self) -> Option<SinkError> {
        let (code, topic) = self.producer.context().first_failure()?;
        let cause = code.to_string();
        match code {
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidTimestamp
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::MessageBatchTooLarge => {
                let to = self.topics.iter().find(|(_, name)| **name == topic).map(|(to, _)| *to)?;
                Some(SinkError::Refused { to, topic, cause })
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => Some(SinkError::Fatal(format!(
                "no right to write topic `{topic}` (operation Write): {cause}"
            ))),
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition => {
                Some(SinkError::Fatal(format!("topic `{topic}` does not exist any more: {cause}")))
            }
            _ => None,
        }
    }

    /// A producer that can do nothing more: after an outage that outlasted the transaction it is made anew, once in
    /// [`REBUILD_AT_MOST_EVERY`]; anything else is another instance under the same id.
    fn fatal(&mut self, code: RDKafkaErrorCode, reason: &str) -> SinkError {
        let now = self.clock.monotonic();
        let timed_out = self.begun.is_some_and(|begun| now.since(begun) > self.transaction_timeout);
        let may_rebuild =
            self.rebuilt.is_none_or(|rebuilt| now.since(rebuilt) > REBUILD_AT_MOST_EVERY);
        if timed_out && may_rebuild {
            self.rebuild = true;
            return SinkError::Abort(format!("the transaction outlasted its timeout: {reason}"));
        }
        match code {
            RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
            | RDKafkaErrorCode::FencedInstanceId => SinkError::Fatal(format!(
                "another instance runs under transactional id `{}` and has taken over; give each instance a \
                 `kafka.instance_id` of its own ({reason})",
                self.clients.transactional_id
            )),
            _ => SinkError::Fatal(reason.to_owned()),
        }
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        if self.begun.is_some() {
            return Ok(());
        }
        if self.guarantee == Guarantee::ExactlyOnce {
            self.producer.begin_transaction().map_err(|error| self.classify(&error))?;
        }
        self.begun = Some(self.clock.monotonic());
        Ok(())
    }

    /// Waits until the brokers have everything. The transaction's own flush looks only every 100 ms.
    fn flush(&mut self) -> Result<(), SinkError> {
        let began = self.clock.monotonic();
        // After a failure the rest stays where it is.
        while self.producer.in_flight_count() > 0
            && self.producer.context().first_failure().is_none()
        {
            self.producer.poll(Duration::from_millis(1));
            if self.clock.monotonic().since(began) > REQUEST_TIMEOUT {
                return Err(SinkError::Retry(
                    "the brokers have not taken everything yet".to_owned(),
                ));
            }
        }
        match self.producer.context().first_failure() {
            None => Ok(()),
            Some((code, topic)) => Err(self.refusal().unwrap_or_else(|| {
                SinkError::Abort(format!("a record for topic `{topic}` did not arrive: {code}"))
            })),
        }
    }

    fn offsets(
        &self,
        next: &BTreeMap<PartitionId, i64>,
        sequence: u64,
    ) -> Result<TopicPartitionList, SinkError> {
        let mut list = TopicPartitionList::new();
        for (id, offset) in next {
            let fault = |error: KafkaError| SinkError::Fatal(error.to_string());
            let mut element = list.add_partition(self.inputs.name(*id), id.partition);
            element.set_offset(Offset::Offset(*offset)).map_err(fault)?;
            element.set_metadata(format!("{SEQUENCE}{sequence}"));
        }
        Ok(list)
    }

    /// Whether the group has the offsets of this commit.
    fn was_committed(
        &self,
        next: &BTreeMap<PartitionId, i64>,
        sequence: u64,
    ) -> Result<bool, SinkError> {
        let list = self.offsets(next, sequence)?;
        let committed = self.consumer.committed_offsets(list, REQUEST_TIMEOUT);
        let committed = committed.map_err(|error| SinkError::Retry(error.to_string()))?;
        Ok(!next.is_empty()
            && committed
                .elements()
                .iter()
                .all(|element| sequence_of(element.metadata()) == Some(sequence)))
    }

    fn make_anew(&mut self) -> Result<(), SinkError> {
        tracing::warn!("the producer is made anew");
        let (least, greatest) = message_bytes(&self.limits);
        self.producer = self
            .clients
            .producer(least, greatest)
            .map_err(|error| SinkError::Fatal(error.to_string()))?;
        self.initialised = false;
        self.rebuilt = Some(self.clock.monotonic());
        self.begun = None;
        Ok(())
    }

    /// Aborts the open transaction, whatever its messages have come to. The call first waits until those it purges
    /// are reported, which only a poll sees to: so it is made in slices, each of which goes on where the last one was.
    fn abort_open(&mut self) -> Result<(), SinkError> {
        let began = self.clock.monotonic();
        while let Err(error) = self.producer.abort_transaction(ABORT_SLICE) {
            let waits = matches!(
                &error,
                KafkaError::Transaction(error) if error.is_retriable() && !error.is_fatal()
            );
            if !waits || self.clock.monotonic().since(began) > REQUEST_TIMEOUT {
                return Err(self.judge(&error));
            }
            self.producer.poll(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl TransactionalSink for KafkaSink {
    fn send(&mut self, message: &Message) -> Result<(), SinkError> {
        self.begin()?;
        let topic = self.topics.get(&message.to).map_or("", String::as_str);
        let mut record = record(message, topic);
        let began = self.clock.monotonic();
        loop {
            let Err((error, back)) = self.producer.send(record) else { break };
            match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::QueueFull)
                    if self.clock.monotonic().since(began) < REQUEST_TIMEOUT =>
                {
                    record = back;
                    self.producer.poll(Duration::from_millis(10));
                }
                Some(RDKafkaErrorCode::QueueFull) => {
                    return Err(SinkError::Retry(
                        "the brokers take nothing and the queue is full".to_owned(),
                    ));
                }
                Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
                    let (topic, cause) = (topic.to_owned(), error.to_string());
                    return Err(SinkError::Refused { to: message.to, topic, cause });
                }
                _ => return Err(self.classify(&error)),
            }
        }
        self.since_poll += 1;
        if self.since_poll >= SENDS_PER_POLL {
            self.since_poll = 0;
            self.producer.poll(Duration::ZERO);
        }
        Ok(())
    }

    fn commit(
        &mut self,
        next: &BTreeMap<PartitionId, i64>,
        sequence: u64,
    ) -> Result<(), SinkError> {
        let offsets = self.offsets(next, sequence)?;
        if self.guarantee == Guarantee::AtLeastOnce {
            self.flush()?;
            let committed = self.consumer.commit(&offsets, CommitMode::Sync);
            self.begun = None;
            return committed.map_err(|error| match error.rdkafka_error_code() {
                Some(
                    RDKafkaErrorCode::UnknownMemberId
                    | RDKafkaErrorCode::IllegalGeneration
                    | RDKafkaErrorCode::RebalanceInProgress,
                ) => SinkError::NotAMember(error.to_string()),
                _ => SinkError::Retry(error.to_string()),
            });
        }
        self.begin()?;
        if self.in_doubt.is_none() {
            // Fetched at this moment, since fencing happens only here (KIP-447).
            let Some(group) = self.consumer.group_metadata() else {
                return Err(SinkError::Retry("the consumer has no group metadata yet".to_owned()));
            };
            let sent = self.producer.send_offsets_to_transaction(&offsets, &group, REQUEST_TIMEOUT);
            sent.map_err(|error| self.classify(&error))?;
            self.flush()?;
        }
        self.in_doubt = Some(next.clone());
        self.producer.commit_transaction(REQUEST_TIMEOUT).map_err(|error| self.classify(&error))?;
        self.in_doubt = None;
        self.begun = None;
        Ok(())
    }

    fn abort(&mut self, sequence: u64) -> Result<Aborted, SinkError> {
        self.producer.context().forget();
        if self.guarantee == Guarantee::AtLeastOnce {
            self.begun = None;
            return Ok(Aborted::Undone);
        }
        if self.rebuild {
            if self.rebuilt.is_none_or(|rebuilt| self.begun.is_some_and(|begun| begun > rebuilt)) {
                self.make_anew()?;
            }
            self.init()?;
            let in_doubt = self.in_doubt.clone().unwrap_or_default();
            let committed = self.was_committed(&in_doubt, sequence)?;
            self.rebuild = false;
            self.in_doubt = None;
            return Ok(if committed { Aborted::Committed } else { Aborted::Undone });
        }
        if self.begun.is_some() {
            self.abort_open()?;
        }
        self.producer.context().forget();
        self.in_doubt = None;
        self.begun = None;
        Ok(Aborted::Undone)
    }

    fn limits(&self, topic: OutputTopic) -> TopicLimits {
        self.limits.get(&topic).copied().unwrap_or_default()
    }

    fn refresh_limits(&mut self) -> Result<(), SinkError> {
        let limits = admin::limits(&self.clients, &self.topics)
            .map_err(|error| SinkError::Retry(error.to_string()))?;
        let changed = message_bytes(&limits) != message_bytes(&self.limits);
        self.limits = limits;
        if changed {
            self.make_anew()?;
        }
        // Also where an attempt before this one made the producer and went no further.
        self.init()?;
        Ok(())
    }
}

fn record<'a>(message: &'a Message, topic: &'a str) -> BaseRecord<'a, [u8], [u8]> {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
    for (name, value) in &message.headers {
        headers = headers.insert(Header { key: name, value: value.as_deref() });
    }
    let mut record = BaseRecord::<[u8], [u8]>::to(topic).headers(headers);
    if let Some(key) = &message.key {
        record = record.key(key);
    }
    if let Some(payload) = &message.payload {
        record = record.payload(payload);
    }
    if let Some(partition) = message.partition {
        record = record.partition(partition);
    }
    if let Some(timestamp) = message.timestamp {
        record = record.timestamp(timestamp);
    }
    record
}

/// What the topic that takes the least takes, and the one that takes the most.
fn message_bytes(limits: &BTreeMap<OutputTopic, TopicLimits>) -> (usize, usize) {
    let default = TopicLimits::default().max_message_bytes;
    let bytes = || limits.values().map(|limits| limits.max_message_bytes);
    (bytes().min().unwrap_or(default), bytes().max().unwrap_or(default))
}

/// The sequence of the commit that left this with its offsets.
pub(super) fn sequence_of(metadata: &str) -> Option<u64> {
    metadata.strip_prefix(SEQUENCE)?.parse().ok()
}

/// What the metadata of committed offsets begin with.
const SEQUENCE: &str = "tidegate/1 sequence=";

const ABORT_SLICE: Duration = Duration::from_millis(50);

const RETRY_AFTER: Duration = Duration::from_millis(500);

const REBUILD_AT_MOST_EVERY: Duration = Duration::from_mins(10);

/// How long the report on a message may take that has failed the transaction.
const TOLD_WITHIN: Duration = Duration::from_millis(200);

/// Delivery reports are taken this often, so that a refusal is noticed early.
const SENDS_PER_POLL: u32 = 256;
