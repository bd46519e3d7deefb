use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::event_time::{
    EventTime, MonotonicTime, Now, PartitionId, Paused, TimeWindow, TumblingWindows,
    WatermarkStatus,
};
use crate::insight::advise::{Observations, Seen, Terms as AdviseTerms};
use crate::insight::explain::Terms;
use crate::insight::{FiredWindow, PartitionHistory, PartitionSnapshot, Phase, Snapshot, Watches};

const WALL: EventTime = EventTime(1_800_000_000_000);

fn at(ms: u64) -> Now {
    let passed = Duration::from_millis(ms);
    Now { monotonic: MonotonicTime(passed), wall: WALL + passed }
}

fn partition(number: i32, watermark: Option<i64>) -> PartitionSnapshot {
    PartitionSnapshot {
        id: PartitionId { topic: 0, partition: number },
        watermark: watermark.map(EventTime),
        max_event_time: watermark.map(EventTime),
        status: WatermarkStatus::Active,
        bound: None,
        gauges: Vec::new(),
        idle_in: Some(Duration::from_secs(9)),
        paused: None,
        caught_up: true,
        position: Some(5),
        end_offset: Some(7),
        last_stable_offset: None,
        committed: None,
        history: PartitionHistory::default(),
    }
}

fn idle(number: i32, watermark: i64) -> PartitionSnapshot {
    PartitionSnapshot { status: WatermarkStatus::Idle, ..partition(number, Some(watermark)) }
}

fn running(partitions: Vec<PartitionSnapshot>) -> Snapshot {
    let active = partitions.iter().filter(|one| one.status == WatermarkStatus::Active);
    let holder = active.min_by_key(|one| one.watermark);
    Snapshot {
        taken: Some(MonotonicTime::default()),
        phase: Phase::Running,
        watermark: holder.and_then(|one| one.watermark),
        least_clock: holder.and_then(|one| one.watermark),
        holder: holder.map(|one| one.id),
        partitions,
        ..Snapshot::default()
    }
}

fn topics() -> Vec<String> {
    vec!["orders".to_owned()]
}

fn windows() -> TumblingWindows {
    TumblingWindows::new(Duration::from_mins(1), 0).unwrap()
}

fn terms() -> Terms {
    Terms {
        topics: topics(),
        sources: Vec::new(),
        windows: windows(),
        allowed_lateness: Duration::ZERO,
        all_idle: crate::event_time::AllIdle::Hold,
        emit_interval: Duration::from_millis(200),
    }
}

/// A journal with what it looks at.
struct Desk {
    journal: Journal,
    watches: Watches,
    counts: Outcomes,
}

impl Desk {
    fn new(subtasks: u16) -> Self {
        let watches = Watches::new(subtasks);
        Self { journal: Journal::default(), watches, counts: Outcomes::default() }
    }

    fn look(&mut self, ms: u64) {
        let overview = self.watches.overview();
        self.journal.look(&overview, &topics(), self.counts.clone(), at(ms));
    }

    fn publish(&self, partitions: Vec<PartitionSnapshot>) {
        self.watches.of(0).publish(running(partitions));
    }

    fn said(&self) -> Vec<(&'static str, &str, u64)> {
        let events = self.journal.events();
        events.map(|event| (event.kind, event.text.as_str(), event.times)).collect()
    }
}

#[test]
fn what_changes_between_two_looks_is_an_event() {
    let mut desk = Desk::new(1);
    desk.look(0);
    desk.publish((0..6).map(|number| partition(number, Some(1_000))).collect());
    desk.look(250);
    desk.look(500);
    let mut two = vec![idle(0, 1_000), partition(1, Some(1_000))];
    desk.publish(two.clone());
    desk.look(750);
    two[0].status = WatermarkStatus::Active;
    desk.publish(two);
    desk.counts.regressions = 3;
    desk.counts.aborts = 1;
    desk.look(1_000);
    desk.watches.of(0).publish(Snapshot {
        phase: Phase::Blocked("x".repeat(10_000)),
        ..running(vec![partition(0, Some(1_000)), partition(1, Some(1_000))])
    });
    desk.look(1_250);
    let start = format!("the service has started (tidegate {})", env!("CARGO_PKG_VERSION"));
    let blocked = format!("brokers out of reach: {}", "x".repeat(378));
    let expected = [
        ("start", start.as_str(), 1),
        ("phase", "reading", 1),
        ("assigned", "orders/0, orders/1, orders/2, orders/3 and 2 more are read here", 1),
        ("given_up", "orders/2, orders/3, orders/4, orders/5 are no longer read here", 1),
        ("idle", "orders/0 is idle: no longer waited for", 1),
        ("active", "orders/0 is active again: waited for", 1),
        ("regression", "the watermark stayed, since a partition that came back is below it", 1),
        ("abort", "a commit was aborted; reading again from the one before", 1),
        ("phase", &blocked, 1),
    ];
    assert_eq!(desk.said(), expected);
}

