//! Where window bounds come near the least and the greatest time, reckoned in 128 bits.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::event_time::{
    AggregateFunction, AllIdle, Disposition, Event, EventTime, Marker, Panes, PartitionId,
    Sharding, StateLimits, Subtask, SubtaskSettings, TopicSettings, TumblingWindows,
    WatermarkStrategy, WindowSettings,
};

use crate::config;
use crate::facts::{Fact, take_facts};

const PARTITION: PartitionId = PartitionId { topic: 0, partition: 0 };

proptest! {
    #![proptest_config(config())]

    #[test]
    fn windows_at_the_ends_of_time_fire_and_close_as_elsewhere(
        (size_ms, offset_ms) in windows(),
        lateness_ms in lateness_ms(),
        records in prop::collection::vec((time(), prop::option::of(time())), 1..30),
    ) {
        let mut subtask = subtask(size_ms, offset_ms, lateness_ms);
        let mut clock: Option<i64> = None;
        // By start: how many panes.
        let mut windows = BTreeMap::<i64, u32>::new();
        for (ts, marker) in records {
            let (start, end) = bounds(ts, size_ms, offset_ms);
            let closes = i128::from(lateness_ms) + end - 1;
            let fits = |bound| i64::try_from(bound).is_ok();
            let in_range = ts != i64::MIN && fits(start) && fits(end);
            let passed = |time: i128| clock.is_some_and(|clock| i128::from(clock) >= time);
            let late = closes < i128::from(i64::MAX) && passed(closes);
            let event = Event {
                marker: marker.map(|time| Marker::Time(EventTime(time))),
                ..Event::new(EventTime(ts), b"a", &[])
            };
            let disposition = subtask.on_event(PARTITION, &event);
            let mut expected = Vec::new();
            if !in_range {
                prop_assert_eq!(disposition, Disposition::TimestampOutOfRange);
                continue;
            } else if late {
                prop_assert!(matches!(disposition, Disposition::Late(_)), "{:?}", disposition);
            } else {
                prop_assert!(disposition.is_windowed());
                let start = i64::try_from(start).unwrap();
                let panes = windows.entry(start).or_default();
                if passed(end - 1) {
                    expected.push((start, "late", *panes));
                    *panes += 1;
                }
            }
            if marker > clock.or(Some(i64::MIN)) {
                clock = marker;
            }
            for (start, panes) in &mut windows {
                let end = i128::from(*start) + i128::from(size_ms);
                let due = clock.is_some_and(|clock| i128::from(clock) >= end - 1);
                if *panes == 0 && due {
                    expected.push((*start, "on_time", 0));
                    *panes += 1;
                }
            }
            prop_assert_eq!(panes(&mut subtask), expected, "{} {:?}", ts, marker);
            prop_assert_eq!(subtask.watermark().map(|time| time.0), clock);
        }
        // A drain fires the rest.
        subtask.drain();
        let unfired = windows.iter().filter(|(_, panes)| **panes == 0);
        let expected: Vec<_> = unfired.map(|(start, _)| (*start, "on_time", 0)).collect();
        prop_assert_eq!(panes(&mut subtask), expected);
    }
}

fn windows() -> impl Strategy<Value = (i64, i64)> {
    prop_oneof![Just(8i64), 1..20i64].prop_flat_map(|size| (Just(size), (1 - size)..size))
}

fn lateness_ms() -> impl Strategy<Value = u64> {
    const GREATEST: u64 = i64::MAX.unsigned_abs();
    prop_oneof![Just(0), 0..30u64, 0..=GREATEST, Just(GREATEST)]
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![i64::MIN..i64::MIN + 40, i64::MAX - 40..=i64::MAX, Just(i64::MAX), -40..40i64]
}

fn bounds(ts: i64, size_ms: i64, offset_ms: i64) -> (i128, i128) {
    let (ts, size, offset) = (i128::from(ts), i128::from(size_ms), i128::from(offset_ms));
    let start = ts - (ts - offset).rem_euclid(size);
    (start, start + size)
}

fn panes(subtask: &mut Subtask) -> Vec<(i64, &'static str, u32)> {
    let fired = take_facts(subtask).into_iter().filter_map(|fact| match fact {
        Fact::Fired(fired) => Some((fired.start, fired.timing, fired.index)),
        Fact::Watermark(_) | Fact::Status(..) => None,
    });
    fired.collect()
}

fn subtask(size_ms: i64, offset_ms: i64, lateness_ms: u64) -> Subtask {
    let size = Duration::from_millis(size_ms.unsigned_abs());
    let mut subtask = Subtask::new(SubtaskSettings {
        topics: vec![TopicSettings { strategy: WatermarkStrategy::Punctuated, idle_timeout: None }],
        window: WindowSettings {
            windows: TumblingWindows::new(size, offset_ms).unwrap(),
            allowed_lateness: Duration::from_millis(lateness_ms),
            panes: Panes::Accumulating,
            aggregates: vec![AggregateFunction::Count],
            limits: StateLimits::default(),
        },
        sharding: Sharding::OneForAll,
        all_idle: AllIdle::Hold,
    });
    subtask.assign(PARTITION, None);
    subtask
}
