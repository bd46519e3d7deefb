//! How a partition's watermark follows its events.
//!
//! A [`WatermarkStrategy`] makes one [`WatermarkGenerator`] per partition. The generator sees each accepted record
//! after the record has been judged, and the periodic emission; what it decides goes into a [`WatermarkOutput`].

mod adaptive;
mod bounded_out_of_orderness;
mod idleness;
mod punctuated;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use adaptive::{Adaptive, AdaptiveSettings};
pub use bounded_out_of_orderness::BoundedOutOfOrderness;
pub(crate) use idleness::{IdleClock, IdlenessTimer};
pub use punctuated::Punctuated;

use super::Event;
use super::multiplexer::WatermarkStatus;
use super::time::{MonotonicTime, Watermark};

/// Derives one partition's watermark from its events (Flink: `WatermarkGenerator`).
///
/// A generator of your own can be given a name with [`WatermarkStrategy::Named`]; this one declares a partition
/// idle after three heartbeats in a row, by content and without any clock:
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{
///     Event, EventTime, Marker, MonotonicTime, Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStatus,
/// };
///
/// #[derive(Debug, Default)]
/// struct Heartbeats { in_a_row: u32 }
///
/// impl WatermarkGenerator for Heartbeats {
///     fn on_event(&mut self, event: &Event<'_>, output: &mut WatermarkOutput) {
///         let heartbeat = event.marker == Some(Marker::Text("heartbeat"));
///         self.in_a_row = if heartbeat { self.in_a_row + 1 } else { 0 };
///         output.emit(Watermark(event.timestamp - Duration::from_millis(1)));
///         if self.in_a_row >= 3 {
///             output.mark_idle();
///         }
///     }
///     fn on_periodic_emit(&mut self, _now: MonotonicTime, _output: &mut WatermarkOutput) {}
/// }
///
/// let mut generator = Heartbeats::default();
/// let mut output = WatermarkOutput::default();
/// let heartbeat = |ms| Event { marker: Some(Marker::Text("heartbeat")), ..Event::new(EventTime(ms), b"", &[]) };
/// for ms in [1, 2, 3] {
///     generator.on_event(&heartbeat(ms), &mut output);
/// }
/// assert_eq!(output.watermark(), Some(Watermark(EventTime(2))));
/// assert_eq!(output.status(), Some(WatermarkStatus::Idle));
/// ```
pub trait WatermarkGenerator: fmt::Debug + Send {
    /// Sees one accepted record, late or not, after it has been judged. What it emits here is combined at once.
    fn on_event(&mut self, event: &Event<'_>, output: &mut WatermarkOutput);

    /// The periodic emission, every `emit_interval` (200 ms by default). What it emits here is combined once for
    /// all partitions. Not called while the partition is idle by its timeout.
    fn on_periodic_emit(&mut self, now: MonotonicTime, output: &mut WatermarkOutput);

    /// The out-of-orderness bound in force, where there is one.
    fn bound(&self) -> Option<Duration> {
        None
    }

    /// Numbers for metrics and explanations, each with its name and unit in the name.
    fn gauges(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// What a successor needs to go on where this one is; its own format, empty if it needs nothing.
    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Goes on from a predecessor's snapshot; bytes of another version or kind are left unread, and the
    /// generator begins anew. Whether the snapshot was taken.
    fn restore(&mut self, snapshot: &[u8]) -> bool {
        snapshot.is_empty()
    }
}

/// What a generator decided: a higher watermark, and whether its partition counts (Flink: `WatermarkOutput`).
///
/// ```
/// use tidegate::event_time::{EventTime, Watermark, WatermarkOutput, WatermarkStatus};
///
/// let mut output = WatermarkOutput::default();
/// output.mark_idle();
/// output.emit(Watermark(EventTime(5)));
/// output.emit(Watermark(EventTime(3))); // only ever raises
/// assert_eq!(output.watermark(), Some(Watermark(EventTime(5))));
/// assert_eq!(output.status(), Some(WatermarkStatus::Active)); // an emission ends idleness
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatermarkOutput {
    watermark: Option<Watermark>,
    status: Option<WatermarkStatus>,
    marked: bool,
}

impl WatermarkOutput {
    /// Raises the partition's watermark, if this one is higher, and makes the partition active.
    pub fn emit(&mut self, watermark: Watermark) {
        self.watermark = self.watermark.max(Some(watermark));
        self.status = Some(WatermarkStatus::Active);
    }

    /// Takes the partition out of the minimum until the next emission or [`Self::mark_active`].
    pub fn mark_idle(&mut self) {
        self.status = Some(WatermarkStatus::Idle);
        self.marked = true;
    }

    /// Puts the partition back into the minimum.
    pub fn mark_active(&mut self) {
        self.status = Some(WatermarkStatus::Active);
        self.marked = true;
    }

    /// The highest watermark emitted so far.
    pub fn watermark(&self) -> Option<Watermark> {
        self.watermark
    }

    /// The status decided last.
    pub fn status(&self) -> Option<WatermarkStatus> {
        self.status
    }

    /// Whether the status was set in so many words: such a mark combines at once, even where no watermark rose.
    pub(crate) fn marked(&self) -> bool {
        self.marked
    }
}

/// Makes the generator of a partition (Flink: `WatermarkStrategy`).
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{Event, EventTime, MonotonicTime, Watermark, WatermarkOutput, WatermarkStrategy};
///
/// let strategy = WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness: Duration::from_secs(2) };
/// let (mut generator, mut output) = (strategy.generator(), WatermarkOutput::default());
/// generator.on_event(&Event::new(EventTime(7_000), b"", &[]), &mut output);
/// generator.on_periodic_emit(MonotonicTime::default(), &mut output);
/// assert_eq!(output.watermark(), Some(Watermark(EventTime(4_999))));
/// ```
#[derive(Clone, Debug)]
pub enum WatermarkStrategy {
    /// Timestamps rise within a partition; the watermark is the greatest so far - 1 ms.
    AscendingTimestamps,
    /// Records may come this much behind the greatest timestamp so far.
    BoundedOutOfOrderness {
        /// The bound.
        max_out_of_orderness: Duration,
    },
    /// The record says so, by a marker field.
    Punctuated,
    /// The bound follows the disorder observed.
    Adaptive(AdaptiveSettings),
    /// A generator of the library's user.
    Named(NamedStrategy),
}

impl WatermarkStrategy {
    /// A new generator for one partition.
    pub fn generator(&self) -> Box<dyn WatermarkGenerator> {
        match self {
            Self::AscendingTimestamps => Box::new(BoundedOutOfOrderness::new(Duration::ZERO)),
            Self::BoundedOutOfOrderness { max_out_of_orderness } => {
                Box::new(BoundedOutOfOrderness::new(*max_out_of_orderness))
            }
            Self::Punctuated => Box::new(Punctuated),
            Self::Adaptive(settings) => Box::new(Adaptive::new(*settings)),
            Self::Named(named) => (named.factory)(),
        }
    }

    /// The name by which the configuration calls it.
    pub fn name(&self) -> &str {
        match self {
            Self::AscendingTimestamps => "ascending",
            Self::BoundedOutOfOrderness { .. } => "bounded_out_of_orderness",
            Self::Punctuated => "punctuated",
            Self::Adaptive(_) => "adaptive",
            Self::Named(named) => &named.name,
        }
    }
}

/// A strategy brought along by the library's user, under the name that the configuration uses.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{BoundedOutOfOrderness, NamedStrategy, WatermarkStrategy};
///
/// let ours = NamedStrategy::new("ours", || Box::new(BoundedOutOfOrderness::new(Duration::from_secs(1))));
/// assert_eq!(WatermarkStrategy::Named(ours).generator().bound(), Some(Duration::from_secs(1)));
/// ```
#[derive(Clone)]
pub struct NamedStrategy {
    name: String,
    factory: Arc<dyn Fn() -> Box<dyn WatermarkGenerator> + Send + Sync>,
}

impl NamedStrategy {
    /// A strategy that makes its generators by this function.
    pub fn new(
        name: impl Into<String>,
        factory: impl Fn() -> Box<dyn WatermarkGenerator> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), factory: Arc::new(factory) }
    }

    /// The name that `strategy = "..."` uses.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for NamedStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedStrategy").field(&self.name).finish()
    }
}