#[test]
fn the_same_again_is_counted_and_not_told_again() {
    let mut desk = Desk::new(2);
    for (second, regressions) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 5), (20, 6)] {
        desk.counts.regressions = regressions;
        desk.look(second * 1_000);
    }
    let times: Vec<_> =
        desk.said().into_iter().skip(1).map(|(kind, _, times)| (kind, times)).collect();
    assert_eq!(times, [("regression", 3), ("regression", 1)]);
    desk.watches.of(1).publish(running(vec![partition(3, None)]));
    desk.look(21_000);
    let said = desk.said().last().map(|(_, text, _)| (*text).to_owned());
    assert_eq!(said.as_deref(), Some("subtask 1: orders/3 is read here"));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut desk = Desk::new(1);
    for turn in 0..2_000_u64 {
        let one = if turn % 2 == 0 { idle(0, 1_000) } else { partition(0, Some(1_000)) };
        desk.publish(vec![one]);
        desk.look(turn * 11_000);
    }
    let ids: Vec<_> = desk.journal.events().map(|event| event.id).collect();
    assert_eq!((ids.len(), desk.journal.points().count()), (Journal::EVENTS, Journal::POINTS));
    assert!(ids.is_sorted() && *ids.last().unwrap() > 1_900, "{ids:?}");
}

#[test]
fn a_point_has_what_happened_in_its_ten_seconds() {
    let mut desk = Desk::new(1);
    desk.publish(vec![partition(0, Some(WALL.0 - 1_500))]);
    for second in 0..25 {
        desk.counts.records += 7;
        desk.counts.on_time_panes += u64::from(second == 12);
        desk.look(second * 1_000);
    }
    let points: Vec<_> = desk.journal.points().collect();
    let numbers: Vec<_> =
        points.iter().map(|point| (point.records, point.on_time_panes, point.lag_ms)).collect();
    assert_eq!(numbers, [(70, 0, Some(10_500)), (70, 1, Some(20_500)), (35, 0, Some(25_500))]);
    assert_eq!(points[1].at - points[0].at, 10_000);
    assert_eq!(points.iter().map(|point| point.records).sum::<u64>(), desk.counts.records);
}

#[test]
fn few_partitions_are_all_shown_and_of_many_those_that_hold() {
    let lanes = |partitions: Vec<PartitionSnapshot>, first| {
        let watches = Watches::new(1);
        watches.of(0).publish(running(partitions));
        Lanes::new(&watches.overview(), &topics(), first, at(4_000))
    };
    let paused = Some(Paused { ahead: Duration::from_mins(2), resumes_at: EventTime(9) });
    let paused = PartitionSnapshot { paused, ..partition(3, Some(120_005)) };
    let few = lanes(vec![partition(0, Some(5)), idle(1, 2), partition(2, None), paused], None);
    let states: Vec<_> =
        few.shown.iter().map(|lane| (lane.name.as_str(), lane.state, lane.holds)).collect();
    let expected = [
        ("orders/0", "active", false),
        ("orders/1", "idle", false),
        ("orders/2", "no_watermark", true),
        ("orders/3", "paused", false),
    ];
    assert_eq!(states, expected);
    assert_eq!((few.active, few.paused, few.shown[3].ahead_ms), (1, 1, Some(120_000)));
    // It is silent, and four seconds have passed since.
    assert_eq!((few.shown[2].idle_in_ms, few.shown[2].lag), (Some(5_000), Some(2)));
    assert_eq!((few.shown[1].idle_in_ms, few.rest), (None, None));

    let mut many: Vec<_> = (0..1_000).map(|n| partition(n, Some(i64::from(n) + 10))).collect();
    many[700].watermark = Some(EventTime(1));
    many[800].watermark = None;
    many[900] = idle(900, 0);
    let first = PartitionId { topic: 0, partition: 950 };
    let lanes = lanes(many, Some(first));
    let names: Vec<_> = lanes.shown.iter().map(|lane| lane.name.as_str()).collect();
    assert_eq!(names.len(), Lanes::WORST);
    assert_eq!(names[..2], ["orders/0", "orders/1"]);
    assert_eq!(names[17..], ["orders/700", "orders/800", "orders/950"]);
    let rest = lanes.rest.unwrap();
    assert_eq!((rest.partitions, rest.idle, rest.no_watermark, rest.lag), (980, 1, 0, 1_960));
    assert_eq!((rest.least_watermark, rest.greatest_watermark), (Some(27), Some(1_009)));
}

