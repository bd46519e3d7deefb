//! The topics: which are missing, which to create, what they take.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::client::{Clients, REQUEST_TIMEOUT};
use super::oauth::TokenError;
use super::rebalance::ConsumerEvents;
use super::refusal::Refusals;
use super::right::MissingRight;
use super::topic_names::output_topics;
use crate::config::{Config, Inputs, Kafka, TwoPatterns};
use crate::pipeline::{OutputTopic, Time, TopicLimits};

/// Why the service cannot work with this cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The client's own settings.
    #[error("the Kafka client cannot be made: {0}; see [kafka.properties] in the configuration")]
    Client(String),
    /// Wrong credentials.
    #[error("the brokers at {brokers} refuse the credentials: {cause}; {remedy}")]
    Credentials {
        /// Where.
        brokers: String,
        /// What they said.
        cause: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// No token to show to the brokers.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A broker's certificate.
    #[error("the certificate of the broker at {broker} is not accepted: {cause}; {remedy}")]
    Certificate {
        /// Where.
        broker: String,
        /// What is wrong with it.
        cause: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// The certificate of this client, or that it has none.
    #[error(
        "the broker at {broker} does not accept this client's certificate: {cause}; in [kafka.properties], \
         \"ssl.certificate.location\" and \"ssl.key.location\" must be of one by an authority that the broker trusts, and \
         that has not expired"
    )]
    ClientCertificate {
        /// Where.
        broker: String,
        /// What it said.
        cause: String,
    },
    /// Encrypted here and not there, or the other way round.
    #[error(
        "the listener at {broker} is of another kind than \"security.protocol\" = \"{protocol}\" in [kafka.properties] \
         says: {cause}; {remedy}"
    )]
    Listener {
        /// Where.
        broker: String,
        /// What is configured.
        protocol: String,
        /// What the client said.
        cause: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// A right is missing.
    #[error("{0}")]
    Right(MissingRight),
    /// Topics that the configuration names and the cluster lacks.
    #[error(
        "missing topics: `{}`; create them, or set `topics.create = true` to have them created", .0.join("`, `")
    )]
    MissingTopics(Vec<String>),
    /// A topic that is to be read, and that only a running service makes.
    #[error("topic `{0}`, which has the results, does not exist; the service writes it")]
    NoResults(String),
    /// A topic could not be created.
    #[error("topic `{topic}` could not be created: {cause}")]
    NotCreated {
        /// Which one.
        topic: String,
        /// Why.
        cause: String,
    },
    /// Topics that are to have more replicas than there are brokers, and not for a moment only.
    #[error(
        "topic `{topic}` could not be created: for {waited:?} there have been fewer brokers than replicas ({cause})"
    )]
    TooFewBrokers {
        /// Which one.
        topic: String,
        /// What the brokers said.
        cause: String,
        /// For how long it was tried.
        waited: Duration,
    },
    /// A topic that keeps the state, with settings under which state would be lost.
    #[error(
        "topic `{topic}` keeps the window state and must not have {setting} = {found}: {remedy}"
    )]
    ChangelogSetting {
        /// Which one.
        topic: String,
        /// The setting.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What would be right.
        remedy: &'static str,
    },
    /// Patterns that overlap.
    #[error(transparent)]
    TwoPatterns(#[from] TwoPatterns),
    /// The producer.
    #[error("the producer cannot begin: {0}")]
    Producer(String),
}

impl ConnectError {
    pub(super) fn client(error: &KafkaError) -> Self {
        Self::Client(error.to_string())
    }
}

