//! Silence: when a partition stops holding the others back, when it must not, and what happens when all are silent.
//!
//! A test lets an [`Owner`] run its loop in turns, as the service does, and compares what came out, each line with the time
//! at which it did. To add one, say what arrives and how time passes; no test waits.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use facts::{Fact, take_facts};
use tidegate::event_time::{
    AggregateFunction, AllIdle, Disposition, Event, EventTime, Marker, MonotonicTime,
    NamedStrategy, Now, Panes, PartitionId, Sharding, StateLimits, Subtask, SubtaskSettings,
    TopicSettings, TumblingWindows, Watermark, WatermarkGenerator, WatermarkOutput,
    WatermarkStrategy, WindowSettings,
};

#[path = "support/facts.rs"]
mod facts;

#[test]
fn a_partition_that_never_had_a_record_frees_the_windows_without_another_record() {
    for timeout_ms in [1_000, 5_000, 30_000] {
        for turn_ms in [1, 7, 50, 130, 200] {
            let mut owner = Owner::new(Setting { timeout_ms, ..Setting::default() });
            owner.emits_after_each_record = true;
            owner.run(1_000, turn_ms);
            // The window [0, 1 s) has passed; the silent partition holds it.
            owner.record(0, 500);
            owner.record(0, 5_000);
            assert_eq!(owner.lines, []);
            owner.run(timeout_ms + 1_000, turn_ms);
            let (idle_at, lines) = owner.first_line();
            assert_eq!(lines, ["partition 1 idle", "watermark 4999", "fired [0, 1000)"]);
            assert!(idle_at > timeout_ms, "{idle_at} ms is too soon");
            assert!(idle_at <= timeout_ms + 600, "{idle_at} ms is too late in turns of {turn_ms}");
        }
    }
}

#[test]
fn a_partition_that_fell_silent_is_idle_within_three_emissions_after_its_timeout() {
    for turn_ms in [1, 7, 50, 130, 200] {
        let mut owner = Owner::new(Setting { timeout_ms: 5_000, ..Setting::default() });
        owner.record(0, 500);
        owner.record(1, 5_000);
        let mut last_of_0 = 0;
        for _ in 0..100 {
            owner.run(100, turn_ms);
            owner.record(1, 5_000);
            if owner.now_ms < 3_000 {
                owner.record(0, 5_000);
                last_of_0 = owner.now_ms;
            }
        }
        owner.lines.retain(|(_, line)| line.ends_with("idle"));
        let (idle_at, lines) = owner.first_line();
        assert_eq!(lines, ["partition 0 idle"]);
        assert!(idle_at > last_of_0 + 5_000 && idle_at <= last_of_0 + 5_600, "{idle_at}");
    }
}

#[test]
fn without_evidence_or_paused_a_partition_is_never_idle() {
    let mut owner = Owner::new(Setting { timeout_ms: 1_000, ..Setting::default() });
    owner.subtask.hold_idle_clock(partition(1), true);
    owner.record(0, 500);
    for _ in 0..1_000 {
        owner.record(0, 5_000);
        owner.run(800, 200);
    }
    assert_eq!(owner.lines, []);
    // Holding twice is holding once; the countdown goes on where it stood.
    owner.subtask.hold_idle_clock(partition(1), true);
    owner.subtask.hold_idle_clock(partition(1), false);
    owner.record(0, 5_000);
    owner.run(1_200, 200);
    assert_eq!(owner.taken(), ["partition 1 idle", "watermark 4999", "fired [0, 1000)"]);
}

#[test]
fn a_hold_does_not_begin_the_countdown_anew() {
    let mut owner = Owner::new(Setting { timeout_ms: 1_000, ..Setting::default() });
    owner.run(800, 200);
    owner.subtask.hold_idle_clock(partition(0), true);
    owner.subtask.hold_idle_clock(partition(1), true);
    owner.run(10_000, 200);
    owner.subtask.hold_idle_clock(partition(1), false);
    owner.run(400, 200);
    assert_eq!(owner.taken(), [""; 0], "1000 ms, which is not more than the timeout");
    owner.run(200, 200);
    assert_eq!(owner.taken(), ["partition 1 idle"]);
}

