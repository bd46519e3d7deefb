//! The Kafka edge: the only folder that imports rdkafka.
//!
//! [`connect`] finds the brokers, sees to the topics, and hands out both ends of the pipeline: a [`KafkaSource`] and a
//! [`KafkaSink`]. They share one consumer, since a transaction needs the group's metadata of the moment.

mod admin;
mod client;
pub mod embedded;
mod headers;
pub mod load;
mod rebalance;
mod record;
mod report;
mod sink;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use admin::ConnectError;
use client::{Clients, TopicNumbers};
use rdkafka::error::KafkaError;
pub use record::KafkaRecord;
pub use sink::KafkaSink;
pub use source::KafkaSource;

use crate::clock::Clock;
use crate::config::Config;
use crate::pipeline::Time;

/// Told the code of each error that the client reports, and whether it ends the client.
pub type OnError = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// What kind of cluster it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// Kafka.
    Brokers,
    /// The broker of the demo, which answers no admin calls and has its topics from the start.
    Embedded,
}

/// The version of the Kafka client library.
pub fn librdkafka_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}

/// What the client library says against the properties that people set, each with its key; nothing is connected to.
pub fn check_properties(config: &Config) -> Vec<String> {
    let kafka = &config.kafka;
    let tables = [
        ("kafka.properties", &kafka.properties),
        ("kafka.consumer.properties", &kafka.consumer_properties),
        ("kafka.producer.properties", &kafka.producer_properties),
    ];
    let check = |(table, name, value): (&str, &str, &str)| {
        let mut property = rdkafka::ClientConfig::new();
        match property.set(name, value).create_native_config() {
            Ok(_) => None,
            Err(KafkaError::ClientConfig(_, problem, ..)) => {
                Some(format!("{table}.\"{name}\": {problem}"))
            }
            Err(_) => Some(format!("{table}.\"{name}\": the value cannot be used")),
        }
    };
    let properties = tables.iter().flat_map(|(table, properties)| {
        properties.iter().map(|(name, value)| (*table, name, value))
    });
    properties.filter_map(check).collect()
}

/// Reaches the brokers, however long that takes, sees to the topics, joins the group.
///
/// # Errors
/// What waiting does not mend: wrong credentials, a topic that is missing, rights, another instance under this id.
/// `Ok(None)` if the service was asked to stop before the brokers answered.
pub fn connect(
    config: &Config,
    cluster: Cluster,
    clock: Clock,
    subtask: u16,
    time: &impl Time,
    on_error: OnError,
) -> Result<Option<(KafkaSource, KafkaSink)>, ConnectError> {
    let clients = Clients::new(config, subtask, clock, on_error);
    let topics = Arc::new(TopicNumbers::new(config));
    let consumer = Arc::new(clients.consumer(Arc::clone(&topics))?);
    let Some(()) = admin::wait_for_topics(config, &clients, &consumer, time)? else {
        return Ok(None);
    };
    let limits = match cluster {
        Cluster::Brokers => admin::limits(&clients, &admin::output_topics(config))?,
        Cluster::Embedded => BTreeMap::new(),
    };
    let source = KafkaSource::new(config, Arc::clone(&consumer), topics, clock);
    let Some(sink) = KafkaSink::new(config, clients, consumer, limits, clock, time)? else {
        return Ok(None);
    };
    source.subscribe()?;
    Ok(Some((source, sink)))
}
