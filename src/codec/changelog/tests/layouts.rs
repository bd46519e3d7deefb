//! What becomes of a shard that was written under another configuration.

use super::*;
use crate::config::{Aggregate, Key, KeyFrom, Missing, ValueType};

const COUNT: [AggregateFunction; 1] = [AggregateFunction::Count];

fn with_lateness(seconds: u64) -> SubtaskSettings {
    let settings = settings(&COUNT);
    let allowed_lateness = Duration::from_secs(seconds);
    SubtaskSettings { window: WindowSettings { allowed_lateness, ..settings.window }, ..settings }
}

fn with_panes(panes: Panes, lateness: u64) -> SubtaskSettings {
    let settings = with_lateness(lateness);
    SubtaskSettings { window: WindowSettings { panes, ..settings.window }, ..settings }
}

#[test]
fn a_layout_tells_what_windows_depend_on() {
    let aggregate = |name: &str, function, field: Option<&str>| Aggregate {
        name: name.to_owned(),
        function,
        field: field.map(str::to_owned),
        value_type: ValueType::Number,
        missing: Missing::Refuse,
    };
    let windows = TumblingWindows::new(Duration::from_mins(1), -500).unwrap();
    let fields = |names: &[&str]| KeyFrom::Fields(names.iter().map(|n| (*n).to_owned()).collect());
    let key = Key { from: fields(&["origin"]), partial: false, across_topics: false };
    let aggregates = vec![
        aggregate("n", AggregateFunction::Count, None),
        aggregate("delay", AggregateFunction::Sum, Some("delay_min")),
    ];
    let text = |key: &Key, aggregates: &[Aggregate]| {
        Layout::new(windows, Panes::Discarding, key, aggregates).to_string()
    };
    assert_eq!(
        text(&key, &aggregates),
        "windows=60000ms offset=-500ms panes=discarding key=fields(origin) shards=one \
         aggregates=count(),sum(delay_min:number)"
    );
    let mut renamed = aggregates.clone();
    renamed[0].name = "flights".to_owned();
    assert_eq!(text(&key, &renamed), text(&key, &aggregates));
    let mut skipped = aggregates.clone();
    skipped[1].missing = Missing::Skip;
    assert!(text(&key, &skipped).ends_with("sum(delay_min:number:skip)"));
    let mut typed = aggregates.clone();
    typed[1].value_type = ValueType::Integer;
    assert!(text(&key, &typed).ends_with("sum(delay_min:integer)"));
    let partial = Key { partial: true, ..key };
    assert!(text(&partial, &[]).contains("shards=per_partition"));
    let message = Key { from: KeyFrom::Message, partial: false, across_topics: false };
    assert!(text(&message, &[]).contains("key=message shards=per_partition"));
    // Nothing can be taken for something else.
    let one = Key { from: fields(&["a,b"]), partial: false, across_topics: false };
    let two = Key { from: fields(&["a", "b"]), partial: false, across_topics: false };
    assert_ne!(text(&one, &[]), text(&two, &[]));
}

#[test]
fn open_windows_of_another_layout_are_an_error_that_says_the_way_out() {
    let mut job = Job::new(settings(&COUNT));
    job.add(1_000, "a", None);
    job.add(12_000, "a", None);
    job.commit();
    let other = settings(&[AggregateFunction::Sum]);
    let fault = job.restore(&other).unwrap_err();
    assert!(matches!(fault, ChangelogFault::LayoutChanged { windows: 2, .. }));
    let said = fault.to_string();
    for essential in
        ["aggregates=count(", "aggregates=sum(", "tidegate run --until-end", "tidegate reset"]
    {
        assert!(said.contains(essential), "{essential} in {said}");
    }
    // Also if they are due: they have not been fired.
    job.add(99_000, "a", None);
    job.subtask.on_periodic_emit(NOW);
    job.commit();
    assert!(job.restore(&other).is_err());
    // After a drain nothing is held.
    job.subtask.drain();
    panes(&mut job.subtask);
    job.commit();
    let restored = job.restore(&other).unwrap().unwrap();
    assert!(restored.layout_changed);
    assert_eq!((restored.dropped, restored.writer.sequence()), (0, 3));
}

#[test]
fn fired_windows_of_another_layout_are_closed() {
    let mut job = Job::new(with_panes(Panes::Accumulating, 60));
    for (ms, key) in [(1_000, "a"), (11_000, "a"), (11_000, "b")] {
        job.add(ms, key, None);
    }
    job.subtask.drain();
    panes(&mut job.subtask);
    job.commit();
    let other = with_panes(Panes::Discarding, 60);
    let restored = job.restore(&other).unwrap().unwrap();
    assert!(restored.layout_changed);
    assert_eq!((restored.dropped, restored.shard.entry_count()), (3, 0));
    assert_eq!(restored.shard.clock_brought(), Some(Watermark(EventTime(19_999))));
    let mut job = job.restart(other.clone());
    job.assert_quiet();
    let late = job.add(12_000, "a", None);
    assert!(matches!(late, Disposition::Late(_)), "not a pane with a part of the window: {late:?}");
    assert_eq!(job.add(20_000, "a", None), Disposition::Windowed, "and this not before its time");
    job.assert_quiet();
    let written = job.commit();
    assert!(written.snapshot, "what was there cannot be built upon");
    assert_eq!(written.sequence, 2);
    // It stays so.
    let mut job = job.restart(other);
    job.assert_quiet();
    assert!(matches!(job.add(12_000, "a", None), Disposition::Late(_)));
    job.add(31_000, "a", None);
    assert_eq!(job.tick(), ["a 20000 on_time 0: [Integer(0)]"]);
}

