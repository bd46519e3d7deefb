//! The loop: poll, decode, judge, send, commit. One plain thread owns everything that it changes.
//!
//! The schedule is all that is decided here: the emit tick, when to commit, what to do when reading or writing fails,
//! and how to end. What happens to a record is in `engine`, the ways in and out are behind [`Source`] and
//! [`TransactionalSink`].

mod alignment;
mod assignment;
mod commit;
mod edge;
mod engine;
mod heirs;
mod history;
mod judge;
mod membership;
mod message;
mod reading;
mod recovery;
mod rehearsal;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use commit::{InDoubt, Undo};
pub use edge::{
    Changelog, ChangelogEvent, CommitMark, CommittedOffset, Edges, Ends, InputRecord, NextOffsets,
    Observer, Polled, Progress, SinkError, Source, SourceError, Time, TransactionalSink,
};
use engine::{Delivered, Engine, FIRING_PER_TRANSACTION};
use membership::Membership;
pub use message::{Header, Message, OutputTopic, TopicLimits};
pub(crate) use recovery::changelog_of_all;
use recovery::{Recovery, Terms};
pub use rehearsal::{Rehearsal, Rehearsed, rehearse};

use crate::codec::changelog::ShardWriter;
use crate::config::Config;
use crate::event_time::{MonotonicTime, Now, PartitionId, ShardId, Sharding};
use crate::insight::{Phase, RestoreCause, RestoringPartition, Watch};

/// Why the service ended other than as asked.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// Reading cannot go on.
    #[error("reading the input failed: {0}")]
    Source(String),
    /// Writing cannot go on.
    #[error("writing the output failed: {0}")]
    Sink(String),
    /// The state of before cannot be gone on from.
    #[error("the window state cannot be restored: {0}")]
    State(String),
    /// Another member of the group has partitions that this instance needs.
    #[error(
        "for {waited:?} other members of the group have had partitions of the input; with fields as the key, or several \
         topics, one instance has to read all of them: stop the others, or set key.partial"
    )]
    PartitionsElsewhere {
        /// For how long.
        waited: Duration,
    },
    /// A stop that could not wait for the brokers.
    #[error(
        "stopped without the last commit, since the brokers did not take it; what it held is read again by the next start"
    )]
    StoppedUncommitted,
    /// `--until-end` needs the whole input.
    #[error(
        "--until-end needs all partitions of the input, but {missing} of {all} are assigned to other members of the \
         group; stop those, or use a group of its own"
    )]
    NotAllPartitions {
        /// Partitions that are elsewhere.
        missing: usize,
        /// Partitions that there are.
        all: usize,
    },
}

/// How the loop is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunUntil {
    /// When it is asked to: commit, and leave windows open for the next start.
    Stopped,
    /// At the end of the input as it is at the first complete assignment: fire what is open, commit.
    End,
}

/// The loop of one subtask.
#[derive(Debug)]
pub struct Pipeline<S, K, C, O, T> {
    source: S,
    changelog: C,
    engine: Engine<K>,
    observer: O,
    time: T,
    watch: Watch,
    schedule: Schedule,
    until: RunUntil,
    terms: Terms,
    membership: Membership,
    /// The last stable offsets at the first assignment, when the end is to be found.
    ends: Option<Ends>,
    progress: BTreeMap<PartitionId, Progress>,
    /// One for each shard that is at work.
    writers: BTreeMap<ShardId, ShardWriter>,
    /// Partitions that are ours and wait for their state.
    arrivals: BTreeSet<PartitionId>,
    /// Partitions whose state is on its way.
    recovery: Option<Recovery>,
    restore_cause: RestoreCause,
    undo: Undo,
    in_doubt: Option<InDoubt>,
    joined: bool,
    /// State was there once.
    has_run: bool,
    /// A commit is to be made as soon as one may be.
    commit_at_once: bool,
    /// Transactions aborted since the last commit.
    aborts: u32,
    /// State is not asked for before this time.
    not_before: MonotonicTime,
    /// A call on the way back to state has failed, and is made again at this time.
    retry_at: MonotonicTime,
    /// The pause after the next failure.
    retry_after: Duration,
    blocked_by: Option<String>,
    /// Since when a write has been tried in vain.
    write_blocked_since: Option<MonotonicTime>,
    /// How many partitions the input has, once a drain has looked.
    input_partitions: Option<usize>,
}

