//! What a subtask is told once.

use std::time::Duration;

use super::shard::Sharding;
use super::watermark::WatermarkStrategy;
use super::window_operator::WindowSettings;

/// What happens to the subtask watermark while all partitions are idle.
///
/// ```
/// use tidegate::event_time::AllIdle;
///
/// assert_eq!(AllIdle::default(), AllIdle::Hold);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllIdle {
    /// It stays: silence closes nothing.
    #[default]
    Hold,
    /// It rises to the greatest partition watermark (Flink 2.3.0).
    Flush,
    /// It follows the wall clock, behind by the greatest bound and idle timeout; records that were delayed upstream
    /// for longer than that are late.
    WallClock,
}

/// How one topic's partitions follow event time.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{TopicSettings, WatermarkStrategy};
///
/// let topic = TopicSettings {
///     strategy: WatermarkStrategy::AscendingTimestamps,
///     idle_timeout: Some(Duration::from_secs(30)),
/// };
/// assert_eq!(topic.strategy.name(), "ascending");
/// ```
#[derive(Clone, Debug)]
pub struct TopicSettings {
    /// Makes the generators.
    pub strategy: WatermarkStrategy,
    /// After this much silence a partition holds nobody; `None`: never.
    pub idle_timeout: Option<Duration>,
}

/// Everything a subtask is told once.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{
///     AggregateFunction, AllIdle, Panes, Sharding, StateLimits, SubtaskSettings, TopicSettings,
///     TumblingWindows, WatermarkStrategy, WindowSettings,
/// };
///
/// let settings = SubtaskSettings {
///     topics: vec![TopicSettings { strategy: WatermarkStrategy::AscendingTimestamps, idle_timeout: None }],
///     window: WindowSettings {
///         windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
///         allowed_lateness: Duration::ZERO,
///         panes: Panes::Accumulating,
///         aggregates: vec![AggregateFunction::Count],
///         limits: StateLimits::default(),
///     },
///     sharding: Sharding::OneForAll,
///     all_idle: AllIdle::Hold,
/// };
/// assert_eq!(settings.topics.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct SubtaskSettings {
    /// By the topic's number.
    pub topics: Vec<TopicSettings>,
    /// The windows and their aggregates.
    pub window: WindowSettings,
    /// Which records share a shard.
    pub sharding: Sharding,
    /// The policy for silence everywhere.
    pub all_idle: AllIdle,
}
