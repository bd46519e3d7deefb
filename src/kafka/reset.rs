//! Begins anew: where the group reads on, and what the changelog holds.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::OnError;
use super::admin::{block_on, options};
use super::client::{Clients, REQUEST_TIMEOUT, partitions_of};
use super::members::Member;
use super::oauth::Held;
use super::report::Reported;
use super::topic_names::changelog_topics;
use crate::clock::Clock;
use crate::config::{Config, Inputs, Start, TwoPatterns};
use crate::event_time::EventTime;

/// Where the group is to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// At the oldest record, at the end, or at the first record whose Kafka timestamp is not before a time.
    Start(Start),
    /// Where it stands: only the state goes.
    Current,
}

/// Why nothing, or not everything, was reset.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// The client's own settings.
    #[error("the Kafka client cannot be made: {0}; see [kafka.properties] in the configuration")]
    Client(String),
    /// Instances are at work.
    #[error("group `{group}` has members ({}); stop them first", .members.join(", "))]
    GroupInUse {
        /// The group.
        group: String,
        /// Who.
        members: Vec<String>,
    },
    /// An input topic is not there.
    #[error("topic `{0}` does not exist")]
    NoTopic(String),
    /// Patterns that overlap.
    #[error(transparent)]
    TwoPatterns(#[from] TwoPatterns),
    /// A transaction that may still change the offsets.
    #[error(
        "the group's offsets cannot be read: {0}; if an instance was killed, its transaction ends when it is started \
         again or after delivery.transaction_timeout"
    )]
    Unsettled(String),
    /// A request failed.
    #[error("{what}: {cause}")]
    Request {
        /// What was asked for.
        what: String,
        /// The answer.
        cause: String,
    },
}

/// What a reset does to one partition of an input topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedOffset {
    /// The topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Where the group reads on now.
    pub committed: Option<i64>,
    /// Where it is to read on; `None` where it stands nowhere.
    pub to: Option<i64>,
}

/// What a reset does to one partition of a changelog topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedDeletion {
    /// The topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// The oldest offset.
    pub beginning: i64,
    /// The end offset: everything before it goes.
    pub end: i64,
}

/// What a reset does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResetPlan {
    /// Input partitions.
    pub offsets: Vec<PlannedOffset>,
    /// Changelog partitions that hold something.
    pub deletions: Vec<PlannedDeletion>,
}

/// Makes and carries out the plan for one job.
pub struct Reset {
    clients: Clients,
    consumer: Held<BaseConsumer<Reported>>,
    group: String,
    config: Config,
}

