//! The changelog partitions of a recovery, as they are read.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::edge::{ChangelogEvent, CommittedOffset};
use super::recovery::{Failure, Terms, state_error};
use crate::codec::changelog::Restorer;
use crate::event_time::{MonotonicTime, PartitionId, ShardId};

/// What the group has committed, and the changelog beside it.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) committed: BTreeMap<PartitionId, CommittedOffset>,
    pub(super) logs: Vec<Log>,
    /// When something of it came last.
    pub(super) last: MonotonicTime,
}

/// The state of one shard, as its changelog partition is read.
#[derive(Debug)]
pub(super) struct Log {
    /// The changelog partition.
    pub(super) at: PartitionId,
    pub(super) shard: ShardId,
    /// The sequence that the group's offsets belong to; there must be it or a later one. The last one there is counts: of
    /// a commit whose offsets the group has lost, the rest is visible.
    pub(super) wanted: Option<u64>,
    /// Since the key has changed, what follows that sequence may be another shard's.
    pub(super) ends_there: bool,
    pub(super) restorer: Restorer,
    pub(super) done: bool,
}

impl Reading {
    /// Takes in what the changelog says next: that of several shards at the same time where there is much of it.
    pub(super) fn take(
        &mut self,
        events: &[ChangelogEvent<'_>],
        terms: &Terms,
    ) -> Result<(), Failure> {
        let concerned = |log: &&mut Log| events.iter().any(|event| event.partition() == log.at);
        let logs = self.logs.iter_mut().filter(concerned);
        let mut work: Vec<_> = logs.map(|log| (log, Ok(()))).collect();
        let bytes: usize = events.iter().map(ChangelogEvent::bytes).sum();
        let threads = if bytes < WORTH_A_THREAD { 1 } else { terms.threads.min(work.len()) };
        let queue = Mutex::new(work.iter_mut());
        let take_in = || {
            // The lock is not held while one of them is worked on.
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((log, outcome)) = next() {
                *outcome = log.take(events, terms);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let thread = std::thread::Builder::new().name("restore".to_owned());
                // Where there can be no thread, this one does it all.
                drop(thread.spawn_scoped(scope, take_in));
            }
            take_in();
        });
        work.into_iter().try_for_each(|(_, outcome)| outcome)
    }

    /// Where nothing comes for so long, and what the group's offsets belong to has come, the rest is a transaction that
    /// never ends: a single broker that was killed may not write its markers at all.
    pub(super) fn nothing_came(&mut self, now: MonotonicTime, terms: &Terms) {
        if now.since(self.last) < UNDECIDED_FOR {
            return;
        }
        for log in self.logs.iter_mut().filter(|log| !log.done && !log.ends_there) {
            if log.wanted.is_some() && log.restorer.sequence() >= log.wanted {
                tracing::warn!(
                    changelog = terms.changelog(log.at),
                    "a transaction in the changelog does not end; going on without it"
                );
                log.done = true;
            }
        }
    }
}

impl Log {
    /// Takes in what of it concerns this one.
    fn take(&mut self, events: &[ChangelogEvent<'_>], terms: &Terms) -> Result<(), Failure> {
        for event in events.iter().filter(|event| event.partition() == self.at) {
            if self.done {
                break;
            }
            match *event {
                ChangelogEvent::Message { partition, offset, key, value } => {
                    self.restorer.take(key, value).map_err(|fault| {
                        let changelog = terms.changelog(partition);
                        state_error(format!("{changelog}, offset {offset}: {fault}"))
                    })?;
                    self.done = self.ends_there && self.restorer.sequence() == self.wanted;
                }
                ChangelogEvent::End(partition) => {
                    if let Some(wanted) = self.wanted
                        && (self.ends_there || self.restorer.sequence() < self.wanted)
                    {
                        let order = if self.shard == ShardId::All && terms.topics.len() > 1 {
                            " (with several topics it is that of the topic named first: is that still the same?)"
                        } else {
                            ""
                        };
                        return Err(state_error(format!(
                            "{} ends without the state of commit {wanted}, which the group's offsets belong to: the \
                             changelog was deleted or cut off{order}; `tidegate reset` begins anew",
                            terms.changelog(partition)
                        )));
                    }
                    self.done = true;
                }
            }
        }
        Ok(())
    }
}

/// To decode so many bytes takes about ten times as long as to begin a thread.
const WORTH_A_THREAD: usize = 64 << 10;

/// How long a transaction that is open in the changelog is waited for, beyond the commit that must be there.
const UNDECIDED_FOR: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
