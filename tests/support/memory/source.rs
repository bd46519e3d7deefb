//! The broker in memory as the input of a client.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::config;
use tidegate::event_time::{MonotonicTime, PartitionId};
use tidegate::pipeline::{
    CommittedOffset, Ends, InputRecord, Polled, Progress, Source, SourceError,
};

use super::client::{Client, Dead, Held};
use super::{Call, Input, Plant, Slot, State};

impl From<Dead> for SourceError {
    fn from(_: Dead) -> Self {
        Self::Fatal("this process is dead".to_owned())
    }
}

impl Client {
    /// Begins a call that may fail.
    pub(super) fn ask(&self, call: Call) -> Result<std::cell::RefMut<'_, State>, SourceError> {
        let mut state = self.enter(call)?;
        match state.fault(self.number, call) {
            None => Ok(state),
            Some(fault) => Err(SourceError::Retry(format!("{call:?}: {fault:?}"))),
        }
    }
}

impl Client {
    /// Reads partitions no further, or again.
    fn switch(&self, partitions: &BTreeSet<PartitionId>, reads: bool) -> Result<(), SourceError> {
        let mut state = self.ask(Call::HoldBack)?;
        for id in partitions {
            let held = state.clients[self.number].consumer.held.get_mut(id);
            let held = held.unwrap_or_else(|| panic!("{id:?} is held back and not here"));
            assert!(held.reading && held.paused == reads, "{id:?} is held back twice, or not");
            held.paused = !reads;
        }
        Ok(())
    }
}

impl State {
    /// The next record of a partition that a client can read; what lies before it is passed.
    fn readable(&mut self, client: usize, id: PartitionId) -> Option<Rc<Input>> {
        let partition = &self.inputs[&id];
        let held = self.clients[client].consumer.held.get_mut(&id).unwrap();
        let there = |slot: &&Slot| slot.arrives <= self.clock && slot.stable <= self.clock;
        while held.reading
            && !held.paused
            && let Some(slot) = partition.slot(held.position).filter(there)
        {
            if let Some(input) = &slot.content {
                return Some(input.clone());
            }
            held.position += 1;
        }
        None
    }

    /// When something comes next for a client, by itself.
    fn next_arrival(&self, client: usize) -> Option<Duration> {
        let read = self.clients[client]
            .consumer
            .held
            .iter()
            .filter(|(_, held)| held.reading && !held.paused);
        let slots = read.filter_map(|(id, held)| self.inputs[id].slot(held.position));
        let arrivals = slots.map(|slot| slot.arrives.max(slot.stable));
        let rebalance = if self.group.is_none() { self.rebalances.front() } else { None };
        let later = |at: &Duration| *at > self.clock;
        arrivals.chain(rebalance.map(|(at, _)| *at)).chain(self.next_marker()).filter(later).min()
    }

    /// What the group has to say.
    fn next_event(&mut self, client: usize) -> Option<Polled<()>> {
        if self.group.is_none() {
            self.rebalances.front().filter(|(at, _)| *at <= self.clock)?;
            return self.rebalances.pop_front().map(|(_, event)| event);
        }
        self.leave_if_stuck(client);
        self.clients[client].consumer.last_poll = self.clock;
        if self.is_thrown_out(client) {
            let consumer = &mut self.clients[client].consumer;
            consumer.events.clear();
            consumer.member = None;
            consumer.lost = consumer.held.keys().copied().collect();
            if !consumer.held.is_empty() {
                return Some(Polled::Lost(consumer.held.keys().copied().collect()));
            }
        }
        let consumer = &self.clients[client].consumer;
        if consumer.subscribed && consumer.member.is_none() && consumer.lost.is_empty() {
            self.join_group(client);
        }
        let consumer = &mut self.clients[client].consumer;
        consumer.stale = false;
        let event = consumer.events.pop_front()?;
        if let (Polled::Revoking(partitions), Some(Plant::CommitAfterRelease)) =
            (&event, self.plant)
        {
            self.released(client, partitions);
        }
        Some(event)
    }
}

impl Source for Client {
    type Record<'a> = Record;