#[test]
fn a_blocked_loop_makes_nobody_idle() {
    let mut owner = Owner::new(Setting { timeout_ms: 5_000, ..Setting::default() });
    for _ in 0..20 {
        owner.record(0, 500);
        owner.record(1, 500);
        owner.run(400, 200);
        // A commit that does not end, a lost broker, a machine that slept.
        owner.turn(30_000);
        owner.turn(30_000);
    }
    assert_eq!(owner.taken(), ["watermark 499"]);
}

#[test]
fn a_late_record_is_activity_and_a_refused_one_is_none() {
    let mut owner = Owner::new(Setting { timeout_ms: 1_000, ..Setting::default() });
    owner.record(0, 9_000);
    owner.record(1, 9_000);
    owner.run(200, 200);
    owner.taken();
    for _ in 0..10 {
        assert!(matches!(owner.record(0, 500), Disposition::Late(_)));
        assert_eq!(owner.record(1, i64::MAX), Disposition::TimestampOutOfRange);
        owner.run(200, 200);
    }
    assert_eq!(owner.taken(), ["partition 1 idle"]);
}

#[test]
fn an_idle_partition_is_active_again_after_an_assignment_and_its_countdown_begins_anew() {
    let mut owner = Owner::new(Setting { timeout_ms: 1_000, ..Setting::default() });
    for _ in 0..10 {
        owner.record(0, 5_000);
        owner.run(200, 200);
    }
    assert_eq!(owner.taken(), ["partition 1 idle", "watermark 4999"]);
    let state = owner.subtask.revoke(partition(1));
    owner.subtask.assign(partition(1), state);
    for _ in 0..6 {
        owner.record(0, 8_000);
        owner.run(200, 200);
    }
    assert_eq!(owner.taken(), [""; 0], "it holds for another timeout");
    owner.record(0, 8_000);
    owner.run(200, 200);
    assert_eq!(owner.taken(), ["partition 1 idle", "watermark 7999", "fired [5000, 6000)"]);
}

#[test]
fn without_a_timeout_nobody_is_ever_idle() {
    let mut owner = Owner::new(Setting { timeout_ms: 0, ..Setting::default() });
    owner.record(0, 5_000);
    owner.run(3_600_000, 200);
    assert_eq!(owner.taken(), [""; 0]);
}

#[test]
fn hold_keeps_the_watermark_when_all_are_idle_and_flush_takes_the_greatest() {
    let flushed = vec!["watermark 8999", "fired [7000, 8000)"];
    for (all_idle, after) in [(AllIdle::Hold, vec![]), (AllIdle::Flush, flushed)] {
        let mut owner = Owner::new(Setting { timeout_ms: 1_000, all_idle, ..Setting::default() });
        owner.record(0, 7_000);
        owner.record(1, 9_000);
        owner.run(10_000, 200);
        let idle = ["watermark 6999", "partition 0 idle", "partition 1 idle"];
        assert_eq!(owner.taken(), [&idle[..], &after].concat());
    }
}

/// The last record came at 3.2 s by the wall clock, so its window [3 s, 4 s) must be complete when the wall clock is
/// past its end by the bound and the timeout.
#[test]
fn the_wall_clock_fires_the_last_window_of_a_quiet_topic_after_bound_and_timeout() {
    let mut owner = Owner::with_last_record_at_3_2_s();
    owner.run(20_000, 50);
    let fired: Vec<_> = owner.lines.iter().filter(|line| line.1.starts_with("fired")).collect();
    assert_eq!(fired.len(), 1);
    let (at, line) = fired.first().unwrap();
    assert_eq!(line, "fired [3000, 4000)");
    let due = 3_999 + BOUND_MS + 5_000;
    assert!((due..due + 200).contains(at), "at {at}, due at {due}");
}

