//! The whole service in one process: the subtask's thread, HTTP beside it, and the way to stop both.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::config::Config;
use crate::event_time::{Now, PartitionId};
use crate::http::{BindError, HttpState, Server};
use crate::insight::{Phase, Snapshot, Tally, Watch};
use crate::kafka::{self, Cluster, ConnectError};
use crate::metrics::{CommitOutcome, Metrics, MetricsError, MetricsInfo, RebalanceEvent};
use crate::pipeline::{Observer, Pipeline, PipelineError, RunUntil, Time};

/// Why the service ended other than as asked.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The metrics.
    #[error("the metrics cannot be registered")]
    Metrics(#[from] MetricsError),
    /// Threads.
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
    /// The cluster.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The loop.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The loop ended without saying why.
    #[error("the subtask's thread panicked")]
    Panicked,
    /// The stop took longer than it may.
    #[error(
        "the stop took longer than service.shutdown_timeout ({0:?}); what was not committed is read again"
    )]
    ShutdownTimeout(Duration),
}

/// A running service.
#[derive(Debug)]
pub struct Service {
    runtime: tokio::runtime::Runtime,
    watch: Watch,
    metrics: Metrics,
    address: std::net::SocketAddr,
    stop: Stop,
    ended: oneshot::Receiver<Result<(), ServiceError>>,
    shutdown_timeout: Duration,
}

impl Service {
    /// Starts listening and the subtask's thread, which reaches the brokers in its own time.
    ///
    /// # Errors
    /// See [`ServiceError`]; an address in use is found here.
    pub fn start(config: &Config, cluster: Cluster, until: RunUntil) -> Result<Self, ServiceError> {
        let (clock, watch, stop) = (Clock::start(), Watch::default(), Stop::default());
        let info = MetricsInfo::new(config, SUBTASK, kafka::librdkafka_version());
        let metrics = Metrics::new(&info, watch.clone(), clock.reader())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(ServiceError::Thread)?;
        let state = HttpState {
            metrics: metrics.clone(),
            watch: watch.clone(),
            clock: clock.reader(),
            topics: config.sources.iter().map(|source| source.topic.clone()).collect(),
        };
        let server = runtime.block_on(Server::bind(config.http.listen, state))?;
        let address = server.address();
        runtime.spawn(server.run(std::future::pending()));
        tracing::info!(%address, "listening");

        let (end, ended) = oneshot::channel();
        let subtask = Subtask {
            config: config.clone(),
            cluster,
            clock,
            watch: watch.clone(),
            stop: stop.clone(),
            metrics: metrics.clone(),
        };
        std::thread::Builder::new()
            .name(format!("subtask-{SUBTASK}"))
            .spawn(move || {
                // Nobody waits any more if the process is ending anyway.
                end.send(subtask.run(until)).unwrap_or_default();
            })
            .map_err(ServiceError::Thread)?;
        Ok(Self {
            runtime,
            watch,
            metrics,
            address,
            stop,
            ended,
            shutdown_timeout: config.shutdown_timeout,
        })
    }

    /// What the loop publishes.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// Asks it to stop.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// From now on SIGTERM and SIGINT stop the service cleanly; the second of them ends the process at once.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn stop_on_signals(&self) -> Result<(), ServiceError> {
        use tokio::signal::unix::{SignalKind, signal};
        let _context = self.runtime.enter();
        let mut terminate = signal(SignalKind::terminate()).map_err(ServiceError::Thread)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServiceError::Thread)?;
        let stop = self.stop.clone();
        self.runtime.spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                if stop.requested() {
                    tracing::warn!(signal = name, "second signal: ending at once");
                    std::process::exit(AT_ONCE);
                }
                tracing::info!(signal = name, "stopping: committing what is open");
                stop.request();
            }
        });
        Ok(())
    }

    /// Waits until it has ended: by itself, or within the shutdown timeout after it was asked to stop.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub fn wait(self) -> Result<(), ServiceError> {
        let Self { runtime, stop, mut ended, shutdown_timeout, .. } = self;
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = &mut ended => return outcome.unwrap_or(Err(ServiceError::Panicked)),
                () = stop.asked() => {}
            }
            match tokio::time::timeout(shutdown_timeout, ended).await {
                Ok(outcome) => outcome.unwrap_or(Err(ServiceError::Panicked)),
                Err(_) => Err(ServiceError::ShutdownTimeout(shutdown_timeout)),
            }
        });
        runtime.shutdown_background();
        outcome
    }
}