    fn poll(&self, timeout: Duration) -> Result<Polled<Record>, SourceError> {
        let mut state = self.ask(Call::Poll)?;
        if let Some(event) = state.next_event(self.number) {
            return Ok(event.map(|()| unreachable!("a record is no change of the assignment")));
        }
        let ids: Vec<_> = state.clients[self.number].consumer.held.keys().copied().collect();
        let mut ready: Vec<_> =
            ids.iter().filter_map(|id| Some((*id, state.readable(self.number, *id)?))).collect();
        if ready.is_empty() {
            let deadline = state.clock + timeout;
            let arrival = state.next_arrival(self.number).unwrap_or(deadline);
            state.pass_until(deadline.min(arrival));
            return Ok(Polled::Nothing);
        }
        let chosen = (state.choose)(ready.len()) % ready.len();
        let (partition, input) = ready.swap_remove(chosen);
        let held = state.clients[self.number].consumer.held.get_mut(&partition).unwrap();
        let offset = held.position;
        held.position += 1;
        held.after_last = held.position;
        let reached = state.reached.entry(partition).or_default();
        *reached = (offset + 1).max(*reached);
        let until = state.clock + state.poll_takes;
        state.pass_until(until);
        Ok(Polled::Record(Record { partition, offset, input }))
    }

    fn join(&self) -> Result<(), SourceError> {
        let mut state = self.ask(Call::Join)?;
        state.clients[self.number].consumer.subscribed = true;
        state.clients[self.number].consumer.last_poll = state.clock;
        state.join_group(self.number);
        Ok(())
    }

    fn leave(&self) -> Result<(), SourceError> {
        let mut state = self.ask(Call::Leave)?;
        state.give_all_up(self.number);
        Ok(())
    }

    fn new_topics(&self, known: usize) -> Vec<Arc<config::Source>> {
        self.broker.with(|state| state.sources.iter().skip(known).cloned().collect())
    }

    fn name(&self) -> String {
        self.broker.with(|state| state.clients[self.number].name.clone())
    }

    fn others(&self) -> Result<Vec<String>, SourceError> {
        let state = self.ask(Call::Others)?;
        let me = &state.clients[self.number].name;
        let members = state.group.iter().flat_map(super::Group::clients);
        let names = members.map(|client| &state.clients[client].name);
        Ok(names.filter(|name| *name != me).cloned().collect())
    }

    fn partitions(&self) -> Result<BTreeSet<PartitionId>, SourceError> {
        let state = self.ask(Call::Partitions)?;
        Ok(state.made())
    }

    fn accept(&self, partitions: &[PartitionId]) -> Result<(), SourceError> {
        let mut state = self.ask(Call::Accept)?;
        for id in partitions {
            let held = Held {
                position: -1,
                after_last: -1,
                reading: false,
                paused: false,
                begun: Vec::new(),
                aborted: false,
            };
            let before = state.clients[self.number].consumer.held.insert(*id, held);
            assert!(before.is_none(), "{id:?} is accepted twice");
        }
        Ok(())
    }

    fn committed(
        &self,
        partitions: &BTreeSet<PartitionId>,
    ) -> Result<BTreeMap<PartitionId, CommittedOffset>, SourceError> {
        let mut state = self.ask(Call::Committed)?;
        let unstable = |state: &State| {
            let mut undecided = state.undecided_offsets.values();
            undecided.any(|next| next.keys().any(|id| partitions.contains(id)))
        };
        if unstable(&state) {
            let patience = state.clock + COMMITTED_TIMEOUT;
            let marker = state.next_marker().unwrap_or(patience);
            state.pass_until(marker.min(patience));
            if unstable(&state) {
                return Err(SourceError::Retry("offsets are unstable".to_owned()));
            }
        }
        let committed = state.offsets.iter().filter(|(id, _)| partitions.contains(id));
        Ok(committed.map(|(id, committed)| (*id, *committed)).collect())
    }

    fn start(
        &self,
        beginnings: &BTreeMap<PartitionId, Option<i64>>,
    ) -> Result<Vec<(PartitionId, u64)>, SourceError> {
        let mut state = self.ask(Call::Start)?;
        let plant = state.plant;
        state.tell(|| format!("client {} starts {beginnings:?}", self.number));
        for (id, beginning) in beginnings {
            let first = state.inputs[id].first;
            let committed = state.acknowledged.get(id).copied();
            if beginning.is_none() {
                let reached = state.reached.clone();
                state.joined.insert(*id, reached);
            }
            let mine =
                state.group.as_ref().is_none_or(|group| group.owner(*id) == Some(self.number));
            let held = state.clients[self.number].consumer.held.get_mut(id);
            let held = held.unwrap_or_else(|| panic!("{id:?} is started and not here"));
            assert!(!held.reading, "{id:?} is started twice");
            let mut position = beginning.unwrap_or(first);
            assert!(position >= first, "{id:?} is started before its beginning");
            if held.aborted && plant == Some(Plant::StateKeptAfterAbort) {
                position = held.begun.last().copied().unwrap_or(position).min(position);
            }
            if held.aborted && plant == Some(Plant::PositionKeptAfterAbort) {
                position = held.position.max(position);
            }
            let known = committed.map(|committed| committed.offset);
            let right = !mine || plant.is_some() || known.is_none_or(|known| known == position);
            assert!(right, "{id:?} is started at {position}, and {known:?} is committed");
            (held.position, held.after_last) = (position, position);
            held.begun.push(position);
            (held.reading, held.paused, held.aborted) = (true, false, false);
        }
        Ok(Vec::new())
    }