impl std::fmt::Debug for Reset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reset").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Reset {
    /// For the job of a configuration.
    ///
    /// # Errors
    /// See [`ResetError`].
    pub fn new(config: &Config, clock: Clock, on_error: OnError) -> Result<Self, ResetError> {
        let clients = Clients::new(config, 0, clock, on_error);
        let consumer = clients
            .outside(&config.kafka.group_id)
            .map_err(|error| ResetError::Client(error.to_string()))?;
        Ok(Self { clients, consumer, group: config.kafka.group_id.clone(), config: config.clone() })
    }

    /// What there is to do.
    ///
    /// # Errors
    /// See [`ResetError`]; a group that is at work is found here.
    pub fn plan(&self, to: ResetTo) -> Result<ResetPlan, ResetError> {
        self.check_group()?;
        let mut plan = ResetPlan::default();
        let config = self.with_all_topics()?;
        for topic in config.sources.iter().map(|source| &source.topic) {
            let partitions = self.partitions(topic)?;
            if partitions.is_empty() {
                return Err(ResetError::NoTopic(topic.clone()));
            }
            let committed = self.committed(topic, &partitions)?;
            for (partition, committed) in partitions.into_iter().zip(committed) {
                let to = match to {
                    ResetTo::Current => committed,
                    ResetTo::Start(start) => Some(self.offset_of(topic, partition, start)?),
                };
                plan.offsets.push(PlannedOffset { topic: topic.clone(), partition, committed, to });
            }
        }
        // Open transactions included.
        let looker =
            self.clients.looker().map_err(|error| ResetError::Client(error.to_string()))?;
        for topic in changelog_topics(&config).values() {
            for partition in self.partitions(topic)? {
                let (beginning, end) =
                    looker.fetch_watermarks(topic, partition, REQUEST_TIMEOUT).map_err(
                        |error| request(format!("the ends of {topic}/{partition}"), &error),
                    )?;
                if end > beginning {
                    plan.deletions.push(PlannedDeletion {
                        topic: topic.clone(),
                        partition,
                        beginning,
                        end,
                    });
                }
            }
        }
        Ok(plan)
    }

    /// Does it: first the changelog, then the offsets. Where only the first was done the service will not start, and
    /// says so.
    ///
    /// # Errors
    /// See [`ResetError`].
    pub fn carry_out(&self, plan: &ResetPlan) -> Result<(), ResetError> {
        let mut deletions = TopicPartitionList::new();
        for deletion in &plan.deletions {
            add(&mut deletions, &deletion.topic, deletion.partition, deletion.end)?;
        }
        if deletions.count() > 0 {
            let what =
                || "deleting the changelog's records (operation Delete on the topic)".to_owned();
            let admin =
                self.clients.admin().map_err(|error| ResetError::Client(error.to_string()))?;
            let done = block_on(admin.delete_records(&deletions, &options()))
                .map_err(|error| ResetError::Client(error.to_string()))?
                .map_err(|error| request(what(), &error))?;
            for element in done.elements() {
                element.error().map_err(|error| request(what(), &error))?;
            }
        }
        let mut offsets = TopicPartitionList::new();
        for planned in &plan.offsets {
            if let Some(to) = planned.to {
                add(&mut offsets, &planned.topic, planned.partition, to)?;
            }
        }
        if offsets.count() == 0 {
            return Ok(());
        }
        self.consumer.commit(&offsets, CommitMode::Sync).map_err(|error| {
            match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::UnknownMemberId | RDKafkaErrorCode::RebalanceInProgress) => {
                    ResetError::GroupInUse {
                        group: self.group.clone(),
                        members: vec![error.to_string()],
                    }
                }
                _ => request(
                    "committing the offsets (operation Read on the group)".to_owned(),
                    &error,
                ),
            }
        })
    }

    /// The configuration with the topics that match its patterns.
    fn with_all_topics(&self) -> Result<Config, ResetError> {
        let inputs = Inputs::new(&self.config);
        let metadata = self.consumer.fetch_metadata(None, REQUEST_TIMEOUT);
        let metadata =
            metadata.map_err(|error| request("asking for the topics".to_owned(), &error))?;
        let there = metadata.topics().iter().map(rdkafka::metadata::MetadataTopic::name);
        inputs.admit(there)?;
        Ok(self.config.with_topics_of(&inputs))
    }

    fn check_group(&self) -> Result<(), ResetError> {
        let members = self
            .clients
            .members(self.consumer.client())
            .map_err(|error| request(format!("describing group `{}`", self.group), &error))?;
        if members.is_empty() {
            return Ok(());
        }
        let members = members.iter().map(Member::to_string).collect();
        Err(ResetError::GroupInUse { group: self.group.clone(), members })
    }

    fn partitions(&self, topic: &str) -> Result<Vec<i32>, ResetError> {
        partitions_of(&self.consumer, topic, REQUEST_TIMEOUT)
            .map_err(|error| request("asking for the topics".to_owned(), &error))
    }

    fn committed(&self, topic: &str, partitions: &[i32]) -> Result<Vec<Option<i64>>, ResetError> {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(topic, *partition);
        }
        let answer = self
            .consumer
            .committed_offsets(list, COMMITTED_TIMEOUT)
            .map_err(|error| ResetError::Unsettled(error.to_string()))?;
        let offset = |partition: &i32| {
            let element = answer.find_partition(topic, *partition)?;
            if let Offset::Offset(offset) = element.offset() { Some(offset) } else { None }
        };
        Ok(partitions.iter().map(offset).collect())
    }

    fn offset_of(&self, topic: &str, partition: i32, start: Start) -> Result<i64, ResetError> {
        let what = || format!("the offsets of {topic}/{partition}");
        let (oldest, end) = self
            .consumer
            .fetch_watermarks(topic, partition, REQUEST_TIMEOUT)
            .map_err(|error| request(what(), &error))?;
        let EventTime(time) = match start {
            Start::Earliest => return Ok(oldest),
            Start::Latest => return Ok(end),
            Start::At(time) => time,
        };
        let mut list = TopicPartitionList::new();
        add(&mut list, topic, partition, time)?;
        let answer = self
            .consumer
            .offsets_for_times(list, REQUEST_TIMEOUT)
            .map_err(|error| request(what(), &error))?;
        Ok(match answer.find_partition(topic, partition).map(|element| element.offset()) {
            Some(Offset::Offset(offset)) => offset,
            _ => end,
        })
    }
}

fn add(
    list: &mut TopicPartitionList,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<(), ResetError> {
    list.add_partition_offset(topic, partition, Offset::Offset(offset))
        .map_err(|error| request(format!("{topic}/{partition} at {offset}"), &error))
}

fn request(what: String, error: &KafkaError) -> ResetError {
    ResetError::Request { what, cause: error.to_string() }
}

/// A transaction that was left open holds the answer back.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(10);
