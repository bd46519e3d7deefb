//! Asks the brokers, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::metadata::{Metadata, MetadataPartition, MetadataTopic};
use rdkafka::types::RDKafkaErrorCode;

use super::cluster::sees_everything;
use super::facts::{Broker, Creation, Facts, Found, GroupUnseen, Settings, State, Topic};
use super::{Terms, probe, standing};
use crate::clock::Clock;
use crate::config::Config;
use crate::event_time::{MonotonicTime, Now, PartitionId};
use crate::kafka::admin::{self, Asked, ConnectError, Reaching, block_on};
use crate::kafka::changelog_topic;
use crate::kafka::client::{Clients, TopicNumbers};
use crate::kafka::rebalance::ConsumerEvents;
use crate::kafka::rights::{self, Operation};
use crate::kafka::source::KafkaSource;
use crate::kafka::topic_names::{changelog_topics, output_topics};
use crate::pipeline::Time;

/// Why nothing could be seen.
#[derive(Clone, Debug)]
pub(super) enum Unreached {
    /// What waiting does not mend, in the words of the service.
    Refused {
        cause: String,
        /// The credentials are what was refused.
        credentials: bool,
    },
    /// Nobody answered.
    NoAnswer { cause: String, waited: Duration },
}

impl From<ConnectError> for Unreached {
    fn from(error: ConnectError) -> Self {
        let credentials = matches!(
            error,
            ConnectError::Credentials { .. }
                | ConnectError::Token(_)
                | ConnectError::ClientCertificate { .. }
        );
        Self::Refused { cause: error.to_string(), credentials }
    }
}

/// Looks at everything, each step for as long as the terms say.
pub(super) fn gather(
    config: &Config,
    terms: Terms,
    clock: Clock,
    clients: &Arc<Clients>,
) -> Result<(Facts, Config), Unreached> {
    let timeout = terms.timeout;
    let deadline = || Deadline::new(clock, timeout);
    let names = Arc::new(TopicNumbers::new(config));
    let consumer = clients.without_group(Arc::clone(&names))?;
    let metadata = reach(config, &consumer, &deadline(), timeout)?;
    let there = metadata.topics().iter().map(MetadataTopic::name);
    names.0.admit(there).map_err(ConnectError::from)?;
    let config = &config.with_topics_of(&names.0);
    let admin = clients.admin()?;
    let mut facts = Facts::new();
    facts.brokers = brokers(&admin, &metadata, timeout)?;
    facts.cluster_rights = rights::of_cluster(consumer.client(), timeout).ok().flatten();
    facts.topics = topics(config, &admin, &consumer, &metadata, timeout)?;
    facts.creations = creations(config, &admin, &facts, timeout)?;
    let log = metadata.topics().iter().find(|topic| topic.name() == TRANSACTION_LOG);
    facts.transaction_log = log.map(layout);
    let has_groups = metadata.topics().iter().any(|topic| topic.name() == GROUP_LOG);
    facts.group = standing::group(&consumer, clients, &facts, has_groups, &deadline());
    if let Some(partitions) = &inputs(config, &facts) {
        // Whoever asks for a coordinator where there has been none makes the brokers make a topic for it.
        let is_managed = match &facts.group {
            Ok(group) => has_groups || group.rights.is_some() || !sees_everything(&facts),
            Err(unseen) => matches!(unseen, GroupUnseen::Forbidden),
        };
        let source = if is_managed {
            let consumer = Arc::new(clients.consumer(Arc::clone(&names))?);
            let (names, clients) = (Arc::clone(&names), Arc::clone(clients));
            Some(KafkaSource::new(config, consumer, names, clock, clients))
        } else {
            None
        };
        let source = source.as_ref();
        facts.logs = standing::logs(clients, &names, source, partitions, &deadline());
        facts.state = standing::state(config, &facts, source, partitions, &deadline);
    } else {
        let unseen = "the input is not there, or may not be read";
        facts.logs = Err(unseen.to_owned());
        facts.state = State::Unseen(unseen.to_owned());
    }
    if terms.write_probe {
        facts.probe = Some(probe::probe(config, &admin, clock, timeout));
    }
    Ok((facts, config.clone()))
}

