//! Topics: whether they are there, what one may do to them, and whether their settings fit.

use std::time::Duration;

use super::facts::{Creation, Facts, Found, Topic};
use super::report::{Finding, Verdict};
use super::span;
use crate::config::{Config, ResultKey, Source, SourcePattern, TimestampFrom};
use crate::event_time::WatermarkStrategy;
use crate::insight::words::counted;
use crate::kafka::admin::ConnectError;
use crate::kafka::changelog_topic;
use crate::kafka::right::MissingRight;
use crate::kafka::rights::Operation;
use crate::kafka::topic_names::{changelog_topics, output_topics};
use crate::pipeline::OutputTopic;

/// All that there is to say of them.
pub(super) fn findings(config: &Config, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for SourcePattern { pattern, source } in &config.patterns {
        let of_pattern = |other: &&Source| other.table == source.table;
        let finding = match config.sources.iter().filter(of_pattern).count() {
            0 => Finding::new(Verdict::Warning, "input", "no topic matches it yet"),
            count => {
                let found = format!("{} it", matching(count));
                Finding::new(Verdict::Ok, "input", found)
            }
        };
        findings.push(finding.of(pattern.as_str()));
    }
    for source in &config.sources {
        let there = presence("input", &source.topic, facts, &mut findings);
        if let Some(topic) = there {
            rights("input", &source.topic, topic, &[Operation::Read], &mut findings);
            input(source, topic, &mut findings);
        }
    }
    for (to, name) in output_topics(config) {
        let check = check_of(to);
        if let Some(topic) = presence(check, &name, facts, &mut findings) {
            rights(check, &name, topic, &[Operation::Write], &mut findings);
            output(to, &name, topic, config, facts, &mut findings);
        }
    }
    for (number, name) in changelog_topics(config) {
        if let Some(topic) = presence("changelog", &name, facts, &mut findings) {
            let needed = [Operation::Read, Operation::Write];
            rights("changelog", &name, topic, &needed, &mut findings);
            let input = config.sources.get(usize::from(number)).or(config.sources.first());
            let input = input.and_then(|source| facts.there(&source.topic));
            changelog(&name, topic, input, config, &mut findings);
        }
    }
    findings
}

fn matching(topics: usize) -> String {
    let verb = if topics == 1 { "matches" } else { "match" };
    format!("{} {verb}", counted(topics as u64, "topic"))
}

fn check_of(to: OutputTopic) -> &'static str {
    match to {
        OutputTopic::Results => "results",
        OutputTopic::Late => "late",
        OutputTopic::DeadLetter => "dead letters",
        OutputTopic::Changelog(_) => "changelog",
    }
}

/// The topic, if it is there; a line on it in any case.
fn presence<'f>(
    check: &'static str,
    name: &str,
    facts: &'f Facts,
    findings: &mut Vec<Finding>,
) -> Option<&'f Topic> {
    let finding = |verdict, found: String| Finding::new(verdict, check, found).of(name);
    match facts.topics.get(name)? {
        Found::There(topic) => {
            findings.push(finding(Verdict::Ok, summary(topic)));
            common(check, name, topic, findings);
            return Some(topic);
        }
        Found::Missing => findings.push(match facts.creations.get(name) {
            None => {
                finding(Verdict::Fault, ConnectError::MissingTopics(vec![name.to_owned()]).to_string())
            }
            Some(Ok(creation)) => finding(Verdict::Note, will_be_created(creation)),
            Some(Err(cause)) => {
                let (topic, cause) = (name.to_owned(), cause.clone());
                finding(Verdict::Fault, ConnectError::NotCreated { topic, cause }.to_string()).remedy(
                    "creating takes the operation Create on the topic or on the cluster, and as many brokers as \
                     replicas",
                )
            }
        }),
        Found::Hidden => {
            let operation = if check == "input" { "Read" } else { "Write" };
            findings.push(finding(Verdict::Fault, MissingRight::topic(operation, name).to_string()));
        }
        Found::Unknown(cause) => findings.push(finding(Verdict::NotLookedAt, cause.clone())),
    }
    None
}

fn summary(topic: &Topic) -> String {
    let mut parts = vec![
        counted(u64::from(topic.partitions.unsigned_abs()), "partition"),
        counted(topic.replicas as u64, "replica"),
    ];
    if topic.settings.is_some() {
        parts.push(format!("messages of up to {} bytes", topic.max_message_bytes()));
        if let Some(policy) = topic.text("cleanup.policy") {
            parts.push(format!("cleanup.policy {policy}"));
        }
        parts.push(match topic.duration("retention.ms") {
            Some(kept) => format!("kept for {}", span(kept)),
            None => "kept for ever".to_owned(),
        });
    }
    parts.join(", ")
}

