//! What Prometheus sees: the only place that knows a metric's name.
//!
//! Gauges are not kept: a scrape reads the newest [`Snapshot`](crate::insight::Snapshot) and the wall clock, so a lag
//! goes on growing while the loop hangs, and a partition that is gone is gone. A time that does not exist yet has no
//! series. Counters are added to when a commit has ended, all of one commit at once, and never go away; those whose
//! labels are known beforehand exist at 0 before anything happened.
//!
//! The series, each with its unit and what becomes of it, are listed in `deploy/README.md`; a test compares.

mod counters;
mod export;
mod family;
mod gauges;
mod info;
mod subtask;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, Registry, TextEncoder};

pub use export::ExportMetrics;
pub use info::{MetricsInfo, SourceInfo};
pub use subtask::SubtaskMetrics;

use crate::clock::ReadNow;
use crate::config::{Config, Inputs, of_all_topics};
use crate::event_time::{EventTime, PartitionId};
use crate::insight::live::Outcomes;
use crate::insight::{Tally, Watches};
use counters::Totals;
use family::Family;

/// The content type of [`Metrics::render`]; Prometheus 3 refuses an answer without one.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of one process; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    transaction_duration: Histogram,
    restore_duration: Histogram,
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

/// What an admin call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminCall {
    /// Fire what is open, and end.
    Drain,
    /// Which lines the log has.
    LogLevel,
    /// Nothing that there is.
    Other,
}

impl AdminCall {
    const ALL: [Self; 3] = [Self::Drain, Self::LogLevel, Self::Other];

    /// The word used in metrics and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::LogLevel => "log_level",
            Self::Other => "other",
        }
    }
}

/// How an admin call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminOutcome {
    /// As asked.
    Done,
    /// It brought no valid token.
    Denied,
    /// What it asks cannot be.
    Refused,
}

impl AdminOutcome {
    const ALL: [Self; 3] = [Self::Done, Self::Denied, Self::Refused];

    /// The word used in metrics and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Denied => "denied",
            Self::Refused => "refused",
        }
    }
}

/// A metric that cannot be: a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("preparing the metrics")]
pub struct MetricsError(#[from] prometheus::Error);

impl Metrics {
    /// The metrics of a service that was told this; gauges come from `watches`, one of each subtask, ages from `clock`.
    pub fn new(info: &MetricsInfo, watches: Watches, clock: ReadNow) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let histogram = Histogram::with_opts(options)?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let transaction_duration = histogram(
            "tidegate_transaction_duration_seconds",
            "Time from the beginning of a commit to its end, however it ended.",
            &COMMIT_SECONDS,
        )?;
        let restore_duration = histogram(
            "tidegate_restore_seconds",
            "Time to read back what open windows held.",
            &RESTORE_SECONDS,
        )?;
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let scrape = Arc::new(Scrape {
            sources: Mutex::new(always(Sources::new(info, clock().wall))),
            librdkafka: info.librdkafka.clone(),
            began: clock().wall,
            ticks: (0..watches.count()).map(|_| AtomicU64::new(0)).collect(),
            watches,
            clock,
            state: Mutex::default(),
        });
        registry.register(Box::new(Snapshots(Arc::clone(&scrape))))?;
        Ok(Self { registry, transaction_duration, restore_duration, scrape })
    }

    /// From now on topics that patterns bring have series too.
    pub fn follow(&self, config: Config, inputs: Inputs) {
        let (librdkafka, began) = (self.scrape.librdkafka.clone(), self.scrape.began);
        let sources = of_all_topics(config, inputs, move |config| {
            Arc::new(Sources::new(&MetricsInfo::new(config, librdkafka.as_str()), began))
        });
        *self.scrape.sources.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(sources);
    }

    /// What one of the subtasks writes to.
    pub fn of(&self, subtask: u16) -> SubtaskMetrics {
        SubtaskMetrics::new(self.clone(), subtask)
    }

    /// The client reported an error, by the name its library gives it.
    pub fn kafka_error(&self, code: &str, fatal: bool) {
        self.scrape.state().totals.kafka_error(code, fatal);
    }

    /// Somebody has called the admin listener.
    pub fn admin_request(&self, call: AdminCall, outcome: AdminOutcome) {
        self.scrape.state().totals.admin_request(call, outcome);
    }

    /// What became of all records whose commits have ended.
    pub fn totals(&self) -> Tally {
        self.scrape.state().totals.records().clone()
    }

    /// The same summed up, and the commits that were aborted.
    pub fn outcomes(&self) -> Outcomes {
        self.scrape.state().totals.outcomes()
    }

    /// All series as text; reading them changes none.
    pub fn render(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.registry.gather())?)
    }
}

/// What a scrape reads.
struct Scrape {
    sources: Mutex<ReadSources>,
    librdkafka: String,
    /// When the process did.
    began: EventTime,
    watches: Watches,
    clock: ReadNow,
    /// By subtask.
    ticks: Vec<AtomicU64>,
    state: Mutex<State>,
}

/// What changes with the topics alone.
struct Sources {
    /// By number.
    topics: Vec<String>,
    constant: Vec<Family>,
}

type ReadSources = Arc<dyn Fn() -> Arc<Sources> + Send + Sync>;

fn always(sources: Sources) -> ReadSources {
    let sources = Arc::new(sources);
    Arc::new(move || Arc::clone(&sources))
}

impl Sources {
    fn new(info: &MetricsInfo, began: EventTime) -> Self {
        Self {
            topics: info.sources.iter().map(|source| source.topic.clone()).collect(),
            constant: info::families(info, began),
        }
    }

    fn topic(&self, number: u16) -> &str {
        self.topics.get(usize::from(number)).map_or("unknown", String::as_str)
    }
}

#[derive(Clone, Default)]
struct State {
    totals: Totals,
    /// Which subtask has a partition. It says that a partition is gone before the next snapshot does, and of two
    /// subtasks of which one does not know yet that it has lost the partition, which one has it.
    owners: BTreeMap<PartitionId, u16>,
    /// By subtask. Kept as a time of day, since one worked out at each scrape would move with the clock's corrections.
    last_commits: BTreeMap<u16, EventTime>,
}

impl Scrape {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topics that there are by now.
    fn sources(&self) -> Arc<Sources> {
        let read = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        read()
    }

    fn families(&self) -> Vec<Family> {
        let (state, sources) = (self.state().clone(), self.sources());
        let overview = self.watches.overview();
        let mut families = sources.constant.clone();
        families.extend(counters::families(self, &sources, &state.totals));
        families.extend(gauges::families(&sources, &state, &overview, (self.clock)().wall));
        // A generator may name a number of its own as one of ours is named; ours stays.
        let mut names = BTreeSet::new();
        families.retain(|family| names.insert(family.name().to_owned()));
        families
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").field("topics", &self.sources().topics).finish_non_exhaustive()
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

const RESTORE_SECONDS: [f64; 12] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

#[cfg(test)]
mod tests;
