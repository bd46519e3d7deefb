//! What counts as silence, and what only looks like it.

use std::time::Duration;

use tidegate::pipeline::{OutputTopic, Polled};

use crate::memory::{Call, Fault, WALL};
use crate::world::{World, id, ms, record};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

/// Two partitions, of which the second falls silent; idle after 2 s. The first goes on every 100 ms, 100 ms at a time.
fn silent() -> World {
    let lively = (0..400).map(|n| record(n * 100, T + 100 * i64::try_from(n).unwrap(), "a"));
    let mut world = World::new([lively.collect(), vec![record(0, T, "a")]]);
    world.config.sources[0].idle_timeout = Some(Duration::from_secs(2));
    world
}

/// When the first window was committed.
fn fired_at(world: &World) -> Option<Duration> {
    world.commits().iter().find(|commit| commit.messages > 0).map(|commit| commit.at)
}

#[test]
fn a_silent_partition_holds_nobody() {
    let world = silent();
    world.run_until(Duration::from_secs(30)).unwrap();
    // The window is due at 11 s of event time, long after the timeout.
    let fired = fired_at(&world).unwrap();
    assert!((ms(11_000)..ms(11_500)).contains(&fired), "{fired:?}");
    let to_idle: u64 = world.broker.with(|state| {
        let of = |tally: &tidegate::insight::Tally| {
            tally.partitions.values().map(|partition| partition.to_idle).sum::<u64>()
        };
        state.clients[0].tallies.iter().map(of).sum()
    });
    assert_eq!(to_idle, 1);
}

#[test]
fn without_evidence_there_is_no_silence() {
    let world = silent();
    world.broker.with(|state| state.inputs.get_mut(&id(1)).unwrap().evidence_from = Duration::MAX);
    world.run_until(Duration::from_secs(30)).unwrap();
    assert_eq!(fired_at(&world), None);
}

#[test]
fn the_clock_of_silence_goes_on_when_the_evidence_is_back() {
    let world = silent();
    // From 15 s on the partition is known to have nothing more.
    let from = Duration::from_secs(15);
    world.broker.with(|state| state.inputs.get_mut(&id(1)).unwrap().evidence_from = from);
    world.run_until(Duration::from_secs(30)).unwrap();
    let fired = fired_at(&world).unwrap();
    assert!((ms(17_000)..ms(17_700)).contains(&fired), "2 s and up to three ticks: {fired:?}");
}

#[test]
fn time_in_a_blocked_commit_is_not_silence() {
    // From 1 s to 31 s nothing can be committed; the records of the second partition come right after.
    let mut world = World::new([
        vec![record(0, T, "a"), record(500, T + 30_000, "a")],
        vec![record(500, T, "b"), record(31_100, T + 1, "b")],
    ]);
    world.config.sources[0].idle_timeout = Some(Duration::from_secs(2));
    let world = world
        .failing(|call, now| (call == Call::Commit && now < ms(31_000)).then_some(Fault::Retry));
    world.run_until(ms(32_000)).unwrap();
    assert_eq!(fired_at(&world), None, "nobody fell idle");
}

#[test]
fn a_suspended_machine_is_not_silence() {
    let mut jumped = false;
    let mut world = World::new([
        vec![record(0, T, "a"), record(500, T + 30_000, "a")],
        vec![record(500, T, "b"), record(3_600_100, T + 1, "b")],
    ]);
    world.config.sources[0].idle_timeout = Some(Duration::from_secs(2));
    let world = world.failing(move |call, now| {
        let jump = call == Call::Poll && now >= ms(1_000) && !std::mem::replace(&mut jumped, true);
        jump.then_some(Fault::Jump(Duration::from_hours(1)))
    });
    world.run_until(ms(3_601_500)).unwrap();
    assert_eq!(fired_at(&world), None, "nobody fell idle");
}

/// How often partitions fell idle.
fn times_idle(world: &World) -> u64 {
    let tallies = |client: &crate::memory::ClientState| {
        client
            .tallies
            .iter()
            .flat_map(|tally| tally.partitions.values())
            .map(|it| it.to_idle)
            .sum::<u64>()
    };
    world.broker.with(|state| state.clients.iter().map(tallies).sum())
}

