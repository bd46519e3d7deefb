//! `[kafka]`: the cluster, the group and the properties of librdkafka.

use super::{Surroundings, oauth, values};
use crate::config::Kafka;
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::properties::{FILE_SUFFIX, Properties};
use crate::config::settings::KafkaSettings;

pub(super) fn parse(
    settings: &KafkaSettings,
    surroundings: &Surroundings<'_>,
    report: &mut Report<'_>,
) -> Result<Kafka, Noted> {
    let section = KeyPath::of("kafka");
    let bootstrap_servers = report.value(
        &section.key("bootstrap_servers"),
        settings.bootstrap_servers.as_ref(),
        "write \"localhost:9092\"",
        parse_servers,
    );
    let group_id = report.value(
        &section.key("group_id"),
        settings.group_id.as_ref(),
        "write the name of the consumer group, the same for all instances of this job and for no other",
        parse_group,
    );
    let instance_id = report.value(
        &section.key("instance_id"),
        settings.instance_id.as_ref(),
        "write \"hostname\"",
        |text| parse_instance(text, surroundings.host_name),
    );
    let static_membership = report.value(
        &section.key("static_membership"),
        settings.static_membership.as_ref(),
        "write false",
        values::flag,
    );
    let properties = parse_properties("kafka.properties", &settings.properties, report);
    let consumer_properties =
        parse_properties("kafka.consumer.properties", &settings.consumer.properties, report);
    let producer_properties =
        parse_properties("kafka.producer.properties", &settings.producer.properties, report);
    let oauth = oauth::parse(&settings.oauth, properties.as_ref().ok(), report);
    let kafka = Kafka {
        bootstrap_servers: bootstrap_servers?,
        group_id: group_id?,
        instance_id: instance_id?,
        static_membership: static_membership?,
        properties: properties?,
        consumer_properties: consumer_properties?,
        producer_properties: producer_properties?,
        oauth: oauth?,
    };
    if kafka.newer_group_protocol() {
        check_newer_protocol(&kafka, report);
    }
    if kafka.static_membership {
        check_static_member(&kafka, report);
    }
    Ok(kafka)
}

fn parse_servers(text: &str) -> Result<String, String> {
    if text.split(',').any(|server| server.trim().is_empty()) {
        return Err(format!(
            "\"{text}\" names an empty server; write \"host:port\", several with commas between them"
        ));
    }
    Ok(text.to_owned())
}

/// The group's name is part of the changelog topic's, so it keeps to the same characters.
fn parse_group(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty; give the consumer group a name".to_owned());
    }
    match text.chars().find(|c| !values::is_topic_character(*c)) {
        Some(wrong) => Err(format!(
            "\"{text}\" has a {wrong:?} in it; the changelog topic carries this name, so it is made of letters, \
             digits, \".\", \"_\" and \"-\""
        )),
        None => Ok(text.to_owned()),
    }
}

fn parse_instance(text: &str, host_name: Option<&str>) -> Result<String, String> {
    let hint = "write a name that only this instance has and that stays the same over restarts";
    match (text, host_name) {
        ("hostname", Some(host)) => Ok(host.to_owned()),
        ("hostname", None) => Err(format!("the name of the host is not known; {hint}")),
        (text, _) if text.trim().is_empty() => Err(format!("is empty; {hint}")),
        (text, _) => Ok(text.to_owned()),
    }
}

/// The name of a static member is made of the instance's, and Kafka has the same rules for it as for topics.
fn check_static_member(kafka: &Kafka, report: &mut Report<'_>) {
    if kafka.newer_group_protocol() {
        report.warn(
            &KeyPath::of("kafka.static_membership"),
            "with group.protocol = \"consumer\" the group refuses the successor of an instance that was killed, which \
             then ends with an error again and again, until the broker's group.consumer.session.timeout.ms (45 s) has \
             passed; with \"classic\" the successor goes on at once",
        );
    }
    let name = &kafka.instance_id;
    let problem = match name.chars().find(|c| !values::is_topic_character(*c)) {
        Some(wrong) => format!("has a {wrong:?} in it"),
        None if name.len() > LONGEST_INSTANCE => format!("has {} characters", name.len()),
        None => return,
    };
    report.fault(
        &KeyPath::of("kafka.instance_id"),
        format!(
            "\"{name}\" {problem}; with kafka.static_membership it is made of at most {LONGEST_INSTANCE} letters, \
             digits, \".\", \"_\" and \"-\""
        ),
    );
}

