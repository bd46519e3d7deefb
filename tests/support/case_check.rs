//! Compares what came of a case with what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use serde_json::Value;

use super::case_file::{Compare, ExpectedPane, Sum, Trace};
use super::case_run::{Outcome, PaneRow, key_text};

/// Every difference, each as a line for people. `watermarks`: whether the watermark after each step, and the number of
/// panes where only the last is compared, belong to the emission of this run.
pub(crate) fn differences(
    trace: &Trace,
    outcome: &Outcome,
    watermarks: bool,
) -> Result<Vec<String>, String> {
    let mut found = Found(outcome.broken.iter().map(|b| format!("broken: {b}")).collect());
    let expect = &trace.expect;
    let final_only = trace.compare == Compare::FinalPanes;
    let keys = Keys::of(trace);
    let tolerance = trace.sum_tolerance()?;

    if let Some(expected) = &expect.panes {
        let compare =
            PaneCompare { final_only, tolerance, index_and_kind: watermarks || !final_only };
        compare.panes(expected, &outcome.panes, keys, &mut found)?;
    }
    if let Some(expected) = &expect.open {
        open(expected, outcome, keys, tolerance, &mut found)?;
    }
    found.lists("late", expect.late.as_deref(), &outcome.late);
    found.lists("rejected", expect.rejected.as_deref(), &outcome.rejected);
    found.lists("tombstones", expect.tombstones.as_deref(), &outcome.tombstones);
    found.lists("ignored", expect.ignored.as_deref(), &outcome.ignored);
    if let Some(expected) = expect.watermark_after.as_ref().filter(|_| watermarks) {
        if expected.len() != trace.steps.len() {
            found.differ("number of watermarks", &trace.steps.len(), &expected.len());
        }
        for ((number, step), (expected, got)) in
            (1..).zip(&trace.steps).zip(expected.iter().zip(&outcome.watermark_after))
        {
            let what = format!("watermark after step {number} ({})", step.name());
            found.differ(&what, expected, got);
        }
    }
    for (name, expected) in &expect.counters {
        let panes = name.starts_with("panes_");
        let series = format!("{name}_total");
        match outcome.metrics.get(series.as_str()) {
            _ if panes && final_only && !watermarks => {}
            None => found.0.push(format!("no counter is known as {name}")),
            Some(got) => {
                found.differ(&format!("counter {name}"), &Some(i128::from(*expected)), got);
            }
        }
    }
    metrics(&expect.metrics, outcome, &mut found);
    for (partition, (earliest, latest)) in &expect.idle_between_ms {
        let times = outcome.idle_at.get(partition).map_or(&[][..], Vec::as_slice);
        if !times.first().is_some_and(|at| (earliest..=latest).contains(&at)) {
            let line = format!(
                "partition {partition} falls idle: expected in [{earliest}, {latest}] ms, got {times:?}"
            );
            found.0.push(line);
        }
    }
    for invariant in &expect.invariants {
        // The run itself looks at all of them, asked or not.
        if !["conservation", "watermark_never_back", "no_panic"].contains(&invariant.as_str()) {
            found.0.push(format!("no invariant is known as {invariant}"));
        }
    }
    Ok(found.0)
}

struct Found(Vec<String>);

impl Found {
    fn differ<T: PartialEq + Debug>(&mut self, what: &str, expected: &T, got: &T) {
        if expected != got {
            self.0.push(format!("{what}: expected {expected:?}, got {got:?}"));
        }
    }

    /// The order of different records is nobody's promise.
    fn lists<T: PartialEq + Clone + Debug>(
        &mut self,
        what: &str,
        expected: Option<&[T]>,
        got: &[T],
    ) {
        let Some(expected) = expected else { return };
        let mut surplus = got.to_vec();
        let mut missing = expected.to_vec();
        missing.retain(|wanted| match surplus.iter().position(|one| one == wanted) {
            Some(place) => {
                surplus.swap_remove(place);
                false
            }
            None => true,
        });
        if !missing.is_empty() || !surplus.is_empty() {
            self.0.push(format!("{what}: expected {missing:?}, got {surplus:?} instead"));
        }
    }
}

/// How keys are compared: by their text, unless the case has keys that are not text.
#[derive(Clone, Copy)]
enum Keys {
    AsText,
    Typed,
}

impl Keys {
    fn of(trace: &Trace) -> Self {
        let panes = trace.expect.panes.iter().chain(&trace.expect.open).flatten();
        if panes.into_iter().all(|pane| pane.key.is_string()) { Self::AsText } else { Self::Typed }
    }

    fn id(self, key: &Value) -> String {
        match self {
            Self::AsText => key_text(key),
            Self::Typed => key.to_string(),
        }
    }
}

#[derive(Clone, Copy)]
struct PaneCompare {
    final_only: bool,
    tolerance: f64,
    index_and_kind: bool,
}

