//! Partitions that the client has stopped delivering.
//!
//! The client tells what it has fetched from what is outdated by a number that each pause, resume and seek raises. Those
//! of the application and those that the client makes for a rebalance may cross, and the number then goes back: everything
//! fetched after that counts as outdated, and the partition stands still, for ever and without a word. Another seek mends
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::Offset;
use rdkafka::consumer::Consumer;

use super::source::KafkaSource;
use crate::event_time::{MonotonicTime, PartitionId};

/// Watches over positions that do not move although there is something to read.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Positions that are behind.
    behind: BTreeMap<PartitionId, Standstill>,
    /// When a poll last found nothing to deliver.
    nothing_came: Option<MonotonicTime>,
}

/// A position that does not move.
#[derive(Clone, Copy, Debug)]
struct Standstill {
    position: i64,
    /// Since when, or since it was fetched again.
    since: MonotonicTime,
    /// How long that may last.
    patience: Duration,
}

impl Stalls {
    pub(super) fn nothing_came(&mut self, now: MonotonicTime) {
        self.nothing_came = Some(now);
    }

    /// Takes in a position, and up to where records can be read, where that is known.
    pub(super) fn look(
        &mut self,
        id: PartitionId,
        position: i64,
        readable: Option<i64>,
        now: MonotonicTime,
    ) {
        let Some(end) = readable else { return };
        match self.behind.get(&id) {
            _ if position >= end => {
                self.behind.remove(&id);
            }
            Some(standstill) if standstill.position == position => {}
            Some(_) | None => {
                self.behind.insert(id, Standstill { position, since: now, patience: TOO_LONG });
            }
        }
    }

    /// The partitions that have stood still for too long, though nothing else was delivered either. One that is fetched
    /// again loses what is on its way from a broker that is only slow, so it is given twice the time before the next.
    fn take(&mut self, now: MonotonicTime) -> BTreeMap<PartitionId, i64> {
        let mut taken = BTreeMap::new();
        if self.nothing_came.is_none_or(|when| now.since(when) > LATELY) {
            return taken;
        }
        for (id, standstill) in &mut self.behind {
            if now.since(standstill.since) > standstill.patience {
                standstill.since = now;
                standstill.patience = (standstill.patience * 2).min(LONGEST);
                taken.insert(*id, standstill.position);
            }
        }
        taken
    }

    /// This one is not to move.
    pub(super) fn forget_one(&mut self, id: PartitionId) {
        self.behind.remove(&id);
    }

    /// These are read from elsewhere now, or not at all.
    pub(super) fn forget(&mut self) {
        self.behind.clear();
    }
}

impl KafkaSource {
    pub(super) fn read_again_what_stalls(&self, now: MonotonicTime) {
        let stalled = self.stalls.borrow_mut().take(now);
        if stalled.is_empty() {
            return;
        }
        tracing::warn!(
            partitions = ?stalled.keys().map(|id| id.partition).collect::<Vec<_>>(),
            "the client delivers nothing although there are records; fetching them again"
        );
        let places = stalled.iter().map(|(id, position)| (*id, Offset::Offset(*position)));
        let sought = self.list(places).map_err(|error| error.to_string()).and_then(|list| {
            let sought = self.consumer.seek_partitions(list, Duration::ZERO);
            sought.map_err(|error| error.to_string())
        });
        match sought {
            // The client forgets its own positions with that.
            Ok(_) => self.begun.borrow_mut().extend(stalled),
            Err(error) => tracing::warn!(error, "fetching them again failed"),
        }
    }
}

/// How long a position may stand still before what is in front of it is fetched again.
const TOO_LONG: Duration = Duration::from_secs(5);

/// The same where fetching again has not helped, again and again.
const LONGEST: Duration = Duration::from_mins(1);

/// A poll that found nothing is this long a sign that nothing is on its way to the loop.
const LATELY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PartitionId = PartitionId { topic: 0, partition: 3 };

    fn at(seconds: u64) -> MonotonicTime {
        MonotonicTime(Duration::from_secs(seconds))
    }

    #[test]
    fn a_position_that_stands_still_in_front_of_records_is_named_after_more_and_more_time() {
        let mut stalls = Stalls::default();
        for second in 0..6 {
            stalls.look(ID, 45, Some(60), at(second));
            stalls.nothing_came(at(second));
            assert_eq!(stalls.take(at(second)), BTreeMap::new());
        }
        let mut named = Vec::new();
        for second in 6..200 {
            stalls.look(ID, 45, Some(60), at(second));
            stalls.nothing_came(at(second));
            if stalls.take(at(second)) == [(ID, 45)].into() {
                named.push(second);
            }
        }
        assert_eq!(named, [6, 17, 38, 79, 140]);
        stalls.look(ID, 46, Some(60), at(200));
        stalls.nothing_came(at(206));
        assert_eq!(stalls.take(at(206)), [(ID, 46)].into(), "it had moved");
    }

    #[test]
    fn it_stalls_only_where_it_is_behind_stands_still_and_nothing_else_is_delivered() {
        let mut stalls = Stalls::default();
        let outcome = |stalls: &mut Stalls, position: fn(u64) -> i64, end, empty: u64| {
            for second in 0..20 {
                stalls.look(ID, position(second), end, at(second));
            }
            stalls.nothing_came(at(empty));
            let taken = stalls.take(at(20));
            stalls.forget();
            taken.len()
        };
        assert_eq!(outcome(&mut stalls, |_| 45, Some(60), 20), 1);
        assert_eq!(outcome(&mut stalls, |_| 60, Some(60), 20), 0, "at the end");
        assert_eq!(outcome(&mut stalls, |_| 45, None, 20), 0, "the leader does not answer");
        assert_eq!(
            outcome(&mut stalls, |second| 40 + i64::try_from(second).unwrap_or(0), Some(99), 20),
            0,
            "moves"
        );
        assert_eq!(outcome(&mut stalls, |_| 45, Some(60), 18), 0, "others are delivered");
    }
}
