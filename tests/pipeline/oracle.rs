//! What must hold of the committed view, told from the input alone.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::event_time::{Panes, PartitionId};
use tidegate::insight::Snapshot;

use crate::memory::State;
use crate::naive;
use crate::plan::{Fate, Plan, Sent, WINDOW};
use crate::view::{Contents, Group, PaneRow, PassedOn, View, header, short};

/// How far the world has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage<'a> {
    /// Everything is read, and this is what those say who hold the rest.
    Quiet(&'a [Snapshot]),
    /// Everything is read and fired.
    Drained,
}

/// Checks everything that can be told from the input and the committed view.
pub(crate) fn check(plan: &Plan, state: &State, at: Stage<'_>) -> View {
    let view = View::of(state, matches!(at, Stage::Quiet(_)));
    for (id, held) in &plan.inputs {
        let end = held.first + i64::try_from(held.slots.len()).unwrap();
        let committed = state.acknowledged.get(id).map(|committed| committed.offset);
        assert_eq!(committed, Some(end), "{id:?} is committed up to its end");
        if let Stage::Quiet(snapshots) = at {
            let owners = snapshots.iter().flat_map(|snapshot| &snapshot.partitions);
            for partition in owners.filter(|partition| partition.id == *id) {
                assert_eq!(
                    partition.committed,
                    Some(end),
                    "what {id:?} is said to be committed to"
                );
            }
        }
        if matches!(at, Stage::Drained) {
            let remembered = (state.offsets.get(id), state.acknowledged.get(id));
            assert_eq!(remembered.0, remembered.1, "the group has the offset of {id:?} again");
        }
    }
    check_dead_letters(plan, &view);
    let late = check_late_records(plan, state, &view);
    let groups = expected_groups(plan, &late);
    check_panes(plan, &groups, &view);
    match at {
        Stage::Quiet(snapshots) => check_unfired(plan, &groups, &view, snapshots),
        Stage::Drained => {
            let fired = view.groups();
            let left: Vec<_> = groups.keys().filter(|group| !fired.contains_key(group)).collect();
            assert!(left.is_empty(), "left open at the end: {left:?}");
            if plan.is_exact() {
                naive::check(plan, &view, &late);
            }
        }
    }
    check_progress(plan, &view);
    view
}

/// What the processes have counted is what is there, or less where one of them has died with its counts, or never learnt
/// what became of a commit.
pub(crate) fn check_tallies(plan: &Plan, state: &State, view: &View, all_told: bool) {
    let mut dead: BTreeMap<&str, u64> = BTreeMap::new();
    let mut panes: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut records, mut tombstones, mut late, mut undeliverable) = (0, 0, 0, 0);
    let mut refired = 0;
    for tally in state.clients.iter().flat_map(|client| &client.tallies) {
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
    let compare = |what: &str, counted: u64, there: usize| {
        let there = there as u64;
        let right = if all_told { counted == there } else { counted <= there };
        assert!(right, "{what}: {counted} counted, {there} there");
    };
    compare("records", records, plan.sent.len());
    let gone = plan.sent.iter().filter(|sent| sent.fate == Fate::Tombstone);
    compare("tombstones", tombstones, gone.count());
    compare("late records", late, view.late.len());
    let timed = |timing| view.panes.iter().filter(|pane| pane.timing == timing).count();
    compare("records that fired a pane again", refired, timed("late"));
    let too_large = view.panes.iter().filter(|pane| pane.place.is_none()).count();
    compare("results too large", undeliverable, too_large);
    for timing in ["on_time", "late"] {
        compare(timing, panes.get(timing).copied().unwrap_or(0), timed(timing));
    }
    let reasons: Vec<_> = view
        .dead
        .iter()
        .map(|dead| header(&dead.message, "tidegate.reason").unwrap())
        .chain((0..too_large).map(|_| "result_too_large".to_owned()))
        .collect();
    for (reason, counted) in &dead {
        compare(reason, *counted, reasons.iter().filter(|held| held == reason).count());
    }
    compare("dead letters", dead.values().sum(), reasons.len());
}

