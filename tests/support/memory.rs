//! A broker in memory: input partitions, output topics with transactions, the group's offsets and a clock, all in one
//! place, so that a test sees everything and decides what fails and when.
//!
//! It insists on the contract of the pipeline's seams: a call that may not be made after an error, an offset that goes
//! back or a commit that leaves out a partition is a panic, and so is a loop that makes no headway.

#[path = "memory_edges.rs"]
mod edges;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use tidegate::event_time::{EventTime, PartitionId};
use tidegate::insight::{Phase, Tally, Watch};
use tidegate::pipeline::{Message, OutputTopic, Polled, SinkError, TopicLimits};

/// The wall clock when the monotonic one begins.
pub(crate) const WALL: i64 = 1_700_000_000_000;

/// Calls within one run after which it is going round in circles.
const MOST_CALLS: u64 = 300_000;

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
    pub(crate) content: Option<Rc<Input>>,
}

/// An input partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partition {
    /// The offset of the first slot.
    pub(crate) first: i64,
    pub(crate) slots: Vec<Slot>,
    /// Since when its silence means anything.
    pub(crate) evidence_from: Duration,
}

/// A call that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Poll,
    Start,
    Ends,
    Send(OutputTopic),
    Commit,
    Abort,
    RefreshLimits,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Retry,
    Abort,
    /// The commit is made and its answer is lost.
    AbortAfterCommit,
    Refused,
    NotAMember,
    /// The clocks move on and nothing else happens.
    Jump(Duration),
}

/// A transaction that readers see.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    pub(crate) at: Duration,
    pub(crate) messages: usize,
}

/// When the service is asked to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    Never,
    At(Duration),
    /// This long after everything has been read.
    AfterAll(Duration),
}

pub(crate) type Faults = Box<dyn FnMut(Call, Duration) -> Option<Fault>>;

/// Everything there is.
#[expect(clippy::struct_excessive_bools, reason = "they have nothing to do with each other")]
pub(crate) struct State {
    pub(crate) clock: Duration,
    pub(crate) stop: Stop,
    /// How long a poll takes that brings a record.
    pub(crate) poll_takes: Duration,
    pub(crate) faults: Faults,
    /// Lets no topic refuse without reason what it may not refuse twice.
    pub(crate) spare_refusals: bool,
    /// Says which of so many partitions is read next.
    pub(crate) choose: Box<dyn FnMut(usize) -> usize>,
    pub(crate) inputs: BTreeMap<PartitionId, Partition>,
    pub(crate) positions: BTreeMap<PartitionId, i64>,
    pub(crate) rebalances: VecDeque<(Duration, Polled<()>)>,
    /// What the topics take, and what of it the sink has read.
    pub(crate) limits: BTreeMap<OutputTopic, TopicLimits>,
    pub(crate) known_limits: BTreeMap<OutputTopic, TopicLimits>,
    /// Limits that change once so many commits have been made.
    pub(crate) shrinks: Vec<(usize, OutputTopic, usize)>,
    /// The committed view, in the order of the transactions.
    pub(crate) topics: BTreeMap<OutputTopic, Vec<Message>>,
    pub(crate) offsets: BTreeMap<PartitionId, i64>,
    pub(crate) commits: Vec<Commit>,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) aborts: usize,
    pub(crate) injected: BTreeMap<String, u64>,
    /// The phases that were seen, each once in a row.
    pub(crate) phases: Vec<Phase>,
    pub(crate) watch: Watch,
    pub(crate) closed: bool,
    /// Whether something failed after the service had been asked to stop: it may end without its last commit.
    pub(crate) failed_at_the_end: bool,
    sequence: u64,
    open: Vec<Message>,
    must_abort: bool,
    in_doubt: Option<(BTreeMap<PartitionId, i64>, u64)>,
    answer_lost: Option<u64>,
    refused: BTreeSet<OutputTopic>,
    all_read: Option<Duration>,
    greatest_watermark: Option<EventTime>,
    calls: u64,
}

/// A handle that is source, sink, observer and time in one.
#[derive(Clone)]
pub(crate) struct Broker(pub(crate) Rc<RefCell<State>>);

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broker")
    }
}

impl Broker {
    /// A broker with these input partitions, all of which are assigned at once.
    pub(crate) fn new(inputs: BTreeMap<PartitionId, Partition>) -> Self {
        let all = inputs.keys().copied().collect();
        let limits: BTreeMap<_, _> =
            OutputTopic::ALL.map(|topic| (topic, TopicLimits::default())).into();
        Self(Rc::new(RefCell::new(State {
            clock: Duration::ZERO,
            stop: Stop::Never,
            poll_takes: Duration::ZERO,
            faults: Box::new(|_, _| None),
            spare_refusals: false,
            choose: Box::new(|_| 0),
            inputs,
            positions: BTreeMap::new(),
            rebalances: [(Duration::ZERO, Polled::Assigned(all))].into(),
            known_limits: limits.clone(),
            limits,
            shrinks: Vec::new(),
            topics: OutputTopic::ALL.map(|topic| (topic, Vec::new())).into(),
            offsets: BTreeMap::new(),
            commits: Vec::new(),
            tallies: Vec::new(),
            aborts: 0,
            injected: BTreeMap::new(),
            phases: Vec::new(),
            watch: Watch::default(),
            closed: false,
            failed_at_the_end: false,
            sequence: 0,
            open: Vec::new(),
            must_abort: false,
            in_doubt: None,
            answer_lost: None,
            refused: BTreeSet::new(),
            all_read: None,
            greatest_watermark: None,
            calls: 0,
        })))
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.borrow_mut())
    }
}

