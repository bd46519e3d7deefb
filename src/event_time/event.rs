//! What the core is told of one record.

use super::aggregate::Value;
use super::time::{EventTime, Watermark};

/// One decoded record: when it happened, whose window it belongs to, and what the aggregates take from it.
///
/// ```
/// use tidegate::event_time::{Event, EventTime, Value};
///
/// let values = [Some(Value::Integer(7)), None];
/// let event = Event::new(EventTime(1_000), b"EWR", &values);
/// assert_eq!(event.marker, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// When it happened, by its own account.
    pub timestamp: EventTime,
    /// The aggregation key as bytes; the core compares and sorts them and knows nothing else of them.
    pub key: &'a [u8],
    /// One value per configured aggregate, in its order; `None` where the aggregate leaves the record out.
    pub values: &'a [Option<Value>],
    /// What the record says about event time itself, for generators that look at it.
    pub marker: Option<Marker<'a>>,
}

impl<'a> Event<'a> {
    /// An event without a marker.
    pub fn new(timestamp: EventTime, key: &'a [u8], values: &'a [Option<Value>]) -> Self {
        Self { timestamp, key, values, marker: None }
    }
}

/// A record that is no more than a sign of life: no window has it.
///
/// ```
/// use tidegate::event_time::Heartbeat;
///
/// assert_eq!(Heartbeat { is_activity: true, watermark: None }, Heartbeat { is_activity: true, ..Default::default() });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Whether it counts as activity of its partition; otherwise it is as silent as nothing at all.
    pub is_activity: bool,
    /// Nothing at or below this follows in its partition.
    pub watermark: Option<Watermark>,
}

/// The content of the marker field of a record.
///
/// ```
/// use tidegate::event_time::{EventTime, Marker};
///
/// assert_ne!(Marker::Time(EventTime(1)), Marker::Flag(true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker<'a> {
    /// A time: the record carries a watermark.
    Time(EventTime),
    /// A boolean: `true` announces a watermark at the record's own timestamp.
    Flag(bool),
    /// Any text, for a generator of one's own.
    Text(&'a str),
}
