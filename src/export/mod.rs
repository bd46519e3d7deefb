//! The results topic as a table of a PostgreSQL database: each window and key with its last pane.
//!
//! Rows and the offsets that they were read at are written in one transaction of the database, and reading goes on at the
//! offsets in the database, so each result has its effect exactly once. A batch is written only if the offsets are still
//! those that it began at; what another exporter has written in the meantime wins. Whatever fails, there is one way back:
//! forget the batch, connect anew, read the offsets, and read on from there.

mod batch;
mod database;
mod exporter;
mod failure;
mod row;
mod schema;
mod table;
mod tls;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::config::{Config, PostgresExport};
use crate::event_time::Now;
use crate::http::{BindError, ExportState, Server};
use crate::insight::ExportWatch;
use crate::kafka::{ConnectError, read_results};
use crate::metrics::{ExportMetrics, MetricsError};
use crate::pipeline::{RunUntil, Time};
use crate::service::{ServiceError, Stop, stop_on_signals};

use database::Database;
use exporter::Exporter;
use table::Layout;

/// Why the export ended other than as asked.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Threads and signals.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The metrics.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The cluster.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Reading cannot go on.
    #[error("reading the results failed: {0}")]
    Source(String),
    /// Writing cannot go on.
    #[error("the database refuses: {0}")]
    Database(String),
    /// `--until-end` needs the whole topic.
    #[error(
        "--until-end needs all partitions of the results, and other members of the group {group} have {missing} of \
         {all}; stop those, or set export.postgres.group_id"
    )]
    NotAllPartitions {
        /// The group.
        group: String,
        /// Partitions that are elsewhere.
        missing: usize,
        /// Partitions that there are.
        all: usize,
    },
}

/// The SQL that makes the tables.
pub fn show_sql(config: &Config, export: &PostgresExport) -> String {
    let layout = Layout::new(config, export);
    format!("{};\n{};", layout.create_table(), layout.create_offsets_table())
}

/// Exports results until it is asked to stop (SIGTERM, SIGINT) or has come to the end of the topic.
///
/// # Errors
/// What waiting does not mend: see [`ExportError`].
pub fn run(config: &Config, export: &PostgresExport, until: RunUntil) -> Result<(), ExportError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(ServiceError::Thread)?;
    let runtime = Arc::new(runtime);
    let stop = Stop::default();
    stop_on_signals(&runtime, &stop)?;
    runtime.spawn(end_in_time(stop.clone(), config.shutdown_timeout));
    let time = ExportTime { clock: Clock::start(), stop };
    let watch = ExportWatch::default();
    if let Some(address) = export.listen {
        let metrics = ExportMetrics::new(watch.clone())?;
        let state = ExportState { metrics, watch: watch.clone(), clock: time.clock.reader() };
        let server = runtime.block_on(Server::bind_export(address, state))?;
        tracing::info!(address = %server.address(), "listening");
        runtime.spawn(server.run(std::future::pending()));
    }
    let topic = config.results.topic.clone();
    let layout = Layout::new(config, export);
    let database = Database::new(runtime, export.clone(), layout.clone(), topic);
    let must_exist = until == RunUntil::End;
    let Some(source) = read_results(config, &export.group_id, time.clock, &time, must_exist)?
    else {
        return Ok(());
    };
    Exporter::new(export, layout, &source, database, time, watch, until).run()
}

/// Leaving the group may wait for brokers that are away; what is not in the database is read again anyway.
async fn end_in_time(stop: Stop, patience: Duration) {
    stop.asked().await;
    tokio::time::timeout(patience, std::future::pending::<()>()).await.unwrap_or_default();
    let error = ServiceError::ShutdownTimeout(patience);
    tracing::error!(error = &error as &dyn std::error::Error, "the export ended");
    std::process::exit(1);
}

/// The clocks and the stop, as the loop sees them.
#[derive(Debug)]
struct ExportTime {
    clock: Clock,
    stop: Stop,
}

impl Time for ExportTime {
    fn now(&self) -> Now {
        self.clock.now()
    }
    fn wait(&self, duration: Duration) {
        self.stop.wait(duration);
    }
    fn stopping(&self) -> bool {
        self.stop.requested()
    }
}
