//! Says where each record of an input topic has to be, and objects to whatever is otherwise in the output topics.
//!
//! It has no code of the service: it reads the topics as a `read_committed` reader does and knows the rules. Each record
//! is in exactly one place: in the last pane of its window, in the late topic, in the dead letters, or a tombstone.
//! What it can tell from the input alone is told from the input; what depended on the service (which clock a record was
//! judged by) is checked against the history of the record's partition: the clock never passes the watermark that the
//! partition's own records had made, and never goes back. Values are random numbers of 60 bits, so that count and sum
//! betray one record that is missing and another that is there twice, and say which.
//!
//! It holds where partitions are never idle and no drain has moved the clock. Partitions that came to the topic while
//! the group was at work began at the clock they found: [`Rules::added`].

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

mod difference;
mod elsewhere;
mod history;
mod panes;
mod report;

use std::collections::BTreeSet;

use super::record::Record;
use history::History;
use report::report;

/// What the service was told; times in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Of the input topic.
    pub(crate) partitions: i32,
    /// How far out of order a partition's records are expected to be.
    pub(crate) bound: i64,
    pub(crate) window: i64,
    pub(crate) allowed_lateness: i64,
    /// The names of the fields.
    pub(crate) time: &'static str,
    pub(crate) value: &'static str,
    pub(crate) key: KeyOf,
    /// Partitions that came to the topic while the group was at work.
    pub(crate) added: BTreeSet<i32>,
}

/// Where a record has its key, and so which records share a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOf {
    /// The message key: each partition has its own windows and clock.
    Message,
    /// A field: all partitions together.
    Field(&'static str),
}

/// What a `read_committed` reader finds, by partition and offset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topics {
    pub(crate) input: Vec<Record>,
    pub(crate) results: Vec<Record>,
    pub(crate) late: Vec<Record>,
    pub(crate) dead: Vec<Record>,
}

/// What the oracle says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// What is not as it has to be, each with the records it is about as `partition@offset`.
    pub(crate) objections: Vec<String>,
    pub(crate) figures: Figures,
}

/// Where the records are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) records: usize,
    /// In last panes.
    pub(crate) in_panes: usize,
    /// In windows whose end no clock has to have passed.
    pub(crate) open: usize,
    pub(crate) late: usize,
    /// Those of them that were late only by the clock that an added partition began at.
    pub(crate) joined: usize,
    pub(crate) dead: usize,
    pub(crate) tombstones: usize,
    /// Windows and keys that have fired.
    pub(crate) rows: usize,
    pub(crate) panes: usize,
    /// Those of them that a record within the allowed lateness has fired.
    pub(crate) late_panes: usize,
}

impl Verdict {
    /// The objections, the first of each kind in full.
    pub(crate) fn text(&self) -> String {
        let Self { objections, figures } = self;
        format!("{} objections, {figures:?}\n{}", objections.len(), report(objections))
    }

    /// The figures; fails the test if there is an objection.
    pub(crate) fn figures(&self) -> Figures {
        assert!(self.objections.is_empty(), "{}", self.text());
        self.figures
    }
}

/// Compares what is there with what has to be.
pub(crate) fn judge(rules: &Rules, topics: &Topics) -> Verdict {
    let mut objections = Vec::new();
    let history = History::of(rules, &topics.input);
    let elsewhere = elsewhere::check(rules, &history, topics, &mut objections);
    let found = panes::check(rules, &history, &elsewhere, &topics.results, &mut objections);
    for (partition, clocks) in &found.own_clocks {
        if clocks.len() > 1 {
            objections.push(format!(
                "partition {partition} came to the group once, and yet began at several clocks: {clocks:?}"
            ));
        }
    }
    let figures = Figures {
        records: topics.input.len(),
        in_panes: found.records,
        open: found.open,
        late: topics.late.len(),
        joined: elsewhere.joined,
        dead: topics.dead.len(),
        tombstones: history.tombstones(),
        rows: found.rows,
        panes: found.panes,
        late_panes: found.panes - found.on_time,
    };
    let placed = figures.in_panes + figures.open + figures.late + figures.dead + figures.tombstones;
    if objections.is_empty() && placed != figures.records {
        objections.push(format!("{} records, and {placed} are somewhere", figures.records));
    }
    Verdict { objections, figures }
}

/// A record's partition and offset.
type Place = (i32, i64);

/// As it is written in objections.
fn show((partition, offset): Place) -> String {
    format!("{partition}@{offset}")
}
