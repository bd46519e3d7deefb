//! The records that go out: what they carry, and what their topics take.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;

use super::edge::InputRecord;
use crate::codec::{Encoded, Reason, Refusal, partition_name};
use crate::event_time::{EventTime, Lateness, Pane, PartitionId};

/// The topics that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutputTopic {
    /// Panes and progress.
    Results,
    /// Late records.
    Late,
    /// Dead letters.
    DeadLetter,
    /// The window state, for the input topic of this number.
    Changelog(u16),
}

impl OutputTopic {
    /// Those that are there for others to read.
    pub const ALL: [Self; 3] = [Self::Results, Self::Late, Self::DeadLetter];
}

/// What a topic takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicLimits {
    /// The largest batch, and so the largest message, in bytes.
    pub max_message_bytes: usize,
    /// How long it keeps a record by the record's own time; `None`: for ever.
    pub retention: Option<Duration>,
    /// How many partitions it has.
    pub partitions: i32,
}

impl Default for TopicLimits {
    /// Kafka's own defaults, for brokers that do not tell.
    fn default() -> Self {
        Self { max_message_bytes: 1_048_588, retention: None, partitions: 1 }
    }
}

/// A header: repeated names are allowed, the order counts.
pub type Header = (Cow<'static, str>, Option<Vec<u8>>);

/// A record that goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub to: OutputTopic,
    /// The partition, where it is not the key's hash.
    pub partition: Option<i32>,
    /// The message key.
    pub key: Option<Vec<u8>>,
    /// The payload.
    pub payload: Option<Vec<u8>>,
    /// The headers.
    pub headers: Vec<Header>,
    /// How many of them, the first ones, the record had brought along.
    brought: usize,
    /// Kafka's timestamp; `None`: the producer's present.
    pub timestamp: Option<i64>,
    /// Once this message is committed, everything before it in its partition may be deleted.
    pub supersedes: bool,
}

impl Message {
    /// A pane; `topic`: of one partition's shard, where there are several input topics.
    pub(super) fn result(encoded: &Encoded, pane: &Pane<'_>, topic: Option<&str>) -> Self {
        let mut headers = shard_headers(pane.watermark.0, &partition_name(pane.shard));
        headers.extend(topic.map(|topic| text_header("tidegate.topic", &topic)));
        Self {
            to: OutputTopic::Results,
            partition: None,
            key: Some(encoded.key.clone()),
            payload: Some(encoded.value.clone()),
            headers,
            brought: 0,
            supersedes: false,
            timestamp: Some(pane.window.max_timestamp().0),
        }
    }

    /// The clock of a shard, for one partition of the results topic.
    pub(super) fn progress(
        encoded: &Encoded,
        clock: EventTime,
        shard: &str,
        partition: i32,
    ) -> Self {
        let mut headers = shard_headers(clock, shard);
        headers.push(text_header("tidegate.progress", &"1"));
        Self {
            to: OutputTopic::Results,
            partition: Some(partition),
            key: Some(encoded.key.clone()),
            payload: Some(encoded.value.clone()),
            headers,
            brought: 0,
            supersedes: false,
            timestamp: None,
        }
    }

    /// A record whose window is past its allowed lateness: as it came, and why.
    pub(super) fn late(
        record: &impl InputRecord,
        topic: &str,
        event_time: EventTime,
        lateness: &Lateness,
    ) -> Self {
        let watermark = lateness.watermark.0;
        let mut message = Self::passed_on(OutputTopic::Late, record, topic, "late");
        message.headers.extend([
            text_header("tidegate.cause", &lateness.cause.name()),
            text_header("tidegate.window.start", &lateness.window.start),
            text_header("tidegate.window.end", &lateness.window.end),
            text_header("tidegate.watermark", &watermark),
            text_header("tidegate.lateness.ms", &watermark.0.saturating_sub(event_time.0)),
        ]);
        message
    }

    /// A record that could not be used: as it came, and why.
    pub(super) fn dead_letter(record: &impl InputRecord, topic: &str, refusal: &Refusal) -> Self {
        let mut message =
            Self::passed_on(OutputTopic::DeadLetter, record, topic, refusal.reason.name());
        message.headers.push(text_header("tidegate.detail", &refusal.detail));
        message
    }

    /// A part of a shard's state, for its changelog partition.
    pub(super) fn changelog(
        at: PartitionId,
        key: Vec<u8>,
        value: Vec<u8>,
        supersedes: bool,
    ) -> Self {
        Self {
            to: OutputTopic::Changelog(at.topic),
            partition: Some(at.partition),
            key: Some(key),
            payload: Some(value),
            headers: Vec::new(),
            brought: 0,
            timestamp: None,
            supersedes,
        }
    }

    /// The most that a part of a shard's state may have in its payload, for a topic that takes so much.
    pub(super) fn changelog_payload(limits: TopicLimits) -> usize {
        const SLOT: usize = 4;
        limits.max_message_bytes.saturating_sub(BATCH + RECORD + SLOT)
    }