#[test]
fn an_open_transaction_of_a_producer_is_not_silence() {
    let world = silent();
    world.broker.with(|state| {
        let mut hidden = record(1_000, T + 100, "b");
        hidden.stable = ms(20_000);
        state.inputs.get_mut(&id(1)).unwrap().slots.push(hidden);
    });
    world.run_until(ms(21_900)).unwrap();
    assert_eq!((fired_at(&world), times_idle(&world)), (None, 0));
    let world = silent();
    world.broker.with(|state| {
        let mut hidden = record(1_000, T + 100, "b");
        hidden.stable = ms(20_000);
        state.inputs.get_mut(&id(1)).unwrap().slots.push(hidden);
    });
    world.run_until(ms(24_000)).unwrap();
    assert!(world.topic(OutputTopic::Late).is_empty());
    assert_eq!(times_idle(&world), 1, "once the transaction has ended");
}

#[test]
fn a_partition_that_is_paused_is_not_silent() {
    // It has read an hour ahead of the other, which goes on second by second.
    let mut world = silent();
    let ahead = (0..4_000).map(|n| record(0, T + 3_600_000 + n * 50, "b")).collect();
    world.broker.with(|state| {
        state.poll_takes = ms(1);
        state.inputs.get_mut(&id(1)).unwrap().slots = ahead;
    });
    world.config.max_drift = Some(Duration::from_mins(1));
    world.run_until(ms(30_000)).unwrap();
    assert_eq!(times_idle(&world), 0);
    let snapshot = world.service(|client| client.watch.snapshot());
    assert!(snapshot.partitions[1].paused.is_some());
    assert!(world.topic(OutputTopic::Late).is_empty());
}

#[test]
fn time_in_which_state_is_read_back_is_not_silence() {
    let mut world = World::new([
        vec![record(0, T, "a"), record(3_500, T + 30_000, "a")],
        vec![record(500, T, "b"), record(31_500, T + 1, "b")],
    ]);
    world.config.sources[0].idle_timeout = Some(Duration::from_secs(2));
    let away = ms(3_000)..ms(31_000);
    let world = world.failing(move |call, now| {
        (call == Call::ReadChangelog && away.contains(&now)).then_some(Fault::Retry)
    });
    world.run_until(ms(2_000)).unwrap();
    world.broker.with(|state| {
        state.rebalances = [(ms(3_000), Polled::Assigned(vec![id(0), id(1)]))].into();
    });
    let mut pipeline = world.another("host");
    world.turns(&mut pipeline, ms(33_200));
    assert_eq!((world.results().len(), times_idle(&world)), (0, 0));
    assert!(world.topic(OutputTopic::Late).is_empty());
    assert_eq!(world.committed_offset(1), Some(2), "its last record has been read");
}

#[test]
fn a_broker_that_is_away_is_not_silence() {
    let mut world = World::new([
        vec![record(0, T, "a"), record(500, T + 30_000, "a")],
        vec![record(500, T, "b"), record(31_100, T + 1, "b")],
    ]);
    world.config.sources[0].idle_timeout = Some(Duration::from_secs(2));
    let away = ms(1_000)..ms(31_000);
    let world = world.failing(move |call, now| {
        (call == Call::Poll && away.contains(&now)).then_some(Fault::Retry)
    });
    let mut pipeline = world.another("host");
    world.turns(&mut pipeline, ms(1_000));
    // The leaders do not answer any more, and so nothing is known of what is in front.
    let evidence = |from| {
        world.broker.with(|state| {
            state.inputs.values_mut().for_each(|partition| partition.evidence_from = from);
        });
    };
    evidence(Duration::MAX);
    world.turns(&mut pipeline, ms(31_000));
    evidence(ms(31_000));
    world.turns(&mut pipeline, ms(32_900));
    assert_eq!((world.results().len(), times_idle(&world)), (0, 0));
    assert!(world.topic(OutputTopic::Late).is_empty());
    assert_eq!(world.committed_offset(1), Some(2), "its last record has been read");
}
