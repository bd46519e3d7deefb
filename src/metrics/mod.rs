//! What Prometheus sees: the only place that knows a metric's name.
//!
//! Gauges are not kept: a scrape reads the newest [`Snapshot`](crate::insight::Snapshot) and the wall clock, so a lag
//! goes on growing while the loop hangs, and a partition that is gone is gone. A time that does not exist yet has no
//! series. Counters are added to when a commit has ended, all of one commit at once, and never go away; those whose
//! labels are known beforehand exist at 0 before anything happened.
//!
//! The series, each with its unit and what becomes of it, are listed in `deploy/README.md`; a test compares.

mod counters;
mod family;
mod gauges;
mod info;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, Registry, TextEncoder};

pub use info::{MetricsInfo, SourceInfo};

use crate::clock::ReadNow;
use crate::event_time::{EventTime, PartitionId};
use crate::insight::{Tally, Watch};
use counters::Totals;
use family::Family;

/// The content type of [`Metrics::render`]; Prometheus 3 refuses an answer without one.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of one process; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    transaction_duration: Histogram,
    scrape: Arc<Scrape>,
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitOutcome {
    /// Everything in it is visible.
    Committed,
    /// Nothing in it is; its input is read again.
    Aborted,
    /// The service cannot go on.
    Failed,
}

impl CommitOutcome {
    const ALL: [Self; 3] = [Self::Committed, Self::Aborted, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }
}

/// What a rebalance did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RebalanceEvent {
    /// Partitions came.
    Assign,
    /// Partitions were handed back.
    Revoke,
    /// Partitions were taken away, with no time to commit.
    Lost,
}

impl RebalanceEvent {
    const ALL: [Self; 3] = [Self::Assign, Self::Revoke, Self::Lost];

    fn name(self) -> &'static str {
        match self {
            Self::Assign => "assign",
            Self::Revoke => "revoke",
            Self::Lost => "lost",
        }
    }
}

/// A metric that cannot be: a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("preparing the metrics")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// The metrics of a service that was told this; gauges come from `watch`, ages from `clock`.
    pub fn new(info: &MetricsInfo, watch: Watch, clock: ReadNow) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let transaction_duration = Histogram::with_opts(
            HistogramOpts::new(
                "tidegate_transaction_duration_seconds",
                "Time from the beginning of a commit to its end, however it ended.",
            )
            .buckets(COMMIT_SECONDS.to_vec()),
        )?;
        registry.register(Box::new(transaction_duration.clone()))?;
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let scrape = Arc::new(Scrape {
            topics: info.sources.iter().map(|source| source.topic.clone()).collect(),
            subtask: info.subtask.to_string(),
            constant: info::families(info, clock().wall),
            watch,
            clock,
            ticks: AtomicU64::new(0),
            state: Mutex::default(),
        });
        registry.register(Box::new(Snapshots(Arc::clone(&scrape))))?;
        Ok(Self { registry, transaction_duration, scrape })
    }

    /// A partition came: its counters exist from now on, its gauges once a snapshot has it.
    pub fn assigned(&self, partition: PartitionId) {
        let mut state = self.scrape.state();
        state.assigned.insert(partition);
        state.totals.create(partition);
    }

    /// A partition went: its gauges are gone, its counters stay.
    pub fn revoked(&self, partition: PartitionId) {
        self.scrape.state().assigned.remove(&partition);
    }

    /// The loop emitted its watermarks once more.
    pub fn ticked(&self) {
        self.scrape.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// What became of the records of a commit that has ended.
    pub fn add(&self, tally: &Tally) {
        self.scrape.state().totals.add(tally);
    }

    /// A commit of results and offsets ended: a Kafka transaction, or what stands for it at least once.
    pub fn committed(&self, took: Duration, outcome: CommitOutcome) {
        self.transaction_duration.observe(took.as_secs_f64());
        let wall = (self.scrape.clock)().wall;
        let mut state = self.scrape.state();
        state.totals.commit(outcome);
        if outcome == CommitOutcome::Committed {
            state.last_commit = Some(wall);
        }
    }

    /// The group gave or took partitions.
    pub fn rebalanced(&self, event: RebalanceEvent) {
        self.scrape.state().totals.rebalance(event);
    }

    /// The client reported an error, by the name its library gives it.
    pub fn kafka_error(&self, code: &str, fatal: bool) {
        self.scrape.state().totals.kafka_error(code, fatal);
    }

    /// What became of all records whose commits have ended.
    pub fn totals(&self) -> Tally {
        self.scrape.state().totals.records().clone()
    }

    /// All series as text; reading them changes none.
    pub fn render(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.registry.gather())?)
    }
}

/// What a scrape reads.
struct Scrape {
    /// By number.
    topics: Vec<String>,
    subtask: String,
    /// What never changes.
    constant: Vec<Family>,
    watch: Watch,
    clock: ReadNow,
    ticks: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    totals: Totals,
    /// Says that a partition is gone before the next snapshot does.
    assigned: BTreeSet<PartitionId>,
    /// Kept as a time of day, since one worked out at each scrape would move with the clock's corrections.
    last_commit: Option<EventTime>,
}

impl Scrape {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn topic(&self, number: u16) -> &str {
        self.topics.get(usize::from(number)).map_or("unknown", String::as_str)
    }

    fn families(&self) -> Vec<Family> {
        let state = self.state().clone();
        let snapshot = self.watch.snapshot();
        let mut families = self.constant.clone();
        families.extend(counters::families(self, &state.totals));
        families.extend(gauges::families(self, &state, &snapshot, (self.clock)().wall));
        // A generator may name a number of its own as one of ours is named; ours stays.
        let mut names = BTreeSet::new();
        families.retain(|family| names.insert(family.name().to_owned()));
        families
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").field("topics", &self.topics).finish_non_exhaustive()
    }
}

struct Snapshots(Arc<Scrape>);

impl Collector for Snapshots {
    /// None: which series there are is known at the scrape, and the registry then checks nothing.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.families().into_iter().map(Family::into_proto).collect()
    }
}

const COMMIT_SECONDS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

#[cfg(test)]
mod tests;
