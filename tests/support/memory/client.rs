//! One process: what its consumer and its producer know, and what it tells.

use std::cell::RefMut;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tidegate::event_time::{EventTime, MonotonicTime, Now, PartitionId};
use tidegate::insight::{Phase, RestoreCause, Tally, Watch};
use tidegate::pipeline::{
    Edges, Message, NextOffsets, Observer, OutputTopic, Polled, Time, TopicLimits,
};

use super::group::MemberId;
use super::{Broker, Call, Fault, MOST_CALLS, Place, State, Stop, WALL};

pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const MAX_POLL_INTERVAL: Duration = Duration::from_mins(5);
pub(super) const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15);

/// A handle that is source, sink, changelog, observer and time in one.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) broker: Broker,
    pub(crate) number: usize,
}

/// A process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they have nothing to do with each other")]
pub(crate) struct ClientState {
    /// Its name, under which only one can write.
    pub(crate) name: String,
    pub(crate) alive: bool,
    pub(crate) stopping: bool,
    pub(crate) closed: bool,
    pub(crate) ended_well: bool,
    started: Duration,
    /// Since when the group does not hear of it.
    pub(crate) silent_since: Option<Duration>,
    pub(crate) watch: Watch,
    /// The phases that were seen, each once in a row.
    pub(crate) phases: Vec<Phase>,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) aborts: usize,
    pub(crate) restores: Vec<(RestoreCause, usize)>,
    /// What of the limits the sink has read.
    pub(crate) known_limits: BTreeMap<OutputTopic, TopicLimits>,
    pub(crate) consumer: Consumer,
    pub(super) producer: Producer,
    pub(super) reading: BTreeMap<PartitionId, Reading>,
    greatest_watermark: Shown,
}

/// Its side of the group.
#[derive(Debug, Default)]
pub(crate) struct Consumer {
    pub(super) subscribed: bool,
    pub(super) member: Option<MemberId>,
    /// What the group has said and the loop has not heard.
    pub(super) events: VecDeque<Polled<()>>,
    /// The group has moved on, and it does not know yet.
    pub(super) stale: bool,
    pub(super) last_poll: Duration,
    pub(crate) held: BTreeMap<PartitionId, Held>,
    /// Lost partitions that have not been let go.
    pub(super) lost: BTreeSet<PartitionId>,
}

/// A partition that is assigned here.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(super) position: i64,
    /// The offset of the last record that was lent, plus one.
    pub(super) after_last: i64,
    pub(super) reading: bool,
    /// Not to be read for now.
    pub(super) paused: bool,
    /// What `start` said before, and whether an abort has come since.
    pub(super) begun: Vec<i64>,
    pub(super) aborted: bool,
}

/// Its transactional producer.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they have nothing to do with each other")]
pub(super) struct Producer {
    pub(super) epoch: u32,
    /// When the open transaction was begun.
    pub(super) begun: Option<Duration>,
    /// What has not gone to the brokers.
    pub(super) queue: VecDeque<Rc<Message>>,
    /// Whether something has.
    pub(super) at_brokers: bool,
    /// What this transaction supersedes.
    pub(super) superseded: BTreeMap<Place, i64>,
    pub(super) must_abort: bool,
    /// A commit that has to be asked for again, and whether it is made.
    pub(super) in_doubt: Option<(NextOffsets, bool)>,
    /// A message was refused, and nothing has been committed since.
    pub(super) was_refused: bool,
    /// It is to be made anew.
    pub(super) broken: bool,
    /// It was made anew, and has not committed since.
    pub(super) rebuilt: bool,
}

/// A changelog partition that is read back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) beginning: i64,
    pub(super) end: i64,
    pub(super) position: i64,
    pub(super) told: bool,
}

impl ClientState {
    pub(super) fn new(
        name: &str,
        epoch: u32,
        clock: Duration,
        limits: &BTreeMap<OutputTopic, TopicLimits>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            alive: true,
            stopping: false,
            closed: false,
            ended_well: false,
            started: clock,
            silent_since: None,
            watch: Watch::default(),
            phases: Vec::new(),
            tallies: Vec::new(),
            aborts: 0,
            restores: Vec::new(),
            known_limits: limits.clone(),
            consumer: Consumer { last_poll: clock, ..Consumer::default() },
            producer: Producer { epoch, ..Producer::default() },
            reading: BTreeMap::new(),
            greatest_watermark: Shown::MayFall,
        }
    }
}

/// The greatest watermark that was shown.
#[derive(Clone, Copy, Debug)]
enum Shown {
    /// The assignment has changed, or something was undone, and nothing has been committed since.
    MayFall,
    AtLeast(Option<EventTime>),
}

/// The process is gone: its calls have no effect.
#[derive(Debug)]
pub(super) struct Dead;

impl Client {
    /// This handle for each seam.
    pub(crate) fn edges(&self) -> Edges<Self, Self, Self> {
        Edges { source: self.clone(), sink: self.clone(), changelog: self.clone() }
    }

