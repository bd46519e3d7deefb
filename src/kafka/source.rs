//! Records and assignments in.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::client::{Clients, REQUEST_TIMEOUT, TopicNumbers, is_of_the_connection};
use super::oauth::Held;
use super::rebalance::{ConsumerEvents, RebalanceEvent, unassign};
use super::record::KafkaRecord;
use super::right::MissingRight;
use super::sink::mark_of;
use super::stalls::Stalls;
use super::topic_watch::TopicWatch;
use crate::clock::Clock;
use crate::config::{self, Config, OnMissing, Start};
use crate::event_time::{MonotonicTime, PartitionId};
use crate::pipeline::{CommittedOffset, Ends, Polled, Progress, Source, SourceError};

/// One member of the consumer group.
pub struct KafkaSource {
    pub(super) consumer: Arc<Held<BaseConsumer<ConsumerEvents>>>,
    pub(super) topics: Arc<TopicNumbers>,
    /// Of how many of them the group has heard; none before this member has joined.
    pub(super) subscribed: Cell<usize>,
    /// The topic of the last record, and its number.
    pub(super) latest: RefCell<Option<(Arc<config::Source>, u16)>>,
    /// Looks for topics that match a pattern.
    pub(super) watch: Option<TopicWatch>,
    pub(super) clients: Arc<Clients>,
    /// A static member, which keeps its partitions while it is away.
    stays: bool,
    pub(super) clock: Clock,
    /// Where each assigned partition was begun: its position until a record has been read.
    pub(super) begun: RefCell<BTreeMap<PartitionId, i64>>,
    /// Up to where each could be read when that was told last.
    pub(super) known_ends: RefCell<BTreeMap<PartitionId, i64>>,
    pub(super) stalls: RefCell<Stalls>,
    /// Partitions that are not read for now, though they were begun.
    pub(super) held_back: RefCell<BTreeSet<PartitionId>>,
    /// A partition is not read any more, because the offset to go on from is not there.
    pub(super) out_of_range: Cell<bool>,
    /// The same of one that was not to be read yet.
    pub(super) ended_early: Cell<bool>,
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
        consumer: Arc<Held<BaseConsumer<ConsumerEvents>>>,
        topics: Arc<TopicNumbers>,
        clock: Clock,
        clients: Arc<Clients>,
    ) -> Self {
        let watch = TopicWatch::of(config, &clients, &topics);
        Self {
            consumer,
            topics,
            subscribed: Cell::new(0),
            latest: RefCell::default(),
            watch,
            clients,
            stays: config.kafka.static_membership,
            clock,
            begun: RefCell::default(),
            known_ends: RefCell::default(),
            stalls: RefCell::default(),
            held_back: RefCell::default(),
            out_of_range: Cell::new(false),
            ended_early: Cell::new(false),
        }
    }

    pub(super) fn list(
        &self,
        partitions: impl IntoIterator<Item = (PartitionId, Offset)>,
    ) -> Result<TopicPartitionList, SourceError> {
        let mut list = TopicPartitionList::new();
        for (id, offset) in partitions {
            list.add_partition_offset(&self.topics.name(id), id.partition, offset)
                .map_err(|error| fatal(&error))?;
        }
        Ok(list)
    }

    /// Where to begin, for each partition: where it stood, else as the configuration says.
    fn beginnings(
        &self,
        wanted: &BTreeMap<PartitionId, Option<i64>>,
        missing: &mut Vec<(PartitionId, u64)>,
    ) -> Result<BTreeMap<PartitionId, i64>, SourceError> {
        let mut beginnings = BTreeMap::new();
        for (id, wanted) in wanted {
            let ends = self
                .consumer
                .fetch_watermarks(&self.topics.name(*id), id.partition, REQUEST_TIMEOUT)
                .map_err(|error| self.retry(&error))?;
            let offset = match wanted {
                Some(offset) => self.check(*id, *offset, ends, missing)?,
                None => self.first_beginning(*id, ends)?,
            };
            self.known_ends.borrow_mut().insert(*id, ends.1);
            beginnings.insert(*id, offset);
        }
        Ok(beginnings)
    }

    /// A committed offset, if its record can still be read.
    pub(super) fn check(
        &self,
        id: PartitionId,
        offset: i64,
        (oldest, end): (i64, i64),
        missing: &mut Vec<(PartitionId, u64)>,
    ) -> Result<i64, SourceError> {
        let (topic, partition) = (self.topics.name(id), id.partition);
        if offset > end {
            return Err(SourceError::Fatal(format!(
                "{topic}/{partition} ends at offset {end}, but the group has committed {offset}: the topic was deleted \
                 and created again, or cut off; `tidegate reset` begins anew where you say"
            )));
        }
        if offset >= oldest {
            return Ok(offset);
        }
        match self.topics.0.get(id.topic).map(|source| source.on_missing) {
            Some(OnMissing::Continue) => {
                let skipped = oldest.abs_diff(offset);
                tracing::warn!(
                    topic,
                    partition,
                    from = offset,
                    to = oldest,
                    missing = skipped,
                    "records were deleted before they \
                    were read; going on at the oldest"
                );
                missing.push((id, skipped));
                Ok(oldest)
            }
            _ => Err(SourceError::Fatal(format!(
                "{topic}/{partition}: the group has committed offset {offset}, but the oldest record there is is \
                 {oldest}; {} records were deleted before they were read. `on_missing = \"continue\"` goes on at the \
                 oldest and counts them, `tidegate reset` begins anew where you say",
                oldest.abs_diff(offset)
            ))),
        }
    }

    /// Where to begin a partition without a committed offset. If the group has offsets in others of the topic, or in
    /// topics of the same pattern, the partition is new to it and read from its beginning.
    fn first_beginning(
        &self,
        id: PartitionId,
        (oldest, end): (i64, i64),
    ) -> Result<i64, SourceError> {
        let start = self.topics.0.get(id.topic).map_or(Start::Earliest, |source| source.start);
        if start == Start::Earliest || self.group_has_offsets(id.topic)? {
            return Ok(oldest);
        }
        let Start::At(time) = start else { return Ok(end) };
        let list = self.list([(id, Offset::Offset(time.0))])?;
        let answer = self
            .consumer
            .offsets_for_times(list, REQUEST_TIMEOUT)
            .map_err(|error| self.retry(&error))?;
        let found = answer
            .elements()
            .first()
            .map(rdkafka::topic_partition_list::TopicPartitionListElem::offset);
        Ok(if let Some(Offset::Offset(offset)) = found { offset } else { end })
    }

    fn group_has_offsets(&self, topic: u16) -> Result<bool, SourceError> {
        let mut partitions = BTreeSet::new();
        for topic in self.topics.siblings(topic) {
            partitions.extend(self.partitions_of(topic)?);
        }
        Ok(!self.committed(&partitions)?.is_empty())
    }

    /// What an error from a poll means. Records that were deleted before they were read come as one too.
    fn poll_error<R>(&self, error: &KafkaError) -> Result<Polled<R>, SourceError> {
        let reported = self.consumer.context().take_error();
        let cause =
            reported.map_or_else(|| error.to_string(), |(_, reason)| format!("{error}: {reason}"));
        Err(match error.rdkafka_error_code() {
            _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
                SourceError::Fatal(cause)
            }
            Some(
                RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::GroupAuthorizationFailed,
            ) => self.retry(error),
            Some(RDKafkaErrorCode::SaslAuthenticationFailed | RDKafkaErrorCode::Authentication) => {
                let cause = format!("the brokers refuse the credentials: {cause}");
                self.consumer.context().refused(cause)
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

    /// What a failed request means.
    pub(super) fn retry(&self, error: &KafkaError) -> SourceError {
        let right = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
                MissingRight::group(&self.clients.group_id)
            }
            Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                MissingRight::topic("Read", self.topics.names().join("`, `"))
            }
            _ => return SourceError::Retry(error.to_string()),
        };
        SourceError::Fatal(right.to_string())
    }

    /// A topic that the brokers do not know may be new to them; one that is not in the list of all is gone.
    fn vanished(&self, cause: String) -> SourceError {
        let Ok(metadata) = self.consumer.fetch_metadata(None, REQUEST_TIMEOUT) else {
            return SourceError::Retry(cause);
        };
        let known: Vec<&str> =
            metadata.topics().iter().map(rdkafka::metadata::MetadataTopic::name).collect();
        let names = self.topics.names();
        match names.iter().find(|name| !known.contains(&name.as_str())) {
            Some(gone) => {
                SourceError::Fatal(format!("topic `{gone}` has been deleted while it was read"))
            }
            None => SourceError::Retry(cause),
        }
    }
}