impl Plan {
    fn topic(&self, sent: &Sent) -> &str {
        &self.config.sources[usize::from(sent.id.topic)].topic
    }

    fn find<'a>(&'a self, passed_on: &PassedOn) -> &'a Sent {
        let found = self.sent.iter().find(|sent| {
            (self.topic(sent), sent.id.partition, sent.offset)
                == (passed_on.topic.as_str(), passed_on.partition, passed_on.offset)
        });
        found.unwrap_or_else(|| panic!("passed on, and never sent: {passed_on:?}"))
    }

    /// The greatest watermark that a partition's own records before this offset can give it.
    fn own_watermark(&self, id: PartitionId, before: i64) -> i64 {
        let mut own = naive::OwnWatermark::new(self, id);
        let mine = self.sent.iter().filter(|sent| sent.id == id && sent.offset < before);
        for sent in mine.filter(|sent| matches!(sent.fate, Fate::Good { .. })) {
            own.take(sent);
            own.emit();
        }
        own.emitted
    }

    /// The least that all of a partition's records give it.
    fn last_watermark(&self, id: PartitionId) -> i64 {
        let mut own = naive::OwnWatermark::new(self, id);
        let mine = self.sent.iter().filter(|sent| sent.id == id);
        mine.filter(|sent| matches!(sent.fate, Fate::Good { .. })).for_each(|sent| own.take(sent));
        own.emit();
        own.emitted
    }

    fn group(&self, sent: &Sent) -> Option<Group> {
        let Fate::Good { window_start, key, .. } = &sent.fate else { return None };
        let per_partition = !self.config.key.needs_all_partitions();
        let shard = if per_partition { sent.id.partition.to_string() } else { "all".to_owned() };
        Some(Group { shard, window_start: *window_start, key: short(key) })
    }
}

impl Sent {
    pub(crate) fn contents(&self) -> Contents {
        match &self.fate {
            Fate::Good { value, .. } => Contents { n: 1, sum: u128::from(*value), max: *value },
            Fate::Dead(_) | Fate::Tombstone => Contents::default(),
        }
    }
}

fn check_dead_letters(plan: &Plan, view: &View) {
    let mut seen = BTreeSet::new();
    for dead in &view.dead {
        let sent = plan.find(dead);
        assert!(seen.insert((sent.id, sent.offset)), "twice a dead letter: {sent:?}");
        let reason = header(&dead.message, "tidegate.reason").unwrap();
        let expected = match &sent.fate {
            Fate::Dead(reason) => reason,
            Fate::Good { .. } | Fate::Tombstone => "none",
        };
        assert_eq!(reason, expected, "{sent:?}");
    }
    let must = plan.sent.iter().filter(|sent| matches!(sent.fate, Fate::Dead(_))).count();
    assert_eq!(seen.len(), must, "dead letters");
}

/// Partition and offset of a record.
pub(crate) type Origin = (PartitionId, i64);