fn will_be_created(creation: &Creation) -> String {
    let replicas = creation.replicas.map_or_else(
        || "as many replicas as the brokers are set to".to_owned(),
        |replicas| counted(u64::from(replicas.unsigned_abs()), "replica"),
    );
    let settings =
        if creation.settings.is_empty() { "the brokers' settings" } else { &creation.settings };
    format!(
        "is not there; the service will create it: {}, {replicas}, {settings}",
        counted(u64::from(creation.partitions.unsigned_abs()), "partition")
    )
}

/// What holds for every topic.
fn common(check: &'static str, name: &str, topic: &Topic, findings: &mut Vec<Finding>) {
    if !topic.leaderless.is_empty() {
        let which: Vec<_> = topic.leaderless.iter().map(ToString::to_string).collect();
        let found = format!("no broker leads partition {}", which.join(", "));
        findings.push(
            Finding::new(Verdict::Fault, check, found)
                .of(name)
                .remedy("bring the brokers that have it back"),
        );
    }
    if topic.settings.is_none() {
        let finding = if check == "input" {
            let found = "the settings (operation DescribeConfigs on the topic); the service needs them only to make the \
                         changelog";
            Finding::new(Verdict::NotLookedAt, check, found)
        } else {
            let found = "the settings cannot be read (operation DescribeConfigs on the topic); the service takes \
                         Kafka's defaults";
            Finding::new(Verdict::Warning, check, found).remedy("allow the user that operation")
        };
        findings.push(finding.of(name));
    }
    let needed =
        topic.number("min.insync.replicas").and_then(|number| usize::try_from(number).ok());
    let Some(needed) = needed.filter(|_| check != "input") else { return };
    let fault =
        |found, remedy: &str| Finding::new(Verdict::Fault, check, found).of(name).remedy(remedy);
    if needed > topic.replicas {
        findings.push(fault(
            format!(
                "min.insync.replicas is {needed}, and there is only {} of each partition: it takes no record",
                counted(topic.replicas as u64, "replica")
            ),
            "lower min.insync.replicas or add replicas",
        ));
    } else if needed > topic.in_sync {
        findings.push(fault(
            format!(
                "{} of a partition in sync, fewer than min.insync.replicas = {needed}: it takes no record now",
                counted(topic.in_sync as u64, "replica")
            ),
            "bring brokers back",
        ));
    }
}

fn rights(
    check: &'static str,
    name: &str,
    topic: &Topic,
    needed: &[Operation],
    findings: &mut Vec<Finding>,
) {
    let Some(rights) = &topic.rights else {
        let needed: Vec<_> = needed.iter().map(ToString::to_string).collect();
        let found =
            format!("rights ({} on the topic): the brokers do not tell them", needed.join(", "));
        findings.push(Finding::new(Verdict::NotLookedAt, check, found).of(name));
        return;
    };
    for operation in needed.iter().filter(|operation| !rights.contains(operation)) {
        let operation = if *operation == Operation::Read { "Read" } else { "Write" };
        let found = MissingRight::topic(operation, name).to_string();
        findings.push(Finding::new(Verdict::Fault, check, found).of(name));
    }
}

fn input(source: &Source, topic: &Topic, findings: &mut Vec<Finding>) {
    let finding = |verdict, found: &str| Finding::new(verdict, "input", found).of(&source.topic);
    if topic.bears_arrival_times() && source.timestamp.from == TimestampFrom::Record {
        findings.push(
            finding(
                Verdict::Warning,
                "the event time is the record's Kafka timestamp, and message.timestamp.type=LogAppendTime makes that \
                 the time of arrival",
            )
            .remedy("set message.timestamp.type=CreateTime, or take the event time from a field"),
        );
    }
    let absent = source.partitions.keys().filter(|partition| **partition >= topic.partitions);
    if let Some(absent) = absent.min() {
        let found = format!(
            "source.partitions has terms for partition {absent}, and it has {}",
            counted(u64::from(topic.partitions.unsigned_abs()), "partition")
        );
        findings.push(finding(Verdict::Warning, &found));
    }
    if topic.is_compacted() {
        findings.push(finding(
            Verdict::Note,
            "it is compacted: records that a newer one of their key replaces before they are read do not count",
        ));
    }
}

