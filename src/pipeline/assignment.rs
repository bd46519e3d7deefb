//! Partitions that come and go, and their way back to state.

use std::collections::BTreeSet;
use std::time::Duration;

use super::edge::{Changelog, Observer, SinkError, Source, SourceError, Time, TransactionalSink};
use super::recovery::{Failure, Ready, Recovery, Stepped};
use super::{Pipeline, PipelineError, RETRY_AFTER, RETRY_AT_LEAST_EVERY, RunUntil};
use crate::codec::changelog::ShardWriter;
use crate::event_time::{Assigned, MonotonicTime, Now, PartitionId, ShardId};
use crate::insight::RestoreCause;

impl<S: Source, K: TransactionalSink, C: Changelog, O: Observer, T: Time> Pipeline<S, K, C, O, T> {
    pub(super) fn assigned(&mut self, partitions: &[PartitionId]) -> Result<(), PipelineError> {
        self.not_before = MonotonicTime::default();
        if self.ask(|source| source.accept(partitions))?.is_none() {
            return Ok(());
        }
        self.take_in_topics();
        self.observer.assigned(partitions);
        self.joined = true;
        tracing::info!(partitions = partitions.len(), "partitions assigned");
        self.arrivals.extend(partitions);
        if self.until == RunUntil::End && self.ends.is_none() {
            self.find_ends(partitions)?;
        }
        self.look_whether_complete()
    }

    pub(super) fn count_missing(&mut self, records: &[(PartitionId, u64)]) {
        for (id, missing) in records {
            self.engine.tally.partition(*id).missing += missing;
        }
    }

    fn find_ends(&mut self, assigned: &[PartitionId]) -> Result<(), PipelineError> {
        let Some(ends) = self.ask(S::ends)? else { return Ok(()) };
        let missing = ends.keys().filter(|id| !assigned.contains(id)).count();
        if missing > 0 {
            return Err(PipelineError::NotAllPartitions { missing, all: ends.len() });
        }
        self.ends = Some(ends);
        Ok(())
    }

    /// Everything made of these partitions is committed before they are given up. If that fails it is undone, and who
    /// gets them reads it again.
    pub(super) fn revoking(&mut self, partitions: &[PartitionId]) -> Result<(), PipelineError> {
        self.not_before = MonotonicTime::default();
        self.commit()?;
        self.give_up(partitions);
        self.observer.revoked(partitions);
        self.needs_them_all(partitions)?;
        self.look_whether_complete()
    }

    /// Partitions that may be somebody else's by now. What was sent for others since the last commit cannot be told
    /// apart from what was sent for them, so all of it is undone.
    pub(super) fn lost(&mut self, partitions: &[PartitionId]) -> Result<(), PipelineError> {
        tracing::warn!(partitions = partitions.len(), "the group has taken partitions away");
        if self.engine.subtask.partitions().any(|view| partitions.contains(&view.id)) {
            self.undo(&SinkError::Abort("partitions were lost".to_owned()))?;
        }
        self.not_before = MonotonicTime::default();
        let leaves = self.needs_all_and_keeps_none(partitions);
        if leaves {
            self.forget(partitions);
        } else {
            self.give_up(partitions);
        }
        self.observer.lost(partitions);
        self.needs_them_all(partitions)?;
        if leaves { self.step_outside() } else { self.look_whether_complete() }
    }

    /// Without partitions whose end it has to reach it would wait for ever.
    fn needs_them_all(&self, gone: &[PartitionId]) -> Result<(), PipelineError> {
        match &self.ends {
            Some(ends) if !gone.is_empty() && !self.time.stopping() => {
                Err(PipelineError::NotAllPartitions { missing: gone.len(), all: ends.len() })
            }
            _ => Ok(()),
        }
    }

    fn give_up(&mut self, partitions: &[PartitionId]) {
        if let Err(error) = self.source.release(partitions) {
            tracing::warn!(%error, "giving partitions up failed");
        }
        self.forget(partitions);
    }

