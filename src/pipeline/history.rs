//! What became of the records of each partition since it came here: what an explanation needs, without a cost per record.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::codec::Refusal;
use crate::event_time::{EventTime, MonotonicTime, PartitionId, Subtask};
use crate::insight::{PartitionHistory, PartitionTally, Tally};

/// The history of each partition. A record that is accepted costs nothing here: its count is in the tally already.
#[derive(Debug, Default)]
pub(super) struct Histories(BTreeMap<PartitionId, Held>);

#[derive(Debug, Default)]
struct Held {
    told: PartitionHistory,
    /// Records read and accepted, as of the last tally that was closed.
    records_before: u64,
    accepted_before: u64,
    /// Records accepted when one was refused last, and when the watermark rose last.
    accepted_at_refusal: u64,
    accepted_at_rise: u64,
    watermark: Option<EventTime>,
    /// When a while began, and the records read until then.
    while_began: (MonotonicTime, u64),
}

impl Histories {
    /// Counts a record that became a dead letter.
    pub(super) fn refused(&mut self, id: PartitionId, refusal: &Refusal, tally: &mut Tally) {
        tally.dead_letter(id.topic, refusal.reason);
        let tally = tally.partition(id);
        tally.refused += 1;
        let held = self.0.entry(id).or_default();
        let accepted = held.accepted_before + tally.accepted();
        if accepted > held.accepted_at_refusal {
            held.accepted_at_refusal = accepted;
            held.told.refused_in_row = 0;
        }
        held.told.refused_in_row += 1;
        held.told.last_refusal = Some((refusal.reason, refusal.detail.clone()));
    }

    /// Takes over the counts of a tally that is closed.
    pub(super) fn count(&mut self, tally: &Tally) {
        for (id, tally) in &tally.partitions {
            // Also where the partition came after the last look.
            let held = self.0.entry(*id).or_default();
            held.records_before += tally.records;
            held.accepted_before += tally.accepted();
        }
    }

    /// Looks at where the partitions stand, after a periodic emission.
    pub(super) fn look(&mut self, subtask: &Subtask, tally: &Tally, now: MonotonicTime) {
        let mut before = std::mem::take(&mut self.0);
        for view in subtask.partitions() {
            let came = !before.contains_key(&view.id);
            let mut held = before.remove(&view.id).unwrap_or_default();
            if came || held.told.since == MonotonicTime::default() {
                held.told.since = now;
                held.watermark = view.watermark;
                held.told.bound_at_rise = view.bound;
                held.while_began = (now, 0);
            }
            let counts = tally.partitions.get(&view.id);
            let records = held.records_before + counts.map_or(0, |counts| counts.records);
            let accepted = held.accepted_before + counts.map_or(0, PartitionTally::accepted);
            if now.since(held.while_began.0) >= A_WHILE {
                held.told.records_lately = Some(records - held.while_began.1);
                held.while_began = (now, records);
            }
            if records > held.told.records {
                held.told.last_record = Some(now);
            }
            if accepted > held.accepted_at_refusal {
                held.accepted_at_refusal = accepted;
                held.told.refused_in_row = 0;
                held.told.last_refusal = None;
            }
            if view.watermark > held.watermark {
                held.watermark = view.watermark;
                held.accepted_at_rise = accepted;
                held.told.bound_at_rise = view.bound;
            }
            (held.told.records, held.told.accepted) = (records, accepted);
            held.told.accepted_since_rise = accepted - held.accepted_at_rise;
            self.0.insert(view.id, held);
        }
    }

    /// What there is to say of a partition.
    pub(super) fn of(&self, id: PartitionId) -> PartitionHistory {
        self.0.get(&id).map_or_else(PartitionHistory::default, |held| held.told.clone())
    }
}

/// Over which [`PartitionHistory::records_lately`] counts.
const A_WHILE: Duration = Duration::from_secs(2);
