//! Looks for topics that match a pattern, beside the loop: a list of all topics may take as long as the brokers do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use rdkafka::consumer::Consumer as _;

use super::client::{Clients, REQUEST_TIMEOUT, TopicNumbers};
use super::source::{KafkaSource, fatal};
use crate::config::{Config, Inputs, TwoPatterns};
use crate::event_time::PartitionId;
use crate::pipeline::SourceError;

/// A thread that takes topics in as they are seen, for as long as this is held.
#[derive(Debug)]
pub(super) struct TopicWatch {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Debug)]
struct Shared {
    ended: AtomicBool,
    fault: OnceLock<TwoPatterns>,
}

impl TopicWatch {
    /// The watch of a configuration, if it has patterns.
    pub(super) fn of(
        config: &Config,
        clients: &Arc<Clients>,
        topics: &TopicNumbers,
    ) -> Option<Self> {
        if !topics.0.have_patterns() {
            return None;
        }
        let every = config.kafka.consumer_property("topic.metadata.refresh.interval.ms");
        let every = every.and_then(|ms| ms.parse().ok()).map_or(EVERY, Duration::from_millis);
        let shared = Arc::new(Shared { ended: AtomicBool::new(false), fault: OnceLock::new() });
        let thread = Self::spawn(Arc::clone(&shared), Arc::clone(clients), topics.0.clone(), every);
        let thread =
            thread.inspect_err(|error| tracing::error!(%error, "{NOT_LOOKED_FOR}")).ok()?;
        Some(Self { shared, thread: thread.thread().clone() })
    }

    fn spawn(
        shared: Arc<Shared>,
        clients: Arc<Clients>,
        inputs: Inputs,
        every: Duration,
    ) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("topics".to_owned()).spawn(move || {
            let mut looker = None;
            loop {
                std::thread::park_timeout(every);
                if shared.ended.load(Ordering::Acquire) {
                    return;
                }
                // Where there can be no client, or no answer, it is tried again.
                if looker.is_none() {
                    looker = clients.looker().ok();
                }
                let seen = looker.as_ref().map(|it| it.fetch_metadata(None, REQUEST_TIMEOUT));
                let Some(Ok(metadata)) = seen else { continue };
                let there = metadata.topics().iter().filter(|topic| !topic.partitions().is_empty());
                let names = there.map(rdkafka::metadata::MetadataTopic::name);
                if let Err(fault) = inputs.admit(names) {
                    // The first ends the watch.
                    shared.fault.set(fault).unwrap_or_default();
                    return;
                }
            }
        })
    }

    /// What has put an end to it.
    pub(super) fn fault(&self) -> Option<&TwoPatterns> {
        self.shared.fault.get()
    }
}

impl Drop for TopicWatch {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl KafkaSource {
    /// The partition of a record, without a look at all topics where the one before was of the same.
    pub(super) fn id(&self, topic: &str, partition: i32) -> Option<PartitionId> {
        let mut latest = self.latest.borrow_mut();
        if let Some((source, number)) = &*latest
            && source.topic == topic
        {
            return Some(PartitionId { topic: *number, partition });
        }
        let id = self.topics.id(topic, partition)?;
        *latest = self.topics.0.get(id.topic).map(|source| (source, id.topic));
        Some(id)
    }

    /// The topics that the group has heard of; outside of it, all.
    pub(super) fn numbers(&self) -> std::ops::Range<u16> {
        let subscribed = self.subscribed.get();
        let count = if subscribed == 0 { self.topics.0.count() } else { subscribed };
        0..u16::try_from(count).unwrap_or(u16::MAX)
    }

    /// Tells the group which topics are read.
    pub(super) fn subscribe(&self) -> Result<(), SourceError> {
        let names = self.topics.names();
        if names.is_empty() {
            return Err(SourceError::Retry(
                "no topic matches the patterns of the sources".to_owned(),
            ));
        }
        let topics: Vec<&str> = names.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).map_err(|error| fatal(&error))?;
        self.subscribed.set(names.len());
        Ok(())
    }

    /// Joins the group anew where patterns have brought topics since.
    pub(super) fn look_for_topics(&self) -> Result<(), SourceError> {
        if let Some(fault) = self.watch.as_ref().and_then(TopicWatch::fault) {
            return Err(SourceError::Fatal(fault.to_string()));
        }
        let subscribed = self.subscribed.get();
        if subscribed == 0 || self.topics.0.count() == subscribed {
            return Ok(());
        }
        let new: Vec<_> =
            self.topics.0.since(subscribed).iter().map(|source| source.topic.clone()).collect();
        tracing::info!(topics = new.join(", "), "topics have come that match a pattern");
        self.subscribe()
    }

    /// The partitions that a topic has.
    pub(super) fn partitions_of(&self, topic: u16) -> Result<Vec<PartitionId>, SourceError> {
        let name = self.topics.name(PartitionId { topic, partition: 0 });
        let metadata = self
            .consumer
            .fetch_metadata(Some(&name), REQUEST_TIMEOUT)
            .map_err(|error| self.retry(&error))?;
        let found = metadata.topics().iter().flat_map(rdkafka::metadata::MetadataTopic::partitions);
        Ok(found.map(|partition| PartitionId { topic, partition: partition.id() }).collect())
    }
}

const NOT_LOOKED_FOR: &str = "there can be no thread that looks for new topics of the patterns";

/// As often as the client looks for new partitions.
const EVERY: Duration = Duration::from_secs(10);