/// Waits until the brokers answer and every topic is there; creates what is missing if the configuration says so.
/// `Ok(None)` if the service was asked to stop meanwhile.
pub(super) fn wait_for_topics(
    config: &Config,
    patterns: &Inputs,
    clients: &Clients,
    consumer: &BaseConsumer<ConsumerEvents>,
    time: &impl Time,
) -> Result<Option<()>, ConnectError> {
    let (mut created, mut refused) = (false, 0);
    while let Some(known) = wait_for_brokers(&config.kafka, consumer, time)? {
        let inputs = config.sources.iter().map(|source| source.topic.clone());
        let wanted = inputs.chain(output_topics(config).into_values());
        let missing: Vec<_> = wanted.filter(|topic| !known.contains(topic)).collect();
        if missing.is_empty() {
            patterns.admit(known.iter().map(String::as_str))?;
            return Ok(Some(()));
        }
        for topic in &missing {
            let is_read = config.sources.iter().any(|source| source.topic == *topic);
            let operation = if is_read { "Read" } else { "Write" };
            check_visible(consumer, &config.kafka, topic, operation)?;
        }
        if !config.topics.create {
            return Err(ConnectError::MissingTopics(missing));
        }
        if !created {
            created = create(config, clients, &missing, &mut refused)?;
        }
        time.wait(FIRST_WAIT);
    }
    Ok(None)
}

/// Waits until the brokers answer; the names of all topics. `Ok(None)` if somebody asked to stop meanwhile.
pub(super) fn wait_for_brokers(
    kafka: &Kafka,
    consumer: &BaseConsumer<ConsumerEvents>,
    time: &impl Time,
) -> Result<Option<Vec<String>>, ConnectError> {
    let brokers = &kafka.bootstrap_servers;
    let (mut wait, mut reaching) = (FIRST_WAIT, Reaching::default());
    while !time.stopping() {
        match reaching.ask(kafka, consumer)? {
            Asked::Names(names) => return Ok(Some(names)),
            Asked::Nothing => continue,
            // Whoever keeps the tokens tells of it.
            Asked::NoToken(_) => {}
            Asked::NoAnswer(reason) => {
                tracing::warn!(
                    brokers,
                    reason,
                    retry_in_ms = wait.as_millis(),
                    "no broker answers"
                );
            }
        }
        time.wait(wait);
        wait = (wait * 2).min(LONGEST_WAIT);
    }
    Ok(None)
}

/// The tries of one client to reach the brokers.
#[derive(Debug, Default)]
pub(super) struct Reaching {
    refusals: Refusals,
    silences: u32,
}

/// What a try came to.
#[derive(Debug)]
pub(super) enum Asked {
    /// The names of all topics.
    Names(Vec<String>),
    /// Nothing was heard; a connection may take its time to be made.
    Nothing,
    /// There is no token to show, and why.
    NoToken(String),
    /// Why nobody answers.
    NoAnswer(String),
}

impl Reaching {
    /// Asks once.
    pub(super) fn ask(
        &mut self,
        kafka: &Kafka,
        consumer: &BaseConsumer<ConsumerEvents>,
    ) -> Result<Asked, ConnectError> {
        // Nothing ends a request that waits for a connection, and as long as it waits the client tries to connect at once
        // again and again. So these are short.
        let patience =
            if consumer.context().connected() { REQUEST_TIMEOUT } else { UNCONNECTED_TIMEOUT };
        let error = match consumer.fetch_metadata(None, patience) {
            Ok(metadata) => {
                let names = metadata.topics().iter().map(|topic| topic.name().to_owned());
                return Ok(Asked::Names(names.collect()));
            }
            Err(error) => error,
        };
        // Errors of the connection are reported by polls, among other news; there is no record to lose before the
        // subscription.
        while consumer.poll(NEWS_TIMEOUT).is_some() {}
        let (code, reason) = consumer.context().take_error().unzip();
        let reason = reason.unwrap_or_else(|| error.to_string());
        // Without a token the client has not tried to connect.
        match consumer.context().token_failure() {
            Some(failure) if failure.lasting => return Err(failure.into()),
            Some(failure) => return Ok(Asked::NoToken(failure.to_string())),
            None => {}
        }
        if let Some(refusal) = self.refusals.judge(code, &reason, kafka) {
            return Err(refusal);
        }
        if code.is_none() && !self.refusals.suspect() && self.silences < SILENCES {
            self.silences += 1;
            return Ok(Asked::Nothing);
        }
        self.silences = 0;
        Ok(Asked::NoAnswer(reason))
    }
}

