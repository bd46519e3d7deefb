//! `check --connect`: reaches the cluster as the service would, and says what it finds.
//!
//! [`gather`] and [`standing`] ask and change nothing: they join no group, begin no transaction, create no topic, and ask
//! for all topics where asking for one might create it. What they have seen are [`facts`]; the other modules are functions
//! from these to findings. What would end the service at its start is found by the code that ends it, and said in its
//! words.
//!
//! Two things cannot be seen without writing: whether a transaction goes through to a reader, and what time it is at the
//! broker. [`probe`] does that, only when asked to, on a topic and under a transactional id of its own.

mod cluster;
mod facts;
mod gather;
mod group;
mod probe;
mod report;
mod standing;
#[cfg(test)]
pub(super) mod tests;
mod topics;

use std::sync::Arc;
use std::time::Duration;

pub use report::{Finding, Report, Verdict};

use super::client::{Clients, TopicNumbers};
use crate::clock::Clock;
use crate::config::Config;
use facts::Facts;

/// How to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long each step may take.
    pub timeout: Duration,
    /// Whether to write a record to a topic of its own.
    pub write_probe: bool,
}

/// Looks at the cluster of a configuration.
pub fn inspect(config: &Config, terms: Terms, clock: Clock) -> Report {
    let clients = Arc::new(Clients::new(config, 0, clock, Arc::new(|_, _| {})));
    let gathered = gather::gather(config, terms, clock, &clients);
    let findings = match gathered {
        Ok((facts, config)) => findings(&config, &facts),
        Err(unreached) => cluster::unreached(config, &unreached),
    };
    Report { findings }
}

fn findings(config: &Config, facts: &Facts) -> Vec<Finding> {
    let mut findings = cluster::brokers(config, facts);
    findings.extend(topics::findings(config, facts));
    findings.extend(group::findings(config, facts, &TopicNumbers::new(config)));
    findings.extend(cluster::transactions(config, facts));
    findings.extend(cluster::clock(facts));
    findings
}

/// A duration without a part that is zero.
fn span(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] =
        [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    for (length, unit) in UNITS {
        if milliseconds >= length && milliseconds.is_multiple_of(length) {
            return format!("{} {unit}", milliseconds / length);
        }
    }
    if milliseconds < 1_000 {
        return format!("{milliseconds} ms");
    }
    crate::insight::words::span(duration)
}
