//! Brokers, TLS, credentials, transactions and clocks.

use std::time::Duration;

use super::facts::{Facts, Probe, ProbeFailure};
use super::gather::Unreached;
use super::report::{Finding, Verdict};
use super::span;
use crate::config::{Config, Guarantee};
use crate::insight::words::counted;
use crate::kafka::rights::Operation;

/// No broker has answered: all else is left out.
pub(super) fn unreached(config: &Config, unreached: &Unreached) -> Vec<Finding> {
    let at = &config.kafka.bootstrap_servers;
    let mut findings = vec![match unreached {
        Unreached::Refused { cause, credentials } => {
            let check = if *credentials { "credentials" } else { "brokers" };
            Finding::new(Verdict::Fault, check, cause)
        }
        Unreached::NoAnswer { cause, waited } => Finding::new(
            Verdict::Fault,
            "brokers",
            format!("no broker at {at} answers within {}: {cause}", span(*waited)),
        )
        .remedy(
            "compare kafka.bootstrap_servers and \"security.protocol\" with the brokers' listeners",
        ),
    }];
    let first = findings.first().map_or("", |finding| finding.check);
    let rest = ALL_OTHERS.into_iter().filter(|check| *check != first);
    findings.extend(
        rest.map(|check| {
            Finding::new(Verdict::NotLookedAt, check, "no broker lets this client in")
        }),
    );
    findings
}

/// The brokers that there are, and how they are talked to.
pub(super) fn brokers(config: &Config, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let answering: Vec<_> =
        facts.brokers.iter().filter(|(_, broker)| broker.settings.is_ok()).collect();
    if !answering.is_empty() {
        let each = answering.iter().map(|(id, broker)| format!("{id} at {}", broker.address));
        let found = format!(
            "{} of {} {}: {}",
            answering.len(),
            counted(facts.brokers.len() as u64, "broker"),
            if facts.brokers.len() == 1 { "answers" } else { "answer" },
            each.collect::<Vec<_>>().join(", ")
        );
        findings.push(Finding::new(Verdict::Ok, "brokers", found));
    }
    for (id, broker) in &facts.brokers {
        if let Err(cause) = &broker.settings {
            let found = format!(
                "broker {id} does not answer at {}, where the others say that it is: {cause}",
                broker.address
            );
            findings.push(
                Finding::new(Verdict::Fault, "brokers", found)
                    .remedy("it is down, or its advertised.listeners cannot be reached from here"),
            );
        }
    }
    let protocol = config.kafka.properties.get("security.protocol").unwrap_or("plaintext");
    let protocol = protocol.to_ascii_lowercase();
    let encrypted = protocol.ends_with("ssl");
    findings.push(if encrypted {
        Finding::new(
            Verdict::Ok,
            "tls",
            format!("the brokers' certificates are accepted ({protocol})"),
        )
    } else {
        Finding::new(Verdict::Note, "tls", format!("not encrypted ({protocol})"))
    });
    findings.push(if protocol.starts_with("sasl") {
        let mechanism = config
            .kafka
            .properties
            .get("sasl.mechanism")
            .or_else(|| config.kafka.properties.get("sasl.mechanisms"));
        let name = config.kafka.properties.get("sasl.username");
        let name = name.map_or(String::new(), |name| format!(" of `{name}`"));
        let mechanism = mechanism.map_or(String::new(), |mechanism| format!(" ({mechanism})"));
        Finding::new(Verdict::Ok, "credentials", format!("those{name} are accepted{mechanism}"))
    } else if encrypted && config.kafka.properties.get("ssl.certificate.location").is_some() {
        Finding::new(Verdict::Ok, "credentials", "the certificate of this client is accepted")
    } else {
        Finding::new(Verdict::Note, "credentials", "none are given, and the brokers ask for none")
    });
    findings
}

/// Whether transactions can be begun, without beginning one under the service's own id: that would fence it.
pub(super) fn transactions(config: &Config, facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "transactions";
    let mut findings = Vec::new();
    if config.delivery.guarantee == Guarantee::AtLeastOnce {
        findings.push(Finding::new(
            Verdict::Note,
            CHECK,
            "not used (delivery.guarantee = \"at_least_once\"): results may be there twice after a crash",
        ));
        return findings;
    }
    findings.push(timeout(config, facts));
    findings.extend(transaction_log(facts));
    match &facts.probe {
        None => findings.push(
            Finding::new(
                Verdict::NotLookedAt,
                CHECK,
                format!(
                    "the right to transactional ids (operation Write on the transactional id `{}`), and whether a \
                     transaction reaches its readers",
                    transactional_ids(config)
                ),
            )
            .remedy("pass --write-probe"),
        ),
        Some(Ok(probe)) if probe.transactional => findings.push(Finding::new(
            Verdict::Ok,
            CHECK,
            format!(
                "a record that was written to `{}` in a transaction was read back by a read_committed reader",
                probe.topic
            ),
        )),
        Some(Ok(_)) => {}
        Some(Err(failure)) => findings.push(failed(CHECK, failure)),
    }
    findings
}

