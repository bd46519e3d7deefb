//! A fixed bound on how far a record may come behind the greatest timestamp.

use std::time::Duration;

use super::{WatermarkGenerator, WatermarkOutput};
use crate::event_time::time::{EventTime, MonotonicTime, Watermark, millis};
use crate::event_time::{Event, snapshot};

/// Watermark = greatest timestamp - bound - 1 ms, emitted periodically
/// (Flink: `BoundedOutOfOrdernessWatermarks`; with a bound of zero `AscendingTimestampsWatermarks`).
///
/// The 1 ms is there because another record with the same timestamp may come. Before the first event there is no
/// watermark, and a timestamp within `bound + 1` of the least time moves nothing.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{BoundedOutOfOrderness, WatermarkGenerator};
///
/// assert_eq!(BoundedOutOfOrderness::new(Duration::from_secs(2)).bound(), Some(Duration::from_secs(2)));
/// ```
#[derive(Clone, Debug)]
pub struct BoundedOutOfOrderness {
    bound_ms: i64,
    max_timestamp: EventTime,
}

impl BoundedOutOfOrderness {
    /// A generator that has seen nothing yet.
    pub fn new(max_out_of_orderness: Duration) -> Self {
        let bound_ms = millis(max_out_of_orderness);
        Self {
            bound_ms,
            max_timestamp: EventTime(i64::MIN.saturating_add(bound_ms).saturating_add(1)),
        }
    }
}

impl WatermarkGenerator for BoundedOutOfOrderness {
    fn on_event(&mut self, event: &Event<'_>, _output: &mut WatermarkOutput) {
        self.max_timestamp = self.max_timestamp.max(event.timestamp);
    }

    fn on_periodic_emit(&mut self, _now: MonotonicTime, output: &mut WatermarkOutput) {
        // Can't leave the range: the greatest timestamp is at least MIN + bound + 1.
        output.emit(Watermark(EventTime(
            self.max_timestamp.0.saturating_sub(self.bound_ms).saturating_sub(1),
        )));
    }

    fn bound(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.bound_ms.unsigned_abs()))
    }

    fn snapshot(&self) -> Vec<u8> {
        snapshot::Writer::new(SNAPSHOT_VERSION).i64(self.max_timestamp.0).finish()
    }

    fn restore(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let restored =
            snapshot::Reader::new(bytes, SNAPSHOT_VERSION).and_then(|mut reader| reader.i64());
        if let Some(max_timestamp) = restored {
            self.max_timestamp = self.max_timestamp.max(EventTime(max_timestamp));
        }
        restored.is_some()
    }
}

/// No other generator's snapshot begins with this.
const SNAPSHOT_VERSION: u8 = 1;
