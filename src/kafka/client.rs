//! Client settings: what exactly-once asks of them, what was measured, and what people add.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Duration;

use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::producer::BaseProducer;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::OnError;
use super::admin::ConnectError;
use super::ending::EndsAside;
use super::oauth::{Held, Native, Tokens};
use super::rebalance::ConsumerEvents;
use super::report::{Reported, Reports};
use super::sink::Deliveries;
use crate::clock::Clock;
use crate::config::{Config, Guarantee, Inputs, Properties, Source};
use crate::event_time::PartitionId;

/// Makes the clients of one subtask.
pub(super) struct Clients {
    common: ClientConfig,
    consumer: ClientConfig,
    producer: ClientConfig,
    /// Who writes here; a second one under the same id fences the first.
    pub(super) transactional_id: String,
    pub(super) group_id: String,
    /// The broker that managed the group when it was last asked for its members.
    pub(super) coordinator: AtomicI32,
    /// A topic that one may ask for.
    pub(super) known_topic: String,
    /// What this member is called in the group, also after a restart.
    pub(super) client_id: String,
    /// The same, and what tells this process from all others that are called so.
    pub(super) member_id: String,
    on_error: OnError,
    clock: Clock,
    /// Where the brokers ask for them.
    tokens: Option<Arc<Tokens>>,
    /// The group's protocol is the classic one.
    classic: bool,
}

impl Clients {
    pub(super) fn new(config: &Config, subtask: u16, clock: Clock, on_error: OnError) -> Self {
        let kafka = &config.kafka;
        let transactional_id = format!("{}-{}-{subtask}", kafka.group_id, kafka.instance_id);
        let client_id = format!("tidegate-{}-{subtask}", kafka.instance_id);
        let ours = |defaults: &[(&str, &str)], own: &[&Properties], fixed: &[(&str, &str)]| {
            let mut client = ClientConfig::new();
            client.set("bootstrap.servers", &kafka.bootstrap_servers);
            client.set("client.id", &client_id);
            client.set("reconnect.backoff.max.ms", "5000");
            if kafka.oauth.is_some() {
                client.set("sasl.mechanism", "OAUTHBEARER");
            }
            let own = own.iter().flat_map(|properties| properties.iter());
            // What people set wins over what was measured, and what the guarantees depend on wins over both.
            for (name, value) in defaults.iter().copied().chain(own).chain(fixed.iter().copied()) {
                client.set(name, value);
            }
            client
        };
        // The newer group protocol has these on the broker and refuses them here.
        let group: &[_] = if kafka.newer_group_protocol() { &[] } else { &CLASSIC_GROUP };
        let member = format!("{}-{subtask}", kafka.instance_id);
        let member = [("group.instance.id", member.as_str())];
        let member: &[_] = if kafka.static_membership { &member } else { &[] };
        let member_id = format!("{client_id}.{:08x}", RandomState::new().hash_one(subtask) >> 32);
        let fixed = [
            ("client.id", member_id.as_str()),
            ("group.id", kafka.group_id.as_str()),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("isolation.level", "read_committed"),
            ("statistics.interval.ms", "1000"),
        ];
        let consumer = ours(
            &[&CONSUMER[..], group].concat(),
            &[&kafka.properties, &kafka.consumer_properties],
            &[&fixed, member].concat(),
        );
        let timeout = config.delivery.transaction_timeout.as_millis().to_string();
        let transactional =
            [("transactional.id", transactional_id.as_str()), ("transaction.timeout.ms", &timeout)];
        let transactional: &[_] =
            if config.delivery.guarantee == Guarantee::ExactlyOnce { &transactional } else { &[] };
        let producer = ours(
            &PRODUCER,
            &[&kafka.properties, &kafka.producer_properties],
            &[&[("enable.idempotence", "true"), ("partitioner", "murmur2_random")], transactional]
                .concat(),
        );
        let common = ours(&[], &[&kafka.properties], &[]);
        let group_id = kafka.group_id.clone();
        let known_topic = config.first_named().unwrap_or(&config.results.topic).to_owned();
        Self {
            common,
            consumer,
            producer,
            transactional_id,
            group_id,
            coordinator: AtomicI32::new(-1),
            known_topic,
            client_id,
            member_id,
            on_error,
            clock,
            tokens: kafka.oauth.as_ref().map(|oauth| Tokens::of(oauth, clock)),
            classic: !kafka.newer_group_protocol(),
        }
    }

    pub(super) fn consumer(
        &self,
        topics: Arc<TopicNumbers>,
    ) -> Result<Held<BaseConsumer<ConsumerEvents>>, ConnectError> {
        self.with_events(&self.consumer, topics)
    }