#[test]
fn a_wall_clock_that_steps_closes_nothing_extra() {
    for step_ms in [3_600_000, 5_000, -5_000, -3_600_000] {
        let mut owner = Owner::with_last_record_at_3_2_s();
        owner.run(6_000, 200);
        assert!(owner.taken().contains(&"partition 1 idle".to_owned()));
        owner.wall_step_ms = step_ms;
        for _ in 0..50 {
            owner.turn(200);
            // What time it really is, by the wall clock before the step.
            let ceiling = i64::try_from(owner.now_ms).unwrap() - 7_000;
            let watermark = owner.subtask.watermark().unwrap().0;
            assert!(watermark <= ceiling, "{watermark} after a step of {step_ms} ms");
        }
        // A clock that stepped back holds; once it is right again it goes on.
        owner.wall_step_ms = 0;
        owner.turn(200);
        let now = i64::try_from(owner.now_ms).unwrap();
        assert_eq!(owner.subtask.watermark(), Some(EventTime(now - 7_000)));
    }
}

#[test]
fn the_wall_clock_closes_nothing_without_evidence_for_every_partition() {
    let mut owner = Owner::with_last_record_at_3_2_s();
    owner.run(8_600, 200);
    owner.taken();
    owner.subtask.hold_idle_clock(partition(1), true);
    let before = owner.subtask.watermark();
    owner.run(600_000, 200);
    assert_eq!((owner.taken(), owner.subtask.watermark()), (vec![], before));
    owner.subtask.hold_idle_clock(partition(1), false);
    owner.turn(200);
    let now = i64::try_from(owner.now_ms).unwrap();
    assert_eq!(owner.subtask.watermark(), Some(EventTime(now - 7_000)));
}

#[test]
fn a_generator_of_ones_own_is_idle_by_content_and_combined_at_once() {
    let strategy =
        WatermarkStrategy::Named(NamedStrategy::new("heartbeats", || Box::<Heartbeats>::default()));
    let mut owner = Owner::new(Setting { timeout_ms: 0, strategy, ..Setting::default() });
    owner.record(0, 500);
    owner.record(0, 5_000);
    let heartbeat = |owner: &mut Owner, ts| {
        let marker = Some(Marker::Text("heartbeat"));
        owner.event(1, &Event { marker, ..Event::new(EventTime(ts), b"h", &[]) });
    };
    heartbeat(&mut owner, 100);
    heartbeat(&mut owner, 200);
    assert_eq!(owner.taken(), ["watermark 99", "watermark 199"], "it holds at its heartbeats");
    heartbeat(&mut owner, 300);
    // No emission has come in between.
    assert_eq!(
        owner.taken(),
        ["partition 1 idle", "watermark 4999", "fired [0, 1000)", "fired [0, 1000)"]
    );
    owner.run(2_000, 200);
    assert_eq!(owner.taken(), [""; 0], "the periodic emission does not wake it");
    // One record that is none ends it, and from then on it holds again.
    owner.record(1, 6_000);
    assert_eq!(owner.taken(), ["partition 1 active"]);
    owner.record(0, 9_000);
    assert_eq!(owner.taken(), ["watermark 5999", "fired [5000, 6000)"]);
}

/// Three heartbeats in a row say that a partition has nothing else to say.
#[derive(Debug, Default)]
struct Heartbeats {
    in_a_row: u32,
}

impl WatermarkGenerator for Heartbeats {
    fn on_event(&mut self, event: &Event<'_>, output: &mut WatermarkOutput) {
        let heartbeat = event.marker == Some(Marker::Text("heartbeat"));
        self.in_a_row = if heartbeat { self.in_a_row + 1 } else { 0 };
        output.emit(Watermark(event.timestamp - Duration::from_millis(1)));
        if self.in_a_row >= 3 {
            output.mark_idle();
        }
    }

    fn on_periodic_emit(&mut self, _now: MonotonicTime, _output: &mut WatermarkOutput) {}
}

/// What differs between tests: windows of 1 s, no lateness, two partitions.
struct Setting {
    /// 0: none.
    timeout_ms: u64,
    strategy: WatermarkStrategy,
    all_idle: AllIdle,
}

impl Default for Setting {
    fn default() -> Self {
        let strategy = WatermarkStrategy::AscendingTimestamps;
        Self { timeout_ms: 0, strategy, all_idle: AllIdle::Hold }
    }
}

const INTERVAL_MS: u64 = 200;
const BOUND_MS: u64 = 2_000;

/// The loop around a subtask, with a clock that a test moves.
struct Owner {
    subtask: Subtask,
    now_ms: u64,
    /// How far the wall clock was set forward.
    wall_step_ms: i64,
    next_emission_ms: u64,
    /// `emit_interval = 0`.
    emits_after_each_record: bool,
    /// What came out, and when.
    lines: Vec<(u64, String)>,
}

