//! What a commit leaves with each offset, as text.

use crate::event_time::Sharding;
use crate::pipeline::CommitMark;

/// What the metadata of committed offsets say.
pub(super) fn metadata(mark: CommitMark) -> String {
    let shard = match mark.sharding {
        Sharding::OneForAll => "all",
        Sharding::PerPartition => "own",
    };
    format!("{MARK}shard={shard} sequence={}", mark.sequence)
}

/// The mark of the commit that left this with its offsets.
pub(in crate::kafka) fn mark_of(metadata: &str) -> Option<CommitMark> {
    let (shard, sequence) = metadata.strip_prefix(MARK)?.split_once(' ')?;
    let sharding = match shard {
        "shard=all" => Sharding::OneForAll,
        "shard=own" => Sharding::PerPartition,
        _ => return None,
    };
    Some(CommitMark { sequence: sequence.strip_prefix("sequence=")?.parse().ok()?, sharding })
}

/// What the metadata of committed offsets begin with.
const MARK: &str = "tidegate/1 ";
