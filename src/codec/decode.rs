//! A Kafka record into an event, or the reason why not.

use std::borrow::Cow;
use std::fmt;

use super::extract::Extractor;
use super::key::KeyPart;
use super::number::{Number, TimestampFault, number, numeric_timestamp, rfc3339_timestamp};
use super::{FieldPath, Reason};
use crate::config::{
    self, Aggregate, Guard, Key, KeyFrom, Missing, Source, Timestamp, TimestampFrom, TimestampUnit,
    ValueType,
};
use crate::event_time::{Event, EventTime, Heartbeat, Marker, Value, Watermark};

/// A record as the topic has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawRecord<'a> {
    /// The message key.
    pub key: Option<&'a [u8]>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<&'a [u8]>,
    /// Kafka's own timestamp in milliseconds; `None` or -1 where the producer gave none.
    pub timestamp: Option<i64>,
    /// The header that [`Decoder::timestamp_header`] asks for.
    pub timestamp_header: Option<&'a [u8]>,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoded<'a> {
    /// Something happened.
    Event(Event<'a>),
    /// No payload: the key's record is deleted. Counted, and nothing more.
    Tombstone,
    /// A sign of life: no window has it, whatever else is in it.
    Heartbeat(Heartbeat),
}

/// A record that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .reason.name())]
pub struct Refusal {
    /// The reason, out of the closed set.
    pub reason: Reason,
    /// What a person needs to find the fault.
    pub detail: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// Reads the records of one source: the timestamp, the marker, the key fields and the aggregates' fields, and nothing
/// else. Buffers are kept from record to record, so a record costs no allocation unless a text has escapes.
#[derive(Debug)]
pub struct Decoder {
    extractor: Extractor,
    timestamp: Timestamp,
    timestamp_field: Option<Field>,
    marker: Option<Field>,
    heartbeat: Option<(Field, config::Heartbeat)>,
    /// `None`: the message key.
    key_fields: Option<Vec<Field>>,
    aggregates: Vec<(Option<Field>, ValueType, Missing, bool)>,
    guard: Guard,
    key: Vec<u8>,
    values: Vec<Option<Value>>,
    marker_text: String,
}

#[derive(Clone, Debug)]
struct Field {
    slot: usize,
    path: FieldPath,
}

impl Decoder {
    /// A decoder for a source's records, which believes the timestamps that the source's guard does.
    pub fn new(source: &Source, key: &Key, aggregates: &[Aggregate]) -> Self {
        let mut extractor = Extractor::default();
        let mut field = |path: FieldPath| Field { slot: extractor.slot(&path), path };
        let timestamp_field = match &source.timestamp.from {
            TimestampFrom::Field(path) => Some(field(path.clone())),
            TimestampFrom::Record | TimestampFrom::Header(_) => None,
        };
        let marker = source.marker.clone().map(&mut field);
        let heartbeat =
            source.heartbeat.clone().map(|heartbeat| (field(heartbeat.field.clone()), heartbeat));
        let key_fields = match &key.from {
            KeyFrom::Message => None,
            KeyFrom::Fields(names) => {
                Some(names.iter().filter_map(|n| source.path(n)).map(&mut field).collect())
            }
        };
        let aggregates = aggregates
            .iter()
            .map(|aggregate| {
                let counts = aggregate.function == crate::event_time::AggregateFunction::Count;
                let field =
                    aggregate.field.as_ref().and_then(|name| source.path(name)).map(&mut field);
                (field, aggregate.value_type, aggregate.missing, counts)
            })
            .collect();
        Self {
            extractor,
            timestamp: source.timestamp.clone(),
            timestamp_field,
            marker,
            heartbeat,
            key_fields,
            aggregates,
            guard: source.guard,
            key: Vec::new(),
            values: Vec::new(),
            marker_text: String::new(),
        }
    }

    /// The header that holds the timestamp, if one does.
    pub fn timestamp_header(&self) -> Option<&str> {
        match &self.timestamp.from {
            TimestampFrom::Header(name) => Some(name),
            TimestampFrom::Field(_) | TimestampFrom::Record => None,
        }
    }

    /// Reads a record; `wall` is the present, for the guard against timestamps from the future.
    ///
    /// # Errors
    /// The first fault found, in this order: the JSON, the timestamp, the key, the values. A heartbeat has no faults but
    /// in the JSON, and in the timestamp where that is a watermark.
    pub fn decode(
        &mut self,
        record: RawRecord<'_>,
        wall: EventTime,
    ) -> Result<Decoded<'_>, Refusal> {
        let Some(payload) = record.payload else { return Ok(Decoded::Tombstone) };
        if payload.is_empty() {
            return Err(Refusal::new(Reason::EmptyPayload, "the payload has no bytes"));
        }
        let text = std::str::from_utf8(payload)
            .map_err(|error| Refusal::new(Reason::BadUtf8, error.to_string()))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        self.extractor.extract(text)?;
        if let Some(heartbeat) = self.heartbeat(text, record, wall)? {
            return Ok(Decoded::Heartbeat(heartbeat));
        }

        let timestamp = self.timestamp(text, record)?;
        self.guard_timestamp(timestamp, wall)?;
        self.read_key(text, record)?;
        self.read_values(text)?;
        let marker = match self.marker.clone() {
            Some(field) => self.marker(text, &field, wall)?,
            None => None,
        };
        let marker = marker.map(|marker| match marker {
            MarkerKind::Time(time) => Marker::Time(time),
            MarkerKind::Flag(flag) => Marker::Flag(flag),
            MarkerKind::Text => Marker::Text(&self.marker_text),
        });
        Ok(Decoded::Event(Event { timestamp, key: &self.key, values: &self.values, marker }))
    }

    /// What a record says that is a sign of life; `None` for any other.
    fn heartbeat(
        &self,
        text: &str,
        record: RawRecord<'_>,
        wall: EventTime,
    ) -> Result<Option<Heartbeat>, Refusal> {
        let Some((field, heartbeat)) = &self.heartbeat else { return Ok(None) };
        let Some(raw) = self.extractor.get(text, field.slot) else { return Ok(None) };
        let is_one = match json_text(raw) {
            Some(text) => text? == heartbeat.equals.as_str(),
            None => raw == heartbeat.equals,
        };
        if !is_one {
            return Ok(None);
        }
        let watermark = if heartbeat.carries_watermark {
            let timestamp = self.timestamp(text, record)?;
            self.guard_timestamp(timestamp, wall)?;
            Some(Watermark(timestamp))
        } else {
            None
        };
        Ok(Some(Heartbeat { is_activity: heartbeat.is_activity, watermark }))
    }

    fn timestamp(&self, text: &str, record: RawRecord<'_>) -> Result<EventTime, Refusal> {
        let missing = |what: String| Refusal::new(Reason::TsMissing, what);
        match (&self.timestamp.from, &self.timestamp_field) {
            (TimestampFrom::Record, _) => match record.timestamp {
                None | Some(-1) => Err(missing("the record has no Kafka timestamp".to_owned())),
                Some(ms) => Ok(EventTime(ms)),
            },
            (TimestampFrom::Header(name), _) => {
                let header = record
                    .timestamp_header
                    .ok_or_else(|| missing(format!("no header `{name}`")))?;
                let header = std::str::from_utf8(header).map_err(|_| {
                    Refusal::new(Reason::TsInvalid, format!("header `{name}` is not UTF-8"))
                })?;
                self.parse_timestamp(header, header)
                    .map_err(|fault| fault.refusal(&format!("header `{name}`"), header))
            }
            (TimestampFrom::Field(path), field) => {
                let raw = field.as_ref().and_then(|field| self.extractor.get(text, field.slot));
                let raw = raw
                    .filter(|raw| *raw != "null")
                    .ok_or_else(|| missing(format!("no field `{path}`")))?;
                self.timestamp_in_json(raw)
                    .map_err(|fault| fault.refusal(&format!("field `{path}`"), raw))
            }
        }
    }

    /// A timestamp in the raw text of a JSON value: dates are quoted there, numbers are not.
    fn timestamp_in_json(&self, raw: &str) -> Result<EventTime, TimestampFault> {
        let text = json_text(raw);
        match (self.timestamp.unit, text) {
            (TimestampUnit::Rfc3339, Some(Ok(text))) => self.parse_timestamp(&text, raw),
            (TimestampUnit::Rfc3339, _) => {
                Err(TimestampFault::Invalid("is no text with an RFC 3339 date and time"))
            }
            (_, Some(_)) => Err(TimestampFault::Invalid("is a text, not a number")),
            (_, None) => self.parse_timestamp(raw, raw),
        }
    }

    fn parse_timestamp(&self, date: &str, digits: &str) -> Result<EventTime, TimestampFault> {
        if self.timestamp.unit == TimestampUnit::Rfc3339 {
            return rfc3339_timestamp(date, self.timestamp.naive_is_utc);
        }
        numeric_timestamp(digits, self.timestamp.unit)
    }

    fn guard_timestamp(&self, timestamp: EventTime, wall: EventTime) -> Result<(), Refusal> {
        if let Some(least) = self.guard.min_timestamp.filter(|least| timestamp < *least) {
            let hint = unit_hint(timestamp, wall, self.timestamp.unit);
            let detail = format!(
                "{} is before guard.min_timestamp ({}){hint}",
                Date(timestamp),
                Date(least)
            );
            return Err(Refusal::new(Reason::TsPast, detail));
        }
        let greatest = self.guard.max_future.map(|future| wall + future);
        if let Some(greatest) = greatest.filter(|greatest| timestamp > *greatest) {
            let hint = unit_hint(timestamp, wall, self.timestamp.unit);
            let detail = format!(
                "{} is past the wall clock by more than guard.max_future (until {}){hint}",
                Date(timestamp),
                Date(greatest)
            );
            return Err(Refusal::new(Reason::TsFuture, detail));
        }
        Ok(())
    }

    fn read_key(&mut self, text: &str, record: RawRecord<'_>) -> Result<(), Refusal> {
        self.key.clear();
        let Some(fields) = &self.key_fields else {
            let key = record
                .key
                .ok_or_else(|| Refusal::new(Reason::KeyMissing, "the message has no key"))?;
            let key = std::str::from_utf8(key)
                .map_err(|_| Refusal::new(Reason::KeyType, "the message key is not UTF-8 text"))?;
            KeyPart::Text(Cow::Borrowed(key)).write(true, &mut self.key);
            return Ok(());
        };
        for (i, field) in fields.iter().enumerate() {
            let raw = self.extractor.get(text, field.slot).filter(|raw| *raw != "null");
            let raw = raw.ok_or_else(|| {
                Refusal::new(Reason::KeyMissing, format!("no field `{}`", field.path))
            })?;
            key_part(raw, &field.path)?.write(i + 1 == fields.len(), &mut self.key);
        }
        Ok(())
    }

    fn read_values(&mut self, text: &str) -> Result<(), Refusal> {
        self.values.clear();
        for (field, value_type, missing, counts) in &self.aggregates {
            let Some(field) = field else {
                self.values.push(Some(Value::Integer(1)));
                continue;
            };
            let raw = self.extractor.get(text, field.slot).filter(|raw| *raw != "null");
            self.values.push(match (raw, missing) {
                (None, Missing::Skip) => None,
                (None, Missing::Refuse) => {
                    return Err(Refusal::new(
                        Reason::ValueMissing,
                        format!("no field `{}`", field.path),
                    ));
                }
                (Some(_), _) if *counts => Some(Value::Integer(1)),
                (Some(raw), _) => Some(value(raw, *value_type, &field.path)?),
            });
        }
        Ok(())
    }

    fn marker(
        &mut self,
        text: &str,
        field: &Field,
        wall: EventTime,
    ) -> Result<Option<MarkerKind>, Refusal> {
        let Some(raw) = self.extractor.get(text, field.slot) else { return Ok(None) };
        let time = match (raw, json_text(raw)) {
            ("null", _) => return Ok(None),
            ("true", _) => return Ok(Some(MarkerKind::Flag(true))),
            ("false", _) => return Ok(Some(MarkerKind::Flag(false))),
            (_, None) => self.parse_timestamp(raw, raw),
            (_, Some(marker)) => {
                let marker = marker?;
                if self.timestamp.unit == TimestampUnit::Rfc3339
                    && let Ok(time) = self.parse_timestamp(&marker, raw)
                {
                    Ok(time)
                } else {
                    self.marker_text.clear();
                    self.marker_text.push_str(&marker);
                    return Ok(Some(MarkerKind::Text));
                }
            }
        };
        let time = time.map_err(|fault| fault.refusal(&format!("marker `{}`", field.path), raw))?;
        // A watermark from the future would close everybody's windows just as a timestamp would.
        self.guard_timestamp(time, wall).map(|()| Some(MarkerKind::Time(time)))
    }
}

enum MarkerKind {
    Time(EventTime),
    Flag(bool),
    Text,
}

impl TimestampFault {
    fn refusal(self, place: &str, raw: &str) -> Refusal {
        match self {
            Self::Invalid(what) => {
                Refusal::new(Reason::TsInvalid, format!("{place} {what}: {}", shortened(raw)))
            }
            Self::OutOfRange => {
                let detail =
                    format!("{place} is beyond 64 bits of milliseconds: {}", shortened(raw));
                Refusal::new(Reason::TsOutOfRange, detail)
            }
        }
    }
}

/// The content of a JSON text, borrowed if it has no escapes; `None` if the raw value is no text.
fn json_text(raw: &str) -> Option<Result<Cow<'_, str>, Refusal>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Ok(Cow::Borrowed(inner)));
    }
    let text = serde_json::from_str(raw).map(Cow::Owned);
    Some(text.map_err(|error| Refusal::new(Reason::BadJson, error.to_string())))
}

