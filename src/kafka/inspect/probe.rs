//! Writes a record where nobody looks, to see what only a record shows: that transactions reach their readers, and what
//! time it is at a broker.
//!
//! The topic is `<group>-check-<random>`, made for it and deleted after it. The transactional id is that of an instance
//! called `<instance_id>-check-<random>`: under the same prefix as the service's, so that the same rights allow it, and
//! never one of its own, so that nobody is fenced. What stays is an entry in the brokers' transaction log, which they drop
//! by themselves (`transactional.id.expiration.ms`, a week by default). No offset is committed.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::facts::{Probe, ProbeFailure};
use super::gather::{Deadline, options};
use super::report::Verdict;
use crate::clock::Clock;
use crate::config::{Config, Guarantee};
use crate::event_time::EventTime;
use crate::kafka::admin::block_on;
use crate::kafka::client::Clients;
use crate::kafka::right::MissingRight;
use crate::kafka::sink::Deliveries;
use crate::pipeline::Time as _;

/// Writes, reads back and cleans up.
pub(super) fn probe(
    config: &Config,
    admin: &AdminClient<DefaultClientContext>,
    clock: Clock,
    timeout: Duration,
) -> Result<Probe, ProbeFailure> {
    let suffix = format!("{:08x}", RandomState::new().hash_one(()) >> 32);
    let topic = format!("{}-check-{suffix}", config.kafka.group_id);
    create(config, admin, &topic, timeout)?;
    let mut probed = write_and_read(&as_another(config, &suffix), &topic, clock, timeout);
    let deleted = block_on(admin.delete_topics(&[&topic], &options(timeout)));
    let refused = match deleted {
        Ok(Ok(results)) => {
            results.into_iter().find_map(|result| result.err().map(|(_, code)| code.to_string()))
        }
        Ok(Err(error)) => Some(error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    let left = refused
        .map(|cause| format!("its topic `{topic}` could not be deleted ({cause}); delete it"));
    match &mut probed {
        Ok(probe) => probe.left = left,
        Err(failure) => failure.left = left,
    }
    probed
}

/// The same configuration as that of an instance of a name that nobody has.
fn as_another(config: &Config, suffix: &str) -> Config {
    let mut config = config.clone();
    config.kafka.instance_id = format!("{}-check-{suffix}", config.kafka.instance_id);
    config.kafka.static_membership = false;
    config
}

fn create(
    config: &Config,
    admin: &AdminClient<DefaultClientContext>,
    topic: &str,
    timeout: Duration,
) -> Result<(), ProbeFailure> {
    let replication = TopicReplication::Fixed(config.topics.replication_factor.unwrap_or(-1));
    let mut new = NewTopic::new(topic, 1, replication);
    for (name, value) in SETTINGS {
        new = new.set(name, value);
    }
    let cause = match block_on(admin.create_topics([&new], &options(timeout))) {
        Ok(Ok(results)) => {
            let refused = results.into_iter().find_map(Result::err);
            let Some((_, code)) = refused else { return Ok(()) };
            code.to_string()
        }
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(failure(
        Verdict::NotLookedAt,
        format!("its topic `{topic}` could not be created: {cause}"),
        Some(&RIGHTS.replace("{group}", &config.kafka.group_id)),
    ))
}

fn write_and_read(
    config: &Config,
    topic: &str,
    clock: Clock,
    timeout: Duration,
) -> Result<Probe, ProbeFailure> {
    let clients = Clients::new(config, 0, clock, Arc::new(|_, _| {}));
    let transactional = config.delivery.guarantee == Guarantee::ExactlyOnce;
    let failed = |what: &str, error: &KafkaError| judge(config, &clients, topic, what, error);
    let producer = clients
        .producer(MESSAGE_BYTES, MESSAGE_BYTES)
        .map_err(|error| failure(Verdict::Fault, error.to_string(), None))?;
    if transactional {
        producer
            .init_transactions(timeout)
            .map_err(|error| failed("the producer cannot begin", &error))?;
        producer.begin_transaction().map_err(|error| failed("beginning a transaction", &error))?;
    }
    // The first record finds the way; the second one shows what time it is.
    let deadline = Deadline::new(clock, timeout);
    send(&producer, topic, &deadline).map_err(|error| failed("writing", &error))?;
    let before = Clock::wall();
    send(&producer, topic, &deadline).map_err(|error| failed("writing", &error))?;
    let after = Clock::wall();
    if transactional {
        producer.commit_transaction(timeout).map_err(|error| failed("committing", &error))?;
    }
    let stamped = read(&clients, topic, &Deadline::new(clock, timeout))
        .map_err(|error| failed("reading back what was committed", &error))?;
    let Some(EventTime(stamped)) = stamped else {
        return Err(failure(
            Verdict::Fault,
            "what was committed did not come to a read_committed reader in time".to_owned(),
            None,
        ));
    };
    let (before, after) = (before.0, after.0);
    let within_ms = (after - before) / 2 + 1;
    let ahead_ms = stamped - before - (after - before) / 2;
    Ok(Probe { topic: topic.to_owned(), transactional, ahead_ms, within_ms, left: None })
}

fn send(
    producer: &BaseProducer<Deliveries>,
    topic: &str,
    deadline: &Deadline,
) -> Result<(), KafkaError> {
    let record =
        BaseRecord::<[u8], [u8], usize>::with_opaque_to(topic, 0).partition(0).payload(b"tidegate");
    producer.send(record).map_err(|(error, _)| error)?;
    // A flush would look only every 100 ms.
    while producer.in_flight_count() > 0 {
        if deadline.stopping() {
            return Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut));
        }
        producer.poll(Duration::from_millis(1));
    }
    match producer.context().first_failure() {
        Some((code, _)) => Err(KafkaError::MessageProduction(code)),
        None => Ok(()),
    }
}

/// When the broker took the second record.
fn read(
    clients: &Clients,
    topic: &str,
    deadline: &Deadline,
) -> Result<Option<EventTime>, KafkaError> {
    let reader = clients.reader()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(1))?;
    reader.assign(&list)?;
    while !deadline.stopping() {
        match reader.poll(Duration::from_millis(50)) {
            Some(Ok(message)) => return Ok(message.timestamp().to_millis().map(EventTime)),
            // The leader may not be known yet.
            Some(Err(error)) if is_missing_right(&error) => return Err(error),
            Some(Err(_)) | None => {}
        }
    }
    Ok(None)
}

