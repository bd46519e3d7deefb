//! The broker in memory as where a client's commits go.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use tidegate::event_time::{PartitionId, Sharding};
use tidegate::pipeline::{
    Message, NextOffsets, OutputTopic, SinkError, TopicLimits, TransactionalSink,
};

use super::client::{Client, Dead, TRANSACTION_TIMEOUT};
use super::transactions::Fenced;
use super::{Call, Fault, Plant, State};

impl From<Dead> for SinkError {
    fn from(_: Dead) -> Self {
        Self::Fatal("this process is dead".to_owned())
    }
}

impl State {
    fn open_is_too_large(&self, client: usize) -> Option<OutputTopic> {
        let queue = &self.clients[client].producer.queue;
        let too_large = |message: &&Rc<Message>| message.size() > self.limit(message.to);
        queue.iter().find(too_large).map(|message| message.to)
    }

    fn limit(&self, to: OutputTopic) -> usize {
        self.limits.get(&to).copied().unwrap_or_default().max_message_bytes
    }

    fn refuse(&mut self, client: usize, to: OutputTopic) -> SinkError {
        let producer = &mut self.clients[client].producer;
        producer.must_abort = true;
        producer.was_refused = true;
        SinkError::Refused { to, topic: format!("{to:?}"), cause: "refused".to_owned() }
    }

    fn failed(&mut self, client: usize, fault: Fault) -> SinkError {
        let text = format!("{fault:?} at {:?}", self.clock);
        if matches!(fault, Fault::Retry | Fault::RetryAfterCommit | Fault::Jump(_)) {
            return SinkError::Retry(text);
        }
        self.clients[client].producer.must_abort = true;
        if fault == Fault::NotAMember {
            SinkError::NotAMember(text)
        } else {
            SinkError::Abort(text)
        }
    }

    /// A producer that can do nothing more: after an outage that outlasted the transaction it is made anew, once
    /// between two commits; anything else is another instance under the same id.
    fn fenced(&mut self, client: usize) -> SinkError {
        let clock = self.clock;
        let producer = &mut self.clients[client].producer;
        producer.must_abort = true;
        let outlasted =
            producer.begun.is_some_and(|begun| clock.saturating_sub(begun) >= TRANSACTION_TIMEOUT);
        if outlasted && !producer.rebuilt {
            producer.broken = true;
            return SinkError::Abort("the transaction outlasted its timeout".to_owned());
        }
        SinkError::Fatal("fenced".to_owned())
    }

    /// Brings what was sent to the brokers.
    fn flush(&mut self, client: usize) -> Result<(), Fenced> {
        let (name, epoch) = self.producer(client);
        loop {
            let producer = &mut self.clients[client].producer;
            let Some(message) = producer.queue.pop_front() else { return Ok(()) };
            producer.at_brokers = true;
            let supersedes = message.supersedes;
            let (place, offset) = self.write(&name, epoch, message)?;
            if supersedes {
                self.clients[client].producer.superseded.insert(place, offset);
            }
        }
    }

    /// Each partition whose shard, clock or outputs a transaction touches is in its offsets.
    fn check_offsets(&self, client: usize, next: &NextOffsets) {
        let held = &self.clients[client].consumer.held;
        for id in next.keys() {
            let is_here = held.get(id).is_some_and(|held| held.reading);
            assert!(is_here, "commits an offset of {id:?}, which is not read here");
        }
        let all: BTreeSet<_> =
            held.iter().filter(|(_, held)| held.reading).map(|(id, _)| *id).collect();
        for message in &self.clients[client].producer.queue {
            let one_for_all =
                next.values().next().is_some_and(|(_, mark)| mark.sharding == Sharding::OneForAll);
            let complete = if one_for_all {
                next.keys().eq(&all)
            } else {
                touched(message).is_none_or(|id| next.contains_key(&id))
            };
            assert!(complete, "{:?} is not in the offsets {next:?} of {all:?}", message.to);
        }
    }

