//! Why a window has not fired: each situation is brought about, and the answer read.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tidegate::event_time::{
    AdaptiveSettings, AllIdle, EventTime, MonotonicTime, Now, WatermarkStrategy,
};
use tidegate::insight::explain::{Cause, Explanation, Question, Terms, explain};
use tidegate::insight::{Overview, Watches};

use crate::memory::{Call, Fault, Slot, WALL};
use crate::world::{World, id, ms, record};

/// The beginning of a window, two windows ago.
const T: i64 = WALL - WALL % 10_000 - 20_000;

/// What is answered at this time.
fn ask_at(world: &World, at: Duration, question: &Question) -> Explanation {
    let watches = Watches::new(1);
    world.service(|client| client.watch = watches.of(0));
    let seen: Rc<RefCell<Option<(Overview, Duration)>>> = Rc::default();
    let look = Rc::clone(&seen);
    world.broker.with(|state| {
        let mut faults = std::mem::replace(&mut state.faults, Box::new(|_, _| None));
        state.faults = Box::new(move |call, now| {
            if now >= at && look.borrow().is_none() {
                *look.borrow_mut() = Some((watches.overview(), now));
            }
            faults(call, now)
        });
    });
    // Some of these worlds end without their last commit.
    let _ended = world.run_until(at + Duration::from_secs(2));
    let (overview, clock) = seen.borrow_mut().take().unwrap();
    let wall = EventTime(WALL + i64::try_from(clock.as_millis()).unwrap());
    let now = Now { monotonic: MonotonicTime(clock), wall };
    explain(&overview, &Terms::from(&world.config), question, now).unwrap()
}

/// Checks the cause, the holder and parts of the sentence of what is answered of the next window; the JSON.
#[track_caller]
fn check(world: &World, at: Duration, cause: Cause, holder: Option<i32>, said: &[&str]) -> Value {
    let told = ask_at(world, at, &Question::Next);
    assert_eq!(told.cause, Some(cause), "{told:#?}");
    assert_eq!(told.holder.as_ref().map(|holder| holder.partition), holder, "{told:#?}");
    for said in said {
        assert!(told.sentence.contains(said), "no {said:?} in {}", told.sentence);
    }
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!(json["cause"], cause.name());
    assert_eq!(json["sentence"], told.sentence);
    json
}

/// Records every 100 ms, whose event time goes along.
fn lively(count: u64) -> Vec<Slot> {
    (0..count).map(|n| record(n * 100, T + 100 * i64::try_from(n).unwrap(), "a")).collect()
}

fn idle_after(mut world: World, seconds: u64) -> World {
    world.config.sources[0].idle_timeout = Some(Duration::from_secs(seconds));
    world
}

#[test]
fn a_partition_without_data() {
    let world = idle_after(World::new([lively(200), vec![]]), 30);
    let said = ["in/1 has brought no record since it was assigned", "falls idle in"];
    let json = check(&world, ms(15_100), Cause::NoData, Some(1), &said);
    assert_eq!(json["numbers"]["accepted"], 0);
    assert_eq!(json["state"], "open");
    assert_eq!(json["window"]["start"], T);
    assert_eq!(json["holder"]["topic"], "in");
}

#[test]
fn a_silent_partition() {
    let world = idle_after(World::new([lively(300), vec![record(0, T, "a")]]), 30);
    let said = ["in/1 is caught up and has been silent for", "idle in", "falls idle in"];
    let json = check(&world, ms(15_100), Cause::Silent, Some(1), &said);
    assert_eq!(json["numbers"]["needed_event_time"], T + 11_000);
}

#[test]
fn silence_without_evidence() {
    let world = idle_after(World::new([lively(200), vec![record(0, T, "a")]]), 30);
    world.broker.with(|state| state.inputs.get_mut(&id(1)).unwrap().evidence_from = Duration::MAX);
    let said = ["in/1 has been silent for", "without evidence"];
    check(&world, ms(8_100), Cause::SilentWithoutEvidence, Some(1), &said);
}