/// Waits until a broker has answered, and returns what it knows.
fn reach(
    config: &Config,
    consumer: &BaseConsumer<ConsumerEvents>,
    deadline: &Deadline,
    timeout: Duration,
) -> Result<Metadata, Unreached> {
    let (mut reaching, mut last) = (Reaching::default(), String::new());
    loop {
        let cause = match reaching.ask(&config.kafka, consumer)? {
            Asked::Names(_) => match consumer.fetch_metadata(None, timeout) {
                Ok(metadata) => return Ok(metadata),
                Err(error) => error.to_string(),
            },
            Asked::Nothing => "no answer".to_owned(),
            Asked::NoToken(cause) | Asked::NoAnswer(cause) => cause,
        };
        // The client tells once what goes wrong, and after that only that it still does.
        let follows = ["brokers are down", "Metadata fetch error", "no answer"];
        if last.is_empty() || !follows.iter().any(|part| cause.contains(part)) {
            last = cause;
        }
        if deadline.stopping() {
            return Err(Unreached::NoAnswer { cause: last, waited: timeout });
        }
        deadline.wait(admin::FIRST_WAIT);
    }
}

type Admin = AdminClient<DefaultClientContext>;

/// Each broker is asked itself, at the address that it gives: so it is known that it can be reached.
fn brokers(
    admin: &Admin,
    metadata: &Metadata,
    timeout: Duration,
) -> Result<BTreeMap<i32, Broker>, ConnectError> {
    let specifiers: Vec<_> =
        metadata.brokers().iter().map(|broker| [ResourceSpecifier::Broker(broker.id())]).collect();
    let options = options(timeout);
    // All of them are asked before the first answer is waited for.
    let answers: Vec<_> =
        specifiers.iter().map(|specifier| admin.describe_configs(specifier, &options)).collect();
    let mut brokers = BTreeMap::new();
    for (broker, answer) in metadata.brokers().iter().zip(answers) {
        let settings = match block_on(answer)? {
            Ok(resources) => Ok(resources.into_iter().find_map(settings)),
            Err(error) => Err(error.to_string()),
        };
        let address = format!("{}:{}", broker.host(), broker.port());
        brokers.insert(broker.id(), Broker { address, settings });
    }
    Ok(brokers)
}

/// The client does not tell that settings were refused: there are none.
fn settings(resource: rdkafka::admin::ConfigResourceResult) -> Option<Settings> {
    let entries = resource.ok()?.entries;
    let settings = entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?)));
    Some(settings.collect()).filter(|settings: &Settings| !settings.is_empty())
}

fn topics(
    config: &Config,
    admin: &Admin,
    consumer: &BaseConsumer<ConsumerEvents>,
    metadata: &Metadata,
    timeout: Duration,
) -> Result<BTreeMap<String, Found>, ConnectError> {
    let inputs = config.sources.iter().map(|source| source.topic.clone());
    let outputs = output_topics(config).into_values();
    let names: BTreeSet<String> =
        inputs.chain(outputs).chain(changelog_topics(config).into_values()).collect();
    // Brokers before 2.3 do not tell.
    let rights = rights::of_topics(consumer.client(), &names, timeout).ok();
    let listed = |name: &str| metadata.topics().iter().find(|topic| topic.name() == name);
    let mut found = BTreeMap::new();
    for name in names {
        let told = rights.as_ref().and_then(|rights| rights.get(&name)).cloned();
        let topic = match (told, listed(&name)) {
            (Some(Err(RDKafkaErrorCode::TopicAuthorizationFailed)), _) => Found::Hidden,
            (
                Some(Err(
                    RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic,
                )),
                _,
            )
            | (_, None) => Found::Missing,
            (Some(Err(code)), _) => Found::Unknown(code.to_string()),
            (Some(Ok(rights)), Some(topic)) => Found::There(Topic { rights, ..layout(topic) }),
            (None, Some(topic)) => Found::There(layout(topic)),
        };
        found.insert(name, topic);
    }
    let there = |found: &Found| matches!(found, Found::There(_));
    let there: Vec<_> =
        found.iter().filter(|(_, found)| there(found)).map(|(name, _)| name.clone()).collect();
    let asked: Vec<_> = there.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
    if !asked.is_empty() {
        let answer = block_on(admin.describe_configs(&asked, &options(timeout)))?;
        for (name, resource) in there.iter().zip(answer.unwrap_or_default()) {
            if let Some(Found::There(topic)) = found.get_mut(name) {
                topic.settings = settings(resource);
            }
        }
    }
    Ok(found)
}

