//! The seams of the pipeline: where records come from, where everything that a commit covers goes, and where state is
//! read back from.
//!
//! All are implemented twice: on Kafka, and in memory for the simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::message::{Message, OutputTopic, TopicLimits};
use crate::config;
use crate::event_time::{MonotonicTime, PartitionId, Sharding};

/// A record as its topic has it.
pub trait InputRecord {
    /// The partition it was read from.
    fn partition(&self) -> PartitionId;
    /// Its offset there.
    fn offset(&self) -> i64;
    /// The message key.
    fn key(&self) -> Option<&[u8]>;
    /// The payload; `None` is a tombstone.
    fn payload(&self) -> Option<&[u8]>;
    /// Kafka's own timestamp in milliseconds, where the record has one.
    fn timestamp(&self) -> Option<i64>;
    /// The value of the last header of this name.
    fn header(&self, name: &str) -> Option<&[u8]>;
    /// Shows all headers, in their order, repeated names included.
    fn each_header(&self, visit: &mut dyn FnMut(&str, Option<&[u8]>));
}

/// What a pipeline works with.
#[derive(Debug)]
pub struct Edges<S, K, C> {
    /// The input.
    pub source: S,
    /// Everything that a commit covers.
    pub sink: K,
    /// The state, read back.
    pub changelog: C,
}

/// What a poll brought.
#[derive(Debug)]
pub enum Polled<R> {
    /// Nothing within the timeout.
    Nothing,
    /// A record.
    Record(R),
    /// Partitions given to this member: [`Source::accept`].
    Assigned(Vec<PartitionId>),
    /// Partitions to give up, as soon as what was read from them is committed: [`Source::release`].
    Revoking(Vec<PartitionId>),
    /// Partitions that are no longer ours: nothing read from them may be committed any more.
    Lost(Vec<PartitionId>),
    /// Records that were deleted before they were read: how many, where. Reading goes on behind them, because the
    /// configuration allows it.
    Missing(Vec<(PartitionId, u64)>),
}

impl<R> Polled<R> {
    /// The same with something made of the record.
    pub fn map<U>(self, make: impl FnOnce(R) -> U) -> Polled<U> {
        match self {
            Self::Nothing => Polled::Nothing,
            Self::Record(record) => Polled::Record(make(record)),
            Self::Assigned(partitions) => Polled::Assigned(partitions),
            Self::Revoking(partitions) => Polled::Revoking(partitions),
            Self::Lost(partitions) => Polled::Lost(partitions),
            Self::Missing(records) => Polled::Missing(records),
        }
    }
}

/// How far the reading of a partition has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The offset of the next record; transaction markers are passed, not waited at.
    pub position: i64,
    /// The end offset that the last fetch reported.
    pub end_offset: Option<i64>,
    /// The last stable offset, where the leader has told it lately.
    pub last_stable_offset: Option<i64>,
    /// Up to where there were records to read when that was told last, if only at the beginning.
    pub known_end: Option<i64>,
    /// Whether it is known that no record and no open transaction is in front of the position.
    pub caught_up: bool,
}

/// What a commit leaves with each offset, so that the state that belongs to it can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMark {
    /// The shard's commit sequence.
    pub sequence: u64,
    /// Whose changelog partition holds the state: that of the partition's own shard, or of the one for all.
    pub sharding: Sharding,
}

/// What the group has committed for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The offset of the next record to read.
    pub offset: i64,
    /// `None`: not written by this service.
    pub mark: Option<CommitMark>,
}

/// What a commit writes for each partition: the offset of the next record to read, and the mark.
pub type NextOffsets = BTreeMap<PartitionId, (i64, CommitMark)>;

/// What can be read when reading stops at the present end: the beginning and the last stable offset.
pub type Ends = BTreeMap<PartitionId, (i64, i64)>;

/// The input topics, as one member of the group sees them.
pub trait Source {
    /// A record, lent until the next poll.
    type Record<'a>: InputRecord
    where
        Self: 'a;