#[test]
fn an_open_transaction_of_a_producer() {
    let mut hidden = record(100, T + 1, "a");
    hidden.stable = Duration::from_mins(1);
    let world = idle_after(World::new([lively(200), vec![record(0, T, "a"), hidden]]), 30);
    let said = ["in/1", "a producer's open transaction hides 1 offset in front of it"];
    let json = check(&world, ms(8_100), Cause::SilentWithoutEvidence, Some(1), &said);
    assert_eq!(json["numbers"]["unstable_offsets"], 1);
}

#[test]
fn a_partition_that_is_behind() {
    let many = (0..3_000).map(|n| record(0, T - 60_000 + n, "a")).collect();
    let world = World::new([many]);
    world.broker.with(|state| state.poll_takes = ms(5));
    let json = check(&world, ms(3_000), Cause::Behind, Some(0), &["records not read yet"]);
    assert!(json["numbers"]["lag"].as_u64().unwrap() > 1_000);
}

#[test]
fn event_time_that_has_not_come_so_far() {
    let world = World::new([lively(200)]);
    let said =
        ["in/0 has event time", "short of what is needed", "it fires when a record of event time"];
    check(&world, ms(3_000), Cause::EventTimeSlow, Some(0), &said);
}

#[test]
fn a_partition_that_came_back_from_idle() {
    let back = vec![record(0, T, "b"), record(14_000, T + 100, "b")];
    let world = idle_after(World::new([lively(300), back]), 3);
    let said = ["in/1 is back from idle, or came in, below the watermark"];
    check(&world, ms(14_500), Cause::BackFromIdle, Some(1), &said);
}

#[test]
fn a_generator_that_is_not_advanced() {
    let mut world = World::new([lively(200)]);
    world.config.sources[0].strategy = WatermarkStrategy::Punctuated;
    let said = ["there is no watermark yet", "none carried a marker that raises it"];
    let json = check(&world, ms(5_000), Cause::GeneratorNotAdvanced, Some(0), &said);
    assert!(json["numbers"]["accepted_since_rise"].as_u64().unwrap() > 10);
}

#[test]
fn seconds_read_as_milliseconds() {
    let world = World::new([(0..50).map(|n| record(n * 100, T / 1_000, "a")).collect()]);
    let said = ["refused as dead letters (ts_past:", "unit = \"s\""];
    let json = check(&world, ms(4_000), Cause::AllRefused, Some(0), &said);
    assert_eq!(json["numbers"]["reason"], "ts_past");
}

#[test]
fn a_blocked_output() {
    let world = World::new([lively(200)])
        .failing(|call, now| (call == Call::Commit && now > ms(1_000)).then_some(Fault::Retry));
    let json = check(&world, ms(6_000), Cause::OutputBlocked, None, &["the output is blocked"]);
    assert!(json["numbers"]["blocked_for_ms"].as_u64().unwrap() > 2_000);
}

#[test]
fn brokers_that_cannot_be_reached() {
    let world = World::new([lively(200)])
        .failing(|call, now| (call == Call::Poll && now > ms(1_000)).then_some(Fault::Retry));
    check(&world, ms(3_000), Cause::BrokersUnreachable, None, &["the brokers cannot be reached"]);
}

#[test]
fn a_loop_that_does_not_turn() {
    let mut jumped = false;
    let world = World::new([lively(200)]).failing(move |call, now| {
        let jump = call == Call::Poll && now >= ms(1_000) && !std::mem::replace(&mut jumped, true);
        jump.then_some(Fault::Jump(Duration::from_secs(20)))
    });
    // The first call after the jump finds the snapshot of before.
    check(&world, ms(2_000), Cause::LoopNotTicking, None, &["the loop has not turned for"]);
}

#[test]
fn silence_everywhere() {
    let mut world = idle_after(World::new([vec![record(0, T, "a")], vec![]]), 2);
    world.config.all_idle = AllIdle::Hold;
    check(&world, ms(6_000), Cause::AllIdle, None, &["all 2 partitions are idle", "\"hold\""]);
}

