//! Records and assignments in.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::admin::ConnectError;
use super::client::{REQUEST_TIMEOUT, TopicNumbers};
use super::rebalance::{ConsumerEvents, RebalanceEvent, unassign};
use super::record::KafkaRecord;
use super::sink::sequence_of;
use crate::clock::Clock;
use crate::config::{Config, OnMissing, Start};
use crate::event_time::{MonotonicTime, PartitionId};
use crate::pipeline::{Ends, Polled, Progress, Source, SourceError, Started};

/// One member of the consumer group.
pub struct KafkaSource {
    consumer: Arc<BaseConsumer<ConsumerEvents>>,
    topics: Arc<TopicNumbers>,
    policies: Vec<(Start, OnMissing)>,
    /// A static member, which keeps its partitions while it is away.
    stays: bool,
    clock: Clock,
    /// Where each assigned partition was begun: its position until a record has been read.
    begun: RefCell<BTreeMap<PartitionId, i64>>,
    /// A partition is not read any more, because the offset to go on from is not there.
    out_of_range: Cell<bool>,
}

impl std::fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSource")
            .field("topics", &self.topics)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

impl KafkaSource {
    pub(super) fn new(
        config: &Config,
        consumer: Arc<BaseConsumer<ConsumerEvents>>,
        topics: Arc<TopicNumbers>,
        clock: Clock,
    ) -> Self {
        let policies =
            config.sources.iter().map(|source| (source.start, source.on_missing)).collect();
        Self {
            consumer,
            topics,
            policies,
            stays: config.kafka.static_membership,
            clock,
            begun: RefCell::default(),
            out_of_range: Cell::new(false),
        }
    }

    pub(super) fn subscribe(&self) -> Result<(), ConnectError> {
        let names: Vec<&str> = self.topics.names().iter().map(String::as_str).collect();
        self.consumer.subscribe(&names).map_err(|error| ConnectError::client(&error))
    }

    fn list(
        &self,
        partitions: impl IntoIterator<Item = (PartitionId, Offset)>,
    ) -> Result<TopicPartitionList, SourceError> {
        let mut list = TopicPartitionList::new();
        for (id, offset) in partitions {
            list.add_partition_offset(self.topics.name(id), id.partition, offset)
                .map_err(|error| fatal(&error))?;
        }
        Ok(list)
    }

    /// Where to begin, for each partition: where the group has committed, else as the configuration says.
    fn beginnings(
        &self,
        partitions: &[PartitionId],
    ) -> Result<(BTreeMap<PartitionId, i64>, Started), SourceError> {
        let mut started = Started::default();
        let committed = self.committed(partitions, &mut started)?;
        let mut beginnings = BTreeMap::new();
        for id in partitions {
            let (oldest, end) = self
                .consumer
                .fetch_watermarks(self.topics.name(*id), id.partition, REQUEST_TIMEOUT)
                .map_err(|error| retry(&error))?;
            let offset = match committed.get(id) {
                Some(offset) => self.check(*id, *offset, (oldest, end), &mut started)?,
                None => self.first_beginning(*id, (oldest, end))?,
            };
            beginnings.insert(*id, offset);
        }
        Ok((beginnings, started))
    }

    fn committed(
        &self,
        partitions: &[PartitionId],
        started: &mut Started,
    ) -> Result<BTreeMap<PartitionId, i64>, SourceError> {
        let list = self.list(partitions.iter().map(|id| (*id, Offset::Invalid)))?;
        let answer = self
            .consumer
            .committed_offsets(list, REQUEST_TIMEOUT)
            .map_err(|error| retry(&error))?;
        let mut committed = BTreeMap::new();
        for element in answer.elements() {
            element.error().map_err(|error| retry(&error))?;
            let id = self.topics.id(element.topic(), element.partition());
            if let (Some(id), Offset::Offset(offset)) = (id, element.offset()) {
                committed.insert(id, offset);
                started.sequence =
                    started.sequence.max(sequence_of(element.metadata()).unwrap_or(0));
            }
        }
        Ok(committed)
    }

