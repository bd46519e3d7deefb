//! Each finding, from facts made by hand.

mod group;
mod topics;

use std::time::Duration;

use super::facts::{
    Broker, Creation, Facts, Found, GroupUnseen, Log, Probe, ProbeFailure, Settings, State, Topic,
};
use super::gather::Unreached;
use super::{Verdict, cluster, findings};
use crate::config::{Config, Inputs, KeyFrom, Sources, TimestampFrom, load};
use crate::event_time::{EventTime, PartitionId, Watermark};
use crate::kafka::members::{Group, Member};
use crate::kafka::rights::Operation;
use crate::pipeline::{Rehearsal, Rehearsed};

const SETTINGS: [&str; 11] = [
    "kafka.group_id=g",
    "source[0].topic=in",
    "source[0].timestamp.from=record",
    "source[0].watermark.max_out_of_orderness=1m",
    "window.size=1h",
    "key.from=message",
    "aggregate[0].name=count",
    "aggregate[0].function=count",
    "results.topic=out",
    "late.topic=late",
    "dead_letter.topic=dead",
];

/// The least that is needed, and more.
pub(in crate::kafka) fn config(more: &[&str]) -> Config {
    let overrides = SETTINGS.iter().chain(more).map(|text| (*text).to_owned()).collect();
    let sources = Sources { overrides, host_name: Some("host".to_owned()), ..Sources::default() };
    load(&sources).unwrap().config
}

