//! What becomes of a commit whose offsets the group has forgotten, as after a broker was killed in the middle of it, while
//! everything else of it is there.

use tidegate::config::KeyFrom;
use tidegate::pipeline::{CommittedOffset, OutputTopic, PipelineError, Polled};

use crate::memory::{Call, Fault, Input, Slot, WALL};
use crate::world::{Loop, World, id, ms, record, slot};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

/// A slot that becomes a dead letter.
fn broken(at: u64) -> Slot {
    record(at, T, "a\"")
}

fn forgets(world: &World, percent: u64) {
    world.broker.with(|state| state.mood.forgotten = percent);
}

/// Another process that has these partitions now.
fn takes_over(world: &World, name: &str, partitions: &[i32]) -> Loop {
    let partitions = partitions.iter().copied().map(id).collect();
    world.broker.with(|state| {
        state.rebalances.push_back((state.clock, Polled::Assigned(partitions)));
    });
    world.another(name)
}

/// What the group remembers of the first partitions: offsets and sequences.
fn remembered(world: &World) -> Vec<(i64, u64)> {
    world.broker.with(|state| {
        let of = |committed: &CommittedOffset| (committed.offset, committed.mark.unwrap().sequence);
        state.offsets.values().map(of).collect()
    })
}

#[test]
fn its_rows_are_not_written_again_and_the_group_has_its_offsets_back() {
    for per_partition in [false, true] {
        let mut world = World::new([
            vec![record(100, T, "a"), record(1_500, T + 11_000, "a"), broken(2_500)],
            vec![record(100, T, "b"), record(1_600, T + 11_000, "b")],
        ]);
        world.config.key.partial = per_partition;
        let mut one = world.another("one");
        world.turns(&mut one, ms(1_300));
        let before = remembered(&world);
        // Several commits in a row: rows, and a dead letter.
        forgets(&world, 100);
        world.turns(&mut one, ms(5_000));
        forgets(&world, 0);
        assert_eq!(remembered(&world), before);
        let (commits, rows) = (world.commits().len(), world.results());
        assert_eq!((rows.len(), world.topic(OutputTopic::DeadLetter).len()), (2, 1));

        // Nothing new comes.
        let mut other = takes_over(&world, "other", &[0, 1]);
        world.turns(&mut other, ms(10_000));
        assert_eq!(world.results(), rows);
        assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 1);
        assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(3), Some(2)));
        assert_eq!(world.commits().len(), commits + 1, "the offsets alone, once");
        assert_eq!(
            world.broker.with(|state| state.offsets.clone()),
            world.broker.with(|state| state.acknowledged.clone())
        );
    }
}

#[test]
fn a_partition_that_was_new_in_it_is_not_asked_for_again() {
    let world = World::new([vec![broken(100)], vec![broken(3_000)]]);
    world.broker.with(|state| {
        state.inputs.get_mut(&id(1)).unwrap().made = ms(2_000);
        state.rebalances = [(ms(0), Polled::Assigned(vec![id(0)]))].into();
        state.rebalances.push_back((ms(2_000), Polled::Assigned(vec![id(1)])));
    });
    let mut one = world.another("one");
    world.turns(&mut one, ms(1_900));
    forgets(&world, 100);
    world.turns(&mut one, ms(5_000));
    forgets(&world, 0);
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(1), None));
    let mut other = takes_over(&world, "other", &[0, 1]);
    world.turns(&mut other, ms(7_000));
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(1), Some(1)));
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 2);
}

#[test]
fn offsets_that_somebody_has_moved_are_an_error_all_the_same() {
    let world = World::new([vec![broken(100), broken(1_500), broken(1_600)]]);
    let mut one = world.another("one");
    world.turns(&mut one, ms(1_300));
    forgets(&world, 100);
    world.turns(&mut one, ms(5_000));
    forgets(&world, 0);
    let group = world.broker.with(|state| state.offsets[&id(0)]);
    assert_eq!(group.offset, 1);
    // By hand, which leaves no mark; and past everything.
    for moved in [
        CommittedOffset { offset: 0, mark: None },
        CommittedOffset { offset: 1, mark: None },
        CommittedOffset { offset: 4, mark: group.mark },
    ] {
        world.broker.with(|state| state.offsets.insert(id(0), moved));
        let mut other = takes_over(&world, "other", &[0]);
        let error = loop {
            if let Err(error) = other.turn() {
                break error;
            }
        };
        let PipelineError::State(text) = error else { panic!("{error}") };
        assert!(text.contains("somebody has moved it; `tidegate reset`"), "{text}");
    }
}

#[test]
fn what_is_not_committed_does_not_count() {
    let world = World::new([vec![broken(100), broken(1_500)]]).failing(|call, now| match call {
        Call::Commit if now > ms(1_400) && now < ms(15_000) => Some(Fault::Abort),
        Call::Abort => Some(Fault::Retry),
        _ => None,
    });
    // What is sent is at the brokers at once.
    world.broker.with(|state| state.mood.eager = 100);
    let mut one = world.another("one");
    world.turns(&mut one, ms(4_000));
    let (end, stable) = world.broker.with(|state| {
        let log = &state.outputs[&(OutputTopic::Changelog(0), 0)];
        (log.end(), log.last_stable())
    });
    assert!(stable < end, "a transaction is open in the changelog");
    drop(one);
    // Until it ends by its timeout nobody knows what becomes of it.
    let restores = || world.broker.with(|state| state.clients[2].restores.len());
    let mut other = takes_over(&world, "other", &[0]);
    world.turns(&mut other, ms(12_000));
    assert_eq!(restores(), 0);
    world.turns(&mut other, ms(25_000));
    assert_eq!((restores(), world.committed_offset(0)), (1, Some(2)));
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 2);
}

#[test]
fn a_transaction_that_never_ends_is_waited_for_half_a_minute() {
    let world = World::new([vec![broken(100)]]);
    let mut one = world.another("one");
    world.turns(&mut one, ms(2_000));
    world.broker.with(|state| {
        let log = state.outputs.get_mut(&(OutputTopic::Changelog(0), 0)).unwrap();
        let last = log.committed().last().unwrap().1.clone();
        log.append(Some(u64::MAX), last);
    });
    let restores = || world.broker.with(|state| state.clients[2].restores.len());
    let mut other = takes_over(&world, "other", &[0]);
    world.turns(&mut other, ms(31_000));
    assert_eq!(restores(), 0);
    world.turns(&mut other, ms(34_000));
    assert_eq!((restores(), world.committed_offset(0)), (1, Some(1)));
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 1);
}

#[test]
fn after_a_change_of_the_key_what_another_shard_has_written_does_not_count() {
    let keyed = |at, ts| {
        let content = record(at, ts, "a").content.unwrap();
        slot(at, Input { key: Some(b"a".to_vec()), ..(*content).clone() })
    };
    let mut world = World::new([
        vec![keyed(0, T), keyed(3_000, T + 100_000), keyed(3_000, T + 200_000)],
        vec![keyed(0, T + 5_000), keyed(3_000, T + 30_000), keyed(3_000, T + 50_000)],
    ]);
    world.run_to_the_end().unwrap();
    world.config.key.from = KeyFrom::Message;
    // The first partition goes on where the state is that both shared, and the second one has to find it there.
    let mut one = takes_over(&world, "one", &[0]);
    world.turns(&mut one, ms(6_000));
    let mut other = takes_over(&world, "other", &[1]);
    world.turns(&mut other, ms(9_000));
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(3), Some(3)));
    assert_eq!((world.results().len(), world.topic(OutputTopic::Late)), (3, vec![]));
}