    /// Begins a call: first, what happens elsewhere.
    pub(super) fn enter(&self, call: Call) -> Result<RefMut<'_, State>, Dead> {
        let elsewhere = self.broker.with(|state| {
            if state.clients[self.number].alive { state.elsewhere.clone() } else { None }
        });
        if let Some(elsewhere) = elsewhere {
            elsewhere.between(self.number, call);
        }
        let mut state = self.broker.0.borrow_mut();
        if !state.clients[self.number].alive {
            return Err(Dead);
        }
        let clock = state.clock;
        state.pass_until(clock);
        state.compact();
        state.look(self.number);
        Ok(state)
    }

    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        self.broker.with(|state| state.tell(|| format!("client {} {}", self.number, what())));
    }

    /// The assignment has changed, or something was undone: the watermark may be another one.
    fn changed(&self, what: impl FnOnce() -> String) {
        self.tell(what);
        self.with(|client| client.greatest_watermark = Shown::MayFall);
    }

    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut ClientState) -> R) -> R {
        self.broker.with(|state| look(&mut state.clients[self.number]))
    }
}

impl State {
    /// Looks at the newest snapshot, and whether there is headway.
    fn look(&mut self, client: usize) {
        self.calls += 1;
        let client = &mut self.clients[client];
        assert!(
            self.calls < MOST_CALLS,
            "the loops make no headway; {} phases",
            client.phases.len()
        );
        let snapshot = client.watch.snapshot();
        if client.phases.last() != Some(&snapshot.phase) {
            client.phases.push(snapshot.phase.clone());
        }
        if let Shown::AtLeast(before) = client.greatest_watermark {
            let shown = snapshot.watermark;
            assert!(shown >= before, "the watermark went back from {before:?} to {shown:?}");
            client.greatest_watermark = Shown::AtLeast(shown);
        }
    }

    /// How this call of a client fails, if it does.
    pub(super) fn fault(&mut self, client: usize, call: Call) -> Option<Fault> {
        let fault = (self.faults)(call, self.clock)?;
        let to = match call {
            Call::Send(to) => Some(to),
            Call::Commit => self.clients[client].producer.queue.back().map(|message| message.to),
            _ => None,
        };
        // One refusal out of nothing can be mended; another of the same topic ends the service.
        if fault == Fault::Refused
            && self.spare_refusals
            && (self.clients[client].producer.was_refused
                || self.clients[client].known_limits != self.limits
                || to.is_none())
        {
            return None;
        }
        self.failed_at_the_end |= self.stopping(client);
        *self.injected.entry(format!("{call:?} {fault:?}")).or_default() += 1;
        self.tell(|| format!("client {client}: {call:?} fails: {fault:?}"));
        if let Fault::Jump(by) = fault {
            let until = self.clock + by;
            self.pass_until(until);
            return None;
        }
        Some(fault)
    }

    pub(crate) fn stopping(&self, client: usize) -> bool {
        let due = match self.stop {
            Stop::Never => false,
            Stop::At(at) => self.clock >= at,
        };
        due || self.clients[client].stopping
    }
}

pub(super) fn names<'a>(partitions: impl IntoIterator<Item = &'a PartitionId>) -> String {
    let names = partitions.into_iter().map(|id| format!("{}/{}", id.topic, id.partition));
    format!("[{}]", names.collect::<Vec<_>>().join(" "))
}

impl Observer for Client {
    fn assigned(&self, partitions: &[PartitionId]) {
        self.changed(|| format!("is assigned {}", names(partitions)));
    }
    fn committed(&self, tally: &Tally, _took: Duration) {
        self.with(|client| {
            client.tallies.push(tally.clone());
            if matches!(client.greatest_watermark, Shown::MayFall) {
                client.greatest_watermark = Shown::AtLeast(None);
            }
        });
    }
    fn aborted(&self, _took: Duration) {
        self.changed(|| "aborts".to_owned());
        self.with(|client| client.aborts += 1);
    }
    fn revoked(&self, partitions: &[PartitionId]) {
        self.changed(|| format!("has given up {}", names(partitions)));
    }
    fn lost(&self, partitions: &[PartitionId]) {
        self.changed(|| format!("has lost {}", names(partitions)));
    }
    fn restored(&self, cause: RestoreCause, entries: usize, _took: Duration) {
        self.tell(|| format!("has restored {entries} entries ({})", cause.name()));
        self.with(|client| client.restores.push((cause, entries)));
    }
}

impl Time for Client {
    fn now(&self) -> Now {
        self.broker.with(|state| {
            let wall = WALL + state.wall_step + i64::try_from(state.clock.as_millis()).unwrap();
            let monotonic = state.clock.saturating_sub(state.clients[self.number].started);
            Now { monotonic: MonotonicTime(monotonic), wall: EventTime(wall) }
        })
    }

    fn wait(&self, duration: Duration) {
        let (until, elsewhere) = self.broker.with(|state| {
            if !state.clients[self.number].alive {
                return (state.clock, None);
            }
            state.look(self.number);
            (state.clock + duration, state.elsewhere.clone())
        });
        match elsewhere {
            Some(elsewhere) => elsewhere.wait(self.number, until),
            None => self.broker.with(|state| state.pass_until(until)),
        }
    }

    fn stopping(&self) -> bool {
        self.broker.with(|state| state.stopping(self.number) || !state.clients[self.number].alive)
    }

    fn draining(&self) -> bool {
        self.broker.with(|state| match state.drain {
            Stop::Never => false,
            Stop::At(at) => state.clock >= at,
        })
    }
}