impl PaneCompare {
    /// Order matters only within one window and key.
    fn panes(
        self,
        expected: &[ExpectedPane],
        got: &[PaneRow],
        keys: Keys,
        found: &mut Found,
    ) -> Result<(), String> {
        type Sides<'a> = (Vec<&'a ExpectedPane>, Vec<&'a PaneRow>);
        let mut sides: BTreeMap<(i64, i64, String), Sides<'_>> = BTreeMap::new();
        for pane in expected {
            sides.entry((pane.start, pane.end, keys.id(&pane.key))).or_default().0.push(pane);
        }
        for pane in got {
            sides.entry((pane.start, pane.end, keys.id(&pane.key))).or_default().1.push(pane);
        }
        for ((start, end, key), (expected, mut got)) in sides {
            if self.final_only {
                got.drain(..got.len().saturating_sub(1));
            }
            let mut same = expected.len() == got.len();
            for (expected, got) in expected.iter().zip(&got) {
                same = same && self.same(expected, got)?;
            }
            if !same {
                let expected: Result<Vec<_>, _> = expected.iter().map(|p| describe(p)).collect();
                let got: Vec<_> = got.iter().map(|pane| describe_row(pane)).collect();
                found.differ(&format!("panes of [{start}, {end}) {key:?}"), &expected?, &got);
            }
        }
        Ok(())
    }

    fn same(self, expected: &ExpectedPane, got: &PaneRow) -> Result<bool, String> {
        let sum = expected.sum()?.is_none_or(|sum| same_sum(sum, got.sum, self.tolerance));
        let kind = expected.kind.as_ref().is_none_or(|kind| *kind == got.timing);
        let index = expected.index.is_none_or(|index| index == got.index);
        let named = !self.index_and_kind || (kind && index);
        Ok(expected.count == got.count && sum && named)
    }
}

fn same_sum(expected: Sum, got: Sum, tolerance: f64) -> bool {
    match (expected, got) {
        (Sum::Overflow, got) | (got, Sum::Overflow) => got == Sum::Overflow,
        (Sum::Integer(expected), Sum::Integer(got)) => expected == got,
        (expected, got) => (expected.as_float() - got.as_float()).abs() <= tolerance,
    }
}

fn describe(pane: &ExpectedPane) -> Result<String, String> {
    let sum = pane.sum()?.map_or_else(|| "any".to_owned(), |sum| format!("{sum:?}"));
    let kind = pane.kind.as_deref().unwrap_or("any");
    let index = pane.index.map_or_else(|| "any".to_owned(), |index| index.to_string());
    Ok(format!("count {} sum {sum} {kind} {index}", pane.count))
}

fn describe_row(pane: &PaneRow) -> String {
    format!("count {} sum {:?} {} {}", pane.count, pane.sum, pane.timing, pane.index)
}

/// Windows that have not fired are compared by what a drain gives of them, those that have by their last pane.
fn open(
    expected: &[ExpectedPane],
    outcome: &Outcome,
    keys: Keys,
    tolerance: f64,
    found: &mut Found,
) -> Result<(), String> {
    let held: BTreeSet<_> = expected.iter().map(|pane| (pane.start, pane.end)).collect();
    found.differ("windows held", &held, &outcome.open_windows);
    if let Some(got) = outcome.open_entries {
        found.differ("windows and keys held", &expected.len(), &got);
    }
    let mut got: BTreeMap<(bool, i64, String), &PaneRow> = BTreeMap::new();
    for pane in &outcome.panes {
        if held.contains(&(pane.start, pane.end)) {
            got.insert((true, pane.start, keys.id(&pane.key)), pane);
        }
    }
    got.extend(outcome.open.iter().map(|p| ((false, p.start, keys.id(&p.key)), p)));
    for pane in expected {
        let what = format!(
            "{} [{}, {}) {}",
            if pane.fired { "held after it fired:" } else { "open:" },
            pane.start,
            pane.end,
            pane.key
        );
        let row = got.remove(&(pane.fired, pane.start, keys.id(&pane.key)));
        let same_sum = match (pane.sum()?, row) {
            (Some(sum), Some(row)) => same_sum(sum, row.sum, tolerance),
            _ => true,
        };
        if row.map(|row| row.count) != Some(pane.count) || !same_sum {
            let row = row.map_or_else(|| "nothing".to_owned(), describe_row);
            found.0.push(format!("{what}: expected {}, got {row}", describe(pane)?));
        }
    }
    for ((fired, ..), pane) in got {
        let what = if fired { "held after it fired" } else { "open" };
        found.0.push(format!("{what}, but not expected: {pane:?}"));
    }
    Ok(())
}

fn metrics(expected: &BTreeMap<String, Value>, outcome: &Outcome, found: &mut Found) {
    for (name, expected) in expected {
        let Some(got) = outcome.metrics.get(name.as_str()) else {
            let known: Vec<_> = outcome.metrics.keys().collect();
            found.0.push(format!("no metric is known as {name}; there are {known:?}"));
            continue;
        };
        let absent = expected.is_null() || expected == "absent";
        let expected = (!absent).then(|| expected.as_i64().map(i128::from));
        if expected == Some(None) {
            found.0.push(format!("metric {name}: neither an integer nor \"absent\""));
            continue;
        }
        found.differ(&format!("metric {name}"), &expected.flatten(), got);
    }
}
