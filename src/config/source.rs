//! An input topic: where event time is in its records, and how the watermark follows them.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::Regex;

use super::Guard;
use crate::codec::FieldPath;
use crate::event_time::{EventTime, WatermarkStrategy};

/// One input topic.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name.
    pub topic: String,
    /// The place of its `[[source]]` in the configuration; topics of one of them differ in their names alone.
    pub table: usize,
    /// Where the event time of a record is.
    pub timestamp: Timestamp,
    /// How the watermark follows it.
    pub strategy: WatermarkStrategy,
    /// The field that carries or announces a watermark, for strategies that look at one.
    pub marker: Option<FieldPath>,
    /// After this much silence a partition holds nobody; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Partitions with terms of their own.
    pub partitions: BTreeMap<i32, PartitionTerms>,
    /// Which records are no more than signs of life.
    pub heartbeat: Option<Heartbeat>,
    /// Which timestamps of its records are believed: its own terms, else those of all sources.
    pub guard: Guard,
    /// Where a logical field is, if not at the top under its own name.
    pub fields: BTreeMap<String, FieldPath>,
    /// Where to begin when the group has no offsets.
    pub start: Start,
    /// What to do when the records to go on from have been deleted.
    pub on_missing: OnMissing,
}

impl Source {
    /// Where a logical field is in this source's records.
    pub fn path(&self, field: &str) -> Option<FieldPath> {
        self.fields.get(field).cloned().or_else(|| field.parse().ok())
    }
}

/// Where the event time of a record is and how it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Where.
    pub from: TimestampFrom,
    /// How.
    pub unit: TimestampUnit,
    /// Whether an RFC 3339 time without an offset is taken as UTC instead of refused.
    pub naive_is_utc: bool,
}

/// Where the event time of a record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimestampFrom {
    /// In a field of the payload.
    Field(FieldPath),
    /// The record's own Kafka timestamp, always in milliseconds.
    Record,
    /// In a header, as text.
    Header(String),
}

/// How a timestamp is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampUnit {
    /// Milliseconds since the epoch.
    Milliseconds,
    /// Seconds since the epoch.
    Seconds,
    /// Microseconds since the epoch.
    Microseconds,
    /// Nanoseconds since the epoch.
    Nanoseconds,
    /// A date and time as text, RFC 3339.
    Rfc3339,
}

/// Where to begin when the group has no offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the oldest record.
    Earliest,
    /// At the records that come from now on.
    Latest,
    /// At the first record whose Kafka timestamp is not before this.
    At(EventTime),
}

/// What to do when the records to go on from have been deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// End with an error.
    Stop,
    /// Go on at the oldest record, and count and log what is missing.
    Continue,
}

/// How event time follows a partition that differs from the others of its topic.
#[derive(Clone, Debug)]
pub struct PartitionTerms {
    /// How the watermark follows it.
    pub strategy: WatermarkStrategy,
    /// After this much silence it holds nobody; `None`: never.
    pub idle_timeout: Option<Duration>,
}

/// Which records are no more than signs of life: they are counted, and in no window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The field to look at.
    pub field: FieldPath,
    /// What is in it: a text, or a number or boolean as it is written.
    pub equals: String,
    /// Whether one counts as activity; otherwise it is as silent as nothing at all.
    pub is_activity: bool,
    /// Whether its timestamp is a watermark: nothing at or below it follows.
    pub carries_watermark: bool,
}

/// Input topics by a pattern of their names; new ones join while the service runs.
#[derive(Clone, Debug)]
pub struct SourcePattern {
    /// Which ones.
    pub pattern: TopicPattern,
    /// What holds for each of them; without a name.
    pub source: Source,
}

impl SourcePattern {
    /// What holds for a topic of this name.
    pub fn source_of(&self, topic: &str) -> Source {
        Source { topic: topic.to_owned(), ..self.source.clone() }
    }
}

/// A regular expression that a topic's name has to match.
#[derive(Clone, Debug)]
pub struct TopicPattern(Regex);

impl TopicPattern {
    /// Whether a topic of this name belongs to it.
    pub fn matches(&self, topic: &str) -> bool {
        self.0.is_match(topic)
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl std::str::FromStr for TopicPattern {
    type Err = regex::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Regex::new(text).map(Self)
    }
}
