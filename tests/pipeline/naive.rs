//! What must come out of a single partition with an emission after each record: there the log alone decides.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::event_time::{
    Event, EventTime, MonotonicTime, Panes, PartitionId, WatermarkGenerator, WatermarkOutput,
};

use crate::oracle::Origin;
use crate::plan::{Fate, Plan, Sent, WINDOW};
use crate::view::{Contents, Group, View};

/// A window of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    contents: Contents,
    panes: u32,
}

/// The watermark of a partition that nothing happens to.
#[derive(Debug)]
pub(crate) struct OwnWatermark {
    generator: Box<dyn WatermarkGenerator>,
    pub(crate) emitted: i64,
}

impl OwnWatermark {
    pub(crate) fn new(plan: &Plan, id: PartitionId) -> Self {
        let strategy = &plan.config.sources[usize::from(id.topic)].strategy;
        Self { generator: strategy.generator(), emitted: i64::MIN }
    }

    /// A good record.
    pub(crate) fn take(&mut self, sent: &Sent) {
        let mut output = WatermarkOutput::default();
        self.generator.on_event(&Event::new(EventTime(sent.timestamp), b"", &[]), &mut output);
        assert_eq!(output.watermark(), None, "it emits when it is asked to");
    }

    pub(crate) fn emit(&mut self) {
        let mut output = WatermarkOutput::default();
        self.generator.on_periodic_emit(MonotonicTime::default(), &mut output);
        self.emitted = output.watermark().map_or(self.emitted, |to| self.emitted.max(to.0.0));
    }
}

/// A pane: whose, which, and what it holds.
type Row = (Group, u32, &'static str, Contents);

pub(crate) fn check(plan: &Plan, view: &View, late: &BTreeSet<Origin>) {
    let mut own = OwnWatermark::new(plan, *plan.inputs.keys().next().unwrap());
    let mut entries: BTreeMap<Group, Entry> = BTreeMap::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut expected_late = BTreeSet::new();
    let discards = plan.config.panes == Panes::Discarding;
    let mut fire = |group: &Group, entry: &mut Entry, timing| {
        rows.push((group.clone(), entry.panes, timing, entry.contents));
        entry.panes += 1;
        if discards {
            entry.contents = Contents::default();
        }
    };
    for (sent, group) in plan.in_order() {
        let (Some(group), Fate::Good { window_start, .. }) = (group, &sent.fate) else { continue };
        let clock = own.emitted;
        let last = window_start + WINDOW - 1;
        if last + plan.lateness() <= clock {
            expected_late.insert((sent.id, sent.offset));
        } else {
            let entry = entries.entry(group.clone()).or_default();
            entry.contents.add(sent.contents());
            if last <= clock {
                fire(&group, entry, "late");
            }
        }
        own.take(sent);
        own.emit();
        for (group, entry) in &mut entries {
            if entry.panes == 0 && group.window_start + WINDOW - 1 <= own.emitted {
                fire(group, entry, "on_time");
            }
        }
    }
    for (group, entry) in &mut entries {
        if entry.panes == 0 {
            fire(group, entry, "on_time");
        }
    }
    rows.sort();
    let seen = view.panes.iter().map(|pane| {
        let timing = if pane.timing == "late" { "late" } else { "on_time" };
        (pane.group.clone(), pane.index, timing, pane.contents)
    });
    let mut seen: Vec<_> = seen.collect();
    seen.sort();
    assert_eq!(late, &expected_late, "late records");
    assert_eq!(seen, rows, "panes");
}
