//! Partitions that read too far ahead of the others are paused.

use std::collections::BTreeMap;

use super::edge::{Changelog, Observer, Source, Time, TransactionalSink};
use super::{Pipeline, PipelineError};
use crate::event_time::{Aligned, MonotonicTime, PartitionId, Unread};

impl<S: Source, K: TransactionalSink, C: Changelog, O: Observer, T: Time> Pipeline<S, K, C, O, T> {
    /// Looks which partitions are to be read no further, and which again.
    pub(super) fn align(&mut self, now: MonotonicTime) -> Result<(), PipelineError> {
        let Some(max_drift) = self.schedule.max_drift else { return Ok(()) };
        let unread: BTreeMap<_, _> =
            self.progress.keys().map(|id| (*id, self.unread(*id))).collect();
        let unread = |id| unread.get(&id).copied().unwrap_or(Unread::None);
        let Aligned { paused, resumed } = self.engine.subtask.align(max_drift, now, unread);
        if !paused.is_empty() {
            tracing::debug!(partitions = ?paused, "paused, since they are far ahead of the watermark");
            for id in &paused {
                self.engine.tally.partition(*id).pauses += 1;
            }
            self.ask(|source| source.hold_back(&paused))?;
        }
        if !resumed.is_empty() {
            tracing::debug!(partitions = ?resumed, "read on, since the watermark has come near");
            self.ask(|source| source.read_on(&resumed))?;
        }
        Ok(())
    }

    fn unread(&self, id: PartitionId) -> Unread {
        if self.has_ended(id) {
            return Unread::Ended;
        }
        let Some(progress) = self.progress.get(&id) else { return Unread::Unknown };
        // What is behind the beginning of an open transaction cannot be read.
        match progress.known_end {
            _ if progress.caught_up => Unread::None,
            Some(end) if progress.position < end => Unread::Some,
            Some(_) | None => Unread::Unknown,
        }
    }
}