/// A topic that its reader or writer may not see looks like one that is not there; asked for by its name, the brokers tell
/// the difference.
pub(super) fn check_visible(
    consumer: &BaseConsumer<ConsumerEvents>,
    kafka: &Kafka,
    topic: &str,
    operation: &'static str,
) -> Result<(), ConnectError> {
    // Where somebody has asked for that, a topic is created by asking for it.
    if kafka.consumer_property("allow.auto.create.topics").is_some() {
        return Ok(());
    }
    let Ok(metadata) = consumer.fetch_metadata(Some(topic), REQUEST_TIMEOUT) else { return Ok(()) };
    let error = metadata.topics().first().and_then(rdkafka::metadata::MetadataTopic::error);
    if error.map(RDKafkaErrorCode::from) == Some(RDKafkaErrorCode::TopicAuthorizationFailed) {
        return Err(ConnectError::Right(MissingRight::topic(operation, topic)));
    }
    Ok(())
}

/// Whether the brokers have answered: all topics are there, then, or will be.
fn create(
    config: &Config,
    clients: &Clients,
    topics: &[String],
    refused: &mut u32,
) -> Result<bool, ConnectError> {
    let new: Vec<_> = topics.iter().map(|name| new_topic(config, name)).collect();
    let admin = clients.admin()?;
    let Some(results) = answered(block_on(admin.create_topics(&new, &options()))?)? else {
        return Ok(false);
    };
    for result in results {
        match result {
            Ok(topic) => {
                tracing::info!(topic, partitions = config.topics.partitions, "topic created");
            }
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, code)) => {
                not_created(topic, code, refused)?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// A topic of the configuration as the service creates it.
pub(super) fn new_topic<'a>(config: &Config, name: &'a str) -> NewTopic<'a> {
    let replication = TopicReplication::Fixed(config.topics.replication_factor.unwrap_or(-1));
    NewTopic::new(name, config.topics.partitions, replication)
}

/// Whether it is worth asking again for a topic that was refused, as for the last `refused` times: brokers that have just
/// started or are away for a moment do not count as places for replicas.
pub(super) fn not_created(
    topic: String,
    code: RDKafkaErrorCode,
    refused: &mut u32,
) -> Result<(), ConnectError> {
    let cause = code.to_string();
    if code != RDKafkaErrorCode::InvalidReplicationFactor {
        return Err(ConnectError::NotCreated { topic, cause });
    }
    if *refused >= REFUSED_AT_MOST {
        return Err(ConnectError::TooFewBrokers { topic, cause, waited: FIRST_WAIT * *refused });
    }
    if *refused == 0 {
        tracing::warn!(topic, cause, "fewer brokers than replicas; asking again for half a minute");
    }
    *refused += 1;
    Ok(())
}

/// The answer to a request; `None` if there was none in time, and it has to be made again.
pub(super) fn answered<T>(answer: Result<T, KafkaError>) -> Result<Option<T>, ConnectError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_no_answer(&error) => {
            tracing::warn!(%error, "no answer to the creation of topics; asking again");
            Ok(None)
        }
        Err(error) => Err(ConnectError::client(&error)),
    }
}

fn is_no_answer(error: &KafkaError) -> bool {
    matches!(
        error,
        KafkaError::AdminOp(
            RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
        )
    )
}

