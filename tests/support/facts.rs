//! What a subtask gives, as owned values that compare and print.
#![expect(clippy::panic, reason = "a test may panic")]

use tidegate::event_time::{
    AggregateValue, Output, PartitionId, ShardId, Subtask, WatermarkStatus,
};

/// An output; times are plain milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    Fired(Fired),
    Watermark(i64),
    Status(PartitionId, WatermarkStatusName),
}

/// `idle` or `active`.
pub(crate) type WatermarkStatusName = &'static str;

/// A pane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fired {
    /// The partition whose shard it is; `None` for the shared one.
    pub(crate) shard: Option<PartitionId>,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) key: String,
    pub(crate) timing: &'static str,
    pub(crate) index: u32,
    /// `None` where an aggregate had no value.
    pub(crate) aggregates: Vec<Option<i128>>,
    pub(crate) watermark: i64,
}

/// Takes all outputs. Panes that one combine fires are put in order of their shards, which has no meaning; a late record's
/// pane comes before those of the combine that the same record brings about.
pub(crate) fn take_facts(subtask: &mut Subtask) -> Vec<Fact> {
    let mut facts: Vec<Fact> = std::iter::from_fn(|| take_fact(subtask)).collect();
    let together = |a: &Fact, b: &Fact| match (a, b) {
        (Fact::Fired(a), Fact::Fired(b)) => a.timing == b.timing,
        _ => false,
    };
    for panes in facts.chunk_by_mut(together) {
        panes.sort_by_key(|fact| match fact {
            Fact::Fired(fired) => fired.shard,
            Fact::Watermark(_) | Fact::Status(..) => None,
        });
    }
    facts
}

/// Takes the next output.
pub(crate) fn take_fact(subtask: &mut Subtask) -> Option<Fact> {
    Some(match subtask.poll_output()? {
        Output::WatermarkAdvanced(watermark) => Fact::Watermark(watermark.0.0),
        Output::StatusChanged(id, status) => Fact::Status(id, status_name(status)),
        Output::Fired(pane) => Fact::Fired(Fired {
            shard: match pane.shard {
                ShardId::All => None,
                ShardId::Partition(id) => Some(id),
            },
            start: pane.window.start.0,
            end: pane.window.end.0,
            key: String::from_utf8_lossy(pane.key).into_owned(),
            timing: pane.timing.name(),
            index: pane.index,
            aggregates: pane.aggregates.values().map(whole).collect(),
            watermark: pane.watermark.0.0,
        }),
    })
}

/// How a status is written.
pub(crate) fn status_name(status: WatermarkStatus) -> WatermarkStatusName {
    match status {
        WatermarkStatus::Active => "active",
        WatermarkStatus::Idle => "idle",
    }
}

fn whole(value: AggregateValue) -> Option<i128> {
    match value {
        AggregateValue::Integer(integer) => Some(integer),
        AggregateValue::Missing => None,
        other @ (AggregateValue::Float(_) | AggregateValue::Overflow) => {
            panic!("an aggregate of integers is {other:?}")
        }
    }
}
