//! The changelog topics read back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::admin::ConnectError;
use super::changelog_topic;
use super::client::{Clients, REQUEST_TIMEOUT, ends_of};
use super::ending::EndsAside;
use super::oauth::Held;
use super::report::Reported;
use super::right::MissingRight;
use super::topic_names::ChangelogTopics;
use crate::event_time::PartitionId;
use crate::pipeline::{Changelog, ChangelogEvent, SourceError};

/// Reads changelog partitions from their beginnings to their ends. It is connected up to the end of the first restore, so
/// that this need not wait for it, and after that only while there is something to read.
pub struct KafkaChangelog {
    clients: Arc<Clients>,
    topics: ChangelogTopics,
    /// Those that were there, or made, at the start; those that patterns bring later are made when they are needed.
    prepared: BTreeSet<u16>,
    /// How many partitions each is known to have at least.
    known: BTreeMap<u16, i32>,
    /// How often in a row one of them was not there.
    absences: u32,
    /// Sees also what is not committed: how the topics are divided, and where their partitions end.
    looker: Option<EndsAside<Held<BaseConsumer<Reported>>>>,
    reader: Option<EndsAside<Held<BaseConsumer<Reported>>>>,
    /// Will be the first reader.
    spare: Option<EndsAside<Held<BaseConsumer<Reported>>>>,
    open: BTreeMap<PartitionId, OpenPartition>,
}

/// A partition that is being read.
#[derive(Clone, Copy, Debug)]
struct OpenPartition {
    beginning: i64,
    /// The end offset when it was opened.
    end: i64,
    position: i64,
    /// The owner knows that the end was reached.
    told: bool,
}

impl std::fmt::Debug for KafkaChangelog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaChangelog")
            .field("topics", &self.topics)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}

impl KafkaChangelog {
    /// Its clients find the brokers while the service goes on to begin; where they cannot be made, that is tried again.
    pub(super) fn new(
        clients: Arc<Clients>,
        topics: ChangelogTopics,
        prepared: BTreeSet<u16>,
    ) -> Self {
        let (looker, spare) = (clients.looker().ok(), clients.reader().ok());
        // The others look for a broker by themselves.
        if let Some(looker) = &looker {
            drop(looker.fetch_metadata(None, REQUEST_TIMEOUT));
        }
        Self {
            clients,
            topics,
            prepared,
            known: BTreeMap::new(),
            absences: 0,
            looker,
            reader: None,
            spare,
            open: BTreeMap::new(),
        }
    }

    /// What a failed request means.
    fn retry(&self, error: &KafkaError) -> SourceError {
        let code = error.rdkafka_error_code();
        if code == Some(rdkafka::types::RDKafkaErrorCode::TopicAuthorizationFailed) {
            let names: Vec<_> = self.topics.written().into_values().collect();
            return SourceError::Fatal(MissingRight::topic("Read", names.join("`, `")).to_string());
        }
        SourceError::Retry(format!("reading the changelog: {error}"))
    }

    fn name(&self, at: PartitionId) -> String {
        self.topics.name(at.topic)
    }

    fn at(&self, topic: &str, partition: i32) -> Option<PartitionId> {
        Some(PartitionId { topic: self.topics.number(topic)?, partition })
    }

    /// The client that looks, which is made where there is none.
    fn looker(&mut self) -> Result<&BaseConsumer<Reported>, SourceError> {
        let looker = match self.looker.take() {
            Some(looker) => looker,
            None => self.clients.looker().map_err(|error| self.retry(&error))?,
        };
        Ok(self.looker.insert(looker))
    }

    /// Where the partitions begin and end. A `read_uncommitted` client is told the end offset, where others are told
    /// the last stable one. All of them are asked for at once.
    fn bounds(
        &mut self,
        partitions: &BTreeSet<PartitionId>,
    ) -> Result<BTreeMap<PartitionId, OpenPartition>, SourceError> {
        let beginnings = self.offsets(partitions, Offset::Beginning)?;
        let ends = self.offsets(partitions, Offset::End)?;
        let bounds = beginnings.into_iter().filter_map(|(at, beginning)| {
            let end = *ends.get(&at)?;
            Some((at, OpenPartition { beginning, end, position: beginning, told: false }))
        });
        Ok(bounds.collect())
    }

