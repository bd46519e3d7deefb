//! Dead letters sent back to the topics they came from.
//!
//! Which ones have been sent is kept in the dead-letter topic itself: in the transaction that sends some of them, a
//! receipt with their offsets is written to their partition. So the choice may be another one each time, what is not
//! chosen stays as it is, and still each is sent once. The offsets of the group say up to where all have been sent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::letter::{Letter, RECEIPT, Unfit};
use crate::clock::Clock;
use crate::config::Config;
use crate::kafka::repair::{End, Outgoing, Ranges, Repair, RepairError};
use crate::pipeline::InputRecord;

/// Which dead letters are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// With one of these reasons; empty: any.
    pub reasons: BTreeSet<String>,
    /// Whose records have a Kafka timestamp at or after this, in milliseconds.
    pub since: Option<i64>,
    /// Whose records have a Kafka timestamp before this, in milliseconds.
    pub until: Option<i64>,
    /// Whose records have this message key.
    pub key: Option<Vec<u8>>,
    /// Also those that had been sent back and became dead letters again.
    pub again: bool,
}

/// What there is to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayPlan {
    /// By topic and reason, how many are chosen.
    pub chosen: BTreeMap<(String, String), u64>,
    /// The first few: reason, place in the dead-letter topic, and what was wrong.
    pub examples: Vec<(String, String, String)>,
    /// Chosen ones that cannot be sent, with the places of the first few.
    pub unfit: BTreeMap<Unfit, (u64, Vec<String>)>,
    /// Chosen ones that had been sent back before, and are left out.
    pub again: u64,
    /// Those that are not chosen.
    pub others: u64,
    /// Those that were sent by an earlier run.
    pub sent_before: u64,
    /// Up to where the topic was looked at.
    ends: Ranges,
    /// By partition, those that are not sent yet.
    left: BTreeMap<i32, BTreeSet<i64>>,
    /// By partition, those to send.
    to_send: BTreeMap<i32, BTreeSet<i64>>,
}

/// A dead letter as the plan knows it.
struct Seen {
    reason: String,
    detail: String,
    /// Its topic, or why it cannot be sent.
    topic: Result<String, Unfit>,
    is_chosen: bool,
    was_sent_back: bool,
}

impl ReplayPlan {
    /// How many are to be sent.
    pub fn count(&self) -> u64 {
        self.chosen.values().sum()
    }

    /// Takes in a dead letter for which there is no receipt.
    fn take(
        &mut self,
        dead_letters: &str,
        (partition, offset): (i32, i64),
        seen: Seen,
        again: bool,
    ) {
        self.left.entry(partition).or_default().insert(offset);
        let place = || format!("{dead_letters}/{partition} offset {offset}");
        if !seen.is_chosen {
            self.others += 1;
            return;
        }
        if seen.was_sent_back && !again {
            self.again += 1;
            return;
        }
        match seen.topic {
            Ok(topic) => {
                self.to_send.entry(partition).or_default().insert(offset);
                if self.examples.len() < EXAMPLES {
                    self.examples.push((seen.reason.clone(), place(), seen.detail));
                }
                *self.chosen.entry((topic, seen.reason)).or_default() += 1;
            }
            Err(unfit) => {
                let (count, places) = self.unfit.entry(unfit).or_default();
                *count += 1;
                if places.len() < EXAMPLES {
                    places.push(place());
                }
            }
        }
    }

    fn is_to_send(&self, (partition, offset): (i32, i64)) -> bool {
        self.to_send.get(&partition).is_some_and(|offsets| offsets.contains(&offset))
    }

    /// Up to where all have been sent, by partition.
    fn next(&self) -> BTreeMap<i32, i64> {
        let next = |(partition, (_, end)): (&i32, &(i64, i64))| {
            let first = self.left.get(partition).and_then(BTreeSet::first);
            (*partition, first.copied().unwrap_or(*end))
        };
        self.ends.iter().map(next).collect()
    }
}

/// Sends dead letters back.
#[derive(Debug)]
pub struct Replay {
    repair: Repair,
    topic: String,
    selection: Selection,
}

