//! A broker in memory: input partitions, logs with transactions, a group and a clock, all in one place, so that a test
//! sees everything and decides what fails and when.
//!
//! It insists on the contract of the pipeline's seams: a call that may not be made after an error, an offset that goes
//! back or a commit that leaves out a partition is a panic, and so is a loop that makes no headway.

mod changelog;
mod client;
mod group;
mod log;
mod sink;
mod source;
mod transactions;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::config::Source;
use tidegate::event_time::PartitionId;
use tidegate::pipeline::{CommittedOffset, Message, NextOffsets, OutputTopic, Polled, TopicLimits};

pub(crate) use client::{Client, ClientState};
pub(crate) use group::Group;
pub(crate) use log::{Log, TransactionId};
use transactions::Transactions;

use crate::random::Random;

/// The wall clock when the world begins.
pub(crate) const WALL: i64 = 1_700_000_000_000;

/// Calls within one world after which it is going round in circles.
const MOST_CALLS: u64 = 600_000;

/// A record of an input topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Input {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) timestamp: Option<i64>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
}

/// What an offset holds: a record, or what a reader does not see (a transaction marker, an aborted record).
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) arrives: Duration,
    /// When the transaction that it belongs to has ended.
    pub(crate) stable: Duration,
    pub(crate) content: Option<Rc<Input>>,
}

/// An input partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    /// When it is made.
    pub(crate) made: Duration,
    /// The offset of the first slot.
    pub(crate) first: i64,
    pub(crate) slots: Vec<Slot>,
    /// Since when its silence means anything.
    pub(crate) evidence_from: Duration,
}

impl Partition {
    /// The offset after the last slot that is there.
    pub(crate) fn end(&self, clock: Duration) -> i64 {
        self.offset(self.slots.partition_point(|slot| slot.arrives <= clock))
    }

    /// The offset of the first slot that a reader of committed records cannot pass.
    pub(crate) fn last_stable(&self, clock: Duration) -> i64 {
        let unstable =
            self.slots.iter().position(|slot| slot.arrives > clock || slot.stable > clock);
        self.offset(unstable.unwrap_or(self.slots.len()))
    }

    fn offset(&self, place: usize) -> i64 {
        self.first + i64::try_from(place).unwrap()
    }

    pub(crate) fn slot(&self, offset: i64) -> Option<&Slot> {
        self.slots.get(usize::try_from(offset - self.first).unwrap())
    }
}

/// A call of one of the seams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Poll,
    Join,
    Leave,
    Others,
    Partitions,
    Accept,
    Committed,
    Start,
    Pause,
    HoldBack,
    Release,
    Progress,
    Ends,
    Close,
    Send(OutputTopic),
    Commit,
    /// Within a commit: what was sent is at the brokers, and the offsets are not.
    SendOffsets,
    /// Within a commit: all that is left is to end the transaction.
    EndTransaction,
    Abort,
    RefreshLimits,
    Ensure,
    Open,
    ReadChangelog,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Retry,
    Abort,
    /// The commit is made and its answer is lost.
    AbortAfterCommit,
    /// The commit is made and its answer is late.
    RetryAfterCommit,
    Refused,
    NotAMember,
    /// The clocks move on and nothing else happens.
    Jump(Duration),
}

/// What is wrong on purpose: mistakes that a simulation has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Plant {
    /// State is read back up to the last stable offset.
    EndIsLastStable,
    /// Offsets that have not moved are not committed.
    OnlyOffsetsThatMoved,
    /// The clock of a shard does not come back with it.
    ClockStays,
    /// The position is the last record's offset plus one.
    LastPlusOne,
    /// Partitions are given up, and what was made of them is committed after that.
    CommitAfterRelease,
    /// After an abort reading goes on from an older commit than the state is of.
    StateKeptAfterAbort,
    /// What an aborted transaction wrote to the changelog is read back.
    AbortedStateTaken,
    /// After an abort reading goes on where it was.
    PositionKeptAfterAbort,
    /// State is read back up to the commit that the group remembers.
    EndIsTheGroups,
}

/// A transaction that readers see.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) at: Duration,
    /// Without those of the changelog.
    pub(crate) messages: usize,
}

