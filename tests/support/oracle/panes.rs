//! Panes: that each window and key has those it has to have, and that their values are those of its records.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::{explain, list};
use super::elsewhere::{Elsewhere, number, text, watermark};
use super::history::{Event, History, NO_WATERMARK};
use super::{KeyOf, Place, Record, Rules, show};

/// What was found in the results.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) rows: usize,
    pub(super) panes: usize,
    pub(super) on_time: usize,
    /// In last panes.
    pub(super) records: usize,
    /// In windows that need not have fired.
    pub(super) open: usize,
    /// Clocks of added partitions above the watermark of their own records.
    pub(super) own_clocks: BTreeMap<i32, BTreeSet<i64>>,
}

/// A row of the results: the shard, the start of the window, the key.
type Row = (Shard, i64, String);

/// The partition whose clock counts; `None` where all share one.
type Shard = Option<i32>;

#[derive(Debug)]
struct Pane {
    /// In the results topic.
    place: Place,
    clock: i64,
    content: Content,
}

#[derive(Debug, serde::Deserialize)]
struct Content {
    window_start: i64,
    window_end: i64,
    count: i64,
    /// More than 64 bits, as soon as there are some records.
    sum: i128,
    pane: PaneName,
}

#[derive(Debug, serde::Deserialize)]
struct PaneName {
    timing: String,
    index: usize,
}

pub(super) fn check(
    rules: &Rules,
    history: &History<'_>,
    elsewhere: &Elsewhere,
    results: &[Record],
    objections: &mut Vec<String>,
) -> Found {
    let (mut due, mut late) = (BTreeMap::<Row, Vec<&Event>>::new(), BTreeMap::new());
    for event in history.events() {
        let shard = (rules.key == KeyOf::Message).then_some(event.place.0);
        let row = (shard, event.start, event.key.clone());
        if elsewhere.late.contains_key(&event.place) {
            late.entry(row).or_insert_with(Vec::new).push(event);
        } else {
            due.entry(row).or_default().push(event);
        }
    }
    let mut panes = read(results, objections);
    let mut found = Found { own_clocks: elsewhere.own_clocks.clone(), ..Found::default() };
    for (row, due) in &due {
        let of_row = panes.remove(row).unwrap_or_default();
        if of_row.is_empty() {
            found.without_pane(rules, history, row, due, objections);
            continue;
        }
        let late = late.get(row).map_or(&[][..], Vec::as_slice);
        let checked = Checked { rules, history, row, due, late };
        let mut objected = checked.objections(&of_row, &mut found.own_clocks);
        objections.append(&mut objected);
        found.rows += 1;
        found.panes += of_row.len();
        found.on_time += of_row.iter().filter(|pane| pane.content.pane.timing == "on_time").count();
        found.records += due.len();
    }
    for (row, panes) in panes {
        let late = late.get(&row).map_or(&[][..], Vec::as_slice);
        for pane in panes {
            let explained = explain(&[], late, pane.content.count, pane.content.sum);
            objections.push(format!("{}: no record belongs there; {explained}", pane.name(&row)));
        }
    }
    found
}

/// The panes by their rows, in the order of the results topic.
fn read(results: &[Record], objections: &mut Vec<String>) -> BTreeMap<Row, Vec<Pane>> {
    let mut panes = BTreeMap::<Row, Vec<Pane>>::new();
    let mut clocks = BTreeMap::new();
    for record in results.iter().filter(|record| text(record, "progress").is_err()) {
        let place = (record.partition, record.offset);
        let (row, pane) = match pane(record) {
            Ok(pane) => pane,
            Err(objection) => {
                objections.push(format!("results {}: {objection}", show(place)));
                continue;
            }
        };
        // What one shard says is said in order, as far as a reader of one partition can see.
        let clock = clocks.entry((record.partition, row.0)).or_insert(NO_WATERMARK);
        if pane.clock < *clock {
            objections.push(format!("{}: the clock went back from {clock}", pane.name(&row)));
        }
        *clock = pane.clock;
        panes.entry(row).or_default().push(pane);
    }
    panes
}

fn pane(record: &Record) -> Result<(Row, Pane), String> {
    let payload = record.payload.as_deref().ok_or("no payload")?;
    let content: Content = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    let key = String::from_utf8(record.key.clone().ok_or("no key")?).map_err(|e| e.to_string())?;
    let shard = match text(record, "partition")?.as_str() {
        "all" => None,
        partition => Some(partition.parse().map_err(|_| format!("partition {partition}"))?),
    };
    let row = (shard, content.window_start, key);
    let place = (record.partition, record.offset);
    Ok((row, Pane { place, clock: number(record, "watermark")?, content }))
}

impl Pane {
    fn name(&self, row: &Row) -> String {
        let Content { count, sum, pane, .. } = &self.content;
        format!(
            "{}, pane {} ({}, results {}, clock {}, count {count}, sum {sum})",
            row_name(row),
            pane.index,
            pane.timing,
            show(self.place),
            self.clock
        )
    }
}

fn row_name((shard, start, key): &Row) -> String {
    let shard = shard.map_or("all".to_owned(), |partition| partition.to_string());
    format!("window {start} of key {key} in partition {shard}")
}