    fn forget(&mut self, partitions: &[PartitionId]) {
        for id in partitions {
            self.engine.subtask.revoke(*id);
            self.engine.observations.forget(*id);
            self.engine.committed.remove(id);
            self.writers.remove(&ShardId::Partition(*id));
            self.progress.remove(id);
            self.arrivals.remove(id);
        }
        if self.engine.subtask.partitions().next().is_none() {
            self.writers.clear();
        }
        // From now on another member's commit may have the sequence.
        let gone = |shard: &ShardId| shard.partition().is_none_or(|id| partitions.contains(&id));
        if let Some(in_doubt) = &mut self.in_doubt {
            in_doubt.shards.retain(|shard, _| !gone(shard));
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.forget(partitions);
            if recovery.partitions.is_empty() {
                self.recovery = None;
                self.changelog.close();
            }
        }
        tracing::info!(partitions = partitions.len(), "partitions given up");
    }

    /// These partitions are read no further before their state has come back.
    pub(super) fn wait_for_state(
        &mut self,
        partitions: BTreeSet<PartitionId>,
        cause: RestoreCause,
    ) -> Result<(), PipelineError> {
        self.ask(|source| source.pause(&partitions))?;
        self.writers.clear();
        self.progress.retain(|id, _| !partitions.contains(id));
        self.arrivals.extend(partitions);
        self.drop_recovery();
        self.restore_cause = cause;
        Ok(())
    }

    /// Begins again with what was on its way.
    pub(super) fn drop_recovery(&mut self) {
        if let Some(recovery) = self.recovery.take() {
            self.arrivals.extend(recovery.partitions);
            self.changelog.close();
        }
    }

    /// Makes the next step of the way back to state. How long to wait at most before the next one.
    pub(super) fn bring_back(&mut self, now: Now) -> Result<Duration, PipelineError> {
        if now.monotonic < self.retry_at {
            return Ok(Duration::MAX);
        }
        match self.try_to_bring_back(now) {
            Ok(wait) => {
                self.retry_after = RETRY_AFTER;
                self.blocked_by = None;
                Ok(wait)
            }
            Err(Failure::Retry(cause)) => {
                tracing::warn!(cause, "waiting for the brokers");
                self.retry_at = MonotonicTime(now.monotonic.0 + self.retry_after);
                self.retry_after = (self.retry_after * 2).min(RETRY_AT_LEAST_EVERY);
                self.blocked_by = Some(cause);
                Ok(Duration::MAX)
            }
            Err(Failure::Fatal(error)) => Err(error),
        }
    }

    fn try_to_bring_back(&mut self, now: Now) -> Result<Duration, Failure> {
        if self.undo.abort {
            self.engine.sink.abort()?;
            self.undo.abort = false;
        }
        if self.undo.limits {
            self.engine.sink.refresh_limits()?;
            self.undo.limits = false;
        }
        if !self.membership.may_restore() || now.monotonic < self.not_before {
            return Ok(Duration::MAX);
        }
        let mut recovery = match self.recovery.take() {
            Some(recovery) => recovery,
            None if self.arrivals.is_empty() => return Ok(Duration::MAX),
            None => Recovery::new(std::mem::take(&mut self.arrivals), now.monotonic),
        };
        let shared_is_live = self.writers.contains_key(&ShardId::All);
        let stepped = recovery.step(
            &self.source,
            &mut self.changelog,
            &self.terms,
            shared_is_live,
            now.monotonic,
        );
        match stepped {
            Ok(Stepped::Ready(ready)) => match self.source.start(&ready.beginnings) {
                Ok(missing) => {
                    self.count_missing(&missing);
                    self.go_on(&recovery, *ready, now).map_err(Failure::Fatal)?;
                    Ok(Duration::ZERO)
                }
                Err(error) => {
                    recovery.not_begun(ready);
                    self.recovery = Some(recovery);
                    Err(error.into())
                }
            },
            Ok(stepped) => {
                if recovery.is_to_be_told_of(now.monotonic) {
                    let (read, of) =
                        self.changelog.progress().values().fold((0, 0), |(read, of), partition| {
                            (read + partition.0, of + partition.1)
                        });
                    tracing::info!(
                        read,
                        of,
                        partitions = recovery.partitions.len(),
                        "restoring state"
                    );
                }
                self.recovery = Some(recovery);
                Ok(match stepped {
                    Stepped::Busy | Stepped::Ready(_) => Duration::ZERO,
                    Stepped::Reading => FETCHING,
                    Stepped::Waiting => Duration::MAX,
                })
            }
            Err(failure) => {
                recovery.begin_again(now.monotonic);
                self.changelog.close();
                self.recovery = Some(recovery);
                Err(failure)
            }
        }
    }

