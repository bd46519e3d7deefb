//! Topics of a broker: make them, write to them, read them to their end.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

pub(crate) use super::record::Record;

/// A client of one broker.
pub(crate) struct Cluster {
    pub(crate) bootstrap: String,
    properties: Vec<(String, String)>,
}

impl Cluster {
    pub(crate) fn new(bootstrap: impl Into<String>) -> Self {
        Self { bootstrap: bootstrap.into(), properties: Vec::new() }
    }

    /// A client that sets these properties of librdkafka too.
    pub(crate) fn with(bootstrap: impl Into<String>, properties: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { bootstrap: bootstrap.into(), properties: properties.iter().map(own).collect() }
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    /// Creates a topic, with settings of its own.
    pub(crate) fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut new =
            NewTopic::new(topic, partitions, TopicReplication::Fixed(AS_THE_BROKERS_ARE_SET));
        for (name, value) in settings {
            new = new.set(name, value);
        }
        let create = || block_on(self.admin().create_topics([&new], &options())).unwrap();
        for _ in 0..600 {
            // A broker whose heartbeat was late on a busy machine counts as none.
            match create().remove(0) {
                Err((_, RDKafkaErrorCode::InvalidReplicationFactor)) => {
                    std::thread::park_timeout(Duration::from_millis(100));
                }
                result => {
                    result.unwrap();
                    break;
                }
            }
        }
        self.wait_for(topic, partitions);
    }