fn output(
    to: OutputTopic,
    name: &str,
    topic: &Topic,
    config: &Config,
    facts: &Facts,
    findings: &mut Vec<Finding>,
) {
    let check = check_of(to);
    let finding = |verdict, found: String| Finding::new(verdict, check, found).of(name);
    if topic.is_compacted() {
        findings.extend(match to {
            OutputTopic::Results if config.results.key == ResultKey::Key => Some(
                finding(
                    Verdict::Warning,
                    "it is compacted, and results have the key alone: of each key only the newest window stays".to_owned(),
                )
                .remedy("set results.key = \"key_window\", or cleanup.policy=delete"),
            ),
            OutputTopic::DeadLetter | OutputTopic::Late => Some(
                finding(
                    Verdict::Fault,
                    "it is compacted: it refuses records without a key, which ends the service, and keeps one record of \
                     each key"
                        .to_owned(),
                )
                .remedy("set cleanup.policy=delete"),
            ),
            OutputTopic::Results | OutputTopic::Changelog(_) => None,
        });
    }
    if topic.bears_arrival_times() {
        let found = match to {
            OutputTopic::Results => {
                "message.timestamp.type=LogAppendTime: results bear the time of writing, not the end of their window, \
                 and cannot be looked up by it"
            }
            OutputTopic::Late | OutputTopic::DeadLetter | OutputTopic::Changelog(_) => {
                "message.timestamp.type=LogAppendTime: records lose the timestamp they had in the input"
            }
        };
        findings.push(
            finding(Verdict::Warning, found.to_owned())
                .remedy("set message.timestamp.type=CreateTime"),
        );
    }
    if let Some(after) =
        topic.duration("message.timestamp.after.max.ms").filter(|after| *after < MINUTE)
    {
        findings.push(
            finding(
                Verdict::Warning,
                format!(
                    "message.timestamp.after.max.ms is {}: records are refused as soon as the broker's clock is that far \
                     behind the one here, and the service ends",
                    span(after)
                ),
            )
            .remedy("an hour is Kafka's default"),
        );
    }
    size(to, name, topic, config, facts, findings);
    if to == OutputTopic::Results {
        retention(name, topic, config, findings);
    }
}

/// Results bear the end of their window less a millisecond as their timestamp, if that is not older than half of what the
/// topic keeps.
fn retention(name: &str, topic: &Topic, config: &Config, findings: &mut Vec<Finding>) {
    let finding = |found: String| Finding::new(Verdict::Warning, "results", found).of(name);
    let kept = topic.duration("retention.ms");
    let window = config.windows.size();
    if let Some(kept) = kept.filter(|kept| *kept < window) {
        findings.push(
            finding(format!(
                "it keeps records for {}, and a window lasts {}: results are gone before the next window has any",
                span(kept),
                span(window)
            ))
            .remedy("set retention.ms to as many windows as readers look back"),
        );
    }
    let latest = latest(config);
    let limits = [("retention.ms", kept), (BEFORE_MAX, topic.duration(BEFORE_MAX))];
    let least = limits.into_iter().filter_map(|(name, limit)| Some((limit?, name))).min();
    if let Some((limit, setting)) = least.filter(|(limit, _)| *limit / 2 < latest) {
        findings.push(
            finding(format!(
                "results may come {} after the end of their window (bound and allowed lateness), and {setting} is {}: one \
                 that is older than half of that bears the present as its timestamp",
                span(latest),
                span(limit)
            ))
            .remedy(format!("set {setting} to more than twice that")),
        );
    }
}

/// How long after the end of its window a pane may come while everything flows.
fn latest(config: &Config) -> Duration {
    let bound = |source: &Source| match &source.strategy {
        WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness } => *max_out_of_orderness,
        WatermarkStrategy::Adaptive(settings) => settings.ceiling,
        WatermarkStrategy::AscendingTimestamps
        | WatermarkStrategy::Punctuated
        | WatermarkStrategy::Named(_) => Duration::ZERO,
    };
    config.sources.iter().map(bound).max().unwrap_or_default() + config.allowed_lateness
}