fn settings(more: &[(&str, &str)]) -> Settings {
    let defaults = [
        ("cleanup.policy", "delete"),
        ("retention.ms", "604800000"),
        ("max.message.bytes", "1048588"),
        ("message.timestamp.type", "CreateTime"),
        ("message.timestamp.after.max.ms", "3600000"),
        ("min.insync.replicas", "1"),
    ];
    let all = defaults.iter().chain(more);
    all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn topic(partitions: i32, more: &[(&str, &str)]) -> Topic {
    use Operation::{Alter, Delete, Describe, DescribeConfigs, Read, Write};
    Topic {
        partitions,
        replicas: 1,
        in_sync: 1,
        leaderless: Vec::new(),
        rights: Some([Alter, Delete, Describe, DescribeConfigs, Read, Write].into()),
        settings: Some(settings(more)),
    }
}

const CHANGELOG: [(&str, &str); 2] = [("cleanup.policy", "compact,delete"), ("retention.ms", "-1")];

/// Everything as it should be.
fn good() -> Facts {
    let mut facts = Facts::new();
    let broker = [
        ("transaction.max.timeout.ms", "900000"),
        ("transaction.state.log.min.isr", "1"),
        ("transaction.state.log.replication.factor", "1"),
        ("group.min.session.timeout.ms", "6000"),
        ("group.max.session.timeout.ms", "1800000"),
    ];
    facts.brokers = [(1, broker_with(&broker))].into();
    let there = [
        ("in", topic(2, &[])),
        ("out", topic(1, &[])),
        ("late", topic(1, &[])),
        ("dead", topic(1, &[])),
        ("g-in-changelog", topic(2, &CHANGELOG)),
    ];
    facts.topics =
        there.into_iter().map(|(name, topic)| (name.to_owned(), Found::There(topic))).collect();
    facts.group =
        Ok(Group { state: "Empty", rights: Some([Operation::Read].into()), ..Group::default() });
    let log = |partition, committed| {
        let id = PartitionId { topic: 0, partition };
        (id, Log { oldest: 0, end: 10, committed: Some(committed), ..Log::default() })
    };
    facts.logs = Ok([log(0, 10), log(1, 7)].into());
    facts.state = State::Rehearsed(Ok(Rehearsal::Done(rehearsed())));
    facts.probe = Some(Ok(probe()));
    facts
}

fn broker_with(settings: &[(&str, &str)]) -> Broker {
    let settings =
        settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Broker { address: "kafka:9092".to_owned(), settings: Ok(Some(settings)) }
}

fn rehearsed() -> Rehearsed {
    Rehearsed {
        entries: 3,
        shards: 2,
        clock: Some(Watermark(EventTime(1_800_000_000_000))),
        ..Rehearsed::default()
    }
}

fn probe() -> Probe {
    Probe {
        topic: "g-check-1".to_owned(),
        transactional: true,
        ahead_ms: -12,
        within_ms: 4,
        left: None,
    }
}

fn lines(config: &Config, facts: &Facts) -> Vec<String> {
    findings(config, facts).iter().map(ToString::to_string).collect()
}

fn has(lines: &[String], verdict: &str, parts: &[&str]) {
    let is_it = |line: &&String| {
        line.starts_with(&format!("{verdict:<13}  "))
            && parts.iter().all(|part| line.contains(part))
    };
    assert!(
        lines.iter().any(|line| is_it(&line)),
        "no {verdict} {parts:?} in\n{}",
        lines.join("\n")
    );
}

/// With one thing changed there is this line.
fn with(change: impl FnOnce(&mut Facts), verdict: &str, parts: &[&str]) {
    with_config(&config(&[]), change, verdict, parts);
}

fn with_config(config: &Config, change: impl FnOnce(&mut Facts), verdict: &str, parts: &[&str]) {
    let mut facts = good();
    change(&mut facts);
    has(&lines(config, &facts), verdict, parts);
}

fn change(facts: &mut Facts, name: &str, change: impl FnOnce(&mut Topic)) {
    let Some(Found::There(topic)) = facts.topics.get_mut(name) else { panic!("no {name}") };
    change(topic);
}

fn set<'a>(name: &'a str, more: &'a [(&'a str, &'a str)]) -> impl FnOnce(&mut Facts) + 'a {
    move |facts| change(facts, name, |topic| topic.settings = Some(settings(more)))
}

fn without(name: &'static str, operation: Operation) -> impl FnOnce(&mut Facts) {
    move |facts| {
        change(facts, name, |topic| {
            assert!(topic.rights.as_mut().unwrap().remove(&operation));
        });
    }
}

#[test]
fn where_all_is_well_each_line_says_so() {
    let all = findings(&config(&[]), &good());
    let odd = all.iter().filter(|finding| !matches!(finding.verdict, Verdict::Ok | Verdict::Note));
    assert_eq!(odd.map(ToString::to_string).collect::<Vec<_>>(), Vec::<String>::new());
    let lines = lines(&config(&[]), &good());
    has(&lines, "ok", &["brokers: 1 of 1 broker answers: 1 at kafka:9092"]);
    has(&lines, "note", &["tls: not encrypted (plaintext)"]);
    has(&lines, "note", &["credentials: none are given"]);
    has(&lines, "ok", &["input `in`: 2 partitions, 1 replica", "kept for 7 d"]);
    has(&lines, "ok", &["changelog `g-in-changelog`", "kept for ever"]);
    has(&lines, "ok", &["group `g`: nobody is in it (Empty)"]);
    has(&lines, "ok", &["offsets `g`: there for 2 of 2 partitions", "3 records behind"]);
    has(
        &lines,
        "ok",
        &["state: fits this configuration: 3 entries of open windows in 2 shards", "2027-01-15"],
    );
    has(
        &lines,
        "ok",
        &["transactions: delivery.transaction_timeout is 15 s, the brokers allow 15 min"],
    );
    has(&lines, "ok", &["read back by a read_committed reader"]);
    has(
        &lines,
        "ok",
        &["clock: the clock of the broker is 12 ms behind the one here, give or take 4 ms"],
    );
}

#[test]
fn without_a_broker_the_rest_is_not_looked_at() {
    let told = |unreached: &Unreached| {
        let found = cluster::unreached(&config(&[]), unreached);
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let cause = "Connection refused".to_owned();
    let lines = told(&Unreached::NoAnswer { cause, waited: Duration::from_secs(10) });
    has(
        &lines,
        "fault",
        &["brokers: no broker at", "answers within 10 s: Connection refused; compare"],
    );
    has(&lines, "not looked at", &["credentials"]);
    has(&lines, "not looked at", &["clock"]);
    assert_eq!(lines.len(), 13);
    let lines = told(&Unreached::Refused { cause: "wrong password".to_owned(), credentials: true });
    has(&lines, "fault", &["credentials: wrong password"]);
    assert_eq!(lines.iter().filter(|line| line.contains("credentials")).count(), 1);
}

#[test]
fn brokers_and_the_way_to_them() {
    with(
        |facts| {
            let (address, settings) = ("inside:9092".to_owned(), Err("timed out".to_owned()));
            facts.brokers.insert(2, Broker { address, settings });
        },
        "fault",
        &["broker 2 does not answer at inside:9092", "timed out", "advertised.listeners"],
    );
    let mut config = config(&[]);
    config.kafka.properties = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.username", "me"),
        ("sasl.password", "hush"),
    ]
    .into();
    let said = lines(&config, &good());
    has(&said, "ok", &["tls: the brokers' certificates are accepted (sasl_ssl)"]);
    has(&said, "ok", &["credentials: those of `me` are accepted (SCRAM-SHA-512)"]);
    assert!(!said.join("\n").contains("hush"));
    config.kafka.properties =
        [("security.protocol", "ssl"), ("ssl.certificate.location", "/c.pem")].into();
    has(&lines(&config, &good()), "ok", &["credentials: the certificate of this client"]);
}

#[test]
fn transactions_without_beginning_one() {
    with_config(
        &config(&["delivery.guarantee=at_least_once"]),
        |_| {},
        "note",
        &["transactions: not used"],
    );
    with_config(
        &config(&["delivery.transaction_timeout=20m"]),
        |_| {},
        "fault",
        &["delivery.transaction_timeout is 20 min, and the brokers allow at most 15 min"],
    );
    let unseen = |facts: &mut Facts| {
        facts.brokers.get_mut(&1).unwrap().settings = Ok(None);
    };
    with(unseen, "not looked at", &["operation DescribeConfigs on the cluster", "--write-probe"]);
    with(
        |facts| {
            facts.transaction_log = Some(Topic { in_sync: 0, ..topic(50, &[]) });
        },
        "fault",
        &["the brokers' transaction log has 0 replicas in sync, and needs 1"],
    );
    with(
        |facts| {
            use Operation::{Alter, ClusterAction, Create, Describe};
            facts.cluster_rights = Some([Alter, ClusterAction, Create, Describe].into());
            let three = [("transaction.state.log.replication.factor", "3")];
            facts.brokers = [(1, broker_with(&three))].into();
        },
        "fault",
        &["is not there yet, and needs 3 brokers", "where there are 1"],
    );
}

#[test]
fn the_probe_and_what_is_not_known_without_it() {
    with(
        |facts| facts.probe = None,
        "not looked at",
        &["transactions", "operation Write on the transactional id `g-host-", "pass --write-probe"],
    );
    with(|facts| facts.probe = None, "not looked at", &["clock", "pass --write-probe"]);
    let probed = |probe: Probe| move |facts: &mut Facts| facts.probe = Some(Ok(probe));
    with(
        probed(Probe { ahead_ms: 90_000, ..probe() }),
        "warning",
        &["the clock of the broker is 90 s ahead of the one here", "NTP"],
    );
    // What is not exact enough is no reason.
    with(
        probed(Probe { ahead_ms: 5_000, within_ms: 4_000, ..probe() }),
        "ok",
        &["give or take 4 s"],
    );
    let left = Some("its topic `x` could not be deleted".to_owned());
    with(
        probed(Probe { left, ..probe() }),
        "warning",
        &["probe: its topic `x` could not be deleted"],
    );
    let failed = ProbeFailure {
        verdict: Verdict::Fault,
        what: "committing: no".to_owned(),
        remedy: Some("try".to_owned()),
        left: None,
    };
    let failed = |facts: &mut Facts| facts.probe = Some(Err(failed));
    with(failed, "fault", &["transactions: the probe failed: committing: no; try"]);
}

#[test]
fn durations_have_no_part_that_is_zero() {
    let said = |milliseconds| super::span(Duration::from_millis(milliseconds));
    assert_eq!(
        [604_800_000, 3_600_000, 5_400_000, 15_000, 1_500, 7].map(said),
        ["7 d", "1 h", "90 min", "15 s", "1.5 s", "7 ms"]
    );
}