fn key_part<'t>(raw: &'t str, path: &FieldPath) -> Result<KeyPart<'t>, Refusal> {
    if let Some(text) = json_text(raw) {
        return text.map(KeyPart::Text);
    }
    match (raw, number(raw)) {
        ("true", _) => Ok(KeyPart::Bool(true)),
        ("false", _) => Ok(KeyPart::Bool(false)),
        (_, Some(Number::Integer(integer))) => Ok(KeyPart::Integer(integer)),
        _ => {
            let detail =
                format!("field `{path}` is no text, integer or boolean: {}", shortened(raw));
            Err(Refusal::new(Reason::KeyType, detail))
        }
    }
}

fn value(raw: &str, value_type: ValueType, path: &FieldPath) -> Result<Value, Refusal> {
    let refusal = |reason, what: &str| {
        Refusal::new(reason, format!("field `{path}` {what}: {}", shortened(raw)))
    };
    let too_large = || refusal(Reason::ValueOutOfRange, "is beyond the range of a float");
    match (number(raw), value_type) {
        (None, _) => Err(refusal(Reason::ValueType, "is no number")),
        (Some(Number::Float(_)), ValueType::Integer) => {
            Err(refusal(Reason::ValueType, "is no integer"))
        }
        (Some(Number::Float(float)), ValueType::Number | ValueType::Float) => {
            Value::float(float).ok_or_else(too_large)
        }
        (Some(Number::Integer(_) | Number::Huge), ValueType::Float) => {
            raw.parse().ok().and_then(Value::float).ok_or_else(too_large)
        }
        (Some(Number::Integer(integer)), _) => i64::try_from(integer)
            .map(Value::Integer)
            .map_err(|_| refusal(Reason::ValueOutOfRange, "is an integer beyond 64 bits")),
        (Some(Number::Huge), _) => {
            Err(refusal(Reason::ValueOutOfRange, "is an integer beyond 64 bits"))
        }
    }
}

