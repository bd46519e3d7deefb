//! What commands work with that mend topics: they read topics to an end, and write records in one transaction with the
//! offsets up to which they have read.
//!
//! They join no group: the transactional id is the same wherever a command runs, so a second one fences the first before
//! it looks at the offsets, and what a killed one left open is ended.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::admin::{self, ConnectError};
use super::client::{Clients, partitions_of};
use super::ending::EndsAside;
use super::oauth::Held;
use super::record::{KafkaRecord, owned_headers};
use super::report::Reported;
use super::sink::Deliveries;
use crate::clock::Clock;
use crate::config::{Config, Guarantee, Inputs, TwoPatterns};
use crate::event_time::PartitionId;
use crate::pipeline::{Header, OutputTopic};

/// Why topics could not be mended.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The client's own settings.
    #[error("the Kafka client cannot be made: {0}; see [kafka.properties] in the configuration")]
    Client(String),
    /// A topic is not there.
    #[error("topic `{0}` does not exist")]
    NoTopic(String),
    /// Patterns that overlap.
    #[error(transparent)]
    TwoPatterns(#[from] TwoPatterns),
    /// A request failed.
    #[error("{what}: {cause}")]
    Request {
        /// What was asked for.
        what: String,
        /// The answer.
        cause: String,
    },
    /// Nothing came for a while, although there is more.
    #[error(
        "nothing more came of topic `{topic}` for {patience:?}, before offset {end} of partition {partition}; where a \
         writer was killed, its transaction ends after its timeout: try again then"
    )]
    Stalled {
        /// Which one.
        topic: String,
        /// Its partition.
        partition: i32,
        /// Where reading was to end.
        end: i64,
        /// For how long.
        patience: Duration,
    },
    /// What is there is not of this configuration, or cannot be asked for with it.
    #[error("{0}")]
    Foreign(String),
    /// Nothing of the transaction counts, or all of it does.
    #[error(
        "the transaction {state}: {cause}; run the command again, it goes on from what was committed"
    )]
    Transaction {
        /// What is known of it.
        state: &'static str,
        /// What happened.
        cause: String,
    },
}

impl From<ConnectError> for RepairError {
    fn from(error: ConnectError) -> Self {
        Self::Client(error.to_string())
    }
}

/// Where each partition's records begin and end: the first offset, and the one behind the last.
pub type Ranges = BTreeMap<i32, (i64, i64)>;

/// Which end of a partition is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The last stable offset: open transactions are behind it.
    Stable,
    /// The end offset, open transactions included; reading up to it waits until they have ended.
    Written,
}

/// A record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to.
    pub topic: String,
    /// The partition, where it is not the key's hash.
    pub partition: Option<i32>,
    /// The message key.
    pub key: Option<Vec<u8>>,
    /// The payload.
    pub payload: Option<Vec<u8>>,
    /// The headers.
    pub headers: Vec<Header>,
    /// Kafka's timestamp; `None`: the present.
    pub timestamp: Option<i64>,
}

/// The clients of a command that mends topics.
pub struct Repair {
    clients: Clients,
    /// Looks at the group without being a member.
    outside: Held<BaseConsumer<Reported>>,
    /// Sees also what is not committed.
    looker: EndsAside<Held<BaseConsumer<Reported>>>,
    producer: Option<EndsAside<Held<BaseProducer<Deliveries>>>>,
    clock: Clock,
}

impl std::fmt::Debug for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repair").field("group", &self.clients.group_id).finish_non_exhaustive()
    }
}

