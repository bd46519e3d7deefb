//! What one subtask tells the metrics. Counters of all subtasks add up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{CommitOutcome, Metrics, RebalanceEvent};
use crate::event_time::PartitionId;
use crate::insight::{RestoreCause, Tally};

/// The metrics of a process, as one of its subtasks writes to them.
#[derive(Clone, Debug)]
pub struct SubtaskMetrics {
    metrics: Metrics,
    subtask: u16,
}

impl SubtaskMetrics {
    pub(super) fn new(metrics: Metrics, subtask: u16) -> Self {
        Self { metrics, subtask }
    }

    /// A partition came: its counters exist from now on, its gauges once a snapshot of this subtask has it.
    pub fn assigned(&self, partition: PartitionId) {
        let mut state = self.metrics.scrape.state();
        state.owners.insert(partition, self.subtask);
        state.totals.create(partition);
    }

    /// A partition went: its gauges are gone, unless another subtask has it by now. Its counters stay.
    pub fn revoked(&self, partition: PartitionId) {
        let mut state = self.metrics.scrape.state();
        if state.owners.get(&partition) == Some(&self.subtask) {
            state.owners.remove(&partition);
        }
    }

    /// The loop emitted its watermarks once more.
    pub fn ticked(&self) {
        if let Some(ticks) = self.metrics.scrape.ticks.get(usize::from(self.subtask)) {
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What became of the records of a commit that has ended.
    pub fn add(&self, tally: &Tally) {
        let wall = (self.metrics.scrape.clock)().wall;
        self.metrics.scrape.state().totals.add(tally, wall);
    }

    /// A commit of results and offsets ended: a Kafka transaction, or what stands for it at least once.
    pub fn committed(&self, took: Duration, outcome: CommitOutcome) {
        self.metrics.transaction_duration.observe(took.as_secs_f64());
        let wall = (self.metrics.scrape.clock)().wall;
        let mut state = self.metrics.scrape.state();
        state.totals.commit(outcome);
        if outcome == CommitOutcome::Committed {
            state.last_commits.insert(self.subtask, wall);
        }
    }

    /// State was read back: so many entries of open windows.
    pub fn restored(&self, cause: RestoreCause, entries: usize, took: Duration) {
        self.metrics.restore_duration.observe(took.as_secs_f64());
        self.metrics.scrape.state().totals.restore(self.subtask, cause, entries);
    }

    /// The group gave or took partitions.
    pub fn rebalanced(&self, event: RebalanceEvent) {
        self.metrics.scrape.state().totals.rebalance(event);
    }
}
