//! The whole service in one process: a thread for each subtask, HTTP beside them, and the way to stop all of it.

mod admin;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::timeout;

use admin::AdminListener;

use crate::clock::{Clock, ReadNow};
use crate::config::{Config, Inputs};
use crate::event_time::{Now, PartitionId};
use crate::http::{AdminError, BindError, HttpState, Server};
use crate::insight::explain::{Cause, Standstill};
use crate::insight::{Phase, ReadTerms, RestoreCause, Snapshot, Tally, Watch, Watches, read_terms};
use crate::kafka::{self, Cluster, ConnectError};
use crate::metrics::{
    CommitOutcome, Metrics, MetricsError, MetricsInfo, RebalanceEvent, SubtaskMetrics,
};
use crate::pipeline::{Observer, Pipeline, PipelineError, RunUntil, Time};
pub use crate::stop::Stop;
use crate::watchdog::{Pace, Watchdog};

/// Why the service ended other than as asked.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// An end is to be found that no subtask can see.
    #[error(
        "service.subtasks: is {0}, but the end of the input can only be found by one subtask that reads all partitions; \
         write 1 to run to the end"
    )]
    EndOfSeveral(u16),
    /// The listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The listener for admin calls.
    #[error(transparent)]
    Admin(#[from] AdminError),
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
    /// A loop ended without saying why.
    #[error("a subtask's thread panicked")]
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
    watches: Watches,
    metrics: Metrics,
    address: std::net::SocketAddr,
    admin: Option<AdminListener>,
    stop: Stop,
    ends: Ends,
    shutdown_timeout: Duration,
}

impl Service {
    /// Starts listening and the subtasks' threads, each of which reaches the brokers in its own time.
    ///
    /// # Errors
    /// See [`ServiceError`]; an address in use is found here.
    pub fn start(config: &Config, cluster: Cluster, until: RunUntil) -> Result<Self, ServiceError> {
        if until == RunUntil::End && config.subtasks > 1 {
            return Err(ServiceError::EndOfSeveral(config.subtasks));
        }
        let (clock, watches) = (Clock::start(), Watches::new(config.subtasks));
        let info = MetricsInfo::new(config, kafka::librdkafka_version());
        let metrics = Metrics::new(&info, watches.clone(), clock.reader())?;
        let inputs = Inputs::new(config);
        if inputs.have_patterns() {
            metrics.follow(config.clone(), inputs.clone());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(ServiceError::Thread)?;
        let state = HttpState {
            metrics: metrics.clone(),
            watches: watches.clone(),
            clock: clock.reader(),
            terms: read_terms(config.clone(), inputs.clone()),
        };
        runtime.spawn(log_standstills(watches.clone(), Arc::clone(&state.terms), clock.reader()));
        let server = runtime.block_on(Server::bind(config.http.listen, state))?;
        let address = server.address();
        runtime.spawn(server.run(std::future::pending()));
        tracing::info!(%address, "listening");

        let stop = Stop::default();
        let listen =
            |admin| AdminListener::start(&runtime, admin, &metrics, &watches, clock, &stop);
        let admin = config.admin.as_ref().map(listen).transpose()?;
        let (end, ends) = mpsc::unbounded_channel();
        for number in 0..watches.count() {
            let subtask = Subtask {
                number,
                config: config.clone(),
                inputs: inputs.clone(),
                cluster,
                clock,
                watch: watches.of(number),
                stop: stop.clone(),
                metrics: metrics.clone(),
            };
            subtask.spawn(until, end.clone()).inspect_err(|_| stop.request())?;
        }
        Ok(Self {
            runtime,
            watch: watches.of(0),
            watches,
            metrics,
            address,
            admin,
            stop,
            ends,
            shutdown_timeout: config.shutdown_timeout,
        })
    }

    /// What the loop of the first subtask publishes.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// What they count.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// Where it listens for admin calls.
    pub fn admin_address(&self) -> Option<std::net::SocketAddr> {
        self.admin.as_ref().map(AdminListener::address)
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
        stop_on_signals(&self.runtime, &self.stop)
    }

    /// From now on a loop that stands still ends the process; see [`Watchdog`].
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub fn end_when_standing_still(&self) -> Result<(), ServiceError> {
        let watchdog = Watchdog::new(self.watches.clone(), Pace::default());
        watchdog.spawn().map_err(ServiceError::Thread)
    }

    /// Waits until it has ended: by itself, or within the shutdown timeout after it was asked to stop. When a subtask
    /// ends with an error, the others are asked to.
    ///
    /// # Errors
    /// See [`ServiceError`]; of several errors the first.
    pub fn wait(self) -> Result<(), ServiceError> {
        let Self { runtime, admin, stop, ends, shutdown_timeout, .. } = self;
        let outcome = runtime.block_on(outcome(ends, &stop, shutdown_timeout));
        if let Some(admin) = admin {
            admin.end(&runtime);
        }
        runtime.shutdown_background();
        outcome
    }
}

/// From now on SIGTERM and SIGINT ask for the stop; the second of them ends the process at once.
pub(crate) fn stop_on_signals(
    runtime: &tokio::runtime::Runtime,
    stop: &Stop,
) -> Result<(), ServiceError> {
    use tokio::signal::unix::{SignalKind, signal};
    let _context = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(ServiceError::Thread)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServiceError::Thread)?;
    let stop = stop.clone();
    runtime.spawn(async move {
        let mut asked = false;
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            if asked {
                tracing::warn!(signal = name, "second signal: ending at once");
                std::process::exit(AT_ONCE);
            }
            asked = true;
            tracing::info!(signal = name, "stopping: committing what is open");
            stop.request();
        }
    });
    Ok(())
}