/// Which unit would make sense of a timestamp that the guard refuses.
fn unit_hint(timestamp: EventTime, wall: EventTime, unit: TimestampUnit) -> String {
    if unit == TimestampUnit::Rfc3339 {
        return String::new();
    }
    // The same digits in another unit, if that lands within a few years of the present.
    let near = |ms: i128| (i128::from(wall.0) - ms).abs() < 20 * 365 * 24 * 3_600_000;
    let in_unit = match unit {
        TimestampUnit::Seconds => i128::from(timestamp.0) / 1_000,
        TimestampUnit::Microseconds => i128::from(timestamp.0) * 1_000,
        TimestampUnit::Nanoseconds => i128::from(timestamp.0) * 1_000_000,
        TimestampUnit::Milliseconds | TimestampUnit::Rfc3339 => i128::from(timestamp.0),
    };
    let guesses = [
        ("s", in_unit * 1_000),
        ("ms", in_unit),
        ("us", in_unit / 1_000),
        ("ns", in_unit / 1_000_000),
    ];
    let guess = guesses.into_iter().find(|(_, ms)| near(*ms));
    guess.map_or_else(String::new, |(name, _)| {
        format!("; as `unit = \"{name}\"` it would be near the present")
    })
}

/// A time as people write it, or its number where the calendar ends.
struct Date(EventTime);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0.0) {
            Ok(date) => date.fmt(f),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

fn shortened(raw: &str) -> Cow<'_, str> {
    const MOST: usize = 80;
    match raw.char_indices().nth(MOST) {
        None => Cow::Borrowed(raw),
        Some((end, _)) => {
            Cow::Owned(format!("{}… ({} bytes)", raw.get(..end).unwrap_or(""), raw.len()))
        }
    }
}
