//! What random inputs found once, as small cases that stay when the random inputs change.

use std::time::Duration;

use tidegate::event_time::{
    AggregateFunction, AggregateValue, AllIdle, Event, EventTime, Marker, MonotonicTime, Now,
    Panes, PartitionId, Sharding, StateLimits, Subtask, SubtaskSettings, TopicSettings,
    TumblingWindows, Value, WatermarkStrategy, WindowSettings,
};

use crate::facts::{Fact, take_facts};

#[test]
fn a_late_pane_states_the_clock_from_before_its_own_marker() {
    let mut subtask = subtask(1, WatermarkStrategy::Punctuated, 1_000, Duration::from_secs(10));
    record(&mut subtask, 0, 5_500, Some(4_999));
    take_facts(&mut subtask);
    record(&mut subtask, 0, 4_500, Some(5_200));
    let fired = panes(&mut subtask);
    assert_eq!(fired, ["late [4000, 5000) at 4999"], "the window was late at 4999 already");
}

#[test]
fn two_rises_before_outputs_are_read_fire_the_windows_of_both() {
    let mut subtask = subtask(2, WatermarkStrategy::AscendingTimestamps, 1_000, Duration::ZERO);
    for (partition, ts) in [(0, 500), (0, 2_500), (0, 10_000), (1, 1_500)] {
        record(&mut subtask, partition, ts, None);
    }
    // The first emission raises the watermark to 1499, a later one finds everything idle and flushes.
    for _ in 0..4 {
        subtask.run_idle_clocks(Duration::from_millis(200));
        subtask.on_periodic_emit(NOW);
    }
    let fired = panes(&mut subtask);
    let windows = ["[0, 1000)", "[1000, 2000)", "[2000, 3000)"];
    assert_eq!(fired, windows.map(|window| format!("on_time {window} at 9999")));
}

#[test]
fn the_window_that_begins_at_the_least_time_fires() {
    let mut subtask = subtask(1, WatermarkStrategy::Punctuated, 8, Duration::ZERO);
    let (start, end) = (i64::MIN, i64::MIN + 8);
    record(&mut subtask, 0, start + 3, Some(end - 2));
    assert_eq!(panes(&mut subtask), [""; 0]);
    record(&mut subtask, 0, end, Some(end - 1));
    assert_eq!(panes(&mut subtask), [format!("on_time [{start}, {end}) at {}", end - 1)]);
}

#[test]
fn of_equal_numbers_the_least_is_the_integer_and_the_greatest_the_float() {
    for values in [[Value::Integer(3), Value::Float(3.0)], [Value::Float(3.0), Value::Integer(3)]] {
        let of = |function: AggregateFunction| {
            let mut accumulator = function.accumulator();
            for value in values {
                accumulator.add(value);
            }
            accumulator.value()
        };
        assert_eq!(of(AggregateFunction::Min), AggregateValue::Integer(3));
        assert_eq!(of(AggregateFunction::Max), AggregateValue::Float(3.0));
    }
}

const NOW: Now = Now { monotonic: MonotonicTime(Duration::ZERO), wall: EventTime(0) };

/// Its partitions fall idle after 300 ms; when all are, the watermark is flushed.
fn subtask(
    partitions: i32,
    strategy: WatermarkStrategy,
    size_ms: u64,
    allowed_lateness: Duration,
) -> Subtask {
    let mut subtask = Subtask::new(SubtaskSettings {
        topics: vec![TopicSettings { strategy, idle_timeout: Some(Duration::from_millis(300)) }],
        window: WindowSettings {
            windows: TumblingWindows::new(Duration::from_millis(size_ms), 0).unwrap(),
            allowed_lateness,
            panes: Panes::Accumulating,
            aggregates: vec![AggregateFunction::Count],
            limits: StateLimits::default(),
        },
        sharding: Sharding::OneForAll,
        all_idle: AllIdle::Flush,
    });
    for number in 0..partitions {
        subtask.assign(partition(number), None);
    }
    subtask
}

fn partition(number: i32) -> PartitionId {
    PartitionId { topic: 0, partition: number }
}

fn record(subtask: &mut Subtask, number: i32, ts: i64, marker: Option<i64>) {
    let marker = marker.map(|time| Marker::Time(EventTime(time)));
    let event = Event { marker, ..Event::new(EventTime(ts), b"a", &[]) };
    subtask.on_event(partition(number), &event);
}

fn panes(subtask: &mut Subtask) -> Vec<String> {
    let fired = take_facts(subtask).into_iter().filter_map(|fact| match fact {
        Fact::Fired(pane) => {
            Some(format!("{} [{}, {}) at {}", pane.timing, pane.start, pane.end, pane.watermark))
        }
        Fact::Watermark(_) | Fact::Status(..) => None,
    });
    fired.collect()
}
