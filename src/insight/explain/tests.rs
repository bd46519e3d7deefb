//! What has no need of a broker: the list of causes, the range of what can be asked, subtasks beside each other, the log.

use std::collections::BTreeSet;

use super::*;
use crate::event_time::{MonotonicTime, Paused, WatermarkStatus};
use crate::insight::{PartitionHistory, PartitionSnapshot, RestoringPartition, Watches};

/// 12:03:46.0 in a window of a minute.
const NOW: EventTime = EventTime(1_800_014_626_000);
const WINDOW: EventTime = EventTime(1_800_014_580_000);

fn terms() -> Terms {
    Terms {
        topics: vec!["orders".to_owned()],
        sources: vec![SourceTerms {
            strategy: "bounded_out_of_orderness".to_owned(),
            idle_timeout: Some(Duration::from_secs(30)),
        }],
        windows: TumblingWindows::new(Duration::from_mins(1), 0).unwrap(),
        allowed_lateness: Duration::ZERO,
        all_idle: AllIdle::Hold,
        emit_interval: Duration::from_millis(200),
    }
}

/// As many seconds after the start of the process; the wall clock goes along.
fn now(seconds: u64) -> Now {
    let passed = Duration::from_secs(seconds);
    Now { monotonic: MonotonicTime(passed), wall: NOW + passed }
}

/// A partition that has brought records up to some seconds ago, with a bound of 2 s.
fn partition(partition: i32, newest_behind: u64) -> PartitionSnapshot {
    let newest = NOW - Duration::from_secs(newest_behind);
    PartitionSnapshot {
        id: PartitionId { topic: 0, partition },
        watermark: Some(newest - Duration::from_millis(2_001)),
        max_event_time: Some(newest),
        status: WatermarkStatus::Active,
        bound: Some(Duration::from_secs(2)),
        gauges: Vec::new(),
        idle_in: Some(Duration::from_secs(20)),
        paused: None,
        caught_up: true,
        position: Some(100),
        end_offset: Some(100),
        last_stable_offset: Some(100),
        committed: None,
        history: PartitionHistory {
            records: 100,
            accepted: 100,
            last_record: Some(MonotonicTime::default()),
            bound_at_rise: Some(Duration::from_secs(2)),
            ..PartitionHistory::default()
        },
    }
}

fn snapshot(partitions: Vec<PartitionSnapshot>) -> Snapshot {
    let least = partitions.iter().min_by_key(|partition| partition.watermark);
    let (watermark, holder) = (least.and_then(|p| p.watermark), least.map(|p| p.id));
    Snapshot {
        taken: Some(MonotonicTime::default()),
        phase: Phase::Running,
        watermark,
        least_clock: watermark,
        holder,
        partitions,
        open: terms().windows.assign(WINDOW).into_iter().collect(),
        ..Snapshot::default()
    }
}

fn overview(snapshots: Vec<Snapshot>) -> Overview {
    let watches = Watches::new(u16::try_from(snapshots.len()).unwrap());
    for (number, snapshot) in (0..).zip(snapshots) {
        watches.of(number).publish(snapshot);
    }
    watches.overview()
}

fn told(snapshots: Vec<Snapshot>, question: &Question) -> Explanation {
    explain(&overview(snapshots), &terms(), question, now(0)).unwrap()
}

/// The next in the list; what is added to the causes has to be added here, and then to the list.
fn next(cause: Cause) -> Option<Cause> {
    Some(match cause {
        Cause::NoData => Cause::Silent,
        Cause::Silent => Cause::SilentWithoutEvidence,
        Cause::SilentWithoutEvidence => Cause::Behind,
        Cause::Behind => Cause::PausedByAlignment,
        Cause::PausedByAlignment => Cause::EventTimeSlow,
        Cause::EventTimeSlow => Cause::BackFromIdle,
        Cause::BackFromIdle => Cause::GeneratorNotAdvanced,
        Cause::GeneratorNotAdvanced => Cause::AllRefused,
        Cause::AllRefused => Cause::OutputBlocked,
        Cause::OutputBlocked => Cause::BrokersUnreachable,
        Cause::BrokersUnreachable => Cause::LoopNotTicking,
        Cause::LoopNotTicking => Cause::AllIdle,
        Cause::AllIdle => Cause::Restoring,
        Cause::Restoring => Cause::NotAssigned,
        Cause::NotAssigned => Cause::Stopping,
        Cause::Stopping => return None,
    })
}

