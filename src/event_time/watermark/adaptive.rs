//! A bound that follows the disorder observed.

use std::time::Duration;

use super::{WatermarkGenerator, WatermarkOutput};
use crate::event_time::time::{EventTime, MonotonicTime, Watermark, millis};
use crate::event_time::{Event, snapshot};

/// How the adaptive bound follows the disorder.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::AdaptiveSettings;
///
/// let settings = AdaptiveSettings::default();
/// assert_eq!((settings.margin, settings.buckets, settings.bucket_width.as_secs()), (2.0, 6, 10));
/// assert_eq!((settings.floor.as_secs(), settings.ceiling.as_secs(), settings.initial), (1, 60, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveSettings {
    /// The bound is this many times the largest disorder remembered.
    pub margin: f64,
    /// How many buckets of event time are remembered, the running one included; at least 1.
    pub buckets: u16,
    /// The length of a bucket in event time; at least 1 ms.
    pub bucket_width: Duration,
    /// The bound is never below this.
    pub floor: Duration,
    /// The bound is never above this.
    pub ceiling: Duration,
    /// The least bound until all buckets have passed once, so that a cold start delays results instead of making
    /// records late; the ceiling if `None`.
    pub initial: Option<Duration>,
}

impl Default for AdaptiveSettings {
    fn default() -> Self {
        Self {
            margin: 2.0,
            buckets: 6,
            bucket_width: Duration::from_secs(10),
            floor: Duration::from_secs(1),
            ceiling: Duration::from_mins(1),
            initial: None,
        }
    }
}

/// Watermark = greatest timestamp - bound - 1 ms, where the bound is `margin` times the largest disorder seen in the
/// last `buckets` buckets of event time, between `floor` and `ceiling`.
///
/// Disorder is how far a record comes behind the greatest timestamp before it. The greatest timestamp turns the
/// buckets, on every event: an in-order stretch of `buckets` buckets brings the bound back to the floor, and an
/// outlier leaves with its bucket. A growing bound never lets the watermark fall.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{Adaptive, AdaptiveSettings, Event, EventTime, WatermarkGenerator, WatermarkOutput};
///
/// let mut adaptive = Adaptive::new(AdaptiveSettings::default());
/// let mut output = WatermarkOutput::default();
/// assert_eq!(adaptive.bound(), Some(Duration::from_secs(60))); // a cold start waits
/// for second in 0..=60 {
///     adaptive.on_event(&Event::new(EventTime(second * 1_000), b"", &[]), &mut output);
/// }
/// assert_eq!(adaptive.bound(), Some(Duration::from_secs(1))); // everything came in order
/// adaptive.on_event(&Event::new(EventTime(55_000), b"", &[]), &mut output);
/// assert_eq!(adaptive.bound(), Some(Duration::from_secs(10))); // twice the 5 s of disorder
/// ```
#[derive(Clone, Debug)]
pub struct Adaptive {
    settings: AdaptiveSettings,
    /// `None` before the first event.
    seen: Option<Seen>,
    /// The largest disorder of each bucket, in ms; bucket number n of event time at n modulo their count.
    disorder_ms: Vec<i64>,
    emitted: Watermark,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    max_timestamp: EventTime,
    /// The bucket in which the first event fell; the cold start ends `buckets` buckets later.
    first_bucket: i64,
}

impl Adaptive {
    /// A generator that has seen nothing yet.
    pub fn new(settings: AdaptiveSettings) -> Self {
        let buckets = usize::from(settings.buckets.max(1));
        Self { settings, seen: None, disorder_ms: vec![0; buckets], emitted: Watermark::NONE }
    }

    /// The largest disorder remembered: what the bound in force is made of.
    pub fn observed_disorder(&self) -> Duration {
        let largest = self.disorder_ms.iter().copied().max().unwrap_or(0);
        Duration::from_millis(largest.unsigned_abs())
    }

    fn bucket(&self, timestamp: EventTime) -> i64 {
        timestamp.0.div_euclid(millis(self.settings.bucket_width).max(1))
    }

    fn slot(&mut self, bucket: i64) -> Option<&mut i64> {
        let count = i64::from(self.settings.buckets.max(1));
        self.disorder_ms.get_mut(usize::try_from(bucket.rem_euclid(count)).ok()?)
    }