    fn delete_what_is_superseded(&mut self, client: usize) {
        for (place, offset) in std::mem::take(&mut self.clients[client].producer.superseded) {
            let random = &mut self.mood.random;
            let delay = if random.chance(self.mood.slow_deletions) {
                if random.chance(30) {
                    continue;
                }
                Duration::from_millis(random.below(8_000))
            } else {
                Duration::ZERO
            };
            self.deletions.push((self.clock + delay, place, offset));
        }
    }

    /// The name and the epoch that a client writes under.
    fn producer(&self, client: usize) -> (String, u32) {
        let client = &self.clients[client];
        (client.name.clone(), client.producer.epoch)
    }

    /// Brings everything to the brokers that a commit is of, if nothing else happens.
    fn begin_commit(
        &mut self,
        client: usize,
        next: &NextOffsets,
        fault: Option<Fault>,
    ) -> Result<(), SinkError> {
        self.check_offsets(client, next);
        if let Some(to) = self.open_is_too_large(client) {
            return Err(self.refuse(client, to));
        }
        match fault {
            None | Some(Fault::AbortAfterCommit | Fault::RetryAfterCommit) => {}
            Some(Fault::Retry) => {
                self.clients[client].producer.in_doubt = Some((next.clone(), false));
                return Err(self.failed(client, Fault::Retry));
            }
            Some(Fault::Refused) => {
                let to = self.clients[client].producer.queue.back().map(|message| message.to);
                return Err(match to {
                    Some(to) => self.refuse(client, to),
                    None => self.failed(client, Fault::Abort),
                });
            }
            Some(fault) => return Err(self.failed(client, fault)),
        }
        self.clients[client].producer.begun.get_or_insert(self.clock);
        self.flush(client).map_err(|Fenced| self.fenced(client))
    }

    fn send_offsets_of(&mut self, client: usize, next: &NextOffsets) -> Result<(), SinkError> {
        let mut offsets = next.clone();
        if self.plant == Some(Plant::OnlyOffsetsThatMoved) {
            offsets.retain(|id, (offset, _)| {
                self.offsets.get(id).is_none_or(|committed| committed.offset != *offset)
            });
        }
        // Without offsets nobody asks the group.
        if offsets.is_empty() {
            return Ok(());
        }
        if !self.may_commit(client) {
            return Err(self.failed(client, Fault::NotAMember));
        }
        self.clients[client].producer.at_brokers = true;
        let (name, epoch) = self.producer(client);
        self.send_offsets(&name, epoch, &offsets).map_err(|Fenced| self.fenced(client))
    }

    fn commit_is_made(&mut self, client: usize) {
        let producer = &mut self.clients[client].producer;
        producer.in_doubt = None;
        producer.begun = None;
        producer.at_brokers = false;
        producer.rebuilt = false;
        producer.was_refused = false;
        self.delete_what_is_superseded(client);
    }
}

