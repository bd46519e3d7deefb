//! The broker in memory as source, sink, observer and time.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate::event_time::{EventTime, MonotonicTime, Now, PartitionId};
use tidegate::insight::Tally;
use tidegate::pipeline::{
    Aborted, Ends, InputRecord, Message, Observer, OutputTopic, Polled, Progress, SinkError,
    Source, SourceError, Started, Time, TopicLimits, TransactionalSink,
};

use super::{Broker, Call, Fault, Input, State, WALL};

impl Source for Broker {
    type Record<'a> = Record;

    fn poll(&self, timeout: Duration) -> Result<Polled<Record>, SourceError> {
        let mut state = self.0.borrow_mut();
        if state.fault(Call::Poll).is_some() {
            return Err(SourceError::Retry("poll".to_owned()));
        }
        if state.rebalances.front().is_some_and(|(at, _)| *at <= state.clock) {
            let (_, event) = state.rebalances.pop_front().unwrap();
            return Ok(event.map(|()| unreachable!("a record is no change of the assignment")));
        }
        let ids: Vec<_> = state.positions.keys().copied().collect();
        let mut ready: Vec<_> =
            ids.iter().filter_map(|id| Some((*id, state.readable(*id)?))).collect();
        if ready.is_empty() {
            let deadline = state.clock + timeout;
            let arrival = state.next_arrival().unwrap_or(deadline);
            state.clock = deadline.min(arrival.max(state.clock));
            return Ok(Polled::Nothing);
        }
        let chosen = (state.choose)(ready.len()) % ready.len();
        let (partition, input) = ready.swap_remove(chosen);
        let offset = state.positions[&partition];
        state.positions.insert(partition, offset + 1);
        let takes = state.poll_takes;
        state.clock += takes;
        Ok(Polled::Record(Record { partition, offset, input }))
    }

    fn start(&self, partitions: &[PartitionId]) -> Result<Started, SourceError> {
        let mut state = self.0.borrow_mut();
        if state.fault(Call::Start).is_some() {
            return Err(SourceError::Retry("start".to_owned()));
        }
        for id in partitions {
            let beginning =
                state.offsets.get(id).copied().unwrap_or_else(|| state.inputs[id].first);
            state.positions.insert(*id, beginning);
        }
        Ok(Started { missing: Vec::new(), sequence: state.sequence })
    }

    fn release(&self, partitions: &[PartitionId]) -> Result<(), SourceError> {
        self.with(|state| state.positions.retain(|id, _| !partitions.contains(id)));
        Ok(())
    }

    fn progress(&self, _now: MonotonicTime) -> BTreeMap<PartitionId, Progress> {
        let mut state = self.0.borrow_mut();
        state.look();
        let ids: Vec<_> = state.positions.keys().copied().collect();
        let of = |id| {
            // Passes what no reader sees.
            state.readable(id);
            let (position, end) = (state.positions[&id], state.end(id));
            let caught_up = position == end && state.inputs[&id].evidence_from <= state.clock;
            (id, Progress { position, end_offset: Some(end), caught_up })
        };
        ids.into_iter().map(of).collect()
    }

    fn ends(&self) -> Result<Ends, SourceError> {
        let mut state = self.0.borrow_mut();
        if state.fault(Call::Ends).is_some() {
            return Err(SourceError::Retry("ends".to_owned()));
        }
        Ok(state.inputs.iter().map(|(id, held)| (*id, (held.first, state.end(*id)))).collect())
    }

    fn close(&self) {
        self.with(|state| {
            state.look();
            state.closed = true;
        });
    }
}

impl TransactionalSink for Broker {
    fn send(&mut self, message: &Message) -> Result<(), SinkError> {
        let mut state = self.0.borrow_mut();
        let fault = state.fault(Call::Send(message.to));
        assert!(!state.must_abort, "sent into a transaction that must be aborted");
        assert!(state.in_doubt.is_none(), "sent while the outcome of a commit is open");
        match fault {
            None => {}
            Some(Fault::Refused) => return Err(state.refuse(message.to)),
            Some(fault) => return Err(state.failed(fault)),
        }
        // Kafka's client finds some of them at once; the broker finds the others, later.
        let too_large = message.size() > state.limits[&message.to].max_message_bytes;
        if too_large && message.size().is_multiple_of(2) {
            return Err(state.refuse(message.to));
        }
        state.open.push(message.clone());
        Ok(())
    }

    fn commit(
        &mut self,
        next: &BTreeMap<PartitionId, i64>,
        sequence: u64,
    ) -> Result<(), SinkError> {
        let mut state = self.0.borrow_mut();
        let fault = state.fault(Call::Commit);
        assert!(!state.must_abort, "committed a transaction that must be aborted");
        if let Some(in_doubt) = &state.in_doubt {
            assert_eq!(in_doubt, &(next.clone(), sequence), "a commit goes on as another");
        }
        assert!(next.keys().eq(state.positions.keys()), "not the partitions that are assigned");
        if let Some(to) = state.open_is_too_large() {
            return Err(state.refuse(to));
        }
        match fault {
            None => {}
            Some(Fault::Retry) => {
                state.in_doubt = Some((next.clone(), sequence));
                return Err(state.failed(Fault::Retry));
            }
            Some(Fault::Refused) => {
                let to = state.open.last().unwrap().to;
                return Err(state.refuse(to));
            }
            Some(Fault::AbortAfterCommit) => {
                state.make_the_commit(next, sequence);
                state.answer_lost = Some(sequence);
                return Err(state.failed(Fault::AbortAfterCommit));
            }
            Some(fault) => return Err(state.failed(fault)),
        }
        state.make_the_commit(next, sequence);
        state.in_doubt = None;
        state.refused.clear();
        Ok(())
    }

    fn abort(&mut self, sequence: u64) -> Result<Aborted, SinkError> {
        let mut state = self.0.borrow_mut();
        if let Some(fault) = state.fault(Call::Abort) {
            return Err(state.failed(fault));
        }
        state.open.clear();
        state.must_abort = false;
        state.in_doubt = None;
        Ok(match state.answer_lost.take() {
            Some(lost) => {
                assert_eq!(lost, sequence, "asked for another commit than the one in doubt");
                state.refused.clear();
                Aborted::Committed
            }
            None => Aborted::Undone,
        })
    }

    fn limits(&self, topic: OutputTopic) -> TopicLimits {
        self.with(|state| state.known_limits[&topic])
    }

    fn refresh_limits(&mut self) -> Result<(), SinkError> {
        let mut state = self.0.borrow_mut();
        if state.fault(Call::RefreshLimits).is_some() {
            return Err(SinkError::Retry("limits".to_owned()));
        }
        state.known_limits = state.limits.clone();
        Ok(())
    }
}

impl Observer for Broker {
    fn committed(&self, tally: &Tally, _took: Duration) {
        self.with(|state| state.tallies.push(tally.clone()));
    }
    fn aborted(&self, _took: Duration) {
        self.with(|state| state.aborts += 1);
    }
}

impl Time for Broker {
    fn now(&self) -> Now {
        self.with(|state| {
            let wall = WALL + i64::try_from(state.clock.as_millis()).unwrap();
            Now { monotonic: MonotonicTime(state.clock), wall: EventTime(wall) }
        })
    }

    fn wait(&self, duration: Duration) {
        self.with(|state| {
            state.look();
            state.clock += duration;
        });
    }

    fn stopping(&self) -> bool {
        self.with(State::stopping)
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
