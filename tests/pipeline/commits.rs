//! When a transaction is committed, and what is in it.

use std::time::Duration;

use tidegate::insight::Phase;
use tidegate::pipeline::OutputTopic;

use crate::memory::{Call, Fault, WALL};
use crate::world::{World, marker, ms, record};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

/// A shard that is new is written at once, so that others know of it; nothing else is in that commit here.
const FIRST: (u128, usize) = (50, 0);

/// A slot that becomes a dead letter.
fn broken(at: u64) -> crate::memory::Slot {
    record(at, T, "a\"")
}

#[test]
fn an_on_time_pane_is_committed_at_once() {
    let world = World::new([vec![record(0, T, "a"), record(300, T + 11_000, "a")]]);
    world.run_until(ms(900)).unwrap();
    // Found at the tick at 400 ms; the interval is a second.
    assert_eq!(world.commit_times(), [FIRST, (401, 1)]);
    assert_eq!(world.committed_offset(0), Some(2));
}

#[test]
fn on_time_panes_are_committed_50_ms_apart_at_least() {
    let firing = |at, window: i64| record(at, T + 1_000 + window * 10_000, "a");
    let slots = vec![record(0, T, "a"), firing(400, 1), firing(410, 2), firing(430, 3)];
    let mut world = World::new([slots]);
    world.config.emit_interval = Duration::ZERO;
    world.run_until(ms(900)).unwrap();
    assert_eq!(world.commit_times(), [FIRST, (400, 1), (450, 2)]);
}

#[test]
fn everything_else_is_committed_after_the_interval() {
    let world = World::new([vec![broken(300), broken(700), broken(1_500)]]);
    world.run_until(ms(3_500)).unwrap();
    assert_eq!(world.commit_times(), [FIRST, (1_050, 2), (2_050, 1)]);
}

#[test]
fn late_panes_wait_for_the_interval() {
    let slots = vec![record(0, T, "a"), record(300, T + 11_000, "a"), record(500, T, "a")];
    let mut world = World::new([slots]);
    world.config.allowed_lateness = Duration::from_secs(30);
    world.run_until(ms(5_000)).unwrap();
    assert_eq!(world.commit_times(), [FIRST, (401, 1), (1_401, 1)]);
    assert!(world.results()[1].ends_with(r#""pane":{"timing":"late","index":1}}"#));
}

#[test]
fn without_anything_new_there_is_no_transaction() {
    let world = World::new([vec![record(100, T, "a")], vec![]]);
    world.run_until(Duration::from_mins(1)).unwrap();
    assert_eq!(world.commit_times(), [FIRST, (1_050, 0)], "the state and the offset alone, once");
}

#[test]
fn the_first_commit_after_an_assignment_is_made_although_nothing_moved() {
    let world = World::new([vec![], vec![]]);
    world.run_until(Duration::from_secs(10)).unwrap();
    assert_eq!(world.commit_times(), [FIRST]);
    assert_eq!(world.committed_offset(1), Some(0));
}

#[test]
fn the_offset_committed_passes_what_no_reader_sees() {
    let world = World::new([vec![record(0, T, "a"), marker(0), marker(0)], vec![marker(0)]]);
    world.run_until(ms(2_000)).unwrap();
    assert_eq!((world.committed_offset(0), world.committed_offset(1)), (Some(3), Some(1)));
}

#[test]
fn a_marker_alone_moves_the_offset_too() {
    let world = World::new([vec![record(0, T, "a"), marker(2_500)]]);
    world.run_until(ms(5_000)).unwrap();
    assert_eq!(world.commit_times(), [FIRST, (1_050, 0), (3_050, 0)]);
    assert_eq!(world.committed_offset(0), Some(2));
}

/// A window of this many keys, and the record that fires it.
fn large_firing(keys: usize) -> World {
    let mut slots: Vec<_> = (0..keys).map(|key| record(0, T, &key.to_string())).collect();
    slots.push(record(0, T + 11_000, "next"));
    World::new([slots])
}

#[test]
fn a_firing_of_more_than_50_000_panes_spans_several_transactions() {
    let world = large_firing(50_010);
    world.run_until(ms(3_000)).unwrap();
    let sizes: Vec<_> = world.commits().iter().map(|commit| commit.messages).collect();
    assert_eq!(sizes, [0, 50_000, 10]);
}

#[test]
fn a_large_firing_goes_on_when_the_group_refuses_its_first_part() {
    let mut commits = 0;
    let world = large_firing(50_010).failing(move |call, _| {
        commits += u32::from(call == Call::Commit);
        (call == Call::Commit && commits == 2).then_some(Fault::NotAMember)
    });
    world.run_until(ms(5_000)).unwrap();
    let sizes: Vec<_> = world.commits().iter().map(|commit| commit.messages).collect();
    assert_eq!(sizes, [0, 50_000, 10]);
}

#[test]
fn a_stop_ends_a_large_firing_whose_commit_fails() {
    let world =
        large_firing(50_010).failing(|call, _| (call == Call::Commit).then_some(Fault::Retry));
    world.stop_without_commit(ms(3_000));
    assert_eq!(world.commit_times(), []);
}

#[test]
fn a_stop_while_a_commit_fails_ends_without_it() {
    for fault in [Fault::Retry, Fault::Abort] {
        let world = World::new([vec![broken(0)]])
            .failing(move |call, _| (call == Call::Commit).then_some(fault));
        world.stop_without_commit(ms(30_000));
        assert_eq!(world.commit_times(), [], "{fault:?}");
        assert_eq!(world.topic(OutputTopic::DeadLetter), []);
        let now = world.broker.with(|state| state.clock);
        assert!(now < ms(36_000), "the pause is at most 5 s: {now:?}");
    }
}

#[test]
fn what_a_stop_cannot_commit_is_undone_and_left_to_the_next_start() {
    let world = World::new([vec![broken(100)]])
        .failing(|call, now| (call == Call::Commit && now > ms(300)).then_some(Fault::Abort));
    world.run_until(ms(500)).unwrap();
    assert_eq!(world.commit_times(), [FIRST]);
    assert_eq!(world.committed_offset(0), Some(0));
    assert_eq!(world.topic(OutputTopic::DeadLetter), []);
}

#[test]
fn what_could_not_be_sent_before_a_stop_is_not_passed_by_a_commit_after_it() {
    // The brokers are away when the record comes, and back for the last commit.
    let world = World::new([vec![broken(100)]]).failing(|call, now| match call {
        Call::Send(_) if now < ms(1_600) => Some(Fault::Retry),
        _ => None,
    });
    world.stop_without_commit(ms(700));
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 0);
    assert_eq!(world.committed_offset(0), None);
}

#[test]
fn a_commit_whose_answer_was_lost_is_not_made_twice() {
    let mut lost = false;
    let world = World::new([vec![broken(0), broken(1_500)]]).failing(move |call, _| {
        let first = call == Call::Commit && !std::mem::replace(&mut lost, true);
        first.then_some(Fault::AbortAfterCommit)
    });
    world.run_until(ms(3_500)).unwrap();
    assert_eq!(world.commit_times(), [(50, 1), (1_550, 1)]);
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 2);
    assert_eq!(world.service(|client| client.tallies.len()), 2, "counted once each");
}