    /// One end of each partition.
    fn offsets(
        &mut self,
        partitions: &BTreeSet<PartitionId>,
        end: Offset,
    ) -> Result<BTreeMap<PartitionId, i64>, SourceError> {
        let names: Vec<_> = partitions.iter().map(|at| (self.name(*at), at.partition)).collect();
        let asked = names.iter().map(|(name, partition)| (name.as_str(), *partition));
        let ends = ends_of(self.looker()?, asked, end, REQUEST_TIMEOUT);
        let ends = ends.map_err(|error| self.retry(&error))?;
        let offsets: BTreeMap<_, _> = ends
            .iter()
            .filter_map(|(topic, partition, offset)| Some((self.at(topic, *partition)?, *offset)))
            .collect();
        match partitions.iter().find(|at| !offsets.contains_key(at)) {
            None => Ok(offsets),
            Some(at) => Err(SourceError::Retry(format!(
                "the changelog topic `{}` does not say where its partition {} is",
                self.name(*at),
                at.partition
            ))),
        }
    }

    fn stop_reading(&mut self) {
        self.reader = None;
        self.open.clear();
    }

    /// Makes the changelog of an input topic that a pattern has brought.
    fn make(&mut self, number: u16, name: &str) -> Result<(), SourceError> {
        let clients = Arc::clone(&self.clients);
        let looker = self.looker()?;
        let metadata = looker.fetch_metadata(None, REQUEST_TIMEOUT);
        let metadata = metadata.map_err(|error| SourceError::Retry(error.to_string()))?;
        let input = self.topics.input(number).unwrap_or_default();
        let made = changelog_topic::see_to(&clients, &metadata, name, (&input, false), &mut 0);
        match made {
            Ok(true) => {
                self.prepared.insert(number);
                Ok(())
            }
            Ok(false) => Err(SourceError::Retry(format!("the changelog topic `{name}` is made"))),
            Err(ConnectError::Client(cause)) => Err(SourceError::Retry(cause)),
            Err(error) => Err(SourceError::Fatal(error.to_string())),
        }
    }

    /// A topic that a broker does not know may be new to it, or gone.
    fn is_absent(&mut self, name: &str) -> SourceError {
        self.known.clear();
        self.absences += 1;
        if self.absences < GONE_AFTER {
            return SourceError::Retry(format!("the changelog topic `{name}` is not there"));
        }
        SourceError::Fatal(format!(
            "the changelog topic `{name}` has been deleted; `tidegate reset` begins anew"
        ))
    }

    /// The next partition that has come to its end and of which the owner does not know it yet.
    fn next_end(&mut self) -> Option<PartitionId> {
        let (at, partition) = self
            .open
            .iter_mut()
            .find(|(_, partition)| !partition.told && partition.position >= partition.end)?;
        partition.told = true;
        Some(*at)
    }

    /// Transaction markers have no message, but the client's position passes them.
    fn look_at_positions(&mut self) {
        let positions = self.reader.as_ref().map(|reader| reader.position());
        let Some(Ok(positions)) = positions else { return };
        for element in positions.elements() {
            if let (Some(at), Offset::Offset(offset)) =
                (self.at(element.topic(), element.partition()), element.offset())
                && let Some(partition) = self.open.get_mut(&at)
            {
                partition.position = partition.position.max(offset);
            }
        }
    }
}

