//! What is needed for the records of each input topic, also of those that come while the service runs.

use super::Pipeline;
use super::edge::{Changelog, Observer, Time, TransactionalSink};
use super::engine::Engine;
use crate::codec::Decoder;
use crate::config::{Config, PartitionTerms, Source};
use crate::event_time::{PartitionId, Sharding, SubtaskSettings, TopicSettings, WindowSettings};

impl<K: TransactionalSink> Engine<K> {
    /// Makes ready for the records of one more topic, which has the next number.
    pub(super) fn add_topic(&mut self, source: &Source) {
        let (key, aggregates) = &self.decoding;
        self.decoders.push(Decoder::new(source, key, aggregates));
        self.topics.push(source.topic.clone());
        let number = self.subtask.add_topic(TopicSettings {
            strategy: source.strategy.clone(),
            idle_timeout: source.idle_timeout,
        });
        for (partition, terms) in &source.partitions {
            let PartitionTerms { strategy, idle_timeout } = terms.clone();
            let id = PartitionId { topic: number, partition: *partition };
            self.subtask.except(id, TopicSettings { strategy, idle_timeout });
        }
    }
}

impl<S: super::Source, K: TransactionalSink, C: Changelog, O: Observer, T: Time>
    Pipeline<S, K, C, O, T>
{
    /// Topics that a pattern has brought: what is needed to read them, before the first of their partitions.
    pub(super) fn take_in_topics(&mut self) {
        for source in self.source.new_topics(self.terms.topics.len()) {
            tracing::info!(topic = source.topic, "a topic is new here");
            self.terms.topics.push(source.topic.clone());
            self.engine.add_topic(&source);
        }
    }
}

pub(super) fn subtask_settings(config: &Config) -> SubtaskSettings {
    SubtaskSettings {
        // They are added one by one.
        topics: Vec::new(),
        window: WindowSettings {
            windows: config.windows,
            allowed_lateness: config.allowed_lateness,
            panes: config.panes,
            aggregates: config.aggregates.iter().map(|aggregate| aggregate.function).collect(),
            limits: config.limits,
        },
        sharding: if config.key.needs_all_partitions() {
            Sharding::OneForAll
        } else {
            Sharding::PerPartition
        },
        all_idle: config.all_idle,
    }
}
