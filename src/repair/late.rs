//! Late records as the late topic has them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use super::{Place, RowId, source_of};
use crate::clock::Clock;
use crate::codec::{Decoded, Decoder, RawRecord};
use crate::config::{Config, Guard, Source};
use crate::event_time::{EventTime, TimeWindow, Value, Watermark};
use crate::pipeline::InputRecord;

/// Where a record was read by the service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} offset {}", self.topic, self.partition, self.offset)
    }
}

/// A late record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Late {
    /// Partition and offset in the late topic.
    pub(super) at: (i32, i64),
    /// What it says, or why that cannot be used.
    pub(super) content: Result<LateContent, String>,
    pub(super) origin: Option<Origin>,
}

/// What a late record says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LateContent {
    pub(super) row: RowId,
    pub(super) window: TimeWindow,
    /// One per aggregate.
    pub(super) values: Vec<Option<Value>>,
    /// The clock that it was judged by.
    pub(super) watermark: Watermark,
}

/// Reads late records as the service had read them.
#[derive(Debug)]
pub(super) struct LateReader<'c> {
    config: &'c Config,
    decoders: BTreeMap<String, Decoder>,
}

impl<'c> LateReader<'c> {
    pub(super) fn new(config: &'c Config) -> Self {
        Self { config, decoders: BTreeMap::new() }
    }

    pub(super) fn read(&mut self, record: &impl InputRecord) -> Late {
        let origin = origin_of(record);
        let content = match &origin {
            Some(origin) => self.content(record, origin),
            None => Err("it has no headers that say where it was read".to_owned()),
        };
        Late { at: (record.partition().partition, record.offset()), content, origin }
    }

    fn content(
        &mut self,
        record: &impl InputRecord,
        origin: &Origin,
    ) -> Result<LateContent, String> {
        if let Some(bytes) = text(record, "tidegate.payload.omitted") {
            return Err(format!("its payload of {bytes} bytes was too large for the late topic"));
        }
        let (start, end) =
            (number(record, "tidegate.window.start")?, number(record, "tidegate.window.end")?);
        let watermark = Watermark(EventTime(number(record, "tidegate.watermark")?));
        let window = self.config.windows.assign(EventTime(start));
        let window = window
            .filter(|window| window.start == EventTime(start) && window.end == EventTime(end))
            .ok_or_else(|| format!("its window {start} to {end} is none of this configuration"))?;
        let config = self.config;
        let decoder = match self.decoders.entry(origin.topic.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let source = source_of(config, &origin.topic)
                    .ok_or_else(|| format!("topic `{}` is no source of it", origin.topic))?;
                // It was believed when it came.
                let source = Source { guard: Guard::ALL, ..source };
                new.insert(Decoder::new(&source, &config.key, &config.aggregates))
            }
        };
        match decode(decoder, record, number(record, "tidegate.timestamp").ok())? {
            Decoded::Event(event) if config.windows.assign(event.timestamp) == Some(window) => {
                let place = Place::of(config, &origin.topic, origin.partition);
                let row = RowId { start, key: event.key.to_vec(), place };
                Ok(LateContent { row, window, values: event.values.to_vec(), watermark })
            }
            Decoded::Event(event) => {
                Err(format!("its time is {} and its window is not that one's", event.timestamp))
            }
            Decoded::Tombstone | Decoded::Heartbeat(_) => {
                Err("this configuration takes it for no event".to_owned())
            }
        }
    }
}

/// Reads a record as the service does; `timestamp`: the one it had before it was replaced.
pub(super) fn decode<'d>(
    decoder: &'d mut Decoder,
    record: &impl InputRecord,
    timestamp: Option<i64>,
) -> Result<Decoded<'d>, String> {
    let raw = RawRecord {
        key: record.key(),
        payload: record.payload(),
        timestamp: timestamp.or_else(|| record.timestamp()),
        timestamp_header: decoder.timestamp_header().and_then(|name| record.header(name)),
    };
    decoder.decode(raw, Clock::wall()).map_err(|refusal| refusal.to_string())
}

/// Where a late record or dead letter was read.
pub(super) fn origin_of(record: &impl InputRecord) -> Option<Origin> {
    Some(Origin {
        topic: text(record, "tidegate.topic")?,
        partition: number(record, "tidegate.partition").ok()?,
        offset: number(record, "tidegate.offset").ok()?,
    })
}

pub(super) fn text(record: &impl InputRecord, name: &str) -> Option<String> {
    record.header(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

pub(super) fn number<N: std::str::FromStr>(
    record: &impl InputRecord,
    name: &str,
) -> Result<N, String> {
    let text = text(record, name).ok_or_else(|| format!("it has no header `{name}`"))?;
    text.parse().map_err(|_| format!("its header `{name}` is `{text}`, which is no number"))
}