    /// The same without a group: for the first one that is asked for, brokers that have had none make a topic.
    pub(super) fn without_group(
        &self,
        topics: Arc<TopicNumbers>,
    ) -> Result<Held<BaseConsumer<ConsumerEvents>>, ConnectError> {
        let mut config = self.consumer.clone();
        for name in ["group.id", "group.instance.id", "group.protocol"] {
            config.remove(name);
        }
        self.with_events(&config, topics)
    }

    fn with_events(
        &self,
        config: &ClientConfig,
        topics: Arc<TopicNumbers>,
    ) -> Result<Held<BaseConsumer<ConsumerEvents>>, ConnectError> {
        let tokens = self.tokens.clone();
        let context = ConsumerEvents::new(self.clock, topics, self.classic, self.reports(), tokens);
        let made = config.create_with_context(context);
        made.map(|consumer| self.held(consumer)).map_err(|error| ConnectError::client(&error))
    }

    /// A client that reads what is committed of the changelog.
    pub(super) fn reader(&self) -> Result<EndsAside<Held<BaseConsumer<Reported>>>, KafkaError> {
        let mut config = self.common.clone();
        for (name, value) in READER {
            config.set(name, value);
        }
        // A client without one cannot read; it does not join.
        config.set("group.id", &self.group_id);
        config.set("isolation.level", "read_committed");
        self.reported(&config).map(EndsAside::new)
    }

    /// A client that looks at topics and reads nothing; it sees also what is not committed.
    pub(super) fn looker(&self) -> Result<EndsAside<Held<BaseConsumer<Reported>>>, KafkaError> {
        let mut config = self.common.clone();
        config.set("isolation.level", "read_uncommitted");
        self.reported(&config).map(EndsAside::new)
    }

    /// A client that looks at a group, and commits for it, without being a member.
    pub(super) fn outside(
        &self,
        group_id: &str,
    ) -> Result<Held<BaseConsumer<Reported>>, KafkaError> {
        self.await_token()?;
        let mut config = self.common.clone();
        config.set("group.id", group_id);
        config.set("enable.auto.commit", "false");
        config.set("isolation.level", "read_committed");
        self.reported(&config)
    }

    /// A client that reads a sample of an input: it joins no group and commits nothing.
    pub(super) fn sampler(&self) -> Result<Held<BaseConsumer<Reported>>, KafkaError> {
        self.await_token()?;
        let mut config = self.common.clone();
        for (name, value) in CONSUMER {
            config.set(name, value);
        }
        // A client without one cannot read; it does not join.
        config.set("group.id", &self.group_id);
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "earliest");
        config.set("isolation.level", "read_committed");
        self.reported(&config)
    }

    /// A producer whose batches fit every topic, since a broker's limit is for a batch and a batch is never split. A
    /// message of more than `batch_bytes` goes alone; that it fits its own topic is its sender's concern.
    pub(super) fn producer(
        &self,
        batch_bytes: usize,
        message_bytes: usize,
    ) -> Result<EndsAside<Held<BaseProducer<Deliveries>>>, ConnectError> {
        let mut config = self.producer.clone();
        // librdkafka's own limits: 1,000 to 1,000,000,000 bytes.
        let message_bytes = message_bytes.clamp(1_000, 1_000_000_000);
        config.set("message.max.bytes", message_bytes.to_string());
        let wanted =
            config.get("batch.size").and_then(|size| size.parse().ok()).unwrap_or(1_000_000);
        config.set("batch.size", batch_bytes.max(1).min(wanted).to_string());
        config
            .create_with_context(Deliveries::new(self.reports()))
            .map(|producer| EndsAside::new(self.held(producer)))
            .map_err(|error| ConnectError::client(&error))
    }

    fn reports(&self) -> Reports {
        Reports::new(self.clock, Arc::clone(&self.on_error))
    }

    pub(super) fn admin(&self) -> Result<EndsAside<Admin>, ConnectError> {
        let made = self.common.create();
        made.map(|admin| EndsAside::new(self.held(admin)))
            .map_err(|error| ConnectError::client(&error))
    }

    fn reported(&self, config: &ClientConfig) -> Result<Held<BaseConsumer<Reported>>, KafkaError> {
        config.create_with_context(Reported(self.reports())).map(|consumer| self.held(consumer))
    }

    fn held<C: Native>(&self, client: C) -> Held<C> {
        Held::new(client, self.tokens.as_ref())
    }

    /// For those who do not wait for brokers, and would only see that none answers.
    fn await_token(&self) -> Result<(), KafkaError> {
        let first = self.tokens.as_ref().map_or(Ok(()), |tokens| tokens.first());
        first.map_err(|error| KafkaError::ClientCreation(error.to_string()))
    }
}