fn layout(topic: &MetadataTopic) -> Topic {
    let partitions = topic.partitions();
    Topic {
        partitions: i32::try_from(partitions.len()).unwrap_or(i32::MAX),
        replicas: partitions.iter().map(|one| one.replicas().len()).min().unwrap_or(0),
        in_sync: partitions.iter().map(|one| one.isr().len()).min().unwrap_or(0),
        leaderless: partitions
            .iter()
            .filter(|one| one.leader() < 0)
            .map(MetadataPartition::id)
            .collect(),
        rights: None,
        settings: None,
    }
}

/// Lets the brokers say what they would say to the creation of what is missing.
fn creations(
    config: &Config,
    admin: &Admin,
    facts: &Facts,
    timeout: Duration,
) -> Result<BTreeMap<String, Result<Creation, String>>, ConnectError> {
    let mut creations = BTreeMap::new();
    let missing = |name: &str| matches!(facts.topics.get(name), Some(Found::Missing));
    let inputs = config.sources.iter().map(|source| source.topic.clone());
    for name in inputs.chain(output_topics(config).into_values()).filter(|name| missing(name)) {
        if config.topics.create {
            let creation = Creation {
                partitions: config.topics.partitions,
                replicas: config.topics.replication_factor,
                settings: String::new(),
            };
            let said = would_be_created(admin, &admin::new_topic(config, &name), timeout)?;
            creations.insert(name.clone(), said.map(|()| creation));
        }
    }
    for (number, name) in changelog_topics(config).into_iter().filter(|(_, name)| missing(name)) {
        let input = config.sources.get(usize::from(number)).or(config.sources.first());
        let input = input.and_then(|source| facts.there(&source.topic));
        let of_input = input.map_or(config.topics.partitions, |input| input.partitions);
        let partitions = if config.key.needs_all_partitions() { 1 } else { of_input };
        let replicas = input
            .map_or(config.topics.replication_factor, |input| i32::try_from(input.replicas).ok());
        let in_sync = input.and_then(|input| input.text("min.insync.replicas"));
        let topic = changelog_topic::new_topic(&name, partitions, replicas.unwrap_or(-1), in_sync);
        let settings = "cleanup.policy=compact,delete, no retention by time or size".to_owned();
        let said = would_be_created(admin, &topic, timeout)?;
        creations.insert(name.clone(), said.map(|()| Creation { partitions, replicas, settings }));
    }
    Ok(creations)
}

/// What the brokers say to the creation of a topic, which they do not create.
fn would_be_created(
    admin: &Admin,
    topic: &NewTopic<'_>,
    timeout: Duration,
) -> Result<Result<(), String>, ConnectError> {
    let options = options(timeout).validate_only(true);
    let results = match block_on(admin.create_topics([topic], &options))? {
        Ok(results) => results,
        Err(error) => return Ok(Err(error.to_string())),
    };
    Ok(match results.into_iter().find_map(Result::err) {
        None | Some((_, RDKafkaErrorCode::TopicAlreadyExists)) => Ok(()),
        Some((_, code)) => Err(code.to_string()),
    })
}

/// All partitions of the inputs, if all of them are there and may be read.
fn inputs(config: &Config, facts: &Facts) -> Option<BTreeSet<PartitionId>> {
    let mut partitions = BTreeSet::new();
    for (number, source) in (0..).zip(&config.sources) {
        let topic = facts.there(&source.topic)?;
        if topic.rights.as_ref().is_some_and(|rights| !rights.contains(&Operation::Read)) {
            return None;
        }
        partitions.extend(
            (0..topic.partitions).map(|partition| PartitionId { topic: number, partition }),
        );
    }
    Some(partitions)
}

pub(super) fn options(timeout: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout))
}

/// For as long as a step may take.
pub(super) struct Deadline {
    clock: Clock,
    at: MonotonicTime,
}

impl Deadline {
    pub(super) fn new(clock: Clock, timeout: Duration) -> Self {
        Self { clock, at: MonotonicTime(clock.monotonic().0 + timeout) }
    }

    pub(super) fn left(&self) -> Duration {
        self.at.since(self.clock.monotonic()).max(LEAST)
    }
}

impl Time for Deadline {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn wait(&self, duration: Duration) {
        std::thread::park_timeout(duration.min(self.left()));
    }

    fn stopping(&self) -> bool {
        self.clock.monotonic() >= self.at
    }
}

/// So that what was almost in time is not refused without a look.
const LEAST: Duration = Duration::from_millis(100);

/// Where the brokers keep track of groups.
const GROUP_LOG: &str = "__consumer_offsets";

/// Where the brokers keep track of transactions.
const TRANSACTION_LOG: &str = "__transaction_state";
