//! The input: what each record is, and what watermark its partition's records before it had made.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Record;
use super::{KeyOf, Place, Rules};

/// The input topic in the order of its offsets.
#[derive(Debug)]
pub(super) struct History<'a> {
    pub(super) records: BTreeMap<Place, (&'a Record, Kind)>,
    /// Each partition's own watermark after its last record.
    pub(super) ends: BTreeMap<i32, i64>,
}

/// What a record is.
#[derive(Debug)]
pub(super) enum Kind {
    Event(Event),
    /// It belongs to the dead letters, for this reason.
    Broken(&'static str),
    Tombstone,
}

/// A record that counts.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) place: Place,
    pub(super) time: i64,
    /// Of its window.
    pub(super) start: i64,
    pub(super) value: i64,
    pub(super) key: String,
    /// The watermark that the records before it had made, late ones included.
    pub(super) own: i64,
}

impl<'a> History<'a> {
    pub(super) fn of(rules: &Rules, input: &'a [Record]) -> Self {
        let places: BTreeMap<Place, &Record> =
            input.iter().map(|record| ((record.partition, record.offset), record)).collect();
        let mut ends: BTreeMap<_, _> =
            (0..rules.partitions).map(|partition| (partition, NO_WATERMARK)).collect();
        let mut records = BTreeMap::new();
        for (place, record) in places {
            let own = ends.entry(record.partition).or_insert(NO_WATERMARK);
            let kind = kind(rules, record, *own);
            if let Kind::Event(event) = &kind {
                *own = (*own).max(event.time - rules.bound - 1);
            }
            records.insert(place, (record, kind));
        }
        Self { records, ends }
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.values().filter_map(|(_, kind)| match kind {
            Kind::Event(event) => Some(event),
            Kind::Broken(_) | Kind::Tombstone => None,
        })
    }

    pub(super) fn tombstones(&self) -> usize {
        self.records.values().filter(|(_, kind)| matches!(kind, Kind::Tombstone)).count()
    }

    /// What every clock has come to in the end: no instance waits for more than all partitions.
    pub(super) fn reached(&self) -> i64 {
        self.ends.values().copied().min().unwrap_or(NO_WATERMARK)
    }
}

fn kind(rules: &Rules, record: &Record, own: i64) -> Kind {
    let Some(payload) = &record.payload else { return Kind::Tombstone };
    match event(rules, record, payload) {
        Ok((time, value, key)) => {
            let start = time - time.rem_euclid(rules.window);
            let place = (record.partition, record.offset);
            Kind::Event(Event { place, time, start, value, key, own })
        }
        Err(reason) => Kind::Broken(reason),
    }
}

fn event(
    rules: &Rules,
    record: &Record,
    payload: &[u8],
) -> Result<(i64, i64, String), &'static str> {
    let json: Value = serde_json::from_slice(payload).map_err(|_| "bad_json")?;
    let json = json.as_object().ok_or("not_object")?;
    let time = json.get(rules.time).filter(|time| !time.is_null()).ok_or("ts_missing")?;
    let time = match time.as_i64().ok_or("ts_invalid")? {
        ..YEAR_2000 => return Err("ts_past"),
        YEAR_2100.. => return Err("ts_future"),
        time => time,
    };
    let key = match rules.key {
        KeyOf::Message => {
            let key = record.key.clone().ok_or("key_missing")?;
            String::from_utf8(key).map_err(|_| "key_type")?
        }
        KeyOf::Field(name) => {
            json.get(name).and_then(Value::as_str).ok_or("key_missing")?.to_owned()
        }
    };
    let value = json.get(rules.value).filter(|value| !value.is_null()).ok_or("value_missing")?;
    let value = value.as_i64().ok_or("value_type")?;
    Ok((time, value, key))
}

/// Below every time.
pub(super) const NO_WATERMARK: i64 = i64::MIN;

/// What the service's guards refuse by default, the second of them whatever the year is.
const YEAR_2000: i64 = 946_684_800_000;
const YEAR_2100: i64 = 4_102_444_800_000;
