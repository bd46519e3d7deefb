//! The four small types that everything else is written in.

use std::fmt;
use std::time::Duration;

/// A moment as the event itself tells it: milliseconds since the Unix epoch, negative before 1970.
///
/// All arithmetic saturates: a time near the end of the range stays there and never wraps round.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::EventTime;
///
/// assert_eq!(EventTime(1_000) + Duration::from_secs(2), EventTime(3_000));
/// assert_eq!(EventTime::MAX + Duration::from_secs(1), EventTime::MAX);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTime(pub i64);

impl EventTime {
    /// The least representable time; no record may carry it (Flink reads it as "no timestamp").
    pub const MIN: Self = Self(i64::MIN);
    /// The greatest representable time.
    pub const MAX: Self = Self(i64::MAX);

    /// How far this time is behind `later`, zero if it is not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::event_time::EventTime;
    ///
    /// assert_eq!(EventTime(1_000).behind(EventTime(3_500)), Duration::from_millis(2_500));
    /// assert_eq!(EventTime(3_500).behind(EventTime(1_000)), Duration::ZERO);
    /// ```
    pub fn behind(self, later: Self) -> Duration {
        if later > self { Duration::from_millis(later.0.abs_diff(self.0)) } else { Duration::ZERO }
    }
}

impl std::ops::Add<Duration> for EventTime {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
}

impl std::ops::Sub<Duration> for EventTime {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The promise that no event at or below this time is still expected.
///
/// The least value stands for "no watermark yet"; the public accessors of this crate give `None` for it.
///
/// ```
/// use tidegate::event_time::{EventTime, Watermark};
///
/// assert_eq!(Watermark::NONE.time(), None);
/// assert_eq!(Watermark(EventTime(999)).time(), Some(EventTime(999)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watermark(pub EventTime);

impl Watermark {
    /// No watermark yet (Flink: `Watermark.UNINITIALIZED`, the least long).
    pub const NONE: Self = Self(EventTime::MIN);

    /// The time, or `None` before the first watermark.
    pub fn time(self) -> Option<EventTime> {
        (self != Self::NONE).then_some(self.0)
    }
}

/// Time since the process began, on a clock that never goes back; handed in, never read here.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::MonotonicTime;
///
/// let start = MonotonicTime(Duration::from_secs(5));
/// assert_eq!(MonotonicTime(Duration::from_secs(7)).since(start), Duration::from_secs(2));
/// assert_eq!(start.since(MonotonicTime(Duration::from_secs(7))), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonotonicTime(pub Duration);

impl MonotonicTime {
    /// The time that has passed since `earlier`, zero if that lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks at one moment: the monotonic one for durations, the wall clock for what people call "now".
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{EventTime, MonotonicTime, Now};
///
/// let now = Now { monotonic: MonotonicTime(Duration::from_secs(1)), wall: EventTime(1_800_000_000_000) };
/// assert_eq!(now.wall, EventTime(1_800_000_000_000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For everything that is a duration.
    pub monotonic: MonotonicTime,
    /// Milliseconds since the epoch; it may step in either direction.
    pub wall: EventTime,
}

/// One channel of the multiplexer: a partition of one of the source topics.
///
/// ```
/// use tidegate::event_time::PartitionId;
///
/// let orders_7 = PartitionId { topic: 0, partition: 7 };
/// assert!(orders_7 < PartitionId { topic: 1, partition: 0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic, numbered by its place in the configuration.
    pub topic: u16,
    /// Kafka's partition number.
    pub partition: i32,
}

/// A duration in whole milliseconds, the greatest `i64` if it is longer.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
