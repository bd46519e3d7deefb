//! Timestamps that are far from now, and a clock on the wall that is set.

use std::time::Duration;

use tidegate::event_time::{AllIdle, EventTime};
use tidegate::pipeline::OutputTopic;

use crate::memory::{Slot, WALL};
use crate::world::{Loop, World, ms, reason, record};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000;
const DAY: i64 = 86_400_000;

/// Records every 100 ms, whose event time goes along, for 40 s.
fn lively() -> Vec<Slot> {
    (0..400).map(|n| record(n * 100, T + 100 * n.cast_signed(), "a")).collect()
}

fn watermark(world: &World) -> Option<EventTime> {
    world.broker.with(|state| state.clients.last().unwrap().watch.snapshot().watermark)
}

fn set_wall(world: &World, step: i64) {
    world.broker.with(|state| state.wall_step = step);
}

fn dead_letters_counted(world: &World) -> u64 {
    world.broker.with(|state| {
        let tallies = state.clients.iter().flat_map(|client| &client.tallies);
        tallies.flat_map(|tally| tally.dead_letters.values()).sum()
    })
}

fn started(world: &World) -> Loop {
    let mut pipeline = world.another("reader");
    world.turns(&mut pipeline, ms(15_000));
    pipeline
}

#[test]
fn a_clock_that_is_set_back_by_a_day_refuses_aloud_and_closes_nothing() {
    let world = World::new([lively(), lively()]);
    let mut pipeline = started(&world);
    let (before, results) = (watermark(&world), world.results());
    assert_eq!(results.len(), 1);
    set_wall(&world, -DAY);
    world.turns(&mut pipeline, ms(25_000));
    assert!(watermark(&world) <= before.map(|time| time + Duration::from_secs(1)));
    assert_eq!(world.results(), results);
    let dead = world.topic(OutputTopic::DeadLetter);
    assert!(dead.len() > 150 && dead.iter().all(|letter| reason(letter) == "ts_future"));
    assert_eq!(dead_letters_counted(&world), u64::try_from(dead.len()).unwrap());
    // The holder says it, and with it the answer why nothing fires.
    let snapshot = world.broker.with(|state| state.clients.last().unwrap().watch.snapshot());
    assert!(snapshot.partitions.iter().all(|partition| partition.history.refused_in_row > 70));
    set_wall(&world, 0);
    world.turns(&mut pipeline, ms(41_500));
    assert!(world.results().len() > 2 && world.topic(OutputTopic::Late).is_empty());
}

#[test]
fn a_clock_that_jumps_ahead_closes_nothing() {
    let world = World::new([lively(), lively()]);
    let mut pipeline = started(&world);
    set_wall(&world, DAY);
    world.turns(&mut pipeline, ms(18_000));
    assert_eq!(world.results().len(), 1, "the second window has not ended");
    assert!(watermark(&world) < Some(EventTime(T + 18_000)));
    assert!(world.topic(OutputTopic::DeadLetter).is_empty());
    set_wall(&world, 0);
    world.turns(&mut pipeline, ms(30_000));
    assert!(world.topic(OutputTopic::Late).is_empty());
}

#[test]
fn a_clock_that_jumps_while_all_is_idle_closes_nothing_before_its_time() {
    let mut world = World::new([vec![record(0, T, "a")]]);
    world.config.all_idle = AllIdle::WallClock;
    world.config.sources[0].idle_timeout = Some(Duration::from_secs(2));
    let mut pipeline = world.another("reader");
    world.turns(&mut pipeline, ms(4_000));
    set_wall(&world, DAY);
    world.turns(&mut pipeline, ms(8_000));
    assert_eq!(world.results().len(), 0);
    set_wall(&world, -DAY);
    world.turns(&mut pipeline, ms(9_000));
    set_wall(&world, DAY);
    // The bound of 1 s and the timeout of 2 s past the window's end, by the time that has passed.
    world.turns(&mut pipeline, ms(14_500));
    assert_eq!(world.results().len(), 1);
}

#[test]
fn a_source_may_have_a_guard_of_its_own() {
    let mut world = World::new([vec![record(0, T, "a"), record(0, T + 3_000_000, "a")]]);
    world.config.sources[0].guard.max_future = Some(Duration::from_mins(10));
    world.run_until(ms(2_000)).unwrap();
    let [dead] = &world.topic(OutputTopic::DeadLetter)[..] else { panic!("one dead letter") };
    assert_eq!((reason(dead), world.results().len()), ("ts_future".to_owned(), 0));
}

#[test]
fn one_record_50_minutes_early_makes_no_later_record_late() {
    let early = || record(5_050, T + 3_000_000, "a");
    let mut with_it = lively();
    with_it.insert(51, early());
    let world = World::new([lively(), with_it, lively()]);
    world.run_until(ms(39_900)).unwrap();
    assert!(world.topic(OutputTopic::Late).is_empty());
    assert!(world.topic(OutputTopic::DeadLetter).is_empty());
    assert_eq!(world.results().len(), 3, "the others hold the watermark, and it goes on");
}