    /// State is there and reading has begun.
    fn go_on(
        &mut self,
        recovery: &Recovery,
        mut ready: Ready,
        now: Now,
    ) -> Result<(), PipelineError> {
        if let Some(clock) = ready.clock {
            self.engine.subtask.restore_watermark(clock);
        }
        for id in &recovery.partitions {
            let (topic, partition) = (self.terms.topics.get(usize::from(id.topic)), id.partition);
            let taken = self.engine.subtask.assign(*id, ready.states.remove(id));
            if taken == Assigned::GeneratorAnew {
                tracing::warn!(
                    topic,
                    partition,
                    "the watermark strategy begins anew, since another one was saved"
                );
            }
            self.engine.subtask.hold_idle_clock(*id, true);
        }
        let committed = ready.beginnings.iter().filter_map(|(id, offset)| Some((*id, (*offset)?)));
        self.engine.committed.extend(committed);
        // A shard that has never been written is not known to anybody until it is.
        self.commit_at_once |= ready.writers.values().any(ShardWriter::is_to_be_written);
        for shard in ready.writers.keys() {
            self.engine.progress_was_told(*shard);
        }
        if let Some(in_doubt) = self.in_doubt.take() {
            let is_there = |(shard, sequence): (&ShardId, &u64)| {
                ready.writers.get(shard).is_some_and(|writer| writer.sequence() == *sequence)
            };
            if in_doubt.shards.iter().any(is_there) {
                tracing::info!("the commit whose answer was lost had been made");
                self.observer.committed(&in_doubt.tally, Duration::ZERO);
            }
        }
        for (shard, writer) in std::mem::take(&mut ready.writers) {
            // The one shard for all may be at work already.
            self.writers.entry(shard).or_insert(writer);
        }
        let took = now.monotonic.since(recovery.began);
        let (partitions, entries) = (recovery.partitions.len(), ready.entries);
        self.observer.restored(self.restore_cause, entries, took);
        if ready.dropped > 0 {
            tracing::warn!(
                entries = ready.dropped,
                "the configuration has changed: windows that were kept open for late records are closed, and records \
                 for them go to the late topic"
            );
        }
        tracing::info!(
            partitions,
            entries,
            ?took,
            cause = self.restore_cause.name(),
            "state restored"
        );
        self.restore_cause = RestoreCause::Assigned;
        self.has_run = true;
        self.deliver(now)
    }

    /// Asks the source until it answers. `None`: the service was asked to stop meanwhile.
    pub(super) fn ask<R>(
        &mut self,
        call: impl Fn(&S) -> Result<R, SourceError>,
    ) -> Result<Option<R>, PipelineError> {
        loop {
            match call(&self.source) {
                Ok(answer) => return Ok(Some(answer)),
                Err(SourceError::Fatal(cause)) => return Err(PipelineError::Source(cause)),
                Err(SourceError::Retry(_)) if self.time.stopping() => return Ok(None),
                Err(SourceError::Retry(cause)) => self.blocked(&cause, RETRY_AFTER),
            }
        }
    }
}

/// How long the input is waited for while the changelog is fetched.
const FETCHING: Duration = Duration::from_millis(2);

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Fatal(cause) => Self::Fatal(PipelineError::Sink(cause)),
            SinkError::Retry(_)
            | SinkError::Abort(_)
            | SinkError::NotAMember(_)
            | SinkError::Refused { .. } => Self::Retry(error.to_string()),
        }
    }
}
