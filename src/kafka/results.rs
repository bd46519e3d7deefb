//! The results topic as an input: for whoever reads what the service has written.

use std::collections::BTreeMap;
use std::sync::Arc;

use rdkafka::Offset;
use rdkafka::consumer::{CommitMode, Consumer as _};

use super::admin::{self, ConnectError};
use super::client::{Clients, TopicNumbers};
use super::source::KafkaSource;
use crate::clock::Clock;
use crate::config::{Config, OnMissing, Start};
use crate::event_time::PartitionId;
use crate::pipeline::Time;

/// Reaches the brokers, however long that takes, and the results topic, which may be created later unless it
/// `must_exist`. `Ok(None)` if the reader was asked to stop meanwhile.
///
/// # Errors
/// What waiting does not mend: wrong credentials, and a topic that must be there and is not.
pub fn read_results(
    config: &Config,
    group_id: &str,
    clock: Clock,
    time: &impl Time,
    must_exist: bool,
) -> Result<Option<KafkaSource>, ConnectError> {
    let config = as_an_input(config, group_id);
    let clients = Arc::new(Clients::new(&config, 0, clock, Arc::new(|_, _| {})));
    let topics = Arc::new(TopicNumbers::new(&config));
    let consumer = Arc::new(clients.consumer(Arc::clone(&topics))?);
    let mut wait = admin::FIRST_WAIT;
    loop {
        let Some(known) = admin::wait_for_brokers(&config.kafka, &consumer, time)? else {
            return Ok(None);
        };
        let topic = &config.results.topic;
        if known.contains(topic) {
            return Ok(Some(KafkaSource::new(&config, consumer, topics, clock, clients)));
        }
        admin::check_visible(&consumer, &config.kafka, topic, "Read")?;
        if must_exist {
            return Err(ConnectError::NoResults(topic.clone()));
        }
        tracing::warn!(
            topic,
            retry_in_ms = wait.as_millis(),
            "the results topic does not exist yet"
        );
        time.wait(wait);
        wait = (wait * 2).min(admin::LONGEST_WAIT);
    }
}

/// The same cluster, with the results as the only input, another group, and another name.
fn as_an_input(config: &Config, group_id: &str) -> Config {
    let mut config = config.clone();
    if config.sources.is_empty() {
        config.sources.extend(config.patterns.first().map(|pattern| pattern.source.clone()));
    }
    config.patterns.clear();
    config.sources.truncate(1);
    for source in &mut config.sources {
        source.topic.clone_from(&config.results.topic);
        source.start = Start::Earliest;
        source.on_missing = OnMissing::Continue;
    }
    group_id.clone_into(&mut config.kafka.group_id);
    config.kafka.instance_id = format!("export-{}", config.kafka.instance_id);
    config.kafka.static_membership = false;
    config
}

impl KafkaSource {
    /// Tells the group how far its reader is, for tools that show lag. Nothing depends on it, so nobody waits.
    pub fn note_offsets(&self, next: &BTreeMap<PartitionId, i64>) {
        let offsets = next.iter().map(|(id, offset)| (*id, Offset::Offset(*offset)));
        let noted = self.list(offsets).map_err(|error| error.to_string()).and_then(|list| {
            self.consumer.commit(&list, CommitMode::Async).map_err(|error| error.to_string())
        });
        if let Err(error) = noted {
            tracing::debug!(error, "the group was not told how far its reader is");
        }
    }
}