#[test]
fn aborts_in_a_row_are_apart() {
    let world = World::new([vec![broken(0)]]).failing(|call, now| {
        (call == Call::Commit && now < Duration::from_secs(10)).then_some(Fault::Abort)
    });
    world.run_until(Duration::from_secs(20)).unwrap();
    let (aborts, commits) =
        world.broker.with(|state| (state.clients[0].aborts, state.commits.len()));
    assert_eq!(commits, 1);
    assert!((2..=50).contains(&aborts), "{aborts} aborts in 9 s");
}

#[test]
fn progress_is_in_the_commit_that_saves_the_clock() {
    // After an abort the shards have clocks of their own, and these rise by records between two ticks.
    let mut aborted = false;
    let slots = vec![record(0, T, "a"), record(0, T + 11_000, "a"), record(10, T + 21_000, "a")];
    let mut world = World::new([slots]).failing(move |call, _| {
        let abort = call == Call::Commit && !std::mem::replace(&mut aborted, true);
        abort.then_some(Fault::Abort)
    });
    world.config.emit_interval = Duration::ZERO;
    world.config.results.progress = true;
    world.config.key.partial = true;
    world.run_until(ms(3_000)).unwrap();
    let told = world
        .topic(OutputTopic::Results)
        .iter()
        .filter(|message| crate::view::header(message, "tidegate.progress").is_some())
        .count();
    assert_eq!((told, world.commit_times()), (1, vec![(100, 3)]));
}

#[test]
fn phases_follow_what_the_loop_does() {
    let world = World::new([vec![broken(2_500)]]).failing(|call, now| match call {
        Call::Start if now < ms(500) => Some(Fault::Retry),
        Call::Commit if now > ms(2_000) && now < ms(4_000) => Some(Fault::Retry),
        _ => None,
    });
    world.run_until(ms(8_000)).unwrap();
    let phases = world.service(|client| client.phases.clone());
    let blocked = phases.iter().filter(|phase| matches!(phase, Phase::Blocked(_))).count();
    let rest: Vec<_> =
        phases.into_iter().filter(|phase| !matches!(phase, Phase::Blocked(_))).collect();
    assert_eq!(
        rest,
        [Phase::Starting, Phase::Running, Phase::Running, Phase::Stopping, Phase::Stopped]
    );
    assert!(blocked >= 2, "each attempt says that it is blocked: {blocked}");
}