impl Changelog for KafkaChangelog {
    fn ensure(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        for (number, name) in self.topics.written() {
            let of_topic = partitions.iter().filter(|at| at.topic == number);
            let Some(wanted) = of_topic.map(|at| at.partition + 1).max() else { continue };
            if !self.prepared.contains(&number) {
                self.make(number, &name)?;
            }
            if self.known.get(&number).is_none_or(|known| *known < wanted) {
                let clients = Arc::clone(&self.clients);
                match changelog_topic::grow(&clients, self.looker()?, &name, wanted)? {
                    0 => return Err(self.is_absent(&name)),
                    count => self.known.insert(number, count),
                };
            }
        }
        Ok(())
    }

    fn open(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        self.stop_reading();
        // It finds its way to the brokers while the other one looks.
        let reader = match self.spare.take() {
            Some(spare) => spare,
            None => self.clients.reader().map_err(|error| self.retry(&error))?,
        };
        // Where this fails, whether the topic is still there is looked at once more.
        let open = self.bounds(partitions).inspect_err(|_| self.known.clear())?;
        self.absences = 0;
        let mut list = TopicPartitionList::new();
        for (at, partition) in &open {
            if partition.end > partition.beginning {
                list.add_partition_offset(
                    &self.name(*at),
                    at.partition,
                    Offset::Offset(partition.beginning),
                )
                .map_err(|error| fatal(&error))?;
            }
        }
        if list.count() > 0 {
            // A partition whose leader is not known when it is assigned is looked at again after half a second only.
            let topics: BTreeSet<String> = open.keys().map(|at| self.name(*at)).collect();
            for topic in topics {
                reader
                    .fetch_metadata(Some(&topic), REQUEST_TIMEOUT)
                    .map_err(|error| self.retry(&error))?;
            }
            reader.assign(&list).map_err(|error| fatal(&error))?;
            self.reader = Some(reader);
        } else {
            drop(reader);
        }
        self.open = open;
        Ok(())
    }

    fn poll(
        &mut self,
        timeout: Duration,
        most: usize,
        take: &mut dyn FnMut(&[ChangelogEvent<'_>]),
    ) -> Result<usize, SourceError> {
        if let Some(at) = self.next_end() {
            take(&[ChangelogEvent::End(at)]);
            return Ok(1);
        }
        let Some(reader) = &self.reader else { return Ok(0) };
        let mut messages = Vec::new();
        while messages.len() < most {
            let wait = if messages.is_empty() { timeout } else { Duration::ZERO };
            let Some(message) = reader.poll(wait) else { break };
            messages.push(message.map_err(|error| self.retry(&error))?);
        }
        if messages.is_empty() {
            self.look_at_positions();
            let end = self.next_end();
            if let Some(at) = end {
                take(&[ChangelogEvent::End(at)]);
            }
            return Ok(usize::from(end.is_some()));
        }
        let event = |message| {
            let message: &BorrowedMessage<'_> = message;
            Some(ChangelogEvent::Message {
                partition: self.at(message.topic(), message.partition())?,
                offset: message.offset(),
                key: message.key(),
                value: message.payload().unwrap_or_default(),
            })
        };
        let events: Vec<_> = messages.iter().filter_map(event).collect();
        take(&events);
        for event in &events {
            if let ChangelogEvent::Message { partition, offset, .. } = event
                && let Some(open) = self.open.get_mut(partition)
            {
                open.position = open.position.max(offset + 1);
            }
        }
        Ok(messages.len())
    }

    fn progress(&self) -> BTreeMap<PartitionId, (u64, u64)> {
        let of = |partition: &OpenPartition| {
            let all = partition.end.abs_diff(partition.beginning);
            (partition.position.abs_diff(partition.beginning).min(all), all)
        };
        self.open.iter().map(|(at, partition)| (*at, of(partition))).collect()
    }

    fn close(&mut self) {
        self.stop_reading();
        (self.looker, self.spare) = (None, None);
    }
}

/// The tries come at growing intervals: with the last of these the topic has not been there for some seconds.
const GONE_AFTER: u32 = 6;

fn fatal(error: &KafkaError) -> SourceError {
    SourceError::Fatal(error.to_string())
}