/// Says in the log why the watermark stands still, as long as the service runs.
async fn log_standstills(watches: Watches, terms: ReadTerms, now: ReadNow) {
    let mut standstill = Standstill::default();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some((why, stood)) = standstill.look(&watches.overview(), &terms().explain, now()) {
            let cause = why.cause.map(Cause::name);
            let for_secs = stood.as_secs();
            tracing::warn!(cause, for_secs, "the watermark stands still: {}", why.sentence);
        }
    }
}

/// How each subtask ended; closed when all have.
type Ends = UnboundedReceiver<Result<(), ServiceError>>;

/// How the subtasks ended, all in all: waits for all of them, but not for longer than `patience` after the stop.
async fn outcome(mut ends: Ends, stop: &Stop, patience: Duration) -> Result<(), ServiceError> {
    let mut first = Ok(());
    tokio::select! {
        () = all_ended(&mut ends, &mut first) => return first,
        () = stop.asked() => {}
    }
    match timeout(patience, all_ended(&mut ends, &mut first)).await {
        Ok(()) => first,
        Err(_) => first.and(Err(ServiceError::ShutdownTimeout(patience))),
    }
}

/// Waits until all subtasks have ended, and keeps the first error.
async fn all_ended(ends: &mut Ends, first: &mut Result<(), ServiceError>) {
    while let Some(outcome) = ends.recv().await {
        if first.is_ok() {
            *first = outcome;
        }
    }
}

/// Runs the service until it is asked to stop or has reached the end.
///
/// # Errors
/// See [`ServiceError`].
pub fn run(config: &Config, until: RunUntil) -> Result<(), ServiceError> {
    let service = Service::start(config, Cluster::Brokers, until)?;
    service.stop_on_signals()?;
    service.end_when_standing_still()?;
    service.wait()
}

/// Everything a subtask's thread takes along.
struct Subtask {
    number: u16,
    config: Config,
    inputs: Inputs,
    cluster: Cluster,
    clock: Clock,
    watch: Watch,
    stop: Stop,
    metrics: Metrics,
}

impl Subtask {
    /// Starts the thread.
    fn spawn(
        self,
        until: RunUntil,
        end: UnboundedSender<Result<(), ServiceError>>,
    ) -> Result<(), ServiceError> {
        let (number, several, stop) = (self.number, self.config.subtasks > 1, self.stop.clone());
        let body = move || {
            // What the loop logs then says of which one it is.
            let _span = several.then(|| tracing::info_span!("subtask", number).entered());
            // Nobody waits any more if the process is ending anyway.
            end.send(see_off(&stop, several, || self.run(until))).unwrap_or_default();
        };
        let thread = std::thread::Builder::new().name(format!("subtask-{number}"));
        thread.spawn(body).map_err(ServiceError::Thread)?;
        Ok(())
    }

