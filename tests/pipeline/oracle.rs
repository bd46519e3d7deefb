//! What must hold of the committed view, told from the input alone.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::config::KeyFrom;
use tidegate::event_time::Panes;
use tidegate::insight::Phase;
use tidegate::pipeline::RunUntil;

use crate::memory::State;
use crate::plan::{Fate, Plan, Sent, WINDOW};
use crate::view::{Group, PaneRow, PassedOn, View, header, short};

/// Checks everything that can be told from the input and the committed view.
pub(crate) fn check(plan: &Plan, state: &State) -> View {
    let view = View::of(state);
    assert!(state.closed);
    assert_eq!(state.phases.last(), Some(&Phase::Stopped));
    let committed: Vec<&Sent> = plan
        .sent
        .iter()
        .filter(|sent| state.offsets.get(&sent.id).is_some_and(|next| sent.offset < *next))
        .collect();
    if !state.failed_at_the_end && plan.reads_all(state) {
        for (id, held) in &plan.inputs {
            let end = held.first + i64::try_from(held.slots.len()).unwrap();
            assert_eq!(state.offsets.get(id), Some(&end), "{id:?} is committed up to its end");
        }
    }
    check_dead_letters(plan, &committed, &view);
    let late = check_late_records(plan, &committed, &view);
    let groups = expected_groups(plan, &committed, &late);
    check_panes(plan, &groups, &view);
    check_unfired(plan, state, &groups, &view);
    check_progress(plan, state, &view);
    if !state.answer_is_lost() {
        check_tallies(state, &committed, &view);
    }
    view
}

impl Plan {
    fn topic(&self, sent: &Sent) -> &str {
        &self.config.sources[usize::from(sent.id.topic)].topic
    }

    fn find<'a>(&self, committed: &[&'a Sent], passed_on: &PassedOn) -> &'a Sent {
        let found = committed.iter().find(|sent| {
            (self.topic(sent), sent.id.partition, sent.offset)
                == (passed_on.topic.as_str(), passed_on.partition, passed_on.offset)
        });
        found.unwrap_or_else(|| panic!("passed on, and not committed: {passed_on:?}"))
    }

    fn reads_all(&self, state: &State) -> bool {
        self.until == RunUntil::End || matches!(state.stop, crate::memory::Stop::AfterAll(_))
    }

    fn lateness(&self) -> i64 {
        i64::try_from(self.config.allowed_lateness.as_millis()).unwrap()
    }
}

fn check_dead_letters(plan: &Plan, committed: &[&Sent], view: &View) {
    let mut seen = BTreeSet::new();
    for dead in &view.dead {
        let sent = plan.find(committed, dead);
        assert!(seen.insert((sent.id, sent.offset)), "twice a dead letter: {sent:?}");
        let reason = header(&dead.message, "tidegate.reason").unwrap();
        let expected = match &sent.fate {
            Fate::Dead(reason) => reason,
            Fate::Good { .. } | Fate::Tombstone => "none",
        };
        assert_eq!(reason, expected, "{sent:?}");
    }
    let must = committed.iter().filter(|sent| matches!(sent.fate, Fate::Dead(_))).count();
    assert_eq!(seen.len(), must, "dead letters");
}

/// The places of the late records.
fn check_late_records(plan: &Plan, committed: &[&Sent], view: &View) -> BTreeSet<*const Sent> {
    let mut seen = BTreeSet::new();
    for late in &view.late {
        let sent = plan.find(committed, late);
        assert!(seen.insert(std::ptr::from_ref(sent)), "twice late: {sent:?}");
        let Fate::Good { window_start, .. } = sent.fate else { panic!("late: {sent:?}") };
        let number = |name| header(&late.message, name).unwrap().parse::<i64>().unwrap();
        let watermark = number("tidegate.watermark");
        assert_eq!(number("tidegate.window.start"), window_start);
        assert_eq!(number("tidegate.window.end"), window_start + WINDOW);
        assert!(window_start + WINDOW - 1 + plan.lateness() <= watermark, "not late: {late:?}");
        assert_eq!(number("tidegate.lateness.ms"), watermark - sent.timestamp);
        assert_eq!(header(&late.message, "tidegate.reason").as_deref(), Some("late"));
    }
    seen
}

/// What a group's panes must amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Contents {
    n: u64,
    sum: u128,
    max: u64,
}

fn expected_groups(
    plan: &Plan,
    committed: &[&Sent],
    late: &BTreeSet<*const Sent>,
) -> BTreeMap<Group, Contents> {
    let mut groups: BTreeMap<Group, Contents> = BTreeMap::new();
    let per_partition = plan.config.key.from == KeyFrom::Message || plan.config.key.partial;
    for sent in committed.iter().filter(|sent| !late.contains(&std::ptr::from_ref(**sent))) {
        let Fate::Good { window_start, key, value } = &sent.fate else { continue };
        let shard = if per_partition { sent.id.partition.to_string() } else { "all".to_owned() };
        let group = Group { shard, window_start: *window_start, key: short(key) };
        let contents = groups.entry(group).or_default();
        contents.n += 1;
        contents.sum += u128::from(*value);
        contents.max = contents.max.max(*value);
    }
    groups
}

