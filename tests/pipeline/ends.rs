//! How a run to the end of the input ends.

use std::time::Duration;

use tidegate::insight::Phase;
use tidegate::pipeline::{OutputTopic, PipelineError, Polled};

use crate::memory::{Call, Fault, Stop, WALL};
use crate::world::{Loop, World, id, marker, ms, record};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

#[test]
fn what_is_open_fires_at_the_end() {
    let world = World::new([vec![record(0, T, "a"), record(0, T + 12_000, "b")]]);
    world.run_to_the_end().unwrap();
    assert_eq!(world.results().len(), 2);
    assert_eq!(world.committed_offset(0), Some(2));
    let phases = world.service(|client| client.phases.clone());
    assert_eq!(phases[phases.len() - 2..], [Phase::Draining, Phase::Stopped]);
}

#[test]
fn an_empty_partition_is_at_its_end() {
    let world = World::new([vec![record(0, T, "a")], vec![]]);
    world.run_to_the_end().unwrap();
    assert_eq!(world.results().len(), 1);
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(1), Some(0)));
}

#[test]
fn an_empty_topic_ends_at_once() {
    let world = World::new([vec![], vec![]]);
    world.run_to_the_end().unwrap();
    assert_eq!(world.results().len(), 0);
    assert!(world.broker.with(|state| state.clock) < Duration::from_secs(1));
}

#[test]
fn markers_at_the_end_are_passed() {
    let world = World::new([vec![record(0, T, "a"), marker(0), marker(0)], vec![marker(0)]]);
    world.run_to_the_end().unwrap();
    assert_eq!(world.results().len(), 1);
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(3), Some(1)));
}

#[test]
fn the_end_is_where_it_was_at_the_assignment() {
    let later = record(60_000, T + 1_000, "a");
    let world = World::new([vec![record(0, T, "a"), later]]);
    world.run_to_the_end().unwrap();
    assert_eq!(world.committed_offset(0), Some(1));
}

#[test]
fn it_is_an_error_if_not_all_partitions_are_assigned() {
    let world = World::new([vec![record(0, T, "a")], vec![], vec![]]);
    world.broker.with(|state| {
        state.rebalances = [(Duration::ZERO, Polled::Assigned(vec![id(0)]))].into();
    });
    let error = world.run_to_the_end().unwrap_err();
    assert!(matches!(error, PipelineError::NotAllPartitions { missing: 2, all: 3 }), "{error}");
    assert!(error.to_string().contains("2 of 3 are assigned to other members"), "{error}");
    assert_eq!(world.commit_times(), []);
}

#[test]
fn it_is_an_error_if_a_partition_is_taken_away() {
    for lost in [false, true] {
        let world = World::new([vec![record(0, T, "a")], vec![], vec![]]);
        world.broker.with(|state| {
            let gone = vec![id(1)];
            let event = if lost { Polled::Lost(gone) } else { Polled::Revoking(gone) };
            state.rebalances.push_back((ms(100), event));
            // The first tick comes after that.
            state.poll_takes = ms(1);
        });
        let error = world.run_to_the_end().unwrap_err();
        assert!(matches!(error, PipelineError::NotAllPartitions { missing: 1, all: 3 }), "{error}");
    }
}

#[test]
fn the_last_commit_is_made_although_the_group_refuses_it_at_first() {
    let mut refusals = 3;
    let world = World::new([vec![record(0, T, "a")]]).failing(move |call, _| {
        if call == Call::Commit && refusals > 0 {
            refusals -= 1;
            return Some(Fault::NotAMember);
        }
        None
    });
    world.run_to_the_end().unwrap();
    assert_eq!(world.results().len(), 1);
    assert_eq!(world.committed_offset(0), Some(1));
}

#[test]
fn partitions_revoked_before_the_last_commit_are_an_error() {
    let world = World::new([vec![record(0, T, "a")]]).failing(|call, now| match call {
        Call::Commit if now < Duration::from_secs(5) => Some(Fault::NotAMember),
        _ => None,
    });
    world.broker.with(|state| {
        state.rebalances.push_back((ms(300), Polled::Revoking(vec![id(0)])));
    });
    let error = world.run_to_the_end().unwrap_err();
    assert!(matches!(error, PipelineError::NotAllPartitions { missing: 1, all: 1 }), "{error}");
    assert_eq!(world.topic(OutputTopic::Results), []);
}

