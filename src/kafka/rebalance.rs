//! The consumer's callbacks turned into events: assignments, statistics, errors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::KafkaError;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
use rdkafka::{ClientContext, Statistics, TopicPartitionList};

use super::client::TopicNumbers;
use super::following::Following;
use super::oauth::{TokenError, Tokens};
use super::report::Reports;
use crate::clock::Clock;
use crate::event_time::{MonotonicTime, PartitionId};
use crate::pipeline::SourceError;

/// A change of the assignment, as the group said it.
#[derive(Debug)]
pub(super) enum RebalanceEvent {
    Assigned(Vec<PartitionId>),
    Revoking(Vec<PartitionId>),
    Lost(Vec<PartitionId>),
}

/// What the statistics say of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartitionStatistics {
    pub(super) end_offset: i64,
    /// The last stable offset: up to here records can be read.
    pub(super) stable_end: i64,
    /// Nothing that could still become visible is in front of the end: the last stable offset is the end offset.
    pub(super) stable: bool,
    /// Its leader is connected and has answered within [`ANSWERED_LATELY`].
    pub(super) leader_answers: bool,
}

/// Collects what the consumer's callbacks say; all of them run inside `poll`, on the polling thread.
pub(super) struct ConsumerEvents {
    clock: Clock,
    topics: Arc<TopicNumbers>,
    rebalances: Mutex<VecDeque<RebalanceEvent>>,
    /// With the classic protocol.
    following: Option<Mutex<Following>>,
    statistics: Mutex<Option<(MonotonicTime, BTreeMap<PartitionId, PartitionStatistics>)>>,
    last_error: Mutex<Option<(RDKafkaErrorCode, String)>>,
    closing: AtomicBool,
    connected: AtomicBool,
    reports: Reports,
    tokens: Option<Arc<Tokens>>,
}

impl ConsumerEvents {
    pub(super) fn new(
        clock: Clock,
        topics: Arc<TopicNumbers>,
        classic: bool,
        reports: Reports,
        tokens: Option<Arc<Tokens>>,
    ) -> Self {
        Self {
            clock,
            topics,
            rebalances: Mutex::default(),
            following: classic.then(Mutex::default),
            statistics: Mutex::default(),
            last_error: Mutex::default(),
            closing: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            reports,
            tokens,
        }
    }

    pub(super) fn next_rebalance(&self) -> Option<RebalanceEvent> {
        lock(&self.rebalances).pop_front()
    }

    /// Whether the client ignores what becomes of its group, for good.
    pub(super) fn follows_no_more(&self) -> bool {
        self.following.as_ref().is_some_and(|following| lock(following).is_lost())
    }

    /// The newest statistics, unless they are too old to be evidence.
    pub(super) fn fresh_statistics(
        &self,
        now: MonotonicTime,
    ) -> BTreeMap<PartitionId, PartitionStatistics> {
        match &*lock(&self.statistics) {
            Some((taken, partitions)) if now.since(*taken) < FRESH => partitions.clone(),
            _ => BTreeMap::new(),
        }
    }

    /// Whether a broker was connected when the last statistics were taken.
    pub(super) fn connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    pub(super) fn take_error(&self) -> Option<(RDKafkaErrorCode, String)> {
        lock(&self.last_error).take()
    }

    /// Keeps the error that tells most.
    fn note_error(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut last = lock(&self.last_error);
        // That the brokers cannot be reached follows from the others.
        let held = last.as_ref().map(|(held, _)| telling(*held));
        if held.is_none_or(|held| telling(code) >= held) {
            *last = Some((code, reason.to_owned()));
        }
    }

    /// Why there is nothing to show to brokers that ask for a token.
    pub(super) fn token_failure(&self) -> Option<TokenError> {
        self.tokens.as_ref()?.failure()
    }

    /// What a refusal of the credentials means while the service runs.
    pub(super) fn refused(&self, cause: String) -> SourceError {
        match &self.tokens {
            Some(tokens) => tokens.refused(cause),
            None => SourceError::Fatal(cause),
        }
    }

    /// From now on partitions are given up at once, since what was to be committed is; or no longer.
    pub(super) fn closes(&self, closing: bool) {
        self.closing.store(closing, Ordering::Relaxed);
        // What comes next is of another membership.
        if let Some(following) = &self.following {
            *lock(following) = Following::default();
        }
    }

