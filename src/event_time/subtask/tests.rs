//! Limits, and shards that are saved, abandoned and brought back.

use std::time::Duration;

use super::Subtask;
use crate::event_time::snapshot::Reader;
use crate::event_time::*;

fn id(partition: i32) -> PartitionId {
    PartitionId { topic: 0, partition }
}

fn settings(sharding: Sharding, limits: StateLimits) -> SubtaskSettings {
    SubtaskSettings {
        topics: vec![TopicSettings {
            strategy: WatermarkStrategy::AscendingTimestamps,
            idle_timeout: None,
        }],
        window: WindowSettings {
            windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
            allowed_lateness: Duration::ZERO,
            panes: Panes::Accumulating,
            aggregates: vec![AggregateFunction::Count],
            limits,
        },
        sharding,
        all_idle: AllIdle::Hold,
    }
}

fn subtask(sharding: Sharding, limits: StateLimits) -> Subtask {
    let mut subtask = Subtask::new(settings(sharding, limits));
    for partition in [0, 1] {
        subtask.assign(id(partition), None);
    }
    subtask
}

fn add(subtask: &mut Subtask, partition: i32, ms: i64, key: &str) -> Disposition {
    let values = [Some(Value::Integer(1))];
    subtask.on_event(id(partition), &Event::new(EventTime(ms), key.as_bytes(), &values))
}

/// Emits, and gives the panes as `key window-start`.
fn tick(subtask: &mut Subtask) -> Vec<String> {
    subtask.on_periodic_emit(Now { monotonic: MonotonicTime::default(), wall: EventTime(0) });
    panes(subtask)
}

fn panes(subtask: &mut Subtask) -> Vec<String> {
    let mut panes = Vec::new();
    while let Some(output) = subtask.poll_output() {
        if let Output::Fired(pane) = output {
            panes.push(format!("{} {}", String::from_utf8_lossy(pane.key), pane.window.start));
        }
    }
    panes
}

/// What a whole restart would bring back of a shard.
fn copy(subtask: &Subtask, shard: ShardId) -> Shard {
    let view = subtask.shard(shard).unwrap();
    let mut copy = Shard::restored(shard, view.clock());
    for entry in view.entries() {
        let mut bytes = Vec::new();
        entry.aggregates.write(&mut bytes);
        let functions = &subtask.window_settings().aggregates;
        let mut window = copy.reopen(entry.window, entry.left, functions);
        let reader = &mut Reader::whole(&bytes);
        window.put(entry.key, entry.panes, entry.discarded, reader).unwrap();
    }
    copy
}

#[test]
fn a_key_over_the_limit_of_its_window_is_refused_and_moves_the_watermark() {
    let limits = StateLimits { keys_per_window: Some(2), ..StateLimits::default() };
    let mut subtask = subtask(Sharding::OneForAll, limits);
    for key in ["a", "b"] {
        assert_eq!(add(&mut subtask, 0, 1_000, key), Disposition::Windowed);
    }
    let before = (subtask.open_panes(), subtask.state_bytes());
    let refused = Disposition::KeyLimit(LimitExceeded::KeysPerWindow(2));
    assert_eq!(add(&mut subtask, 1, 9_000, "c"), refused);
    assert_eq!((subtask.open_panes(), subtask.state_bytes()), before);
    let greatest: Vec<_> = subtask.partitions().map(|view| view.max_event_time).collect();
    assert_eq!(greatest, [Some(EventTime(1_000)), Some(EventTime(9_000))]);
    assert_eq!(add(&mut subtask, 1, 9_000, "a"), Disposition::Windowed, "its keys go on");
    assert_eq!(add(&mut subtask, 0, 11_000, "c"), Disposition::Windowed, "so do other windows");
    add(&mut subtask, 1, 11_000, "c");
    assert_eq!(tick(&mut subtask), ["a 0", "b 0"]);
}

#[test]
fn a_window_over_the_limit_is_refused_until_another_is_freed() {
    let limits = StateLimits { windows: Some(2), ..StateLimits::default() };
    // Each partition has windows of its own here.
    let mut subtask = subtask(Sharding::PerPartition, limits);
    assert_eq!(add(&mut subtask, 0, 1_000, "a"), Disposition::Windowed);
    assert_eq!(add(&mut subtask, 1, 1_000, "a"), Disposition::Windowed);
    let refused = Disposition::KeyLimit(LimitExceeded::Windows(2));
    assert_eq!(add(&mut subtask, 0, 11_000, "a"), refused);
    assert_eq!(subtask.open_windows().len(), 1);
    assert_eq!(add(&mut subtask, 0, 2_000, "b"), Disposition::Windowed, "its windows go on");
    subtask.revoke(id(1));
    assert_eq!(add(&mut subtask, 0, 11_000, "a"), Disposition::Windowed, "one has left");
    assert_eq!(add(&mut subtask, 0, 21_000, "a"), refused);
    assert_eq!(tick(&mut subtask), ["a 0", "b 0", "a 10000"], "by what was refused");
    assert_eq!(add(&mut subtask, 0, 21_000, "a"), Disposition::Windowed, "one was freed");
}