    /// Waits until the broker tells of the topic with this many partitions.
    pub(crate) fn wait_for(&self, topic: &str, partitions: i32) {
        let consumer: BaseConsumer = self.client().create().unwrap();
        for _ in 0..600 {
            let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).unwrap();
            let known = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
            if i32::try_from(known) == Ok(partitions) {
                return;
            }
            consumer.poll(Duration::from_millis(50));
        }
        panic!("topic {topic} did not appear");
    }

    /// Gives a topic these settings, and the broker's own in everything else.
    pub(crate) fn alter(&self, topic: &str, settings: &[(&str, &str)]) {
        let mut alter = AlterConfig::new(ResourceSpecifier::Topic(topic));
        for (name, value) in settings {
            alter = alter.set(name, value);
        }
        for result in block_on(self.admin().alter_configs(&[alter], &options())).unwrap() {
            result.unwrap();
        }
    }

    /// The settings of a topic.
    pub(crate) fn settings(&self, topic: &str) -> BTreeMap<String, String> {
        let asked = [ResourceSpecifier::Topic(topic)];
        let answer = block_on(self.admin().describe_configs(&asked, &options())).unwrap();
        let topics = answer.into_iter().map(Result::unwrap);
        let entries = topics.flat_map(|topic| topic.entries);
        entries.map(|entry| (entry.name, entry.value.unwrap_or_default())).collect()
    }

    /// Deletes a group without members, and with it its offsets.
    pub(crate) fn delete_group(&self, group: &str) {
        for result in block_on(self.admin().delete_groups(&[group], &options())).unwrap() {
            result.unwrap();
        }
    }

    /// A consumer that joins a group, and is a member from its first assignment on until it is dropped; it reads nothing
    /// and commits nothing.
    pub(crate) fn member(
        &self,
        group: &str,
        topic: &str,
        properties: &[(&str, &str)],
    ) -> BaseConsumer {
        let mut client = self.client();
        client.set("group.id", group).set("enable.auto.commit", "false");
        for (name, value) in properties {
            client.set(*name, *value);
        }
        let consumer: BaseConsumer = client.create().unwrap();
        consumer.subscribe(&[topic]).unwrap();
        consumer
    }

    /// Deletes a topic, and waits until the broker knows nothing of it.
    pub(crate) fn delete(&self, topic: &str) {
        for result in block_on(self.admin().delete_topics(&[topic], &options())).unwrap() {
            result.unwrap();
        }
        for _ in 0..600 {
            if self.topics(topic).is_empty() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("topic {topic} did not disappear");
    }

    /// Adds partitions to a topic until it has this many.
    pub(crate) fn grow(&self, topic: &str, partitions: i32) {
        let more = NewPartitions::new(topic, usize::try_from(partitions).unwrap());
        for result in block_on(self.admin().create_partitions(&[more], &options())).unwrap() {
            result.unwrap();
        }
        self.wait_for(topic, partitions);
    }

    /// Deletes the records of a partition that are before an offset.
    pub(crate) fn delete_before(&self, topic: &str, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
        let deleted = block_on(self.admin().delete_records(&list, &options())).unwrap();
        deleted.elements().iter().for_each(|element| element.error().unwrap());
    }

    /// The topics there are whose names begin with this, and how many partitions they have.
    pub(crate) fn topics(&self, prefix: &str) -> Vec<(String, usize)> {
        let consumer: BaseConsumer = self.client().create().unwrap();
        let metadata = consumer.fetch_metadata(None, TIMEOUT).unwrap();
        let topics = metadata.topics().iter().filter(|topic| topic.name().starts_with(prefix));
        let mut topics: Vec<_> =
            topics.map(|topic| (topic.name().to_owned(), topic.partitions().len())).collect();
        topics.sort();
        topics
    }

    /// Commits an offset for a group that has no member.
    pub(crate) fn commit(&self, group: &str, topic: &str, partition: i32, offset: i64) {
        let consumer: BaseConsumer = self.client().set("group.id", group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
        consumer.commit(&list, CommitMode::Sync).unwrap();
    }

    /// Writes records in their order and waits until the broker has them.
    pub(crate) fn produce(&self, topic: &str, records: &[Record]) {
        let producer = self.producer();
        for record in records {
            send(&producer, topic, record);
        }
        producer.flush(TIMEOUT).unwrap();
    }

    /// A producer that writes each record once, over an outage too.
    pub(crate) fn producer(&self) -> BaseProducer {
        self.client()
            .set("enable.idempotence", "true")
            .set("message.max.bytes", "20000000")
            .set("linger.ms", "5")
            .create()
            .unwrap()
    }

    /// Writes records in a transaction that is committed or aborted.
    pub(crate) fn produce_in_transaction(&self, topic: &str, records: &[Record], commit: bool) {
        let producer = self.open_transaction(&format!("writer-of-{topic}"), topic, records);
        if commit {
            producer.commit_transaction(TIMEOUT).unwrap();
        } else {
            producer.abort_transaction(TIMEOUT).unwrap();
        }
    }

    /// A producer for transactions, none of which has begun.
    pub(crate) fn transactional(&self, id: &str) -> BaseProducer {
        self.client().set("transactional.id", id).create().unwrap()
    }

    /// Writes records in a transaction and leaves it open.
    pub(crate) fn open_transaction(
        &self,
        id: &str,
        topic: &str,
        records: &[Record],
    ) -> BaseProducer {
        let producer = self.transactional(id);
        producer.init_transactions(TIMEOUT).unwrap();
        producer.begin_transaction().unwrap();
        for record in records {
            send(&producer, topic, record);
        }
        producer.flush(TIMEOUT).unwrap();
        producer
    }

    /// Waits until no transaction is open in a topic. That of a killed instance, behind which a `read_committed` reader sees
    /// nothing, is ended by the broker, which looks for those past their timeout now and then.
    pub(crate) fn wait_for_transactions(&self, topic: &str) {
        let reader: BaseConsumer =
            self.client().set("isolation.level", "read_committed").create().unwrap();
        let found = self.topics(topic).into_iter().find(|(name, _)| name == topic);
        let partitions = 0..i32::try_from(found.unwrap().1).unwrap();
        for _ in 0..600 {
            let is_stable = |partition| {
                let (_, stable) = patiently(|| reader.fetch_watermarks(topic, partition, TIMEOUT));
                stable == self.end(topic, partition)
            };
            if partitions.clone().all(is_stable) {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        panic!("a transaction stays open in {topic}");
    }

    /// Everything in a topic that a `read_committed` reader sees, by partition and offset.
    pub(crate) fn read(&self, topic: &str) -> Vec<Record> {
        self.read_with(topic, "read_committed")
    }

    /// Everything in a topic under an isolation level.
    pub(crate) fn read_with(&self, topic: &str, isolation: &str) -> Vec<Record> {
        let consumer: BaseConsumer = self
            .client()
            .set("group.id", "tests-read-alone")
            .set("isolation.level", isolation)
            .set("enable.auto.commit", "false")
            .set("fetch.message.max.bytes", "20000000")
            .create()
            .unwrap();
        let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).unwrap();
        let partitions = metadata
            .topics()
            .first()
            .unwrap()
            .partitions()
            .iter()
            .map(rdkafka::metadata::MetadataPartition::id);
        let mut list = TopicPartitionList::new();
        let mut ends = BTreeMap::new();
        for partition in partitions {
            let (_, end) = patiently(|| consumer.fetch_watermarks(topic, partition, TIMEOUT));
            if end > 0 {
                ends.insert(partition, end);
                list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
            }
        }
        consumer.assign(&list).unwrap();
        let mut records = Vec::new();
        let mut empty_polls = 0;
        while !ends.is_empty() {
            match consumer.poll(Duration::from_millis(100)) {
                Some(message) => records.push(read_record(&message.unwrap())),
                None => empty_polls += 1,
            }
            assert!(empty_polls < 300, "{topic} could not be read to its ends {ends:?}");
            for element in consumer.position().unwrap().elements() {
                let reached = |end: &i64| matches!(element.offset(), Offset::Offset(offset) if offset >= *end);
                if ends.get(&element.partition()).is_some_and(reached) {
                    ends.remove(&element.partition());
                }
            }
        }
        records.sort_by_key(|record| (record.partition, record.offset));
        records
    }

    /// What a group has committed for each partition of a topic.
    pub(crate) fn committed(&self, group: &str, topic: &str, partitions: i32) -> Vec<Option<i64>> {
        let consumer: BaseConsumer = self.client().set("group.id", group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, partitions - 1);
        let committed = patiently(|| consumer.committed_offsets(list.clone(), TIMEOUT));
        let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
        committed.elements().iter().map(|element| offset(element.offset())).collect()
    }

    /// The offset of the oldest record of a partition.
    pub(crate) fn beginning(&self, topic: &str, partition: i32) -> i64 {
        let consumer: BaseConsumer = self.client().create().unwrap();
        patiently(|| consumer.fetch_watermarks(topic, partition, TIMEOUT)).0
    }

    /// The end offset of a partition, transaction markers included.
    pub(crate) fn end(&self, topic: &str, partition: i32) -> i64 {
        let consumer: BaseConsumer =
            self.client().set("isolation.level", "read_uncommitted").create().unwrap();
        patiently(|| consumer.fetch_watermarks(topic, partition, TIMEOUT)).1
    }
}

/// Hands a record to a producer, waiting while its queue is full.
pub(crate) fn send(producer: &BaseProducer, topic: &str, record: &Record) {
    let mut headers = OwnedHeaders::new();
    for (key, value) in &record.headers {
        headers = headers.insert(Header { key, value: value.as_deref() });
    }
    let mut outgoing =
        BaseRecord::<[u8], [u8]>::to(topic).partition(record.partition).headers(headers);
    outgoing.key = record.key.as_deref();
    outgoing.payload = record.payload.as_deref();
    outgoing.timestamp = record.timestamp;
    while let Err((error, back)) = producer.send(outgoing) {
        assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull), "{error}");
        outgoing = back;
        producer.poll(Duration::from_millis(10));
    }
}

/// Asks again while the brokers are about to agree on who leads what.
fn patiently<T>(mut ask: impl FnMut() -> KafkaResult<T>) -> T {
    for _ in 0..100 {
        if let Ok(answer) = ask() {
            return answer;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    ask().unwrap()
}

fn read_record(message: &rdkafka::message::BorrowedMessage<'_>) -> Record {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Record {
        partition: message.partition(),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        payload: message.payload().map(<[u8]>::to_vec),
        headers: headers
            .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
            .collect(),
        timestamp: message.timestamp().to_millis(),
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT))
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

const TIMEOUT: Duration = Duration::from_secs(30);
const AS_THE_BROKERS_ARE_SET: i32 = -1;
