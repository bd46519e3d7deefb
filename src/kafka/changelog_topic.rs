//! The changelog's topics: made with the settings that keep state, checked where they are there already.

use rdkafka::admin::{NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::Metadata;
use rdkafka::types::RDKafkaErrorCode;

use super::admin::{ConnectError, FIRST_WAIT, answered, block_on, not_created, options};
use super::client::{Clients, REQUEST_TIMEOUT};
use super::rebalance::ConsumerEvents;
use super::report::Reported;
use super::right::MissingRight;
use super::topic_names::ChangelogTopics;
use crate::config::{Config, Inputs};
use crate::pipeline::{SourceError, Time};

/// Makes what is missing, and refuses settings under which state would be lost. `Ok(None)`: asked to stop meanwhile.
pub(super) fn prepare(
    config: &Config,
    inputs: &Inputs,
    clients: &Clients,
    consumer: &BaseConsumer<ConsumerEvents>,
    time: &impl Time,
) -> Result<Option<()>, ConnectError> {
    let topics = ChangelogTopics::new(config, inputs);
    for (number, name) in topics.written() {
        // Where no input is known yet, those of an output tell how many replicas there are to be.
        let input = topics.input(number).unwrap_or_else(|| config.results.topic.clone());
        let mut refused = 0;
        loop {
            if time.stopping() {
                return Ok(None);
            }
            let metadata = consumer.fetch_metadata(None, REQUEST_TIMEOUT).ok();
            let Some(metadata) = metadata else {
                time.wait(FIRST_WAIT);
                continue;
            };
            let one = config.key.needs_all_partitions();
            if see_to(clients, &metadata, &name, (&input, one), &mut refused)? {
                break;
            }
            time.wait(FIRST_WAIT);
        }
    }
    Ok(Some(()))
}

/// Whether a changelog is there; makes it where it is not, after an input topic: with as many partitions, or `one`.
pub(super) fn see_to(
    clients: &Clients,
    metadata: &Metadata,
    name: &str,
    (input, one): (&str, bool),
    refused: &mut u32,
) -> Result<bool, ConnectError> {
    let find = |name: &str| metadata.topics().iter().find(|topic| topic.name() == name);
    if find(name).is_some() {
        check(clients, name)?;
        return Ok(true);
    }
    // It is deleted before anything was read of it.
    let Some(input) = find(input) else { return Ok(true) };
    let partitions = if one { 1 } else { input.partitions().len() };
    let replicas = input.partitions().first().map_or(1, |partition| partition.replicas().len());
    create(clients, name, input.name(), partitions, replicas, refused)?;
    Ok(false)
}

fn create(
    clients: &Clients,
    name: &str,
    input: &str,
    partitions: usize,
    replicas: usize,
    refused: &mut u32,
) -> Result<(), ConnectError> {
    let in_sync = settings(clients, input)?
        .into_iter()
        .find(|(name, _)| name == "min.insync.replicas")
        .map(|(_, value)| value);
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let topic = new_topic(name, number(partitions), number(replicas), in_sync.as_deref());
    let admin = clients.admin()?;
    let answer = block_on(admin.create_topics(&[topic], &options()))?;
    // Whoever asked looks for the topic again, in any case.
    let Some(results) = answered(answer)? else { return Ok(()) };
    for result in results {
        match result {
            Ok(topic) => tracing::info!(topic, partitions, replicas, "changelog topic created"),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => not_created(topic, code, refused)?,
        }
    }
    Ok(())
}

/// A changelog as the service creates it; -1 replicas are as many as the brokers are set to.
pub(super) fn new_topic<'a>(
    name: &'a str,
    partitions: i32,
    replicas: i32,
    in_sync: Option<&'a str>,
) -> NewTopic<'a> {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
    for (setting, value) in SETTINGS {
        topic = topic.set(setting, value);
    }
    match in_sync {
        Some(in_sync) => topic.set("min.insync.replicas", in_sync),
        None => topic,
    }
}

