//! Transactions as brokers see them: who may write, what is open, and markers that come later than the decision.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tidegate::pipeline::{CommittedOffset, Message, NextOffsets, OutputTopic};

use super::log::TransactionId;
use super::{Commit, Place, State, Written};

/// The transaction coordinator.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    last: TransactionId,
    producers: BTreeMap<String, Registered>,
    /// In the order of the decisions.
    markers: Vec<Marker>,
}

/// A transactional id.
#[derive(Debug, Default)]
struct Registered {
    epoch: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    transaction: TransactionId,
    began: Duration,
    places: BTreeSet<Place>,
    messages: usize,
    has_offsets: bool,
}

/// A marker that has not been written yet.
#[derive(Debug)]
struct Marker {
    at: Duration,
    transactional_id: String,
    transaction: TransactionId,
    /// `None`: the group's offsets.
    place: Option<Place>,
    committed: bool,
}

/// Somebody else has taken over the transactional id, or the transaction outlasted its timeout.
#[derive(Debug)]
pub(super) struct Fenced;

impl State {
    /// A producer begins: what its predecessor left open is ended, and the predecessor can do nothing more. Its epoch.
    pub(super) fn register(&mut self, transactional_id: &str) -> u32 {
        let registered =
            self.transactions.producers.entry(transactional_id.to_owned()).or_default();
        registered.epoch += 1;
        let epoch = registered.epoch;
        if registered.open.is_some() {
            self.end(transactional_id, false);
        }
        self.wait_for_markers(transactional_id);
        epoch
    }

    /// A new transaction begins when the one before is complete.
    fn wait_for_markers(&mut self, transactional_id: &str) {
        let markers = self.transactions.markers.iter();
        let own = markers.filter(|marker| marker.transactional_id == transactional_id);
        if let Some(last) = own.map(|marker| marker.at).max() {
            self.pass_until(last);
        }
    }

    /// Whether the transaction before the next is complete.
    pub(super) fn is_complete(&self, transactional_id: &str) -> bool {
        self.transactions.markers.iter().all(|marker| marker.transactional_id != transactional_id)
    }

    fn open(&mut self, transactional_id: &str, epoch: u32) -> Result<&mut Open, Fenced> {
        self.wait_for_markers(transactional_id);
        let transactions = &mut self.transactions;
        let registered = transactions.producers.get_mut(transactional_id).unwrap();
        if registered.epoch != epoch {
            return Err(Fenced);
        }
        Ok(registered.open.get_or_insert_with(|| {
            transactions.last += 1;
            Open {
                transaction: transactions.last,
                began: self.clock,
                places: BTreeSet::new(),
                messages: 0,
                has_offsets: false,
            }
        }))
    }

    /// Appends a message. Where.
    pub(super) fn write(
        &mut self,
        transactional_id: &str,
        epoch: u32,
        message: Rc<Message>,
    ) -> Result<(Place, i64), Fenced> {
        let place = self.place(&message);
        let open = self.open(transactional_id, epoch)?;
        let transaction = open.transaction;
        open.places.insert(place);
        open.messages += usize::from(!matches!(place.0, OutputTopic::Changelog(_)));
        self.written += 1;
        let written = Written { order: self.written, message };
        Ok((place, self.outputs.entry(place).or_default().append(Some(transaction), written)))
    }

