//! What is said: numbers for programs, in the shape of the JSON. Durations are in milliseconds, shares from 0 to 1.

use serde::Serialize;

use super::Percentiles;

/// What fits one topic, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The topic.
    pub topic: String,
    /// Records that were looked at and accepted.
    pub records: u64,
    /// Records that could not be used.
    pub refused: u64,
    /// From the first arrival to the last; `None` where records have no Kafka timestamp.
    pub observed_for_ms: Option<u64>,
    /// Percentiles are off by at most this share of themselves.
    pub relative_error: f64,
    /// The length of the windows by which records are called late.
    pub window_size_ms: u64,
    /// How far records were behind the greatest event time before them, over all partitions.
    pub out_of_orderness_ms: Option<Percentiles>,
    /// What the running service really had late, by cause; `None` for a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<std::collections::BTreeMap<&'static str, u64>>,
    /// Each partition.
    pub partitions: Vec<PartitionAdvice>,
    /// What is odd.
    pub findings: Vec<Finding>,
    /// What to configure; `None` while there is nothing to go by.
    pub recommendation: Option<Recommendation>,
    /// What other bounds cost.
    pub alternatives: Vec<Alternative>,
    /// The share that would be late with the mean as the bound.
    pub late_share_at_mean: Option<f64>,
    /// What a greatest delay leaves; `None` without one.
    pub max_delay: Option<MaxDelay>,
    /// What cannot be had together.
    pub contradictions: Vec<Contradiction>,
    /// What a bound that was asked for would cost.
    pub what_if: Option<WhatIf>,
    /// The recommendation as a piece of configuration.
    pub snippet: Option<String>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionAdvice {
    /// Its number.
    pub partition: i32,
    /// Records accepted.
    pub records: u64,
    /// Records that could not be used.
    pub refused: u64,
    /// How far records were behind the greatest event time before them.
    pub out_of_orderness_ms: Option<Percentiles>,
    /// Time between the arrivals of two records.
    pub gap_ms: Option<Percentiles>,
    /// Arrival - event time of records in order.
    pub transport_ms: Option<Percentiles>,
    /// How often its producers send a batch, where they do.
    pub batch_period_ms: Option<u64>,
    /// The least idle timeout that its gaps and batches ask for.
    pub needed_idle_timeout_ms: u64,
    /// The share of its records that would be late with the recommended bound.
    pub late_share: f64,
}

/// Something odd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What: `no_records`, `few_records`, `silent`, `skewed`, `disordered`, `clock_ahead`, `refused`, `unit`, `replay`.
    pub kind: &'static str,
    /// In which partition; `None` for the topic.
    pub partition: Option<i32>,
    /// In words.
    pub text: String,
}

/// What to configure, and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// `source.watermark.max_out_of_orderness`
    pub max_out_of_orderness_ms: u64,
    /// `source.watermark.idle_timeout`
    pub idle_timeout_ms: u64,
    /// `window.allowed_lateness`
    pub allowed_lateness_ms: u64,
    /// The share of records that would be late.
    pub late_share: f64,
    /// When results come, after the end of their window.
    pub delay: Delay,
    /// When they come, at the latest, while a partition is falling silent.
    pub delay_when_silent_ms: u64,
    /// Why so, in words: bound, idle timeout, allowed lateness.
    pub reasons: [String; 3],
}

/// The parts of a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Delay {
    /// P99 of arrival - event time of records in order.
    pub transport_ms: u64,
    /// The bound.
    pub bound_ms: u64,
    /// The emit interval.
    pub emit_interval_ms: u64,
    /// A commit.
    pub commit_ms: u64,
    /// All of it.
    pub total_ms: u64,
}

/// A bound, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// Where it is from: `p50`, `p90`, `p99`, `p99.9`, `max`.
    pub basis: &'static str,
    /// The bound.
    pub bound_ms: u64,
    /// The share of records that would be late.
    pub late_share: f64,
    /// When results come, after the end of their window.
    pub delay_ms: u64,
}

/// What a greatest delay leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MaxDelay {
    /// What was asked for.
    pub asked_ms: u64,
    /// What is left of it for the bound.
    pub room_ms: u64,
    /// The share of records that would be late if all of that were the bound.
    pub late_share_at_room: f64,
    /// P99 of the out-of-orderness.
    pub p99_ms: u64,
    /// The share of records that would be late with that as the bound.
    pub late_share_at_p99: f64,
    /// What is left of it for the idle timeout.
    pub idle_timeout_room_ms: u64,
}

/// What cannot be had together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// What: `bound`, `idle_timeout`.
    pub setting: &'static str,
    /// In which partition; `None` for all.
    pub partition: Option<i32>,
    /// What the records ask for.
    pub needed_ms: u64,
    /// What the delay allows.
    pub allowed_ms: u64,
    /// In words.
    pub text: String,
    /// The ways out, in words.
    pub ways: Vec<&'static str>,
}

/// What a bound that was asked for would cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The bound.
    pub bound_ms: u64,
    /// The share of the records looked at that would have been late.
    pub late_share: f64,
    /// How many records that is, about.
    pub late_records: u64,
    /// When results would come, after the end of their window.
    pub delay_ms: u64,
}
