//! Panes into result records.

use std::io::Write as _;

use super::key::{KeyPart, KeyParts};
use crate::config::{Aggregate, IntegerFormat, Key, KeyFrom, ResultKey, Results, TimestampFormat};
use crate::event_time::{AggregateValue, EventTime, Pane, ShardId, TimeWindow, Watermark};

/// A result or progress record, in buffers that are used again.
#[derive(Debug, Default)]
pub struct Encoded {
    /// The message key.
    pub key: Vec<u8>,
    /// The payload, JSON.
    pub value: Vec<u8>,
}

/// A row of the results but for its aggregates.
#[derive(Clone, Copy, Debug)]
pub struct ResultRow<'a> {
    /// The window.
    pub window: TimeWindow,
    /// The key, as the event gave it.
    pub key: &'a [u8],
    /// The partition whose records are in it, where they are only those of one.
    pub partition: Option<i32>,
    /// The topic of that partition.
    pub topic: &'a str,
    /// Why it is written.
    pub timing: &'a str,
    /// How many panes of this window and key came before.
    pub index: u32,
}

/// Writes panes as JSON objects: window, key fields, aggregates, pane.
#[derive(Debug)]
pub struct Encoder {
    /// Field names as JSON texts, with the comma before and the colon behind.
    key_names: Vec<String>,
    aggregate_names: Vec<String>,
    partial: bool,
    /// Partial results are also told apart by topic.
    across_topics: bool,
    format: Results,
}

impl Encoder {
    /// An encoder for results with these key fields and aggregates; a message key is called `key`.
    pub fn new(key: &Key, aggregates: &[Aggregate], format: &Results) -> Self {
        let key_names = match &key.from {
            KeyFrom::Message => vec![member("key")],
            KeyFrom::Fields(fields) => fields.iter().map(|field| member(field)).collect(),
        };
        Self {
            key_names,
            aggregate_names: aggregates.iter().map(|aggregate| member(&aggregate.name)).collect(),
            partial: key.partial,
            across_topics: key.across_topics,
            format: format.clone(),
        }
    }

    /// Writes a pane; `topic` is that of its shard, if it is that of one partition.
    pub fn result(&self, pane: &Pane<'_>, topic: &str, encoded: &mut Encoded) {
        let row = ResultRow {
            window: pane.window,
            key: pane.key,
            partition: pane.shard.partition().map(|id| id.partition),
            topic,
            timing: pane.timing.name(),
            index: pane.index,
        };
        self.row(&row, pane.aggregates.values(), encoded);
    }

    /// Writes a row with these aggregates, in their configured order.
    pub fn row(
        &self,
        row: &ResultRow<'_>,
        values: impl Iterator<Item = AggregateValue>,
        encoded: &mut Encoded,
    ) {
        let partition = row.partition.filter(|_| self.partial);
        let place =
            partition.map(|partition| (Some(row.topic).filter(|_| self.across_topics), partition));
        self.result_key(row, place, &mut encoded.key);
        let out = &mut encoded.value;
        out.clear();
        self.window_bound("{\"window_start\":", row.window.start, out);
        self.window_bound(",\"window_end\":", row.window.end, out);
        place_members(place, out);
        self.key_members(row.key, out);
        for (name, aggregate) in self.aggregate_names.iter().zip(values) {
            out.extend_from_slice(name.as_bytes());
            self.aggregate(aggregate, out);
        }
        append(
            out,
            format_args!(",\"pane\":{{\"timing\":\"{}\",\"index\":{}}}}}", row.timing, row.index),
        );
    }

