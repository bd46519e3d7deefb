//! The Kafka edge: the only folder that imports rdkafka.
//!
//! [`connect`] finds the brokers, sees to the topics, and hands out the ends of the pipeline: a [`KafkaSource`] and a
//! [`KafkaSink`]. They share one consumer, since a transaction needs the group's metadata of the moment. A
//! [`KafkaChangelog`] reads state back.

mod admin;
mod anew;
mod changelog;
mod changelog_topic;
mod client;
pub mod embedded;
mod ending;
mod following;
mod group;
mod headers;
mod holding_back;
pub mod inspect;
pub mod load;
mod members;
mod oauth;
mod rebalance;
mod record;
mod refusal;
pub mod repair;
mod report;
pub mod reset;
mod results;
mod right;
mod rights;
pub mod sample;
mod sink;
mod source;
mod stalls;
mod topic_names;
mod topic_watch;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use admin::ConnectError;
pub use changelog::KafkaChangelog;
use client::{Clients, TopicNumbers};
pub use ending::wait_for_clients;
pub use oauth::TokenError;
use rdkafka::error::KafkaError;
pub use record::KafkaRecord;
pub use results::read_results;
pub use right::MissingRight;
pub use sink::KafkaSink;
pub use source::KafkaSource;

use crate::clock::Clock;
use crate::config::{Config, Inputs};
use crate::pipeline::{Edges, Time};

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

/// What a pipeline works with on Kafka.
pub type KafkaEdges = Edges<KafkaSource, KafkaSink, KafkaChangelog>;

/// Reaches the brokers, however long that takes, and sees to the topics.
///
/// # Errors
/// What waiting does not mend: wrong credentials, a topic that is missing, rights, another instance under this id.
/// `Ok(None)` if the service was asked to stop before the brokers answered.
pub fn connect(
    config: &Config,
    inputs: &Inputs,
    cluster: Cluster,
    clock: Clock,
    subtask: u16,
    time: &impl Time,
    on_error: OnError,
) -> Result<Option<KafkaEdges>, ConnectError> {
    let clients = Arc::new(Clients::new(config, subtask, clock, on_error));
    let topics = Arc::new(TopicNumbers(inputs.clone()));
    let consumer = Arc::new(clients.consumer(Arc::clone(&topics))?);
    let Some(()) = admin::wait_for_topics(config, inputs, &clients, &consumer, time)? else {
        return Ok(None);
    };
    let changelogs = topic_names::ChangelogTopics::new(config, inputs);
    // What another subtask sees from here on is made when it is needed.
    let prepared = changelogs.written().into_keys().collect();
    let limits = match cluster {
        Cluster::Brokers => {
            let Some(()) = changelog_topic::prepare(config, inputs, &clients, &consumer, time)?
            else {
                return Ok(None);
            };
            let topics = topic_names::written_topics(config, inputs);
            loop {
                if let Some(limits) = admin::limits(&clients, &topics)? {
                    break limits;
                }
                if time.stopping() {
                    return Ok(None);
                }
                tracing::warn!("no answer about the topics' limits; asking again");
                time.wait(admin::FIRST_WAIT);
            }
        }
        Cluster::Embedded => BTreeMap::new(),
    };
    let changelog = KafkaChangelog::new(Arc::clone(&clients), changelogs, prepared);
    let source = KafkaSource::new(
        config,
        Arc::clone(&consumer),
        Arc::clone(&topics),
        clock,
        Arc::clone(&clients),
    );
    let trims = cluster == Cluster::Brokers;
    let sink = KafkaSink::new(config, clients, (consumer, topics), limits, clock, time, trims)?;
    Ok(sink.map(|sink| Edges { source, sink, changelog }))
}