#[test]
fn a_key_that_would_need_more_bytes_is_refused() {
    let limits = StateLimits { bytes: Some(1_000), ..StateLimits::default() };
    let mut subtask = subtask(Sharding::PerPartition, limits);
    let mut held = 0;
    for number in 0..100 {
        let partition = number % 2;
        let disposition = add(&mut subtask, partition, 1_000, &format!("key {number}"));
        if disposition == Disposition::Windowed {
            held += 1;
        } else {
            assert_eq!(disposition, Disposition::KeyLimit(LimitExceeded::Bytes(1_000)));
        }
    }
    assert_eq!(subtask.open_panes(), held);
    assert!((5..30).contains(&held), "{held}");
    assert!((950..=1_000).contains(&subtask.state_bytes()), "{}", subtask.state_bytes());
    let long = "k".repeat(900);
    let refused = Disposition::KeyLimit(LimitExceeded::Bytes(1_000));
    assert_eq!(add(&mut subtask, 0, 1_000, &long), refused);
    assert_eq!(add(&mut subtask, 0, 11_000, "key 0"), refused);
    assert_eq!(subtask.open_windows().len(), 1, "a refused record opens no window");
    assert_eq!(add(&mut subtask, 0, 1_000, "key 0"), Disposition::Windowed);
}

#[test]
fn the_bytes_are_those_of_what_is_held() {
    let mut subtask = subtask(Sharding::PerPartition, StateLimits::default());
    assert_eq!(subtask.state_bytes(), 0);
    for (partition, key) in [(0, "a"), (1, "a"), (1, "abcdef")] {
        add(&mut subtask, partition, 1_000, key);
    }
    let whole = subtask.state_bytes();
    let left = subtask.revoke(id(1)).unwrap();
    let rest = subtask.state_bytes();
    subtask.assign(id(1), Some(left));
    assert_eq!(subtask.state_bytes(), whole);
    assert_eq!(panes(&mut subtask), Vec::<String>::new());
    let window = whole - rest - rest;
    assert!((20..40).contains(&window), "a second key: {window}");
    for partition in [0, 1] {
        add(&mut subtask, partition, 20_000, "z");
    }
    tick(&mut subtask);
    assert_eq!(subtask.open_panes(), 2);
    assert_eq!(subtask.state_bytes(), rest * 2);
    subtask.abandon();
    assert_eq!((subtask.open_panes(), subtask.state_bytes()), (0, 0));
}

#[test]
fn what_came_back_stays_even_where_it_is_beyond_the_limits() {
    let mut original = subtask(Sharding::PerPartition, StateLimits::default());
    for key in ["a", "b", "c"] {
        add(&mut original, 0, 1_000, key);
        add(&mut original, 0, 11_000, key);
    }
    let shard = copy(&original, ShardId::Partition(id(0)));
    let limits = StateLimits { windows: Some(1), keys_per_window: Some(1), bytes: Some(1) };
    let mut restored = Subtask::new(settings(Sharding::PerPartition, limits));
    let state = PartitionState { shard: Some(shard), ..PartitionState::default() };
    assert_eq!(restored.assign(id(0), Some(state)), Assigned::AsItWas);
    assert_eq!(restored.state_bytes(), original.state_bytes());
    assert_eq!(panes(&mut restored), Vec::<String>::new());
    for key in ["a", "b", "c"] {
        assert_eq!(add(&mut restored, 0, 1_000, key), Disposition::Windowed);
    }
    let refused = Disposition::KeyLimit(LimitExceeded::KeysPerWindow(1));
    assert_eq!(add(&mut restored, 0, 1_000, "d"), refused);
    let refused = Disposition::KeyLimit(LimitExceeded::Windows(1));
    assert_eq!(add(&mut restored, 0, 21_000, "a"), refused);
}