/// When things are due.
#[derive(Debug)]
struct Schedule {
    emit_interval: Duration,
    /// How much event time partitions may be read ahead.
    max_drift: Option<Duration>,
    commit_interval: Duration,
    transaction_timeout: Duration,
    last_turn: MonotonicTime,
    last_emit: MonotonicTime,
    last_commit: MonotonicTime,
    committed_once: Option<MonotonicTime>,
}

/// What a turn of the loop came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Go on.
    Continue,
    /// The input's end was reached, everything is fired and committed.
    Ended,
}

impl<S: Source, K: TransactionalSink, C: Changelog, O: Observer, T: Time> Pipeline<S, K, C, O, T> {
    /// A pipeline that has not read anything yet.
    pub fn new(
        config: &Config,
        edges: Edges<S, K, C>,
        observer: O,
        time: T,
        watch: Watch,
        until: RunUntil,
    ) -> Self {
        let now = time.now().monotonic;
        let Edges { source, sink, changelog } = edges;
        let engine = Engine::new(config, sink);
        let needs_all = config.key.needs_all_partitions();
        Self {
            source,
            changelog,
            terms: Terms::new(config, engine.subtask.window_settings().clone()),
            engine,
            observer,
            watch,
            schedule: Schedule {
                emit_interval: if config.emit_interval.is_zero() {
                    SILENCE_CHECK
                } else {
                    config.emit_interval
                },
                max_drift: config.max_drift,
                commit_interval: config.delivery.commit_interval,
                transaction_timeout: config.delivery.transaction_timeout,
                last_turn: now,
                last_emit: now,
                last_commit: now,
                committed_once: None,
            },
            time,
            until,
            membership: Membership::new(
                needs_all,
                config.kafka.session_timeout(),
                &config.kafka.instance_id,
            ),
            ends: None,
            progress: BTreeMap::new(),
            writers: BTreeMap::new(),
            arrivals: BTreeSet::new(),
            recovery: None,
            restore_cause: RestoreCause::Assigned,
            undo: Undo::default(),
            in_doubt: None,
            joined: false,
            has_run: false,
            commit_at_once: false,
            aborts: 0,
            not_before: MonotonicTime::default(),
            retry_at: MonotonicTime::default(),
            retry_after: RETRY_AFTER,
            blocked_by: None,
            write_blocked_since: None,
            input_partitions: None,
        }
    }

    /// Runs until it is asked to stop or the end is reached, then commits and leaves the group.
    ///
    /// # Errors
    /// See [`PipelineError`]. What was not committed is read again by the next start.
    pub fn run(&mut self) -> Result<(), PipelineError> {
        let outcome = self.run_to_the_end();
        self.publish(Phase::Stopped);
        self.source.close();
        outcome
    }

    fn run_to_the_end(&mut self) -> Result<(), PipelineError> {
        self.publish(Phase::Starting);
        while !self.time.stopping() {
            if self.turn()? == Turn::Ended {
                return Ok(());
            }
        }
        self.publish(Phase::Stopping);
        self.commit()?;
        // What could not be committed is undone, so that nobody has to wait for the broker to do it.
        if self.undo.abort && self.engine.sink.abort().is_err() {
            return Err(PipelineError::StoppedUncommitted);
        }
        Ok(())
    }

