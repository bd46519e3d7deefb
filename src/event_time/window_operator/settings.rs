//! What the windows are told once, and the most that may be held.

use std::time::Duration;

use super::Size;
use crate::event_time::aggregate::AggregateFunction;
use crate::event_time::window::TumblingWindows;

/// Whether a pane holds all of the window so far or only what is new since the pane before.
///
/// ```
/// use tidegate::event_time::Panes;
///
/// assert_eq!(Panes::default(), Panes::Accumulating);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Panes {
    /// A later pane replaces the earlier ones (Flink: `EventTimeTrigger`).
    #[default]
    Accumulating,
    /// Panes add up; for sinks that sum (Flink: `PurgingTrigger` around it).
    Discarding,
}

/// What the windows are and what they compute.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{
///     AggregateFunction, Panes, StateLimits, TumblingWindows, WindowSettings,
/// };
///
/// let settings = WindowSettings {
///     windows: TumblingWindows::new(Duration::from_secs(60), 0).unwrap(),
///     allowed_lateness: Duration::ZERO,
///     panes: Panes::Accumulating,
///     aggregates: vec![AggregateFunction::Count, AggregateFunction::Sum],
///     limits: StateLimits::default(),
/// };
/// assert_eq!(settings.windows.size().as_secs(), 60);
/// ```
#[derive(Clone, Debug)]
pub struct WindowSettings {
    /// How event time is cut.
    pub windows: TumblingWindows,
    /// How long after its end a window still takes records and fires again.
    pub allowed_lateness: Duration,
    /// What a pane holds.
    pub panes: Panes,
    /// The aggregates, in the order of the event's values.
    pub aggregates: Vec<AggregateFunction>,
    /// The most that may be held.
    pub limits: StateLimits,
}

/// The most that one subtask holds. A record whose key would be new in its window and lead beyond is refused; what is
/// held stays, and its keys go on. `None`: no limit.
///
/// ```
/// use tidegate::event_time::StateLimits;
///
/// let limits = StateLimits { keys_per_window: Some(1_000_000), ..StateLimits::default() };
/// assert_eq!(limits.windows, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateLimits {
    /// Windows held, counted in each shard.
    pub windows: Option<usize>,
    /// Keys of one window in one shard.
    pub keys_per_window: Option<usize>,
    /// The estimated size of all that is held, in bytes.
    pub bytes: Option<usize>,
}

/// The limit that a record with a new key would have passed, with its value.
///
/// ```
/// use tidegate::event_time::{Disposition, LimitExceeded};
///
/// assert!(!Disposition::KeyLimit(LimitExceeded::KeysPerWindow(10)).is_windowed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// So many windows are held.
    Windows(usize),
    /// So many keys are in its window.
    KeysPerWindow(usize),
    /// What is held would have more than so many bytes.
    Bytes(usize),
    /// Its window would have more than so many bytes in one shard, and no window can.
    WindowBytes(usize),
}

impl StateLimits {
    /// Whether there is room for a new key in a window of so many, beside what the whole subtask holds.
    pub(super) fn check(
        self,
        held: Size,
        new: Size,
        keys_of_window: usize,
    ) -> Result<(), LimitExceeded> {
        if let Some(windows) = self.windows
            && new.windows > 0
            && held.windows >= windows
        {
            return Err(LimitExceeded::Windows(windows));
        }
        if let Some(keys) = self.keys_per_window
            && keys_of_window >= keys
        {
            return Err(LimitExceeded::KeysPerWindow(keys));
        }
        if let Some(bytes) = self.bytes
            && held.bytes.saturating_add(new.bytes) > bytes
        {
            return Err(LimitExceeded::Bytes(bytes));
        }
        Ok(())
    }
}