#[test]
fn only_what_has_changed_is_to_be_saved() {
    let mut subtask = subtask(Sharding::OneForAll, StateLimits::default());
    let changed = |subtask: &Subtask| -> Vec<String> {
        let shard = subtask.shard(ShardId::All).unwrap();
        let mut keys: Vec<_> =
            shard.changed().map(|e| String::from_utf8_lossy(e.key).into_owned()).collect();
        keys.sort();
        keys
    };
    for key in ["a", "b", "a", "c"] {
        add(&mut subtask, 0, 1_000, key);
    }
    assert_eq!(changed(&subtask), ["a", "b", "c"]);
    subtask.mark_saved(ShardId::All);
    assert_eq!(subtask.changed_count(ShardId::All), 0);
    for ms in [2_000, 3_000, 12_000] {
        add(&mut subtask, 0, ms, "b");
    }
    assert_eq!(changed(&subtask), ["b", "b"], "in two windows, once in each");
    subtask.mark_saved(ShardId::All);
    add(&mut subtask, 1, 12_000, "d");
    subtask.on_periodic_emit(Now { monotonic: MonotonicTime::default(), wall: EventTime(0) });
    assert!(matches!(subtask.poll_output(), Some(Output::WatermarkAdvanced(_))));
    assert!(matches!(subtask.poll_output(), Some(Output::Fired(_))));
    assert_eq!(changed(&subtask), ["a", "d"], "what has fired has changed");
    assert_eq!(panes(&mut subtask), ["b 0", "c 0"]);
    assert_eq!(changed(&subtask), ["d"], "what is freed is not saved");
}

#[test]
fn an_abandoned_subtask_goes_on_with_the_shards_that_come_back() {
    let mut subtask = subtask(Sharding::OneForAll, StateLimits::default());
    add(&mut subtask, 0, 1_000, "a");
    add(&mut subtask, 1, 2_000, "b");
    tick(&mut subtask);
    let shard = copy(&subtask, ShardId::All);
    let states = [0, 1].map(|partition| subtask.partition_state(id(partition)).unwrap());
    add(&mut subtask, 0, 15_000, "a");
    add(&mut subtask, 1, 35_000, "b");
    subtask.on_periodic_emit(Now { monotonic: MonotonicTime::default(), wall: EventTime(0) });
    assert_eq!(subtask.watermark(), Some(EventTime(14_999)));
    subtask.abandon();
    assert_eq!(subtask.watermark(), Some(EventTime(14_999)), "what was shown does not go back");
    assert!(subtask.poll_output().is_none(), "and what was not taken is gone");
    assert_eq!(subtask.partitions().count(), 0);
    let [first, second] = states;
    subtask.assign(id(0), Some(PartitionState { shard: Some(shard), ..first }));
    subtask.assign(id(1), Some(second));
    assert_eq!(subtask.clocks().collect::<Vec<_>>(), [(ShardId::All, Watermark(EventTime(999)))]);
    assert_eq!(panes(&mut subtask), Vec::<String>::new());
    assert_eq!(
        add(&mut subtask, 0, 5_000, "a"),
        Disposition::Windowed,
        "not late: its clock is 999"
    );
    add(&mut subtask, 0, 15_000, "a");
    add(&mut subtask, 1, 12_000, "b");
    assert_eq!(tick(&mut subtask), ["a 0", "b 0"]);
    assert_eq!(subtask.watermark(), Some(EventTime(14_999)));
    assert_eq!(subtask.clocks().next().unwrap().1, Watermark(EventTime(11_999)));
    add(&mut subtask, 0, 30_000, "a");
    add(&mut subtask, 1, 35_000, "b");
    assert_eq!(tick(&mut subtask), ["a 10000", "b 10000"]);
    assert_eq!(subtask.watermark(), Some(EventTime(29_999)));
}

#[test]
fn a_shard_that_was_never_saved_begins_again_as_it_began() {
    let mut subtask = subtask(Sharding::PerPartition, StateLimits::default());
    add(&mut subtask, 0, 12_000, "a");
    add(&mut subtask, 1, 12_000, "a");
    tick(&mut subtask);
    subtask.assign(id(2), None);
    assert_eq!(add(&mut subtask, 2, 11_000, "a"), Disposition::Windowed);
    let late = add(&mut subtask, 2, 1_000, "a");
    assert!(matches!(late, Disposition::Late(Lateness { cause: LateCause::Joined, .. })));
    subtask.abandon();
    for partition in [0, 1, 2] {
        subtask.assign(id(partition), None);
    }
    panes(&mut subtask);
    assert_eq!(add(&mut subtask, 0, 1_000, "a"), Disposition::Windowed, "it began without a clock");
    assert!(matches!(add(&mut subtask, 2, 1_000, "a"), Disposition::Late(_)), "and this with one");
}

#[test]
fn a_restart_does_not_begin_without_a_watermark() {
    let mut subtask = Subtask::new(settings(Sharding::PerPartition, StateLimits::default()));
    subtask.restore_watermark(Watermark(EventTime(9_999)));
    assert_eq!(subtask.watermark(), Some(EventTime(9_999)));
    subtask.restore_watermark(Watermark(EventTime(99_999)));
    assert_eq!(subtask.watermark(), Some(EventTime(9_999)), "only the first counts");
    subtask.assign(id(0), None);
    assert!(matches!(add(&mut subtask, 0, 1_000, "a"), Disposition::Late(_)));
}