    /// One turn: a tick if it is due, a step towards state that is missing, a batch of records, a commit if it is due.
    ///
    /// # Errors
    /// See [`PipelineError`].
    pub fn turn(&mut self) -> Result<Turn, PipelineError> {
        let now = self.time.now();
        // What the loop could not see is not silence: commits, restores, a suspended machine.
        let elapsed = now.monotonic.since(self.schedule.last_turn).min(self.schedule.emit_interval);
        self.schedule.last_turn = now.monotonic;
        self.engine.subtask.run_idle_clocks(elapsed);
        if now.monotonic.since(self.schedule.last_emit) >= self.schedule.emit_interval {
            self.tick(now)?;
            if (self.reached_the_end() || self.is_to_drain()) && self.drain()? {
                return Ok(Turn::Ended);
            }
        }
        if !self.take_part(now.monotonic)? {
            self.publish(self.phase());
            self.time.wait(self.schedule.emit_interval);
            return Ok(Turn::Continue);
        }
        let mut timeout = self.bring_back(now)?.min(self.until_next_deadline(now.monotonic));
        for _ in 0..RECORDS_PER_TURN {
            if !self.poll(timeout, now)? {
                break;
            }
            timeout = Duration::ZERO;
        }
        if self.commit_is_due(self.time.now().monotonic) {
            self.commit()?;
        }
        Ok(Turn::Continue)
    }

    fn tick(&mut self, now: Now) -> Result<(), PipelineError> {
        self.schedule.last_emit = now.monotonic;
        self.progress = self.source.progress(now.monotonic);
        self.engine.on_periodic_emit(now, &self.progress);
        self.deliver(now)?;
        self.align(now.monotonic)?;
        self.observer.ticked();
        self.publish(self.phase());
        Ok(())
    }

    /// Takes in what the next poll brings. Whether it was a record.
    fn poll(&mut self, timeout: Duration, now: Now) -> Result<bool, PipelineError> {
        let engine = &mut self.engine;
        let polled = self
            .source
            .poll(timeout)
            .map(|polled| polled.map(|record| engine.on_record(&record, now)));
        match polled {
            Ok(Polled::Record(())) => {
                self.deliver(now)?;
                return Ok(true);
            }
            Ok(Polled::Nothing) => {}
            Ok(Polled::Assigned(partitions)) => self.assigned(&partitions)?,
            Ok(Polled::Revoking(partitions)) => self.revoking(&partitions)?,
            Ok(Polled::Lost(partitions)) => self.lost(&partitions)?,
            Ok(Polled::Missing(records)) => self.count_missing(&records),
            Err(SourceError::Retry(cause)) => {
                self.blocked(&cause, RETRY_AFTER);
                // So that a tick in between does not say otherwise.
                self.blocked_by = Some(cause);
            }
            Err(SourceError::Fatal(cause)) => return Err(PipelineError::Source(cause)),
        }
        Ok(false)
    }

    /// Sends what the core has to say; a large firing in slices, with a commit after each.
    fn deliver(&mut self, now: Now) -> Result<(), PipelineError> {
        loop {
            match self.write(|engine| engine.deliver(now))? {
                None | Some(Delivered::All) => return Ok(()),
                Some(Delivered::Slice) => {
                    let since = self.time.now().monotonic.since(self.schedule.last_commit);
                    if self.engine.is_full() || since > FIRING_PER_TRANSACTION {
                        self.commit()?;
                    }
                    self.publish(self.phase());
                }
            }
        }
    }

    fn reached_the_end(&self) -> bool {
        let Some(ends) = &self.ends else { return false };
        ends.keys().all(|id| self.has_ended(*id))
    }

    /// Whether a partition has been read up to where the input is to end.
    fn has_ended(&self, id: PartitionId) -> bool {
        let ends = self.ends.as_ref().and_then(|ends| ends.get(&id));
        let progress = self.progress.get(&id);
        ends.zip(progress).is_some_and(|((beginning, end), progress)| {
            beginning == end || progress.position >= *end
        })
    }

    /// Whether a drain was asked for and nothing is missing that it has to fire: partitions that are on their way bring open
    /// windows along. One that stands by has nothing to fire.
    fn is_to_drain(&self) -> bool {
        if !self.time.draining() {
            return false;
        }
        let settled = self.arrivals.is_empty() && self.recovery.is_none() && !self.undo.abort;
        self.membership.standby().is_some() || (self.joined && settled)
    }

