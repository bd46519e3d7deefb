//! Tumbling windows: which window a timestamp belongs to, and when it fires and is freed.

use std::time::Duration;

use super::time::{EventTime, Watermark, millis};

/// A half-open stretch of event time, `[start, end)`.
///
/// ```
/// use tidegate::event_time::{EventTime, TimeWindow};
///
/// let window = TimeWindow { start: EventTime(0), end: EventTime(10_000) };
/// assert_eq!(window.max_timestamp(), EventTime(9_999));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeWindow {
    /// The first millisecond that belongs to the window.
    pub start: EventTime,
    /// The first millisecond that no longer does.
    pub end: EventTime,
}

impl TimeWindow {
    /// The last millisecond of the window; it fires at the first watermark that is not below it
    /// (Flink: `TimeWindow.maxTimestamp`, `EventTimeTrigger`).
    pub fn max_timestamp(self) -> EventTime {
        EventTime(self.end.0.saturating_sub(1))
    }

    /// Whether the on-time pane is due at this watermark.
    ///
    /// ```
    /// use tidegate::event_time::{EventTime, TimeWindow, Watermark};
    ///
    /// let window = TimeWindow { start: EventTime(0), end: EventTime(10_000) };
    /// assert!(!window.is_due(Watermark(EventTime(9_998))));
    /// assert!(window.is_due(Watermark(EventTime(9_999))));
    /// ```
    pub fn is_due(self, clock: Watermark) -> bool {
        clock != Watermark::NONE && self.max_timestamp() <= clock.0
    }

    /// Whether the window is past its allowed lateness: a record for it is late, its state is freed
    /// (Flink: `WindowOperator.isWindowLate`).
    ///
    /// The time of freeing is `end - 1 + allowed_lateness`; where that leaves the range it is never.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::event_time::{EventTime, TimeWindow, Watermark};
    ///
    /// let window = TimeWindow { start: EventTime(0), end: EventTime(10_000) };
    /// assert!(!window.is_freed(Watermark(EventTime(10_998)), Duration::from_secs(1)));
    /// assert!(window.is_freed(Watermark(EventTime(10_999)), Duration::from_secs(1)));
    /// assert!(!window.is_freed(Watermark(EventTime::MAX), Duration::MAX));
    /// ```
    pub fn is_freed(self, clock: Watermark, allowed_lateness: Duration) -> bool {
        let freed_at = self.max_timestamp() + allowed_lateness;
        clock != Watermark::NONE && freed_at != EventTime::MAX && freed_at <= clock.0
    }
}

/// Cuts event time into windows of one size, aligned to the epoch plus an offset
/// (Flink: `TumblingEventTimeWindows`).
///
/// Fixed lengths of UTC time: a local day needs an offset and does not follow daylight saving.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{EventTime, TimeWindow, TumblingWindows};
///
/// let minutes = TumblingWindows::new(Duration::from_secs(60), 0).unwrap();
/// let window = minutes.assign(EventTime(-1)).unwrap();
/// assert_eq!(window, TimeWindow { start: EventTime(-60_000), end: EventTime(0) });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TumblingWindows {
    size_ms: i64,
    offset_ms: i64,
}

impl TumblingWindows {
    /// Windows of `size` that begin at multiples of it plus `offset_ms`.
    ///
    /// `None` if the size is under a millisecond or the offset is not smaller than the size in either direction.
    pub fn new(size: Duration, offset_ms: i64) -> Option<Self> {
        let size_ms = millis(size);
        let fits = size_ms > 0 && offset_ms > -size_ms && offset_ms < size_ms;
        fits.then_some(Self { size_ms, offset_ms })
    }

    /// The window's length.
    pub fn size(self) -> Duration {
        Duration::from_millis(self.size_ms.unsigned_abs())
    }

    /// How far window starts are shifted against the epoch, in milliseconds.
    pub fn offset_ms(self) -> i64 {
        self.offset_ms
    }

    /// The window that holds this timestamp; the floor, so times before 1970 land where they belong.
    ///
    /// `None` where a bound of the window would leave the range, and for the least time, which Flink reads as
    /// "no timestamp": such a record is refused instead of landing in a wrapped window.
    pub fn assign(self, timestamp: EventTime) -> Option<TimeWindow> {
        if timestamp == EventTime::MIN {
            return None;
        }
        // In 128 bits, since timestamp - offset may leave the range where the window itself does not.
        let since_start =
            (i128::from(timestamp.0) - i128::from(self.offset_ms)).rem_euclid(self.size_ms.into());
        let start = timestamp.0.checked_sub(i64::try_from(since_start).ok()?)?;
        Some(TimeWindow {
            start: EventTime(start),
            end: EventTime(start.checked_add(self.size_ms)?),
        })
    }
}