fn settings(clients: &Clients, topic: &str) -> Result<Vec<(String, String)>, ConnectError> {
    let admin = clients.admin()?;
    let asked = [ResourceSpecifier::Topic(topic)];
    let answers = block_on(admin.describe_configs(&asked, &options()))?.unwrap_or_default();
    let resources = answers.into_iter().filter_map(Result::ok);
    Ok(resources
        .flat_map(|resource| resource.entries)
        .filter_map(|entry| Some((entry.name, entry.value?)))
        .collect())
}

/// Refuses what would lose state.
fn check(clients: &Clients, name: &str) -> Result<(), ConnectError> {
    let settings = settings(clients, name)?;
    if settings.is_empty() {
        tracing::warn!(topic = name, "{UNREADABLE}");
    }
    let found = |setting: &str| {
        settings.iter().find(|(held, _)| held == setting).map(|(_, value)| value.as_str())
    };
    if let Some(found) = grows(found) {
        tracing::warn!(topic = name, found, "{GROWS}");
    }
    refusal(name, found).map_or(Ok(()), Err)
}

/// Why a changelog with these settings cannot be worked with: deletion by age or size would take away state that is still
/// needed.
pub(super) fn refusal<'a>(
    name: &str,
    setting: impl Fn(&str) -> Option<&'a str>,
) -> Option<ConnectError> {
    let wrong = |name| setting(name).filter(|found| *found != "-1").map(|found| (name, found));
    let (setting, found) = ["retention.ms", "retention.bytes"].into_iter().find_map(wrong)?;
    Some(ConnectError::ChangelogSetting {
        topic: name.to_owned(),
        setting,
        found: found.to_owned(),
        remedy: "state that is needed would be deleted; set it to -1",
    })
}

/// The cleanup policy, where it does not keep a changelog short: nothing is deleted without "delete", and where a right is
/// missing only compaction does it.
pub(super) fn grows<'a>(setting: impl Fn(&str) -> Option<&'a str>) -> Option<&'a str> {
    setting("cleanup.policy")
        .filter(|found| !found.contains("compact") || !found.contains("delete"))
}

/// What is said where a changelog [`grows`].
pub(super) const GROWS: &str =
    "the changelog is best kept with cleanup.policy=compact,delete; like this it grows";

/// What is said where the settings of a changelog are not told.
pub(super) const UNREADABLE: &str = "the changelog's settings cannot be read (operation DescribeConfigs on the topic), so they are not checked";

/// Gives the topic at least this many partitions. How many it has; 0: it is not there.
pub(super) fn grow(
    clients: &Clients,
    looker: &BaseConsumer<Reported>,
    name: &str,
    wanted: i32,
) -> Result<i32, SourceError> {
    let retry = |cause: String| SourceError::Retry(cause);
    // All topics are asked for, since asking for one may create it.
    let metadata =
        looker.fetch_metadata(None, REQUEST_TIMEOUT).map_err(|error| retry(error.to_string()))?;
    let found = metadata.topics().iter().find(|topic| topic.name() == name);
    let count = found.map_or(0, |topic| topic.partitions().len());
    let known = i32::try_from(count).unwrap_or(i32::MAX);
    if known >= wanted || known == 0 {
        return Ok(known);
    }
    let admin = clients.admin().map_err(|error| retry(error.to_string()))?;
    let more = [NewPartitions::new(name, usize::try_from(wanted).unwrap_or_default())];
    let results = block_on(admin.create_partitions(&more, &options()))
        .map_err(|error| retry(error.to_string()))?
        .map_err(|error| retry(error.to_string()))?;
    for result in results {
        match result {
            Ok(_) => {
                tracing::info!(topic = name, partitions = wanted, "changelog partitions added");
            }
            Err((_, RDKafkaErrorCode::TopicAuthorizationFailed)) => {
                let right = MissingRight::topic("Alter", name);
                return Err(SourceError::Fatal(format!("partitions are to be added: {right}")));
            }
            // Another instance may have been faster.
            Err((_, code)) => return Err(retry(code.to_string())),
        }
    }
    Err(retry("partitions were added to the changelog".to_owned()))
}

const SETTINGS: [(&str, &str); 7] = [
    ("cleanup.policy", "compact,delete"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("segment.bytes", "16777216"),
    ("min.cleanable.dirty.ratio", "0.1"),
    ("delete.retention.ms", "3600000"),
    ("message.timestamp.type", "CreateTime"),
];
