//! After a change of the key, from a field to the message key: what several partitions shared is kept for as long as one of
//! them has not come for it.

use std::collections::BTreeSet;

use super::edge::Source;
use super::recovery::{Failure, Ready, Terms};
use crate::event_time::{PartitionId, Sharding};

/// Lets writers delete what was written under another layout, unless partitions that are elsewhere, or nowhere, still have
/// to be made of it.
///
/// It is in the changelog partition of the one shard for all, which is now that of the first partition alone. Asked for
/// only while something of it is there.
pub(super) fn look_for<S: Source>(
    terms: &Terms,
    source: &S,
    here: &BTreeSet<PartitionId>,
    ready: &mut Ready,
) -> Result<(), Failure> {
    for (shard, writer) in &mut ready.writers {
        let holds_all = shard.partition() == Some(terms.of_all);
        if terms.sharding == Sharding::PerPartition && holds_all && writer.has_past() {
            let mut elsewhere = source.partitions()?;
            elsewhere.retain(|id| !here.contains(id));
            let committed = source.committed(&elsewhere)?;
            let mut marks = committed.values().filter_map(|committed| committed.mark);
            if marks.any(|mark| mark.sharding == Sharding::OneForAll) {
                continue;
            }
        }
        writer.forget_the_past();
    }
    Ok(())
}
