//! What becomes of partitions that come and go.

use tidegate::insight::{Phase, Tally};
use tidegate::pipeline::{OutputTopic, PipelineError, Polled};

use crate::memory::{Call, Fault, Group, Slot, WALL};
use crate::random::Random;
use crate::world::{World, id, ms, record};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

/// A slot that becomes a dead letter.
fn broken(at: u64) -> Slot {
    record(at, T, "a\"")
}

fn records_counted(world: &World) -> u64 {
    let of = |tally: &Tally| tally.partitions.values().map(|of| of.records).sum::<u64>();
    world.broker.with(|state| state.clients.iter().flat_map(|client| &client.tallies).map(of).sum())
}

#[test]
fn what_was_read_is_committed_before_a_partition_is_given_up() {
    let world = World::new([vec![broken(60)], vec![broken(60)]]);
    world.broker.with(|state| {
        state.rebalances.push_back((ms(100), Polled::Revoking(vec![id(1)])));
    });
    world.run_until(ms(5_000)).unwrap();
    assert_eq!(world.commit_times(), [(50, 0), (100, 2)]);
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(1), Some(1)));
}

#[test]
fn what_cannot_be_committed_of_a_partition_that_goes_is_left_to_who_gets_it() {
    let mut world = World::new([vec![broken(60)], vec![broken(60)]]).failing(|call, now| {
        (call == Call::Commit && now > ms(80) && now < ms(2_000)).then_some(Fault::NotAMember)
    });
    world.config.key.partial = true;
    world.broker.with(|state| {
        state.rebalances.push_back((ms(100), Polled::Revoking(vec![id(1)])));
    });
    world.run_until(ms(6_000)).unwrap();
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 1, "that of the partition kept");
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(1), Some(0)));
}

#[test]
fn what_was_read_of_lost_partitions_is_read_again_and_counted_once() {
    let world = World::new([vec![broken(60), broken(300)], vec![broken(60)]]);
    world.broker.with(|state| {
        state.rebalances.push_back((ms(500), Polled::Lost(vec![id(0), id(1)])));
        state.rebalances.push_back((ms(2_500), Polled::Assigned(vec![id(0), id(1)])));
    });
    world.run_until(ms(6_000)).unwrap();
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 3);
    assert_eq!(records_counted(&world), 3);
    let late = world.commit_times().iter().all(|(at, _)| *at == 50 || *at >= 2_500);
    assert!(late, "not while they were lost");
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(2), Some(1)));
}

#[test]
fn lost_partitions_that_do_not_come_back_leave_nothing() {
    let world = World::new([vec![broken(60)], vec![]]);
    world.broker.with(|state| {
        state.rebalances.push_back((ms(500), Polled::Lost(vec![id(0), id(1)])));
    });
    world.stop_without_commit(ms(6_000));
    assert_eq!(world.topic(OutputTopic::DeadLetter), []);
    assert_eq!(world.commit_times(), [(50, 0)]);
}

#[test]
fn partitions_that_come_one_by_one_are_all_read() {
    let world = World::new([vec![broken(0)], vec![broken(0)]]);
    world.broker.with(|state| {
        state.rebalances = [
            (ms(0), Polled::Assigned(vec![])),
            (ms(100), Polled::Assigned(vec![id(0)])),
            (ms(1_200), Polled::Assigned(vec![id(1)])),
        ]
        .into();
    });
    world.run_until(ms(5_000)).unwrap();
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 2);
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(1), Some(1)));
}

#[test]
fn with_a_field_as_the_key_nothing_comes_out_while_a_partition_is_elsewhere() {
    let world = World::new([vec![broken(60), broken(3_000)], vec![broken(60)]]);
    world.broker.with(|state| {
        state.rebalances.push_back((ms(2_000), Polled::Revoking(vec![id(1)])));
        state.rebalances.push_back((ms(9_000), Polled::Assigned(vec![id(1)])));
    });
    world.run_until(ms(15_000)).unwrap();
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 3);
    assert!(world.commit_times().iter().all(|(at, _)| !(2_001..9_000).contains(at)));
}