    fn run(self, until: RunUntil) -> Result<(), ServiceError> {
        let Self { number, config, inputs, cluster, clock, watch, stop, metrics } = self;
        let time = ServiceTime { clock, stop, waiting: Some(watch.clone()) };
        time.publish_starting();
        let (errors, metrics) = (metrics.clone(), metrics.of(number));
        let on_error = Arc::new(move |code: &str, fatal: bool| errors.kafka_error(code, fatal));
        let edges = kafka::connect(&config, &inputs, cluster, clock, number, &time, on_error)?;
        let Some(edges) = edges else { return Ok(()) };
        let time = ServiceTime { waiting: None, ..time };
        let outcome = Pipeline::new(&config, edges, metrics.clone(), time, watch, until).run();
        if outcome.is_err() {
            metrics.committed(Duration::ZERO, CommitOutcome::Failed);
        }
        Ok(outcome?)
    }
}

/// Runs a subtask to its end, a panic included; if it ends with an error, the others are asked to stop.
fn see_off(
    stop: &Stop,
    several: bool,
    run: impl FnOnce() -> Result<(), ServiceError>,
) -> Result<(), ServiceError> {
    // What it held is dropped by the panic, and nobody else has a part in it.
    let outcome = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(ServiceError::Panicked));
    if let Err(error) = &outcome {
        if several {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, "a subtask ended; stopping the others");
        }
        stop.request();
    }
    outcome
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
    fn draining(&self) -> bool {
        self.stop.draining()
    }
}

impl Observer for SubtaskMetrics {
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
    fn restored(&self, cause: RestoreCause, entries: usize, took: Duration) {
        Self::restored(self, cause, entries, took);
    }
    fn ticked(&self) {
        Self::ticked(self);
    }
}

/// The exit code after a second signal.
const AT_ONCE: i32 = 130;

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn failure() -> ServiceError {
        ServiceError::Pipeline(PipelineError::StoppedUncommitted)
    }

    /// The subtasks end like this, one after the other, while `running` more go on.
    async fn ended(
        outcomes: impl IntoIterator<Item = Result<(), ServiceError>>,
        running: usize,
        stop: &Stop,
        patience: Duration,
    ) -> Result<(), ServiceError> {
        let (end, ends) = mpsc::unbounded_channel();
        for outcome in outcomes {
            end.send(outcome).unwrap();
        }
        let _running: Vec<_> = (0..running).map(|_| end.clone()).collect();
        drop(end);
        outcome(ends, stop, patience).await
    }

    #[tokio::test]
    async fn the_first_error_is_how_the_service_ended() {
        let stop = Stop::default();
        assert!(ended([Ok(()), Ok(())], 0, &stop, LONG).await.is_ok());
        let outcomes = [Ok(()), Err(failure()), Err(ServiceError::Panicked)];
        let outcome = ended(outcomes, 0, &stop, LONG).await;
        assert!(matches!(outcome, Err(ServiceError::Pipeline(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_stop_waits_for_all_but_not_for_ever() {
        let (stop, soon) = (Stop::default(), Duration::from_millis(5));
        stop.request();
        let outcome = ended([Ok(())], 1, &stop, soon).await;
        assert!(matches!(outcome, Err(ServiceError::ShutdownTimeout(_))), "{outcome:?}");
        stop.request();
        let outcome = ended([Err(failure())], 1, &stop, soon).await;
        assert!(matches!(outcome, Err(ServiceError::Pipeline(_))), "{outcome:?}");
    }

    #[test]
    fn an_error_or_a_panic_of_one_stops_the_others() {
        let stopped = |run: fn() -> Result<(), ServiceError>| {
            let stop = Stop::default();
            let outcome = std::thread::scope(|scope| {
                scope.spawn(|| see_off(&stop, true, run)).join().unwrap()
            });
            (outcome.map_err(|error| error.to_string()), stop.requested())
        };
        assert_eq!(stopped(|| Ok(())), (Ok(()), false));
        assert_eq!(stopped(|| Err(failure())), (Err(failure().to_string()), true));
        let panicked = ServiceError::Panicked.to_string();
        assert_eq!(stopped(|| panic!("as a test does")), (Err(panicked), true));
    }
}
