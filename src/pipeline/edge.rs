//! The two seams of the pipeline: where records come from, and where everything that a commit covers goes.
//!
//! Both are implemented twice: on Kafka, and in memory for the simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::{Message, OutputTopic, TopicLimits};
use crate::event_time::{MonotonicTime, PartitionId};

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

/// What a poll brought.
#[derive(Debug)]
pub enum Polled<R> {
    /// Nothing within the timeout.
    Nothing,
    /// A record.
    Record(R),
    /// Partitions given to this member; they are read from when [`Source::start`] has been called.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The offset of the next record; transaction markers are passed, not waited at.
    pub position: i64,
    /// The end offset that the last fetch reported.
    pub end_offset: Option<i64>,
    /// Whether it is known that no record and no open transaction is in front of the position.
    pub caught_up: bool,
}

/// Where partitions are read from after an assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// Records that had been deleted before they were read, and were skipped because the configuration allows it.
    pub missing: Vec<(PartitionId, u64)>,
    /// The highest sequence found with the committed offsets.
    pub sequence: u64,
}

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

    /// Begins to read newly assigned partitions where the group has committed, or as the configuration says.
    ///
    /// # Errors
    /// See [`SourceError`]; after [`SourceError::Retry`] it may be called again.
    fn start(&self, partitions: &[PartitionId]) -> Result<Started, SourceError>;

    /// Begins to read partitions that were lost and have come back, where their reading had come to, if nobody has
    /// committed anything since the commit of this sequence with these offsets. Whether that is so; if not, nothing
    /// was begun.
    ///
    /// # Errors
    /// See [`SourceError`]; after [`SourceError::Retry`] it may be called again.
    fn resume(
        &self,
        _positions: &BTreeMap<PartitionId, i64>,
        _committed: &BTreeMap<PartitionId, i64>,
        _sequence: u64,
    ) -> Result<bool, SourceError> {
        Ok(false)
    }

    /// Gives partitions up.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn release(&self, partitions: &[PartitionId]) -> Result<(), SourceError>;

    /// How far each assigned partition has come.
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

    /// Makes everything sent since the last commit visible together with the next offsets to read, under a sequence
    /// that tells this commit from the ones before.
    ///
    /// # Errors
    /// See [`SinkError`]; after [`SinkError::Retry`] the same call continues where it was.
    fn commit(&mut self, next: &BTreeMap<PartitionId, i64>, sequence: u64)
    -> Result<(), SinkError>;

    /// Undoes everything sent since the last commit; after an error whose outcome is open, finds out whether the
    /// commit of this sequence was made after all.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn abort(&mut self, sequence: u64) -> Result<Aborted, SinkError>;

    /// What a topic takes, as last read.
    fn limits(&self, topic: OutputTopic) -> TopicLimits;

    /// Reads again what the topics take.
    ///
    /// # Errors
    /// See [`SinkError`].
    fn refresh_limits(&mut self) -> Result<(), SinkError>;
}

/// How an aborted transaction really ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aborted {
    /// Nothing of it is visible.
    Undone,
    /// The broker had committed it before the answer was lost.
    Committed,
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
    /// Abort, and send everything again.
    #[error("{0}")]
    Abort(String),
    /// A topic refused a message for good: abort, read the limits, and send again what fits them.
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
}