/// When the service is asked to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    Never,
    At(Duration),
}

pub(crate) type Faults = Box<dyn FnMut(Call, Duration) -> Option<Fault>>;

/// What happens elsewhere meanwhile.
pub(crate) trait Elsewhere {
    /// Between two calls of a client.
    fn between(&self, client: usize, call: Call);
    /// While a client waits.
    fn wait(&self, client: usize, until: Duration);
}

/// How the brokers are.
#[derive(Clone, Debug)]
pub(crate) struct Mood {
    pub(crate) random: Random,
    /// Of a hundred markers so many come late.
    pub(crate) slow_markers: u64,
    /// Of a hundred messages so many go to the brokers at once, together with all before them.
    pub(crate) eager: u64,
    /// Of a hundred looks at a changelog so many come before the brokers have sent anything.
    pub(crate) slow_reading: u64,
    /// Of a hundred deletions of what is superseded so many come late, or never.
    pub(crate) slow_deletions: u64,
    /// Of a thousand calls so many have the brokers compact a changelog.
    pub(crate) compaction: u64,
    /// Of a hundred commits so many are forgotten by the group alone, as by a broker that is killed before it has written
    /// the marker there: its offsets are those of the commit before.
    pub(crate) forgotten: u64,
}

/// A message as a log has it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Of two messages in different logs, which one came first.
    pub(crate) order: u64,
    pub(crate) message: Rc<Message>,
}

/// One partition of an output topic.
pub(crate) type Place = (OutputTopic, i32);

/// Everything there is.
pub(crate) struct State {
    pub(crate) clock: Duration,
    /// How far the clock on the wall has been set ahead, or back.
    pub(crate) wall_step: i64,
    pub(crate) stop: Stop,
    /// When it is asked to fire what is open and end.
    pub(crate) drain: Stop,
    /// How long a poll takes that brings a record.
    pub(crate) poll_takes: Duration,
    pub(crate) faults: Faults,
    pub(crate) plant: Option<Plant>,
    pub(crate) elsewhere: Option<Rc<dyn Elsewhere>>,
    pub(crate) mood: Mood,
    /// Lets no topic refuse without reason what it may not refuse twice.
    pub(crate) spare_refusals: bool,
    /// Says which of so many partitions is read next.
    pub(crate) choose: Box<dyn FnMut(usize) -> usize>,
    pub(crate) inputs: BTreeMap<PartitionId, Partition>,
    /// Without a group, what the one client is told and when.
    pub(crate) rebalances: VecDeque<(Duration, Polled<()>)>,
    pub(crate) group: Option<Group>,
    pub(crate) clients: Vec<ClientState>,
    /// All input topics by number, where some come that the configuration does not name.
    pub(crate) sources: Vec<Arc<Source>>,
    /// What the topics take.
    pub(crate) limits: BTreeMap<OutputTopic, TopicLimits>,
    /// Limits that change once so many commits have been made.
    pub(crate) shrinks: Vec<(usize, OutputTopic, usize)>,
    pub(crate) outputs: BTreeMap<Place, Log<Written>>,
    /// What the group has committed, as far as the markers have come and as it remembers.
    pub(crate) offsets: BTreeMap<PartitionId, CommittedOffset>,
    /// The same, with what it has forgotten.
    pub(crate) acknowledged: BTreeMap<PartitionId, CommittedOffset>,
    /// How far each partition has been read by anybody.
    reached: BTreeMap<PartitionId, i64>,
    /// The same as of the moment when a partition was begun that was new to the group.
    pub(crate) joined: BTreeMap<PartitionId, BTreeMap<PartitionId, i64>>,
    undecided_offsets: BTreeMap<TransactionId, NextOffsets>,
    transactions: Transactions,
    /// What is superseded, and when it is deleted.
    deletions: Vec<(Duration, Place, i64)>,
    pub(crate) commits: Vec<Commit>,
    pub(crate) injected: BTreeMap<String, u64>,
    /// Whether something failed after the service had been asked to stop: it may end without its last commit.
    pub(crate) failed_at_the_end: bool,
    written: u64,
    calls: u64,
    /// What happened, where somebody wants to read it.
    pub(crate) story: Option<Vec<String>>,
}

