use std::collections::BTreeSet;
use std::time::Duration;

use crate::event_time::*;

const MINUTE: i64 = 60_000;
const DRIFT: Duration = Duration::from_mins(10);

fn id(partition: i32) -> PartitionId {
    PartitionId { topic: 0, partition }
}

/// Partitions with this bound that are idle after 30 s.
struct Bench {
    subtask: Subtask,
    unread: Vec<Unread>,
    clock: Duration,
}

impl Bench {
    fn with(strategy: WatermarkStrategy, partitions: i32) -> Self {
        let mut subtask = Subtask::new(SubtaskSettings {
            topics: vec![TopicSettings { strategy, idle_timeout: Some(Duration::from_secs(30)) }],
            window: WindowSettings {
                windows: TumblingWindows::new(Duration::from_mins(1), 0).unwrap(),
                allowed_lateness: Duration::ZERO,
                panes: Panes::Accumulating,
                aggregates: vec![AggregateFunction::Count],
                limits: StateLimits::default(),
            },
            sharding: Sharding::OneForAll,
            all_idle: AllIdle::Hold,
        });
        (0..partitions).for_each(|partition| {
            subtask.assign(id(partition), None);
        });
        let unread = (0..partitions).map(|_| Unread::Some).collect();
        Self { subtask, unread, clock: Duration::ZERO }
    }

    fn new(bound: u64, partitions: i32) -> Self {
        let max_out_of_orderness = Duration::from_mins(bound);
        Self::with(WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness }, partitions)
    }

    /// A partition reads so many records of this minute.
    fn read(&mut self, partition: i32, minute: i64, records: usize) {
        for _ in 0..records {
            let event = Event::new(EventTime(minute * MINUTE), b"k", &[Some(Value::Integer(1))]);
            self.subtask.on_event(id(partition), &event);
            while self.subtask.poll_output().is_some() {}
        }
    }

    /// A periodic emission and a look; who was paused, and who is read on.
    fn look(&mut self) -> (Vec<i32>, Vec<i32>) {
        self.clock += Duration::from_millis(200);
        self.subtask.run_idle_clocks(Duration::from_millis(200));
        let now = Now { monotonic: MonotonicTime(self.clock), wall: EventTime(0) };
        self.subtask.on_periodic_emit(now);
        while self.subtask.poll_output().is_some() {}
        let unread = |id: PartitionId| self.unread[usize::try_from(id.partition).unwrap()];
        let Aligned { paused, resumed } = self.subtask.align(DRIFT, now.monotonic, unread);
        let numbers = |ids: BTreeSet<PartitionId>| ids.iter().map(|id| id.partition).collect();
        (numbers(paused), numbers(resumed))
    }

    fn paused(&self) -> Vec<i32> {
        let partitions = self.subtask.partitions().filter(|view| view.paused.is_some());
        partitions.map(|view| view.id.partition).collect()
    }
}

const NOBODY: (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());

#[test]
fn it_is_paused_beyond_the_drift_and_read_on_at_half_of_it() {
    let mut bench = Bench::new(0, 2);
    bench.read(0, 100, 256);
    bench.read(1, 109, 256);
    assert_eq!(bench.look(), NOBODY);
    bench.read(1, 111, 255);
    assert_eq!(bench.look(), NOBODY, "one of its last 256 records is of minute 109");
    bench.read(1, 111, 1);
    assert_eq!(bench.look(), (vec![1], vec![]));
    let paused = bench.subtask.partitions().find_map(|view| view.paused).unwrap();
    assert_eq!(paused.ahead, Duration::from_mins(11));
    // Watermarks are a millisecond behind.
    assert_eq!(paused.resumes_at, EventTime(106 * MINUTE - 1));
    bench.read(0, 105, 1);
    assert_eq!(bench.look(), NOBODY, "6 minutes ahead, and not paused if it were not yet");
    bench.read(0, 106, 1);
    assert_eq!(bench.look(), (vec![], vec![1]));
    assert_eq!(bench.look(), NOBODY);
}

#[test]
fn one_early_record_pauses_nobody_and_neither_do_the_first_few() {
    let mut bench = Bench::new(0, 2);
    bench.read(0, 100, 300);
    bench.read(1, 150, 255);
    assert_eq!(bench.look(), NOBODY, "fewer than 256 records say nothing");
    let mut bench = Bench::new(0, 2);
    bench.read(0, 100, 300);
    bench.read(1, 100, 255);
    bench.read(1, 150, 1);
    assert_eq!(bench.look(), NOBODY);
    bench.read(1, 150, 255);
    assert_eq!(bench.look(), NOBODY);
}

#[test]
fn however_large_the_bound_those_that_are_level_are_not_ahead() {
    let mut bench = Bench::new(180, 3);
    for partition in 0..3 {
        bench.read(partition, 1_000 + i64::from(partition), 600);
    }
    assert_eq!(bench.look(), NOBODY);
    bench.read(2, 1_020, 600);
    assert_eq!(bench.look(), (vec![2], vec![]));
}

