//! Where things stand, read from the newest snapshots at the scrape.

use std::collections::BTreeMap;

use super::family::{Family, count, flag, lag, offset, seconds, size, timestamp};
use super::{Sources, State};
use crate::event_time::{EventTime, PartitionId, WatermarkStatus};
use crate::insight::{Overview, PartitionSnapshot, Snapshot};

/// A subtask with its partitions.
struct Subtask<'a> {
    number: u16,
    label: String,
    snapshot: &'a Snapshot,
    partitions: Vec<Labelled<'a>>,
}

impl<'a> Subtask<'a> {
    fn new(sources: &'a Sources, state: &State, number: u16, snapshot: &'a Snapshot) -> Self {
        let has = |id: &PartitionId| state.owners.get(id) == Some(&number);
        let partitions = snapshot.partitions.iter().filter(|partition| has(&partition.id));
        let partitions = partitions.map(|partition| Labelled {
            topic: sources.topic(partition.id.topic),
            number: partition.id.partition.to_string(),
            partition,
        });
        Self { number, label: number.to_string(), snapshot, partitions: partitions.collect() }
    }

    fn label(&self) -> (&str, &str) {
        ("subtask", &self.label)
    }
}

/// A partition with its labels.
struct Labelled<'a> {
    topic: &'a str,
    number: String,
    partition: &'a PartitionSnapshot,
}

impl Labelled<'_> {
    fn labels(&self) -> [(&str, &str); 2] {
        [("topic", self.topic), ("partition", &self.number)]
    }
}

pub(super) fn families(
    sources: &Sources,
    state: &State,
    overview: &Overview,
    now: EventTime,
) -> Vec<Family> {
    let subtasks: Vec<Subtask<'_>> = overview
        .subtasks()
        .map(|(number, snapshot)| Subtask::new(sources, state, number, snapshot))
        .collect();
    let partitions: Vec<&Labelled<'_>> =
        subtasks.iter().flat_map(|subtask| &subtask.partitions).collect();
    let mut families = of_subtasks(&subtasks, now);
    families.extend(of_state(&subtasks, state));
    families.extend(of_windows(&subtasks));
    families.push(
        Family::gauge("tidegate_ready", "1 from the first assignment until the service ends.")
            .with(&[], flag(overview.not_ready().is_none())),
    );
    families.push(by_state(sources, &subtasks));
    families.extend(by_partition(&partitions, now));
    families.extend(of_generators(&partitions));
    families
}

