//! Where the group stands: asked of its broker, of the inputs, and of the changelog.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::types::RDKafkaErrorCode;

use super::cluster::sees_everything;
use super::facts::{Facts, Found, GroupUnseen, Log, State};
use super::gather::Deadline;
use crate::config::{Config, Inputs};
use crate::event_time::PartitionId;
use crate::kafka::admin;
use crate::kafka::changelog::KafkaChangelog;
use crate::kafka::client::{Clients, TopicNumbers, ends_of};
use crate::kafka::members::Group;
use crate::kafka::rebalance::ConsumerEvents;
use crate::kafka::report::Reported;
use crate::kafka::source::KafkaSource;
use crate::kafka::topic_names::ChangelogTopics;
use crate::pipeline::{Changelog, ChangelogEvent, Source as _, SourceError, Time as _, rehearse};

/// The group, by the broker that manages it; that may take a moment to know it.
pub(super) fn group(
    consumer: &BaseConsumer<ConsumerEvents>,
    clients: &Clients,
    facts: &Facts,
    has_groups: bool,
    deadline: &Deadline,
) -> Result<Group, GroupUnseen> {
    if !has_groups && sees_everything(facts) {
        return Ok(Group::default());
    }
    let brokers: Vec<_> = facts.brokers.keys().copied().collect();
    loop {
        let error = match clients.group(consumer.client(), &brokers, true) {
            Ok(group) => return Ok(group),
            Err(error) => error,
        };
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::GroupAuthorizationFailed) => return Err(GroupUnseen::Forbidden),
            _ if !deadline.stopping() => deadline.wait(admin::FIRST_WAIT),
            Some(RDKafkaErrorCode::CoordinatorNotAvailable) => {
                return Err(GroupUnseen::Unmanaged);
            }
            _ => return Err(GroupUnseen::Unanswered(error.to_string())),
        }
    }
}

/// Where the inputs begin and end, and where the group reads on, which is nowhere without a source that can ask.
pub(super) fn logs(
    clients: &Clients,
    names: &TopicNumbers,
    source: Option<&KafkaSource>,
    partitions: &BTreeSet<PartitionId>,
    deadline: &Deadline,
) -> Result<BTreeMap<PartitionId, Log>, String> {
    let committed = loop {
        let Some(source) = source else { break BTreeMap::new() };
        match source.committed(partitions) {
            Ok(committed) => break committed,
            Err(SourceError::Retry(_)) if !deadline.stopping() => deadline.wait(admin::FIRST_WAIT),
            Err(SourceError::Retry(cause) | SourceError::Fatal(cause)) => return Err(cause),
        }
    };
    // Open transactions included.
    let looker = clients.looker().map_err(|error| error.to_string())?;
    let ends = |end| ends(&looker, names, partitions, end, deadline.left());
    let (oldest, newest) = (ends(Offset::Beginning)?, ends(Offset::End)?);
    let mut logs = BTreeMap::new();
    for id in partitions {
        let (Some(oldest), Some(end)) = (oldest.get(id), newest.get(id)) else {
            return Err(format!("{}/{} does not say where it ends", names.name(*id), id.partition));
        };
        let mut log = Log { oldest: *oldest, end: *end, ..Log::default() };
        if let (Some(committed), Some(source)) = (committed.get(id), source) {
            log.committed = Some(committed.offset);
            let mut missing = Vec::new();
            let checked = source.check(*id, committed.offset, (*oldest, *end), &mut missing);
            log.refusal = checked.err().map(|error| match error {
                SourceError::Retry(cause) | SourceError::Fatal(cause) => cause,
            });
            log.missing = missing.iter().map(|(_, missing)| missing).sum();
        }
        logs.insert(*id, log);
    }
    Ok(logs)
}