#[test]
fn windows_are_open_kept_or_fired() {
    let window = |minute: i64| TimeWindow {
        start: EventTime(minute * 60_000),
        end: EventTime((minute + 1) * 60_000),
    };
    let watches = Watches::new(2);
    let fired =
        |on_time| FiredWindow { window: window(4), on_time, late: 1, fired_at: EventTime(300_500) };
    let snapshot = |recent| Snapshot {
        open: (4..40).map(window).collect(),
        windows_open: 36,
        recent: vec![recent],
        ..running(vec![partition(0, Some(301_000))])
    };
    watches.of(0).publish(snapshot(fired(3)));
    watches.of(1).publish(snapshot(fired(2)));
    let process = Process { id: String::new(), started: 0, page: String::new() };
    let picture = Picture::new(&watches.overview(), &terms(), Outcomes::default(), process, at(0));
    let shown = picture.windows;
    assert_eq!((shown.held, shown.kept, shown.open.len()), (72, 1, Windows::OPEN));
    let first = Open { start: 300_000, end: 360_000, short_of_ms: Some(58_999) };
    assert_eq!(shown.open[0], first);
    assert_eq!(
        shown.fired,
        [Fired { start: 240_000, end: 300_000, on_time: 5, late: 2, at: 300_500 }]
    );
}

#[test]
fn disorder_says_what_each_bound_would_have_lost() {
    let mut observations = Observations::new(windows(), Duration::ZERO);
    // Every fourth record is three seconds behind; of those some come after the end of their window.
    for offset in 0..4_000_i64 {
        let arrival = EventTime(WALL.0 + offset * 250);
        let behind = if offset % 4 == 3 { 3_000 } else { 0 };
        let event_time = EventTime(arrival.0 - behind);
        let seen = Seen { offset, event_time, arrival: Some(arrival), late: None };
        let id = PartitionId { topic: 0, partition: 0 };
        observations.on_event(id, seen, MonotonicTime::default());
    }
    let watches = Watches::new(1);
    let mut snapshot = running(vec![partition(0, Some(1))]);
    snapshot.partitions[0].bound = Some(Duration::from_millis(700));
    watches.of(0).publish(snapshot);
    let terms = AdviseTerms {
        topic: "orders".to_owned(),
        source: Vec::new(),
        window_size: Duration::from_mins(1),
        emit_interval: Duration::from_millis(200),
        idle_timeout: None,
        batch_period: None,
        max_delay: None,
        bound: None,
        is_live: false,
    };
    let disorder = Disorder::new(&[Arc::new(observations)], &[terms], &watches.overview());
    let topic = &disorder.topics[0];
    assert_eq!((topic.records, topic.bound_ms), (4_000, Some(700)));
    let classes: f64 = topic.classes.iter().map(|class| class.share).sum();
    assert!((classes - 1.0).abs() < 1e-9, "{classes}");
    let late =
        |bound: u64| topic.bounds.iter().find(|step| step.bound_ms == bound).unwrap().late_share;
    assert!(
        topic.bounds.is_sorted_by(|a, b| a.bound_ms < b.bound_ms && a.late_share >= b.late_share)
    );
    // Three of the sixty seconds of a window are late without a bound, and none beyond three seconds.
    assert!((late(0) - 0.25 * 3.0 / 60.0).abs() < 0.003, "{}", late(0));
    assert!(late(700) < late(0) && late(5_000).abs() < f64::EPSILON);
}