fn offsets_of(next: &NextOffsets) -> String {
    let of = |(id, (offset, mark)): (&PartitionId, &(i64, tidegate::pipeline::CommitMark))| {
        format!("{}/{}: {offset} as {}", id.topic, id.partition, mark.sequence)
    };
    next.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// The partition whose shard a message speaks of, where that is one.
fn touched(message: &Message) -> Option<PartitionId> {
    let header = |name: &str| {
        let (_, value) = message.headers.iter().rev().find(|(held, _)| held == name)?;
        Some(String::from_utf8(value.clone()?).unwrap())
    };
    match message.to {
        OutputTopic::Changelog(topic) => Some(PartitionId { topic, partition: message.partition? }),
        OutputTopic::Results | OutputTopic::Late | OutputTopic::DeadLetter => {
            // The worlds have one topic, or this one as the second.
            let topic = u16::from(header("tidegate.topic").as_deref() == Some("other"));
            Some(PartitionId { topic, partition: header("tidegate.partition")?.parse().ok()? })
        }
    }
}

impl TransactionalSink for Client {
    fn send(&mut self, message: &Message) -> Result<(), SinkError> {
        let call = Call::Send(message.to);
        let mut state = self.enter(call)?;
        let fault = state.fault(self.number, call);
        let producer = &state.clients[self.number].producer;
        assert!(!producer.must_abort, "sent into a transaction that must be aborted");
        assert!(producer.in_doubt.is_none(), "sent while the outcome of a commit is open");
        match fault {
            None => {}
            Some(Fault::Refused) => return Err(state.refuse(self.number, message.to)),
            Some(fault) => return Err(state.failed(self.number, fault)),
        }
        // Kafka's client finds some of them at once; the broker finds the others, later.
        let too_large = message.size() > state.limit(message.to);
        if too_large && message.size().is_multiple_of(2) {
            return Err(state.refuse(self.number, message.to));
        }
        let clock = state.clock;
        let client = &mut state.clients[self.number];
        client.producer.begun.get_or_insert(clock);
        client.producer.queue.push_back(Rc::new(message.clone()));
        let name = client.name.clone();
        let eager = state.mood.eager;
        if state.mood.random.chance(eager)
            && state.is_complete(&name)
            && state.open_is_too_large(self.number).is_none()
            && state.flush(self.number).is_err()
        {
            return Err(state.fenced(self.number));
        }
        Ok(())
    }

    fn commit(&mut self, next: &NextOffsets) -> Result<(), SinkError> {
        let number = self.number;
        let mut state = self.enter(Call::Commit)?;
        let fault = state.fault(number, Call::Commit);
        let producer = &state.clients[number].producer;
        assert!(!producer.must_abort, "committed what must be aborted");
        if let Some((in_doubt, made)) = &producer.in_doubt {
            assert_eq!(in_doubt, next, "a commit goes on as another");
            if *made {
                state.commit_is_made(number);
                return Ok(());
            }
        }
        state.begin_commit(number, next, fault)?;
        drop(state);
        let mut state = self.enter(Call::SendOffsets)?;
        state.send_offsets_of(number, next)?;
        drop(state);
        let mut state = self.enter(Call::EndTransaction)?;
        let (name, epoch) = state.producer(number);
        if state.decide(&name, epoch, true).is_err() {
            return Err(state.fenced(number));
        }
        state.tell(|| format!("client {number} commits {}", offsets_of(next)));
        let Some(fault @ (Fault::AbortAfterCommit | Fault::RetryAfterCommit)) = fault else {
            state.commit_is_made(number);
            return Ok(());
        };
        let producer = &mut state.clients[number].producer;
        producer.at_brokers = false;
        if fault == Fault::RetryAfterCommit {
            producer.in_doubt = Some((next.clone(), true));
        }
        Err(state.failed(number, fault))
    }

    fn abort(&mut self) -> Result<(), SinkError> {
        let mut state = self.enter(Call::Abort)?;
        if let Some(fault) = state.fault(self.number, Call::Abort) {
            return Err(state.failed(self.number, fault));
        }
        for held in state.clients[self.number].consumer.held.values_mut() {
            held.aborted = true;
        }
        let client = &mut state.clients[self.number];
        let name = client.name.clone();
        let producer = &mut client.producer;
        producer.queue.clear();
        producer.superseded.clear();
        producer.in_doubt = None;
        let (epoch, at_brokers) = (producer.epoch, std::mem::take(&mut producer.at_brokers));
        if producer.broken {
            let epoch = state.register(&name);
            let producer = &mut state.clients[self.number].producer;
            producer.epoch = epoch;
            (producer.broken, producer.rebuilt) = (false, true);
        } else if at_brokers && state.decide(&name, epoch, false).is_err() {
            state.clients[self.number].producer.at_brokers = true;
            return Err(state.fenced(self.number));
        }
        let producer = &mut state.clients[self.number].producer;
        producer.must_abort = false;
        producer.begun = None;
        Ok(())
    }

    fn limits(&self, topic: OutputTopic) -> TopicLimits {
        self.with(|client| client.known_limits.get(&topic).copied().unwrap_or_default())
    }

    fn refresh_limits(&mut self) -> Result<(), SinkError> {
        let mut state = self.enter(Call::RefreshLimits)?;
        if state.fault(self.number, Call::RefreshLimits).is_some() {
            return Err(SinkError::Retry("limits".to_owned()));
        }
        state.clients[self.number].known_limits = state.limits.clone();
        Ok(())
    }
}
