//! The rules: from what was observed to what fits.

use std::collections::BTreeMap;
use std::time::Duration;

use super::advice::{
    Advice, Alternative, Contradiction, Delay, MaxDelay, PartitionAdvice, Recommendation, WhatIf,
};
use super::findings::findings;
use super::text::{self, share, span};
use super::{Observed, Sketch};
use crate::config::{Config, Source};
use crate::event_time::LateCause;
use crate::insight::words;

/// What advice goes by besides the records.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The topic.
    pub topic: String,
    /// The other keys of its source, as they are configured, each in a line.
    pub source: Vec<String>,
    /// The length of the windows.
    pub window_size: Duration,
    /// How often watermarks are emitted; zero: after every record.
    pub emit_interval: Duration,
    /// The idle timeout that is configured, which is kept where it fits; `None`: off.
    pub idle_timeout: Option<Duration>,
    /// How often producers send batches, if that is known.
    pub batch_period: Option<Duration>,
    /// The greatest delay of results after the end of their window.
    pub max_delay: Option<Duration>,
    /// A bound to be tried.
    pub bound: Option<Duration>,
    /// Whether the records are all of a stretch of time, so that counts of partitions compare, and late ones were
    /// judged by the running service.
    pub is_live: bool,
}

impl Terms {
    /// What a configuration says of one of its sources.
    pub fn new(config: &Config, source: &Source) -> Self {
        Self {
            topic: source.topic.clone(),
            source: text::source(source),
            window_size: config.windows.size(),
            emit_interval: config.emit_interval,
            idle_timeout: source.idle_timeout,
            batch_period: None,
            max_delay: None,
            bound: None,
            is_live: false,
        }
    }

    /// A commit after on-time panes begins at most 50 ms after the one before it, and takes about as long.
    const COMMIT: Duration = Duration::from_millis(100);
    /// With an emission after every record, silence is looked for this often.
    const SILENCE_CHECK: Duration = Duration::from_millis(200);
    /// The idle timeout that the configuration has where nothing is said.
    const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
    /// An idle timeout under so many emit intervals finds silence in every hiccup.
    const LEAST_INTERVALS: u64 = 5;

    fn tick_ms(&self) -> u64 {
        let tick =
            if self.emit_interval.is_zero() { Self::SILENCE_CHECK } else { self.emit_interval };
        millis(tick)
    }

    fn delay(&self, transport_ms: u64, bound_ms: u64) -> Delay {
        let (emit_interval_ms, commit_ms) = (millis(self.emit_interval), millis(Self::COMMIT));
        let total_ms = transport_ms
            .saturating_add(bound_ms)
            .saturating_add(emit_interval_ms)
            .saturating_add(commit_ms);
        Delay { transport_ms, bound_ms, emit_interval_ms, commit_ms, total_ms }
    }
}

/// One partition with what its gaps ask for.
pub(super) struct Looked<'a> {
    pub(super) partition: i32,
    pub(super) observed: &'a Observed,
    pub(super) batch_period_ms: Option<u64>,
    /// P99 of the gaps, those between batches left out.
    pub(super) gap_ms: u64,
    pub(super) needed_ms: u64,
}

impl Advice {
    /// Works it out for one topic from what was observed of its partitions.
    pub fn new(observed: &BTreeMap<i32, Observed>, terms: &Terms) -> Self {
        let looked: Vec<_> = observed.iter().map(|(p, seen)| look(*p, seen, terms)).collect();
        let mut all = Observed::default();
        for seen in observed.values() {
            all.merge(seen);
        }
        let mut advice = Self {
            topic: terms.topic.clone(),
            records: all.records,
            refused: all.refused_count(),
            observed_for_ms: all
                .first_arrival
                .zip(all.last_arrival)
                .map(|(first, last)| millis(first.behind(last))),
            relative_error: Sketch::RELATIVE_ERROR,
            window_size_ms: millis(terms.window_size),
            out_of_orderness_ms: all.out_of_orderness.percentiles(),
            late: terms
                .is_live
                .then(|| LateCause::ALL.map(LateCause::name).into_iter().zip(all.late).collect()),
            partitions: Vec::new(),
            findings: Vec::new(),
            recommendation: None,
            alternatives: Vec::new(),
            late_share_at_mean: None,
            max_delay: None,
            contradictions: Vec::new(),
            what_if: None,
            snippet: None,
        };
        let replayed = is_replay(&all);
        if let Some(percentiles) = advice.out_of_orderness_ms {
            let transport_ms = if replayed { 0 } else { all.transport.quantile(0.99).unwrap_or(0) };
            advice.weigh(&all, &looked, transport_ms, percentiles.p99, terms);
        }
        let bound = advice.recommendation.as_ref().map_or(0, |fit| fit.max_out_of_orderness_ms);
        let timeout = advice.recommendation.as_ref().map_or(0, |fit| fit.idle_timeout_ms);
        advice.partitions = looked.iter().map(|looked| partition(looked, bound)).collect();
        advice.findings = findings(&looked, &all, terms, bound, timeout, replayed);
        advice.snippet =
            advice.recommendation.as_ref().map(|fit| text::snippet(&advice, fit, terms));
        advice
    }