    /// Forgets what was seen in the buckets that the greatest timestamp leaves behind.
    fn turn(&mut self, from: EventTime, to: EventTime) {
        let (from, to) = (self.bucket(from), self.bucket(to));
        let turned = to.saturating_sub(from).min(i64::from(self.settings.buckets.max(1)));
        for bucket in (to - turned + 1)..=to {
            if let Some(slot) = self.slot(bucket) {
                *slot = 0;
            }
        }
    }

    fn is_warm(&self) -> bool {
        self.seen.is_some_and(|seen| {
            self.bucket(seen.max_timestamp).saturating_sub(seen.first_bucket)
                >= i64::from(self.settings.buckets)
        })
    }

    fn bound_ms(&self) -> i64 {
        let settings = &self.settings;
        let (floor, ceiling) =
            (millis(settings.floor), millis(settings.ceiling).max(millis(settings.floor)));
        let least = match settings.initial {
            _ if self.is_warm() => floor,
            None => ceiling,
            Some(initial) => millis(initial).clamp(floor, ceiling),
        };
        let wanted = self.observed_disorder().as_secs_f64() * settings.margin;
        let wanted = Duration::try_from_secs_f64(wanted).unwrap_or(Duration::MAX);
        millis(wanted).clamp(least, ceiling)
    }
}

impl WatermarkGenerator for Adaptive {
    fn on_event(&mut self, event: &Event<'_>, _output: &mut WatermarkOutput) {
        let Some(mut seen) = self.seen else {
            self.seen = Some(Seen {
                max_timestamp: event.timestamp,
                first_bucket: self.bucket(event.timestamp),
            });
            return;
        };
        if event.timestamp > seen.max_timestamp {
            self.turn(seen.max_timestamp, event.timestamp);
            seen.max_timestamp = event.timestamp;
            self.seen = Some(seen);
            return;
        }
        let disorder = seen.max_timestamp.0.saturating_sub(event.timestamp.0);
        let bucket = self.bucket(seen.max_timestamp);
        if let Some(slot) = self.slot(bucket) {
            *slot = disorder.max(*slot);
        }
    }

    fn on_periodic_emit(&mut self, _now: MonotonicTime, output: &mut WatermarkOutput) {
        if let Some(seen) = self.seen {
            let watermark = seen.max_timestamp.0.saturating_sub(self.bound_ms()).saturating_sub(1);
            self.emitted = self.emitted.max(Watermark(EventTime(watermark)));
        }
        output.emit(self.emitted);
    }

    fn bound(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.bound_ms().unsigned_abs()))
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        vec![("observed_out_of_orderness_seconds", self.observed_disorder().as_secs_f64())]
    }

    fn snapshot(&self) -> Vec<u8> {
        let Some(seen) = self.seen else { return Vec::new() };
        let writer = snapshot::Writer::new(SNAPSHOT_VERSION)
            .i64(millis(self.settings.bucket_width))
            .i64(seen.max_timestamp.0)
            .i64(seen.first_bucket)
            .i64(self.emitted.0.0);
        self.disorder_ms.iter().fold(writer, |writer, disorder| writer.i64(*disorder)).finish()
    }

    /// A snapshot taken with other buckets is not taken: the memory would not fit, and a cold start is safe.
    fn restore(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let Some(restored) = self.read(bytes) else { return false };
        *self = restored;
        true
    }
}

impl Adaptive {
    fn read(&self, bytes: &[u8]) -> Option<Self> {
        let mut reader = snapshot::Reader::new(bytes, SNAPSHOT_VERSION)?;
        let same_buckets = reader.i64()? == millis(self.settings.bucket_width)
            && reader.remaining_i64() == self.disorder_ms.len() + 3;
        if !same_buckets {
            return None;
        }
        let seen = Seen { max_timestamp: EventTime(reader.i64()?), first_bucket: reader.i64()? };
        let emitted = Watermark(EventTime(reader.i64()?));
        let disorder_ms =
            self.disorder_ms.iter().map(|_| reader.i64()).collect::<Option<Vec<_>>>()?;
        Some(Self { settings: self.settings, seen: Some(seen), disorder_ms, emitted })
    }
}

/// No other generator's snapshot begins with this.
const SNAPSHOT_VERSION: u8 = 2;
