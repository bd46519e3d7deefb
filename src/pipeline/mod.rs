//! The loop: poll, decode, judge, send, commit. One plain thread owns everything that it changes.
//!
//! The schedule is all that is decided here: the emit tick, when to commit, what to do when reading or writing fails,
//! and how to end. What happens to a record is in `engine`, the ways in and out are behind [`Source`] and
//! [`TransactionalSink`].

mod assignment;
mod commit;
mod edge;
mod engine;
mod message;
mod outbox;

use std::collections::BTreeMap;
use std::time::Duration;

pub use edge::{
    Aborted, Ends, InputRecord, Observer, Polled, Progress, SinkError, Source, SourceError,
    Started, Time, TransactionalSink,
};
use engine::{Delivered, Engine, FIRING_PER_TRANSACTION};
pub use message::{Header, Message, OutputTopic, TopicLimits};
pub(crate) use outbox::Outbox;

use crate::config::{Config, KeyFrom};
use crate::event_time::{MonotonicTime, Now, PartitionId};
use crate::insight::{Phase, Watch};

/// Why the service ended other than as asked.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// Reading cannot go on.
    #[error("reading the input failed: {0}")]
    Source(String),
    /// Writing cannot go on.
    #[error("writing the output failed: {0}")]
    Sink(String),
    /// The group moved on while a commit was under way.
    #[error(
        "the group gave partitions away before what was read from them could be committed; a new start goes on at the \
         last commit"
    )]
    NotCommitted,
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
pub struct Pipeline<S, K, O, T> {
    source: S,
    engine: Engine<K>,
    observer: O,
    time: T,
    watch: Watch,
    schedule: Schedule,
    until: RunUntil,
    /// The last stable offsets at the first assignment, when the end is to be found.
    ends: Option<Ends>,
    progress: BTreeMap<PartitionId, Progress>,
    /// The offsets of the last commit.
    committed: BTreeMap<PartitionId, i64>,
    /// Of the next commit.
    sequence: u64,
    joined: bool,
    /// A commit must be made even if nothing moved: the first one after an assignment.
    commit_anyway: bool,
    /// The stop was asked for while something could not be written: nothing more is, since it would lack that.
    given_up: bool,
    /// Transactions aborted since the last commit.
    aborts: u32,
    /// The group does not count this member in: no commit is tried before this time, or before it has spoken.
    not_before: Option<MonotonicTime>,
    /// Where the reading of partitions had come to that were lost, with all that was made of them, until the group
    /// says whose they are now.
    lost: Option<BTreeMap<PartitionId, i64>>,
}

