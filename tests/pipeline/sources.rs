//! Several topics as one stream: each read by its own terms, none taken for another.

use std::sync::Arc;
use std::time::Duration;

use tidegate::config::{Heartbeat, KeyFrom, PartitionTerms, Source, TimestampFrom, TimestampUnit};
use tidegate::event_time::{EventTime, LateCause, PartitionId, WatermarkStrategy};
use tidegate::insight::{PartitionTally, Tally};
use tidegate::pipeline::{OutputTopic, PipelineError, Polled};

use crate::memory::{Input, Partition, Slot, WALL};
use crate::view::header;
use crate::world::{World, id, marker, ms, payload, reason, record, slot};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

fn other(partition: i32) -> PartitionId {
    PartitionId { topic: 1, partition }
}

/// A record of the second topic: seconds as RFC 3339, the key in `who`, the value in `amount`, and a message key.
fn elsewhere(at: u64, ts: i64, key: &str) -> Slot {
    let time = jiff::Timestamp::from_millisecond(ts).unwrap();
    let payload = format!(r#"{{"at":"{time}","who":"{key}","amount":1}}"#);
    let input =
        Input { key: Some(key.into()), payload: Some(payload.into_bytes()), ..Input::default() };
    slot(at, input)
}

/// The same as [`record`], with a message key.
fn keyed(at: u64, ts: i64, key: &str) -> Slot {
    let mut input = Input::clone(record(at, ts, key).content.as_deref().unwrap());
    input.key = Some(key.into());
    slot(at, input)
}

fn second_source(first: &Source) -> Source {
    let mut source = Source { topic: "other".to_owned(), table: 1, ..first.clone() };
    source.timestamp.from = TimestampFrom::Field("at".parse().unwrap());
    source.timestamp.unit = TimestampUnit::Rfc3339;
    source.fields =
        [("k", "who"), ("v", "amount")].map(|(k, v)| (k.to_owned(), v.parse().unwrap())).into();
    source
}

/// Partitions of two topics; the second one's records are read by terms of its own.
fn world(
    first: impl IntoIterator<Item = Vec<Slot>>,
    second: impl IntoIterator<Item = Vec<Slot>>,
) -> World {
    let mut world = World::new(first);
    let source = second_source(&world.config.sources[0]);
    world.config.sources.push(source);
    world.config.key.across_topics = true;
    world.broker.with(|state| {
        let partition = |slots| Partition { slots, ..Partition::default() };
        state.inputs.extend((0..).map(other).zip(second.into_iter().map(partition)));
        let all = state.inputs.keys().copied().collect();
        state.rebalances = [(Duration::ZERO, Polled::Assigned(all))].into();
    });
    world
}

/// What was counted of a partition.
fn counted(world: &World, id: PartitionId) -> PartitionTally {
    let mut sum = PartitionTally::default();
    world.broker.with(|state| {
        let tallies = state.clients.iter().flat_map(|client| &client.tallies);
        for tally in tallies.filter_map(|tally: &Tally| tally.partitions.get(&id)) {
            sum.records += tally.records;
            sum.heartbeats += tally.heartbeats;
            sum.to_idle += tally.to_idle;
            for (sum, late) in sum.late.iter_mut().zip(tally.late) {
                *sum += late;
            }
        }
    });
    sum
}

fn result(key: &str, count: i64) -> String {
    let end = T + 10_000;
    format!(
        r#"{{"window_start":{T},"window_end":{end},"k":"{key}","n":{count},"sum":{count},"max":1,"pane":{{"timing":"on_time","index":0}}}}"#
    )
}

#[test]
fn records_of_two_topics_with_other_fields_and_units_are_one_row() {
    let world = world(
        [vec![record(0, T, "a"), record(0, T + 9_000, "b")]],
        [vec![elsewhere(0, T + 1_000, "a")], vec![elsewhere(0, T + 2_000, "a")]],
    );
    world.run_to_the_end().unwrap();
    assert_eq!(world.results(), [result("a", 3), result("b", 1)]);
    assert!(world.topic(OutputTopic::DeadLetter).is_empty());
}

#[test]
fn a_message_key_that_is_in_two_topics_has_one_row() {
    let mut world = world([vec![keyed(0, T, "a")]], [vec![elsewhere(0, T + 1_000, "a")]]);
    world.config.key.from = KeyFrom::Message;
    world.run_to_the_end().unwrap();
    assert_eq!(world.results(), [result("a", 2).replace("\"k\"", "\"key\"")]);
    let partition = header(&world.topic(OutputTopic::Results)[0], "tidegate.partition");
    assert_eq!(partition.as_deref(), Some("all"));
}

#[test]
fn partial_results_of_two_topics_are_told_apart_by_their_topics() {
    let mut world = world([vec![keyed(0, T, "a")]], [vec![elsewhere(0, T + 1_000, "a")]]);
    world.config.key.from = KeyFrom::Message;
    world.config.key.partial = true;
    world.run_to_the_end().unwrap();
    let results = world.topic(OutputTopic::Results);
    for (result, topic) in results.iter().zip(["in", "other"]) {
        let place = format!(r#""topic":"{topic}","partition":0,"#);
        assert!(payload(result).contains(&place), "{}", payload(result));
        assert_eq!(header(result, "tidegate.topic").as_deref(), Some(topic));
        let key = format!(r#"{{"key":"a","topic":"{topic}","partition":0}}"#);
        assert_eq!(result.key.as_deref(), Some(key.as_bytes()));
    }
    assert_eq!(results.len(), 2);
    // Each has its state in the changelog of its own topic.
    for number in [0, 1] {
        assert!(!world.topic(OutputTopic::Changelog(number)).is_empty(), "{number}");
    }
}

/// Runs, stops with open windows, and goes on as another process.
fn restarted(partial: bool) {
    let mut world = world(
        [vec![keyed(0, T, "a"), keyed(3_000, T + 20_000, "z")]],
        [vec![elsewhere(0, T + 1_000, "a"), marker(0), elsewhere(3_000, T + 20_000, "z")]],
    );
    world.config.key.from = KeyFrom::Message;
    world.config.key.partial = partial;
    world.run_until(ms(2_000)).unwrap();
    assert!(world.results().is_empty());
    let offset = |at| world.broker.with(|state| state.offsets[&at].offset);
    assert_eq!((offset(id(0)), offset(other(0))), (1, 2));

    world.broker.with(|state| {
        let all = state.inputs.keys().copied().collect();
        state.rebalances = [(ms(2_000), Polled::Assigned(all))].into();
    });
    let mut pipeline = world.another("host");
    world.turns(&mut pipeline, ms(6_000));
    let rows: Vec<_> = world.results();
    if partial {
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows[0].contains(r#""topic":"in""#) && rows[0].contains(r#""n":1"#), "{rows:?}");
        assert!(rows[1].contains(r#""topic":"other""#), "{rows:?}");
    } else {
        assert_eq!(rows, [result("a", 2).replace("\"k\"", "\"key\"")]);
    }
}

#[test]
fn a_restart_with_open_windows_brings_both_topics_back_to_one_shard() {
    restarted(false);
}

#[test]
fn a_restart_with_open_windows_brings_each_topic_back_to_its_own() {
    restarted(true);
}

/// Runs with one topic and message keys, stops with a window open, and goes on with a second topic.
fn second_topic(partial: bool) -> Result<Vec<String>, PipelineError> {
    let slots = [vec![keyed(0, T, "a")]];
    let mut world = world(slots, [vec![elsewhere(3_000, T + 1_000, "b")]]);
    let two = std::mem::replace(&mut world.config, crate::settings::config());
    world.config.key.from = KeyFrom::Message;
    world.broker.with(|state| {
        state.inputs.get_mut(&other(0)).unwrap().made = ms(2_500);
        state.rebalances = [(Duration::ZERO, Polled::Assigned(vec![id(0)]))].into();
    });
    world.run_until(ms(2_000)).unwrap();

    world.config = two;
    world.config.key.from = KeyFrom::Message;
    world.config.key.partial = partial;
    let mut pipeline = world.another("host");
    world.broker.with(|state| {
        state.pass_until(ms(2_500));
        let all = state.inputs.keys().copied().collect();
        state.rebalances = [(ms(2_500), Polled::Assigned(all))].into();
        state.inputs.get_mut(&id(0)).unwrap().slots.push(keyed(3_000, T + 20_000, "z"));
        let end = elsewhere(3_000, T + 20_000, "z");
        state.inputs.get_mut(&other(0)).unwrap().slots.push(end);
    });
    while world.broker.with(|state| state.clock) < ms(6_000) {
        pipeline.turn()?;
    }
    Ok(world.results())
}

#[test]
fn a_second_topic_is_another_layout_for_message_keys() {
    let error = second_topic(false).unwrap_err().to_string();
    let essentials = ["1 windows that have not fired", "shards=per_partition", "--until-end"];
    assert!(essentials.iter().all(|essential| error.contains(essential)), "{error}");
}

#[test]
fn a_second_topic_with_partial_results_goes_on_with_what_is_open() {
    let results = second_topic(true).unwrap();
    let of = |topic: &str| format!(r#""topic":"{topic}","partition":0,"#);
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].contains(&of("in")) && results[0].contains(r#""key":"a""#), "{results:?}");
    assert!(results[1].contains(&of("other")), "{results:?}");
}

#[test]
fn a_source_that_stops_holds_the_other_for_its_own_timeout_and_comes_back_late() {
    let lively = (0..300).map(|n| record(n * 100, T + 100 * i64::try_from(n).unwrap(), "a"));
    let back = [elsewhere(20_000, T + 2_000, "b"), elsewhere(20_000, T + 29_000, "b")];
    let stops = [elsewhere(0, T, "b")].into_iter().chain(back).collect();
    let mut world = world([lively.collect()], [stops]);
    world.config.sources[1].idle_timeout = Some(Duration::from_secs(5));
    world.run_until(ms(24_000)).unwrap();
    let commits = world.commits();
    let fired = commits.iter().find(|commit| commit.messages > 1 && commit.at > ms(10_500));
    let fired = fired.unwrap().at;
    assert!((ms(11_000)..ms(12_000)).contains(&fired), "not held by the other: {fired:?}");
    let [late] = &world.topic(OutputTopic::Late)[..] else { panic!("one is late") };
    assert_eq!(header(late, "tidegate.topic").as_deref(), Some("other"));
    assert_eq!(header(late, "tidegate.cause").as_deref(), Some("after_idle"));
    assert_eq!((reason(late), counted(&world, other(0)).to_idle), ("late".to_owned(), 1));
    let of_cause = LateCause::ALL.iter().position(|cause| *cause == LateCause::AfterIdle).unwrap();
    assert_eq!(counted(&world, other(0)).late[of_cause], 1);
    assert_eq!(counted(&world, id(0)).late, [0; 3]);
}

#[test]
fn single_partitions_have_their_own_timeout_and_bound() {
    let lively = (0..300).map(|n| record(n * 100, T + 100 * i64::try_from(n).unwrap(), "a"));
    let mut world = World::new([lively.collect(), vec![record(0, T, "b")]]);
    let source = &mut world.config.sources[0];
    let terms = |bound, timeout| PartitionTerms {
        strategy: WatermarkStrategy::BoundedOutOfOrderness {
            max_out_of_orderness: Duration::from_secs(bound),
        },
        idle_timeout: Some(Duration::from_secs(timeout)),
    };
    source.partitions = [(0, terms(4, 60)), (1, terms(1, 3))].into();
    world.run_until(ms(20_000)).unwrap();
    // The window is due once the first has passed its end by a bound of 4 s, long after the second is idle.
    let fired = world.commits().iter().find(|commit| commit.at > ms(10_000)).unwrap().at;
    let all: Vec<_> = world.commit_times();
    assert_eq!(world.results().len(), 2, "{all:?}");
    assert!(fired >= ms(10_000));
    let snapshot = world.service(|client| client.watch.snapshot());
    let bounds: Vec<_> = snapshot.partitions.iter().map(|partition| partition.bound).collect();
    assert_eq!(bounds, [4, 1].map(|seconds| Some(Duration::from_secs(seconds))));
    assert_eq!((counted(&world, id(0)).to_idle, counted(&world, id(1)).to_idle), (0, 1));
}

/// A heartbeat that says what time it is.
fn heartbeat(at: u64, ts: i64) -> Slot {
    let payload = format!(r#"{{"type":"heartbeat","ts":{ts}}}"#).into_bytes();
    slot(at, Input { payload: Some(payload), ..Input::default() })
}

/// A partition that is at work and one with a record and then heartbeats; idle after 2 s.
fn beating(is_activity: bool, carries_watermark: bool) -> World {
    let clock = |n: u64| T + 100 * i64::try_from(n).unwrap();
    let lively = (0..300).map(|n| record(n * 100, clock(n), "a"));
    let beats = (1..30).map(|n| heartbeat(n * 1_000, clock(n * 10)));
    let beats = [record(0, T, "b")].into_iter().chain(beats);
    let mut world = World::new([lively.collect(), beats.collect()]);
    let source = &mut world.config.sources[0];
    source.idle_timeout = Some(Duration::from_secs(2));
    source.heartbeat = Some(Heartbeat {
        field: "type".parse().unwrap(),
        equals: "heartbeat".to_owned(),
        is_activity,
        carries_watermark,
    });
    world.run_until(ms(25_500)).unwrap();
    assert!(world.topic(OutputTopic::DeadLetter).is_empty(), "without a key and values");
    assert!(world.topic(OutputTopic::Late).is_empty());
    let seen = counted(&world, id(1));
    assert_eq!((seen.records, seen.heartbeats), (26, 25));
    world
}

#[test]
fn heartbeats_keep_a_partition_active() {
    let world = beating(true, false);
    assert_eq!(counted(&world, id(1)).to_idle, 0);
    assert!(world.results().is_empty(), "it is active and holds the other back");
}

#[test]
fn heartbeats_that_count_as_silence_do_not() {
    let world = beating(false, false);
    assert_eq!(counted(&world, id(1)).to_idle, 1);
    assert_eq!(world.results()[..2], [result("a", 100), result("b", 1)]);
}

#[test]
fn heartbeats_may_carry_a_watermark() {
    let world = beating(true, true);
    assert_eq!(counted(&world, id(1)).to_idle, 0);
    assert_eq!(world.results()[..2], [result("a", 100), result("b", 1)]);
    let snapshot = world.service(|client| client.watch.snapshot());
    assert_eq!(snapshot.partitions[1].watermark, Some(EventTime(T + 25_000)));
}

#[test]
fn a_heartbeat_from_the_future_closes_no_window() {
    let mut world = World::new([vec![record(0, T, "a"), heartbeat(0, WALL + 7_200_000)]]);
    world.config.sources[0].heartbeat = Some(Heartbeat {
        field: "type".parse().unwrap(),
        equals: "heartbeat".to_owned(),
        is_activity: true,
        carries_watermark: true,
    });
    world.run_until(ms(2_000)).unwrap();
    let [dead] = &world.topic(OutputTopic::DeadLetter)[..] else { panic!("one dead letter") };
    assert_eq!(reason(dead), "ts_future");
    assert!(world.results().is_empty());
}

#[test]
fn a_topic_that_comes_joins_at_the_clock_and_is_read_from_its_beginning() {
    let lively = (0..200).map(|n| record(n * 100, T + 100 * i64::try_from(n).unwrap(), "a"));
    let world = World::new([lively.collect()]);
    let mut first = world.config.sources[0].clone();
    first.table = 0;
    let second = second_source(&first);
    world.broker.with(|state| {
        state.sources = vec![Arc::new(first), Arc::new(second)];
        let slots = vec![elsewhere(0, T + 1_000, "b"), elsewhere(0, T + 13_000, "b")];
        let made = ms(12_000);
        state.inputs.insert(other(0), Partition { made, slots, ..Partition::default() });
        let at = |at, ids: Vec<PartitionId>| (ms(at), Polled::Assigned(ids));
        state.rebalances = [at(0, vec![id(0)]), at(12_500, vec![other(0)])].into();
    });
    world.run_until(ms(15_000)).unwrap();
    let late = world.topic(OutputTopic::Late);
    assert_eq!(late.len(), 1);
    assert_eq!(header(&late[0], "tidegate.cause").as_deref(), Some("joined"));
    assert_eq!(header(&late[0], "tidegate.topic").as_deref(), Some("other"));
    assert_eq!(counted(&world, other(0)).records, 2);
    let snapshot = world.service(|client| client.watch.snapshot());
    assert_eq!(snapshot.partitions[1].max_event_time, Some(EventTime(T + 13_000)));
}
