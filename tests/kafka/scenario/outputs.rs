//! What comes out of the service: counted while it runs, read when it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::file::text;
use crate::case_file::{ExpectedPane, Sum};
use crate::support::cluster::Record;

/// Counts what a `read_committed` reader sees, by topic.
pub(super) struct Follower {
    consumer: BaseConsumer,
    counts: BTreeMap<String, usize>,
}

impl Follower {
    pub(super) fn new(bootstrap: &str, topics: &[(String, i32)]) -> Self {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "tests-read-alone")
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "100")
            .set("reconnect.backoff.max.ms", "1000")
            .create()
            .unwrap();
        let mut list = TopicPartitionList::new();
        for (topic, partitions) in topics {
            for partition in 0..*partitions {
                list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
            }
        }
        consumer.assign(&list).unwrap();
        Self { consumer, counts: BTreeMap::new() }
    }

    /// How many records there are. What the client says of brokers that are away is passed over.
    pub(super) fn counts(&mut self) -> &BTreeMap<String, usize> {
        for _ in 0..MOST_AT_ONCE {
            let Some(polled) = self.consumer.poll(Duration::from_millis(20)) else { break };
            if let Ok(message) = polled {
                *self.counts.entry(message.topic().to_owned()).or_default() += 1;
            }
        }
        &self.counts
    }
}

const MOST_AT_ONCE: usize = 100_000;

/// A result.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) key: String,
    /// Whose share it is, where instances publish shares.
    pub(super) share: Option<i32>,
    pub(super) pane: Pane,
}

/// Its values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pane {
    pub(super) count: u64,
    pub(super) sum: Option<Sum>,
    pub(super) kind: Option<String>,
    pub(super) index: Option<u32>,
}

impl Row {
    pub(super) fn read(record: &Record) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Written {
            window_start: i64,
            window_end: i64,
            key: Value,
            partition: Option<i32>,
            count: u64,
            sum: Box<RawValue>,
            pane: Timing,
        }
        #[derive(Deserialize)]
        struct Timing {
            timing: String,
            index: u32,
        }
        let written: Written = serde_json::from_slice(record.payload.as_deref().unwrap_or(b""))
            .map_err(|fault| format!("{fault} in the result {record}"))?;
        Ok(Self {
            start: written.window_start,
            end: written.window_end,
            key: text(&written.key),
            share: written.partition,
            pane: Pane {
                count: written.count,
                sum: Some(Sum::read(&written.sum)?),
                kind: Some(written.pane.timing),
                index: Some(written.pane.index),
            },
        })
    }

    pub(super) fn expected(pane: &ExpectedPane) -> Result<Self, String> {
        let key = text(&pane.key);
        let ExpectedPane { start, end, count, kind, index, .. } = pane;
        let (kind, sum) = (kind.clone(), pane.sum()?);
        let pane = Pane { count: *count, sum, kind, index: *index };
        Ok(Self { start: *start, end: *end, key, share: None, pane })
    }
}

impl Pane {
    /// Whether this is what was expected, in all that the expectation says.
    pub(super) fn is(&self, expected: &Self) -> bool {
        let same_sum = match (expected.sum, self.sum) {
            (Some(Sum::Integer(expected)), Some(Sum::Integer(sum))) => expected == sum,
            (Some(Sum::Overflow), sum) => sum == Some(Sum::Overflow),
            (Some(expected), sum) => {
                sum.is_some_and(|sum| (sum.as_float() - expected.as_float()).abs() < 1e-9)
            }
            (None, _) => true,
        };
        let kind = expected.kind.is_none() || expected.kind == self.kind;
        let index = expected.index.is_none() || expected.index == self.index;
        expected.count == self.count && same_sum && kind && index
    }

    /// Both together, as one that nothing is known of but its values.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let sum = self.sum.zip(other.sum).map(|(sum, other)| sum.plus(other));
        Self { count: self.count + other.count, sum, kind: None, index: None }
    }
}