    fn place(&self, message: &Message) -> Place {
        let partition = message.partition.unwrap_or_else(|| {
            let partitions = self.limits.get(&message.to).map_or(1, |limits| limits.partitions);
            let bytes = message.key.iter().flatten();
            let hash =
                bytes.fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)));
            i32::try_from(hash % u32::try_from(partitions).unwrap()).unwrap()
        });
        let place = (message.to, partition);
        let known =
            !matches!(message.to, OutputTopic::Changelog(_)) || self.outputs.contains_key(&place);
        assert!(known, "nobody has made sure that {place:?} is there");
        place
    }

    pub(super) fn send_offsets(
        &mut self,
        transactional_id: &str,
        epoch: u32,
        next: &NextOffsets,
    ) -> Result<(), Fenced> {
        let open = self.open(transactional_id, epoch)?;
        open.has_offsets = true;
        let transaction = open.transaction;
        self.undecided_offsets.entry(transaction).or_default().extend(next.clone());
        Ok(())
    }

    /// Ends the open transaction, if there is one.
    pub(super) fn decide(
        &mut self,
        transactional_id: &str,
        epoch: u32,
        committed: bool,
    ) -> Result<(), Fenced> {
        let registered = &self.transactions.producers[transactional_id];
        if registered.epoch != epoch {
            return Err(Fenced);
        }
        if registered.open.is_some() {
            self.end(transactional_id, committed);
        }
        Ok(())
    }

    /// From here on the outcome stands, and the markers are on their way.
    fn end(&mut self, transactional_id: &str, committed: bool) {
        let registered = self.transactions.producers.get_mut(transactional_id).unwrap();
        let Open { transaction, places, has_offsets, messages, .. } =
            registered.open.take().unwrap();
        let places = places.into_iter().map(Some).chain(has_offsets.then_some(None));
        for place in places {
            let random = &mut self.mood.random;
            let delay = if random.chance(self.mood.slow_markers) {
                Duration::from_millis(random.below(3_000))
            } else {
                Duration::ZERO
            };
            self.transactions.markers.push(Marker {
                at: self.clock + delay,
                transactional_id: transactional_id.to_owned(),
                transaction,
                place,
                committed,
            });
        }
        if committed {
            self.commits.push(Commit { at: self.clock, messages });
            let made = self.commits.len();
            for (_, topic, bytes) in self.shrinks.extract_if(.., |(after, ..)| *after <= made) {
                self.limits.get_mut(&topic).unwrap().max_message_bytes = bytes;
            }
        }
        self.write_markers();
    }

    /// Writes the markers that are due.
    pub(super) fn write_markers(&mut self) {
        let clock = self.clock;
        let due: Vec<_> =
            self.transactions.markers.extract_if(.., |marker| marker.at <= clock).collect();
        for Marker { transaction, place, committed, .. } in due {
            if let Some(place) = place {
                self.outputs.get_mut(&place).unwrap().end_transaction(transaction, committed);
                continue;
            }
            let next = self.undecided_offsets.remove(&transaction).unwrap();
            if committed {
                self.commit_offsets(next);
            }
        }
    }

    fn commit_offsets(&mut self, next: NextOffsets) {
        let is_forgotten = self.mood.random.chance(self.mood.forgotten);
        if is_forgotten {
            self.tell(|| format!("the group forgets {next:?}"));
            *self.injected.entry("= commits that the group forgot".to_owned()).or_default() += 1;
        }
        for (id, (offset, mark)) in next {
            let committed = CommittedOffset { offset, mark: Some(mark) };
            if !is_forgotten {
                self.offsets.insert(id, committed);
            }
            let Some(before) = self.acknowledged.insert(id, committed) else { continue };
            assert!(before.offset <= offset, "{id:?} went back from {before:?} to {committed:?}");
            let sequence = before.mark.map_or(0, |mark| mark.sequence);
            assert!(sequence < mark.sequence, "{id:?} went back from {before:?} to {committed:?}");
        }
    }

    /// The group forgets what it has committed, as it does of groups without members after a week.
    pub(crate) fn forget_offsets(&mut self) {
        self.tell(|| "the group's offsets are gone".to_owned());
        self.offsets.clear();
    }

    /// Whether a transaction that has not ended may still change what is committed for one of these.
    pub(super) fn next_marker(&self) -> Option<Duration> {
        self.transactions.markers.iter().map(|marker| marker.at).min()
    }

    pub(super) fn end_what_outlasts_its_timeout(&mut self) {
        let timeout = super::client::TRANSACTION_TIMEOUT;
        let outlasts = |registered: &Registered| {
            registered.open.as_ref().is_some_and(|open| open.began + timeout <= self.clock)
        };
        let producers = self.transactions.producers.iter();
        let due: Vec<_> = producers
            .filter(|(_, registered)| outlasts(registered))
            .map(|(transactional_id, _)| transactional_id.clone())
            .collect();
        for transactional_id in due {
            self.transactions.producers.get_mut(&transactional_id).unwrap().epoch += 1;
            self.tell(|| format!("the transaction of {transactional_id} has timed out"));
            self.end(&transactional_id, false);
            *self.injected.entry("= transactions timed out".to_owned()).or_default() += 1;
        }
    }
}