#[test]
fn partitions_lost_before_the_last_commit_are_an_error() {
    let world = World::new([vec![record(0, T, "a")]]).failing(|call, now| match call {
        Call::Commit if now < Duration::from_secs(5) => Some(Fault::NotAMember),
        _ => None,
    });
    world.broker.with(|state| {
        state.rebalances.push_back((ms(300), Polled::Lost(vec![id(0)])));
    });
    assert!(world.run_to_the_end().is_err());
    assert_eq!(world.topic(OutputTopic::Results), []);
    assert_eq!(world.committed_offset(0), None);
}

/// One record is in an open window, and the next one comes long after the drain.
fn two_records() -> World {
    World::new([vec![record(0, T, "a"), record(60_000, T + 1_000, "a")], vec![]])
}

/// The process started anew.
fn next_start(world: &World, drain: Stop) -> Loop {
    world.broker.with(|state| {
        (state.stop, state.drain) = (Stop::Never, drain);
        let all = state.inputs.keys().copied().collect();
        state.rebalances.push_back((state.clock, Polled::Assigned(all)));
    });
    world.another("host")
}

#[test]
fn a_drain_fires_what_is_open_commits_and_ends() {
    let world = two_records();
    world.drain_at(ms(2_000)).unwrap();
    assert_eq!(world.results().len(), 1);
    assert_eq!(world.committed_offset(0), Some(1));
    assert!(world.broker.with(|state| state.clock) < Duration::from_secs(4));
    let phases = world.service(|client| client.phases.clone());
    assert_eq!(phases[phases.len() - 2..], [Phase::Draining, Phase::Stopped]);
    let snapshot = world.service(|client| client.watch.snapshot());
    assert_eq!((snapshot.partitions.len(), snapshot.input_partitions), (2, Some(2)));
}

#[test]
fn the_next_start_after_a_drain_goes_on_from_the_windows_that_it_fired() {
    let world = two_records();
    world.drain_at(ms(2_000)).unwrap();
    let mut next = next_start(&world, Stop::Never);
    world.turns(&mut next, ms(65_000));
    assert_eq!(world.results().len(), 1, "the window fired once");
    assert_eq!(world.topic(OutputTopic::Late).len(), 1);
    assert_eq!(world.committed_offset(0), Some(2));
}

#[test]
fn a_drain_asked_for_before_the_state_is_there_waits_for_it() {
    let world = two_records();
    world.run_until(ms(2_000)).unwrap();
    assert_eq!(world.results(), Vec::<String>::new());
    next_start(&world, Stop::At(ms(0))).run().unwrap();
    assert_eq!(world.results().len(), 1, "what the one before had open");
}

#[test]
fn a_drain_goes_on_when_its_commit_was_refused() {
    let mut refusals = 3;
    let world = two_records().failing(move |call, now| {
        if call == Call::Commit && now > ms(2_000) && refusals > 0 {
            refusals -= 1;
            return Some(Fault::NotAMember);
        }
        None
    });
    world.drain_at(ms(2_000)).unwrap();
    assert_eq!(world.results().len(), 1);
    assert_eq!(world.committed_offset(0), Some(1));
}

#[test]
fn a_drain_fires_only_what_is_here_and_says_how_much_there_is() {
    let mut world = World::new([vec![record(0, T, "a")], vec![], vec![]]);
    world.config.key.from = tidegate::config::KeyFrom::Message;
    world.broker.with(|state| {
        state.rebalances = [(Duration::ZERO, Polled::Assigned(vec![id(1)]))].into();
    });
    world.drain_at(ms(2_000)).unwrap();
    assert_eq!(world.results(), Vec::<String>::new());
    let snapshot = world.service(|client| client.watch.snapshot());
    assert_eq!((snapshot.partitions.len(), snapshot.input_partitions), (1, Some(3)));
}