#[test]
fn with_a_field_as_the_key_a_partition_that_stays_away_is_an_error() {
    let world = World::new([vec![broken(60)], vec![broken(60)]]);
    world.broker.with(|state| {
        state.rebalances.push_back((ms(2_000), Polled::Revoking(vec![id(1)])));
    });
    let error = world.run_until(ms(60_000)).unwrap_err();
    assert!(matches!(error, PipelineError::PartitionsElsewhere { .. }), "{error}");
    let now = world.broker.with(|state| state.clock);
    // The session of 10 s, in which a member that was killed keeps its partitions, and the words of the group after it.
    assert!((ms(22_000)..ms(23_000)).contains(&now), "{now:?}");
}

#[test]
fn a_partition_that_goes_in_the_middle_of_its_restore_comes_back_as_it_is_then() {
    let late =
        |at| vec![record(at, T, "a"), record(at + 3_000, T + 1_000, "a"), record(9_000, T, "b")];
    let mut world = World::new([late(60), late(70)]);
    world.config.key.partial = true;
    world.run_until(ms(2_000)).unwrap();
    let is_told = |event| {
        world.broker.with(|state| state.rebalances.push_back((state.clock, event)));
    };
    let (mut one, mut other) = (world.another("one"), world.another("other"));
    // One has read what is committed of both, and nothing of the changelog, when the second is taken away.
    world.broker.with(|state| state.mood.slow_reading = 100);
    is_told(Polled::Assigned(vec![id(0), id(1)]));
    world.turns(&mut one, ms(2_100));
    is_told(Polled::Revoking(vec![id(1)]));
    world.turns(&mut one, ms(2_300));
    world.broker.with(|state| state.mood.slow_reading = 0);
    world.turns(&mut one, ms(2_600));
    // The other commits more than once.
    is_told(Polled::Assigned(vec![id(1)]));
    world.turns(&mut other, ms(6_000));
    is_told(Polled::Revoking(vec![id(1)]));
    world.turns(&mut other, ms(6_500));
    is_told(Polled::Assigned(vec![id(1)]));
    world.turns(&mut one, ms(12_000));
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(3), Some(3)));
}

#[test]
fn one_that_was_blocked_when_it_lost_everything_says_that_it_stands_by() {
    let world = World::new([vec![broken(60)], vec![broken(60)]])
        .failing(|call, _| (call == Call::Committed).then_some(Fault::Retry));
    let mut one = world.another("one");
    let phase = || world.broker.with(|state| state.clients[1].watch.snapshot().phase.clone());
    world.turns(&mut one, ms(1_000));
    assert!(matches!(phase(), Phase::Blocked(_)), "{:?}", phase());
    world.broker.with(|state| {
        state.rebalances.push_back((state.clock, Polled::Lost(vec![id(0), id(1)])));
    });
    while world.broker.with(|state| !state.rebalances.is_empty()) {
        one.turn().unwrap();
    }
    world.broker.with(|state| state.group = Some(Group::new(Random(1))));
    world.another("other").turn().unwrap();
    world.turns(&mut one, ms(5_000));
    assert_eq!(
        phase(),
        Phase::Standby("other reads the input, and one instance has to read all of it".into())
    );
}

#[test]
fn a_commit_whose_answer_was_lost_is_not_taken_for_another_members_commit() {
    let mut world = World::new([vec![broken(60), broken(70)]]).failing(|call, now| {
        match (call, now < ms(1_500)) {
            (Call::Commit, true) if now > ms(80) => Some(Fault::Abort),
            _ => None,
        }
    });
    world.config.key.partial = true;
    let is_told = |event| {
        world.broker.with(|state| state.rebalances.push_back((state.clock, event)));
    };
    world.broker.with(|state| state.rebalances.clear());
    let (mut one, mut other) = (world.another("one"), world.another("other"));
    is_told(Polled::Assigned(vec![id(0)]));
    world.turns(&mut one, ms(1_000));
    world.broker.with(|state| state.mood.slow_reading = 100);
    world.turns(&mut one, ms(1_200));
    is_told(Polled::Lost(vec![id(0)]));
    world.turns(&mut one, ms(1_600));
    world.broker.with(|state| state.mood.slow_reading = 0);
    // The other reads the same, and its commit has the sequence of the one that was not made.
    is_told(Polled::Assigned(vec![id(0)]));
    world.turns(&mut other, ms(3_000));
    is_told(Polled::Revoking(vec![id(0)]));
    world.turns(&mut other, ms(3_500));
    is_told(Polled::Assigned(vec![id(0)]));
    world.turns(&mut one, ms(5_000));
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 2);
    assert_eq!(records_counted(&world), 2);
}