    /// Writes that a shard's clock has passed a window's end: every row of that window and the ones before is there.
    pub fn progress(
        &self,
        shard: ShardId,
        topic: &str,
        clock: Watermark,
        window: TimeWindow,
        encoded: &mut Encoded,
    ) {
        encoded.key.clear();
        append(
            &mut encoded.key,
            format_args!("tidegate.progress/{topic}/{}", partition_name(shard)),
        );
        let out = &mut encoded.value;
        out.clear();
        self.window_bound("{\"complete_until\":", window.end, out);
        self.window_bound(",\"watermark\":", clock.0, out);
        append(out, format_args!(",\"topic\":"));
        json(topic, out);
        append(out, format_args!(",\"partition\":\"{}\"}}", partition_name(shard)));
    }

    /// A single text field as it is; else, and where the window is part of it, a JSON object.
    fn result_key(
        &self,
        row: &ResultRow<'_>,
        place: Option<(Option<&str>, i32)>,
        out: &mut Vec<u8>,
    ) {
        out.clear();
        let with_window = self.format.key == ResultKey::KeyWindow;
        if self.key_names.len() == 1 && !with_window && place.is_none() {
            if let Some(part) = KeyParts::new(row.key, 1).next() {
                out.extend_from_slice(part.as_text().as_bytes());
            }
            return;
        }
        self.key_members(row.key, out);
        place_members(place, out);
        if with_window {
            self.window_bound(",\"window_start\":", row.window.start, out);
        }
        if let Some(first) = out.first_mut() {
            *first = b'{';
        }
        out.push(b'}');
    }

    fn key_members(&self, key: &[u8], out: &mut Vec<u8>) {
        for (name, part) in self.key_names.iter().zip(KeyParts::new(key, self.key_names.len())) {
            out.extend_from_slice(name.as_bytes());
            match part {
                KeyPart::Bool(value) => append(out, format_args!("{value}")),
                KeyPart::Integer(value) => append(out, format_args!("{value}")),
                KeyPart::Text(text) => json(text.as_ref(), out),
            }
        }
    }

    fn aggregate(&self, value: AggregateValue, out: &mut Vec<u8>) {
        match (value, self.format.integers) {
            (AggregateValue::Integer(integer), IntegerFormat::Number) => {
                append(out, format_args!("{integer}"));
            }
            (AggregateValue::Integer(integer), IntegerFormat::Text) => {
                append(out, format_args!("\"{integer}\""));
            }
            (AggregateValue::Float(float), _) => json(&float, out),
            (AggregateValue::Overflow, _) => append(out, format_args!("\"overflow\"")),
            (AggregateValue::Missing, _) => append(out, format_args!("null")),
        }
    }

    fn window_bound(&self, member: &str, time: EventTime, out: &mut Vec<u8>) {
        out.extend_from_slice(member.as_bytes());
        match (self.format.timestamps, jiff::Timestamp::from_millisecond(time.0)) {
            (TimestampFormat::Rfc3339, Ok(date)) => append(out, format_args!("\"{date}\"")),
            // Where the calendar ends, the number is what is left.
            (TimestampFormat::Rfc3339 | TimestampFormat::EpochMs, _) => {
                append(out, format_args!("{time}"));
            }
        }
    }
}

/// Which partition a partial result is of, and of which topic where there are several.
fn place_members(place: Option<(Option<&str>, i32)>, out: &mut Vec<u8>) {
    let Some((topic, partition)) = place else { return };
    if let Some(topic) = topic {
        append(out, format_args!(",\"topic\":"));
        json(topic, out);
    }
    append(out, format_args!(",\"partition\":{partition}"));
}

/// A shard's partition as headers and progress records write it.
pub(crate) fn partition_name(shard: ShardId) -> String {
    shard.partition().map_or_else(|| "all".to_owned(), |id| id.partition.to_string())
}

fn member(name: &str) -> String {
    let mut text = vec![b','];
    json(name, &mut text);
    text.push(b':');
    String::from_utf8(text).unwrap_or_default()
}

fn json<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    // Writing a text or a number into memory cannot fail.
    serde_json::to_writer(out, value).unwrap_or_default();
}

fn append(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).unwrap_or_default();
}