impl Repair {
    /// For the job of a configuration; its own group and transactional id begin with the job's group.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn open(config: &Config, purpose: &str, clock: Clock) -> Result<Self, RepairError> {
        let mut config = config.clone();
        config.kafka.group_id = group_of(&config, purpose);
        // The same everywhere, so that of two only one goes on.
        "repair".clone_into(&mut config.kafka.instance_id);
        config.kafka.static_membership = false;
        config.delivery.guarantee = Guarantee::ExactlyOnce;
        let clients = Clients::new(&config, 0, clock, Arc::new(|_, _| {}));
        let client = |error: KafkaError| RepairError::Client(error.to_string());
        let outside = clients.outside(&clients.group_id).map_err(client)?;
        let looker = clients.looker().map_err(client)?;
        Ok(Self { clients, outside, looker, producer: None, clock })
    }

    /// The group whose offsets say how far the command has come.
    pub fn group(&self) -> &str {
        &self.clients.group_id
    }

    /// The configuration with the topics that match its patterns.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn with_all_topics(&self, config: &Config) -> Result<Config, RepairError> {
        let inputs = Inputs::new(config);
        let metadata = self.outside.fetch_metadata(None, TIMEOUT);
        let metadata = metadata.map_err(|error| request("asking for the topics", &error))?;
        inputs.admit(metadata.topics().iter().map(rdkafka::metadata::MetadataTopic::name))?;
        Ok(config.with_topics_of(&inputs))
    }

    /// The partitions of a topic, in their order.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn partitions(&self, topic: &str) -> Result<Vec<i32>, RepairError> {
        let partitions = partitions_of(&self.outside, topic, TIMEOUT)
            .map_err(|error| request("asking for the topics", &error))?;
        if partitions.is_empty() {
            return Err(RepairError::NoTopic(topic.to_owned()));
        }
        Ok(partitions)
    }

    /// Where the partitions of a topic begin and end.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn ranges(&self, topic: &str, end: End) -> Result<Ranges, RepairError> {
        let mut ranges = Ranges::new();
        for partition in self.partitions(topic)? {
            let found = match end {
                End::Stable => self.outside.fetch_watermarks(topic, partition, TIMEOUT),
                End::Written => self.looker.fetch_watermarks(topic, partition, TIMEOUT),
            };
            let found = found
                .map_err(|error| request(&format!("the ends of {topic}/{partition}"), &error))?;
            ranges.insert(partition, found);
        }
        Ok(ranges)
    }

    /// What the command's group has committed in a topic.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn committed(&self, topic: &str) -> Result<BTreeMap<i32, i64>, RepairError> {
        self.offsets(&self.outside, self.group(), topic)
    }

    /// What another group has committed in a topic.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn committed_by(
        &self,
        group: &str,
        topic: &str,
    ) -> Result<BTreeMap<i32, i64>, RepairError> {
        let consumer = self.clients.outside(group);
        let consumer = consumer.map_err(|error| RepairError::Client(error.to_string()))?;
        self.offsets(&consumer, group, topic)
    }

    fn offsets(
        &self,
        consumer: &BaseConsumer<Reported>,
        group: &str,
        topic: &str,
    ) -> Result<BTreeMap<i32, i64>, RepairError> {
        let mut list = TopicPartitionList::new();
        for partition in self.partitions(topic)? {
            list.add_partition(topic, partition);
        }
        let answer = consumer.committed_offsets(list, TIMEOUT).map_err(|error| {
            request(&format!("the offsets of group `{group}` (operation Read)"), &error)
        })?;
        let mut offsets = BTreeMap::new();
        for element in answer.elements() {
            if let Offset::Offset(offset) = element.offset() {
                offsets.insert(element.partition(), offset);
            }
        }
        Ok(offsets)
    }

    /// Shows what is committed in these ranges of a topic, record by record, until told to stop. Whether all was shown.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn read(
        &self,
        topic: &str,
        ranges: &Ranges,
        mut take: impl FnMut(&KafkaRecord<'_>) -> Result<ControlFlow<()>, RepairError>,
    ) -> Result<bool, RepairError> {
        let failed = |error: KafkaError| request(&format!("reading `{topic}`"), &error);
        let consumer = self.clients.sampler().map_err(failed)?;
        let mut ends = BTreeMap::new();
        let mut assignment = TopicPartitionList::new();
        for (partition, (begin, end)) in ranges.iter().filter(|(_, (begin, end))| begin < end) {
            assignment
                .add_partition_offset(topic, *partition, Offset::Offset(*begin))
                .map_err(failed)?;
            ends.insert(*partition, (*begin, *end));
        }
        consumer.incremental_assign(&assignment).map_err(failed)?;
        let mut came = self.clock.monotonic();
        let mut looked = came;
        while let Some((first, (_, end))) = ends.first_key_value() {
            let (partition, end) = (*first, *end);
            let polled = consumer.poll(TURN);
            let now = self.clock.monotonic();
            let nothing = polled.is_none();
            match polled {
                Some(Ok(message)) => {
                    came = now;
                    let id = PartitionId { topic: 0, partition: message.partition() };
                    let range = ends.get(&id.partition);
                    if range.is_some_and(|(_, end)| message.offset() < *end)
                        && take(&KafkaRecord { message, partition: id })?.is_break()
                    {
                        return Ok(false);
                    }
                }
                Some(Err(error)) => tracing::debug!(%error, topic, "reading"),
                None => {}
            }
            if nothing || now.since(looked) >= LOOK {
                looked = now;
                let before = ends.len();
                forget_the_ended(&consumer, topic, &mut ends).map_err(failed)?;
                if ends.len() < before {
                    came = now;
                } else if now.since(came) > PATIENCE {
                    let topic = topic.to_owned();
                    return Err(RepairError::Stalled { topic, partition, end, patience: PATIENCE });
                }
            }
        }
        Ok(true)
    }

    /// From here on this command is the one that writes: another one that is at work ends with an error, and what a
    /// killed one left open is ended. Offsets are to be looked at after this.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn begin(&mut self, topics: &[String]) -> Result<(), RepairError> {
        // The numbers only tell the topics apart.
        let numbered = (0..).map(OutputTopic::Changelog).zip(topics.iter().cloned());
        let limits = admin::limits(&self.clients, &numbered.collect())?.unwrap_or_default();
        let bytes = || limits.values().map(|limits| limits.max_message_bytes);
        let (least, greatest) = (bytes().min(), bytes().max());
        let producer = self.clients.producer(least.unwrap_or(BYTES), greatest.unwrap_or(BYTES))?;
        producer.init_transactions(TIMEOUT).map_err(|error| {
            let id = &self.clients.transactional_id;
            request(
                &format!("beginning with the transactional id `{id}` (operation Write)"),
                &error,
            )
        })?;
        self.producer = Some(producer);
        Ok(())
    }

    /// Writes records and, in the same transaction, how far a topic has been dealt with.
    ///
    /// # Errors
    /// See [`RepairError`]. Nothing is written then, unless the answer to the commit itself was lost.
    pub fn write(
        &self,
        records: &[Outgoing],
        topic: &str,
        next: &BTreeMap<i32, i64>,
    ) -> Result<(), RepairError> {
        let Some(producer) = &self.producer else {
            return Err(RepairError::Client("nothing was begun".to_owned()));
        };
        let written = self.write_open(producer, records, topic, next);
        if let Err(cause) = written {
            // Where even this fails, the broker ends it after its timeout.
            producer.abort_transaction(TIMEOUT).unwrap_or_default();
            return Err(RepairError::Transaction { state: "was given up", cause });
        }
        producer.commit_transaction(TIMEOUT).map_err(|error| RepairError::Transaction {
            state: "may or may not have been committed",
            cause: error.to_string(),
        })
    }

    fn write_open(
        &self,
        producer: &BaseProducer<Deliveries>,
        records: &[Outgoing],
        topic: &str,
        next: &BTreeMap<i32, i64>,
    ) -> Result<(), String> {
        let text = |error: KafkaError| error.to_string();
        producer.begin_transaction().map_err(text)?;
        for outgoing in records {
            self.send(producer, outgoing)?;
        }
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in next {
            offsets
                .add_partition_offset(topic, *partition, Offset::Offset(*offset))
                .map_err(text)?;
        }
        let group = self.outside.group_metadata().ok_or("the group has no metadata")?;
        producer
            .send_offsets_to_transaction(&offsets, &group, TIMEOUT)
            .map_err(|error| format!("the offsets of group `{}`: {error}", self.group()))?;
        let began = self.clock.monotonic();
        while producer.in_flight_count() > 0 {
            refused(producer)?;
            producer.poll(Duration::from_millis(1));
            if self.clock.monotonic().since(began) > TIMEOUT {
                return Err("the brokers do not take the records".to_owned());
            }
        }
        refused(producer)
    }

    fn send(&self, producer: &BaseProducer<Deliveries>, outgoing: &Outgoing) -> Result<(), String> {
        let began = self.clock.monotonic();
        let mut record = record_of(outgoing);
        while let Err((error, back)) = producer.send(record) {
            refused(producer)?;
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull)
                || self.clock.monotonic().since(began) > TIMEOUT
            {
                return Err(format!("a record for topic `{}`: {error}", outgoing.topic));
            }
            record = back;
            producer.poll(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// The group of a command that mends what a job has written.
pub fn group_of(config: &Config, purpose: &str) -> String {
    format!("{}-{purpose}", config.kafka.group_id)
}

fn refused(producer: &BaseProducer<Deliveries>) -> Result<(), String> {
    match producer.context().first_failure() {
        None => Ok(()),
        Some((code, topic)) => Err(format!("a record for topic `{topic}` was refused: {code}")),
    }
}

/// Partitions that have come to their end are not read any more.
fn forget_the_ended(
    consumer: &BaseConsumer<Reported>,
    topic: &str,
    ends: &mut Ranges,
) -> Result<(), KafkaError> {
    let positions = consumer.position()?;
    let mut done = TopicPartitionList::new();
    ends.retain(|partition, (begin, end)| {
        let position = positions.find_partition(topic, *partition).map(|element| element.offset());
        // Before the first record there is none.
        let position = if let Some(Offset::Offset(at)) = position { at } else { *begin };
        if position >= *end {
            done.add_partition(topic, *partition);
        }
        position < *end
    });
    if done.count() > 0 { consumer.incremental_unassign(&done) } else { Ok(()) }
}

fn record_of(outgoing: &Outgoing) -> BaseRecord<'_, [u8], [u8], usize> {
    let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&outgoing.topic, 0);
    record.headers = owned_headers(&outgoing.headers);
    record.key = outgoing.key.as_deref();
    record.payload = outgoing.payload.as_deref();
    record.partition = outgoing.partition;
    record.timestamp = outgoing.timestamp;
    record
}

fn request(what: &str, error: &KafkaError) -> RepairError {
    RepairError::Request { what: what.to_owned(), cause: error.to_string() }
}

/// The longest wait for a record at a time.
const TURN: Duration = Duration::from_millis(50);

/// How often it is looked at how far reading has come.
const LOOK: Duration = Duration::from_millis(100);

/// After so long without a record it is given up; a transaction that was left open ends within its timeout and the
/// broker's look for such, 10 s each.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Kafka's own limit of a batch.
const BYTES: usize = 1_048_588;
