//! Mends what was written: dead letters that are sent back after a fix, and late records that are merged into what was
//! published.
//!
//! Both read a topic, write records, and commit in the same transaction how far they have come, so that each record has
//! its effect once, whatever is killed and however often they run.

mod late;
mod letter;
mod merge;
mod published;
mod recompute;
mod reconcile;
mod replay;

pub use letter::Unfit;
pub use reconcile::{Reconciled, Target, Unrepaired, WindowSummary, reconcile};
pub use replay::{Replay, ReplayPlan, Selection};

use crate::config::{Config, Source};

/// Which row of the results a record belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RowId {
    /// The window's start, milliseconds since the epoch.
    start: i64,
    /// The key, as the decoder gives it.
    key: Vec<u8>,
    /// Where rows are of one partition: which.
    place: Option<Place>,
}

/// The partition that a row is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Its topic, where there are several.
    topic: Option<String>,
    partition: i32,
}

impl Place {
    /// The partition whose shard has the records of this one to itself; none where one shard has all.
    fn of(config: &Config, topic: &str, partition: i32) -> Option<Self> {
        let topic = config.key.across_topics.then(|| topic.to_owned());
        (!config.key.needs_all_partitions()).then_some(Self { topic, partition })
    }
}

/// What holds for an input topic.
fn source_of(config: &Config, topic: &str) -> Option<Source> {
    let named = config.sources.iter().find(|source| source.topic == topic).cloned();
    named.or_else(|| {
        let pattern = config.patterns.iter().find(|pattern| pattern.pattern.matches(topic))?;
        Some(pattern.source_of(topic))
    })
}