/// How long a transaction may take here and there.
fn timeout(config: &Config, facts: &Facts) -> Finding {
    const CHECK: &str = "transactions";
    let ours = config.delivery.transaction_timeout;
    let most = facts.broker_setting("transaction.max.timeout.ms");
    let most = most.first().and_then(|most| u64::try_from(*most).ok()).map(Duration::from_millis);
    match most {
        Some(most) if most < ours => {
            let found = format!(
                "delivery.transaction_timeout is {}, and the brokers allow at most {} (transaction.max.timeout.ms): the \
                 producer cannot begin",
                span(ours),
                span(most)
            );
            Finding::new(Verdict::Fault, CHECK, found).remedy("lower the one or raise the other")
        }
        Some(most) => {
            let found = format!(
                "delivery.transaction_timeout is {}, the brokers allow {}",
                span(ours),
                span(most)
            );
            Finding::new(Verdict::Ok, CHECK, found)
        }
        None => {
            let found = "the brokers' limits (operation DescribeConfigs on the cluster)";
            Finding::new(Verdict::NotLookedAt, CHECK, found)
                .remedy("the service does not need that right; --write-probe proves the same")
        }
    }
}

/// What the transactional ids of all subtasks begin with.
fn transactional_ids(config: &Config) -> String {
    format!("{}-{}-", config.kafka.group_id, config.kafka.instance_id)
}

/// The topic in which the brokers keep track of transactions.
fn transaction_log(facts: &Facts) -> Option<Finding> {
    const CHECK: &str = "transactions";
    let least = facts.broker_setting("transaction.state.log.min.isr").last().copied();
    let replicas = facts.broker_setting("transaction.state.log.replication.factor").last().copied();
    let fault = |found: String| {
        Finding::new(Verdict::Fault, CHECK, found).remedy(
            "bring brokers back, or set the brokers' transaction.state.log.* to fit their number",
        )
    };
    match (&facts.transaction_log, least, replicas) {
        (Some(log), Some(least), _)
            if i64::try_from(log.in_sync).is_ok_and(|held| held < least) =>
        {
            Some(fault(format!(
                "the brokers' transaction log has {} in sync, and needs {least} (transaction.state.log.min.isr): no \
                 transaction can begin",
                counted(log.in_sync as u64, "replica")
            )))
        }
        (None, _, Some(replicas))
            if i64::try_from(facts.brokers.len()).is_ok_and(|brokers| brokers < replicas)
                && sees_everything(facts) =>
        {
            Some(fault(format!(
                "the brokers' transaction log is not there yet, and needs {replicas} brokers \
                 (transaction.state.log.replication.factor) where there are {}: no transaction can begin",
                facts.brokers.len()
            )))
        }
        _ => None,
    }
}

/// Whether a topic that is not seen is not there: who may do everything to the cluster sees all.
pub(super) fn sees_everything(facts: &Facts) -> bool {
    let needed =
        [Operation::Describe, Operation::Create, Operation::Alter, Operation::ClusterAction];
    facts
        .cluster_rights
        .as_ref()
        .is_some_and(|rights| needed.iter().all(|one| rights.contains(one)))
}

fn failed(check: &'static str, failure: &ProbeFailure) -> Finding {
    let finding =
        Finding::new(failure.verdict, check, format!("the probe failed: {}", failure.what));
    match &failure.remedy {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    }
}

/// How far the clocks are apart, which only a record that the broker has stamped tells.
pub(super) fn clock(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "clock";
    let mut findings = Vec::new();
    let left = match &facts.probe {
        None => {
            findings.push(
                Finding::new(
                    Verdict::NotLookedAt,
                    CHECK,
                    "no broker tells the time before it has stamped a record",
                )
                .remedy("pass --write-probe"),
            );
            None
        }
        Some(Ok(probe)) => {
            findings.push(difference(probe));
            probe.left.as_ref()
        }
        Some(Err(failure)) => {
            let found = format!("the probe failed: {}", failure.what);
            findings.push(Finding::new(Verdict::NotLookedAt, CHECK, found));
            failure.left.as_ref()
        }
    };
    findings.extend(left.map(|left| Finding::new(Verdict::Warning, "probe", left)));
    findings
}

fn difference(probe: &Probe) -> Finding {
    let Probe { ahead_ms, within_ms, .. } = probe;
    let way = if *ahead_ms < 0 { "behind" } else { "ahead of" };
    let apart = span(Duration::from_millis(ahead_ms.unsigned_abs()));
    let found = format!(
        "the clock of the broker is {apart} {way} the one here, give or take {}",
        span(Duration::from_millis(within_ms.unsigned_abs()))
    );
    if ahead_ms.abs() - within_ms > FAR_APART_MS {
        Finding::new(Verdict::Warning, "clock", found)
            .remedy("set the clocks by NTP: timestamps are judged and refused by both of them")
    } else {
        Finding::new(Verdict::Ok, "clock", found)
    }
}

/// What is looked at once a broker has answered.
const ALL_OTHERS: [&str; 12] = [
    "tls",
    "credentials",
    "input",
    "results",
    "late",
    "dead letters",
    "changelog",
    "group",
    "offsets",
    "state",
    "transactions",
    "clock",
];

/// Clocks that are set by NTP are closer.
const FAR_APART_MS: i64 = 2_000;