/// The limit is for a batch, and all topics share one producer.
fn size(
    to: OutputTopic,
    name: &str,
    topic: &Topic,
    config: &Config,
    facts: &Facts,
    findings: &mut Vec<Finding>,
) {
    if topic.settings.is_none() {
        return;
    }
    let most = topic.max_message_bytes();
    let finding = |verdict, found: String| Finding::new(verdict, check_of(to), found).of(name);
    // Around a result's aggregates: window, pane, headers, the batch's own.
    let least = RESULT_BYTES + config.aggregates.len() * AGGREGATE_BYTES;
    if to == OutputTopic::Results && most < least {
        findings.push(
            finding(
                Verdict::Fault,
                format!(
                    "it takes messages of up to {most} bytes (max.message.bytes), and a result with a short key has about \
                     {least}: each becomes a dead letter"
                ),
            )
            .remedy("raise max.message.bytes"),
        );
    } else {
        findings.extend(small_batches(check_of(to), name, topic));
    }
    if matches!(to, OutputTopic::Late | OutputTopic::DeadLetter) {
        let inputs = config.sources.iter().filter_map(|source| facts.there(&source.topic));
        let told = inputs.filter(|input| input.settings.is_some());
        let largest = told.map(Topic::max_message_bytes).max();
        if let Some(largest) = largest.filter(|largest| *largest > most) {
            findings.push(
                finding(
                    Verdict::Warning,
                    format!(
                        "the input has messages of up to {largest} bytes, this topic takes {most} (max.message.bytes): \
                         larger ones go without their payload"
                    ),
                )
                .remedy("set max.message.bytes to that of the input and 1000 more"),
            );
        }
    }
}

/// One producer writes to all topics, in batches that fit each of them.
fn small_batches(check: &'static str, name: &str, topic: &Topic) -> Option<Finding> {
    topic.settings.as_ref()?;
    let most = topic.max_message_bytes();
    let found = || {
        format!(
            "it takes batches of up to {most} bytes (max.message.bytes), and so the batches to all topics are no larger, \
             which costs throughput"
        )
    };
    (most < SMALL_BATCH).then(|| {
        Finding::new(Verdict::Warning, check, found())
            .of(name)
            .remedy("raise max.message.bytes; 1048588 is Kafka's default")
    })
}

fn changelog(
    name: &str,
    topic: &Topic,
    input: Option<&Topic>,
    config: &Config,
    findings: &mut Vec<Finding>,
) {
    let finding = |verdict, found: String| Finding::new(verdict, "changelog", found).of(name);
    if let Some(refusal) = changelog_topic::refusal(name, |setting| topic.text(setting)) {
        findings.push(finding(Verdict::Fault, refusal.to_string()));
    }
    if changelog_topic::grows(|setting| topic.text(setting)).is_some() {
        findings.push(finding(Verdict::Warning, changelog_topic::GROWS.to_owned()));
    }
    findings.extend(small_batches("changelog", name, topic));
    let has = |operation| topic.rights.as_ref().is_none_or(|rights| rights.contains(&operation));
    if !has(Operation::Delete) {
        findings.push(
            finding(
                Verdict::Warning,
                "no right to delete its old records (operation Delete): it is kept short by compaction alone".to_owned(),
            )
            .remedy("allow the user Delete on it"),
        );
    }
    let wanted = if config.key.needs_all_partitions() {
        1
    } else {
        input.map_or(1, |input| input.partitions)
    };
    if topic.partitions < wanted {
        let found = format!(
            "it has {}, and the input {wanted}",
            counted(u64::from(topic.partitions.unsigned_abs()), "partition")
        );
        findings.push(if has(Operation::Alter) {
            finding(Verdict::Note, format!("{found}: the service will add those that are missing"))
        } else {
            finding(Verdict::Fault, format!("{found}; {}", MissingRight::topic("Alter", name)))
                .remedy("add them, or allow the user Alter on it")
        });
    }
    if let Some(input) = input.filter(|input| input.replicas > topic.replicas) {
        findings.push(
            finding(
                Verdict::Warning,
                format!(
                    "it has {}, and the input {}: the state is lost more easily than the records",
                    counted(topic.replicas as u64, "replica"),
                    input.replicas
                ),
            )
            .remedy("give it as many as the input has"),
        );
    }
}

const BEFORE_MAX: &str = "message.timestamp.before.max.ms";

const MINUTE: Duration = Duration::from_mins(1);

/// Below this a commit has many more requests than it needs.
const SMALL_BATCH: usize = 64 * 1024;

const RESULT_BYTES: usize = 300;
const AGGREGATE_BYTES: usize = 20;