fn check_panes(plan: &Plan, groups: &BTreeMap<Group, Contents>, view: &View) {
    let most = if plan.lateness() == 0 { 1 } else { usize::MAX };
    for (group, panes) in view.groups() {
        let indices = panes.iter().map(|pane| pane.index);
        assert!(indices.eq(0..u32::try_from(panes.len()).unwrap()), "indices: {panes:?}");
        assert!(panes.len() <= most, "a pane too many: {panes:?}");
        for pane in &panes {
            assert!(pane.timing == "late" || pane.index == 0, "on time after the first: {panes:?}");
            assert!(group.window_start + WINDOW - 1 <= pane.watermark, "too early: {pane:?}");
        }
        assert!(panes.is_sorted_by_key(|pane| pane.watermark), "clock went back: {panes:?}");
        let places: Vec<_> = panes.iter().filter_map(|pane| pane.place).collect();
        assert!(places.is_sorted(), "panes out of order: {panes:?}");
        let contents = match plan.config.panes {
            Panes::Accumulating => contents(&panes[panes.len() - 1..]),
            Panes::Discarding => contents(&panes),
        };
        assert_eq!(Some(&contents), groups.get(group), "{group:?}: {panes:?}");
    }
}

fn contents(panes: &[&PaneRow]) -> Contents {
    panes.iter().fold(Contents::default(), |all, pane| Contents {
        n: all.n + pane.n,
        sum: all.sum + pane.sum,
        max: all.max.max(pane.max),
    })
}

/// A group without a pane is one whose window is still open.
fn check_unfired(plan: &Plan, state: &State, groups: &BTreeMap<Group, Contents>, view: &View) {
    let fired = view.groups();
    let mut unfired = groups.keys().filter(|group| !fired.contains_key(group));
    if plan.until == RunUntil::End {
        assert_eq!(unfired.next(), None, "left open at the end");
        return;
    }
    if state.failed_at_the_end {
        return;
    }
    let snapshot = state.watch.snapshot();
    let clock = snapshot.watermark.map_or(i64::MIN, |watermark| watermark.0);
    for group in unfired {
        assert!(group.window_start + WINDOW - 1 > clock, "{group:?} is due at {clock}");
    }
    let held = groups
        .keys()
        .filter(|group| group.window_start + WINDOW - 1 + plan.lateness() > clock)
        .count();
    assert_eq!(snapshot.panes_open, held, "entries held at {clock}");
}

fn check_progress(plan: &Plan, state: &State, view: &View) {
    assert!(plan.config.results.progress || view.progress.is_empty());
    let mut told: BTreeMap<(&str, &str), BTreeMap<i64, BTreeSet<i32>>> = BTreeMap::new();
    for row in &view.progress {
        let of_shard = told.entry((&row.topic, &row.shard)).or_default();
        let of_end = of_shard.entry(row.complete_until).or_default();
        assert!(of_end.insert(row.partition), "told twice: {row:?}");
        let later = view.panes.iter().filter(|pane| {
            pane.group.shard == row.shard
                && pane.timing == "on_time"
                && pane.group.window_start + WINDOW <= row.complete_until
                && pane.place.is_some_and(|place| place > row.place)
        });
        assert_eq!(later.count(), 0, "panes after {row:?}");
    }
    if state.failed_at_the_end {
        return;
    }
    for (shard, ends) in &told {
        for (end, partitions) in ends {
            let all = (0..plan.result_partitions).collect();
            assert_eq!(partitions, &all, "{shard:?} until {end}");
        }
    }
    if plan.config.results.progress {
        // A shard that came in past a window's end speaks of it when the clock moves on.
        for pane in view.panes.iter().filter(|pane| pane.timing == "on_time") {
            let end = pane.group.window_start + WINDOW;
            let complete = told.iter().any(|((_, shard), ends)| {
                *shard == pane.group.shard && ends.last_key_value().is_some_and(|(t, _)| *t >= end)
            });
            assert!(complete, "fired and not told to be complete: {pane:?}");
        }
    }
}

fn check_tallies(state: &State, committed: &[&Sent], view: &View) {
    let mut dead: BTreeMap<&str, u64> = BTreeMap::new();
    let mut panes: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut records, mut tombstones, mut late, mut undeliverable) = (0, 0, 0, 0);
    let mut refired = 0;
    for tally in &state.tallies {
        for partition in tally.partitions.values() {
            records += partition.records;
            tombstones += partition.tombstones;
            late += partition.late.iter().sum::<u64>();
            refired += partition.refired;
            assert_eq!(partition.ignored, 0);
        }
        for ((_, reason), count) in &tally.dead_letters {
            *dead.entry(reason.name()).or_default() += count;
        }
        for (timing, count) in &tally.panes {
            *panes.entry(timing).or_default() += count;
        }
        undeliverable += tally.panes_undeliverable;
    }
    assert_eq!(records, committed.len() as u64, "records");
    let gone = committed.iter().filter(|sent| sent.fate == Fate::Tombstone).count();
    assert_eq!(tombstones, gone as u64, "tombstones");
    assert_eq!(late, view.late.len() as u64, "late records");
    let late_panes = view.panes.iter().filter(|pane| pane.timing == "late").count();
    assert_eq!(refired, late_panes as u64, "records that fired a pane again");
    let too_large = view.panes.iter().filter(|pane| pane.place.is_none()).count() as u64;
    assert_eq!(undeliverable, too_large, "undeliverable");
    assert_eq!(dead.remove("result_too_large").unwrap_or(0), too_large, "dead results");
    for letter in &view.dead {
        let reason = header(&letter.message, "tidegate.reason").unwrap();
        *dead.get_mut(reason.as_str()).unwrap() -= 1;
    }
    assert!(dead.values().all(|left| *left == 0), "dead letters counted and not there: {dead:?}");
    for timing in ["on_time", "late"] {
        let seen = view.panes.iter().filter(|pane| pane.timing == timing).count();
        assert_eq!(panes.get(timing).copied().unwrap_or(0), seen as u64, "{timing} panes");
    }
}