    /// A committed offset, if its record can still be read.
    fn check(
        &self,
        id: PartitionId,
        offset: i64,
        (oldest, end): (i64, i64),
        started: &mut Started,
    ) -> Result<i64, SourceError> {
        let (topic, partition) = (self.topics.name(id), id.partition);
        if offset > end {
            return Err(SourceError::Fatal(format!(
                "{topic}/{partition} ends at offset {end}, but the group has committed {offset}: the topic was deleted \
                 and created again, or cut off; delete the group's offsets to read it from its beginning, or use \
                 another group"
            )));
        }
        if offset >= oldest {
            return Ok(offset);
        }
        match self.policies.get(usize::from(id.topic)).map(|(_, on_missing)| on_missing) {
            Some(OnMissing::Continue) => {
                let missing = oldest.abs_diff(offset);
                tracing::warn!(
                    topic,
                    partition,
                    from = offset,
                    to = oldest,
                    missing,
                    "records were deleted before they \
                    were read; going on at the oldest"
                );
                started.missing.push((id, missing));
                Ok(oldest)
            }
            _ => Err(SourceError::Fatal(format!(
                "{topic}/{partition}: the group has committed offset {offset}, but the oldest record there is is \
                 {oldest}; {} records were deleted before they were read. `on_missing = \"continue\"` goes on at the \
                 oldest and counts them",
                oldest.abs_diff(offset)
            ))),
        }
    }

    /// Where to begin a partition without a committed offset. If the group has offsets in others of the topic, the
    /// partition is new to it and read from its beginning.
    fn first_beginning(
        &self,
        id: PartitionId,
        (oldest, end): (i64, i64),
    ) -> Result<i64, SourceError> {
        let start =
            self.policies.get(usize::from(id.topic)).map_or(Start::Earliest, |(start, _)| *start);
        if start == Start::Earliest || self.group_has_offsets(id.topic)? {
            return Ok(oldest);
        }
        let Start::At(time) = start else { return Ok(end) };
        let list = self.list([(id, Offset::Offset(time.0))])?;
        let answer = self
            .consumer
            .offsets_for_times(list, REQUEST_TIMEOUT)
            .map_err(|error| retry(&error))?;
        let found = answer
            .elements()
            .first()
            .map(rdkafka::topic_partition_list::TopicPartitionListElem::offset);
        Ok(if let Some(Offset::Offset(offset)) = found { offset } else { end })
    }

    fn group_has_offsets(&self, topic: u16) -> Result<bool, SourceError> {
        let partitions: Vec<_> = self.partitions_of(topic)?;
        Ok(!self.committed(&partitions, &mut Started::default())?.is_empty())
    }

    fn partitions_of(&self, topic: u16) -> Result<Vec<PartitionId>, SourceError> {
        let name = self.topics.names().get(usize::from(topic)).map_or("", String::as_str);
        let metadata = self
            .consumer
            .fetch_metadata(Some(name), REQUEST_TIMEOUT)
            .map_err(|error| retry(&error))?;
        let found = metadata.topics().iter().flat_map(rdkafka::metadata::MetadataTopic::partitions);
        Ok(found.map(|partition| PartitionId { topic, partition: partition.id() }).collect())
    }