/// Reads secrets out of their files and refuses what the guarantees depend on.
fn parse_properties(
    table: &str,
    written: &Properties,
    report: &mut Report<'_>,
) -> Result<Properties, Noted> {
    let table = KeyPath::of(table);
    let mut read = Vec::new();
    for (name, value) in written.iter() {
        let key = table.key(name);
        let (property, value) = match name.strip_suffix(FILE_SUFFIX) {
            None => (name, Ok(value.to_owned())),
            Some(property) if written.get(property).is_some() => {
                (property, Err(format!("there is also `{property}`; give one of them")))
            }
            Some(property) => (property, read_secret(value)),
        };
        let refused = REFUSED.iter().find(|(refused, _)| *refused == property);
        match (refused, value) {
            (Some((_, reason)), _) => {
                report.fault(&key, format!("may not be set: {reason}"));
            }
            (None, Err(problem)) => {
                report.fault(&key, problem);
            }
            (None, Ok(value)) => read.push((property, value)),
        }
    }
    report.sound(&table, read.into_iter().collect())
}

/// The text of a file, without the end of its last line.
pub(super) fn read_secret(path: &str) -> Result<String, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let text = text.strip_suffix('\n').unwrap_or(&text);
            Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
        }
        Err(error) => Err(format!("cannot read {path}: {error}")),
    }
}

/// With the newer protocol the broker decides what these properties decided; librdkafka refuses to start with them.
fn check_newer_protocol(kafka: &Kafka, report: &mut Report<'_>) {
    for (table, properties) in [
        ("kafka.properties", &kafka.properties),
        ("kafka.consumer.properties", &kafka.consumer_properties),
    ] {
        for name in DECIDED_BY_BROKER {
            if properties.get(name).is_some() {
                report.fault(
                    &KeyPath::of(table).key(name),
                    "does not go with group.protocol = \"consumer\", where the broker decides it; leave it out",
                );
            }
        }
    }
}

/// So that the number of a subtask fits in too.
const LONGEST_INSTANCE: usize = values::LONGEST_TOPIC - 3;

const DECIDED_BY_BROKER: [&str; 2] = ["session.timeout.ms", "heartbeat.interval.ms"];

/// Properties on which the guarantees depend, and what there is instead.
const REFUSED: [(&str, &str); 30] = [
    ("bootstrap.servers", "write kafka.bootstrap_servers"),
    ("metadata.broker.list", "write kafka.bootstrap_servers"),
    (
        "client.id",
        "the instances of a group know each other by it, and it is made of kafka.instance_id",
    ),
    ("group.id", "write kafka.group_id"),
    ("sasl.oauthbearer.method", "write [kafka.oauth], and leave it out"),
    ("sasl.oauthbearer.token.endpoint.url", "write kafka.oauth.token_endpoint"),
    ("sasl.oauthbearer.client.id", "write kafka.oauth.client_id"),
    ("sasl.oauthbearer.client.credentials.client.id", "write kafka.oauth.client_id"),
    ("sasl.oauthbearer.client.secret", CLIENT_SECRET),
    ("sasl.oauthbearer.client.credentials.client.secret", CLIENT_SECRET),
    ("sasl.oauthbearer.scope", "write kafka.oauth.scope"),
    ("sasl.oauthbearer.extensions", "write kafka.oauth.extensions"),
    (
        "group.instance.id",
        "write kafka.static_membership = true, and it is made of kafka.instance_id",
    ),
    (
        "partition.assignment.strategy",
        "partitions are given up one by one after a commit, so it is cooperative-sticky",
    ),
    ("auto.offset.reset", "write source.start and source.on_missing"),
    ("enable.auto.commit", COMMITS),
    ("auto.commit.enable", COMMITS),
    ("auto.commit.interval.ms", "write delivery.commit_interval"),
    ("enable.auto.offset.store", COMMITS),
    ("isolation.level", "records of aborted transactions must not be counted"),
    ("enable.partition.eof", "the service needs it to know when it has read everything"),
    (
        "statistics.interval.ms",
        "the statistics tell silence from a slow broker, so their interval is fixed",
    ),
    ("transactional.id", "it is made of kafka.group_id and kafka.instance_id"),
    ("transaction.timeout.ms", "write delivery.transaction_timeout"),
    ("enable.idempotence", "write delivery.guarantee"),
    ("enable.gapless.guarantee", "write delivery.guarantee"),
    ("acks", ACKS),
    ("request.required.acks", ACKS),
    ("partitioner", PARTITIONER),
    ("partitioner_cb", PARTITIONER),
];

const CLIENT_SECRET: &str = "write kafka.oauth.client_secret, or client_secret_file";
const COMMITS: &str =
    "offsets are committed with the results they belong to; write delivery.commit_interval";
const ACKS: &str = "a result is written when all replicas in sync have it";
const PARTITIONER: &str = "results go to the partition where Java producers would put their key";