#[test]
fn what_is_here_already_keeps_its_clock_when_the_watermark_is_restored() {
    let mut subtask = subtask(Sharding::PerPartition, StateLimits::default());
    add(&mut subtask, 0, 1_000, "a");
    subtask.restore_watermark(Watermark(EventTime(9_999)));
    assert_eq!(add(&mut subtask, 0, 2_000, "a"), Disposition::Windowed);
    assert_eq!(tick(&mut subtask), Vec::<String>::new());
    add(&mut subtask, 0, 12_000, "a");
    add(&mut subtask, 1, 12_000, "a");
    assert_eq!(tick(&mut subtask), ["a 0"]);
}

#[test]
fn whether_a_generator_went_on_is_told() {
    let mut subtask = Subtask::new(settings(Sharding::PerPartition, StateLimits::default()));
    let state = |generator: &[u8]| PartitionState {
        watermark: Watermark(EventTime(777)),
        generator: generator.to_vec(),
        ..PartitionState::default()
    };
    assert_eq!(subtask.assign(id(0), Some(state(&[99, 1, 2]))), Assigned::GeneratorAnew);
    assert_eq!(subtask.partitions().next().unwrap().watermark, Some(EventTime(777)));
    assert_eq!(subtask.assign(id(0), None), Assigned::NotTaken);
    assert_eq!(subtask.assign(PartitionId { topic: 7, partition: 0 }, None), Assigned::NotTaken);
    assert_eq!(subtask.assign(id(1), Some(state(&[]))), Assigned::AsItWas);
}

#[test]
fn a_shard_is_never_dropped_in_silence() {
    let brought = |subtask: &mut Subtask| {
        let state = PartitionState {
            shard: Some(Shard::restored(ShardId::All, Watermark::NONE)),
            ..PartitionState::default()
        };
        subtask.assign(id(5), Some(state))
    };
    let mut empty = Subtask::new(settings(Sharding::OneForAll, StateLimits::default()));
    assert_eq!(brought(&mut empty), Assigned::AsItWas);
    let mut subtask = subtask(Sharding::OneForAll, StateLimits::default());
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| brought(&mut subtask)));
    assert!(dropped.is_err());
}

#[test]
fn a_late_pane_is_announced() {
    let mut settings = settings(Sharding::OneForAll, StateLimits::default());
    settings.window.allowed_lateness = Duration::from_mins(1);
    let mut subtask = Subtask::new(settings);
    subtask.assign(id(0), None);
    add(&mut subtask, 0, 12_000, "a");
    assert!(!subtask.late_pane_is_next());
    tick(&mut subtask);
    assert_eq!(add(&mut subtask, 0, 1_000, "a"), Disposition::Refired);
    assert!(subtask.late_pane_is_next());
    assert_eq!(panes(&mut subtask), ["a 0"]);
    assert!(!subtask.late_pane_is_next());
}

#[test]
fn a_heartbeat_that_is_silence_raises_the_watermark_and_wakes_nobody() {
    let mut settings = settings(Sharding::OneForAll, StateLimits::default());
    settings.topics[0].idle_timeout = Some(Duration::from_secs(1));
    let mut subtask = Subtask::new(settings);
    // The second one is idle much later, by terms of its own.
    let terms = TopicSettings {
        strategy: WatermarkStrategy::AscendingTimestamps,
        idle_timeout: Some(Duration::from_mins(1)),
    };
    subtask.except(id(1), terms);
    for partition in [0, 1] {
        subtask.assign(id(partition), None);
        add(&mut subtask, partition, 1_000, "a");
    }
    let status = |subtask: &Subtask| {
        let statuses: Vec<_> = subtask.partitions().map(|view| view.status).collect();
        statuses.into_iter().map(|status| status == WatermarkStatus::Idle).collect::<Vec<_>>()
    };
    for _ in 0..5 {
        subtask.run_idle_clocks(Duration::from_millis(500));
        assert!(tick(&mut subtask).is_empty());
    }
    assert_eq!(status(&subtask), [true, false]);
    let silent = Heartbeat { is_activity: false, watermark: Some(Watermark(EventTime(30_000))) };
    assert!(subtask.on_heartbeat(id(0), silent));
    assert!(panes(&mut subtask).is_empty());
    assert_eq!(status(&subtask), [true, false]);
    // The other one holds until its own says more.
    let beat = Heartbeat { is_activity: true, watermark: Some(Watermark(EventTime(9_999))) };
    assert!(subtask.on_heartbeat(id(1), beat));
    assert_eq!(panes(&mut subtask), ["a 0"]);
    // What is older changes nothing.
    let older = Heartbeat { is_activity: true, watermark: Some(Watermark(EventTime(5_000))) };
    assert!(subtask.on_heartbeat(id(1), older));
    assert!(tick(&mut subtask).is_empty());
    assert!(!subtask.on_heartbeat(id(2), older), "nobody has it");
}