/// Asks the brokers for what is no record.
pub(super) type Admin = Held<AdminClient<DefaultClientContext>>;

/// The partitions of a topic, in their order; none of one that is not there.
pub(super) fn partitions_of(
    consumer: &BaseConsumer<Reported>,
    topic: &str,
    timeout: Duration,
) -> Result<Vec<i32>, KafkaError> {
    // All topics are asked for, since asking for one may create it.
    let metadata = consumer.fetch_metadata(None, timeout)?;
    let found = metadata.topics().iter().filter(|found| found.name() == topic);
    let mut partitions: Vec<_> = found
        .flat_map(rdkafka::metadata::MetadataTopic::partitions)
        .map(rdkafka::metadata::MetadataPartition::id)
        .collect();
    partitions.sort_unstable();
    Ok(partitions)
}

/// One end of each of these partitions, open transactions included where the client sees them; none of one for which no
/// answer came.
pub(super) fn ends_of<'a>(
    looker: &BaseConsumer<Reported>,
    partitions: impl Iterator<Item = (&'a str, i32)>,
    end: Offset,
    timeout: Duration,
) -> Result<Vec<(String, i32, i64)>, KafkaError> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions {
        list.add_partition_offset(topic, partition, end)?;
    }
    // The ends have numbers below those of all times.
    let answer = looker.offsets_for_times(list, timeout)?;
    let mut ends = Vec::new();
    for element in answer.elements() {
        element.error()?;
        if let Offset::Offset(offset) = element.offset() {
            ends.push((element.topic().to_owned(), element.partition(), offset));
        }
    }
    Ok(ends)
}

/// The input topics by their number.
#[derive(Clone, Debug)]
pub(super) struct TopicNumbers(pub(super) Inputs);

impl TopicNumbers {
    /// Those that a configuration names.
    pub(super) fn new(config: &Config) -> Self {
        Self(Inputs::new(config))
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.names()
    }

    pub(super) fn name(&self, id: PartitionId) -> String {
        self.0.get(id.topic).map(|source| source.topic.clone()).unwrap_or_default()
    }

    /// Topics of the same pattern, itself included; one that is named has no others.
    pub(super) fn siblings(&self, topic: u16) -> Vec<u16> {
        let sources = self.0.since(0);
        let table = sources.get(usize::from(topic)).map(|source| source.table);
        let of_one = |source: &Source| Some(source.table) == table && self.0.is_of_pattern(source);
        let all = (0..).zip(&sources).filter(|(number, source)| *number == topic || of_one(source));
        all.map(|(number, _)| number).collect()
    }

    /// The partition as the core calls it; `None` for a topic that is not an input.
    pub(super) fn id(&self, topic: &str, partition: i32) -> Option<PartitionId> {
        Some(PartitionId { topic: self.0.number(topic)?, partition })
    }
}

/// Consumer settings that were measured.
const CONSUMER: [(&str, &str); 3] = [
    ("topic.metadata.refresh.interval.ms", "10000"),
    // The default of 1 s starves a consumer that catches up.
    ("fetch.queue.backoff.ms", "10"),
    ("queued.max.messages.kbytes", "32768"),
];

/// Settings of the client that reads the changelog. What takes time is not the reading but waiting: an end is only seen
/// once a fetch has found nothing more, after half a second by default.
const READER: [(&str, &str); 5] = [
    ("enable.auto.commit", "false"),
    ("auto.offset.reset", "error"),
    ("fetch.queue.backoff.ms", "5"),
    // Some messages of each partition, so that they are decoded while the next come.
    ("fetch.message.max.bytes", "2097152"),
    ("fetch.wait.max.ms", "10"),
];

/// Settings of the classic group protocol.
const CLASSIC_GROUP: [(&str, &str); 2] =
    [("partition.assignment.strategy", "cooperative-sticky"), ("session.timeout.ms", "10000")];

/// Producer settings that were measured.
const PRODUCER: [(&str, &str); 3] = [
    ("linger.ms", "5"),
    ("compression.type", "lz4"),
    // A transaction's first request waits this long behind another one; the default of 100 ms is most of a commit.
    ("retry.backoff.ms", "5"),
];

/// How long a request to the brokers may take before the loop looks around again.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The client goes on by itself after these.
pub(super) fn is_of_the_connection(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut
        )
    ) && !matches!(error, KafkaError::MessageConsumptionFatal(_))
}