/// Where the late records come from.
fn check_late_records(plan: &Plan, state: &State, view: &View) -> BTreeSet<Origin> {
    let mut seen = BTreeSet::new();
    for late in &view.late {
        let sent = plan.find(late);
        assert!(seen.insert((sent.id, sent.offset)), "twice late: {sent:?}");
        let Fate::Good { window_start, .. } = sent.fate else { panic!("late: {sent:?}") };
        let number = |name| header(&late.message, name).unwrap().parse::<i64>().unwrap();
        let watermark = number("tidegate.watermark");
        assert_eq!(number("tidegate.window.start"), window_start);
        assert_eq!(number("tidegate.window.end"), window_start + WINDOW);
        assert!(window_start + WINDOW - 1 + plan.lateness() <= watermark, "not late: {late:?}");
        assert_eq!(number("tidegate.lateness.ms"), watermark - sent.timestamp);
        assert_eq!(header(&late.message, "tidegate.reason").as_deref(), Some("late"));
        if plan.has_idleness() {
            continue;
        }
        // Either its own partition had passed its window, or it was new to the group and came where others had.
        let own = plan.own_watermark(sent.id, sent.offset);
        if window_start + WINDOW - 1 + plan.lateness() > own {
            let joined = state.joined.get(&sent.id);
            let others = joined.into_iter().flatten();
            let most = others.map(|(id, reached)| plan.own_watermark(*id, *reached)).max();
            let cause = header(&late.message, "tidegate.cause").unwrap();
            assert!(
                Some(watermark) <= most && cause == "joined",
                "late ({cause}) at {watermark}, and its own watermark was {own}, the greatest when it joined {most:?}: \
                 {sent:?}"
            );
        }
    }
    seen
}

fn expected_groups(plan: &Plan, late: &BTreeSet<Origin>) -> BTreeMap<Group, Contents> {
    let mut groups: BTreeMap<Group, Contents> = BTreeMap::new();
    for sent in plan.sent.iter().filter(|sent| !late.contains(&(sent.id, sent.offset))) {
        if let Some(group) = plan.group(sent) {
            groups.entry(group).or_default().add(sent.contents());
        }
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
    let mut all = Contents::default();
    for pane in panes {
        all.add(pane.contents);
    }
    all
}

/// A group without a pane is one whose window is still open.
fn check_unfired(
    plan: &Plan,
    groups: &BTreeMap<Group, Contents>,
    view: &View,
    snapshots: &[Snapshot],
) {
    let fired = view.groups();
    let unfired: Vec<_> = groups.keys().filter(|group| !fired.contains_key(group)).collect();
    let held: usize = snapshots.iter().map(|snapshot| snapshot.panes_open).sum();
    if plan.lateness() == 0 {
        assert_eq!(held, unfired.len(), "entries held");
    } else {
        assert!((unfired.len()..=groups.len()).contains(&held), "entries held: {held}");
    }
    if plan.has_idleness() {
        return;
    }
    // What each has to have come to that reads these partitions to their ends.
    for snapshot in snapshots {
        let own = snapshot.partitions.iter().map(|partition| plan.last_watermark(partition.id));
        let Some(least) = own.min() else { continue };
        let shown = snapshot.watermark.map_or(i64::MIN, |watermark| watermark.0);
        assert!(
            shown >= least,
            "the watermark is {shown}, and {least} is the least of the partitions'"
        );
        for group in &unfired {
            let here = snapshot.partitions.iter().any(|partition| {
                group.shard == "all" || group.shard == partition.id.partition.to_string()
            });
            assert!(
                !here || group.window_start + WINDOW - 1 > least,
                "{group:?} is due at {least}"
            );
        }
    }
}

fn check_progress(plan: &Plan, view: &View) {
    assert!(plan.config.results.progress || view.progress.is_empty());
    let mut told: BTreeMap<(&str, &str), BTreeMap<i64, BTreeSet<i32>>> = BTreeMap::new();
    for row in &view.progress {
        let (partition, offset) = row.place;
        let of_shard = told.entry((&row.topic, &row.shard)).or_default();
        let of_end = of_shard.entry(row.complete_until).or_default();
        assert!(of_end.insert(partition), "told twice: {row:?}");
        let later = view.panes.iter().filter(|pane| {
            pane.group.shard == row.shard
                && pane.timing == "on_time"
                && pane.group.window_start + WINDOW <= row.complete_until
                && pane.place.is_some_and(|(of, place)| of == partition && place > offset)
        });
        assert_eq!(later.count(), 0, "panes after {row:?}");
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

impl Plan {
    /// Of one partition, in the order of the log.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (&Sent, Option<Group>)> {
        self.sent.iter().map(|sent| (sent, self.group(sent)))
    }
}
