//! What was seen of a cluster: plain data, from which the findings are made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::report::Verdict;
use crate::event_time::PartitionId;
use crate::kafka::members::Group;
use crate::kafka::rights::Rights;
use crate::pipeline::{Rehearsal, TopicLimits};

/// Settings by their names.
pub(super) type Settings = BTreeMap<String, String>;

/// A broker that the others know.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    /// Where it says that it is.
    pub(super) address: String,
    /// Its settings; `Ok(None)` where one may not see them; why it did not answer.
    pub(super) settings: Result<Option<Settings>, String>,
}

/// A topic that the service works with.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// There is none of this name.
    Missing,
    /// One may not see whether there is one.
    Hidden,
    /// No answer.
    Unknown(String),
    /// It is there.
    There(Topic),
}

/// A topic that is there.
#[derive(Clone, Debug, Default)]
pub(super) struct Topic {
    pub(super) partitions: i32,
    /// Of the partition with the fewest.
    pub(super) replicas: usize,
    /// Replicas that are in sync, of the partition with the fewest.
    pub(super) in_sync: usize,
    pub(super) leaderless: Vec<i32>,
    /// What one may do to it, where the brokers tell.
    pub(super) rights: Option<Rights>,
    /// `None` where one may not see them.
    pub(super) settings: Option<Settings>,
}

impl Topic {
    pub(super) fn text(&self, setting: &str) -> Option<&str> {
        self.settings.as_ref()?.get(setting).map(String::as_str)
    }

    pub(super) fn number(&self, setting: &str) -> Option<i64> {
        self.text(setting)?.parse().ok()
    }

    /// A time in milliseconds; `None` also where it is without a limit.
    pub(super) fn duration(&self, setting: &str) -> Option<Duration> {
        u64::try_from(self.number(setting)?).ok().map(Duration::from_millis)
    }

    pub(super) fn max_message_bytes(&self) -> usize {
        let told = self.number("max.message.bytes").and_then(|bytes| usize::try_from(bytes).ok());
        told.unwrap_or(TopicLimits::default().max_message_bytes)
    }

    pub(super) fn is_compacted(&self) -> bool {
        self.text("cleanup.policy").is_some_and(|policy| policy.contains("compact"))
    }

    pub(super) fn bears_arrival_times(&self) -> bool {
        self.text("message.timestamp.type") == Some("LogAppendTime")
    }
}

/// Why nothing is known of the group.
#[derive(Clone, Debug)]
pub(super) enum GroupUnseen {
    Forbidden,
    /// No broker manages it: there has been no group yet, or who manages it is away.
    Unmanaged,
    /// Why there was no answer.
    Unanswered(String),
}

/// What a start would find of state.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// No changelog.
    None,
    /// Why it was not looked at.
    Unseen(String),
    /// How the way back to it went; or what would end a start.
    Rehearsed(Result<Rehearsal, String>),
}

/// A partition of an input.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) oldest: i64,
    pub(super) end: i64,
    /// Where the group reads on.
    pub(super) committed: Option<i64>,
    /// Why the service would not go on from there.
    pub(super) refusal: Option<String>,
    /// Records that were deleted before they were read, where the configuration lets the service go on.
    pub(super) missing: u64,
}

/// What the probe has found.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) topic: String,
    /// It wrote and committed in a transaction.
    pub(super) transactional: bool,
    /// By how much the broker's clock is ahead of ours, in milliseconds.
    pub(super) ahead_ms: i64,
    /// How exact that is.
    pub(super) within_ms: i64,
    /// Why its topic is still there.
    pub(super) left: Option<String>,
}

/// Why a probe did not come to its end.
#[derive(Clone, Debug)]
pub(super) struct ProbeFailure {
    pub(super) what: String,
    pub(super) remedy: Option<String>,
    pub(super) verdict: Verdict,
    /// Why its topic is still there.
    pub(super) left: Option<String>,
}

/// All that was seen once the brokers had answered.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) brokers: BTreeMap<i32, Broker>,
    pub(super) cluster_rights: Option<Rights>,
    /// The topics that the service works with, by their names.
    pub(super) topics: BTreeMap<String, Found>,
    /// What the brokers say to the creation of those that are missing and would be created.
    pub(super) creations: BTreeMap<String, Result<Creation, String>>,
    pub(super) group: Result<Group, GroupUnseen>,
    /// The input partitions.
    pub(super) logs: Result<BTreeMap<PartitionId, Log>, String>,
    pub(super) state: State,
    /// The topic with the transactions' state, where one may see it.
    pub(super) transaction_log: Option<Topic>,
    /// `None`: not asked for.
    pub(super) probe: Option<Result<Probe, ProbeFailure>>,
}

impl Facts {
    /// Nothing seen yet.
    pub(super) fn new() -> Self {
        Self {
            brokers: BTreeMap::new(),
            cluster_rights: None,
            topics: BTreeMap::new(),
            creations: BTreeMap::new(),
            group: Err(GroupUnseen::Unanswered("there was no time for it".to_owned())),
            logs: Err("there was no time for it".to_owned()),
            state: State::Unseen("there was no time for it".to_owned()),
            transaction_log: None,
            probe: None,
        }
    }

    /// A setting of the brokers, of all that tell it.
    pub(super) fn broker_setting(&self, name: &str) -> BTreeSet<i64> {
        let told =
            self.brokers.values().filter_map(|broker| broker.settings.as_ref().ok()?.as_ref());
        told.filter_map(|settings| settings.get(name)?.parse().ok()).collect()
    }

    /// A topic, if it is there.
    pub(super) fn there(&self, name: &str) -> Option<&Topic> {
        match self.topics.get(name)? {
            Found::There(topic) => Some(topic),
            Found::Missing | Found::Hidden | Found::Unknown(_) => None,
        }
    }
}

/// How a topic would be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Creation {
    pub(super) partitions: i32,
    /// `None`: as the brokers are set.
    pub(super) replicas: Option<i32>,
    /// Settings other than the brokers' own, as people read them.
    pub(super) settings: String,
}
