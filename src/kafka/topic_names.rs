//! What the topics are called that the service writes.

use std::collections::BTreeMap;

use crate::config::{Config, Inputs};
use crate::pipeline::{OutputTopic, changelog_of_all};

/// The names of all topics that are written, as far as the input topics are known.
pub(super) fn written_topics(config: &Config, inputs: &Inputs) -> BTreeMap<OutputTopic, String> {
    let mut topics = output_topics(config);
    topics.extend(
        ChangelogTopics::new(config, inputs)
            .written()
            .into_iter()
            .map(|(number, name)| (OutputTopic::Changelog(number), name)),
    );
    topics
}

/// The changelogs of a configuration whose topics all have their names, by number.
pub(super) fn changelog_topics(config: &Config) -> BTreeMap<u16, String> {
    ChangelogTopics::new(config, &Inputs::new(config)).written()
}

/// The names of the changelog topics. Each input topic has one, with a partition for each of its partitions. One shard for
/// all partitions has the first partition of that of the input topic that is named first, so that topics behind it, and
/// those of patterns, may come and go; where none is named, it has a topic of its own.
#[derive(Clone, Debug)]
pub(super) struct ChangelogTopics {
    group: String,
    inputs: Inputs,
    one_for_all: bool,
    /// The number of the one shard's.
    of_all: u16,
}

impl ChangelogTopics {
    pub(super) fn new(config: &Config, inputs: &Inputs) -> Self {
        Self {
            group: config.kafka.group_id.clone(),
            inputs: inputs.clone(),
            one_for_all: config.key.needs_all_partitions(),
            of_all: changelog_of_all(config).topic,
        }
    }

    /// The changelog of this number: that of the input topic of the same number.
    pub(super) fn name(&self, number: u16) -> String {
        match self.inputs.get(number) {
            Some(source) => format!("{}-{}-changelog", self.group, source.topic),
            None => format!("{}-changelog", self.group),
        }
    }

    /// The number of the one with this name.
    pub(super) fn number(&self, name: &str) -> Option<u16> {
        let inner = name.strip_prefix(&self.group)?.strip_suffix("-changelog")?;
        match inner.strip_prefix('-') {
            Some(topic) => self.inputs.number(topic),
            None => inner.is_empty().then_some(self.of_all),
        }
    }

    /// Those that the shards write to, by their number.
    pub(super) fn written(&self) -> BTreeMap<u16, String> {
        let numbers = if self.one_for_all {
            self.of_all..=self.of_all
        } else {
            match u16::try_from(self.inputs.count()).unwrap_or(u16::MAX).checked_sub(1) {
                Some(last) => 0..=last,
                None => return BTreeMap::new(),
            }
        };
        numbers.map(|number| (number, self.name(number))).collect()
    }

    /// The input topic that one takes after.
    pub(super) fn input(&self, number: u16) -> Option<String> {
        let input = self.inputs.get(number).or_else(|| self.inputs.get(0))?;
        Some(input.topic.clone())
    }
}

/// The names of the output topics.
pub(super) fn output_topics(config: &Config) -> BTreeMap<OutputTopic, String> {
    [
        (OutputTopic::Results, config.results.topic.clone()),
        (OutputTopic::Late, config.late_topic.clone()),
        (OutputTopic::DeadLetter, config.dead_letter_topic.clone()),
    ]
    .into()
}
