//! The configuration as meant: every value in its own type, right by construction.
//!
//! What people write is read in layers: built-in defaults, then files, then the environment, then flags. All faults
//! come back at once, each with where it was written, its key and what would be right.

mod admin;
mod effective;
mod export;
mod fault;
mod inputs;
mod key_path;
mod layers;
mod load;
mod oauth;
mod parse;
mod properties;
mod settings;
mod source;
mod tree;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Duration;

use crate::event_time::{
    AggregateFunction, AllIdle, EventTime, Panes, StateLimits, TumblingWindows,
};

pub use admin::{Admin, AdminTls};
pub use effective::{Effective, render_effective};
pub use export::{DatabaseTls, PostgresExport, RESERVED_COLUMNS, Secret};
pub use fault::ConfigFault;
pub(crate) use inputs::of_all_topics;
pub use inputs::{Inputs, TwoPatterns};
pub use layers::Sources;
pub use load::{Loaded, default_toml, host_name, load};
pub use oauth::{OAuth, TokenEndpoint};
pub(crate) use parse::{duration, log_filter, parse_start as start, read_token};
pub use properties::Properties;
pub use source::{
    Heartbeat, OnMissing, PartitionTerms, Source, SourcePattern, Start, Timestamp, TimestampFrom,
    TimestampUnit, TopicPattern,
};

/// Everything the service is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The SHA-256 of the settings in force, in hexadecimal digits; the same where two instances are told the same. The
    /// name of the instance is not in it, and no secrets.
    pub fingerprint: String,
    /// The cluster and how to reach it.
    pub kafka: Kafka,
    /// The input topics that are named, those of the first source first.
    pub sources: Vec<Source>,
    /// Input topics by pattern.
    pub patterns: Vec<SourcePattern>,
    /// How event time is cut.
    pub windows: TumblingWindows,
    /// How long after its end a window still takes records and fires again.
    pub allowed_lateness: Duration,
    /// What a later pane holds.
    pub panes: Panes,
    /// How often watermarks are emitted; zero: after every record.
    pub emit_interval: Duration,
    /// What happens while all partitions are silent.
    pub all_idle: AllIdle,
    /// How much event time a partition with a backlog may be read ahead of the watermark; `None`: any.
    pub max_drift: Option<Duration>,
    /// What records are grouped by.
    pub key: Key,
    /// What is computed; at least one.
    pub aggregates: Vec<Aggregate>,
    /// Which timestamps are believed where a source does not say otherwise: [`Source::guard`] is what holds.
    pub guard: Guard,
    /// The most that is held in memory.
    pub limits: StateLimits,
    /// The results topic and its format.
    pub results: Results,
    /// The topic of late records.
    pub late_topic: String,
    /// The topic of records that could not be used.
    pub dead_letter_topic: String,
    /// Whether and how missing topics are created.
    pub topics: Topics,
    /// Commits.
    pub delivery: Delivery,
    /// The export of the results to PostgreSQL; `None` where no table is named.
    pub postgres_export: Option<PostgresExport>,
    /// Metrics and probes.
    pub http: Http,
    /// The listener for calls that change the running service; `None`: there are none.
    pub admin: Option<Admin>,
    /// The log.
    pub log: Log,
    /// How many members of the group this process is; at least one.
    pub subtasks: u16,
    /// How long a clean stop may take.
    pub shutdown_timeout: Duration,
}

/// The cluster and how to reach it.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// Comma-separated `host:port`.
    pub bootstrap_servers: String,
    /// The consumer group; also the prefix of the transactional id.
    pub group_id: String,
    /// Tells this instance from the others of its group, stable over restarts.
    pub instance_id: String,
    /// Whether the group keeps the partitions of an instance that is away for less than the session timeout.
    pub static_membership: bool,
    /// librdkafka properties for consumer, producer and admin client.
    pub properties: Properties,
    /// librdkafka properties for the consumer alone.
    pub consumer_properties: Properties,
    /// librdkafka properties for the producer alone.
    pub producer_properties: Properties,
    /// Who gives tokens to show to the brokers; `None`: they ask for something else.
    pub oauth: Option<OAuth>,
}

impl Kafka {
    /// A property of the consumer, wherever it was written.
    pub(crate) fn consumer_property(&self, name: &str) -> Option<&str> {
        self.consumer_properties.get(name).or_else(|| self.properties.get(name))
    }

    /// Whether the group is managed by the newer protocol (KIP-848), which librdkafka calls "consumer".
    pub fn newer_group_protocol(&self) -> bool {
        // librdkafka does not tell capital letters from small ones here.
        self.consumer_property("group.protocol")
            .is_some_and(|protocol| protocol.eq_ignore_ascii_case("consumer"))
    }

