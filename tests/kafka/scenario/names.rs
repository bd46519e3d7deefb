//! What the cases call by names of their own, as the service calls it.

use crate::support::process::series;

/// Metrics: the name in a case, the family here, a label it must have, and what a value there is in the unit of the
/// case.
const METRICS: [(&str, &str, &str, f64); 22] = [
    ("assigned_partitions", "tidegate_partitions", "", 1.0),
    ("idle_partitions", "tidegate_partitions", "state=\"idle\"", 1.0),
    ("idle_transitions_total", "tidegate_partition_idle_transitions_total", "to=\"idle\"", 1.0),
    ("consumer_lag", "tidegate_consumer_lag_records", "", 1.0),
    ("records_in_total", "tidegate_records_in_total", "", 1.0),
    ("records_late_total", "tidegate_late_records_total", "disposition=\"late_topic\"", 1.0),
    ("records_rejected_total", "tidegate_dead_letter_records_total", "", 1.0),
    ("records_tombstone_total", "tidegate_tombstones_total", "", 1.0),
    ("records_ignored_total", "tidegate_records_ignored_total", "", 1.0),
    ("records_missing_total", "tidegate_records_missing_total", "", 1.0),
    ("panes_total", "tidegate_window_fires_total", "", 1.0),
    ("panes_on_time_total", "tidegate_window_fires_total", "kind=\"on_time\"", 1.0),
    ("panes_late_total", "tidegate_window_fires_total", "kind=\"late\"", 1.0),
    ("panes_undeliverable_total", "tidegate_panes_undeliverable_total", "", 1.0),
    ("open_windows", "tidegate_windows_open", "", 1.0),
    ("open_panes", "tidegate_window_panes_open", "", 1.0),
    ("oldest_open_window_ms", "tidegate_oldest_open_window_timestamp_seconds", "", 1_000.0),
    ("watermark_ms", "tidegate_watermark_timestamp_seconds", "", 1_000.0),
    ("watermark_lag_ms", "tidegate_watermark_lag_seconds", "", 1_000.0),
    ("group_evictions", "tidegate_rebalances_total", "event=\"lost\"", 1.0),
    ("transactions_committed_total", "tidegate_transactions_total", "outcome=\"committed\"", 1.0),
    ("transactions_aborted_total", "tidegate_transactions_total", "outcome=\"aborted\"", 1.0),
];

/// Paths of HTTP; the others are called alike.
const PATHS: [(&str, &str); 2] = [("/live", "/livez"), ("/ready", "/readyz")];

/// Where the service answers what a case asks for.
pub(super) fn path(logical: &str) -> &str {
    PATHS.iter().find(|(name, _)| *name == logical).map_or(logical, |(_, path)| path)
}

/// The value of a metric in the text of a scrape, all series that it names added up; `None` if there is none.
/// The reasons of dead letters, the kinds of panes and the labels `partition` are written alike.
pub(super) fn metric(logical: &str, scrape: &str) -> Result<Option<f64>, String> {
    let (name, wanted) = logical.split_once('{').unwrap_or((logical, ""));
    let known = METRICS.iter().find(|(known, ..)| *known == name);
    let (_, family, label, unit) = known.ok_or_else(|| format!("no metric is known as {name}"))?;
    let wanted = wanted.trim_end_matches('}').split(',').filter(|wanted| !wanted.is_empty());
    let mut labels = Vec::from_iter((!label.is_empty()).then(|| (*label).to_owned()));
    for wanted in wanted {
        let (name, value) = wanted.split_once('=').ok_or_else(|| format!("no label: {wanted}"))?;
        labels.push(format!("{}=\"{}\"", name.trim(), value.trim().trim_matches('"')));
    }
    let values = series(scrape, family).filter(|(held, _)| labels.iter().all(|l| held.contains(l)));
    Ok(values.map(|(_, value)| value * unit).reduce(|sum, value| sum + value))
}

/// The value of a label in the text of the labels of a series.
pub(super) fn label<'a>(name: &str, labels: &'a str) -> Option<&'a str> {
    let (_, rest) = labels.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}
