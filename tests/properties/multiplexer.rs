//! The subtask watermark against the plain minimum over a list, with more partitions than the other worlds have.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::event_time::{
    AllIdle, Event, EventTime, Marker, MonotonicTime, Now, Panes, PartitionId, Sharding,
    StateLimits, Subtask, SubtaskSettings, TopicSettings, TumblingWindows, WatermarkStatus,
    WindowSettings,
};

use crate::config;
use crate::world::marks_strategy;

#[derive(Clone, Copy, Debug)]
enum Op {
    Emit(i32, i64),
    Mark(i32, WatermarkStatus),
    Assign(i32),
    Retire(i32),
    Tick(u64),
}

/// The partitions, each with its watermark and whether it is idle, and one watermark that never falls.
#[derive(Debug, Default)]
struct Reference {
    partitions: BTreeMap<i32, (Option<i64>, bool)>,
    watermark: Option<i64>,
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_subtask_watermark_is_the_least_of_the_active_partitions_and_never_falls(
        policy in prop_oneof![Just(AllIdle::Hold), Just(AllIdle::Flush), Just(AllIdle::WallClock)],
        ops in prop::collection::vec(ops(), 1..150),
    ) {
        let mut subtask = subtask(policy);
        let mut reference = Reference::default();
        let mut now_ms = 0;
        for op in ops {
            now_ms += if let Op::Tick(ms) = op { ms } else { 0 };
            drive(&mut subtask, op, now_ms);
            reference.follow(policy, op, now_ms);
            let watermark = subtask.watermark().map(|time| time.0);
            prop_assert_eq!(watermark, reference.watermark, "after {:?} of {:?}", op, reference);
            let holder = subtask.holder().map(|id| id.partition);
            prop_assert!(reference.may_hold(holder), "{:?} of {:?}", holder, reference);
        }
    }
}

impl Reference {
    fn follow(&mut self, policy: AllIdle, op: Op, now_ms: u64) {
        let combines = match op {
            Op::Emit(number, time) => {
                self.partitions.get_mut(&number).is_some_and(|(watermark, idle)| {
                    let rises = Some(time) > *watermark;
                    (*watermark, *idle) = ((*watermark).max(Some(time)), false);
                    rises && Some(time) > self.watermark
                })
            }
            Op::Mark(number, status) => {
                self.partitions.get_mut(&number).is_some_and(|(_, idle)| {
                    *idle = status == WatermarkStatus::Idle;
                    true
                })
            }
            Op::Assign(number) => {
                self.partitions.entry(number).or_insert((None, false));
                false
            }
            Op::Retire(number) => {
                self.partitions.remove(&number);
                false
            }
            Op::Tick(_) => true,
        };
        if combines {
            let now_ms = if let Op::Tick(_) = op { Some(now_ms) } else { None };
            self.watermark = self.watermark.max(self.candidate(policy, now_ms));
        }
    }

    fn candidate(&self, policy: AllIdle, now_ms: Option<u64>) -> Option<i64> {
        let active = self.partitions.values().filter(|(_, idle)| !idle);
        if let Some((least, _)) = active.min() {
            return *least;
        }
        match policy {
            _ if self.partitions.is_empty() => None,
            AllIdle::Hold => None,
            AllIdle::Flush => self.partitions.values().max()?.0,
            // No bound and no timeout stand in its way here.
            AllIdle::WallClock => i64::try_from(now_ms?).ok(),
        }
    }

    /// Whether this one, or nobody, may be said to hold the watermark.
    fn may_hold(&self, holder: Option<i32>) -> bool {
        let least = self.partitions.values().filter(|(_, idle)| !idle).min();
        match holder {
            None => least.is_none(),
            Some(number) => least.is_some() && self.partitions.get(&number) == least,
        }
    }
}

fn ops() -> impl Strategy<Value = Op> {
    let number = || 0..9i32;
    let status = prop_oneof![3 => Just(WatermarkStatus::Idle), 1 => Just(WatermarkStatus::Active)];
    prop_oneof![
        6 => (number(), -50..200i64).prop_map(|(number, time)| Op::Emit(number, time)),
        3 => (number(), status).prop_map(|(number, status)| Op::Mark(number, status)),
        3 => number().prop_map(Op::Assign),
        1 => number().prop_map(Op::Retire),
        2 => (0..30u64).prop_map(Op::Tick),
    ]
}

fn drive(subtask: &mut Subtask, op: Op, now_ms: u64) {
    let id = |number| PartitionId { topic: 0, partition: number };
    let mut record = |number, marker| {
        let event = Event { marker: Some(marker), ..Event::new(EventTime(0), b"", &[]) };
        subtask.on_event(id(number), &event);
    };
    match op {
        Op::Emit(number, time) => record(number, Marker::Time(EventTime(time))),
        Op::Mark(number, WatermarkStatus::Idle) => record(number, Marker::Text("idle")),
        Op::Mark(number, WatermarkStatus::Active) => record(number, Marker::Text("active")),
        Op::Assign(number) => {
            subtask.assign(id(number), None);
        }
        Op::Retire(number) => drop(subtask.retire(id(number))),
        Op::Tick(_) => subtask.on_periodic_emit(Now {
            monotonic: MonotonicTime(Duration::from_millis(now_ms)),
            wall: EventTime(i64::try_from(now_ms).unwrap()),
        }),
    }
    while subtask.poll_output().is_some() {}
}

fn subtask(all_idle: AllIdle) -> Subtask {
    Subtask::new(SubtaskSettings {
        topics: vec![TopicSettings { strategy: marks_strategy(), idle_timeout: None }],
        window: WindowSettings {
            windows: TumblingWindows::new(Duration::from_secs(1), 0).unwrap(),
            allowed_lateness: Duration::ZERO,
            panes: Panes::Accumulating,
            aggregates: Vec::new(),
            limits: StateLimits::default(),
        },
        sharding: Sharding::OneForAll,
        all_idle,
    })
}