fn ends(
    looker: &BaseConsumer<Reported>,
    names: &TopicNumbers,
    partitions: &BTreeSet<PartitionId>,
    end: Offset,
    timeout: Duration,
) -> Result<BTreeMap<PartitionId, i64>, String> {
    let asked: Vec<_> = partitions.iter().map(|id| (names.name(*id), id.partition)).collect();
    let asked = asked.iter().map(|(topic, partition)| (topic.as_str(), *partition));
    let ends = ends_of(looker, asked, end, timeout).map_err(|error| error.to_string())?;
    let ends = ends
        .iter()
        .filter_map(|(topic, partition, offset)| Some((names.id(topic, *partition)?, *offset)));
    Ok(ends.collect())
}

/// Goes the way back to state as a start would.
pub(super) fn state(
    config: &Config,
    facts: &Facts,
    source: Option<&KafkaSource>,
    partitions: &BTreeSet<PartitionId>,
    deadline: &impl Fn() -> Deadline,
) -> State {
    let names = ChangelogTopics::new(config, &Inputs::new(config));
    let topics = names.written();
    let there: BTreeMap<u16, i32> = topics
        .iter()
        .filter_map(|(number, name)| Some((*number, facts.there(name)?.partitions)))
        .collect();
    let is_missing = |name: &String| matches!(facts.topics.get(name), Some(Found::Missing));
    if topics.values().all(is_missing) {
        return State::None;
    }
    let Some(source) = source else {
        return State::Unseen("no broker manages the group, whose offsets belong to it".to_owned());
    };
    if !topics.values().all(|name| is_missing(name) || facts.there(name).is_some()) {
        return State::Unseen("the changelog cannot be seen".to_owned());
    }
    // While it is written, offsets, records and what has been deleted of them may not fit for a moment.
    let is_at_work = facts.group.as_ref().is_ok_and(|group| !group.members.is_empty());
    let mut tries = if is_at_work { TRIES_AT_WORK } else { 1 };
    loop {
        let changelog =
            KafkaChangelog::new(Arc::clone(&source.clients), names.clone(), BTreeSet::new());
        let mut onlooker = Onlooker { changelog, there: there.clone(), absent: VecDeque::new() };
        let outcome = rehearse(config, partitions, source, &mut onlooker, &deadline());
        tries -= 1;
        match outcome {
            Err(_) if tries > 0 => {}
            outcome => return State::Rehearsed(outcome.map_err(|error| error.to_string())),
        }
    }
}

/// A changelog that does not grow: a partition that is not there is empty.
struct Onlooker {
    changelog: KafkaChangelog,
    /// How many partitions there are, by the number of the input topic.
    there: BTreeMap<u16, i32>,
    /// Partitions that were to be read and are not there.
    absent: VecDeque<PartitionId>,
}

impl Changelog for Onlooker {
    fn ensure(&mut self, _: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        Ok(())
    }

    fn open(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        let is_there = |at: &PartitionId| {
            self.there.get(&at.topic).is_some_and(|partitions| at.partition < *partitions)
        };
        let (there, absent): (BTreeSet<_>, VecDeque<_>) = {
            let (there, absent): (Vec<_>, Vec<_>) = partitions.iter().copied().partition(is_there);
            (there.into_iter().collect(), absent.into())
        };
        self.absent = absent;
        if there.is_empty() { Ok(()) } else { self.changelog.open(&there) }
    }

    fn poll(
        &mut self,
        timeout: Duration,
        most: usize,
        take: &mut dyn FnMut(&[ChangelogEvent<'_>]),
    ) -> Result<usize, SourceError> {
        match self.absent.pop_front() {
            Some(at) => {
                take(&[ChangelogEvent::End(at)]);
                Ok(1)
            }
            None => self.changelog.poll(timeout, most, take),
        }
    }

    fn progress(&self) -> BTreeMap<PartitionId, (u64, u64)> {
        self.changelog.progress()
    }

    fn close(&mut self) {
        self.changelog.close();
    }
}

/// How often state is looked at that is being written.
const TRIES_AT_WORK: u32 = 3;