impl Found {
    fn without_pane(
        &mut self,
        rules: &Rules,
        history: &History<'_>,
        row: &Row,
        due: &[&Event],
        objections: &mut Vec<String>,
    ) {
        if row.1 + rules.window - 1 > history.reached() {
            self.open += due.len();
            return;
        }
        objections.push(format!(
            "{}: no pane, and {} records belong there; lost: {}",
            row_name(row),
            due.len(),
            list(due)
        ));
    }
}

/// A row, and the records that belong into it.
struct Checked<'a> {
    rules: &'a Rules,
    history: &'a History<'a>,
    row: &'a Row,
    due: &'a [&'a Event],
    late: &'a [&'a Event],
}

impl Checked<'_> {
    fn objections(
        &self,
        panes: &[Pane],
        own_clocks: &mut BTreeMap<i32, BTreeSet<i64>>,
    ) -> Vec<String> {
        let mut objections = Vec::new();
        let indices: Vec<_> = panes.iter().map(|pane| pane.content.pane.index).collect();
        if !indices.iter().copied().eq(0..indices.len()) {
            objections.push(format!("{}: panes {indices:?}", row_name(self.row)));
        }
        let last = panes.iter().map(|pane| pane.content.pane.index).max();
        let first = panes.iter().find(|pane| pane.content.pane.index == 0);
        let first = first.map(|pane| pane.content.count);
        for pane in panes {
            let is_last = Some(pane.content.pane.index) == last;
            let value = if is_last { self.complete(pane) } else { self.begun(pane) };
            let objection = self
                .window(pane)
                .and_then(|()| self.timing(pane))
                .and(value)
                .and_then(|()| Self::number(pane, first))
                .and_then(|()| self.clock(pane, own_clocks));
            if let Err(objection) = objection {
                objections.push(format!("{}: {objection}", pane.name(self.row)));
            }
        }
        objections
    }

    fn window(&self, pane: &Pane) -> Result<(), String> {
        let (start, end) = (pane.content.window_start, pane.content.window_end);
        if start.rem_euclid(self.rules.window) != 0 || end != start + self.rules.window {
            return Err(format!("{start}..{end} is no window"));
        }
        Ok(())
    }

    fn timing(&self, pane: &Pane) -> Result<(), String> {
        let Pane { clock, content, .. } = pane;
        let due_at = content.window_end - 1;
        let freed_at = due_at + self.rules.allowed_lateness;
        if *clock < due_at {
            return Err(format!("fired before its clock had come to {due_at}"));
        }
        match (content.pane.timing.as_str(), content.pane.index) {
            ("on_time", 0) => Ok(()),
            ("late", _) if *clock < freed_at => Ok(()),
            ("late", _) => {
                Err(format!("fired by a record that was past its lateness at {freed_at}"))
            }
            (timing, index) => Err(format!("pane {index} is {timing}")),
        }
    }

    /// Each pane after the first has exactly one record more.
    fn number(pane: &Pane, first: Option<i64>) -> Result<(), String> {
        let Some(first) = first else { return Ok(()) };
        let right = first + i64::try_from(pane.content.pane.index).unwrap();
        if pane.content.count == right {
            return Ok(());
        }
        Err(format!("the first pane had {first} records, so this one has {right}"))
    }

    /// A pane that others follow holds the first records of its window and key; with a clock for all partitions it is
    /// not known which these are.
    fn begun(&self, pane: &Pane) -> Result<(), String> {
        let Content { count, sum, .. } = pane.content;
        let held = usize::try_from(count).ok().and_then(|count| self.due.get(..count));
        let (Some(_), Some(held)) = (self.row.0, held) else { return Ok(()) };
        let right: i128 = held.iter().map(|event| i128::from(event.value)).sum();
        if sum == right {
            return Ok(());
        }
        Err(format!("the first {count} records, {}, have the sum {right}", list(held)))
    }

    /// The last pane holds every record of its window and key that is nowhere else.
    fn complete(&self, pane: &Pane) -> Result<(), String> {
        let right: i128 = self.due.iter().map(|event| i128::from(event.value)).sum();
        let Content { count, sum, .. } = pane.content;
        if usize::try_from(count) == Ok(self.due.len()) && sum == right {
            return Ok(());
        }
        let explained = explain(self.due, self.late, count, sum);
        Err(format!("{} records with the sum {right} belong there; {explained}", self.due.len()))
    }

    /// A clock is not ahead of the partition: of what it had read before the first record that is not in the pane.
    fn clock(
        &self,
        pane: &Pane,
        own_clocks: &mut BTreeMap<i32, BTreeSet<i64>>,
    ) -> Result<(), String> {
        let Some(partition) = self.row.0 else {
            let reached = self.history.reached();
            return if pane.clock <= reached {
                Ok(())
            } else {
                Err(format!("no clock can be past {}", watermark(reached)))
            };
        };
        let held = usize::try_from(pane.content.count).unwrap_or(0);
        let seen = if pane.content.pane.timing == "late" { held.saturating_sub(1) } else { held };
        let end = self.history.ends.get(&partition).copied().unwrap_or(NO_WATERMARK);
        let own = self.due.get(seen).map_or(end, |event| event.own);
        if pane.clock <= own {
            return Ok(());
        }
        if self.rules.added.contains(&partition) {
            own_clocks.entry(partition).or_default().insert(pane.clock);
            return Ok(());
        }
        Err(format!("its partition had come to {} only", watermark(own)))
    }
}