impl State {
    /// Looks at the newest snapshot, and whether there is headway.
    fn look(&mut self) {
        self.calls += 1;
        assert!(self.calls < MOST_CALLS, "the loop makes no headway; {} phases", self.phases.len());
        let snapshot = self.watch.snapshot();
        if self.phases.last() != Some(&snapshot.phase) {
            self.phases.push(snapshot.phase.clone());
        }
        if self.rebalances.is_empty() && !self.positions.is_empty() {
            assert!(
                snapshot.watermark >= self.greatest_watermark,
                "the watermark went back from {:?} to {:?}",
                self.greatest_watermark,
                snapshot.watermark
            );
        }
        self.greatest_watermark = snapshot.watermark;
    }

    fn fault(&mut self, call: Call) -> Option<Fault> {
        self.look();
        let fault = (self.faults)(call, self.clock)?;
        let to = match call {
            Call::Send(to) => Some(to),
            Call::Commit => self.open.last().map(|message| message.to),
            Call::Poll | Call::Start | Call::Ends | Call::Abort | Call::RefreshLimits => None,
        };
        // One refusal out of nothing can be mended; another of the same topic ends the service.
        if fault == Fault::Refused
            && self.spare_refusals
            && (!self.refused.is_empty()
                || self.known_limits != self.limits
                || !to.is_some_and(|to| self.refused.insert(to)))
        {
            return None;
        }
        self.failed_at_the_end |= self.stopping();
        *self.injected.entry(format!("{call:?} {fault:?}")).or_default() += 1;
        if let Fault::Jump(by) = fault {
            self.clock += by;
            return None;
        }
        Some(fault)
    }

    /// The offset after the last slot that a reader can see.
    fn end(&self, id: PartitionId) -> i64 {
        let partition = &self.inputs[&id];
        let visible = partition.slots.partition_point(|slot| slot.arrives <= self.clock);
        partition.first + i64::try_from(visible).unwrap()
    }

    fn slot(&self, id: PartitionId, offset: i64) -> Option<&Slot> {
        let partition = &self.inputs[&id];
        partition.slots.get(usize::try_from(offset - partition.first).unwrap())
    }

    /// The next record of a partition that can be read; what lies before it is passed.
    fn readable(&mut self, id: PartitionId) -> Option<Rc<Input>> {
        let (mut position, end) = (self.positions[&id], self.end(id));
        let mut found = None;
        while position < end {
            found = self.slot(id, position).and_then(|slot| slot.content.clone());
            if found.is_some() {
                break;
            }
            position += 1;
        }
        self.positions.insert(id, position);
        found
    }

    /// When something comes next, by itself.
    fn next_arrival(&self) -> Option<Duration> {
        let arrivals =
            self.positions.iter().filter_map(|(id, at)| Some(self.slot(*id, *at)?.arrives));
        arrivals.chain(self.rebalances.front().map(|(at, _)| *at)).min()
    }

    /// Whether a commit was made whose maker does not know it.
    pub(crate) fn answer_is_lost(&self) -> bool {
        self.answer_lost.is_some()
    }

    pub(crate) fn stopping(&mut self) -> bool {
        match self.stop {
            Stop::Never => false,
            Stop::At(at) => self.clock >= at,
            Stop::AfterAll(wait) => {
                let all_read = self.rebalances.is_empty()
                    && self.next_arrival().is_none()
                    && self.inputs.keys().eq(self.positions.keys());
                if all_read {
                    self.all_read.get_or_insert(self.clock);
                }
                self.all_read.is_some_and(|since| self.clock >= since + wait)
            }
        }
    }

    fn open_is_too_large(&self) -> Option<OutputTopic> {
        let too_large =
            |message: &&Message| message.size() > self.limits[&message.to].max_message_bytes;
        self.open.iter().find(too_large).map(|message| message.to)
    }

    fn make_the_commit(&mut self, next: &BTreeMap<PartitionId, i64>, sequence: u64) {
        assert!(sequence > self.sequence, "commit {sequence} after {}", self.sequence);
        self.sequence = sequence;
        for (id, offset) in next {
            let before = self.offsets.insert(*id, *offset);
            assert!(before <= Some(*offset), "{id:?} went back from {before:?} to {offset}");
        }
        let messages = self.open.len();
        self.commits.push(Commit { at: self.clock, messages });
        for message in self.open.drain(..) {
            self.topics.get_mut(&message.to).unwrap().push(message);
        }
        let made = self.commits.len();
        for (_, topic, bytes) in self.shrinks.extract_if(.., |(after, ..)| *after <= made) {
            self.limits.get_mut(&topic).unwrap().max_message_bytes = bytes;
        }
    }

    fn refuse(&mut self, to: OutputTopic) -> SinkError {
        self.refused.insert(to);
        self.must_abort = true;
        SinkError::Refused { to, topic: format!("{to:?}"), cause: "refused".to_owned() }
    }

    fn failed(&mut self, fault: Fault) -> SinkError {
        let text = format!("{fault:?} at {:?}", self.clock);
        match fault {
            Fault::Retry | Fault::Jump(_) => return SinkError::Retry(text),
            Fault::Abort | Fault::AbortAfterCommit | Fault::NotAMember | Fault::Refused => {}
        }
        self.must_abort = true;
        if fault == Fault::NotAMember {
            SinkError::NotAMember(text)
        } else {
            SinkError::Abort(text)
        }
    }
}
