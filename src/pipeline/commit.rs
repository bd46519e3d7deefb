//! Commits, and what happens when a write fails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::edge::{
    Changelog, CommitMark, NextOffsets, Observer, SinkError, Source, Time, TransactionalSink,
};
use super::engine::Engine;
use super::message::Message;
use super::{Pipeline, PipelineError, REJOIN, RETRY_AFTER, RETRY_AT_LEAST_EVERY};
use crate::codec::changelog::{SavedPartition, ShardWriter, Written};
use crate::event_time::{MonotonicTime, PartitionId, ShardId};
use crate::insight::{RestoreCause, Tally};
use crate::pipeline::OutputTopic;

/// A commit that was tried and whose outcome is open: the state that comes back tells.
#[derive(Debug)]
pub(super) struct InDoubt {
    pub(super) tally: Tally,
    /// The sequence that a shard has if it was made.
    pub(super) shards: BTreeMap<ShardId, u64>,
}

/// What is to be undone before anything else is written.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// The transaction.
    pub(super) abort: bool,
    /// What is known of the topics' limits.
    pub(super) limits: bool,
    /// The topic that refused a message in the transaction before, until a commit succeeds.
    refused: Option<OutputTopic>,
}

impl<S: Source, K: TransactionalSink, C: Changelog, O: Observer, T: Time> Pipeline<S, K, C, O, T> {
    /// Commits what was sent, what changed in the state, and how far the input was read, if there is anything new in
    /// any of them. Whether all that was done is committed now.
    pub(super) fn commit(&mut self) -> Result<bool, PipelineError> {
        if self.undo.abort {
            return Ok(false);
        }
        let began = self.time.now().monotonic;
        self.schedule.last_commit = began;
        self.engine.tell_what_is_saved();
        let written = self.write_state(began);
        if written.is_empty() && self.engine.sent == 0 {
            return Ok(true);
        }
        let mut next = NextOffsets::new();
        let mut shards = BTreeMap::new();
        for (shard, partitions, written) in written {
            shards.insert(shard, written.sequence);
            let mark = CommitMark { sequence: written.sequence, sharding: self.terms.sharding };
            next.extend(partitions.into_iter().map(|(id, offset)| (id, (offset, mark))));
            let at = shard.partition().unwrap_or(self.terms.of_all);
            let writer = self.writers.get(&shard);
            let mut supersedes =
                written.snapshot && !writer.is_some_and(ShardWriter::keeps_the_past);
            for (key, value) in written.messages {
                self.engine.put_state(Message::changelog(at, key, value, supersedes));
                supersedes = false;
            }
        }
        assert!(
            !next.is_empty(),
            "what was sent comes of some partition, and its offset goes along"
        );
        if self.write(Engine::send)?.is_none() {
            return Ok(false);
        }
        self.in_doubt = Some(InDoubt { tally: self.engine.tally.clone(), shards: shards.clone() });
        self.watch.set_committing(Some(began));
        let committed = self.write(|engine| engine.sink.commit(&next));
        self.watch.set_committing(None);
        if committed?.is_none() {
            return Ok(false);
        }
        let ended = self.time.now().monotonic;
        self.schedule.last_commit = ended;
        self.schedule.committed_once = Some(ended);
        self.observer.committed(&self.engine.tally, ended.since(began));
        self.engine.begin_anew();
        self.engine.committed.extend(next.iter().map(|(id, (offset, _))| (*id, *offset)));
        for shard in shards.into_keys() {
            self.engine.subtask.mark_saved(shard);
            if let Some(writer) = self.writers.get_mut(&shard) {
                writer.committed();
            }
        }
        self.in_doubt = None;
        self.undo.refused = None;
        self.aborts = 0;
        self.commit_at_once = false;
        Ok(true)
    }