#[test]
fn windows_that_are_gone_stay_gone_when_more_lateness_is_allowed() {
    let one = Some(Value::Integer(1));
    let mut job = Job::new(with_lateness(0));
    // Written before it fires, and not again after: it is freed at once.
    job.add(1_000, "a", one);
    job.add(1_000, "b", one);
    job.commit();
    job.add(12_000, "a", one);
    assert_eq!(job.tick().len(), 2);
    job.add(13_000, "c", one);
    job.commit();
    let mut job = job.restart(with_lateness(3_600));
    assert_eq!(job.tick(), Vec::<String>::new(), "nothing fires twice");
    assert_eq!(job.subtask.open_panes(), 2);
    let late = job.add(2_000, "a", one);
    assert!(matches!(late, Disposition::Late(_)), "its first records are gone: {late:?}");
    job.commit();
    // It stays so, while the windows after it have the new lateness.
    let mut job = job.restart(with_lateness(3_600));
    job.assert_quiet();
    assert!(matches!(job.add(2_000, "a", one), Disposition::Late(_)));
    job.add(30_000, "a", one);
    assert_eq!(job.tick().len(), 2);
    assert_eq!(job.add(12_000, "a", one), Disposition::Refired);
    assert_eq!(panes(&mut job.subtask), ["a 10000 late 1: [Integer(2)]"]);
}

#[test]
fn panes_that_are_owed_stay_owed_when_more_lateness_is_allowed() {
    let mut job = Job::new(with_lateness(0));
    for key in ["a", "b", "c"] {
        job.add(1_000, key, None);
    }
    job.add(30_000, "a", None);
    job.subtask.on_periodic_emit(NOW);
    assert!(matches!(job.subtask.poll_output(), Some(Output::WatermarkAdvanced(_))));
    assert!(matches!(job.subtask.poll_output(), Some(Output::Fired(pane)) if pane.key == b"a"));
    job.commit();
    // The one that goes on with more lateness commits before it has fired the rest, and does not live longer.
    let mut job = job.restart(with_lateness(3_600));
    job.writer.write_again();
    job.commit();
    let mut job = job.restart(with_lateness(3_600));
    let owed = panes(&mut job.subtask);
    assert_eq!(owed.len(), 2, "{owed:?}");
}

#[test]
fn windows_go_at_once_when_less_lateness_is_allowed() {
    let mut job = Job::new(with_lateness(60));
    job.add(1_000, "a", None);
    job.add(12_000, "a", None);
    assert_eq!(job.tick().len(), 1);
    job.commit();
    let mut job = job.restart(with_lateness(0));
    job.assert_quiet();
    assert_eq!(job.subtask.open_panes(), 1);
    assert!(matches!(job.add(1_000, "a", None), Disposition::Late(_)));
    // What was due and had not fired still does.
    let mut job = Job::new(with_lateness(60));
    job.add(1_000, "a", None);
    job.add(12_000, "a", None);
    job.subtask.on_periodic_emit(NOW);
    job.commit();
    let mut job = job.restart(with_lateness(0));
    assert_eq!(panes(&mut job.subtask), ["a 0 on_time 0: [Integer(0)]"]);
    assert_eq!(job.subtask.open_panes(), 1);
}

#[test]
fn one_shard_for_all_is_another_layout_than_one_for_each() {
    let mut job = Job::new(settings(&COUNT));
    job.add(1_000, "a", None);
    job.subtask.drain();
    panes(&mut job.subtask);
    job.commit();
    let one = SubtaskSettings { sharding: Sharding::OneForAll, ..settings(&COUNT) };
    let restored = restore(&job.log, &one, ShardId::All).unwrap().unwrap();
    assert!(restored.layout_changed);
    assert_eq!(restored.shard.id(), ShardId::All);
    assert_eq!(restored.shard.clock_brought(), Some(Watermark(EventTime(9_999))));
    assert_eq!(restored.partitions[0].offset, 1);
}

#[test]
fn what_was_written_under_another_layout_stays_until_nobody_needs_it() {
    let mut job = Job::new(with_panes(Panes::Accumulating, 0));
    job.add(1_000, "a", None);
    job.subtask.drain();
    panes(&mut job.subtask);
    job.commit();
    let other = with_panes(Panes::Discarding, 0);
    let mut job = job.restart(other.clone());
    job.assert_quiet();
    for ms in [11_000, 12_000] {
        job.add(ms, "a", None);
        assert!(job.commit().snapshot && job.writer.keeps_the_past());
    }
    // It is seen again for as long as it is there.
    let mut job = job.restart(other.clone());
    job.assert_quiet();
    job.add(13_000, "a", None);
    assert!(job.commit().snapshot && job.writer.keeps_the_past());
    let slots: std::collections::BTreeSet<_> = job.log.iter().map(|(slot, _)| slot).collect();
    assert_eq!(slots.len(), job.log.len(), "compaction would replace something");
    job.writer.forget_the_past();
    assert!(!job.writer.keeps_the_past());
}