fn is_missing_right(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::GroupAuthorizationFailed
        )
    )
}

#[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka has two hundred error codes")]
fn judge(
    config: &Config,
    clients: &Clients,
    topic: &str,
    what: &str,
    error: &KafkaError,
) -> ProbeFailure {
    let (code, cause) = match error {
        KafkaError::Transaction(error) => {
            (Some(error.code()), format!("{} ({})", error.string(), error.name()))
        }
        other => (other.rdkafka_error_code(), other.to_string()),
    };
    let group = &config.kafka.group_id;
    match code {
        Some(RDKafkaErrorCode::TransactionalIdAuthorizationFailed) => failure(
            Verdict::Warning,
            MissingRight::transactional_id(&clients.transactional_id).to_string(),
            Some(&format!(
                "on all transactional ids that begin with `{group}-`; where those of the service are allowed one by one, this \
                 is no fault"
            )),
        ),
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => failure(
            Verdict::NotLookedAt,
            format!("{what} (topic `{topic}`): {cause}"),
            Some(&RIGHTS.replace("{group}", group)),
        ),
        _ => failure(Verdict::Fault, format!("{what}: {cause}"), None),
    }
}

fn failure(verdict: Verdict, what: String, remedy: Option<&str>) -> ProbeFailure {
    ProbeFailure { verdict, what, remedy: remedy.map(str::to_owned), left: None }
}

/// What a probe needs beyond the service.
const RIGHTS: &str = "allow Create, Write, Read and Delete on the topics that begin with `{group}-check-`, or do without the probe";

const MESSAGE_BYTES: usize = 1_000_000;

const SETTINGS: [(&str, &str); 3] = [
    ("message.timestamp.type", "LogAppendTime"),
    ("cleanup.policy", "delete"),
    // Should it not be deleted, at least nothing stays in it.
    ("retention.ms", "3600000"),
];
