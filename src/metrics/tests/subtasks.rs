//! Several subtasks in one process: what each shows, what adds up, and who shows a partition that moves.

use std::time::Duration;

use super::{Bench, START, at, bench, bench_of, fresh, id, subtask_at};
use crate::event_time::EventTime;
use crate::insight::{PartitionSnapshot, Phase, RestoreCause, RestoringPartition, Snapshot, Tally};
use crate::metrics::CommitOutcome;

/// A subtask that reads these partitions, its watermark so far behind.
fn reading(partitions: Vec<PartitionSnapshot>, behind: i64) -> Snapshot {
    Snapshot {
        phase: Phase::Running,
        watermark: Some(EventTime(START.0 - behind)),
        holder: partitions.first().map(|partition| partition.id),
        partitions,
        windows_open: 2,
        panes_open: 30,
        oldest_open_window: Some(EventTime(START.0 - behind)),
        state_bytes: 4_096,
        ..Snapshot::default()
    }
}

impl Bench {
    fn values<const COUNT: usize>(&self, series: [&str; COUNT]) -> [Option<f64>; COUNT] {
        let scrape = self.scrape();
        series.map(|series| scrape.get(series).copied())
    }
}

#[test]
fn each_subtask_shows_its_own_watermark_and_its_own_partitions() {
    let bench = bench_of(3);
    bench.publish_of(0, reading(vec![at(0, START), at(2, START)], 1_000));
    bench.publish_of(1, reading(vec![at(1, EventTime(START.0 - 7_000))], 7_000));
    bench.publish_of(2, Snapshot { phase: Phase::Running, ..Snapshot::default() });
    let lag = |subtask| format!("tidegate_watermark_lag_seconds{{subtask=\"{subtask}\"}}");
    let lags = [0, 1, 2].map(|subtask| bench.get(&lag(subtask)));
    assert_eq!(lags, [Some(1.0), Some(7.0), None], "a standby has no lag");
    let expected = [
        ("tidegate_watermark_holder{subtask=\"0\",topic=\"orders\",partition=\"0\"}", Some(1.0)),
        ("tidegate_watermark_holder{subtask=\"1\",topic=\"orders\",partition=\"1\"}", Some(1.0)),
        ("tidegate_partition_watermark_lag_seconds{topic=\"orders\",partition=\"1\"}", Some(7.0)),
        ("tidegate_partitions{subtask=\"0\",topic=\"orders\",state=\"active\"}", Some(2.0)),
        ("tidegate_partitions{subtask=\"1\",topic=\"orders\",state=\"active\"}", Some(1.0)),
        ("tidegate_partitions{subtask=\"2\",topic=\"orders\",state=\"active\"}", Some(0.0)),
        ("tidegate_windows_open", Some(4.0)),
        ("tidegate_window_panes_open", Some(60.0)),
        ("tidegate_oldest_open_window_timestamp_seconds", Some(1_799_999_993.0)),
        ("tidegate_state_bytes{subtask=\"1\"}", Some(4_096.0)),
        ("tidegate_state_bytes{subtask=\"2\"}", Some(0.0)),
        ("tidegate_ready", Some(1.0)),
    ];
    assert_eq!(bench.values(expected.map(|(series, _)| series)), expected.map(|(_, value)| value));
    assert_eq!(bench.like("tidegate_watermark_holder").len(), 2);
}

#[test]
fn the_service_is_ready_when_all_its_subtasks_are() {
    let bench = bench_of(2);
    bench.publish_of(0, subtask_at(START));
    assert_eq!(bench.get("tidegate_ready"), Some(0.0));
    bench.publish_of(1, Snapshot { phase: Phase::Running, ..Snapshot::default() });
    assert_eq!(bench.get("tidegate_ready"), Some(1.0));
}