    fn weigh(
        &mut self,
        all: &Observed,
        looked: &[Looked<'_>],
        transport_ms: u64,
        p99_ms: u64,
        terms: &Terms,
    ) {
        let late = |bound_ms| all.needed_bound.share_above(bound_ms);
        let delay = |bound_ms| terms.delay(transport_ms, bound_ms);
        let room =
            terms.max_delay.map(|asked| room(millis(asked), transport_ms, p99_ms, all, terms));
        self.max_delay = room;
        self.contradictions = contradictions(looked, room, terms);
        let bound = bound(p99_ms, room);
        let idle_timeout_ms = idle_timeout(looked, room, terms);
        let detection_ms = idle_timeout_ms.saturating_add(3 * terms.tick_ms());
        let (allowed_lateness_ms, lateness_reason) =
            allowed_lateness(all, looked, idle_timeout_ms, detection_ms);
        self.recommendation = Some(Recommendation {
            max_out_of_orderness_ms: bound.0,
            idle_timeout_ms,
            allowed_lateness_ms,
            late_share: late(bound.0),
            delay: delay(bound.0),
            delay_when_silent_ms: delay(bound.0).total_ms.max(
                transport_ms.saturating_add(detection_ms).saturating_add(millis(Terms::COMMIT)),
            ),
            reasons: [bound.1, idle_reason(looked, idle_timeout_ms, terms), lateness_reason],
        });
        if let Some(percentiles) = self.out_of_orderness_ms {
            let bounds = [
                ("p50", percentiles.p50),
                ("p90", percentiles.p90),
                ("p99", percentiles.p99),
                ("p99.9", percentiles.p99_9),
                ("max", percentiles.max.saturating_add(1)),
            ];
            self.alternatives = bounds
                .map(|(basis, bound)| {
                    let bound_ms = round(bound);
                    let late_share = if basis == "max" { 0.0 } else { late(bound_ms) };
                    Alternative { basis, bound_ms, late_share, delay_ms: delay(bound_ms).total_ms }
                })
                .to_vec();
        }
        self.late_share_at_mean = all.out_of_orderness.mean().map(late);
        self.what_if = terms.bound.map(|asked| {
            let bound_ms = millis(asked);
            let late_share = late(bound_ms);
            let late_records = portion(self.records, late_share);
            WhatIf { bound_ms, late_share, late_records, delay_ms: delay(bound_ms).total_ms }
        });
    }
}

/// What the gaps of a partition ask for.
fn look<'a>(partition: i32, observed: &'a Observed, terms: &Terms) -> Looked<'a> {
    let batches = observed.pauses.batches();
    let gap_ms = match batches {
        // Within batches: the pauses are the longest of the gaps.
        Some(batches) => quantile_of(&observed.gaps, batches.within),
        None => observed.gaps.quantile(0.99),
    };
    let gap_ms = gap_ms.unwrap_or(0);
    let given = terms.batch_period.map(millis);
    let batch_period_ms = given.or(batches.map(|batches| batches.period_ms));
    let needed = (3 * gap_ms).max(2 * batch_period_ms.unwrap_or(0));
    let needed_ms = needed.max(Terms::LEAST_INTERVALS * terms.tick_ms());
    Looked { partition, observed, batch_period_ms, gap_ms, needed_ms: round_up(needed_ms) }
}

/// P99 of the shortest so many.
fn quantile_of(gaps: &Sketch, shortest: u64) -> Option<u64> {
    let share = share_of(shortest, gaps.count());
    gaps.quantile(0.99 * share)
}

