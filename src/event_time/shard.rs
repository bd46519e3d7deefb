//! The unit of window state: its windows and one clock.

use super::time::{PartitionId, Watermark};
use super::window_operator::WindowOperator;

/// Which records share a shard.
///
/// ```
/// use tidegate::event_time::Sharding;
///
/// assert_ne!(Sharding::OneForAll, Sharding::PerPartition);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// A key's records are in many partitions: one shard holds them all.
    OneForAll,
    /// A key's records are in one partition: each partition has a shard of its own.
    PerPartition,
}

/// The name of a shard.
///
/// ```
/// use tidegate::event_time::{PartitionId, ShardId};
///
/// assert_eq!(ShardId::Partition(PartitionId { topic: 0, partition: 3 }).partition().unwrap().partition, 3);
/// assert_eq!(ShardId::All.partition(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardId {
    /// The one shard for all partitions.
    All,
    /// The shard of one partition.
    Partition(PartitionId),
}

impl ShardId {
    /// The partition whose records it holds, if it is that of one.
    pub fn partition(self) -> Option<PartitionId> {
        match self {
            Self::All => None,
            Self::Partition(partition) => Some(partition),
        }
    }
}

/// Windows that move, fire and are judged together.
///
/// A shard's clock is the greatest multiplexer candidate since the shard came here, and never below the clock that it
/// brought along. As long as that equals the subtask watermark the shard follows it and costs nothing when it rises.
///
/// ```
/// use tidegate::event_time::{PartitionState, Shard};
///
/// /// What a partition takes along besides its own watermark.
/// fn luggage(state: &PartitionState) -> Option<&Shard> {
///     state.shard.as_ref()
/// }
///
/// assert!(luggage(&PartitionState::default()).is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Shard {
    pub(crate) id: ShardId,
    /// `None` while the shard follows the subtask watermark.
    pub(crate) own_clock: Option<Watermark>,
    pub(crate) operator: WindowOperator,
}

impl Shard {
    pub(crate) fn following(id: ShardId) -> Self {
        Self { id, own_clock: None, operator: WindowOperator::default() }
    }

    /// The clock its records are judged by.
    pub(crate) fn clock(&self, subtask_watermark: Watermark) -> Watermark {
        self.own_clock.unwrap_or(subtask_watermark)
    }
}