    /// The state of each shard that has changed, with the offsets of its partitions.
    fn write_state(
        &mut self,
        now: MonotonicTime,
    ) -> Vec<(ShardId, BTreeMap<PartitionId, i64>, Written)> {
        let progress = self.source.progress(now);
        let subtask = &self.engine.subtask;
        let mut written = Vec::new();
        for (shard, writer) in &mut self.writers {
            let mine = |id: &PartitionId| shard.partition().is_none_or(|own| own == *id);
            let mut offsets = BTreeMap::new();
            let mut partitions = Vec::new();
            for (id, progress) in progress.iter().filter(|(id, _)| mine(id)) {
                let Some(state) = subtask.partition_state(*id) else { continue };
                offsets.insert(*id, progress.position);
                partitions.push(SavedPartition {
                    topic: self
                        .terms
                        .topics
                        .get(usize::from(id.topic))
                        .cloned()
                        .unwrap_or_default(),
                    partition: id.partition,
                    offset: progress.position,
                    state,
                });
            }
            if partitions.is_empty() {
                continue;
            }
            let topic = shard.partition().unwrap_or(self.terms.of_all).topic;
            let limits = self.engine.sink.limits(OutputTopic::Changelog(topic));
            let limit = Message::changelog_payload(limits);
            let part = writer.write(subtask, *shard, &partitions, &self.terms.layout, limit);
            if let Some(part) = part {
                written.push((*shard, offsets, part));
            }
        }
        written
    }

    /// Makes a write, again and again while the brokers are away, though not for longer than the transaction lasts.
    /// `None`: it was given up, and everything since the last commit with it.
    pub(super) fn write<R>(
        &mut self,
        mut call: impl FnMut(&mut Engine<K>) -> Result<R, SinkError>,
    ) -> Result<Option<R>, PipelineError> {
        let began = self.time.now().monotonic;
        let mut wait = RETRY_AFTER;
        loop {
            let error = match call(&mut self.engine) {
                Ok(done) => {
                    self.write_blocked_since = None;
                    return Ok(Some(done));
                }
                Err(error) => error,
            };
            let patient =
                self.time.now().monotonic.since(began) < self.schedule.transaction_timeout;
            if matches!(error, SinkError::Retry(_)) && patient && !self.time.stopping() {
                self.write_blocked_since.get_or_insert(began);
                self.blocked(&error.to_string(), wait);
                wait = (wait * 2).min(RETRY_AT_LEAST_EVERY);
                continue;
            }
            self.write_blocked_since = None;
            self.undo(&error)?;
            return Ok(None);
        }
    }

    /// Drops everything since the last commit: the partitions go the one way back to state.
    pub(super) fn undo(&mut self, error: &SinkError) -> Result<(), PipelineError> {
        let now = self.time.now().monotonic;
        let mut wait = if self.aborts == 0 {
            Duration::ZERO
        } else {
            (RETRY_AFTER * (1 << self.aborts.min(5))).min(RETRY_AT_LEAST_EVERY)
        };
        match error {
            SinkError::Fatal(cause) => return Err(PipelineError::Sink(cause.clone())),
            SinkError::Refused { to, topic, cause } => {
                let largest = self.engine.largest(*to);
                let limit = self.engine.sink.limits(*to).max_message_bytes;
                if self.undo.refused == Some(*to) {
                    return Err(PipelineError::Sink(format!(
                        "topic `{topic}` refused the same records twice ({cause}); the largest has {largest} bytes, \
                         the topic's max.message.bytes is {limit}: raise it, or see the broker's log for the reason"
                    )));
                }
                tracing::warn!(
                    topic,
                    cause,
                    largest,
                    limit,
                    "a topic refused a message; reading its limits again"
                );
                self.undo.refused = Some(*to);
                self.undo.limits = true;
            }
            // The next polls say which partitions are still ours.
            SinkError::NotAMember(_) => wait = wait.max(REJOIN),
            SinkError::Retry(_) | SinkError::Abort(_) => {}
        }
        tracing::warn!(%error, "a transaction is aborted");
        self.observer.aborted(now.since(self.schedule.last_commit));
        self.aborts += 1;
        self.undo.abort = true;
        self.not_before = MonotonicTime(now.0 + wait);
        let live: BTreeSet<_> = self.engine.subtask.partitions().map(|view| view.id).collect();
        self.engine.abandon();
        self.wait_for_state(live, RestoreCause::Aborted)
    }
}