#[test]
fn the_documented_causes_are_those_that_there_are() {
    let all: Vec<_> = std::iter::successors(Some(Cause::NoData), |cause| next(*cause)).collect();
    assert_eq!(all, Cause::ALL);
    for cause in Cause::ALL {
        assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
    }
    let text = include_str!("../../../deploy/README.md");
    let (_, section) = text.split_once("\n## Why a window has not fired\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<Vec<&str>> = rows
        .map(|row| {
            row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()
        })
        .collect();
    let named: Vec<_> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(named, Cause::ALL.map(Cause::name));
    for row in &rows {
        assert!(
            matches!(row[..], [_, means, todo] if !means.is_empty() && !todo.is_empty()),
            "{row:?}"
        );
    }
    let meanings: BTreeSet<_> = rows.iter().map(|row| row[1]).collect();
    assert_eq!(meanings.len(), rows.len(), "two causes mean the same");
}

#[test]
fn a_partition_that_is_paused_is_named_with_how_far_it_is_ahead_and_until_when() {
    let paused =
        Paused { ahead: Duration::from_secs(20), resumes_at: NOW - Duration::from_secs(12) };
    let ahead = PartitionSnapshot { paused: Some(paused), ..partition(3, 2) };
    let told = told(vec![snapshot(vec![ahead, partition(0, 40)])], &Question::Next);
    assert_eq!(told.holder.unwrap().partition, 0);
    let [holder, waiting] = &told.waiting_for[..] else { panic!("{:?}", told.waiting_for) };
    assert_eq!((holder.cause, holder.ahead_ms), (Cause::EventTimeSlow, None));
    assert_eq!((waiting.partition, waiting.cause), (3, Cause::PausedByAlignment));
    assert_eq!(waiting.ahead_ms, Some(20_000));
    assert_eq!(waiting.resumes_at, Some(paused.resumes_at.0));
}

#[test]
fn a_commit_that_runs_for_long_is_a_blocked_output() {
    let watches = Watches::new(1);
    let watch = watches.of(0);
    watch.publish(snapshot(vec![partition(0, 40)]));
    watch.set_committing(Some(MonotonicTime::default()));
    let ask = |seconds| {
        let told = explain(&watches.overview(), &terms(), &Question::Next, now(seconds)).unwrap();
        (told.cause.unwrap(), told.numbers.blocked_for_ms, told.sentence)
    };
    assert_eq!(ask(2).0, Cause::EventTimeSlow);
    let (cause, blocked, sentence) = ask(9);
    assert_eq!((cause, blocked), (Cause::OutputBlocked, Some(9_000)));
    assert_eq!(
        sentence,
        "Window 12:03:00 - 12:04:00 has not fired: the output is blocked: a commit has been running for 9.0 s; it \
         fires when the commit has ended"
    );
    // Nothing is published meanwhile, and that is not the loop's fault.
    watch.set_committing(None);
    assert_eq!(ask(9).0, Cause::LoopNotTicking);
}

#[test]
fn the_end_of_the_service_comes_before_all_that_holds() {
    for (phase, said) in [
        (Phase::Draining, "fires what is open before it ends"),
        (Phase::Stopping, "commits and leaves windows open"),
        (Phase::Stopped, "has ended and left windows open"),
    ] {
        let ending = Snapshot { phase, ..snapshot(vec![partition(0, 40)]) };
        let told = told(vec![ending], &Question::Next);
        assert_eq!(told.cause, Some(Cause::Stopping));
        assert!(told.sentence.contains(said), "{}", told.sentence);
        assert!(told.sentence.ends_with("it fires when the service has started again"));
    }
}

#[test]
fn an_instance_that_stands_by_says_why() {
    let phase = Phase::Standby("another instance reads all partitions".to_owned());
    let told = told(vec![Snapshot { phase, ..Snapshot::default() }], &Question::Next);
    assert_eq!((told.cause, told.window, told.watermark), (Some(Cause::NotAssigned), None, None));
    assert_eq!(
        told.sentence,
        "No window has a record yet, and there is no watermark: this instance stands by (another instance reads all \
         partitions); one begins when partitions are assigned here and their watermarks pass its end"
    );
}

#[test]
fn state_that_is_read_back_says_how_far_it_is() {
    let restoring =
        RestoringPartition { id: PartitionId { topic: 0, partition: 3 }, read: 2, end: 5 };
    let restoring = Snapshot { restoring: vec![restoring], ..snapshot(Vec::new()) };
    let told = told(vec![restoring], &Question::WindowStart(WINDOW));
    assert_eq!((told.cause, told.numbers.restoring_partitions), (Some(Cause::Restoring), Some(1)));
    assert!(
        told.sentence.contains("1 partition held is being read back (2 of 5 changelog records)")
    );
}

#[test]
fn an_adaptive_bound_that_has_grown_holds_the_watermark() {
    let mut terms = terms();
    "adaptive".clone_into(&mut terms.sources[0].strategy);
    let mut grown = partition(0, 0);
    // 12:04:03: the bound of before would have closed the window.
    grown.max_event_time = Some(WINDOW + Duration::from_secs(63));
    grown.bound = Some(Duration::from_secs(40));
    grown.history.accepted_since_rise = 7;
    let ask = |partition: &PartitionSnapshot| {
        let overview = overview(vec![snapshot(vec![partition.clone()])]);
        explain(&overview, &terms, &Question::Next, now(0)).unwrap()
    };
    let told = ask(&grown);
    assert_eq!(told.cause, Some(Cause::GeneratorNotAdvanced));
    let said = "has brought 7 records since its watermark last rose, and its adaptive bound grew from 2.0 s to 40.0 s";
    assert!(told.sentence.contains(said), "{}", told.sentence);
    assert_eq!((told.numbers.bound_at_rise_ms, told.numbers.bound_ms), (Some(2_000), Some(40_000)));
    // Before it grew, the event time was the reason.
    let slow = PartitionSnapshot { bound: Some(Duration::from_secs(2)), ..partition(0, 0) };
    assert_eq!(ask(&slow).cause, Some(Cause::EventTimeSlow));
}

#[test]
fn a_strategy_of_ones_own_is_named() {
    let mut terms = terms();
    "heartbeats".clone_into(&mut terms.sources[0].strategy);
    let mut own = partition(0, 0);
    (own.max_event_time, own.bound) = (Some(WINDOW + Duration::from_secs(70)), None);
    own.history.accepted_since_rise = 3;
    let overview = overview(vec![snapshot(vec![own])]);
    let told = explain(&overview, &terms, &Question::Next, now(0)).unwrap();
    assert_eq!(told.cause, Some(Cause::GeneratorNotAdvanced));
    assert!(
        told.sentence.contains("the strategy `heartbeats` has not raised it"),
        "{}",
        told.sentence
    );
}

#[test]
fn of_several_subtasks_the_one_is_told_that_the_window_waits_for() {
    let ahead = snapshot(vec![partition(0, 1)]);
    let behind = snapshot(vec![partition(1, 40), partition(2, 30)]);
    let passed = Snapshot { open: Vec::new(), ..snapshot(vec![partition(3, 0)]) };
    let told_of_three = told(vec![ahead.clone(), behind, passed], &Question::Next);
    assert_eq!((told_of_three.subtask, told_of_three.holders), (1, 2));
    assert_eq!(told_of_three.holder.unwrap().partition, 1);
    assert!(
        told_of_three
            .sentence
            .starts_with("Subtask 1 of 3: Window 12:03:00 - 12:04:00 has not fired")
    );

    // One that reads nothing is not waited for, and one that cannot read is.
    let empty = Snapshot { open: Vec::new(), ..snapshot(Vec::new()) };
    let told_of_two = told(vec![empty, ahead.clone()], &Question::Next);
    assert_eq!((told_of_two.subtask, told_of_two.cause), (1, Some(Cause::EventTimeSlow)));
    let blocked = Phase::Blocked("all brokers are down".to_owned());
    let away = Snapshot { phase: blocked, ..snapshot(vec![partition(4, 0)]) };
    let told_of_both = told(vec![ahead, away], &Question::Next);
    assert_eq!((told_of_both.subtask, told_of_both.cause), (1, Some(Cause::BrokersUnreachable)));
}

#[test]
fn windows_long_past_and_yet_to_come_are_answered_and_those_beyond_time_are_not() {
    let ask = |question: &Question| told(vec![snapshot(vec![partition(0, 40)])], question);
    let past = ask(&Question::WindowStart(EventTime(0)));
    assert_eq!((past.state, past.cause), (WindowState::Closed, None));
    assert!(
        past.sentence.starts_with("Window 1970-01-01 00:00:00 - 00:01:00 has fired if it had"),
        "{}",
        past.sentence
    );

    let future = ask(&Question::KeyAndTime("a".to_owned(), WINDOW + Duration::from_hours(24)));
    assert_eq!((future.state, future.key.as_deref()), (WindowState::Empty, Some("a")));
    assert_eq!(future.cause, Some(Cause::EventTimeSlow));
    assert!(
        future.sentence.contains("has no record yet, without which it never fires"),
        "{}",
        future.sentence
    );
    assert_eq!(future.earliest, Some(WINDOW.0 + 24 * 3_600_000 + 62_000));

    let overview = overview(vec![snapshot(vec![partition(0, 40)])]);
    let beyond = Question::KeyAndTime("a".to_owned(), EventTime::MAX);
    assert_eq!(
        explain(&overview, &terms(), &beyond, now(0)),
        Err(QuestionError::OutOfRange(EventTime::MAX))
    );
    let between = Question::WindowStart(WINDOW + Duration::from_secs(1));
    let error = explain(&overview, &terms(), &between, now(0)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("windows near it begin at 2027-01-15T12:03:00Z and 2027-01-15T12:04:00Z"),
        "{error}"
    );
}

#[test]
fn falling_idle_helps_only_if_another_partition_is_active_then() {
    let mut passed = partition(0, 0);
    passed.watermark = Some(WINDOW + Duration::from_mins(2));
    passed.idle_in = Some(Duration::from_secs(25));
    let alone = "; falling idle in 10 s does not help alone, since no other partition that stays active is past";
    let helps = ", or when the partition falls idle in 10 s";
    let ask = |passed: &PartitionSnapshot| {
        let silent =
            PartitionSnapshot { idle_in: Some(Duration::from_secs(10)), ..partition(1, 40) };
        let taken = Some(now(5).monotonic);
        let held = Snapshot { taken, ..snapshot(vec![passed.clone(), silent]) };
        let told = told(vec![held], &Question::Next);
        (told.sentence, told.earliest)
    };
    let (sentence, earliest) = ask(&passed);
    assert!(sentence.contains(helps), "{sentence}");
    assert_eq!(earliest, Some(NOW.0 + 10_000));
    // As silent as the other one, it is idle at the same moment, and then all are.
    passed.idle_in = Some(Duration::from_secs(10));
    let (sentence, earliest) = ask(&passed);
    assert!(sentence.contains(alone), "{sentence}");
    assert_eq!(earliest, Some(WINDOW.0 + 62_000));
    passed.idle_in = None;
    assert!(ask(&passed).0.contains(helps));
}

#[test]
fn the_readme_shows_an_answer_as_it_is_given() {
    let mut lively = partition(0, 0);
    lively.watermark = Some(WINDOW + Duration::from_secs(61));
    lively.idle_in = Some(Duration::from_secs(30));
    let mut silent = partition(7, 10);
    (silent.bound, silent.idle_in) =
        (Some(Duration::from_secs(5)), Some(Duration::from_millis(18_400)));
    silent.watermark = silent.max_event_time.map(|newest| newest - Duration::from_millis(5_001));
    let taken = MonotonicTime(Duration::from_millis(11_600));
    let held = Snapshot { taken: Some(taken), ..snapshot(vec![lively, silent]) };
    let now = Now { monotonic: taken, wall: NOW + Duration::from_millis(1_600) };
    let told = explain(&overview(vec![held]), &terms(), &Question::Next, now).unwrap();
    let readme = include_str!("../../../README.md");
    let sentence = &told.sentence;
    assert!(
        readme.contains(&format!("```text\n{sentence}\n```")),
        "the README has not: {sentence}"
    );
}

/// What the log says within so many seconds of a watermark that stands still, and when.
fn log(
    seconds: std::ops::Range<u64>,
    standstill: &mut Standstill,
    at: impl Fn(u64) -> Snapshot,
) -> Vec<(u64, Cause)> {
    let mut said = Vec::new();
    for second in seconds {
        let taken = Some(now(second).monotonic);
        let overview = overview(vec![Snapshot { taken, ..at(second) }]);
        if let Some((why, stood)) = standstill.look(&overview, &terms(), now(second)) {
            assert!(stood > Standstill::expected(&terms()), "{stood:?}");
            said.push((second, why.cause.unwrap()));
        }
    }
    said
}

/// The watermark waits for partition 1; records of partition 0 flow, one a second.
fn waiting(second: u64) -> Snapshot {
    let mut lively = partition(0, 0);
    lively.history.records += second;
    snapshot(vec![lively, partition(1, 40)])
}

#[test]
fn the_log_has_the_sentence_once_a_minute_while_it_is_the_same() {
    // 30 s of idle timeout and three intervals are expected.
    let mut standstill = Standstill::default();
    let said = log(0..200, &mut standstill, waiting);
    let [first, second, third] = said[..] else { panic!("{said:?}") };
    assert_eq!([first, second, third], [31, 91, 151].map(|at| (at, Cause::Silent)));

    // Another cause is another thing to say; the watermark moves, and the patience begins anew.
    let refused = |second: u64| {
        let mut snapshot = waiting(second);
        snapshot.partitions[1].history.refused_in_row = 50;
        snapshot
    };
    assert_eq!(log(200..210, &mut standstill, refused), [(200, Cause::AllRefused)]);
    let moved = |second: u64| Snapshot { watermark: Some(NOW), ..waiting(second) };
    assert_eq!(log(210..240, &mut standstill, moved), []);
    assert_eq!(log(240..243, &mut standstill, moved).len(), 1);
}

#[test]
fn the_log_keeps_quiet_where_no_record_flows_and_where_nothing_is_assigned() {
    let silent = |_| waiting(0);
    assert_eq!(log(0..200, &mut Standstill::default(), silent), []);
    let unassigned = |second: u64| Snapshot { partitions: Vec::new(), ..waiting(second) };
    assert_eq!(log(0..200, &mut Standstill::default(), unassigned), []);
    // Records that are there and are not read flow.
    let unread = |_| {
        let mut snapshot = waiting(0);
        snapshot.partitions[0].end_offset = Some(500);
        snapshot
    };
    assert!(!log(0..40, &mut Standstill::default(), unread).is_empty());
}
