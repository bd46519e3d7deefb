//! Reads a sample of a topic: only reads, joins no group, commits nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::OnError;
use super::client::{Clients, partitions_of};
use super::oauth::Held;
use super::record::KafkaRecord;
use super::report::Reported;
use crate::clock::Clock;
use crate::config::Config;
use crate::event_time::{EventTime, PartitionId};

/// How much of each partition is read, back from its present last stable offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleSize {
    /// So many offsets.
    Records(u64),
    /// What came within this time, by the records' Kafka timestamps.
    Last(Duration),
}

/// Why a sample could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The client's own settings.
    #[error("the Kafka client cannot be made: {0}; see [kafka.properties] in the configuration")]
    Client(String),
    /// The topic is not there.
    #[error("topic `{0}` does not exist")]
    NoTopic(String),
    /// A request failed.
    #[error("{what}: {cause}")]
    Request {
        /// What was asked for.
        what: String,
        /// The answer.
        cause: String,
    },
    /// Nothing came for a while, although there is more.
    #[error(
        "nothing more came of topic `{topic}` for {patience:?}, {left} records before the end of the sample"
    )]
    Stalled {
        /// Which one.
        topic: String,
        /// For how long.
        patience: Duration,
        /// Offsets not read yet.
        left: u64,
    },
}

/// A sample under way.
pub struct Sample {
    consumer: Held<BaseConsumer<Reported>>,
    clock: Clock,
    topic: String,
    /// For each partition with something to read, where it begins and ends.
    ends: BTreeMap<i32, (i64, i64)>,
    /// All partitions of the topic.
    partitions: Vec<i32>,
    total: u64,
}

