//! Everything that a commit covers, out: one transaction at a time.

#![expect(clippy::wildcard_enum_match_arm, reason = "librdkafka has two hundred error codes")]

mod anew;
mod faults;
mod mark;
#[cfg(test)]
mod tests;
mod trim;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::clock::Clock;
use crate::config::{Config, Guarantee};
use crate::event_time::MonotonicTime;
use crate::kafka::admin::{self, ConnectError};
use crate::kafka::client::{Clients, REQUEST_TIMEOUT, TopicNumbers};
use crate::kafka::ending::EndsAside;
use crate::kafka::oauth::Held;
use crate::kafka::rebalance::ConsumerEvents;
use crate::kafka::record::owned_headers;
use crate::kafka::report::Reports;
use crate::kafka::topic_names::{self, ChangelogTopics};
use crate::pipeline::{
    Message, NextOffsets, OutputTopic, SinkError, Time, TopicLimits, TransactionalSink,
};
pub(super) use mark::mark_of;
use mark::metadata;
use trim::{Superseding, Trim};

/// The producer of one subtask, transactional if the guarantee asks for it.
pub struct KafkaSink {
    producer: Arc<EndsAside<Held<BaseProducer<Deliveries>>>>,
    consumer: Arc<Held<BaseConsumer<ConsumerEvents>>>,
    clients: Arc<Clients>,
    inputs: Arc<TopicNumbers>,
    changelogs: ChangelogTopics,
    topics: BTreeMap<OutputTopic, String>,
    limits: BTreeMap<OutputTopic, TopicLimits>,
    guarantee: Guarantee,
    transaction_timeout: Duration,
    clock: Clock,
    /// When the open transaction was begun.
    begun: Option<MonotonicTime>,
    /// A commit of the open transaction was asked for.
    asked_to_commit: bool,
    trim: Trim,
    life: Life,
    /// What became of the transaction of a broken producer is to be found out.
    rebuild: bool,
    /// How often it was made anew since the last commit.
    made_anew: u32,
    /// Since when the group has had another member of this one's name, as far as this one has looked.
    rival_since: Option<MonotonicTime>,
    /// After how long the group counts a member out that is gone.
    session_timeout: Duration,
    since_poll: u32,
}

/// What a producer can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Nothing yet: it has no epoch.
    Created,
    Ready,
    /// Nothing any more.
    Broken,
}

impl std::fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSink")
            .field("topics", &self.topics)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

/// Remembers the first message since the last look that a broker refused or that never got there, and where those are
/// that make everything before them superfluous.
pub(super) struct Deliveries {
    failure: Mutex<Option<(RDKafkaErrorCode, String)>>,
    superseding: Mutex<Superseding>,
    reports: Reports,
}

impl Deliveries {
    pub(super) fn new(reports: Reports) -> Self {
        Self { failure: Mutex::default(), superseding: Mutex::default(), reports }
    }

    pub(in crate::kafka) fn first_failure(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget(&self) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.take_superseding();
    }