fn room(asked_ms: u64, transport_ms: u64, p99_ms: u64, all: &Observed, terms: &Terms) -> MaxDelay {
    let commit_ms = millis(Terms::COMMIT);
    let room_ms = asked_ms.saturating_sub(terms.delay(transport_ms, 0).total_ms);
    MaxDelay {
        asked_ms,
        room_ms,
        late_share_at_room: all.needed_bound.share_above(room_ms),
        p99_ms,
        late_share_at_p99: all.needed_bound.share_above(p99_ms),
        idle_timeout_room_ms: asked_ms
            .saturating_sub(transport_ms)
            .saturating_sub(3 * terms.tick_ms())
            .saturating_sub(commit_ms),
    }
}

fn bound(p99_ms: u64, room: Option<MaxDelay>) -> (u64, String) {
    let fits = round(p99_ms);
    let Some(MaxDelay { asked_ms, room_ms, .. }) = room else {
        let reason = format!("99 % of the records are at most {} behind", span(p99_ms));
        return (fits, reason);
    };
    let (p99, asked, left) = (span(p99_ms), span(asked_ms), span(room_ms));
    if p99_ms > room_ms {
        let reason = format!("all that a delay of {asked} leaves; 99 % of the records need {p99}");
        return (room_ms, reason);
    }
    let wanted = round(p99_ms + p99_ms / 2).min(room_ms).max(fits.min(room_ms));
    let reason = format!(
        "99 % of the records are at most {p99} behind, and half as much for what the sample has not shown; a delay of \
         {asked} leaves {left}"
    );
    (wanted, reason)
}