    fn ids(&self, partitions: &TopicPartitionList) -> Vec<PartitionId> {
        partitions
            .elements()
            .iter()
            .filter_map(|element| self.topics.id(element.topic(), element.partition()))
            .collect()
    }
}

impl ClientContext for ConsumerEvents {
    fn stats(&self, statistics: Statistics) {
        let answers = |leader: i32| {
            statistics.brokers.values().any(|broker| {
                broker.nodeid == leader
                    && broker.state == "UP"
                    && u128::try_from(broker.rxidle)
                        .is_ok_and(|idle| idle < ANSWERED_LATELY.as_micros())
            })
        };
        if let (Some(following), Some(group)) = (&self.following, &statistics.cgrp) {
            lock(following).seen(&group.join_state);
        }
        let mut partitions = BTreeMap::new();
        for (name, topic) in &statistics.topics {
            for (number, partition) in &topic.partitions {
                let Some(id) = self.topics.id(name, *number) else { continue };
                if partition.hi_offset < 0 {
                    continue;
                }
                partitions.insert(
                    id,
                    PartitionStatistics {
                        end_offset: partition.hi_offset,
                        stable_end: partition.ls_offset,
                        stable: partition.ls_offset == partition.hi_offset,
                        leader_answers: answers(partition.leader),
                    },
                );
            }
        }
        let connected = statistics.brokers.values().any(|broker| broker.state == "UP");
        self.connected.store(connected, Ordering::Relaxed);
        *lock(&self.statistics) = Some((self.clock.monotonic(), partitions));
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.reports.line(level, facility, line);
        // Of a connection that is closed in the middle of its making there is no other word.
        if facility == "FAIL" {
            let line = line.split_once("]: ").map_or(line, |(_, line)| line);
            self.note_error(RDKafkaErrorCode::BrokerTransportFailure, line);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.reports.take(&error, reason);
        if let Some(code) = error.rdkafka_error_code() {
            self.note_error(code, reason);
        }
    }
}

impl ConsumerContext for ConsumerEvents {
    #[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's type has two hundred codes")]
    /// Only notes the event. The default would give partitions up before the loop has committed what it read of them.
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        kind: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let ids = self.ids(partitions);
        let event = match kind {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => RebalanceEvent::Assigned(ids),
            // The only other kind there is: partitions are taken away.
            _ if self.closing.load(Ordering::Relaxed) => {
                if let Err(error) = unassign(consumer, partitions) {
                    tracing::warn!(%error, "giving partitions up failed");
                }
                return;
            }
            _ if consumer.assignment_lost() => RebalanceEvent::Lost(ids),
            _ => RebalanceEvent::Revoking(ids),
        };
        if let Some(following) = &self.following {
            lock(following).event(&event);
        }
        lock(&self.rebalances).push_back(event);
    }

    fn main_queue_min_poll_interval(&self) -> rdkafka::util::Timeout {
        rdkafka::util::Timeout::After(Duration::from_millis(200))
    }
}

/// Gives partitions up, in the way of the group's protocol.
pub(super) fn unassign(
    consumer: &BaseConsumer<ConsumerEvents>,
    partitions: &TopicPartitionList,
) -> Result<(), KafkaError> {
    match consumer.rebalance_protocol() {
        RebalanceProtocol::Cooperative => consumer.incremental_unassign(partitions),
        RebalanceProtocol::Eager | RebalanceProtocol::None => consumer.unassign(),
    }
}

/// How much an error tells of why there is no connection.
#[expect(clippy::wildcard_enum_match_arm, reason = "librdkafka's type has two hundred codes")]
fn telling(code: RDKafkaErrorCode) -> u8 {
    match code {
        RDKafkaErrorCode::AllBrokersDown => 0,
        RDKafkaErrorCode::Authentication | RDKafkaErrorCode::GroupAuthorizationFailed => 3,
        RDKafkaErrorCode::SSL => 2,
        _ => 1,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Statistics come every second; older ones than this are no evidence of anything.
const FRESH: Duration = Duration::from_secs(3);

/// A leader answers an empty fetch every half second.
const ANSWERED_LATELY: Duration = Duration::from_secs(3);