    /// Fires everything that is open and commits it. Whether that is done; if not, it is all read once more.
    fn drain(&mut self) -> Result<bool, PipelineError> {
        if self.ends.is_none() && self.input_partitions.is_none() {
            let Some(all) = self.ask(S::partitions)? else { return Ok(false) };
            self.input_partitions = Some(all.len());
        }
        self.publish(Phase::Draining);
        let windows = self.engine.subtask.open_window_count();
        let partitions = self.engine.subtask.partitions().count();
        tracing::info!(
            windows,
            partitions,
            of = self.input_partitions,
            "draining: firing what is open in the partitions that are read here"
        );
        self.engine.subtask.drain();
        self.deliver(self.time.now())?;
        if self.commit()? {
            return Ok(true);
        }
        if self.time.stopping() {
            return Err(PipelineError::StoppedUncommitted);
        }
        Ok(false)
    }

    fn until_next_deadline(&self, now: MonotonicTime) -> Duration {
        let schedule = &self.schedule;
        let until =
            |last: MonotonicTime, interval: Duration| interval.saturating_sub(now.since(last));
        let emit = until(schedule.last_emit, schedule.emit_interval);
        let soon = self.engine.fired_on_time || self.commit_at_once;
        let commit = if soon { COMMIT_AT_MOST_EVERY } else { schedule.commit_interval };
        emit.min(until(schedule.last_commit, commit)).max(Duration::from_millis(1))
    }

    fn commit_is_due(&self, now: MonotonicTime) -> bool {
        let since = now.since(self.schedule.last_commit);
        let soon = self.engine.fired_on_time || self.commit_at_once;
        self.engine.is_full()
            || since >= self.schedule.commit_interval
            || (soon && since >= COMMIT_AT_MOST_EVERY)
    }

    fn blocked(&self, cause: &str, wait: Duration) {
        tracing::warn!(cause, "waiting for the brokers");
        self.publish(if self.joined { Phase::Blocked(cause.to_owned()) } else { Phase::Starting });
        self.time.wait(wait);
    }

    fn publish(&self, phase: Phase) {
        let now = self.time.now().monotonic;
        let mut snapshot =
            self.engine.snapshot(phase, now, &self.progress, self.schedule.committed_once);
        snapshot.restoring = self.restoring();
        snapshot.write_blocked_since = self.write_blocked_since;
        snapshot.input_partitions = self.input_partitions;
        self.watch.publish(snapshot);
        if self.watch.desk().is_asked(now) {
            let mut observations = self.engine.observations.clone();
            // Those without a record too.
            let assigned = self.engine.subtask.partitions().map(|view| view.id).collect();
            observations.keep(&assigned, now);
            self.watch.desk().answer(observations, now);
        }
    }

    fn restoring(&self) -> Vec<RestoringPartition> {
        let read = self.changelog.progress();
        let under_way = self.recovery.iter().flat_map(|recovery| &recovery.partitions);
        let of = |id: &PartitionId| {
            let at = match self.terms.sharding {
                Sharding::OneForAll => self.terms.of_all,
                Sharding::PerPartition => *id,
            };
            let (read, end) = read.get(&at).copied().unwrap_or_default();
            RestoringPartition { id: *id, read, end }
        };
        under_way.chain(&self.arrivals).map(of).collect()
    }
}

/// With an emission after every record, silence is still looked for this often.
const SILENCE_CHECK: Duration = Duration::from_millis(200);

/// Records taken in before the clocks are looked at again.
const RECORDS_PER_TURN: usize = 256;

/// On-time panes are committed at once, but not more often than this.
const COMMIT_AT_MOST_EVERY: Duration = Duration::from_millis(50);

/// How long to wait for word from the group after a commit that it refused; it refuses the next one too until then.
const REJOIN: Duration = Duration::from_secs(1);

/// The first pause before a failed call is made again; it doubles up to [`RETRY_AT_LEAST_EVERY`].
const RETRY_AFTER: Duration = Duration::from_millis(200);

const RETRY_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