impl Source for KafkaSource {
    type Record<'a> = KafkaRecord<'a>;

    fn poll(&self, mut timeout: Duration) -> Result<Polled<KafkaRecord<'_>>, SourceError> {
        let context = self.consumer.context();
        if let Some(event) = context.next_rebalance() {
            return Ok(event.into());
        }
        if context.follows_no_more() {
            // Its end would wait for a rebalance that never ends; that of the process takes it out of the group.
            std::mem::forget(Arc::clone(&self.consumer));
            return Err(SourceError::Fatal(FOLLOWS_NO_MORE.to_owned()));
        }
        self.look_for_topics()?;
        if self.out_of_range.get() {
            match self.go_on_at_the_oldest() {
                // The brokers do not answer; the poll may still have news of the group.
                Err(SourceError::Retry(_)) => {}
                outcome => return outcome.map(Polled::Missing),
            }
        }
        loop {
            match self.consumer.poll(timeout) {
                None => {
                    if let Some(failure) = context.token_failure().filter(|it| it.lasting) {
                        return Err(SourceError::Fatal(failure.to_string()));
                    }
                    self.stalls.borrow_mut().nothing_came(self.clock.monotonic());
                    return Ok(context.next_rebalance().map_or(Polled::Nothing, Polled::from));
                }
                Some(Ok(message)) => {
                    return Ok(match self.id(message.topic(), message.partition()) {
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

    fn join(&self) -> Result<(), SourceError> {
        self.consumer.context().closes(false);
        self.subscribe()
    }

    fn new_topics(&self, known: usize) -> Vec<Arc<config::Source>> {
        self.topics.0.since(known)
    }

    fn leave(&self) -> Result<(), SourceError> {
        self.subscribed.set(0);
        self.leave_group();
        Ok(())
    }

    fn name(&self) -> String {
        self.clients.client_id.clone()
    }

    fn others(&self) -> Result<Vec<String>, SourceError> {
        self.other_members()
    }

    fn partitions(&self) -> Result<BTreeSet<PartitionId>, SourceError> {
        let mut all = BTreeSet::new();
        for topic in self.numbers() {
            all.extend(self.partitions_of(topic)?);
        }
        Ok(all)
    }

    fn accept(&self, partitions: &[PartitionId]) -> Result<(), SourceError> {
        // Where they begin is not known yet; one that is paused when it is assigned stays so. The place must be an offset:
        // for the end the client may ask once more after the seek to the right place, and go there.
        let list = self.list(partitions.iter().map(|id| (*id, Offset::Offset(0))))?;
        self.consumer.pause(&list).map_err(|error| fatal(&error))?;
        match self.consumer.rebalance_protocol() {
            RebalanceProtocol::Cooperative => self.consumer.incremental_assign(&list),
            RebalanceProtocol::Eager | RebalanceProtocol::None => self.consumer.assign(&list),
        }
        .map_err(|error| fatal(&error))?;
        // Once more, for partitions that the client did not know before.
        self.consumer.pause(&list).map_err(|error| fatal(&error))
    }

    fn committed(
        &self,
        partitions: &BTreeSet<PartitionId>,
    ) -> Result<BTreeMap<PartitionId, CommittedOffset>, SourceError> {
        let list = self.list(partitions.iter().map(|id| (*id, Offset::Invalid)))?;
        let answer = self
            .consumer
            .committed_offsets(list, COMMITTED_TIMEOUT)
            .map_err(|error| self.retry(&error))?;
        let mut committed = BTreeMap::new();
        for element in answer.elements() {
            element.error().map_err(|error| self.retry(&error))?;
            let id = self.topics.id(element.topic(), element.partition());
            if let (Some(id), Offset::Offset(offset)) = (id, element.offset()) {
                committed.insert(id, CommittedOffset { offset, mark: mark_of(element.metadata()) });
            }
        }
        Ok(committed)
    }

    fn start(
        &self,
        beginnings: &BTreeMap<PartitionId, Option<i64>>,
    ) -> Result<Vec<(PartitionId, u64)>, SourceError> {
        let mut missing = Vec::new();
        let offsets = self.beginnings(beginnings, &mut missing)?;
        let list = self.list(offsets.iter().map(|(id, offset)| (*id, Offset::Offset(*offset))))?;
        self.forget_held_back(offsets.keys());
        // In this order, since only a seek wakes the fetchers up. No record can come between, without a poll.
        self.consumer.resume(&list).map_err(|error| fatal(&error))?;
        let sought = self
            .consumer
            .seek_partitions(list, REQUEST_TIMEOUT)
            .map_err(|error| self.retry(&error))?;
        let failed = sought.elements().iter().find_map(|element| element.error().err());
        if let Some(error) = failed {
            if self.ended_early.take() {
                self.read_anew(offsets)?;
                return Ok(missing);
            }
            // An assignment takes a moment to begin, and before that there is nothing to seek in.
            self.pause(&offsets.keys().copied().collect())?;
            return Err(self.retry(&error));
        }
        self.begun.borrow_mut().extend(offsets);
        Ok(missing)
    }

    fn pause(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        let list = self.list(partitions.iter().map(|id| (*id, Offset::Invalid)))?;
        self.begun.borrow_mut().retain(|id, _| !partitions.contains(id));
        self.forget_held_back(partitions);
        self.stalls.borrow_mut().forget();
        self.consumer.pause(&list).map_err(|error| fatal(&error))
    }

    fn hold_back(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        self.hold_them_back(partitions)
    }

    fn read_on(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        self.read_them_on(partitions)
    }

    fn release(&self, partitions: &[PartitionId]) -> Result<(), SourceError> {
        let list = self.list(partitions.iter().map(|id| (*id, Offset::Invalid)))?;
        self.begun.borrow_mut().retain(|id, _| !partitions.contains(id));
        self.forget_held_back(partitions);
        self.stalls.borrow_mut().forget();
        unassign(&self.consumer, &list).map_err(|error| fatal(&error))
    }

    fn progress(&self, now: MonotonicTime) -> BTreeMap<PartitionId, Progress> {
        let statistics = self.consumer.context().fresh_statistics(now);
        let mut progress: BTreeMap<_, _> = self
            .positions()
            .into_iter()
            .map(|(id, position)| (id, Progress { position, ..Progress::default() }))
            .collect();
        let mut known_ends = self.known_ends.borrow_mut();
        for (id, held) in &mut progress {
            if let Some(seen) = statistics.get(id) {
                // The statistics may be a second old.
                held.end_offset = Some(seen.end_offset.max(held.position));
                held.caught_up =
                    seen.stable && seen.leader_answers && held.position >= seen.end_offset;
                let readable = seen.leader_answers.then_some(seen.stable_end);
                held.last_stable_offset = readable;
                known_ends.extend(readable.map(|end| (*id, end)));
                if !self.held_back.borrow().contains(id) {
                    self.stalls.borrow_mut().look(*id, held.position, readable, now);
                }
            }
            held.known_end = known_ends.get(id).copied();
        }
        drop(known_ends);
        self.read_again_what_stalls(now);
        progress
    }

    fn ends(&self) -> Result<Ends, SourceError> {
        let mut ends = Ends::new();
        for topic in self.numbers() {
            for id in self.partitions_of(topic)? {
                // A read_committed client is told the last stable offset.
                let ends_of = self.consumer.fetch_watermarks(
                    &self.topics.name(id),
                    id.partition,
                    REQUEST_TIMEOUT,
                );
                ends.insert(id, ends_of.map_err(|error| self.retry(&error))?);
            }
        }
        Ok(ends)
    }

    fn close(&self) {
        self.answer_all();
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

pub(super) fn fatal(error: &KafkaError) -> SourceError {
    SourceError::Fatal(error.to_string())
}

const FOLLOWS_NO_MORE: &str = "the Kafka client does not follow its group any more, since a topic has changed in the middle \
    of a rebalance (a fault of librdkafka); start this instance again: what was not committed is read again";

/// How long the group is asked what it has committed before the loop looks around again: open transactions of members
/// that were killed may hold the answer back for as long as these last.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(2);
