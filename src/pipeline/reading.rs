//! The changelog partitions of a recovery, as they are read.

use std::collections::BTreeMap;
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
    /// Takes in what the changelog says next.
    pub(super) fn take(
        &mut self,
        event: &ChangelogEvent<'_>,
        terms: &Terms,
    ) -> Result<(), Failure> {
        match *event {
            ChangelogEvent::Message { partition, offset, key, value } => {
                for log in self.logs.iter_mut().filter(|log| log.at == partition && !log.done) {
                    log.restorer.take(key, value).map_err(|fault| {
                        state_error(format!(
                            "{}, offset {offset}: {fault}",
                            terms.changelog(partition)
                        ))
                    })?;
                    log.done = log.ends_there && log.restorer.sequence() == log.wanted;
                }
            }
            ChangelogEvent::End(partition) => {
                for log in self.logs.iter_mut().filter(|log| log.at == partition && !log.done) {
                    if let Some(wanted) = log.wanted
                        && (log.ends_there || log.restorer.sequence() < log.wanted)
                    {
                        return Err(state_error(format!(
                            "{} ends without the state of commit {wanted}, which the group's offsets belong to: the \
                             changelog was deleted or cut off; `tidegate reset` begins anew",
                            terms.changelog(partition)
                        )));
                    }
                    log.done = true;
                }
            }
        }
        Ok(())
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

/// How long a transaction that is open in the changelog is waited for, beyond the commit that must be there.
const UNDECIDED_FOR: Duration = Duration::from_secs(30);