#[test]
fn state_that_is_being_read_back() {
    let world = World::new([lively(200)]);
    world.broker.with(|state| state.mood.slow_reading = 100);
    let told = ask_at(&world, ms(2_000), &Question::Next);
    assert_eq!(told.cause, Some(Cause::Restoring), "{told:#?}");
    assert_eq!(told.numbers.restoring_partitions, Some(1));
    assert!(told.sentence.contains("is being read back"), "{}", told.sentence);
}

#[test]
fn a_service_that_has_ended() {
    let world = World::new([lively(200)]);
    let watches = Watches::new(1);
    world.service(|client| client.watch = watches.of(0));
    world.run_until(ms(2_500)).unwrap();
    let now = Now { monotonic: MonotonicTime(ms(2_500)), wall: EventTime(WALL + 2_500) };
    let terms = Terms::from(&world.config);
    let told = explain(&watches.overview(), &terms, &Question::Next, now).unwrap();
    assert_eq!(told.cause, Some(Cause::Stopping), "{told:#?}");
    assert!(told.sentence.contains("it has ended and left windows open"), "{}", told.sentence);
}

#[test]
fn a_bound_that_has_grown() {
    // A record is 3 s behind, and by twice as much is the watermark held from then on.
    let mut records = lively(130);
    records[96] = record(9_600, T + 6_400, "a");
    let mut world = World::new([records]);
    let adaptive = AdaptiveSettings { initial: Some(ms(1_000)), ..AdaptiveSettings::default() };
    world.config.sources[0].strategy = WatermarkStrategy::Adaptive(adaptive);
    let said = ["its adaptive bound grew from 1.0 s to 6.", "it fires when a record of event time"];
    let json = check(&world, ms(12_500), Cause::GeneratorNotAdvanced, Some(0), &said);
    assert_eq!(json["numbers"]["bound_at_rise_ms"], 1_000);
}

#[test]
fn a_partition_that_is_paused_since_it_is_far_ahead() {
    let ahead = (0..2_000).map(|n| record(0, T + 600_000 + n * 100, "a")).collect();
    let mut world = World::new([lively(200), ahead]);
    world.config.max_drift = Some(Duration::from_mins(1));
    world.broker.with(|state| state.poll_takes = ms(2));
    let told = ask_at(&world, ms(3_000), &Question::WindowStart(EventTime(T + 800_000)));
    assert_eq!((told.holder.unwrap().partition, told.holders), (0, 2));
    let paused = &told.waiting_for[1];
    assert_eq!((paused.cause, paused.partition), (Cause::PausedByAlignment, 1));
    let ahead = paused.ahead_ms.unwrap();
    assert!((500_000..700_000).contains(&ahead), "{ahead}");
    let resumes_in = paused.resumes_at.unwrap() - told.watermark.unwrap();
    assert!((i64::try_from(ahead).unwrap() - 30_000 - resumes_in).abs() < 1_000, "{resumes_in}");
}

#[test]
fn nothing_assigned() {
    let world = World::new([lively(200)]);
    world.broker.with(|state| state.rebalances.clear());
    let told = ask_at(&world, ms(2_000), &Question::Next);
    assert_eq!(told.cause, Some(Cause::NotAssigned), "{told:#?}");
}

#[test]
fn a_window_that_has_fired_and_one_that_is_closed() {
    let world = World::new([lively(300)]);
    let told = ask_at(&world, ms(15_000), &Question::WindowStart(EventTime(T)));
    let json = serde_json::to_value(&told).unwrap();
    assert_eq!((json["state"].as_str(), json["cause"].is_null()), (Some("closed"), true));
    assert!(told.sentence.contains("has fired with 1 pane"), "{}", told.sentence);
}

#[test]
fn every_cause_is_brought_about_here() {
    let text = include_str!("explain.rs");
    for cause in Cause::ALL {
        let checked = text.matches(&format!("Cause::{cause:?},")).count()
            + text.matches(&format!("Some(Cause::{cause:?}),")).count();
        assert!(checked > 0, "nothing brings {cause:?} about");
    }
}
