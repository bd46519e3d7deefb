//! Late records and dead letters: that they are there as they came, and belong there.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{Event, History, Kind, NO_WATERMARK};
use super::{Place, Record, Rules, Topics, show};

/// The records that are in no pane.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// The clock that each late record was judged by.
    pub(super) late: BTreeMap<Place, i64>,
    dead: BTreeSet<Place>,
    pub(super) joined: usize,
    /// Clocks of added partitions above the watermark of their own records.
    pub(super) own_clocks: BTreeMap<i32, BTreeSet<i64>>,
}

pub(super) fn check(
    rules: &Rules,
    history: &History<'_>,
    topics: &Topics,
    objections: &mut Vec<String>,
) -> Elsewhere {
    let mut elsewhere = Elsewhere::default();
    for (which, records) in [("late topic", &topics.late), ("dead letters", &topics.dead)] {
        for record in records {
            if let Err(objection) = elsewhere.take(rules, history, which, record) {
                let place = show((record.partition, record.offset));
                objections.push(format!("{which} {place}: {objection}"));
            }
        }
    }
    elsewhere.check_order(rules, history, objections);
    for (place, (_, kind)) in &history.records {
        if let Kind::Broken(reason) = kind
            && !elsewhere.dead.contains(place)
        {
            objections.push(format!("{} is no dead letter ({reason})", show(*place)));
        }
    }
    elsewhere
}

impl Elsewhere {
    fn take(
        &mut self,
        rules: &Rules,
        history: &History<'_>,
        which: &str,
        record: &Record,
    ) -> Result<(), String> {
        let partition = i32::try_from(number(record, "partition")?).map_err(|e| e.to_string())?;
        let place = (partition, number(record, "offset")?);
        let Some((original, kind)) = history.records.get(&place) else {
            return Err(format!("there is no record {}", show(place)));
        };
        if self.late.contains_key(&place) || self.dead.contains(&place) {
            return Err(format!("{} is there a second time", show(place)));
        }
        let reason = text(record, "reason")?;
        let judged = match (which, kind) {
            ("late topic", Kind::Event(event)) => {
                let clock = number(record, "watermark")?;
                self.late.insert(place, clock);
                self.judge_late(rules, event, record, clock)
            }
            ("dead letters", Kind::Broken(why)) => {
                self.dead.insert(place);
                if reason == *why { Ok(()) } else { Err(format!("{reason}, and it is {why}")) }
            }
            (_, kind) => Err(format!("{} does not belong here, it is {kind:?}", show(place))),
        };
        match changed(original, record) {
            Some(changed) => Err(format!("{} had another {changed}", show(place))),
            None => judged,
        }
    }

    /// Whether a record was late, and by no clock but one that its partition can have had.
    fn judge_late(
        &mut self,
        rules: &Rules,
        event: &Event,
        record: &Record,
        clock: i64,
    ) -> Result<(), String> {
        let Event { place, time, start, own, .. } = event;
        let (end, at) = (start + rules.window, show(*place));
        let said = (number(record, "window.start")?, number(record, "window.end")?);
        if said != (*start, end) {
            return Err(format!("{at} is in the window {start}..{end}, not {said:?}"));
        }
        if number(record, "lateness.ms")? != clock - time {
            return Err(format!("{at} is {} ms behind the clock", clock - time));
        }
        let freed_at = end - 1 + rules.allowed_lateness;
        if clock < freed_at {
            return Err(format!("{at} was in time: its clock {clock} is below {freed_at}"));
        }
        let added = rules.added.contains(&place.0);
        if clock > *own {
            let own = watermark(*own);
            if !added {
                return Err(format!(
                    "{at} was judged by the clock {clock}, but its partition had come to {own} only"
                ));
            }
            self.own_clocks.entry(place.0).or_default().insert(clock);
        }
        let cause = text(record, "cause")?;
        self.joined += usize::from(cause == "joined");
        // What the partition's own records have made of its watermark reaches its clock at the next tick only, so for
        // one that began at another clock there may be two answers.
        let right = match cause.as_str() {
            "out_of_order" => *own >= freed_at,
            "joined" => added,
            _ => false,
        };
        if right { Ok(()) } else { Err(format!("{at} is said to be {cause}, which it cannot be")) }
    }

    /// A clock never goes back: what it has closed for one record is closed for all that follow in the partition.
    fn check_order(&self, rules: &Rules, history: &History<'_>, objections: &mut Vec<String>) {
        let mut greatest = BTreeMap::<i32, (i64, Place)>::new();
        for event in history.events() {
            let (partition, at) = (event.place.0, show(event.place));
            let before = greatest.get(&partition).copied();
            let clock = self.late.get(&event.place).copied();
            if let Some((before, by)) = before {
                let (by, end) = (show(by), event.start + rules.window);
                let closed = end - 1 + rules.allowed_lateness <= before;
                match clock {
                    Some(clock) if clock < before => objections.push(format!(
                        "{at} was late by the clock {clock}, and {by} before it by the clock {before}: it went back"
                    )),
                    None if closed => objections.push(format!(
                        "{at} is not late, and its window {}..{end} was closed when {by} was late by the clock {before}",
                        event.start
                    )),
                    Some(_) | None => {}
                }
            }
            if let Some(clock) =
                clock.filter(|clock| before.is_none_or(|(before, _)| *clock > before))
            {
                greatest.insert(partition, (clock, event.place));
            }
        }
    }
}

/// What of a record is not as it came.
fn changed(original: &Record, record: &Record) -> Option<&'static str> {
    let timestamp = record.header("tidegate.timestamp").and_then(|text| text.parse().ok());
    let brought = record.headers.get(..original.headers.len());
    if record.key != original.key {
        Some("key")
    } else if record.payload != original.payload {
        Some("payload")
    } else if timestamp.or(record.timestamp) != original.timestamp {
        Some("timestamp")
    } else if brought != Some(&original.headers[..]) {
        Some("header")
    } else {
        None
    }
}

/// A header that the service has added.
pub(super) fn text(record: &Record, name: &str) -> Result<String, String> {
    record.header(&format!("tidegate.{name}")).ok_or(format!("there is no header tidegate.{name}"))
}

pub(super) fn number(record: &Record, name: &str) -> Result<i64, String> {
    let text = text(record, name)?;
    text.parse().map_err(|_| format!("the header tidegate.{name} is {text}"))
}

/// A watermark as it is written in objections.
pub(super) fn watermark(watermark: i64) -> String {
    if watermark == NO_WATERMARK { "none".to_owned() } else { watermark.to_string() }
}
