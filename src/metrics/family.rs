//! A metric with its series, as it is before the library's own types.

use std::time::Duration;

use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use crate::event_time::EventTime;
use crate::insight::Distribution;

/// A metric: its name, what it means, and its series.
#[derive(Clone)]
pub(super) struct Family {
    name: String,
    help: &'static str,
    kind: MetricType,
    series: Vec<Metric>,
}

impl Family {
    pub(super) fn gauge(name: impl Into<String>, help: &'static str) -> Self {
        Self { name: name.into(), help, kind: MetricType::GAUGE, series: Vec::new() }
    }

    pub(super) fn counter(name: impl Into<String>, help: &'static str) -> Self {
        Self { name: name.into(), help, kind: MetricType::COUNTER, series: Vec::new() }
    }

    pub(super) fn histogram(name: impl Into<String>, help: &'static str) -> Self {
        Self { name: name.into(), help, kind: MetricType::HISTOGRAM, series: Vec::new() }
    }

    /// Adds the series of a histogram.
    pub(super) fn push_all(&mut self, labels: &[(&str, &str)], distribution: &Distribution) {
        let bucket = |(bound, count): (Duration, u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(seconds(bound));
            bucket.set_cumulative_count(count);
            bucket
        };
        let mut histogram = Histogram::default();
        histogram.set_bucket(distribution.cumulative().map(bucket).collect());
        histogram.set_sample_count(distribution.count());
        histogram.set_sample_sum(seconds(distribution.sum()));
        let mut metric = Metric::from_label(labels.iter().map(|label| pair(*label)).collect());
        metric.set_histogram(histogram);
        self.series.push(metric);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds a series; one whose value is not a number, or an infinite one, is left out.
    pub(super) fn push(&mut self, labels: &[(&str, &str)], value: f64) {
        if !value.is_finite() {
            return;
        }
        let mut metric = Metric::from_label(labels.iter().map(|label| pair(*label)).collect());
        if self.kind == MetricType::COUNTER {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.series.push(metric);
    }

    /// With one more series, if there is a value.
    pub(super) fn with(mut self, labels: &[(&str, &str)], value: impl Into<Option<f64>>) -> Self {
        if let Some(value) = value.into() {
            self.push(labels, value);
        }
        self
    }

    pub(super) fn into_proto(self) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(self.name);
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(self.series);
        family
    }
}

fn pair((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// A count as Prometheus holds it: exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
pub(super) fn count(count: u64) -> f64 {
    count as f64
}

/// A count that is in memory.
pub(super) fn size(size: usize) -> f64 {
    count(u64::try_from(size).unwrap_or(u64::MAX))
}

/// An offset.
#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
pub(super) fn offset(offset: i64) -> f64 {
    offset as f64
}

/// A time in seconds since the epoch, exact to the millisecond for the next 200 000 years.
pub(super) fn timestamp(time: EventTime) -> f64 {
    offset(time.0) / 1_000.0
}

/// How far `time` is behind `now`, negative if it is ahead.
pub(super) fn lag(now: EventTime, time: EventTime) -> f64 {
    offset(now.0.saturating_sub(time.0)) / 1_000.0
}

/// A length of time in seconds.
pub(super) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// Yes and no.
pub(super) fn flag(flag: bool) -> f64 {
    f64::from(u8::from(flag))
}
