//! One process of the service, and what it has said.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::evidence::Evidence;
use crate::support::process::Tidegate;

/// A process, from its start to its end.
pub(crate) struct Instance {
    /// Its slot and its number among all processes of the run.
    pub(crate) name: String,
    pub(crate) state: State,
    /// It was given another's name, or stood still for longer than its session: it may find that it was replaced.
    pub(crate) may_be_replaced: bool,
    process: Tidegate,
    /// As of the last look.
    metrics: Metrics,
    restores: u64,
    log: PathBuf,
}

/// What was done to it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// It stands still.
    Stalled,
    /// It was asked to end.
    Stopping,
    Killed,
}

impl Instance {
    /// Starts it; its log is written to this folder when it has ended.
    pub(crate) fn start(name: String, config: &str, arguments: &[&str], logs: &Path) -> Self {
        Self {
            process: Tidegate::run(config, arguments),
            log: logs.join(format!("{name}.log")),
            name,
            state: State::Running,
            may_be_replaced: false,
            metrics: Metrics::default(),
            restores: 0,
        }
    }

    pub(crate) fn signal(&mut self, name: &str, state: State) {
        self.process.signal(name);
        self.state = state;
    }

    /// Its exit status, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait()
    }

    /// Looks at its metrics, unless it cannot answer.
    pub(crate) fn look(&mut self) {
        if self.state == State::Stalled {
            return;
        }
        let Some(text) = self.process.try_get("/metrics", PATIENCE) else { return };
        let metrics = Metrics::of(&text);
        let entries = |metrics: &Metrics| metrics.sum("tidegate_restored_entries_total", "");
        self.restores += u64::from(entries(&metrics) > entries(&self.metrics));
        self.metrics = metrics;
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let count = |family, label| -> u64 {
            format!("{:.0}", self.metrics.sum(family, label)).parse().unwrap()
        };
        Evidence {
            aborted: count("tidegate_transactions_total", "outcome=\"aborted\""),
            fenced: 0,
            lost: count("tidegate_rebalances_total", "event=\"lost\""),
            restores: self.restores,
            entries: count("tidegate_restored_entries_total", ""),
            late: count("tidegate_late_records_total", "disposition=\"late_topic\""),
        }
    }

    /// Everything it has logged.
    pub(crate) fn log(&mut self) -> String {
        self.process.log()
    }

    /// The end of it, for people.
    pub(crate) fn tail(&mut self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        format!(
            "{} ({:?}), the end of {}:\n{}\n{}",
            self.name,
            self.state,
            self.log.display(),
            tail.join("\n"),
            self.process.threads()
        )
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Of use to people only.
        drop(fs::write(&self.log, self.process.log()));
    }
}

/// The numbers of one look, by series.
#[derive(Debug, Default)]
pub(crate) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn of(text: &str) -> Self {
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let series = series.filter_map(|line| line.rsplit_once(' '));
        Self(
            series
                .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
                .collect(),
        )
    }

    /// The series of a family, by their labels.
    fn family<'a>(&'a self, family: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(series, value)| {
            let labels = series.strip_prefix(family)?;
            labels
                .is_empty()
                .then_some((labels, *value))
                .or_else(|| labels.starts_with('{').then_some((labels, *value)))
        })
    }

    /// The sum over all series of a family with this in their labels.
    pub(crate) fn sum(&self, family: &str, label: &str) -> f64 {
        let series = self.family(family).filter(|(labels, _)| labels.contains(label));
        series.fold(0.0, |sum, (_, value)| sum + value)
    }

    /// A family by partition.
    pub(crate) fn by_partition(&self, family: &str) -> BTreeMap<i32, f64> {
        let of =
            |labels: &str| labels.split_once("partition=\"")?.1.split_once('"')?.0.parse().ok();
        self.family(family).filter_map(|(labels, value)| Some((of(labels)?, value))).collect()
    }
}

const PATIENCE: Duration = Duration::from_millis(500);
const TAIL_LINES: usize = 25;
