//! The way back to state, gone without a member of the group: what a start would find.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::PipelineError;
use super::edge::{Changelog, Source, Time};
use super::recovery::{Failure, Recovery, Stepped, Terms};
use super::topics::subtask_settings;
use crate::codec::changelog::ShardWriter;
use crate::config::Config;
use crate::event_time::{MonotonicTime, PartitionId, Watermark};

/// What a start would go on from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rehearsed {
    /// Where each partition would be read on; `None`: as the configuration says for one that is new to the group.
    pub beginnings: BTreeMap<PartitionId, Option<i64>>,
    /// (window, key) entries that would come back.
    pub entries: usize,
    /// What waits for late records and would go, since it was kept under another configuration.
    pub dropped: usize,
    /// The least clock that would come back.
    pub clock: Option<Watermark>,
    /// How many shards have state.
    pub shards: usize,
    /// The group has no offsets where the changelog has some; a start would ask for half a minute and then take those.
    pub without_offsets: bool,
}

/// How a rehearsal went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rehearsal {
    /// To its end.
    Done(Rehearsed),
    /// There was no time for more; and what was in the way, if anything was.
    Unfinished(Option<String>),
}

/// Takes the way that a start takes back to the state of these partitions, and begins nothing. The changelog must be one
/// that does not grow when it is asked to.
///
/// # Errors
/// What would end the service.
pub fn rehearse<S: Source, C: Changelog>(
    config: &Config,
    partitions: &BTreeSet<PartitionId>,
    source: &S,
    changelog: &mut C,
    time: &impl Time,
) -> Result<Rehearsal, PipelineError> {
    let terms = Terms::new(config, subtask_settings(config).window);
    let mut recovery = Recovery::new(partitions.clone(), time.now().monotonic);
    let (mut obstacle, mut skipped) = (None, Duration::ZERO);
    while !time.stopping() {
        let now = MonotonicTime(time.now().monotonic.0 + skipped);
        match recovery.step(source, changelog, &terms, false, now) {
            Ok(Stepped::Busy) => {}
            // Nobody waits for the group here: that it is asked again would only take time.
            Ok(Stepped::Waiting) if recovery.lacks_offsets() && skipped.is_zero() => {
                skipped = ASKED_ENOUGH;
            }
            Ok(Stepped::Reading | Stepped::Waiting) => time.wait(LOOK_EVERY),
            Ok(Stepped::Ready(ready)) => {
                let has_state = |writer: &&ShardWriter| writer.sequence() > 0;
                return Ok(Rehearsal::Done(Rehearsed {
                    shards: ready.writers.values().filter(has_state).count(),
                    beginnings: ready.beginnings,
                    entries: ready.entries,
                    dropped: ready.dropped,
                    clock: ready.clock,
                    without_offsets: recovery.lacks_offsets(),
                }));
            }
            Err(Failure::Retry(cause)) => {
                obstacle = Some(cause);
                recovery.begin_again(now);
                time.wait(TRY_AGAIN_AFTER);
            }
            Err(Failure::Fatal(error)) => return Err(error),
        }
    }
    Ok(Rehearsal::Unfinished(obstacle))
}

const LOOK_EVERY: Duration = Duration::from_millis(5);

const TRY_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Longer than a group is asked for offsets that the changelog says it had.
const ASKED_ENOUGH: Duration = Duration::from_mins(1);