    fn passed_on(to: OutputTopic, record: &impl InputRecord, topic: &str, reason: &str) -> Self {
        let mut headers = Vec::new();
        record.each_header(&mut |name, value| {
            headers.push((Cow::Owned(name.to_owned()), value.map(<[u8]>::to_vec)));
        });
        let brought = headers.len();
        headers.extend([
            text_header("tidegate.reason", &reason),
            text_header("tidegate.topic", &topic),
            text_header("tidegate.partition", &record.partition().partition),
            text_header("tidegate.offset", &record.offset()),
        ]);
        Self {
            to,
            partition: None,
            key: record.key().map(<[u8]>::to_vec),
            payload: record.payload().map(<[u8]>::to_vec),
            headers,
            brought,
            supersedes: false,
            timestamp: record.timestamp().filter(|timestamp| *timestamp >= 0),
        }
    }

    /// An upper bound of its size in a batch of its own: Kafka's batch header (61 bytes) and the record's own lengths.
    pub fn size(&self) -> usize {
        const HEADER: usize = 10;
        let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + length(value) + HEADER).sum();
        BATCH + RECORD + length(&self.key) + length(&self.payload) + headers
    }

    /// Gives it a timestamp that its topic neither deletes at once nor refuses: its own if that lies within half the
    /// retention before the present, else the present. Whether it was replaced.
    pub(super) fn fit_timestamp(&mut self, limits: TopicLimits, wall: EventTime) -> bool {
        let Some(timestamp) = self.timestamp else { return false };
        let oldest = limits.retention.map_or(EventTime::MIN, |retention| wall - retention / 2);
        if EventTime(timestamp) >= oldest && EventTime(timestamp) <= wall && timestamp >= 0 {
            return false;
        }
        self.timestamp = Some(wall.0);
        if self.to != OutputTopic::Results {
            self.headers.push(text_header("tidegate.timestamp", &timestamp));
        }
        true
    }

    /// Makes it fit its topic, by leaving out what is too large: the payload first, then the key, then what the record
    /// brought as headers. `Err` is a result that does not fit; it must become the dead letter that comes with it.
    pub(super) fn fit_size(&mut self, limits: TopicLimits) -> Result<(), Box<Self>> {
        if self.size() <= limits.max_message_bytes {
            return Ok(());
        }
        if self.to == OutputTopic::Results {
            return Err(Box::new(self.undeliverable(limits)));
        }
        if let Some(payload) = self.payload.take() {
            self.headers.push(text_header("tidegate.payload.omitted", &payload.len()));
        }
        if self.size() > limits.max_message_bytes
            && let Some(key) = self.key.take()
        {
            self.headers.push(text_header("tidegate.key.omitted", &key.len()));
        }
        if self.size() > limits.max_message_bytes && self.brought > 0 {
            let brought = std::mem::take(&mut self.brought);
            self.headers.drain(..brought);
            self.headers.push(text_header("tidegate.headers.omitted", &brought));
        }
        Ok(())
    }

    /// The dead letter of a result that is too large: the window, the start of each text, the aggregates.
    fn undeliverable(&self, limits: TopicLimits) -> Self {
        let (size, limit) = (self.size(), limits.max_message_bytes);
        let detail =
            format!("the result has {size} bytes, its topic takes {limit} (max.message.bytes)");
        let payload = self.payload.as_deref().and_then(|payload| shorten_texts(payload).ok());
        let mut headers = self.headers.clone();
        headers.extend([
            text_header("tidegate.reason", &Reason::ResultTooLarge.name()),
            text_header("tidegate.detail", &detail),
        ]);
        Self {
            to: OutputTopic::DeadLetter,
            partition: None,
            key: None,
            payload,
            headers,
            brought: 0,
            supersedes: false,
            // That of the window was made to fit the results topic, and this is another one.
            timestamp: None,
        }
    }
}

/// Kafka's header of a batch.
const BATCH: usize = 61;
/// What a record has besides its key, payload and headers, at most.
const RECORD: usize = 32;

/// The same object with its long texts cut; everything else, numbers of any length above all, stays as it is.
fn shorten_texts(payload: &[u8]) -> serde_json::Result<Vec<u8>> {
    const MOST: usize = 200;
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(payload)?;
    for value in members.values_mut() {
        let Ok(text) = serde_json::from_str::<String>(value.get()) else { continue };
        if let Some((end, _)) = text.char_indices().nth(MOST) {
            let cut = format!("{}… ({} bytes)", text.get(..end).unwrap_or(""), text.len());
            *value = serde_json::value::to_raw_value(&cut)?;
        }
    }
    serde_json::to_vec(&members)
}

fn shard_headers(watermark: EventTime, partition: &str) -> Vec<Header> {
    vec![
        text_header("tidegate.watermark", &watermark),
        text_header("tidegate.partition", &partition),
    ]
}

fn text_header(name: &'static str, value: &impl ToString) -> Header {
    (Cow::Borrowed(name), Some(value.to_string().into_bytes()))
}
