//! The table of series in `deploy/README.md` against what is exported, both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Bench, START, at, bench, subtask_at};
use crate::insight::{ExportProgress, ExportWatch, PartitionHistory, PartitionSnapshot, Snapshot};
use crate::metrics::{CommitOutcome, ExportMetrics};

/// A row of the table in `deploy/README.md`.
#[derive(Debug, PartialEq)]
struct Row {
    kind: String,
    unit: String,
    labels: Vec<String>,
}

fn documented() -> BTreeMap<String, Row> {
    let text = include_str!("../../../deploy/README.md");
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| SERIES.iter().any(|start| line.starts_with(start))) {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [_, name, kind, unit, labels, meaning, ..] = cells.as_slice() else {
            panic!("too few cells: {line}");
        };
        assert!(!meaning.is_empty(), "{name} has no meaning");
        let labels = labels.split(", ").filter(|l| *l != "-").map(str::to_owned).collect();
        let row = Row { kind: kind.clone(), unit: unit.clone(), labels };
        assert_eq!(rows.insert(name.clone(), row), None, "{name} stands there twice");
    }
    rows
}

/// How a row begins.
const SERIES: [&str; 2] = ["| `tidegate_", "| `process_"];

/// One of everything.
fn full() -> Bench {
    let bench = bench();
    let gauges = vec![("observed_out_of_orderness_seconds", 1.5)];
    let bound = Some(Duration::from_secs(2));
    let partition = PartitionSnapshot {
        max_event_time: Some(START),
        bound,
        gauges,
        position: Some(4),
        end_offset: Some(9),
        last_stable_offset: None,
        history: PartitionHistory::default(),
        ..at(0, START)
    };
    bench.publish_with(Snapshot {
        oldest_open_window: Some(START),
        partitions: vec![partition],
        ..subtask_at(START)
    });
    bench.metrics.of(0).committed(Duration::from_millis(20), CommitOutcome::Committed);
    bench.metrics.kafka_error("BrokerTransportFailure", true);
    bench
}

#[test]
fn every_series_is_documented_and_nothing_else() {
    let rows = documented();
    let mut families = full().metrics.registry.gather();
    let watch = ExportWatch::default();
    watch.publish(ExportProgress { lag: Some(3), last_write: Some(START), ..Default::default() });
    let of_export = ExportMetrics::new(watch).unwrap().registry.gather();
    families.extend(of_export.into_iter().filter(|family| !family.name().starts_with("process_")));
    let exported: BTreeSet<_> = families.iter().map(|f| f.name().to_owned()).collect();
    assert_eq!(exported, rows.keys().cloned().collect::<BTreeSet<_>>());
    for family in &families {
        let (name, row) = (family.name(), &rows[family.name()]);
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        assert_eq!(kind, row.kind, "{name}");
        let labels: Vec<_> =
            family.get_metric()[0].get_label().iter().map(|l| l.name().to_owned()).collect();
        assert_eq!(labels, row.labels, "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert_eq!(name.contains("_seconds"), row.unit == "seconds", "{name}");
        assert_eq!(name.contains("_bytes"), row.unit == "bytes", "{name}");
        assert!(!family.help().is_empty(), "{name} has no help");
        assert!(name.starts_with("tidegate_") || name.starts_with("process_"), "{name}");
    }
}
