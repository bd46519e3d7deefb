//! What became of the records, summed up.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::event_time::{LateCause, Timing};
use crate::insight::Tally;

/// What became of all records whose commits have ended; the panes are those written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Records read.
    pub records: u64,
    /// Records that went to the late topic.
    pub late: u64,
    /// The same by cause; causes that have not occurred are left out.
    pub late_causes: BTreeMap<&'static str, u64>,
    /// Records that came late and were added to a window that had fired.
    pub refired: u64,
    /// Records that became dead letters.
    pub dead_letters: u64,
    /// The same by reason; reasons that have not occurred are left out.
    pub dead_letter_reasons: BTreeMap<&'static str, u64>,
    /// Records without a payload.
    pub tombstones: u64,
    /// Panes that were on time.
    pub on_time_panes: u64,
    /// Panes of windows that had fired before.
    pub late_panes: u64,
    /// Times the least of the active partitions was below the subtask watermark.
    pub regressions: u64,
    /// Commits that were aborted.
    pub aborts: u64,
}

impl Outcomes {
    /// Sums up; the aborted commits are not in a tally.
    ///
    /// ```
    /// use tidegate::codec::Reason;
    /// use tidegate::insight::{Tally, live::Outcomes};
    ///
    /// let mut tally = Tally::default();
    /// tally.dead_letter(0, Reason::BadJson);
    /// tally.dead_letter(1, Reason::BadJson);
    /// let outcomes = Outcomes::new(&tally, 0);
    /// assert_eq!((outcomes.dead_letters, outcomes.dead_letter_reasons["bad_json"]), (2, 2));
    /// ```
    pub fn new(tally: &Tally, aborts: u64) -> Self {
        let mut outcomes = Self { aborts, ..Self::default() };
        let mut causes = [0; LateCause::ALL.len()];
        for partition in tally.partitions.values() {
            outcomes.records += partition.records;
            outcomes.refired += partition.refired;
            outcomes.tombstones += partition.tombstones;
            for (sum, late) in causes.iter_mut().zip(partition.late) {
                *sum += late;
            }
        }
        outcomes.late = causes.iter().sum();
        let causes = LateCause::ALL.map(LateCause::name).into_iter().zip(causes);
        outcomes.late_causes = causes.filter(|(_, late)| *late > 0).collect();
        for ((_, reason), dead) in &tally.dead_letters {
            outcomes.dead_letters += dead;
            *outcomes.dead_letter_reasons.entry(reason.name()).or_default() += dead;
        }
        let panes = |timing: Timing| tally.panes.get(timing.name()).copied().unwrap_or_default();
        outcomes.on_time_panes = panes(Timing::OnTime);
        outcomes.late_panes = panes(Timing::Late);
        outcomes.regressions = tally.watermark_regressions;
        outcomes
    }
}
