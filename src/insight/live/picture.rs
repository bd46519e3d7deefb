//! Where everything stands, at one glance.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Lanes, Outcomes};
use crate::event_time::{EventTime, Now, PartitionId, TimeWindow};
use crate::insight::explain::{Explanation, Question, Terms, explain, ms};
use crate::insight::{FiredWindow, Overview};

/// Which run of the service this is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Another one for each run.
    pub id: String,
    /// When it started, on the wall clock.
    pub started: i64,
    /// Another one for each version of the page.
    pub page: String,
}

/// Where everything stands. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// The time it is about.
    pub now: i64,
    /// The run of the service.
    pub process: Process,
    /// What the subtask does that is least well.
    pub phase: &'static str,
    /// How old the oldest of the snapshots is; `None` before a loop's first turn.
    pub age_ms: Option<u64>,
    /// Up to where all results are out.
    pub watermark: Option<i64>,
    /// How far that is behind now.
    pub watermark_lag_ms: Option<i64>,
    /// Why the next window has not fired.
    pub explanation: Option<Explanation>,
    /// The partitions.
    pub lanes: Lanes,
    /// The windows held.
    pub windows: Windows,
    /// What became of the records.
    pub counts: Outcomes,
}

/// The windows held, and those that fired last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Windows {
    /// The length of a window.
    pub size_ms: u64,
    /// How long a window takes late records.
    pub allowed_lateness_ms: u64,
    /// How many are held, over all subtasks.
    pub held: usize,
    /// (window, key) entries held.
    pub panes: usize,
    /// About how much memory they take.
    pub bytes: usize,
    /// The first of those that have not fired everywhere, in order; at most [`Windows::OPEN`].
    pub open: Vec<Open>,
    /// Those that have fired and still take records.
    pub kept: usize,
    /// The windows that fired last, the newest first; at most [`Windows::FIRED`].
    pub fired: Vec<Fired>,
}

/// A window that has not fired everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Open {
    /// Its first millisecond.
    pub start: i64,
    /// The first one after it.
    pub end: i64,
    /// How much the watermark has to rise until it fires; `None` without a watermark.
    pub short_of_ms: Option<u64>,
}

/// A window that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fired {
    /// Its first millisecond.
    pub start: i64,
    /// The first one after it.
    pub end: i64,
    /// On-time panes.
    pub on_time: u64,
    /// Late panes.
    pub late: u64,
    /// When the last one fired, on the wall clock.
    pub at: i64,
}

impl Windows {
    /// How many open windows are named.
    pub const OPEN: usize = 8;
    /// How many fired ones are.
    pub const FIRED: usize = 8;

    fn new(overview: &Overview, terms: &Terms) -> Self {
        let snapshots = || overview.subtasks().map(|(_, snapshot)| snapshot);
        let (mut open, mut kept) = (BTreeSet::new(), BTreeSet::new());
        for snapshot in snapshots() {
            for window in &snapshot.open {
                if snapshot.least_clock.is_some_and(|clock| window.max_timestamp() <= clock) {
                    kept.insert(*window);
                } else {
                    open.insert(*window);
                }
            }
        }
        let watermark = overview.watermark();
        let short_of =
            |window: TimeWindow| watermark.map(|at| ms(at.behind(window.max_timestamp())));
        let shown = open.iter().take(Self::OPEN).map(|window| Open {
            start: window.start.0,
            end: window.end.0,
            short_of_ms: short_of(*window),
        });
        let recent = snapshots().flat_map(|snapshot| snapshot.recent.iter());
        Self {
            size_ms: ms(terms.windows.size()),
            allowed_lateness_ms: ms(terms.allowed_lateness),
            held: snapshots().map(|snapshot| snapshot.windows_open).sum(),
            panes: snapshots().map(|snapshot| snapshot.panes_open).sum(),
            bytes: snapshots().map(|snapshot| snapshot.state_bytes).sum(),
            open: shown.collect(),
            kept: kept.difference(&open).count(),
            fired: fired(recent),
        }
    }
}

/// The windows that fired last, those of several subtasks put together.
fn fired<'a>(recent: impl Iterator<Item = &'a FiredWindow>) -> Vec<Fired> {
    let mut windows: BTreeMap<TimeWindow, (u64, u64, EventTime)> = BTreeMap::new();
    for fired in recent {
        let (on_time, late, at) = windows.entry(fired.window).or_insert((0, 0, fired.fired_at));
        *on_time += fired.on_time;
        *late += fired.late;
        *at = fired.fired_at.max(*at);
    }
    let last = windows.into_iter().rev().take(Windows::FIRED);
    last.map(|(window, (on_time, late, at))| Fired {
        start: window.start.0,
        end: window.end.0,
        on_time,
        late,
        at: at.0,
    })
    .collect()
}

impl Picture {
    /// Draws it.
    pub fn new(
        overview: &Overview,
        terms: &Terms,
        counts: Outcomes,
        process: Process,
        now: Now,
    ) -> Self {
        let explanation = explain(overview, terms, &Question::Next, now).ok();
        let holder = explanation.as_ref().and_then(|explanation| explanation.holder.as_ref());
        let first = holder.and_then(|holder| {
            let topic = terms.topics.iter().position(|topic| *topic == holder.topic)?;
            Some(PartitionId { topic: u16::try_from(topic).ok()?, partition: holder.partition })
        });
        let ages = overview.subtasks().map(|(_, snapshot)| snapshot.taken);
        let ages = ages.map(|taken| taken.map(|taken| ms(now.monotonic.since(taken))));
        let ages: Option<Vec<_>> = ages.collect();
        let watermark = overview.watermark();
        Self {
            now: now.wall.0,
            process,
            phase: overview.phase().name(),
            age_ms: ages.and_then(|ages| ages.into_iter().max()),
            watermark: watermark.map(|time| time.0),
            watermark_lag_ms: watermark.map(|time| now.wall.0.saturating_sub(time.0)),
            lanes: Lanes::new(overview, &terms.topics, first, now),
            windows: Windows::new(overview, terms),
            explanation,
            counts,
        }
    }
}