/// All of it, shared.
#[derive(Clone)]
pub(crate) struct Broker(pub(crate) Rc<RefCell<State>>);

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broker")
    }
}

impl Broker {
    /// A broker with these input partitions, all of which are assigned at once to the first client.
    pub(crate) fn new(inputs: BTreeMap<PartitionId, Partition>) -> Self {
        let all = inputs.keys().copied().collect();
        let limits = OutputTopic::ALL.map(|topic| (topic, TopicLimits::default())).into();
        Self(Rc::new(RefCell::new(State {
            clock: Duration::ZERO,
            wall_step: 0,
            stop: Stop::Never,
            drain: Stop::Never,
            poll_takes: Duration::ZERO,
            faults: Box::new(|_, _| None),
            plant: None,
            elsewhere: None,
            mood: Mood {
                random: Random(0),
                slow_markers: 0,
                eager: 0,
                slow_reading: 0,
                slow_deletions: 0,
                compaction: 0,
                forgotten: 0,
            },
            spare_refusals: false,
            choose: Box::new(|_| 0),
            inputs,
            rebalances: [(Duration::ZERO, Polled::Assigned(all))].into(),
            group: None,
            clients: Vec::new(),
            sources: Vec::new(),
            limits,
            shrinks: Vec::new(),
            outputs: BTreeMap::new(),
            offsets: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            reached: BTreeMap::new(),
            joined: BTreeMap::new(),
            undecided_offsets: BTreeMap::new(),
            transactions: Transactions::default(),
            deletions: Vec::new(),
            commits: Vec::new(),
            injected: BTreeMap::new(),
            failed_at_the_end: false,
            written: 0,
            calls: 0,
            story: None,
        })))
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.borrow_mut())
    }

    /// A process that has just started.
    pub(crate) fn connect(&self, name: &str) -> Client {
        let number = self.with(|state| {
            let epoch = state.register(name);
            let client = ClientState::new(name, epoch, state.clock, &state.limits);
            state.clients.push(client);
            state.clients.len() - 1
        });
        Client { broker: self.clone(), number }
    }
}

impl State {
    /// Adds to the story.
    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:>9.3} {}", self.clock.as_secs_f64(), what()));
        }
    }

    /// Lets time pass, and with it what is due.
    pub(crate) fn pass_until(&mut self, clock: Duration) {
        self.clock = self.clock.max(clock);
        self.write_markers();
        self.end_what_outlasts_its_timeout();
        self.delete_superseded();
        self.look_after_the_group();
    }

    fn delete_superseded(&mut self) {
        for (_, place, offset) in self.deletions.extract_if(.., |(at, ..)| *at <= self.clock) {
            self.outputs.get_mut(&place).unwrap().delete_before(offset);
        }
    }

    /// The partitions of the input that have been made.
    pub(crate) fn made(&self) -> BTreeSet<PartitionId> {
        let made = self.inputs.iter().filter(|(_, partition)| partition.made <= self.clock);
        made.map(|(id, _)| *id).collect()
    }

    /// The committed messages of a topic, in the order in which they were written.
    pub(crate) fn topic(&self, topic: OutputTopic) -> Vec<Rc<Message>> {
        let logs = self.outputs.iter().filter(|((of, _), _)| *of == topic);
        let mut all: Vec<&Written> =
            logs.flat_map(|(_, log)| log.committed()).map(|(_, held)| held).collect();
        all.sort_by_key(|held| held.order);
        all.into_iter().map(|held| held.message.clone()).collect()
    }

    /// Now and then, a changelog is compacted.
    fn compact(&mut self) {
        let random = &mut self.mood.random;
        if self.mood.compaction == 0 || random.below(1_000) >= self.mood.compaction {
            return;
        }
        let changelogs = self
            .outputs
            .iter_mut()
            .filter(|((topic, _), _)| matches!(topic, OutputTopic::Changelog(_)));
        for (_, log) in changelogs {
            let before = log.end() - i64::try_from(random.below(20)).unwrap();
            log.compact(before, |held| held.message.key.clone());
        }
    }
}
