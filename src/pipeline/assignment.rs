//! Partitions that come and go.

use std::collections::BTreeMap;

use super::edge::{Observer, SinkError, Source, SourceError, Time, TransactionalSink};
use super::engine::Engine;
use super::{Pipeline, PipelineError, RETRY_AFTER, RunUntil};
use crate::event_time::PartitionId;
use crate::recovery::Recovered;

impl<S: Source, K: TransactionalSink, O: Observer, T: Time> Pipeline<S, K, O, T> {
    pub(super) fn assigned(&mut self, partitions: &[PartitionId]) -> Result<(), PipelineError> {
        self.not_before = None;
        if let Some(lost) = self.lost.take() {
            if self.came_back(&lost, partitions)? {
                self.observer.assigned(partitions);
                tracing::info!(
                    partitions = partitions.len(),
                    "the partitions have come back as they were; going on where their reading had come to"
                );
                return Ok(());
            }
            let lost: Vec<_> = lost.into_keys().collect();
            self.engine.discard();
            self.forget(&lost);
            self.needs_them_all(&lost)?;
        }
        let started = loop {
            match self.source.start(partitions) {
                Ok(started) => break started,
                Err(SourceError::Fatal(cause)) => return Err(PipelineError::Source(cause)),
                Err(SourceError::Retry(_)) if self.time.stopping() => return Ok(()),
                Err(SourceError::Retry(cause)) => self.blocked(&cause, RETRY_AFTER),
            }
        };
        self.sequence = self.sequence.max(started.sequence + 1);
        self.count_missing(&started.missing);
        for id in partitions {
            self.engine.subtask.assign(*id, None);
            self.engine.subtask.hold_idle_clock(*id, true);
        }
        self.observer.assigned(partitions);
        self.joined = true;
        self.commit_anyway = !partitions.is_empty();
        tracing::info!(partitions = partitions.len(), "partitions assigned");
        if self.until == RunUntil::End && self.ends.is_none() {
            self.find_ends(partitions)?;
        }
        Ok(())
    }

    pub(super) fn count_missing(&mut self, records: &[(PartitionId, u64)]) {
        for (id, missing) in records {
            self.engine.tally.partition(*id).missing += missing;
        }
    }

    pub(super) fn find_ends(&mut self, assigned: &[PartitionId]) -> Result<(), PipelineError> {
        let ends = loop {
            match self.source.ends() {
                Ok(ends) => break ends,
                Err(SourceError::Fatal(cause)) => return Err(PipelineError::Source(cause)),
                Err(SourceError::Retry(_)) if self.time.stopping() => return Ok(()),
                Err(SourceError::Retry(cause)) => self.blocked(&cause, RETRY_AFTER),
            }
        };
        let missing = ends.keys().filter(|id| !assigned.contains(id)).count();
        if missing > 0 {
            return Err(PipelineError::NotAllPartitions { missing, all: ends.len() });
        }
        self.ends = Some(ends);
        Ok(())
    }

    /// Whether these are the partitions that were lost, and nobody has committed anything of them meanwhile: all that
    /// was read and made of them then holds as if they had never been away.
    pub(super) fn came_back(
        &mut self,
        lost: &BTreeMap<PartitionId, i64>,
        partitions: &[PartitionId],
    ) -> Result<bool, PipelineError> {
        let same =
            partitions.len() == lost.len() && partitions.iter().all(|id| lost.contains_key(id));
        if !same {
            return Ok(false);
        }
        loop {
            match self.source.resume(lost, &self.committed, self.sequence - 1) {
                Ok(resumed) => return Ok(resumed),
                Err(SourceError::Fatal(cause)) => return Err(PipelineError::Source(cause)),
                Err(SourceError::Retry(_)) if self.time.stopping() => return Ok(false),
                Err(SourceError::Retry(cause)) => self.blocked(&cause, RETRY_AFTER),
            }
        }
    }

    pub(super) fn revoking(&mut self, partitions: &[PartitionId]) -> Result<(), PipelineError> {
        self.not_before = None;
        if !self.commit()? {
            if !self.time.stopping() {
                return Err(PipelineError::NotCommitted);
            }
            // What is left of the outbox must not be committed without the offsets of these.
            self.given_up = true;
        }
        if let Err(error) = self.source.release(partitions) {
            tracing::warn!(%error, "giving partitions up failed");
        }
        self.forget(partitions);
        self.observer.revoked(partitions);
        self.needs_them_all(partitions)
    }

    /// Partitions that may be somebody else's by now. What was sent for others since the last commit cannot be told
    /// apart from what was sent for them, so this can go on only where everything was lost. It is put aside until the
    /// group says whose they are.
    pub(super) fn lost(&mut self, partitions: &[PartitionId]) -> Result<(), PipelineError> {
        self.not_before = None;
        let kept =
            self.engine.subtask.partitions().filter(|view| !partitions.contains(&view.id)).count();
        if kept > 0 && !self.engine.outbox.is_empty() {
            return Err(PipelineError::NotCommitted);
        }
        let progress = self.source.progress(self.time.now().monotonic);
        let lost = SinkError::Abort("the partitions were lost".to_owned());
        let undone = self.recover_by(lost, Engine::undo)?;
        if let Err(error) = self.source.release(partitions) {
            tracing::warn!(%error, "giving partitions up failed");
        }
        self.observer.lost(partitions);
        // Without a commit since the assignment there is nothing to tell by whether they were somebody else's.
        let can_tell = undone == Some(Recovered::Undone)
            && !self.commit_anyway
            && self.committed.keys().eq(progress.keys());
        if kept == 0 && can_tell {
            for id in partitions {
                self.engine.subtask.hold_idle_clock(*id, true);
            }
            tracing::warn!(
                partitions = partitions.len(),
                "the group has taken the partitions away"
            );
            self.lost =
                Some(progress.iter().map(|(id, progress)| (*id, progress.position)).collect());
            return Ok(());
        }
        self.engine.discard();
        self.forget(partitions);
        self.needs_them_all(partitions)
    }

    /// Without partitions whose end it has to reach it would wait for ever.
    pub(super) fn needs_them_all(&self, gone: &[PartitionId]) -> Result<(), PipelineError> {
        match &self.ends {
            Some(ends) if !gone.is_empty() && !self.time.stopping() => {
                Err(PipelineError::NotAllPartitions { missing: gone.len(), all: ends.len() })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn forget(&mut self, partitions: &[PartitionId]) {
        let panes = self.engine.subtask.open_panes();
        for id in partitions {
            self.engine.subtask.revoke(*id);
            self.committed.remove(id);
            self.progress.remove(id);
        }
        let lost = panes - self.engine.subtask.open_panes();
        let partitions = partitions.len();
        if lost > 0 {
            tracing::warn!(
                partitions,
                lost,
                "partitions given up; what their open windows held is not carried over"
            );
        } else {
            tracing::info!(partitions, "partitions given up");
        }
    }
}
