//! Commits, and the way back when one fails.

use std::collections::BTreeMap;

use super::edge::{Observer, SinkError, Source, Time, TransactionalSink};
use super::engine::Engine;
use super::{Pipeline, PipelineError, REJOIN, RETRY_AFTER, RETRY_AT_LEAST_EVERY};
use crate::event_time::MonotonicTime;
use crate::recovery::Recovered;

impl<S: Source, K: TransactionalSink, O: Observer, T: Time> Pipeline<S, K, O, T> {
    /// Commits what was sent and how far the input was read, if there is anything new in either. Whether all of it is
    /// committed now.
    pub(super) fn commit(&mut self) -> Result<bool, PipelineError> {
        if self.given_up || self.lost.is_some() {
            return Ok(false);
        }
        let began = self.time.now().monotonic;
        self.schedule.last_commit = began;
        if self.not_before.is_some_and(|not_before| began < not_before) {
            return Ok(false);
        }
        let next: BTreeMap<_, _> = self
            .source
            .progress(began)
            .iter()
            .map(|(id, progress)| (*id, progress.position))
            .collect();
        let moved = next != self.committed || self.commit_anyway;
        if next.is_empty() || (self.engine.outbox.is_empty() && !moved) {
            return Ok(true);
        }
        // After an abort that was not followed by anything, all of it is still to be sent.
        if let Err(error) = self.engine.recover(self.sequence)
            && self.recover(error)?.is_none()
        {
            return Ok(false);
        }
        while let Err(error) = self.engine.sink.commit(&next, self.sequence) {
            if matches!(error, SinkError::NotAMember(_)) {
                // The next polls say which partitions are still ours; until then everything stays in the outbox.
                self.recover_by(error, Engine::undo)?;
                self.not_before = Some(MonotonicTime(began.0 + REJOIN));
                return Ok(false);
            }
            match self.recover(error)? {
                Some(Recovered::AlreadyCommitted) => break,
                Some(Recovered::Resent | Recovered::Undone) => {}
                None => return Ok(false),
            }
        }
        let ended = self.time.now().monotonic;
        self.schedule.last_commit = ended;
        self.schedule.committed_once = Some(ended);
        self.observer.committed(&std::mem::take(&mut self.engine.tally), ended.since(began));
        self.engine.committed();
        self.committed = next;
        self.sequence += 1;
        self.aborts = 0;
        self.not_before = None;
        self.commit_anyway = false;
        Ok(true)
    }

    /// Takes the one way back after a failed write, however long the brokers are away; `None` if the service was asked
    /// to stop meanwhile.
    pub(super) fn recover(&mut self, error: SinkError) -> Result<Option<Recovered>, PipelineError> {
        self.recover_by(error, Engine::recover)
    }

    pub(super) fn recover_by(
        &mut self,
        error: SinkError,
        mut attempt: impl FnMut(&mut Engine<K>, u64) -> Result<Recovered, SinkError>,
    ) -> Result<Option<Recovered>, PipelineError> {
        // The more transactions have been aborted in a row, the longer.
        let mut wait = (RETRY_AFTER * (1 << self.aborts.min(5))).min(RETRY_AT_LEAST_EVERY);
        let mut error = Some(error);
        loop {
            if let Some(error) = error.take() {
                let retry = matches!(error, SinkError::Retry(_));
                if !retry {
                    tracing::warn!(%error, "a transaction is aborted");
                    self.observer
                        .aborted(self.time.now().monotonic.since(self.schedule.last_commit));
                    self.aborts += 1;
                }
                // A transaction is sent again at once, but not again and again.
                let again = self.aborts > 1 && matches!(error, SinkError::Abort(_));
                if retry || again {
                    if self.time.stopping() {
                        tracing::warn!(%error, "stopping without the last commit; what it held is read again");
                        self.given_up = true;
                        return Ok(None);
                    }
                    self.blocked(&error.to_string(), wait);
                    wait = (wait * 2).min(RETRY_AT_LEAST_EVERY);
                }
                self.engine.note(error).map_err(PipelineError::Sink)?;
            }
            match attempt(&mut self.engine, self.sequence) {
                Ok(recovered) => return Ok(Some(recovered)),
                Err(next) => error = Some(next),
            }
        }
    }
}
