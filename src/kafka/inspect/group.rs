//! The group: who is in it, where it stands, and the state that a start would go on from.

use super::facts::{Facts, GroupUnseen, Log, State};
use super::report::{Finding, Verdict};
use super::span;
use crate::config::{Config, Start};
use crate::insight::words::{self, counted};
use crate::kafka::client::TopicNumbers;
use crate::kafka::members::Group;
use crate::kafka::right::MissingRight;
use crate::kafka::rights::Operation;
use crate::pipeline::{Rehearsal, Rehearsed};

pub(super) fn findings(config: &Config, facts: &Facts, topics: &TopicNumbers) -> Vec<Finding> {
    let mut findings = members(config, facts);
    findings.extend(session(config, facts));
    findings.extend(offsets(config, facts, topics));
    findings.extend(state(facts));
    findings
}

fn members(config: &Config, facts: &Facts) -> Vec<Finding> {
    let name = &config.kafka.group_id;
    let finding = |verdict, found: String| Finding::new(verdict, "group", found).of(name);
    let group = match &facts.group {
        Ok(group) => group,
        Err(GroupUnseen::Unanswered(cause)) => {
            return vec![finding(Verdict::NotLookedAt, cause.clone())];
        }
        Err(GroupUnseen::Unmanaged) => {
            return vec![finding(
                Verdict::NotLookedAt,
                "no broker manages it: the cluster has had no group yet, or the brokers that would are away"
                    .to_owned(),
            )];
        }
        Err(GroupUnseen::Forbidden) => return vec![no_right(name)],
    };
    let members: Vec<_> = group.members.iter().map(ToString::to_string).collect();
    let mut findings = vec![if group.state.is_empty() {
        finding(Verdict::Ok, "is not there; the service will begin it".to_owned())
    } else if members.is_empty() {
        finding(Verdict::Ok, format!("nobody is in it ({})", group.state))
    } else {
        let number = counted(members.len() as u64, "member");
        finding(
            Verdict::Ok,
            format!(
                "{} with {number} by the {} protocol: {}",
                group.state,
                if group.newer { "newer" } else { "classic" },
                members.join(", ")
            ),
        )
    }];
    if !members.is_empty() {
        findings.extend(beside(config, group, &members));
    }
    match &group.rights {
        Some(rights) if !rights.contains(&Operation::Read) => findings.push(no_right(name)),
        Some(_) => {}
        None => findings.push(finding(
            Verdict::NotLookedAt,
            "the right to join it (operation Read on the group): the brokers tell it only of a group that is there"
                .to_owned(),
        )),
    }
    findings
}

/// What it means for one more instance that there are members.
fn beside(config: &Config, group: &Group, members: &[String]) -> Vec<Finding> {
    let finding =
        |verdict, found: String| Finding::new(verdict, "group", found).of(&config.kafka.group_id);
    let mut findings = Vec::new();
    let ours = config.kafka.consumer_properties.get("partition.assignment.strategy");
    let ours = ours.or_else(|| config.kafka.properties.get("partition.assignment.strategy"));
    let ours = ours.unwrap_or("cooperative-sticky");
    if !config.kafka.newer_group_protocol()
        && !group.newer
        && !group.assignor.is_empty()
        && !ours.split(',').any(|one| one.trim() == group.assignor)
    {
        let found = format!(
            "its members share the partitions by `{}`, and this instance offers `{ours}`: the group will not let it in",
            group.assignor
        );
        findings.push(finding(Verdict::Fault, found).remedy(
            "stop the others, or set \"partition.assignment.strategy\" in [kafka.consumer.properties]",
        ));
    }
    let this = format!("tidegate-{}-", config.kafka.instance_id);
    let others = members.iter().filter(|member| !member.starts_with(&this)).count();
    if members.len() > others {
        let found = format!(
            "kafka.instance_id is `{}` and has a member at work: one more under that name would take its place",
            config.kafka.instance_id
        );
        findings.push(finding(Verdict::Note, found));
    }
    if config.key.needs_all_partitions() && others > 0 {
        let found =
            "with fields as the key one instance reads all partitions: this one would stand by";
        findings.push(finding(Verdict::Note, found.to_owned()));
    }
    findings
}

fn no_right(group: &str) -> Finding {
    Finding::new(Verdict::Fault, "group", MissingRight::group(group).to_string()).of(group)
}

/// The brokers refuse members with another session timeout.
fn session(config: &Config, facts: &Facts) -> Option<Finding> {
    if config.kafka.newer_group_protocol() {
        return None;
    }
    let ours = config.kafka.session_timeout();
    let milliseconds = i64::try_from(ours.as_millis()).unwrap_or(i64::MAX);
    let least = facts.broker_setting("group.min.session.timeout.ms").last().copied();
    let most = facts.broker_setting("group.max.session.timeout.ms").first().copied();
    let (setting, limit) = if least.is_some_and(|least| milliseconds < least) {
        ("group.min.session.timeout.ms", least?)
    } else if most.is_some_and(|most| milliseconds > most) {
        ("group.max.session.timeout.ms", most?)
    } else {
        return None;
    };
    let found = format!(
        "session.timeout.ms is {}, and the brokers' {setting} is {limit} ms: the group will not let it in",
        span(ours)
    );
    let remedy = "set \"session.timeout.ms\" in [kafka.consumer.properties] to fit";
    Some(Finding::new(Verdict::Fault, "group", found).of(&config.kafka.group_id).remedy(remedy))
}

