//! A broker inside the process, for the demo and for quick tests: librdkafka's mock cluster.
//!
//! It speaks the protocol and keeps records in memory, at most 5 MiB per partition. It is no proof of anything: records
//! of open and of aborted transactions are visible to everybody, a second producer fences nobody, offsets sent in a
//! transaction are not kept, and nothing outlives the process. It has no admin calls either: its topics are created
//! here, and a client that tries to create or to describe them waits until its request times out.

use std::fmt;

use rdkafka::error::KafkaError;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

/// A running mock cluster of one broker; dropping it ends it.
///
/// It stays on the thread that started it, while clients may be anywhere.
pub struct EmbeddedBroker {
    cluster: MockCluster<'static, DefaultProducerContext>,
    servers: String,
}

/// Why there is no embedded broker, or no such topic on it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The broker did not start.
    #[error("starting the embedded broker")]
    Start(#[source] KafkaError),
    /// A topic was not created.
    #[error("creating topic `{topic}` on the embedded broker")]
    Topic {
        /// Its name.
        topic: String,
        /// What the broker said.
        source: KafkaError,
    },
    /// It could not be made to come or to go.
    #[error("making the embedded broker reachable or not")]
    Reachable(#[source] KafkaError),
}

impl EmbeddedBroker {
    /// The properties that its consumers should have: with the newer group protocol they get their partitions at once;
    /// with the classic one the mock lets each first member wait for 3 s.
    ///
    /// Properties of the classic protocol (`partition.assignment.strategy`, `session.timeout.ms`,
    /// `heartbeat.interval.ms`) must then not be set.
    pub const CONSUMER_PROPERTIES: [(&'static str, &'static str); 1] =
        [("group.protocol", "consumer")];

    /// Starts one on a free port of the loopback interface, with these topics and numbers of partitions.
    pub fn start(topics: &[(&str, i32)]) -> Result<Self, EmbeddedError> {
        let cluster = MockCluster::new(1).map_err(EmbeddedError::Start)?;
        let broker = Self { servers: cluster.bootstrap_servers(), cluster };
        for (topic, partitions) in topics {
            broker.create_topic(topic, *partitions)?;
        }
        Ok(broker)
    }

    /// Creates a topic.
    pub fn create_topic(&self, topic: &str, partitions: i32) -> Result<(), EmbeddedError> {
        self.cluster
            .create_topic(topic, partitions, 1)
            .map_err(|source| EmbeddedError::Topic { topic: topic.to_owned(), source })
    }

    /// Where clients find it: `host:port`.
    pub fn bootstrap_servers(&self) -> &str {
        &self.servers
    }

    /// Breaks its connections and takes no new ones, or takes them again.
    pub fn set_reachable(&self, reachable: bool) -> Result<(), EmbeddedError> {
        const ALL_BROKERS: i32 = -1;
        let done = if reachable {
            self.cluster.broker_up(ALL_BROKERS)
        } else {
            self.cluster.broker_down(ALL_BROKERS)
        };
        done.map_err(EmbeddedError::Reachable)
    }
}

impl fmt::Debug for EmbeddedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBroker").field("servers", &self.servers).finish_non_exhaustive()
    }
}