    /// What an error from a poll means. Records that were deleted before they were read come as one too.
    fn poll_error<R>(&self, error: &KafkaError) -> Result<Polled<R>, SourceError> {
        let reported = self.consumer.context().take_error();
        let cause =
            reported.map_or_else(|| error.to_string(), |(_, reason)| format!("{error}: {reason}"));
        let topics = self.topics.names().join("`, `");
        Err(match error.rdkafka_error_code() {
            _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                SourceError::Fatal(cause)
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => SourceError::Fatal(format!(
                "no right to read topic `{topics}` (operation Read): {cause}"
            )),
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => SourceError::Fatal(format!(
                "no right to join the consumer group (operation Read): {cause}"
            )),
            Some(RDKafkaErrorCode::SaslAuthenticationFailed | RDKafkaErrorCode::Authentication) => {
                SourceError::Fatal(format!("the brokers refuse the credentials: {cause}"))
            }
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                self.vanished(cause)
            }
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                self.out_of_range.set(true);
                return self.go_on_at_the_oldest().map(Polled::Missing);
            }
            _ => SourceError::Retry(cause),
        })
    }

    /// A topic that the brokers do not know may be new to them; one that is not in the list of all is gone.
    fn vanished(&self, cause: String) -> SourceError {
        let Ok(metadata) = self.consumer.fetch_metadata(None, REQUEST_TIMEOUT) else {
            return SourceError::Retry(cause);
        };
        let known: Vec<&str> =
            metadata.topics().iter().map(rdkafka::metadata::MetadataTopic::name).collect();
        match self.topics.names().iter().find(|name| !known.contains(&name.as_str())) {
            Some(gone) => {
                SourceError::Fatal(format!("topic `{gone}` has been deleted while it was read"))
            }
            None => SourceError::Retry(cause),
        }
    }

    /// Records were deleted in front of a partition that lags behind: goes on at the oldest where that is allowed, and
    /// says how many are missing.
    fn go_on_at_the_oldest(&self) -> Result<Vec<(PartitionId, u64)>, SourceError> {
        let mut started = Started::default();
        let mut positions = BTreeMap::new();
        for (id, progress) in self.progress(self.clock.monotonic()) {
            let ends = self
                .consumer
                .fetch_watermarks(self.topics.name(id), id.partition, REQUEST_TIMEOUT)
                .map_err(|error| retry(&error))?;
            positions.insert(id, self.check(id, progress.position, ends, &mut started)?);
        }
        // The client has ended its reading of the partition, and one that it does not read it cannot seek in.
        if matches!(self.consumer.rebalance_protocol(), RebalanceProtocol::Cooperative) {
            let all = self.list(positions.keys().map(|id| (*id, Offset::Invalid)))?;
            self.consumer.incremental_unassign(&all).map_err(|error| fatal(&error))?;
        }
        self.read_from(positions)?;
        self.out_of_range.set(false);
        Ok(started.missing)
    }

    /// Assigns these partitions, to be read from these offsets.
    fn read_from(&self, offsets: BTreeMap<PartitionId, i64>) -> Result<(), SourceError> {
        let list = self.list(offsets.iter().map(|(id, offset)| (*id, Offset::Offset(*offset))))?;
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_assign(&list),
            RebalanceProtocol::Eager | RebalanceProtocol::None => self.consumer.assign(&list),
        }
        .map_err(|error| fatal(&error))?;
        self.begun.borrow_mut().extend(offsets);
        Ok(())
    }
}

impl Source for KafkaSource {
    type Record<'a> = KafkaRecord<'a>;