/// Runs the service until it is asked to stop or has reached the end.
///
/// # Errors
/// See [`ServiceError`].
pub fn run(config: &Config, until: RunUntil) -> Result<(), ServiceError> {
    let service = Service::start(config, Cluster::Brokers, until)?;
    service.stop_on_signals()?;
    service.wait()
}

/// Asks the service to stop; clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    requested: Mutex<bool>,
    thread: Condvar,
    task: tokio::sync::Notify,
}

impl Stop {
    /// Asks.
    pub fn request(&self) {
        *self.0.requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.thread.notify_all();
        self.0.task.notify_one();
    }

    /// Whether somebody has asked.
    pub fn requested(&self) -> bool {
        *self.0.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits this long, or until somebody asks.
    pub fn wait(&self, duration: Duration) {
        let requested = self.0.requested.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.thread.wait_timeout_while(requested, duration, |requested| !*requested));
    }

    async fn asked(&self) {
        self.0.task.notified().await;
    }
}

/// Everything the subtask's thread takes along.
struct Subtask {
    config: Config,
    cluster: Cluster,
    clock: Clock,
    watch: Watch,
    stop: Stop,
    metrics: Metrics,
}

impl Subtask {
    fn run(self, until: RunUntil) -> Result<(), ServiceError> {
        let Self { config, cluster, clock, watch, stop, metrics } = self;
        let time = ServiceTime { clock, stop, waiting: Some(watch.clone()) };
        time.publish_starting();
        let errors = metrics.clone();
        let on_error = Arc::new(move |code: &str, fatal: bool| errors.kafka_error(code, fatal));
        let Some((source, sink)) =
            kafka::connect(&config, cluster, clock, SUBTASK, &time, on_error)?
        else {
            return Ok(());
        };
        let time = ServiceTime { waiting: None, ..time };
        let outcome =
            Pipeline::new(&config, source, sink, metrics.clone(), time, watch, until).run();
        if outcome.is_err() {
            metrics.committed(Duration::ZERO, CommitOutcome::Failed);
        }
        Ok(outcome?)
    }
}

/// The clocks and the stop, as the loop sees them.
struct ServiceTime {
    clock: Clock,
    stop: Stop,
    /// Before the loop runs, a wait tells that the thread is alive.
    waiting: Option<Watch>,
}

impl ServiceTime {
    fn publish_starting(&self) {
        if let Some(watch) = &self.waiting {
            let taken = Some(self.clock.monotonic());
            watch.publish(Snapshot { taken, phase: Phase::Starting, ..Snapshot::default() });
        }
    }
}

impl Time for ServiceTime {
    fn now(&self) -> Now {
        self.clock.now()
    }
    fn wait(&self, duration: Duration) {
        self.publish_starting();
        self.stop.wait(duration);
    }
    fn stopping(&self) -> bool {
        self.stop.requested()
    }
}

impl Observer for Metrics {
    fn assigned(&self, partitions: &[PartitionId]) {
        for id in partitions {
            Self::assigned(self, *id);
        }
        self.rebalanced(RebalanceEvent::Assign);
    }
    fn revoked(&self, partitions: &[PartitionId]) {
        for id in partitions {
            Self::revoked(self, *id);
        }
        self.rebalanced(RebalanceEvent::Revoke);
    }
    fn lost(&self, partitions: &[PartitionId]) {
        for id in partitions {
            Self::revoked(self, *id);
        }
        self.rebalanced(RebalanceEvent::Lost);
    }
    fn committed(&self, tally: &Tally, took: Duration) {
        self.add(tally);
        Self::committed(self, took, CommitOutcome::Committed);
    }
    fn aborted(&self, took: Duration) {
        Self::committed(self, took, CommitOutcome::Aborted);
    }
    fn ticked(&self) {
        Self::ticked(self);
    }
}

/// The one subtask of this process.
const SUBTASK: u16 = 0;

/// The exit code after a second signal.
const AT_ONCE: i32 = 130;