    /// The next record or change of the assignment.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn poll(&self, timeout: Duration) -> Result<Polled<Self::Record<'_>>, SourceError>;

    /// Joins the group.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn join(&self) -> Result<(), SourceError>;

    /// The input topics that have come since there were so many, by their number; those of the configuration are known.
    fn new_topics(&self, _known: usize) -> Vec<Arc<config::Source>> {
        Vec::new()
    }

    /// Leaves the group for the time being, and gives up what it has.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn leave(&self) -> Result<(), SourceError>;

    /// What this member is called in the group.
    fn name(&self) -> String;

    /// The other members of the group, as far as the brokers tell: each by its name, and where it is.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn others(&self) -> Result<Vec<String>, SourceError>;

    /// All partitions of the input topics, assigned or not.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn partitions(&self) -> Result<BTreeSet<PartitionId>, SourceError>;

    /// Takes in partitions that the group has assigned; nothing is read from them before [`Self::start`].
    ///
    /// # Errors
    /// See [`SourceError`].
    fn accept(&self, partitions: &[PartitionId]) -> Result<(), SourceError>;

    /// What the group has committed for these partitions; those without an offset are left out. Waits for open
    /// transactions that may still change it, though not for long: that is a [`SourceError::Retry`].
    ///
    /// # Errors
    /// See [`SourceError`].
    fn committed(
        &self,
        partitions: &BTreeSet<PartitionId>,
    ) -> Result<BTreeMap<PartitionId, CommittedOffset>, SourceError>;

    /// Begins to read accepted partitions at these offsets, or again at others; without an offset as the configuration
    /// says for a partition that is new to the group. Records that had been deleted before they were read are skipped
    /// where the configuration allows it, and said: how many, where.
    ///
    /// # Errors
    /// See [`SourceError`]; after [`SourceError::Retry`] it may be called again.
    fn start(
        &self,
        beginnings: &BTreeMap<PartitionId, Option<i64>>,
    ) -> Result<Vec<(PartitionId, u64)>, SourceError>;

    /// Stops reading partitions until they are started again; what was fetched of them is thrown away.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn pause(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError>;

    /// Reads partitions no further for now. Where they stand is kept, and what was fetched ahead is thrown away. It ends
    /// with [`Self::read_on`], [`Self::start`], or when they are given up.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn hold_back(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError>;

    /// Reads partitions on that were held back.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn read_on(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError>;

    /// Gives partitions up.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn release(&self, partitions: &[PartitionId]) -> Result<(), SourceError>;

    /// How far each partition has come that was started.
    fn progress(&self, now: MonotonicTime) -> BTreeMap<PartitionId, Progress>;

    /// The present ends of all partitions of the input topics, assigned or not.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn ends(&self) -> Result<Ends, SourceError>;

    /// Leaves the group.
    fn close(&self);
}

/// The output topics and the group's offsets, one transaction at a time.
pub trait TransactionalSink {
    /// Puts a message into the transaction, and begins one if there is none.
    ///
    /// # Errors
    /// See [`SinkError`]; after any of them the message counts as not sent.
    fn send(&mut self, message: &Message) -> Result<(), SinkError>;

    /// Makes everything sent since the last commit visible together with the next offsets to read.
    ///
    /// # Errors
    /// See [`SinkError`]; after [`SinkError::Retry`] the same call continues where it was.
    fn commit(&mut self, next: &NextOffsets) -> Result<(), SinkError>;

    /// Undoes everything sent since the last commit. Where a commit was tried and its outcome is open it may have been
    /// made all the same: the group's offsets tell.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn abort(&mut self) -> Result<(), SinkError>;

    /// How many messages were sent that no broker has taken yet.
    fn in_flight(&self) -> usize {
        0
    }

    /// What a topic takes, as last read.
    fn limits(&self, topic: OutputTopic) -> TopicLimits;

    /// Reads again what the topics take.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn refresh_limits(&mut self) -> Result<(), SinkError>;
}

