//! The output topics as their readers see them.

use std::collections::BTreeMap;

use serde::Deserialize;
use tidegate::pipeline::{Message, OutputTopic};

use crate::memory::State;

/// A pane, delivered or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PaneRow {
    pub(crate) group: Group,
    pub(crate) index: u32,
    pub(crate) timing: String,
    pub(crate) contents: Contents,
    pub(crate) watermark: i64,
    /// Its partition of the results topic and its offset there; `None`: it is a dead letter.
    pub(crate) place: Option<(i32, i64)>,
}

/// What a pane, or several, amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Contents {
    pub(crate) n: u64,
    pub(crate) sum: u128,
    pub(crate) max: u64,
}

impl Contents {
    pub(crate) fn add(&mut self, other: Self) {
        self.n += other.n;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

/// Whose rows replace each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    /// The partition, or `all`.
    pub(crate) shard: String,
    pub(crate) window_start: i64,
    pub(crate) key: String,
}

/// A progress record.
#[derive(Clone, Debug)]
pub(crate) struct ProgressRow {
    pub(crate) topic: String,
    pub(crate) shard: String,
    pub(crate) complete_until: i64,
    /// Its partition of the results topic and its offset there.
    pub(crate) place: (i32, i64),
}

/// An input record that was passed on.
#[derive(Clone, Debug)]
pub(crate) struct PassedOn {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) message: Message,
}

#[derive(Deserialize)]
struct ResultValue {
    window_start: i64,
    window_end: i64,
    #[serde(alias = "key")]
    k: String,
    n: u64,
    sum: u128,
    max: u64,
    pane: PaneValue,
}

#[derive(Deserialize)]
struct PaneValue {
    timing: String,
    index: u32,
}

#[derive(Deserialize)]
struct ProgressValue {
    complete_until: i64,
    topic: String,
    partition: String,
}

/// Everything that is visible.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) panes: Vec<PaneRow>,
    pub(crate) progress: Vec<ProgressRow>,
    pub(crate) late: Vec<PassedOn>,
    pub(crate) dead: Vec<PassedOn>,
}

impl View {
    /// What readers see; with this, also what is hidden behind open transactions.
    pub(crate) fn of(state: &State, with_hidden: bool) -> Self {
        let mut view = Self::default();
        for ((topic, partition), log) in &state.outputs {
            let committed: Vec<_> =
                if with_hidden { log.decided().collect() } else { log.committed().collect() };
            for (offset, written) in committed {
                let (message, place) = (&*written.message, (*partition, offset));
                match topic {
                    OutputTopic::Results if header(message, "tidegate.progress").is_some() => {
                        view.progress.push(progress(message, place));
                    }
                    OutputTopic::Results => view.panes.push(pane(message, Some(place))),
                    OutputTopic::Late => view.late.push(passed_on(message)),
                    OutputTopic::DeadLetter => {
                        let reason = header(message, "tidegate.reason");
                        if reason.as_deref() == Some("result_too_large") {
                            view.panes.push(pane(message, None));
                        } else {
                            view.dead.push(passed_on(message));
                        }
                    }
                    OutputTopic::Changelog(_) => {}
                }
            }
        }
        view
    }

    /// The panes of each group, in the order of their index.
    pub(crate) fn groups(&self) -> BTreeMap<&Group, Vec<&PaneRow>> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for pane in &self.panes {
            groups.entry(&pane.group).or_default().push(pane);
        }
        for panes in groups.values_mut() {
            panes.sort_by_key(|pane| pane.index);
        }
        groups
    }
}

/// A key as its group has it, whether or not it was cut.
pub(crate) fn short(key: &str) -> String {
    if key.len() > 2 { format!("{}, long", &key[..2]) } else { key.to_owned() }
}

/// The text of the last header of this name.
pub(crate) fn header(message: &Message, name: &str) -> Option<String> {
    let (_, value) = message.headers.iter().rev().find(|(held, _)| held == name)?;
    Some(String::from_utf8(value.clone().unwrap_or_default()).unwrap())
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(message: &Message, name: &str) -> T {
    header(message, name).unwrap().parse().unwrap()
}

fn value<'a, T: Deserialize<'a>>(message: &'a Message) -> T {
    let payload = message.payload.as_deref().unwrap();
    let text = String::from_utf8_lossy(payload);
    serde_json::from_slice(payload).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn progress(message: &Message, place: (i32, i64)) -> ProgressRow {
    let value: ProgressValue = value(message);
    assert_eq!(header(message, "tidegate.partition"), Some(value.partition.clone()));
    assert_eq!(message.partition, Some(place.0));
    ProgressRow {
        topic: value.topic,
        shard: value.partition,
        complete_until: value.complete_until,
        place,
    }
}

fn pane(message: &Message, place: Option<(i32, i64)>) -> PaneRow {
    let value: ResultValue = value(message);
    assert_eq!(value.window_end - value.window_start, super::plan::WINDOW);
    if place.is_some() {
        let key = String::from_utf8(message.key.clone().unwrap()).unwrap();
        assert!(key == value.k || key.starts_with(&format!("{{\"k\":\"{}\",", value.k)), "{key}");
    }
    PaneRow {
        group: Group {
            shard: header(message, "tidegate.partition").unwrap(),
            window_start: value.window_start,
            key: short(&value.k),
        },
        index: value.pane.index,
        timing: value.pane.timing,
        contents: Contents { n: value.n, sum: value.sum, max: value.max },
        watermark: number(message, "tidegate.watermark"),
        place,
    }
}

fn passed_on(message: &Message) -> PassedOn {
    PassedOn {
        topic: header(message, "tidegate.topic").unwrap(),
        partition: number(message, "tidegate.partition"),
        offset: number(message, "tidegate.offset"),
        message: message.clone(),
    }
}