#[test]
fn one_that_is_caught_up_is_never_paused() {
    let mut bench = Bench::new(0, 2);
    bench.read(0, 100, 300);
    bench.read(1, 500, 300);
    bench.unread[1] = Unread::None;
    assert_eq!(bench.look(), NOBODY);
    // What has come a moment ago is no backlog yet, and what is not known is none.
    bench.unread[1] = Unread::Some;
    (0..15).for_each(|_| assert_eq!(bench.look(), NOBODY));
    bench.unread[1] = Unread::Unknown;
    assert_eq!(bench.look(), NOBODY);
    bench.unread[1] = Unread::Some;
    assert_eq!(bench.look(), (vec![1], vec![]));
}

#[test]
fn the_one_that_holds_the_watermark_is_never_paused_and_never_all() {
    let mut bench = Bench::new(0, 4);
    let mut minutes = [100, 1_000, 2_000, 3_000];
    // Whoever is not paused reads on, a quarter of an hour at a time.
    for _ in 0..1_000 {
        for (partition, minute) in (0..).zip(&mut minutes) {
            if !bench.paused().contains(&partition) {
                *minute += 15;
                bench.read(partition, *minute, 256);
            }
        }
        bench.look();
        let paused = bench.paused();
        let holder = bench.subtask.holder().unwrap();
        assert!(!paused.contains(&holder.partition), "{holder:?} of {minutes:?} is paused");
    }
    let spread = minutes.iter().max().unwrap() - minutes.iter().min().unwrap();
    assert!(minutes[0] > 3_000 && spread <= 60, "{minutes:?}");
}

#[test]
fn an_idle_partition_holds_nobody_and_a_paused_one_is_not_idle() {
    let mut bench = Bench::new(0, 3);
    bench.read(0, 100, 300);
    bench.read(1, 200, 300);
    bench.read(2, 400, 300);
    bench.unread[0] = Unread::None;
    assert_eq!(bench.look(), (vec![1, 2], vec![]));
    // The loop lets all idle clocks run, also those of the paused.
    let mut resumed = Vec::new();
    for _ in 0..160 {
        for paused in [1, 2] {
            bench.subtask.hold_idle_clock(id(paused), false);
        }
        resumed.extend(bench.look().1);
    }
    let idle: Vec<_> = bench
        .subtask
        .partitions()
        .filter(|view| view.status == WatermarkStatus::Idle)
        .map(|view| view.id.partition)
        .collect();
    assert_eq!((idle, resumed, bench.paused()), (vec![0], vec![1], vec![2]));
}

#[test]
fn before_there_is_a_watermark_the_least_event_time_read_counts() {
    // The first partition brings nothing, and so there is no watermark.
    let mut bench = Bench::new(5, 3);
    bench.read(1, 100, 300);
    bench.read(2, 105, 300);
    assert_eq!(bench.look(), NOBODY);
    bench.read(2, 115, 512);
    assert_eq!(bench.look(), (vec![2], vec![]));
    assert_eq!(bench.subtask.watermark(), None);
    // Nobody waits for it any more.
    bench.unread[0] = Unread::Ended;
    bench.read(1, 112, 1);
    assert_eq!(bench.look(), (vec![], vec![2]));
    assert_eq!(bench.subtask.watermark(), None);
}

#[test]
fn a_partition_that_brings_nothing_more_is_not_waited_for() {
    let mut bench = Bench::new(0, 3);
    bench.read(0, 100, 300);
    bench.read(1, 200, 300);
    bench.read(2, 203, 300);
    assert_eq!(bench.look(), (vec![1, 2], vec![]));
    bench.unread[0] = Unread::Ended;
    assert_eq!(bench.look(), (vec![], vec![1, 2]));
    assert_eq!(bench.subtask.watermark(), Some(EventTime(100 * MINUTE - 1)), "which it holds");
}

#[test]
fn one_without_a_watermark_of_its_own_holds_all_and_is_not_paused() {
    let mut bench = Bench::with(WatermarkStrategy::Punctuated, 2);
    bench.read(0, 100, 300);
    bench.read(1, 200, 300);
    assert_eq!(bench.look(), NOBODY);
}

#[test]
fn a_pause_is_forgotten_with_the_partition() {
    let mut bench = Bench::new(0, 2);
    bench.read(0, 100, 300);
    bench.read(1, 200, 300);
    bench.look();
    assert_eq!(bench.paused(), [1]);
    let state = bench.subtask.revoke(id(1));
    bench.subtask.assign(id(1), state);
    assert_eq!(bench.paused(), [0; 0]);
    bench.look();
    assert_eq!(bench.paused(), [0; 0], "and has read too little here to be paused");
    bench.read(1, 201, 300);
    bench.look();
    assert_eq!(bench.paused(), [1]);
    bench.subtask.abandon();
    assert_eq!(bench.look(), NOBODY);
}