/// What the output topics take. A missing right to ask leaves Kafka's defaults. `None`: no broker has answered in time.
pub(super) fn limits(
    clients: &Clients,
    topics: &BTreeMap<OutputTopic, String>,
) -> Result<Option<BTreeMap<OutputTopic, TopicLimits>>, ConnectError> {
    let admin = clients.admin()?;
    let asked: Vec<_> = topics.values().map(|name| ResourceSpecifier::Topic(name)).collect();
    let mut limits: BTreeMap<_, _> =
        topics.keys().map(|to| (*to, TopicLimits::default())).collect();
    let answers = match block_on(admin.describe_configs(&asked, &options()))? {
        Ok(answers) => answers,
        Err(error) if is_no_answer(&error) => return Ok(None),
        Err(error) => {
            tracing::warn!(%error, "the topics' settings cannot be read; taking Kafka's defaults");
            Vec::new()
        }
    };
    for ((answer, limit), topic) in answers.iter().zip(limits.values_mut()).zip(topics.values()) {
        match answer {
            // The client does not tell that a topic's settings were refused: there are none.
            Ok(resource) if !resource.entries.is_empty() => read_limits(resource, limit),
            Ok(_) | Err(_) => tracing::warn!(
                topic,
                "the settings cannot be read (operation DescribeConfigs on the topic); taking Kafka's defaults"
            ),
        }
    }
    for (to, limit) in &mut limits {
        let name = topics.get(to).map(String::as_str);
        let Ok(metadata) = admin.inner().fetch_metadata(name, REQUEST_TIMEOUT) else {
            return Ok(None);
        };
        let partitions = metadata.topics().first().map_or(1, |topic| topic.partitions().len());
        limit.partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
    }
    Ok(Some(limits))
}

fn read_limits(resource: &ConfigResource, limits: &mut TopicLimits) {
    let setting = |name: &str| {
        resource.get(name).and_then(|entry| entry.value.as_deref()?.parse::<i64>().ok())
    };
    if let Some(bytes) = setting("max.message.bytes") {
        limits.max_message_bytes = usize::try_from(bytes).unwrap_or(0);
    }
    // A topic may also refuse what is older than this, and -1 means for ever.
    limits.retention = ["retention.ms", "message.timestamp.before.max.ms"]
        .into_iter()
        .filter_map(|name| u64::try_from(setting(name)?).ok())
        .min()
        .map(Duration::from_millis);
}

pub(super) fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ADMIN_TIMEOUT)).operation_timeout(Some(ADMIN_TIMEOUT))
}

/// Waits for an answer of the admin client, which has a thread of its own.
pub(super) fn block_on<F: Future>(future: F) -> Result<F::Output, ConnectError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| ConnectError::Client(error.to_string()))?;
    Ok(runtime.block_on(future))
}

const ADMIN_TIMEOUT: Duration = REQUEST_TIMEOUT;

/// Enough for all the news that there are.
const NEWS_TIMEOUT: Duration = Duration::from_millis(50);

/// How long to wait for an answer while no broker is connected.
const UNCONNECTED_TIMEOUT: Duration = Duration::from_millis(100);

/// So often in a row may nothing be heard in that time before it is told.
const SILENCES: u32 = 10;

pub(super) const FIRST_WAIT: Duration = Duration::from_millis(200);

/// Half a minute of waits.
const REFUSED_AT_MOST: u32 = 150;

pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_brokers_for_the_replicas_are_waited_for_and_other_refusals_are_not() {
        let mut refused = 0;
        let mut ask = |code| not_created("t".to_owned(), code, &mut refused);
        assert!(matches!(
            ask(RDKafkaErrorCode::PolicyViolation),
            Err(ConnectError::NotCreated { .. })
        ));
        for _ in 0..REFUSED_AT_MOST {
            ask(RDKafkaErrorCode::InvalidReplicationFactor).unwrap();
        }
        let gave_up = ask(RDKafkaErrorCode::InvalidReplicationFactor).unwrap_err().to_string();
        assert!(gave_up.contains("`t`") && gave_up.contains("30s"), "{gave_up}");
    }

    #[test]
    fn a_request_that_is_not_answered_in_time_is_made_again() {
        let failed = |code| answered::<()>(Err(KafkaError::AdminOp(code)));
        assert!(matches!(failed(RDKafkaErrorCode::OperationTimedOut), Ok(None)));
        assert!(matches!(failed(RDKafkaErrorCode::BrokerTransportFailure), Ok(None)));
        assert!(failed(RDKafkaErrorCode::InvalidArgument).is_err());
        assert!(matches!(answered(Ok(7)), Ok(Some(7))));
    }
}
