//! The table of series in `deploy/README.md` against what is exported, both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Bench, START, at, bench, bench_reading, fresh, id, subtask_at};
use crate::event_time::WatermarkStatus;
use crate::insight::{
    ExportProgress, ExportWatch, PartitionHistory, PartitionSnapshot, Phase, Snapshot,
};
use crate::metrics::{CommitOutcome, ExportMetrics, SourceInfo};

/// A row of the table in `deploy/README.md`.
#[derive(Debug, PartialEq)]
struct Row {
    kind: String,
    unit: String,
    labels: Vec<String>,
    /// When there is none, or what else is to be said of it.
    cases: Vec<String>,
}

fn documented() -> BTreeMap<String, Row> {
    let text = include_str!("../../../deploy/README.md");
    let (mut rows, mut above) = (BTreeMap::new(), Vec::new());
    for line in text.lines().filter(|line| SERIES.iter().any(|start| line.starts_with(start))) {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [_, name, kind, unit, labels, meaning, cases, _] = cells.as_slice() else {
            panic!("too few cells: {line}");
        };
        assert!(!meaning.is_empty(), "{name} has no meaning");
        let labels = labels.split(", ").filter(|l| *l != "-").map(str::to_owned).collect();
        let cases = match cases.as_str() {
            "As above." => above,
            cases => cases.split(['.', ';']).map(|case| case.trim().to_lowercase()).collect(),
        };
        above = cases.clone();
        let cases = cases.into_iter().filter(|case| !case.is_empty()).collect();
        let row = Row { kind: kind.clone(), unit: unit.clone(), labels, cases };
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
        committed: Some(4),
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

/// What has happened, as far as it decides which series there are.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each has happened or has not, by itself")]
struct Situation {
    /// A partition was assigned at some time, and is still here.
    was_assigned: bool,
    is_assigned: bool,
    fetched: bool,
    record: bool,
    watermark: bool,
    all_idle: bool,
    window: bool,
    committed: bool,
    error: bool,
    adaptive: bool,
    /// Neither the strategy nor the configuration has a bound or a timeout.
    unbounded: bool,
}

impl Situation {
    /// A service that has everything.
    const FULL: Self = Self {
        was_assigned: true,
        is_assigned: true,
        fetched: true,
        record: true,
        watermark: true,
        all_idle: false,
        window: true,
        committed: true,
        error: true,
        adaptive: true,
        unbounded: false,
    };

    /// Whether the documentation says that a series is absent. What it says has to be known here.
    fn lacks(self, row: &Row) -> bool {
        let by_partition = row.labels.iter().any(|label| label == "partition");
        let assigned = if row.kind == "counter" { self.was_assigned } else { self.is_assigned };
        let absent = |case: &String| match case.as_str() {
            "before the first watermark" | "before its first" => !self.watermark,
            "without partitions" => !self.is_assigned,
            "before the first record of all" | "before the first record" => !self.record,
            "while all are idle" => self.all_idle,
            "before the first fetch" => !self.fetched,
            "while none is" => !self.window,
            "before the first" | "before the first commit of all" => !self.committed,
            "a code before its first error" => !self.error,
            "other strategies" => !self.adaptive,
            "strategies without a bound"
            | "where it is off"
            | "punctuated and generators of your own" => self.unbounded,
            "always all four states" | "while idle it stays" | "while idle it grows" => false,
            other => panic!("nothing checks that this is so: {other}"),
        };
        (by_partition && !assigned) || row.cases.iter().any(absent)
    }

    /// A service in this situation.
    fn bench(self) -> Bench {
        let bounded = |duration| (!self.unbounded).then_some(duration);
        let source = SourceInfo {
            topic: "orders".to_owned(),
            strategy: "some".to_owned(),
            idle_timeout: bounded(Duration::from_secs(30)),
            max_out_of_orderness: bounded(Duration::from_secs(2)),
        };
        let bench = bench_reading(vec![source], 1);
        let partition = PartitionSnapshot {
            watermark: self.watermark.then_some(START),
            max_event_time: self.record.then_some(START),
            status: if self.all_idle { WatermarkStatus::Idle } else { WatermarkStatus::Active },
            bound: bounded(Duration::from_secs(2)),
            gauges: if self.adaptive {
                vec![("observed_out_of_orderness_seconds", 1.5)]
            } else {
                Vec::new()
            },
            position: self.fetched.then_some(4),
            end_offset: self.fetched.then_some(9),
            committed: self.committed.then_some(4),
            ..fresh(0)
        };
        let holder = (self.record && !self.all_idle).then_some(partition.id);
        if self.was_assigned {
            bench.publish_with(Snapshot {
                phase: Phase::Running,
                watermark: self.watermark.then_some(START),
                holder,
                partitions: vec![partition],
                oldest_open_window: self.window.then_some(START),
                ..Snapshot::default()
            });
        }
        if self.committed {
            bench.metrics.of(0).committed(Duration::from_millis(20), CommitOutcome::Committed);
        }
        if self.error {
            bench.metrics.kafka_error("BrokerTransportFailure", true);
        }
        if self.was_assigned && !self.is_assigned {
            bench.metrics.of(0).revoked(id(0));
        }
        bench
    }
}

#[test]
fn series_are_there_when_the_documentation_says_so() {
    let mut rows = documented();
    // Those of an exporter, which is a process of its own.
    rows.retain(|name, _| !name.starts_with("tidegate_export_"));
    let full = Situation::FULL;
    let nothing = Situation::default();
    let assigned = Situation { was_assigned: true, is_assigned: true, ..nothing };
    let situations = [
        ("all is well", full),
        ("after the start, or a restart", nothing),
        ("nothing is read yet", assigned),
        (
            "after a restart, with what was restored",
            Situation { watermark: true, fetched: true, window: true, ..assigned },
        ),
        (
            "records and no watermark",
            Situation { record: true, fetched: true, unbounded: true, ..assigned },
        ),
        ("all partitions are idle", Situation { all_idle: true, ..full }),
        ("nothing has ever come, and it is idle", Situation { all_idle: true, ..assigned }),
        ("after a revoke", Situation { is_assigned: false, ..full }),
        ("a strategy of one's own", Situation { unbounded: true, adaptive: false, ..full }),
        ("nothing is open", Situation { window: false, ..full }),
    ];
    for (what, situation) in situations {
        let families = situation.bench().metrics.registry.gather();
        let shown = families.iter().filter(|family| !family.get_metric().is_empty());
        let shown: BTreeSet<_> = shown.map(|family| family.name().to_owned()).collect();
        let expected: BTreeSet<_> = rows
            .iter()
            .filter(|(_, row)| !situation.lacks(row))
            .map(|(name, _)| name.clone())
            .collect();
        let missing: Vec<_> = expected.difference(&shown).collect();
        let unexpected: Vec<_> = shown.difference(&expected).collect();
        assert!(
            missing.is_empty() && unexpected.is_empty(),
            "{what}: no {missing:?}, and {unexpected:?}"
        );
    }
}

#[test]
fn after_a_restart_counters_begin_anew_and_the_start_is_told() {
    let before = Situation::FULL.bench();
    let counted = "tidegate_transactions_total{outcome=\"committed\"}";
    let started = "tidegate_start_timestamp_seconds";
    assert_eq!((before.get(counted), before.get(started)), (Some(1.0), Some(1_800_000_000.0)));
    let after = bench();
    let totals = after.scrape().into_iter().filter(|(series, _)| series.contains("_total"));
    let risen: Vec<_> = totals.filter(|(_, value)| *value != 0.0).collect();
    assert_eq!(risen, [], "a counter that does not begin at 0");
    // A snapshot with what was restored has the watermark before any record came.
    after.publish_with(subtask_at(START));
    assert_eq!(after.get("tidegate_watermark_lag_seconds{subtask=\"0\"}"), Some(0.0));
    assert_eq!(after.get("tidegate_records_in_total{topic=\"orders\",partition=\"0\"}"), Some(0.0));
    assert_eq!(after.get("tidegate_last_commit_timestamp_seconds{subtask=\"0\"}"), None);
}