    fn pause(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        let mut state = self.ask(Call::Pause)?;
        for id in partitions {
            let held = state.clients[self.number].consumer.held.get_mut(id);
            held.unwrap_or_else(|| panic!("{id:?} is paused and not here")).reading = false;
        }
        Ok(())
    }

    fn hold_back(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        self.switch(partitions, false)
    }

    fn read_on(&self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        self.switch(partitions, true)
    }

    fn release(&self, partitions: &[PartitionId]) -> Result<(), SourceError> {
        let mut state = self.ask(Call::Release)?;
        let client = &mut state.clients[self.number];
        let away = |at: &&PartitionId| partitions.contains(at);
        if client.reading.keys().any(|at| away(&at)) && !client.reading.keys().all(|at| away(&at)) {
            *state
                .injected
                .entry("= given up in the middle of a restore".to_owned())
                .or_default() += 1;
        }
        let consumer = &mut state.clients[self.number].consumer;
        for id in partitions {
            consumer.held.remove(id);
            consumer.lost.remove(id);
        }
        state.released(self.number, partitions);
        Ok(())
    }

    fn progress(&self, _now: MonotonicTime) -> BTreeMap<PartitionId, Progress> {
        // The client answers by itself, also one that is dead.
        let mut state = self.enter(Call::Progress).unwrap_or_else(|_| self.broker.0.borrow_mut());
        let held = state.clients[self.number].consumer.held.iter();
        let ids: Vec<_> = held.filter(|(_, held)| held.reading).map(|(id, _)| *id).collect();
        let of = |id| {
            // Passes what no reader sees.
            state.readable(self.number, id);
            let held = &state.clients[self.number].consumer.held[&id];
            let position = match state.plant {
                Some(Plant::LastPlusOne) => held.after_last,
                _ => held.position,
            };
            let partition = &state.inputs[&id];
            let (end, stable) = (partition.end(state.clock), partition.last_stable(state.clock));
            let evident = partition.evidence_from <= state.clock;
            let caught_up = position == end && stable == end && evident;
            let (end_offset, last_stable_offset) = (Some(end), Some(stable));
            let known_end = last_stable_offset;
            (id, Progress { position, end_offset, last_stable_offset, known_end, caught_up })
        };
        ids.into_iter().map(of).collect()
    }

    fn ends(&self) -> Result<Ends, SourceError> {
        let state = self.ask(Call::Ends)?;
        let of = |id: PartitionId| {
            let partition = &state.inputs[&id];
            (id, (partition.first, partition.last_stable(state.clock)))
        };
        Ok(state.made().into_iter().map(of).collect())
    }

    fn close(&self) {
        if let Ok(mut state) = self.enter(Call::Close) {
            state.give_all_up(self.number);
            state.clients[self.number].closed = true;
        }
    }
}

impl State {
    /// A client leaves its group with all that it has.
    fn give_all_up(&mut self, client: usize) {
        self.leave_group(client);
        let consumer = &mut self.clients[client].consumer;
        consumer.subscribed = false;
        consumer.member = None;
        consumer.held.clear();
        consumer.lost.clear();
        consumer.events.clear();
    }
}

/// A record on loan.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    partition: PartitionId,
    offset: i64,
    input: Rc<Input>,
}

impl InputRecord for Record {
    fn partition(&self) -> PartitionId {
        self.partition
    }
    fn offset(&self) -> i64 {
        self.offset
    }
    fn key(&self) -> Option<&[u8]> {
        self.input.key.as_deref()
    }
    fn payload(&self) -> Option<&[u8]> {
        self.input.payload.as_deref()
    }
    fn timestamp(&self) -> Option<i64> {
        self.input.timestamp
    }
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.input.headers.iter().rev().find(|(held, _)| held == name)?.1.as_deref()
    }
    fn each_header(&self, visit: &mut dyn FnMut(&str, Option<&[u8]>)) {
        for (name, value) in &self.input.headers {
            visit(name, value.as_deref());
        }
    }
}

/// How long the group is asked for its offsets.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(2);