impl Replay {
    /// For the dead letters of a job.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn new(config: &Config, selection: Selection, clock: Clock) -> Result<Self, RepairError> {
        let repair = Repair::open(config, "replay", clock)?;
        Ok(Self { repair, topic: config.dead_letter_topic.clone(), selection })
    }

    /// What there is to do.
    ///
    /// # Errors
    /// See [`RepairError`].
    pub fn plan(&self) -> Result<ReplayPlan, RepairError> {
        let ends = self.repair.ranges(&self.topic, End::Stable)?;
        self.plan_up_to(ends)
    }

    /// Does it: those of the plan that nobody has sent since, at most `batch` of them in one transaction. How many.
    ///
    /// # Errors
    /// See [`RepairError`]. What was committed before stays sent, and the next run leaves it out.
    pub fn carry_out(&mut self, plan: &ReplayPlan, batch: usize) -> Result<u64, RepairError> {
        let topics: BTreeSet<&String> = plan.chosen.keys().map(|(topic, _)| topic).collect();
        let mut partitions = BTreeMap::new();
        for topic in topics {
            partitions.insert(topic.clone(), self.repair.partitions(topic)?);
        }
        let mut written: Vec<_> = partitions.keys().cloned().collect();
        written.push(self.topic.clone());
        self.repair.begin(&written)?;
        // Another run may have sent some before this one had the transactional id to itself.
        let mut plan = self.plan_up_to(plan.ends.clone())?;
        let mut from = plan.ends.clone();
        for (partition, (begin, end)) in &mut from {
            *begin = plan.to_send.get(partition).and_then(BTreeSet::first).copied().unwrap_or(*end);
        }
        let mut sent = 0;
        loop {
            let mut records = Vec::new();
            let mut places: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
            let whole = self.repair.read(&self.topic, &from, |record| {
                let at = (record.partition().partition, record.offset());
                if plan.is_to_send(at)
                    && let Ok(mut outgoing) = Letter::of(record).record
                {
                    let there = partitions.get(&outgoing.topic);
                    // Elsewhere by its key, where the topic has been made anew with fewer.
                    outgoing.partition = outgoing
                        .partition
                        .filter(|partition| there.is_some_and(|there| there.contains(partition)));
                    records.push(outgoing);
                    places.entry(at.0).or_default().push(at.1);
                }
                let full = records.len() >= batch;
                Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            sent += u64::try_from(records.len()).unwrap_or(0);
            for (partition, offsets) in &places {
                if let Some(left) = plan.left.get_mut(partition) {
                    for offset in offsets {
                        left.remove(offset);
                    }
                }
                if let (Some(range), Some(last)) = (from.get_mut(partition), offsets.last()) {
                    range.0 = last + 1;
                }
                records.extend(receipts(&self.topic, *partition, offsets));
            }
            if !records.is_empty() {
                self.repair.write(&records, &self.topic, &plan.next())?;
            }
            if whole {
                return Ok(sent);
            }
        }
    }

    fn plan_up_to(&self, ends: Ranges) -> Result<ReplayPlan, RepairError> {
        let committed = self.repair.committed(&self.topic)?;
        // Receipts come behind what they are of.
        let mut ranges = self.repair.ranges(&self.topic, End::Stable)?;
        for (partition, (begin, _)) in &mut ranges {
            *begin = committed.get(partition).copied().unwrap_or(0).max(*begin);
        }
        let mut receipts = BTreeSet::new();
        let mut letters: BTreeMap<(i32, i64), Seen> = BTreeMap::new();
        self.repair.read(&self.topic, &ranges, |record| {
            let at = (record.partition().partition, record.offset());
            if record.header(RECEIPT).is_some() {
                let of = record.payload().map(offsets_in).unwrap_or_default();
                receipts.extend(of.into_iter().map(|offset| (at.0, offset)));
            } else if ends.get(&at.0).is_some_and(|(_, end)| at.1 < *end) {
                letters.insert(at, self.look_at(record));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let mut plan = ReplayPlan { ends, ..ReplayPlan::default() };
        for (at, seen) in letters {
            if receipts.contains(&at) {
                plan.sent_before += 1;
            } else {
                plan.take(&self.topic, at, seen, self.selection.again);
            }
        }
        Ok(plan)
    }

    fn look_at(&self, record: &impl InputRecord) -> Seen {
        let letter = Letter::of(record);
        let selection = &self.selection;
        let at = |bound: Option<i64>, is_within: &dyn Fn(i64, i64) -> bool| {
            bound.is_none_or(|bound| letter.timestamp.is_some_and(|at| is_within(at, bound)))
        };
        let is_chosen = (selection.reasons.is_empty()
            || selection.reasons.contains(&letter.reason))
            && at(selection.since, &|at, since| at >= since)
            && at(selection.until, &|at, until| at < until)
            && selection.key.as_deref().is_none_or(|key| record.key() == Some(key));
        Seen {
            is_chosen,
            was_sent_back: letter.replayed > 0,
            topic: letter.record.map(|record| record.topic),
            reason: letter.reason,
            detail: letter.detail,
        }
    }
}

/// The records that say which dead letters of a partition have been sent.
fn receipts<'o>(
    topic: &'o str,
    partition: i32,
    offsets: &'o [i64],
) -> impl Iterator<Item = Outgoing> + 'o {
    offsets.chunks(OFFSETS_PER_RECEIPT).map(move |offsets| {
        let payload = serde_json::to_vec(&Receipt { replayed: offsets.to_vec() });
        Outgoing {
            topic: topic.to_owned(),
            partition: Some(partition),
            key: None,
            // Writing numbers into memory cannot fail.
            payload: Some(payload.unwrap_or_default()),
            headers: vec![(Cow::Borrowed(RECEIPT), Some(b"1".to_vec()))],
            timestamp: None,
        }
    })
}

fn offsets_in(receipt: &[u8]) -> Vec<i64> {
    serde_json::from_slice(receipt).map_or_else(|_| Vec::new(), |receipt: Receipt| receipt.replayed)
}

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    replayed: Vec<i64>,
}

/// So many examples of each kind are shown.
const EXAMPLES: usize = 5;

/// Less than a topic takes in one message by default, by far.
const OFFSETS_PER_RECEIPT: usize = 5_000;