    pub(super) fn take_superseding(&self) -> Superseding {
        std::mem::take(&mut *self.superseding.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.reports.line(level, facility, line);
        self.look_at_line(facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.reports.take(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    /// Whether the message supersedes what is before it.
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, supersedes: usize) {
        let (error, message) = match result {
            Err((error, message)) => (error, message),
            Ok(message) if supersedes != 0 => {
                let at = (message.topic().to_owned(), message.partition());
                let mut superseding =
                    self.superseding.lock().unwrap_or_else(PoisonError::into_inner);
                superseding.insert(at, message.offset());
                return;
            }
            Ok(_) => return,
        };
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
        clients: Arc<Clients>,
        (consumer, inputs): (Arc<Held<BaseConsumer<ConsumerEvents>>>, Arc<TopicNumbers>),
        limits: BTreeMap<OutputTopic, TopicLimits>,
        clock: Clock,
        time: &impl Time,
        trims: bool,
    ) -> Result<Option<Self>, ConnectError> {
        let topics = topic_names::written_topics(config, &inputs.0);
        let changelogs = ChangelogTopics::new(config, &inputs.0);
        let (least, greatest) = message_bytes(&limits);
        let producer = Arc::new(clients.producer(least, greatest)?);
        let mut sink = Self {
            producer,
            consumer,
            clients,
            inputs,
            changelogs,
            topics,
            limits,
            guarantee: config.delivery.guarantee,
            transaction_timeout: config.delivery.transaction_timeout,
            clock,
            begun: None,
            asked_to_commit: false,
            trim: Trim::new(trims),
            life: Life::Created,
            rebuild: false,
            made_anew: 0,
            rival_since: None,
            session_timeout: config.kafka.session_timeout(),
            since_poll: 0,
        };
        while let Err(error) = sink.init() {
            match error {
                SinkError::Retry(_) | SinkError::Abort(_) if time.stopping() => return Ok(None),
                SinkError::Retry(cause) | SinkError::Abort(cause) => {
                    tracing::warn!(cause, "waiting for the transaction coordinator");
                    time.wait(RETRY_AFTER);
                    if sink.life == Life::Broken {
                        let made = sink.make_anew();
                        made.map_err(|error| ConnectError::Producer(error.to_string()))?;
                    }
                }
                other => return Err(ConnectError::Producer(other.to_string())),
            }
        }
        Ok(Some(sink))
    }

    /// Fences and ends what a predecessor under the same transactional id left open.
    fn init(&mut self) -> Result<(), SinkError> {
        if self.guarantee == Guarantee::AtLeastOnce || self.life == Life::Ready {
            return Ok(());
        }
        // After a timeout the next call goes on where this one was.
        self.aside("beginning with the transactional id", |producer| {
            producer.init_transactions(REQUEST_TIMEOUT)
        })?
        .map_err(|error| self.judge(&error))?;
        self.life = Life::Ready;
        Ok(())
    }

    fn begin(&mut self) -> Result<(), SinkError> {
        if self.begun.is_some() {
            return Ok(());
        }
        if self.guarantee == Guarantee::ExactlyOnce {
            self.aside("beginning a transaction", Producer::begin_transaction)?
                .map_err(|error| self.classify(&error))?;
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

    fn offsets(&self, next: &NextOffsets) -> Result<TopicPartitionList, SinkError> {
        let mut list = TopicPartitionList::new();
        for (id, (offset, mark)) in next {
            let fault = |error: KafkaError| SinkError::Fatal(error.to_string());
            let mut element = list.add_partition(&self.inputs.name(*id), id.partition);
            element.set_offset(Offset::Offset(*offset)).map_err(fault)?;
            element.set_metadata(metadata(*mark));
        }
        Ok(list)
    }

    /// A topic that is gone is named by none of the errors it causes: messages time out, or the transaction fails.
    fn check_topics(&self) -> Result<(), SinkError> {
        let all = self.producer.client().fetch_metadata(None, REQUEST_TIMEOUT);
        let all = all.map_err(|error| SinkError::Retry(error.to_string()))?;
        let there = |name: &String| all.topics().iter().any(|topic| topic.name() == name);
        let gone = |name: &String, what: &str| {
            Err(SinkError::Fatal(format!("topic `{name}` has been deleted while it was {what}")))
        };
        match self.topics.values().find(|name| !there(name)) {
            Some(name) => gone(name, "written"),
            None => self
                .inputs
                .names()
                .iter()
                .find(|name| !there(name))
                .map_or(Ok(()), |name| gone(name, "read")),
        }
    }

    /// Aborts the open transaction, whatever its messages have come to. One that was not finished in time goes on with
    /// the next call.
    fn abort_open(&mut self) -> Result<(), SinkError> {
        let aborted =
            self.aside("the abort", |producer| producer.abort_transaction(REQUEST_TIMEOUT))?;
        aborted.map_err(|error| {
            if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Conflict) {
                // Another call timed out and is still under way, and only that very call could end it.
                self.life = Life::Broken;
                self.rebuild = true;
                return SinkError::Retry(error.to_string());
            }
            self.judge(&error)
        })
    }
}

impl TransactionalSink for KafkaSink {
    fn send(&mut self, message: &Message) -> Result<(), SinkError> {
        self.begin()?;
        if let OutputTopic::Changelog(number) = message.to {
            // A pattern may have brought its input since.
            self.topics.entry(message.to).or_insert_with(|| self.changelogs.name(number));
        }
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
                // It has been added, and the client looks again on its own in minutes only.
                Some(RDKafkaErrorCode::UnknownPartition)
                    if self.clock.monotonic().since(began) < REQUEST_TIMEOUT =>
                {
                    record = back;
                    let client = self.producer.client();
                    client.fetch_metadata(Some(topic), REQUEST_TIMEOUT).map_err(|error| {
                        SinkError::Retry(format!("asking for the partitions of `{topic}`: {error}"))
                    })?;
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

    fn commit(&mut self, next: &NextOffsets) -> Result<(), SinkError> {
        let offsets = self.offsets(next)?;
        if self.guarantee == Guarantee::AtLeastOnce {
            self.flush()?;
            let committed = self.consumer.commit(&offsets, CommitMode::Sync);
            self.begun = None;
            committed.map_err(|error| match error.rdkafka_error_code() {
                Some(
                    RDKafkaErrorCode::UnknownMemberId
                    | RDKafkaErrorCode::IllegalGeneration
                    | RDKafkaErrorCode::RebalanceInProgress,
                ) => SinkError::NotAMember(error.to_string()),
                _ => SinkError::Retry(error.to_string()),
            })?;
            self.trim_changelog();
            return Ok(());
        }
        self.begin()?;
        if !self.asked_to_commit {
            // Fetched at this moment, since fencing happens only here (KIP-447).
            let Some(group) = self.consumer.group_metadata() else {
                return Err(SinkError::Retry("the consumer has no group metadata yet".to_owned()));
            };
            // A client that was thrown out of the group has no name and no generation any more, and from one without
            // either the broker takes offsets unchecked.
            if self.consumer.assignment_lost() {
                return Err(SinkError::NotAMember(
                    "the group has taken the partitions away".to_owned(),
                ));
            }
            self.send_offsets(offsets, group)?;
            self.flush()?;
        }
        self.asked_to_commit = true;
        self.aside("the commit", |producer| producer.commit_transaction(REQUEST_TIMEOUT))?
            .map_err(|error| self.classify(&error))?;
        self.asked_to_commit = false;
        self.begun = None;
        self.made_anew = 0;
        self.trim_changelog();
        Ok(())
    }

    fn abort(&mut self) -> Result<(), SinkError> {
        self.producer.context().forget();
        self.asked_to_commit = false;
        if self.timed_out() {
            // The broker has ended the transaction by now, and the client may have lost sight of the coordinator.
            self.life = Life::Broken;
            self.rebuild = true;
        }
        if self.rebuild {
            if self.life == Life::Broken {
                if self.guarantee == Guarantee::ExactlyOnce {
                    self.look_for_a_rival()?;
                }
                self.make_anew()?;
            }
            self.init()?;
            self.check_topics()?;
            self.rebuild = false;
        }
        if self.begun.is_some() && self.guarantee == Guarantee::ExactlyOnce {
            self.abort_open()?;
            self.producer.context().forget();
            self.begun = None;
            self.check_topics()?;
        }
        self.begun = None;
        Ok(())
    }

    fn in_flight(&self) -> usize {
        usize::try_from(self.producer.in_flight_count()).unwrap_or(0)
    }

    fn limits(&self, topic: OutputTopic) -> TopicLimits {
        self.limits.get(&topic).copied().unwrap_or_default()
    }

    fn refresh_limits(&mut self) -> Result<(), SinkError> {
        let limits = admin::limits(&self.clients, &self.topics)
            .map_err(|error| SinkError::Retry(error.to_string()))?
            .ok_or_else(|| SinkError::Retry("no answer about the topics' limits".to_owned()))?;
        let changed = message_bytes(&limits) != message_bytes(&self.limits);
        let before = std::mem::replace(&mut self.limits, limits);
        if changed {
            self.make_anew().inspect_err(|_| self.limits = before)?;
        }
        // Also where an attempt before this one made the producer and went no further.
        self.init()?;
        Ok(())
    }
}

fn record<'a>(message: &'a Message, topic: &'a str) -> BaseRecord<'a, [u8], [u8], usize> {
    let supersedes = usize::from(message.supersedes);
    let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(topic, supersedes);
    record.headers = owned_headers(&message.headers);
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

const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How long the report on a message may take that has failed the transaction.
const TOLD_WITHIN: Duration = Duration::from_millis(200);

/// Delivery reports are taken this often, so that a refusal is noticed early.
const SENDS_PER_POLL: u32 = 256;
