//! Where things stand, read from the newest snapshot at the scrape.

use std::collections::BTreeMap;

use super::family::{Family, count, flag, lag, offset, seconds, size, timestamp};
use super::{Scrape, State};
use crate::event_time::{EventTime, WatermarkStatus};
use crate::insight::{PartitionSnapshot, Snapshot};

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
    scrape: &Scrape,
    state: &State,
    snapshot: &Snapshot,
    now: EventTime,
) -> Vec<Family> {
    let assigned = snapshot.partitions.iter().filter(|p| state.assigned.contains(&p.id));
    let partitions: Vec<Labelled<'_>> = assigned
        .map(|partition| Labelled {
            topic: scrape.topic(partition.id.topic),
            number: partition.id.partition.to_string(),
            partition,
        })
        .collect();
    let mut families = of_subtask(scrape, snapshot, &partitions, now);
    families.extend(of_windows(snapshot));
    families.extend(of_service(state, snapshot));
    families.push(by_state(scrape, &partitions));
    families.extend(by_partition(&partitions, now));
    families.extend(of_generators(&partitions));
    families
}

/// A subtask that reads nothing has no watermark: one that stayed behind would look like a lag.
fn of_subtask(
    scrape: &Scrape,
    snapshot: &Snapshot,
    partitions: &[Labelled<'_>],
    now: EventTime,
) -> Vec<Family> {
    let subtask = [("subtask", scrape.subtask.as_str())];
    let watermark = snapshot.watermark.filter(|_| !partitions.is_empty());
    let mut holder = Family::gauge(
        "tidegate_watermark_holder",
        "1 for the active partition with the least watermark: the one that results wait for.",
    );
    for partition in partitions.iter().filter(|p| Some(p.partition.id) == snapshot.holder) {
        holder.push(&partition.labels(), 1.0);
    }
    vec![
        Family::gauge("tidegate_watermark_timestamp_seconds", "The subtask watermark.")
            .with(&subtask, watermark.map(timestamp)),
        Family::gauge(
            "tidegate_watermark_lag_seconds",
            "The wall clock minus the subtask watermark, at the scrape; negative if the watermark is ahead.",
        )
        .with(&subtask, watermark.map(|watermark| lag(now, watermark))),
        holder,
    ]
}

fn of_windows(snapshot: &Snapshot) -> Vec<Family> {
    vec![
        Family::gauge("tidegate_windows_open", "Distinct windows held.")
            .with(&[], size(snapshot.windows_open)),
        Family::gauge("tidegate_window_panes_open", "(window, key) entries held.")
            .with(&[], size(snapshot.panes_open)),
        Family::gauge(
            "tidegate_oldest_open_window_timestamp_seconds",
            "The start of the oldest window held.",
        )
        .with(&[], snapshot.oldest_open_window.map(timestamp)),
    ]
}

fn of_service(state: &State, snapshot: &Snapshot) -> Vec<Family> {
    vec![
        Family::gauge("tidegate_last_commit_timestamp_seconds", "When the last commit ended.")
            .with(&[], state.last_commit.map(timestamp)),
        Family::gauge("tidegate_ready", "1 from the first assignment until the service ends.")
            .with(&[], flag(snapshot.phase.not_ready().is_none())),
    ]
}

/// Every partition is counted once; all states exist for every topic.
fn by_state(scrape: &Scrape, partitions: &[Labelled<'_>]) -> Family {
    let mut family = Family::gauge(
        "tidegate_partitions",
        "Partitions assigned, by state; one that is idle counts as that alone.",
    );
    for topic in &scrape.topics {
        for state in ["active", "idle", "no_watermark", "paused"] {
            let here = partitions
                .iter()
                .filter(|p| p.topic == topic.as_str() && state_of(p.partition) == state);
            family.push(&[("topic", topic), ("state", state)], size(here.count()));
        }
    }
    family
}

fn state_of(partition: &PartitionSnapshot) -> &'static str {
    match (partition.status, partition.watermark) {
        (WatermarkStatus::Idle, _) => "idle",
        (WatermarkStatus::Active, None) => "no_watermark",
        (WatermarkStatus::Active, Some(_)) => "active",
    }
}

fn by_partition(partitions: &[Labelled<'_>], now: EventTime) -> Vec<Family> {
    type Value = fn(&PartitionSnapshot, EventTime) -> Option<f64>;
    let gauges: [(&str, &'static str, Value); 8] = [
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
fn of_generators(partitions: &[Labelled<'_>]) -> Vec<Family> {
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
