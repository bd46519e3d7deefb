//! The series of an export.

use std::fmt;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};

use super::MetricsError;
use super::family::{Family, count, flag, offset, size, timestamp};
use crate::insight::{ExportProgress, ExportWatch};

/// The metrics of an exporter; clones share them.
#[derive(Clone)]
pub struct ExportMetrics {
    pub(super) registry: Registry,
}

impl ExportMetrics {
    /// Shows what the loop publishes.
    ///
    /// # Errors
    /// A fault of this program.
    pub fn new(watch: ExportWatch) -> Result<Self, MetricsError> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        registry.register(Box::new(Watched(watch)))?;
        Ok(Self { registry })
    }

    /// All series as text; reading them changes none.
    ///
    /// # Errors
    /// A fault of this program.
    pub fn render(&self) -> Result<String, MetricsError> {
        Ok(TextEncoder::new().encode_to_string(&self.registry.gather())?)
    }
}

impl fmt::Debug for ExportMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportMetrics").finish_non_exhaustive()
    }
}

struct Watched(ExportWatch);

impl Collector for Watched {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        families(&self.0.newest()).into_iter().map(Family::into_proto).collect()
    }
}

fn families(progress: &ExportProgress) -> Vec<Family> {
    let mut records = Family::counter("tidegate_export_records_total", "Records read, by kind.");
    for (kind, records_of_it) in [
        ("result", progress.results),
        ("tombstone", progress.tombstones),
        ("progress", progress.progress),
        ("unreadable", progress.unreadable),
        ("missing", progress.missing),
    ] {
        records.push(&[("kind", kind)], count(records_of_it));
    }
    let mut batches = Family::counter("tidegate_export_batches_total", "Batches, by outcome.");
    for (outcome, batches_of_it) in [("written", progress.written), ("moved_on", progress.moved_on)]
    {
        batches.push(&[("outcome", outcome)], count(batches_of_it));
    }
    let counter = |name: &str, help, value| Family::counter(name, help).with(&[], count(value));
    let gauge = |name: &str, help, value: Option<f64>| Family::gauge(name, help).with(&[], value);
    vec![
        records,
        batches,
        counter("tidegate_export_rows_total", "Rows written.", progress.rows),
        counter(
            "tidegate_export_database_failures_total",
            "Times the database did not answer.",
            progress.failures,
        ),
        gauge(
            "tidegate_export_lag_records",
            "Offsets of the results topic not read yet.",
            progress.lag.map(offset),
        ),
        gauge(
            "tidegate_export_partitions",
            "Partitions that are read.",
            Some(size(progress.partitions)),
        ),
        gauge(
            "tidegate_export_database_connected",
            "Whether the database answered when it was last asked.",
            Some(flag(progress.connected)),
        ),
        gauge(
            "tidegate_export_last_write_timestamp_seconds",
            "When a batch was last written.",
            progress.last_write.map(timestamp),
        ),
    ]
}