impl Owner {
    fn new(setting: Setting) -> Self {
        let timeout_ms = Some(setting.timeout_ms).filter(|timeout_ms| *timeout_ms > 0);
        let mut subtask = Subtask::new(SubtaskSettings {
            topics: vec![TopicSettings {
                strategy: setting.strategy,
                idle_timeout: timeout_ms.map(Duration::from_millis),
            }],
            window: WindowSettings {
                windows: TumblingWindows::new(Duration::from_secs(1), 0).unwrap(),
                allowed_lateness: Duration::ZERO,
                panes: Panes::Accumulating,
                aggregates: vec![AggregateFunction::Count],
                limits: StateLimits::default(),
            },
            sharding: Sharding::OneForAll,
            all_idle: setting.all_idle,
        });
        subtask.assign(partition(0), None);
        subtask.assign(partition(1), None);
        Self {
            subtask,
            now_ms: 0,
            wall_step_ms: 0,
            next_emission_ms: INTERVAL_MS,
            emits_after_each_record: false,
            lines: Vec::new(),
        }
    }

    /// A bound of 2 s, a timeout of 5 s, the wall clock for when all are idle, and records as they happen until 3.2 s.
    fn with_last_record_at_3_2_s() -> Self {
        let max_out_of_orderness = Duration::from_millis(BOUND_MS);
        let mut owner = Self::new(Setting {
            timeout_ms: 5_000,
            strategy: WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness },
            all_idle: AllIdle::WallClock,
        });
        owner.run(3_200, 200);
        owner.record(0, 3_200);
        owner.record(1, 3_200);
        owner
    }

    /// Turns of this length for so long.
    fn run(&mut self, for_ms: u64, turn_ms: u64) {
        let until = self.now_ms + for_ms;
        while self.now_ms < until {
            self.turn(turn_ms.min(until - self.now_ms));
        }
    }

    /// One turn of the loop, which took this long.
    fn turn(&mut self, elapsed_ms: u64) {
        self.now_ms += elapsed_ms;
        self.subtask.run_idle_clocks(Duration::from_millis(elapsed_ms.min(INTERVAL_MS)));
        if self.now_ms >= self.next_emission_ms {
            self.subtask.on_periodic_emit(self.now());
            self.next_emission_ms = self.now_ms + INTERVAL_MS;
            self.note_outputs();
        }
    }

    fn record(&mut self, number: i32, ts: i64) -> Disposition {
        self.event(number, &Event::new(EventTime(ts), b"a", &[]))
    }

    fn event(&mut self, number: i32, event: &Event<'_>) -> Disposition {
        let disposition = self.subtask.on_event(partition(number), event);
        self.note_outputs();
        if self.emits_after_each_record {
            self.subtask.on_record_emit(partition(number), self.now());
            self.note_outputs();
        }
        disposition
    }

    fn now(&self) -> Now {
        Now {
            monotonic: MonotonicTime(Duration::from_millis(self.now_ms)),
            wall: EventTime(i64::try_from(self.now_ms).unwrap() + self.wall_step_ms),
        }
    }

    fn note_outputs(&mut self) {
        for fact in take_facts(&mut self.subtask) {
            let line = match fact {
                Fact::Fired(pane) => format!("fired [{}, {})", pane.start, pane.end),
                Fact::Watermark(watermark) => format!("watermark {watermark}"),
                Fact::Status(id, status) => format!("partition {} {status}", id.partition),
            };
            self.lines.push((self.now_ms, line));
        }
    }

    /// What came out since it was last asked.
    fn taken(&mut self) -> Vec<String> {
        self.lines.drain(..).map(|(_, line)| line).collect()
    }

    /// The time of the first line, and all lines of that time.
    fn first_line(&self) -> (u64, Vec<&str>) {
        let (first, _) = self.lines.first().unwrap();
        let same = self.lines.iter().filter(|(at, _)| at == first);
        (*first, same.map(|(_, line)| line.as_str()).collect())
    }
}

fn partition(number: i32) -> PartitionId {
    PartitionId { topic: 0, partition: number }
}