    fn poll(&self, mut timeout: Duration) -> Result<Polled<KafkaRecord<'_>>, SourceError> {
        let context = self.consumer.context();
        if let Some(event) = context.next_rebalance() {
            return Ok(event.into());
        }
        if self.out_of_range.get() {
            match self.go_on_at_the_oldest() {
                // The brokers do not answer; the poll may still have news of the group.
                Err(SourceError::Retry(_)) => {}
                outcome => return outcome.map(Polled::Missing),
            }
        }
        loop {
            match self.consumer.poll(timeout) {
                None => return Ok(context.next_rebalance().map_or(Polled::Nothing, Polled::from)),
                Some(Ok(message)) => {
                    return Ok(match self.topics.id(message.topic(), message.partition()) {
                        Some(partition) => Polled::Record(KafkaRecord { message, partition }),
                        None => Polled::Nothing,
                    });
                }
                // News of the connection, one for each attempt: it has been counted and logged. Records and
                // rebalances may be behind it.
                Some(Err(error)) if is_of_the_connection(&error) => timeout = Duration::ZERO,
                Some(Err(error)) => return self.poll_error(&error),
            }
        }
    }

    fn start(&self, partitions: &[PartitionId]) -> Result<Started, SourceError> {
        let (beginnings, started) = self.beginnings(partitions)?;
        self.read_from(beginnings)?;
        Ok(started)
    }

    fn resume(
        &self,
        positions: &BTreeMap<PartitionId, i64>,
        committed: &BTreeMap<PartitionId, i64>,
        sequence: u64,
    ) -> Result<bool, SourceError> {
        let list = self.list(positions.keys().map(|id| (*id, Offset::Invalid)))?;
        let answer = self
            .consumer
            .committed_offsets(list, REQUEST_TIMEOUT)
            .map_err(|error| retry(&error))?;
        for element in answer.elements() {
            element.error().map_err(|error| retry(&error))?;
            let id = self.topics.id(element.topic(), element.partition());
            let ours = id.and_then(|id| committed.get(&id)).copied().map(Offset::Offset);
            let (topic, partition) = (element.topic(), element.partition());
            let (found, metadata) = (element.offset(), element.metadata());
            if ours.is_some() && found == Offset::Invalid {
                // A broker that was killed right after a commit may have lost sight of it; nobody has made another.
                tracing::warn!(
                    topic,
                    partition,
                    ?ours,
                    "the group has no offset where we had committed one"
                );
            } else if ours != Some(found) || sequence_of(metadata) != Some(sequence) {
                tracing::warn!(
                    topic,
                    partition,
                    ?found,
                    metadata,
                    ?ours,
                    sequence,
                    "somebody else has committed meanwhile, so what was read before is read again"
                );
                return Ok(false);
            }
        }
        self.read_from(positions.clone())?;
        Ok(true)
    }

    fn release(&self, partitions: &[PartitionId]) -> Result<(), SourceError> {
        let list = self.list(partitions.iter().map(|id| (*id, Offset::Invalid)))?;
        self.begun.borrow_mut().retain(|id, _| !partitions.contains(id));
        unassign(&self.consumer, &list).map_err(|error| fatal(&error))
    }

    fn progress(&self, now: MonotonicTime) -> BTreeMap<PartitionId, Progress> {
        let statistics = self.consumer.context().fresh_statistics(now);
        let positions = self.consumer.position().unwrap_or_else(|_| TopicPartitionList::new());
        let mut progress: BTreeMap<_, _> = self
            .begun
            .borrow()
            .iter()
            .map(|(id, begun)| {
                (*id, Progress { position: *begun, end_offset: None, caught_up: false })
            })
            .collect();
        for element in positions.elements() {
            let held = self
                .topics
                .id(element.topic(), element.partition())
                .and_then(|id| progress.get_mut(&id));
            if let (Some(held), Offset::Offset(offset)) = (held, element.offset()) {
                held.position = held.position.max(offset);
            }
        }
        for (id, held) in &mut progress {
            if let Some(seen) = statistics.get(id) {
                // The statistics may be a second old.
                held.end_offset = Some(seen.end_offset.max(held.position));
                held.caught_up =
                    seen.stable && seen.leader_answers && held.position >= seen.end_offset;
            }
        }
        progress
    }

    fn ends(&self) -> Result<Ends, SourceError> {
        let mut ends = Ends::new();
        for topic in 0..u16::try_from(self.topics.names().len()).unwrap_or(u16::MAX) {
            for id in self.partitions_of(topic)? {
                // A read_committed client is told the last stable offset.
                let ends_of = self.consumer.fetch_watermarks(
                    self.topics.name(id),
                    id.partition,
                    REQUEST_TIMEOUT,
                );
                ends.insert(id, ends_of.map_err(|error| retry(&error))?);
            }
        }
        Ok(ends)
    }

    fn close(&self) {
        self.consumer.context().close();
        // Whoever ends its subscription leaves the group; a static member must only close, as the drop does.
        if !self.stays {
            self.consumer.unsubscribe();
        }
    }
}

impl<R> From<RebalanceEvent> for Polled<R> {
    fn from(event: RebalanceEvent) -> Self {
        match event {
            RebalanceEvent::Assigned(partitions) => Self::Assigned(partitions),
            RebalanceEvent::Revoking(partitions) => Self::Revoking(partitions),
            RebalanceEvent::Lost(partitions) => Self::Lost(partitions),
        }
    }
}

/// The client goes on by itself after these.
fn is_of_the_connection(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::Resolve
                | RDKafkaErrorCode::OperationTimedOut
        )
    ) && !matches!(error, KafkaError::MessageConsumptionFatal(_))
}

fn retry(error: &KafkaError) -> SourceError {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::GroupAuthorizationFailed) => SourceError::Fatal(format!(
            "no right to read the group's offsets (operation Read on the group): {error}"
        )),
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => SourceError::Fatal(format!(
            "no right to read the input (operation Read on the topic): {error}"
        )),
        _ => SourceError::Retry(error.to_string()),
    }
}

fn fatal(error: &KafkaError) -> SourceError {
    SourceError::Fatal(error.to_string())
}