/// Between the least that gaps ask for and the most that the delay allows, what is configured.
fn idle_timeout(looked: &[Looked<'_>], room: Option<MaxDelay>, terms: &Terms) -> u64 {
    let least = looked.iter().map(|looked| looked.needed_ms).max().unwrap_or(0);
    let least = least.max(Terms::LEAST_INTERVALS * terms.tick_ms());
    let kept = millis(terms.idle_timeout.unwrap_or(Terms::IDLE_TIMEOUT));
    // Twice a batch period is what batches ask for, and no reason to wait for longer.
    let in_batches = looked.iter().any(|looked| looked.batch_period_ms.is_some());
    let wanted = if in_batches { least } else { least.max(kept) };
    match room {
        None => wanted,
        Some(room) if least > room.idle_timeout_room_ms => least,
        Some(room) => wanted.min(room.idle_timeout_room_ms / 100 * 100).max(least),
    }
}

fn idle_reason(looked: &[Looked<'_>], idle_timeout_ms: u64, terms: &Terms) -> String {
    let Some(most) = looked.iter().max_by_key(|looked| looked.needed_ms) else {
        return String::new();
    };
    let of = match looked.len() {
        1 => String::new(),
        _ => format!(" of partition {}", most.partition),
    };
    let needed = span(most.needed_ms);
    match most.batch_period_ms {
        Some(period) if 2 * period >= 3 * most.gap_ms => {
            let known = if terms.batch_period.is_some() { "" } else { ", as it seems" };
            format!("twice the {} from batch to batch{of}{known}", span(period))
        }
        _ if idle_timeout_ms > most.needed_ms => {
            format!("its gaps ask for {needed}; there is no reason to go below what is set")
        }
        _ => format!("three times the P99 gap{of} ({})", span(most.gap_ms)),
    }
}

/// Idle detection plus catching up, where a partition's records came late after it had been idle.
fn allowed_lateness(
    all: &Observed,
    looked: &[Looked<'_>],
    idle_timeout_ms: u64,
    detection_ms: u64,
) -> (u64, String) {
    let detection = span(detection_ms);
    if let Some(catching_up) = all.after_idle.quantile(0.99) {
        let count = words::count(all.after_idle.count());
        let reason = format!(
            "{count} records were late after their partition had been idle: idle detection ({detection}) and catching up \
             ({})",
            span(catching_up)
        );
        return (round_up(detection_ms.saturating_add(catching_up)), reason);
    }
    let longest = looked.iter().max_by_key(|looked| looked.observed.gaps.max());
    let longest = longest.and_then(|looked| Some((looked.partition, looked.observed.gaps.max()?)));
    match longest.filter(|(_, gap)| *gap > idle_timeout_ms) {
        Some((partition, gap)) => {
            let reason = format!(
                "partition {partition} was silent for up to {}, longer than the idle timeout: {detection} takes in what \
                 it sends for that time afterwards",
                span(gap)
            );
            (round_up(detection_ms), reason)
        }
        None => (0, "no record came late after its partition had been idle".to_owned()),
    }
}

fn contradictions(
    looked: &[Looked<'_>],
    room: Option<MaxDelay>,
    terms: &Terms,
) -> Vec<Contradiction> {
    let Some(room) = room else { return Vec::new() };
    let mut found = Vec::new();
    if room.p99_ms > room.room_ms {
        found.push(Contradiction {
            setting: "bound",
            partition: None,
            needed_ms: room.p99_ms,
            allowed_ms: room.room_ms,
            text: format!(
                "99 % of the records need a bound of {}, but a delay of {} leaves {}: {} would be late instead of {}",
                span(room.p99_ms),
                span(room.asked_ms),
                span(room.room_ms),
                share(room.late_share_at_room),
                share(room.late_share_at_p99)
            ),
            ways: BOUND_WAYS.to_vec(),
        });
    }
    let too_long = looked.iter().filter(|looked| looked.needed_ms > room.idle_timeout_room_ms);
    found.extend(too_long.map(|looked| Contradiction {
        setting: "idle_timeout",
        partition: Some(looked.partition),
        needed_ms: looked.needed_ms,
        allowed_ms: room.idle_timeout_room_ms,
        text: format!(
            "partition {} needs an idle timeout of {} ({}), but a delay of {} allows {}",
            looked.partition,
            span(looked.needed_ms),
            match looked.batch_period_ms {
                Some(period) if 2 * period >= 3 * looked.gap_ms => format!(
                    "batches every {}{}",
                    span(period),
                    if terms.batch_period.is_some() { "" } else { ", as it seems" }
                ),
                _ => format!("its P99 gap is {}", span(looked.gap_ms)),
            },
            span(room.asked_ms),
            span(room.idle_timeout_room_ms)
        ),
        ways: IDLE_WAYS.to_vec(),
    }));
    found
}

fn partition(looked: &Looked<'_>, bound_ms: u64) -> PartitionAdvice {
    let observed = looked.observed;
    PartitionAdvice {
        partition: looked.partition,
        records: observed.records,
        refused: observed.refused_count(),
        out_of_orderness_ms: observed.out_of_orderness.percentiles(),
        gap_ms: observed.gaps.percentiles(),
        transport_ms: observed.transport.percentiles(),
        batch_period_ms: looked.batch_period_ms,
        needed_idle_timeout_ms: looked.needed_ms,
        late_share: observed.needed_bound.share_above(bound_ms),
    }
}

/// Records that were written long after they happened have no transport to speak of.
fn is_replay(all: &Observed) -> bool {
    all.transport.quantile(0.5).is_some_and(|transport| transport > REPLAY_MS)
}

/// To the nearest that people write: 10 ms below a second, 100 ms below a minute, 1 s below ten minutes, 10 s below an
/// hour, 1 min above. That is less than the error of the percentiles but for short spans.
fn round(ms: u64) -> u64 {
    let step = step(ms);
    (ms.saturating_add(step / 2) / step).saturating_mul(step)
}

/// The same, but never to less: for what has to be at least this.
fn round_up(ms: u64) -> u64 {
    let step = step(ms);
    ms.div_ceil(step).saturating_mul(step)
}

fn step(ms: u64) -> u64 {
    match ms {
        0..1_000 => 10,
        1_000..60_000 => 100,
        60_000..600_000 => 1_000,
        600_000..3_600_000 => 10_000,
        _ => 60_000,
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
pub(super) fn share_of(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "about"
)]
fn portion(all: u64, share: f64) -> u64 {
    (all as f64 * share).round() as u64
}

/// Transport of more than a day.
const REPLAY_MS: u64 = 86_400_000;

/// What can be done where the records are further out of order than the delay allows.
const BOUND_WAYS: [&str; 3] = [
    "take the late share, and read the late topic",
    "keep the short bound and set window.allowed_lateness: results come on time and are corrected",
    "allow a longer delay",
];

/// What can be done where a partition is silent for longer than the delay allows.
const IDLE_WAYS: [&str; 4] = [
    "an idle timeout of its own for this partition, or a short one for all with window.allowed_lateness for what comes late",
    "heartbeats: its producers send a record without news while they have none",
    "watermark.all_idle = \"wall_clock\", if it is silent only when all are",
    "other partitioning, so that no partition depends on a few quiet producers",
];