#[test]
fn counters_of_all_subtasks_add_up_and_loops_and_commits_are_told_apart() {
    let bench = bench_of(2);
    let mut tally = Tally::default();
    tally.partition(id(0)).records = 3;
    for subtask in [0, 1] {
        bench.metrics.of(subtask).assigned(id(0));
        bench.metrics.of(subtask).add(&tally);
        bench.metrics.of(subtask).committed(Duration::from_millis(1), CommitOutcome::Committed);
        bench.pass(Duration::from_secs(5));
    }
    bench.metrics.of(1).ticked();
    let expected = [
        ("tidegate_records_in_total{topic=\"orders\",partition=\"0\"}", Some(6.0)),
        ("tidegate_transactions_total{outcome=\"committed\"}", Some(2.0)),
        ("tidegate_transaction_duration_seconds_count", Some(2.0)),
        ("tidegate_last_commit_timestamp_seconds{subtask=\"0\"}", Some(1_800_000_000.0)),
        ("tidegate_last_commit_timestamp_seconds{subtask=\"1\"}", Some(1_800_000_005.0)),
        ("tidegate_watermark_ticks_total{subtask=\"0\"}", Some(0.0)),
        ("tidegate_watermark_ticks_total{subtask=\"1\"}", Some(1.0)),
    ];
    assert_eq!(bench.values(expected.map(|(series, _)| series)), expected.map(|(_, value)| value));
}

#[test]
fn a_partition_that_moves_is_shown_by_its_new_owner_alone() {
    let bench = bench_of(2);
    let series = "tidegate_partition_watermark_timestamp_seconds{topic=\"orders\",partition=\"0\"}";
    let shown = || {
        let text = bench.metrics.render().unwrap();
        let lines: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix(series)).map(str::to_owned).collect();
        lines
    };
    let old = || reading(vec![at(0, EventTime(5_000))], 1_000);
    bench.publish_of(0, old());
    assert_eq!(shown(), [" 5"]);
    bench.metrics.of(0).revoked(id(0)); // its snapshot still has it
    assert_eq!(shown(), [""; 0]);
    bench.publish_of(1, reading(vec![at(0, EventTime(9_000))], 1_000));
    assert_eq!(shown(), [" 9"]);
    assert_eq!(bench.get("tidegate_watermark_lag_seconds{subtask=\"0\"}"), None);

    // Taken away while it could not answer: the new owner comes before the old one knows.
    bench.publish_of(0, old());
    assert_eq!(shown(), [" 5"]);
    bench.metrics.of(0).revoked(id(0));
    bench.metrics.of(1).assigned(id(0));
    bench.metrics.of(0).revoked(id(0));
    assert_eq!(shown(), [" 9"], "what the old one gives up late is not the new one's");
}

#[test]
fn a_restore_is_counted_by_its_cause_and_shown_while_it_lasts() {
    let bench = bench_of(2);
    let restoring = |partition| RestoringPartition { id: id(partition), read: 1, end: 10 };
    let both = Snapshot {
        phase: Phase::Restoring,
        restoring: vec![restoring(0), restoring(1)],
        ..Snapshot::default()
    };
    let shown = "tidegate_partitions_restoring{subtask=\"1\"}";
    assert_eq!(bench.get(shown), Some(0.0));
    bench.publish_of(1, both);
    assert_eq!((bench.get(shown), bench.get("tidegate_ready")), (Some(2.0), Some(0.0)));
    bench.metrics.of(0).assigned(id(1));
    assert_eq!(bench.get(shown), Some(1.0), "another subtask has it by now");
    bench.publish_of(1, Snapshot { partitions: vec![fresh(0)], ..Snapshot::default() });
    bench.metrics.of(1).restored(RestoreCause::Assigned, 40, Duration::from_millis(300));
    bench.metrics.of(1).restored(RestoreCause::Aborted, 2, Duration::from_millis(3));
    let expected = [
        (shown, Some(0.0)),
        ("tidegate_restores_total{subtask=\"1\",cause=\"assigned\"}", Some(1.0)),
        ("tidegate_restores_total{subtask=\"1\",cause=\"aborted\"}", Some(1.0)),
        ("tidegate_restores_total{subtask=\"0\",cause=\"aborted\"}", Some(0.0)),
        ("tidegate_restored_entries_total", Some(42.0)),
        ("tidegate_restore_seconds_count", Some(2.0)),
        ("tidegate_restore_seconds_bucket{le=\"0.25\"}", Some(1.0)),
    ];
    assert_eq!(bench.values(expected.map(|(series, _)| series)), expected.map(|(_, value)| value));
}

#[test]
fn a_subtask_that_is_not_there_disturbs_nobody() {
    let bench = bench();
    bench.metrics.of(7).ticked();
    bench.metrics.of(7).restored(RestoreCause::Assigned, 1, Duration::ZERO);
    assert_eq!(
        bench.like("tidegate_watermark_ticks_total"),
        ["tidegate_watermark_ticks_total{subtask=\"0\"}"]
    );
    assert_eq!(bench.like("tidegate_restores_total").len(), 2);
}