/// When things are due.
#[derive(Debug)]
struct Schedule {
    emit_interval: Duration,
    commit_interval: Duration,
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

impl<S: Source, K: TransactionalSink, O: Observer, T: Time> Pipeline<S, K, O, T> {
    /// A pipeline that has not read anything yet.
    pub fn new(
        config: &Config,
        source: S,
        sink: K,
        observer: O,
        time: T,
        watch: Watch,
        until: RunUntil,
    ) -> Self {
        let now = time.now().monotonic;
        if config.key.from != KeyFrom::Message && !config.key.partial {
            tracing::info!(
                "keys are fields: windows are complete where this instance reads all partitions"
            );
        }
        Self {
            source,
            engine: Engine::new(config, sink),
            observer,
            watch,
            schedule: Schedule {
                emit_interval: if config.emit_interval.is_zero() {
                    SILENCE_CHECK
                } else {
                    config.emit_interval
                },
                commit_interval: config.delivery.commit_interval,
                last_turn: now,
                last_emit: now,
                last_commit: now,
                committed_once: None,
            },
            time,
            until,
            ends: None,
            progress: BTreeMap::new(),
            committed: BTreeMap::new(),
            sequence: 1,
            joined: false,
            commit_anyway: false,
            given_up: false,
            aborts: 0,
            not_before: None,
            lost: None,
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
        while !self.commit()? {
            if self.given_up || self.lost.is_some() {
                return Err(PipelineError::StoppedUncommitted);
            }
            // The group has moved on, and says where to.
            self.poll(RETRY_AFTER, self.time.now())?;
        }
        Ok(())
    }

    /// One turn: a tick if it is due, a batch of records, a commit if it is due.
    ///
    /// # Errors
    /// See [`PipelineError`].
    pub fn turn(&mut self) -> Result<Turn, PipelineError> {
        let now = self.time.now();
        // What the loop could not see is not silence: commits, restores, a suspended machine.
        let elapsed = now.monotonic.since(self.schedule.last_turn).min(self.schedule.emit_interval);
        self.schedule.last_turn = now.monotonic;
        if self.lost.is_some() {
            self.publish(Phase::Blocked("the group has not given the partitions back".to_owned()));
            self.poll(self.schedule.emit_interval, now)?;
            return Ok(Turn::Continue);
        }
        self.engine.subtask.run_idle_clocks(elapsed);
        if now.monotonic.since(self.schedule.last_emit) >= self.schedule.emit_interval {
            self.tick(now)?;
            if self.reached_the_end() && !self.given_up {
                self.drain()?;
                return Ok(Turn::Ended);
            }
        }
        let mut timeout = self.until_next_deadline(now.monotonic);
        for _ in 0..RECORDS_PER_TURN {
            if self.given_up || !self.poll(timeout, now)? {
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
        self.observer.ticked();
        self.publish(if self.joined { Phase::Running } else { Phase::Starting });
        Ok(())
    }

    /// Takes in what the next poll brings. Whether it was a record.
    fn poll(&mut self, timeout: Duration, now: Now) -> Result<bool, PipelineError> {
        let engine = &mut self.engine;
        let polled = self
            .source
            .poll(timeout)
            .map(|polled| polled.map(|record| engine.on_record(&record, now)));
        let sent = match polled {
            Ok(Polled::Record(sent)) => sent,
            Ok(Polled::Nothing) => return Ok(false),
            Ok(Polled::Assigned(partitions)) => return self.assigned(&partitions).map(|()| false),
            Ok(Polled::Revoking(partitions)) => return self.revoking(&partitions).map(|()| false),
            Ok(Polled::Lost(partitions)) => return self.lost(&partitions).map(|()| false),
            Ok(Polled::Missing(records)) => {
                self.count_missing(&records);
                return Ok(false);
            }
            Err(SourceError::Retry(cause)) => {
                self.blocked(&cause, RETRY_AFTER);
                return Ok(false);
            }
            Err(SourceError::Fatal(cause)) => return Err(PipelineError::Source(cause)),
        };
        if let Err(error) = sent {
            self.recover(error)?;
        }
        self.deliver(now)?;
        Ok(true)
    }

    /// Sends what the core has to say; a large firing in slices, with a commit after each.
    fn deliver(&mut self, now: Now) -> Result<(), PipelineError> {
        while !self.given_up {
            match self.engine.deliver(now) {
                Ok(Delivered::All) => return Ok(()),
                Ok(Delivered::Slice) => {
                    self.commit()?;
                    // Where it could not be made the slices add up, since the group is asked only when all is fired.
                    self.engine.outbox.go_on();
                }
                Err(error) => {
                    self.recover(error)?;
                }
            }
            if self.time.now().monotonic.since(self.schedule.last_commit) > FIRING_PER_TRANSACTION {
                self.commit()?;
            }
        }
        Ok(())
    }

    fn reached_the_end(&self) -> bool {
        let Some(ends) = &self.ends else { return false };
        ends.iter().all(|(id, (beginning, end))| {
            beginning == end
                || self.progress.get(id).is_some_and(|progress| progress.position >= *end)
        })
    }

    /// Fires everything that is open and commits it; where the group has moved on, asks it what for.
    fn drain(&mut self) -> Result<(), PipelineError> {
        loop {
            self.publish(Phase::Draining);
            self.engine.subtask.drain();
            self.deliver(self.time.now())?;
            if self.commit()? {
                return Ok(());
            }
            if self.time.stopping() {
                return Err(PipelineError::StoppedUncommitted);
            }
            self.poll(RETRY_AFTER, self.time.now())?;
        }
    }

    fn until_next_deadline(&self, now: MonotonicTime) -> Duration {
        let schedule = &self.schedule;
        let until =
            |last: MonotonicTime, interval: Duration| interval.saturating_sub(now.since(last));
        let emit = until(schedule.last_emit, schedule.emit_interval);
        let commit =
            if self.engine.fired_on_time { COMMIT_AT_MOST_EVERY } else { schedule.commit_interval };
        emit.min(until(schedule.last_commit, commit)).max(Duration::from_millis(1))
    }

    fn commit_is_due(&self, now: MonotonicTime) -> bool {
        let since = now.since(self.schedule.last_commit);
        self.engine.outbox.is_full()
            || since >= self.schedule.commit_interval
            || (self.engine.fired_on_time && since >= COMMIT_AT_MOST_EVERY)
    }

    fn blocked(&self, cause: &str, wait: Duration) {
        tracing::warn!(cause, "waiting for the brokers");
        self.publish(if self.joined { Phase::Blocked(cause.to_owned()) } else { Phase::Starting });
        self.time.wait(wait);
    }

    fn publish(&self, phase: Phase) {
        let now = self.time.now().monotonic;
        self.watch.publish(self.engine.snapshot(
            phase,
            now,
            &self.progress,
            self.schedule.committed_once,
        ));
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