/// The changelog, as it is read back. Its partitions are called by the first partition whose state they hold.
pub trait Changelog {
    /// Makes sure that there is a changelog partition for each of these.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn ensure(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError>;

    /// Begins to read these partitions from their beginnings to their present ends; what was open is closed. The end is
    /// the end offset, open transactions included, and not the last stable offset: a commit may have been made whose
    /// markers have not arrived here yet.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn open(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError>;

    /// Shows the next committed messages and news of ends, in their order: those that are there, at most so many. How
    /// many there were within the timeout.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn poll(
        &mut self,
        timeout: Duration,
        most: usize,
        take: &mut dyn FnMut(&[ChangelogEvent<'_>]),
    ) -> Result<usize, SourceError>;

    /// How much of the open partitions has been read: offsets passed, and how many there are in all.
    fn progress(&self) -> BTreeMap<PartitionId, (u64, u64)>;

    /// Reads nothing any more.
    fn close(&mut self);
}

/// What reading the changelog brought.
#[derive(Debug)]
pub enum ChangelogEvent<'a> {
    /// A message.
    Message {
        /// Its changelog partition.
        partition: PartitionId,
        /// Its offset there.
        offset: i64,
        /// Its key.
        key: Option<&'a [u8]>,
        /// Its payload.
        value: &'a [u8],
    },
    /// The partition has been read up to the end that it had when it was opened.
    End(PartitionId),
}

impl ChangelogEvent<'_> {
    /// The changelog partition that it is of.
    pub fn partition(&self) -> PartitionId {
        match *self {
            Self::Message { partition, .. } | Self::End(partition) => partition,
        }
    }

    /// The size of its payload.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message { value, .. } => value.len(),
            Self::End(_) => 0,
        }
    }
}

/// Why reading failed, named by what the caller must do.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Try the same again after a while.
    #[error("{0}")]
    Retry(String),
    /// End with this error.
    #[error("{0}")]
    Fatal(String),
}

/// Why writing failed, named by what the caller must do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// Make the same call again after a while.
    #[error("{0}")]
    Retry(String),
    /// Abort, and go on from the last commit.
    #[error("{0}")]
    Abort(String),
    /// A topic refused a message for good: abort, read the limits, and go on from the last commit.
    #[error("topic `{topic}` refused a message: {cause}")]
    Refused {
        /// Which one.
        to: OutputTopic,
        /// Its name.
        topic: String,
        /// What the broker said.
        cause: String,
    },
    /// The group has moved on without this member: abort, and wait for what the next poll says.
    #[error("{0}")]
    NotAMember(String),
    /// End with this error.
    #[error("{0}")]
    Fatal(String),
}

/// Follows what the pipeline does: the metrics, or nobody.
pub trait Observer {
    /// Partitions came in.
    fn assigned(&self, _partitions: &[PartitionId]) {}
    /// Partitions were given up.
    fn revoked(&self, _partitions: &[PartitionId]) {}
    /// Partitions were lost.
    fn lost(&self, _partitions: &[PartitionId]) {}
    /// A transaction was committed, and with it these counts became true.
    fn committed(&self, _tally: &crate::insight::Tally, _took: Duration) {}
    /// A transaction was aborted.
    fn aborted(&self, _took: Duration) {}
    /// State was read back: so many entries of open windows.
    fn restored(&self, _cause: crate::insight::RestoreCause, _entries: usize, _took: Duration) {}
    /// A periodic emission was done.
    fn ticked(&self) {}
}

impl Observer for () {}

/// Where the pipeline learns what time it is, and waits.
pub trait Time {
    /// Both clocks.
    fn now(&self) -> crate::event_time::Now;
    /// Waits, or less if the service is asked to stop meanwhile.
    fn wait(&self, duration: Duration);
    /// Whether the service has been asked to stop.
    fn stopping(&self) -> bool;
    /// Whether it has been asked to fire what is open, and end then.
    fn draining(&self) -> bool {
        false
    }
}