impl std::fmt::Debug for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sample").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl Sample {
    /// What its topic is called in the ids of partitions.
    pub const NUMBER: u16 = 0;

    /// Finds where to begin and where to end.
    ///
    /// # Errors
    /// See [`SampleError`].
    pub fn open(
        config: &Config,
        topic: &str,
        size: SampleSize,
        clock: Clock,
        on_error: OnError,
    ) -> Result<Self, SampleError> {
        let client = |error: KafkaError| SampleError::Client(error.to_string());
        let consumer = Clients::new(config, 0, clock, on_error).sampler().map_err(client)?;
        let partitions = partitions_of(&consumer, topic, TIMEOUT)
            .map_err(|error| request("asking for the topics", &error))?;
        if partitions.is_empty() {
            return Err(SampleError::NoTopic(topic.to_owned()));
        }
        let mut sample = Self {
            consumer,
            clock,
            topic: topic.to_owned(),
            ends: BTreeMap::new(),
            partitions,
            total: 0,
        };
        sample.assign(size)?;
        Ok(sample)
    }

    /// All partitions of the topic, in their order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        self.partitions
            .iter()
            .map(|partition| PartitionId { topic: Self::NUMBER, partition: *partition })
    }

    /// About how many records there are to read: offsets that transaction markers have or that were compacted away count.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Shows each record of the sample, and how many offsets are left, also while nothing comes.
    ///
    /// # Errors
    /// See [`SampleError`].
    pub fn read(
        mut self,
        mut take: impl FnMut(Option<&KafkaRecord<'_>>, u64),
    ) -> Result<(), SampleError> {
        let mut came = self.clock.monotonic();
        let (mut left, mut looked) = (self.total, came);
        while !self.ends.is_empty() {
            let polled = self.consumer.poll(TURN);
            let now = self.clock.monotonic();
            match polled {
                Some(Ok(message)) => {
                    came = now;
                    let partition = message.partition();
                    let id = PartitionId { topic: Self::NUMBER, partition };
                    if self.ends.get(&partition).is_some_and(|(_, end)| message.offset() < *end) {
                        take(Some(&KafkaRecord { message, partition: id }), left);
                    }
                }
                Some(Err(error)) => tracing::debug!(%error, "reading the sample"),
                None => {}
            }
            if now.since(looked) >= LOOK {
                looked = now;
                let before = left;
                left = self.look()?;
                take(None, left);
                if left < before {
                    came = now;
                } else if now.since(came) > PATIENCE {
                    let topic = self.topic.clone();
                    return Err(SampleError::Stalled { topic, patience: PATIENCE, left });
                }
            }
        }
        take(None, 0);
        Ok(())
    }

    /// How many offsets are left; partitions that have come to their end are not read any more.
    fn look(&mut self) -> Result<u64, SampleError> {
        let positions =
            self.consumer.position().map_err(|error| request("where reading is", &error))?;
        let (mut left, mut done) = (0, TopicPartitionList::new());
        for (partition, (begin, end)) in &self.ends {
            let position = positions.find_partition(&self.topic, *partition);
            let position = position.map(|element| element.offset());
            // Before the first record there is none.
            let position = if let Some(Offset::Offset(at)) = position { at } else { *begin };
            if position >= *end {
                done.add_partition(&self.topic, *partition);
            }
            left += u64::try_from(end - position).unwrap_or(0);
        }
        if done.count() > 0 {
            for element in done.elements() {
                self.ends.remove(&element.partition());
            }
            self.consumer
                .incremental_unassign(&done)
                .map_err(|error| request("ending a partition", &error))?;
        }
        Ok(left)
    }

    fn assign(&mut self, size: SampleSize) -> Result<(), SampleError> {
        let mut ranges = BTreeMap::new();
        for partition in &self.partitions {
            let ends = self.consumer.fetch_watermarks(&self.topic, *partition, TIMEOUT);
            let ends = ends.map_err(|error| {
                request(&format!("the ends of {}/{partition}", self.topic), &error)
            })?;
            ranges.insert(*partition, ends);
        }
        let since = match size {
            SampleSize::Records(_) => BTreeMap::new(),
            SampleSize::Last(duration) => self.offsets_of(Clock::wall() - duration)?,
        };
        let mut assignment = TopicPartitionList::new();
        for (partition, (oldest, end)) in ranges {
            let begin = match size {
                SampleSize::Records(records) => {
                    end.saturating_sub(i64::try_from(records).unwrap_or(i64::MAX))
                }
                SampleSize::Last(_) => since.get(&partition).copied().unwrap_or(end),
            };
            let begin = begin.max(oldest);
            if begin < end {
                assignment
                    .add_partition_offset(&self.topic, partition, Offset::Offset(begin))
                    .map_err(|error| request("where to begin", &error))?;
                self.ends.insert(partition, (begin, end));
                self.total += u64::try_from(end - begin).unwrap_or(0);
            }
        }
        let begun = self.consumer.incremental_assign(&assignment);
        begun.map_err(|error| request("beginning to read", &error))
    }

    /// The first offsets whose records came at this time or later; none for a partition without such a record.
    fn offsets_of(&self, EventTime(time): EventTime) -> Result<BTreeMap<i32, i64>, SampleError> {
        let failed = |error: KafkaError| request(&format!("the offsets of {}", self.topic), &error);
        let mut list = TopicPartitionList::new();
        for partition in &self.partitions {
            list.add_partition_offset(&self.topic, *partition, Offset::Offset(time))
                .map_err(failed)?;
        }
        let answer = self.consumer.offsets_for_times(list, TIMEOUT).map_err(failed)?;
        let mut offsets = BTreeMap::new();
        for element in answer.elements() {
            if let Offset::Offset(offset) = element.offset() {
                offsets.insert(element.partition(), offset);
            }
        }
        Ok(offsets)
    }
}

fn request(what: &str, error: &KafkaError) -> SampleError {
    SampleError::Request { what: what.to_owned(), cause: error.to_string() }
}

/// The longest wait for a record at a time.
const TURN: Duration = Duration::from_millis(50);

/// How often it is looked at how far reading has come.
const LOOK: Duration = Duration::from_millis(100);

/// After so long without a record it is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
