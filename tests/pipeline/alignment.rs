//! Partitions with a backlog that are far ahead of the others in event time.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::pipeline::{OutputTopic, Polled};

use crate::memory::{Call, Fault, Slot, WALL};
use crate::world::{World, id, ms, record};

/// The beginning of a window, two days before the world begins.
const T: i64 = WALL - WALL % 10_000 - 2 * DAY;
const DAY: i64 = 86_400_000;

/// So many records from this time on, each by this much later than the one before.
fn stretch(from: i64, step: i64, records: i64) -> impl Iterator<Item = Slot> {
    (0..records).map(move |n| record(0, from + n * step, &format!("k{}", n % 3)))
}

/// Seven partitions with 50 minutes of a day, and one that has the day before it too; all of it is there to be read, one
/// record of each partition after the other, a thousand in a second.
fn a_day_behind(max_drift: Option<Duration>) -> World {
    let behind = stretch(T, 30_000, DAY / 30_000).chain(stretch(T + DAY, 1_000, 3_000));
    let others = (1..8).map(|_| stretch(T + DAY, 1_000, 3_000).collect());
    let mut world = World::new(std::iter::once(behind.collect()).chain(others));
    world.config.max_drift = max_drift;
    read_in_turn(&world);
    world
}

fn read_in_turn(world: &World) {
    let mut turn = 0;
    world.broker.with(|state| {
        state.poll_takes = ms(1);
        state.choose = Box::new(move |ready| {
            turn += 1;
            turn % ready
        });
    });
}

/// What a run came to.
#[derive(Debug, Default)]
struct Run {
    /// The most windows and panes that were open at once.
    windows: usize,
    panes: usize,
    /// How often each partition was paused.
    pauses: BTreeMap<i32, u64>,
    results: Vec<String>,
}

/// Runs until so many records have come out in results.
fn run(world: &World, records: u64) -> Run {
    let mut pipeline = world.another("reader");
    let mut run = Run::default();
    let turns = 0..;
    // To count what has come out takes longer than a turn.
    for _ in turns.take_while(|turn| turn % 100 > 0 || counted(world) < records) {
        pipeline.turn().unwrap();
        let snapshot = world.broker.with(|state| state.clients.last().unwrap().watch.snapshot());
        run.windows = run.windows.max(snapshot.windows_open);
        run.panes = run.panes.max(snapshot.panes_open);
        let paused = snapshot.partitions.iter().filter(|partition| partition.paused.is_some());
        for partition in paused {
            assert_ne!(Some(partition.id), snapshot.holder);
            assert!(partition.idle_in.is_none() && !partition.caught_up);
        }
    }
    run.pauses = pauses(world);
    run.results = world.results();
    run.results.sort();
    assert!(
        world.topic(OutputTopic::Late).is_empty()
            && world.topic(OutputTopic::DeadLetter).is_empty()
    );
    run
}

/// How many records the results stand for.
fn counted(world: &World) -> u64 {
    let of = |text: &String| {
        let row: serde_json::Value = serde_json::from_str(text).unwrap();
        row["n"].as_u64().unwrap()
    };
    world.results().iter().map(of).sum()
}

fn pauses(world: &World) -> BTreeMap<i32, u64> {
    let mut pauses = BTreeMap::new();
    world.broker.with(|state| {
        for tally in state.clients.iter().flat_map(|client| &client.tallies) {
            for (id, partition) in tally.partitions.iter().filter(|(_, tally)| tally.pauses > 0) {
                *pauses.entry(id.partition).or_default() += partition.pauses;
            }
        }
    });
    pauses
}

/// All records but those of windows that stay open, the last of each partition.
const FIRED: u64 = 2_880 + 8 * 2_990;

#[test]
fn open_windows_stay_few_where_one_partition_is_a_day_behind_seven_others() {
    let with = run(&a_day_behind(DRIFT), FIRED);
    let without = run(&a_day_behind(None), FIRED);
    assert_eq!(with.results, without.results);
    assert_eq!(without.pauses, BTreeMap::new());
    let ahead: Vec<_> = with.pauses.keys().copied().collect();
    assert_eq!(ahead, [1, 2, 3, 4, 5, 6, 7]);
    // Of 256 records of a second each, and what is read until the next look.
    assert!(with.windows < 60 && without.windows > 250, "{} {}", with.windows, without.windows);
    assert!(with.panes * 4 < without.panes, "{} {}", with.panes, without.panes);
}

#[test]
fn aborts_and_partitions_that_come_and_go_find_pauses_and_leave_none_behind() {
    let undisturbed = run(&a_day_behind(DRIFT), FIRED);
    let (mut commits, mut calls) = (0, 0);
    let world = a_day_behind(DRIFT).failing(move |call, _| {
        commits += usize::from(call == Call::Commit);
        calls += usize::from(call == Call::HoldBack);
        match call {
            Call::Commit if commits % 80 == 0 => Some(Fault::Abort),
            Call::HoldBack if calls % 2 == 0 => Some(Fault::Retry),
            _ => None,
        }
    });
    world.broker.with(|state| {
        let paused = || vec![id(1), id(2)];
        state.rebalances.extend([
            (ms(6_000), Polled::Revoking(paused())),
            (ms(6_500), Polled::Assigned(paused())),
            (ms(9_000), Polled::Lost(paused())),
            (ms(9_100), Polled::Assigned(paused())),
        ]);
    });
    let run = run(&world, FIRED);
    assert_eq!(run.results, undisturbed.results);
    let client =
        world.broker.with(|state| (state.clients.last().unwrap().aborts, run.pauses.len()));
    assert!(client.0 > 1 && client.1 == 7, "{client:?}");
}

#[test]
fn the_end_is_reached_also_where_the_slowest_partition_ends_long_before_the_others() {
    let others = (1..4).map(|n| stretch(T + DAY + n * 600_000, 1_000, 2_000).collect());
    let first = stretch(T, 1_000, 300).collect();
    let mut world = World::new([first, Vec::new()].into_iter().chain(others));
    world.config.max_drift = DRIFT;
    assert_eq!(world.config.sources[0].idle_timeout, None);
    read_in_turn(&world);
    world.run_to_the_end().unwrap();
    assert_eq!(counted(&world), 300 + 3 * 2_000);
    assert!(pauses(&world).keys().eq(&[2, 3, 4]), "{:?}", pauses(&world));
    assert!(world.topic(OutputTopic::Late).is_empty());
}

#[test]
fn a_drain_fires_what_is_open_and_leaves_the_rest_of_paused_partitions_to_the_next_start() {
    let world = a_day_behind(DRIFT);
    world.drain_at(ms(4_000)).unwrap();
    let drained = counted(&world);
    assert!(drained < FIRED, "{drained}");
    let read: i64 = (0..8).filter_map(|partition| world.committed_offset(partition)).sum();
    assert_eq!(i64::try_from(drained), Ok(read), "all that was read is in results");
}

#[test]
fn a_partition_that_is_read_as_its_records_come_is_not_paused() {
    // One of them is a day behind. Now and then a record comes at the very moment of a look, and is not read yet.
    let lively = |from| (0..800).map(move |n| record(n * 70, from + 70 * n.cast_signed(), "k"));
    let mut world = World::new([lively(T).collect(), lively(T + DAY).collect()]);
    world.config.max_drift = Some(Duration::from_secs(10));
    world.run_until(ms(60_000)).unwrap();
    assert_eq!(pauses(&world), BTreeMap::new());
}

/// Six windows.
const DRIFT: Option<Duration> = Some(Duration::from_mins(1));
