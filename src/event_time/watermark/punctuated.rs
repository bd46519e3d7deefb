//! The event itself says how far event time has come.

use super::{WatermarkGenerator, WatermarkOutput};
use crate::event_time::time::{MonotonicTime, Watermark};
use crate::event_time::{Event, Marker};

/// Emits what a marker in the record says, at once; the periodic emission does nothing.
///
/// A marker that is a time carries the watermark; a marker that is `true` announces that nothing at or below the
/// record's own timestamp follows. Any other record emits nothing, so a partition without markers holds the rest
/// until its idleness timeout.
///
/// ```
/// use tidegate::event_time::{Event, EventTime, Marker, Punctuated, Watermark, WatermarkGenerator, WatermarkOutput};
///
/// let mut output = WatermarkOutput::default();
/// let event = Event { marker: Some(Marker::Time(EventTime(4_000))), ..Event::new(EventTime(9_000), b"", &[]) };
/// Punctuated.on_event(&event, &mut output);
/// assert_eq!(output.watermark(), Some(Watermark(EventTime(4_000))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Punctuated;

impl WatermarkGenerator for Punctuated {
    fn on_event(&mut self, event: &Event<'_>, output: &mut WatermarkOutput) {
        match event.marker {
            Some(Marker::Time(time)) => output.emit(Watermark(time)),
            Some(Marker::Flag(true)) => output.emit(Watermark(event.timestamp)),
            Some(Marker::Flag(false) | Marker::Text(_)) | None => {}
        }
    }

    fn on_periodic_emit(&mut self, _now: MonotonicTime, _output: &mut WatermarkOutput) {}
}