fn offsets(config: &Config, facts: &Facts, topics: &TopicNumbers) -> Vec<Finding> {
    let name = &config.kafka.group_id;
    let finding = |verdict, found: String| Finding::new(verdict, "offsets", found).of(name);
    let logs = match &facts.logs {
        Ok(logs) => logs,
        Err(cause) => return vec![finding(Verdict::NotLookedAt, cause.clone())],
    };
    let mut findings: Vec<_> = logs
        .values()
        .filter_map(|log| log.refusal.as_ref())
        .take(MOST_LINES)
        .map(|refusal| finding(Verdict::Fault, refusal.clone()))
        .collect();
    for (id, log) in logs.iter().filter(|(_, log)| log.missing > 0).take(MOST_LINES) {
        findings.push(finding(
            Verdict::Warning,
            format!(
                "{}/{}: {} were deleted before they were read; on_missing = \"continue\" goes on at the oldest and counts \
                 them",
                topics.name(*id),
                id.partition,
                counted(log.missing, "record")
            ),
        ));
    }
    if !findings.is_empty() {
        return findings;
    }
    let with: Vec<&Log> = logs.values().filter(|log| log.committed.is_some()).collect();
    let behind =
        |log: &&Log| log.committed.map_or(0, |at| log.end.saturating_sub(at).max(0)).unsigned_abs();
    let all = counted(logs.len() as u64, "partition");
    findings.push(if logs.is_empty() {
        finding(Verdict::Ok, "none yet".to_owned())
    } else if with.is_empty() {
        let earliest = config.sources.iter().all(|source| source.start == Start::Earliest);
        let begins = if earliest { "at the oldest record" } else { "where `start` says" };
        let records: u64 = logs.values().map(|log| log.end.abs_diff(log.oldest)).sum();
        finding(
            Verdict::Ok,
            format!(
                "none yet: the service begins {begins} of {all} ({} there are)",
                counted(records, "record")
            ),
        )
    } else {
        let lag: u64 = with.iter().map(behind).sum();
        finding(
            Verdict::Ok,
            format!(
                "there for {} of {all}, all within what can be read; {} behind the ends",
                with.len(),
                counted(lag, "record")
            ),
        )
    });
    findings
}

fn state(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "state";
    let finding = |verdict, found: String| vec![Finding::new(verdict, CHECK, found)];
    match &facts.state {
        State::None => finding(
            Verdict::Ok,
            "there is no changelog yet: the service begins without any".to_owned(),
        ),
        State::Unseen(cause) => finding(Verdict::NotLookedAt, cause.clone()),
        State::Rehearsed(Err(refusal)) => finding(Verdict::Fault, refusal.clone()),
        State::Rehearsed(Ok(Rehearsal::Unfinished(obstacle))) => {
            let why = obstacle.as_ref().map_or(String::new(), |cause| format!(": {cause}"));
            let found = format!("reading the changelog did not come to its end in time{why}");
            vec![
                Finding::new(Verdict::NotLookedAt, CHECK, found)
                    .remedy("give it more time by --timeout"),
            ]
        }
        State::Rehearsed(Ok(Rehearsal::Done(done))) => restored(done),
    }
}

fn restored(done: &Rehearsed) -> Vec<Finding> {
    const CHECK: &str = "state";
    if done.shards == 0 {
        let found = "the changelog is empty: the service begins without any".to_owned();
        return vec![Finding::new(Verdict::Ok, CHECK, found)];
    }
    let clock = done.clock.and_then(crate::event_time::Watermark::time).map_or_else(
        || "no watermark yet".to_owned(),
        |clock| match jiff::Timestamp::from_millisecond(clock.0) {
            Ok(clock) => format!("the least watermark is {clock}"),
            Err(_) => format!("the least watermark is {} ms", clock.0),
        },
    );
    let mut findings = vec![Finding::new(
        Verdict::Ok,
        CHECK,
        format!(
            "fits this configuration: {} of open windows in {}, {clock}",
            entries(done.entries),
            counted(done.shards as u64, "shard")
        ),
    )];
    if done.dropped > 0 {
        findings.push(Finding::new(
            Verdict::Warning,
            CHECK,
            format!(
                "{} that wait for late records were kept under another configuration and would be dropped; the late \
                 records then go to the late topic",
                entries(done.dropped)
            ),
        ));
    }
    if done.without_offsets {
        findings.push(
            Finding::new(
                Verdict::Warning,
                CHECK,
                "the group has no offset where the changelog has one: the service asks for half a minute and then takes \
                 the changelog's",
            )
            .remedy("wait until the brokers are well; `tidegate reset` begins anew where you say"),
        );
    }
    findings
}

fn entries(number: usize) -> String {
    match number {
        1 => "1 entry".to_owned(),
        _ => format!("{} entries", words::count(number as u64)),
    }
}

/// Of partitions that have the same to say.
const MOST_LINES: usize = 20;