/// A subtask that reads nothing has no watermark: one that stayed behind would look like a lag.
fn of_subtasks(subtasks: &[Subtask<'_>], now: EventTime) -> Vec<Family> {
    let mut watermark =
        Family::gauge("tidegate_watermark_timestamp_seconds", "The subtask watermark.");
    let mut behind = Family::gauge(
        "tidegate_watermark_lag_seconds",
        "The wall clock minus the subtask watermark, at the scrape; negative if the watermark is ahead.",
    );
    let mut holder = Family::gauge(
        "tidegate_watermark_holder",
        "1 for the subtask's active partition with the least watermark: the one that its results wait for.",
    );
    for subtask in subtasks.iter().filter(|subtask| !subtask.partitions.is_empty()) {
        if let Some(time) = subtask.snapshot.watermark {
            watermark.push(&[subtask.label()], timestamp(time));
            behind.push(&[subtask.label()], lag(now, time));
        }
        let holds = |id| Some(id) == subtask.snapshot.holder;
        for labelled in subtask.partitions.iter().filter(|p| holds(p.partition.id)) {
            let [topic, partition] = labelled.labels();
            holder.push(&[subtask.label(), topic, partition], 1.0);
        }
    }
    vec![watermark, behind, holder]
}

/// What each subtask has in memory, and when it was last safe.
fn of_state(subtasks: &[Subtask<'_>], state: &State) -> Vec<Family> {
    let mut bytes = Family::gauge("tidegate_state_bytes", "Memory that the state takes, about.");
    let mut restoring = Family::gauge(
        "tidegate_partitions_restoring",
        "Partitions whose state is being read back; their records are not read yet.",
    );
    let mut last_commit =
        Family::gauge("tidegate_last_commit_timestamp_seconds", "When the last commit ended.");
    let mut queued = Family::gauge(
        "tidegate_producer_queue_records",
        "Messages sent that no broker has taken yet.",
    );
    for subtask in subtasks {
        let label = [subtask.label()];
        queued.push(&label, size(subtask.snapshot.producer_queue));
        bytes.push(&label, size(subtask.snapshot.state_bytes));
        let ours = subtask.snapshot.restoring.iter().filter(|restoring| {
            // A partition may be said to have come only when its state is there.
            state.owners.get(&restoring.id).is_none_or(|owner| *owner == subtask.number)
        });
        restoring.push(&label, size(ours.count()));
        let committed = state.last_commits.get(&subtask.number).copied();
        last_commit = last_commit.with(&label, committed.map(timestamp));
    }
    vec![bytes, restoring, last_commit, queued]
}

fn of_windows(subtasks: &[Subtask<'_>]) -> Vec<Family> {
    let sum = |of: fn(&Snapshot) -> usize| subtasks.iter().map(|s| of(s.snapshot)).sum();
    let oldest = subtasks.iter().filter_map(|subtask| subtask.snapshot.oldest_open_window).min();
    vec![
        Family::gauge("tidegate_windows_open", "Distinct windows held, added up over subtasks.")
            .with(&[], size(sum(|snapshot| snapshot.windows_open))),
        Family::gauge("tidegate_window_panes_open", "(window, key) entries held.")
            .with(&[], size(sum(|snapshot| snapshot.panes_open))),
        Family::gauge(
            "tidegate_oldest_open_window_timestamp_seconds",
            "The start of the oldest window held.",
        )
        .with(&[], oldest.map(timestamp)),
    ]
}

/// Every partition is counted once; all states exist for every subtask and topic.
fn by_state(sources: &Sources, subtasks: &[Subtask<'_>]) -> Family {
    let mut family = Family::gauge(
        "tidegate_partitions",
        "Partitions assigned, by state; one that is idle counts as that alone.",
    );
    for subtask in subtasks {
        for topic in &sources.topics {
            for state in ["active", "idle", "no_watermark", "paused"] {
                let here = subtask
                    .partitions
                    .iter()
                    .filter(|p| p.topic == topic.as_str() && state_of(p.partition) == state);
                let labels = [subtask.label(), ("topic", topic), ("state", state)];
                family.push(&labels, size(here.count()));
            }
        }
    }
    family
}

fn state_of(partition: &PartitionSnapshot) -> &'static str {
    match (partition.status, partition.watermark) {
        (WatermarkStatus::Idle, _) => "idle",
        (WatermarkStatus::Active, _) if partition.paused.is_some() => "paused",
        (WatermarkStatus::Active, None) => "no_watermark",
        (WatermarkStatus::Active, Some(_)) => "active",
    }
}

fn by_partition(partitions: &[&Labelled<'_>], now: EventTime) -> Vec<Family> {
    type Value = fn(&PartitionSnapshot, EventTime) -> Option<f64>;
    let gauges: [(&str, &'static str, Value); 10] = [
        (
            "tidegate_partition_watermark_timestamp_seconds",
            "The partition's own watermark; while idle, the one it had.",
            |p, _| p.watermark.map(timestamp),
        ),
        (
            "tidegate_partition_watermark_lag_seconds",
            "The wall clock minus the partition's own watermark, at the scrape; negative if that is ahead.",
            |p, now| p.watermark.map(|watermark| lag(now, watermark)),
        ),
        (
            "tidegate_partition_max_event_timestamp_seconds",
            "The greatest event time accepted.",
            |p, _| p.max_event_time.map(timestamp),
        ),
        (
            "tidegate_partition_out_of_orderness_bound_seconds",
            "The out-of-orderness bound in force.",
            |p, _| p.bound.map(seconds),
        ),
        ("tidegate_partition_idle", "1 while the partition holds nobody back.", |p, _| {
            Some(flag(p.status == WatermarkStatus::Idle))
        }),
        (
            "tidegate_partition_paused",
            "1 while the partition is not read, since it is too far ahead of the watermark (alignment.max_drift).",
            |p, _| Some(flag(p.paused.is_some())),
        ),
        (
            "tidegate_partition_caught_up",
            "1 while all there is has been read and the broker answers: only then does silence count.",
            |p, _| Some(flag(p.caught_up)),
        ),
        (
            "tidegate_consumer_lag_records",
            "Records not read yet, by the end offset that the last fetch reported.",
            |p, _| p.lag().map(count),
        ),
        ("tidegate_consumed_offset", "The offset of the next record to read.", |p, _| {
            p.position.map(offset)
        }),
        (
            "tidegate_committed_offset",
            "The offset of the next record after those whose outcome is committed.",
            |p, _| p.committed.map(offset),
        ),
    ];
    let family = |(name, help, value): (&str, &'static str, Value)| {
        let mut family = Family::gauge(name, help);
        for labelled in partitions {
            if let Some(value) = value(labelled.partition, now) {
                family.push(&labelled.labels(), value);
            }
        }
        family
    };
    gauges.into_iter().map(family).collect()
}

/// The generators' own numbers; one whose name Prometheus would not take is left out.
fn of_generators(partitions: &[&Labelled<'_>]) -> Vec<Family> {
    let word = |name: &str| {
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let mut families = BTreeMap::new();
    for labelled in partitions {
        let gauges: BTreeMap<_, _> = labelled.partition.gauges.iter().copied().collect();
        for (name, value) in gauges.into_iter().filter(|(name, _)| word(name)) {
            let family = families.entry(name).or_insert_with(|| {
                Family::gauge(
                    format!("tidegate_partition_{name}"),
                    "A number of the partition's watermark generator.",
                )
            });
            family.push(&labelled.labels(), value);
        }
    }
    families.into_values().collect()
}