    /// After how long without a word from it the group counts a member out: what is configured, or the default of the
    /// service, or with the newer protocol that of the brokers.
    pub fn session_timeout(&self) -> Duration {
        const CLASSIC: Duration = Duration::from_secs(10);
        const NEWER: Duration = Duration::from_secs(45);
        let configured = self.consumer_property("session.timeout.ms");
        configured.and_then(|text| text.parse().ok()).map_or(
            if self.newer_group_protocol() { NEWER } else { CLASSIC },
            Duration::from_millis,
        )
    }
}

/// What records are grouped by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where the key is.
    pub from: KeyFrom,
    /// Results per partition, for keys whose records are in many partitions.
    pub partial: bool,
    /// There are several input topics, so that the records of one message key may be in several partitions.
    pub across_topics: bool,
}

impl Key {
    /// Whether the records of one key may be in several partitions and are to come out as one result, so that one
    /// subtask has to read all partitions.
    pub fn needs_all_partitions(&self) -> bool {
        match self.from {
            KeyFrom::Message => self.across_topics && !self.partial,
            KeyFrom::Fields(_) => !self.partial,
        }
    }
}

/// Where the key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFrom {
    /// The message key, as text.
    Message,
    /// One or several logical fields.
    Fields(Vec<String>),
}

/// One aggregate of every window and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// Its name in the result.
    pub name: String,
    /// What it computes.
    pub function: AggregateFunction,
    /// The logical field it takes; `None` only for a count of records.
    pub field: Option<String>,
    /// Which numbers it accepts.
    pub value_type: ValueType,
    /// What a record without the field means.
    pub missing: Missing,
}

/// Which numbers an aggregate accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Integers exactly, others as 64-bit floats.
    Number,
    /// Integers only; anything else makes the record a dead letter.
    Integer,
    /// Every number as a 64-bit float, integers of any length included.
    Float,
}

/// What a record without the aggregate's field means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is a dead letter.
    Refuse,
    /// This aggregate leaves it out, as SQL does with null.
    Skip,
}

/// Which timestamps are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// How far past the wall clock a timestamp may be; `None`: any.
    pub max_future: Option<Duration>,
    /// The least timestamp; `None`: any.
    pub min_timestamp: Option<EventTime>,
}

impl Guard {
    /// Any timestamp is believed.
    pub const ALL: Self = Self { max_future: None, min_timestamp: None };
}

/// The results topic and its format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// Its name.
    pub topic: String,
    /// What the message key is.
    pub key: ResultKey,
    /// Whether the clock is written as a record of its own when it passes a window's end.
    pub progress: bool,
    /// How window bounds are written.
    pub timestamps: TimestampFormat,
    /// How integer aggregates are written.
    pub integers: IntegerFormat,
}

/// What the message key of a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKey {
    /// The aggregation key.
    Key,
    /// The aggregation key and the window's start, for compacted topics and upserts.
    KeyWindow,
}

/// How window bounds are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampFormat {
    /// Milliseconds since the epoch.
    EpochMs,
    /// RFC 3339 in UTC.
    Rfc3339,
}

/// How integer aggregates are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerFormat {
    /// As JSON numbers, exact.
    Number,
    /// As JSON strings, for readers whose numbers end at 2^53.
    Text,
}

/// Whether and how missing topics are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics {
    /// Create the input and output topics that are missing; otherwise they are named in an error.
    pub create: bool,
    /// Partitions of a created topic.
    pub partitions: i32,
    /// Replicas of a created topic; `None`: the broker's default.
    pub replication_factor: Option<i32>,
}

/// Commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What a crash may do to results.
    pub guarantee: Guarantee,
    /// The longest time between two commits while there is something to commit.
    pub commit_interval: Duration,
    /// After this long the broker ends an open transaction.
    pub transaction_timeout: Duration,
}

/// What a crash may do to results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Results, late records, dead letters and offsets in one transaction.
    ExactlyOnce,
    /// Results first, then offsets; for brokers without transactions.
    AtLeastOnce,
}

/// Metrics and probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http {
    /// Where to listen.
    pub listen: SocketAddr,
}

/// The log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Text or JSON.
    pub format: LogFormat,
    /// A filter such as `info` or `tidegate=debug,warn`.
    pub filter: String,
    /// How often one place in the code may write; `None`: always.
    pub repeats: Option<RepeatLimit>,
}

/// How often one place in the code may write to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatLimit {
    /// Lines in an interval; at least one.
    pub lines: u32,
    /// How long one is.
    pub interval: Duration,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Text.
    Text,
    /// JSON lines.
    Json,
}
