#![expect(clippy::float_cmp, reason = "a scrape prints numbers exactly")]

mod distributions;
#[cfg(target_os = "linux")]
mod documented;
mod subtasks;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::codec::Reason;
use crate::event_time::{
    AdaptiveSettings, MonotonicTime, Now, Timing, WatermarkStatus, WatermarkStrategy,
};
use crate::insight::{PartitionHistory, PartitionSnapshot, Phase, Snapshot, Tally};

/// Metrics of two topics with a clock and snapshots set by hand.
struct Bench {
    metrics: Metrics,
    watches: Watches,
    now: Arc<Mutex<Now>>,
}

const START: EventTime = EventTime(1_800_000_000_000);

fn bench() -> Bench {
    bench_of(1)
}

fn bench_of(subtasks: u16) -> Bench {
    let source = |topic: &str| SourceInfo {
        topic: topic.to_owned(),
        strategy: "bounded_out_of_orderness".to_owned(),
        idle_timeout: Some(Duration::from_secs(30)),
        max_out_of_orderness: Some(Duration::from_millis(2_500)),
    };
    bench_reading(vec![source("orders"), source("clicks")], subtasks)
}

fn bench_reading(sources: Vec<SourceInfo>, subtasks: u16) -> Bench {
    let info = MetricsInfo {
        librdkafka: "2.12.1".to_owned(),
        config_sha256: "0".repeat(64),
        sources,
        window_size: Duration::from_mins(1),
        allowed_lateness: Duration::from_secs(5),
    };
    let now = Arc::new(Mutex::new(Now { monotonic: MonotonicTime::default(), wall: START }));
    let (watches, clock) = (Watches::new(subtasks), Arc::clone(&now));
    let metrics = Metrics::new(&info, watches.clone(), Arc::new(move || *clock.lock().unwrap()));
    Bench { metrics: metrics.unwrap(), watches, now }
}

impl Bench {
    /// Lets this much time pass.
    fn pass(&self, duration: Duration) {
        let mut now = self.now.lock().unwrap();
        now.wall = now.wall + duration;
        now.monotonic.0 += duration;
    }

    fn publish(&self, partitions: Vec<PartitionSnapshot>) {
        self.publish_with(Snapshot { phase: Phase::Running, partitions, ..Snapshot::default() });
    }

    fn publish_with(&self, snapshot: Snapshot) {
        self.publish_of(0, snapshot);
    }

    /// Assigns what the snapshot has to the subtask, then publishes it.
    fn publish_of(&self, subtask: u16, snapshot: Snapshot) {
        for partition in &snapshot.partitions {
            self.metrics.of(subtask).assigned(partition.id);
        }
        self.watches.of(subtask).publish(snapshot);
    }

    /// All lines that are samples, by what stands before the value. Those of the process itself are left out.
    fn scrape(&self) -> BTreeMap<String, f64> {
        let text = self.metrics.render().unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples
            .filter(|line| !line.starts_with("process_"))
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').unwrap();
                (series.to_owned(), value.parse().unwrap())
            })
            .collect()
    }

    fn get(&self, series: &str) -> Option<f64> {
        self.scrape().get(series).copied()
    }

    /// Names of series that begin like this.
    fn like(&self, start: &str) -> Vec<String> {
        self.scrape().into_keys().filter(|series| series.starts_with(start)).collect()
    }
}

fn id(partition: i32) -> PartitionId {
    PartitionId { topic: 0, partition }
}

/// A partition that was assigned and has read nothing.
fn fresh(partition: i32) -> PartitionSnapshot {
    PartitionSnapshot {
        id: id(partition),
        watermark: None,
        max_event_time: None,
        status: WatermarkStatus::Active,
        bound: None,
        gauges: Vec::new(),
        idle_in: None,
        paused: None,
        caught_up: false,
        position: None,
        end_offset: None,
        last_stable_offset: None,
        committed: None,
        history: PartitionHistory::default(),
    }
}

fn at(partition: i32, watermark: EventTime) -> PartitionSnapshot {
    PartitionSnapshot { watermark: Some(watermark), ..fresh(partition) }
}

fn subtask_at(watermark: EventTime) -> Snapshot {
    Snapshot {
        phase: Phase::Running,
        watermark: Some(watermark),
        holder: Some(id(0)),
        partitions: vec![at(0, watermark)],
        ..Snapshot::default()
    }
}

const LAG: &str = "tidegate_watermark_lag_seconds{subtask=\"0\"}";

#[test]
fn before_the_first_watermark_no_time_is_invented() {
    let bench = bench();
    bench.publish(vec![fresh(0), fresh(1)]);
    let series = bench.scrape();
    for absent in [
        "tidegate_watermark_",
        "tidegate_partition_watermark",
        "tidegate_partition_max_event",
        "tidegate_partition_out_of_orderness_bound",
        "tidegate_consumer_lag_records",
        "tidegate_consumed_offset",
        "tidegate_oldest_open_window",
        "tidegate_last_commit",
    ] {
        let found = series.keys().find(|s| s.starts_with(absent) && !s.contains("_total"));
        assert_eq!(found, None);
    }
    assert_eq!(
        series["tidegate_partitions{subtask=\"0\",topic=\"orders\",state=\"no_watermark\"}"],
        2.0
    );
    assert_eq!(series["tidegate_partition_idle{topic=\"orders\",partition=\"1\"}"], 0.0);
    assert!(series.values().all(|value| value.abs() < 1e12));
}

#[test]
fn the_lag_grows_with_the_wall_clock_without_new_records() {
    let bench = bench();
    bench.publish_with(subtask_at(EventTime(START.0 - 5_001)));
    assert_eq!(bench.get(LAG), Some(5.001));
    bench.pass(Duration::from_mins(1));
    assert_eq!(bench.get(LAG), Some(65.001));
    let partition = "tidegate_partition_watermark_lag_seconds{topic=\"orders\",partition=\"0\"}";
    assert_eq!(bench.get(partition), Some(65.001));
    assert_eq!(
        bench.get("tidegate_watermark_timestamp_seconds{subtask=\"0\"}"),
        Some(1_799_999_994.999)
    );
}

#[test]
fn a_watermark_ahead_of_the_wall_clock_gives_a_negative_lag() {
    let bench = bench();
    bench.publish_with(subtask_at(EventTime(START.0 + 60_000)));
    assert_eq!(bench.get(LAG), Some(-60.0));
}

#[test]
fn an_idle_partition_keeps_its_watermark_and_counts_once() {
    let bench = bench();
    let idle = |partition| PartitionSnapshot { status: WatermarkStatus::Idle, ..partition };
    bench.publish(vec![at(0, START), idle(at(1, EventTime(7_250))), idle(fresh(2)), fresh(3)]);
    let series = bench.scrape();
    let of = |name: &str, partition: i32| {
        series[&format!("tidegate_partition_{name}{{topic=\"orders\",partition=\"{partition}\"}}")]
    };
    assert_eq!((of("idle", 0), of("idle", 1)), (0.0, 1.0));
    assert_eq!(of("watermark_timestamp_seconds", 1), 7.25);
    let in_state = |topic: &str, state: &str| {
        series[&format!("tidegate_partitions{{subtask=\"0\",topic=\"{topic}\",state=\"{state}\"}}")]
    };
    let states = ["active", "idle", "no_watermark", "paused"];
    assert_eq!(states.map(|state| in_state("orders", state)), [1.0, 2.0, 1.0, 0.0]);
    assert_eq!(states.map(|state| in_state("clicks", state)), [0.0; 4]);
}

#[test]
fn a_revoked_partition_is_gone_at_once_and_its_counters_stay() {
    let bench = bench();
    let counted = "tidegate_records_in_total{topic=\"orders\",partition=\"0\"}";
    bench.publish_with(subtask_at(START));
    let mut tally = Tally::default();
    tally.partition(id(0)).records = 3;
    bench.metrics.of(0).add(&tally);
    let held = "tidegate_watermark_holder{subtask=\"0\",topic=\"orders\",partition=\"0\"}";
    assert_eq!(bench.get(held), Some(1.0));

    bench.metrics.of(0).revoked(id(0)); // the snapshot still has it
    let series = bench.scrape();
    let gauges = series.keys().filter(|s| s.contains("partition=") && !s.contains("_total"));
    assert_eq!(gauges.count(), 0);
    assert!(!series.contains_key(LAG), "a subtask that reads nothing has no lag");
    assert_eq!(series["tidegate_partitions{subtask=\"0\",topic=\"orders\",state=\"active\"}"], 0.0);
    assert_eq!(series[counted], 3.0);

    bench.publish_with(subtask_at(START));
    bench.metrics.of(0).add(&tally);
    assert_eq!(bench.get(counted), Some(6.0));
}

#[test]
fn counters_exist_at_zero_before_anything_happened() {
    let bench = bench();
    let letters = bench.like("tidegate_dead_letter_records_total");
    assert_eq!(letters.len(), 2 * Reason::ALL.len());
    assert_eq!(bench.like("tidegate_records_in_total"), [""; 0]);
    bench.metrics.of(0).assigned(id(7));
    let series = bench.scrape();
    let of_seven: Vec<_> = series.iter().filter(|(s, _)| s.contains("partition=\"7\"")).collect();
    assert_eq!(of_seven.len(), 9, "{of_seven:?}");
    assert!(of_seven.iter().all(|(_, value)| **value == 0.0));
    for total in [
        "tidegate_window_fires_total{kind=\"on_time\"}",
        "tidegate_window_fires_total{kind=\"late\"}",
        "tidegate_transactions_total{outcome=\"aborted\"}",
        "tidegate_rebalances_total{event=\"lost\"}",
        "tidegate_tombstones_total{topic=\"clicks\"}",
        "tidegate_watermark_ticks_total{subtask=\"0\"}",
        "tidegate_restores_total{subtask=\"0\",cause=\"assigned\"}",
        "tidegate_restores_total{subtask=\"0\",cause=\"aborted\"}",
        "tidegate_restored_entries_total",
        "tidegate_restore_seconds_count",
    ] {
        assert_eq!(series[total], 0.0, "{total}");
    }
}

#[test]
fn a_tally_goes_to_its_counters_and_the_late_ones_sum_up() {
    let bench = bench();
    let mut tally = Tally::default();
    let partition = tally.partition(id(2));
    (partition.records, partition.bytes, partition.tombstones) = (20, 1_000, 2);
    (partition.late, partition.refired) = ([1, 2, 3], 4);
    (partition.to_idle, partition.to_active, partition.missing) = (5, 6, 7);
    tally.pane(Timing::OnTime, START);
    tally.dead_letter(1, Reason::TsFuture);
    bench.metrics.of(0).add(&tally);
    bench.metrics.of(0).add(&tally);
    let series = bench.scrape();
    let late = |cause: &str, disposition: &str| {
        let labels = format!("cause=\"{cause}\",disposition=\"{disposition}\"");
        series[&format!("tidegate_late_records_total{{topic=\"orders\",partition=\"2\",{labels}}}")]
    };
    assert_eq!(late("out_of_order", "late_topic"), 2.0);
    assert_eq!(late("after_idle", "late_topic"), 4.0);
    assert_eq!(late("joined", "late_topic"), 6.0);
    assert_eq!(late("within_lateness", "refired"), 8.0);
    for (name, value) in [
        ("tidegate_records_in_total{topic=\"orders\",partition=\"2\"}", 40.0),
        ("tidegate_record_bytes_in_total{topic=\"orders\"}", 2_000.0),
        ("tidegate_record_bytes_in_total{topic=\"clicks\"}", 0.0),
        ("tidegate_tombstones_total{topic=\"orders\"}", 4.0),
        ("tidegate_records_missing_total{topic=\"orders\",partition=\"2\"}", 14.0),
        (
            "tidegate_partition_idle_transitions_total{topic=\"orders\",partition=\"2\",to=\"active\"}",
            12.0,
        ),
        ("tidegate_dead_letter_records_total{topic=\"clicks\",reason=\"ts_future\"}", 2.0),
        ("tidegate_window_fires_total{kind=\"on_time\"}", 2.0),
    ] {
        assert_eq!(series[name], value, "{name}");
    }
}

#[test]
fn commits_are_counted_by_outcome_and_only_a_good_one_is_the_last() {
    let bench = bench();
    let last = "tidegate_last_commit_timestamp_seconds{subtask=\"0\"}";
    bench.metrics.of(0).committed(Duration::from_millis(40), CommitOutcome::Aborted);
    assert_eq!(bench.get(last), None);
    bench.metrics.of(0).committed(Duration::from_millis(20), CommitOutcome::Committed);
    bench.pass(Duration::from_secs(9));
    let series = bench.scrape();
    assert_eq!(series[last], 1_800_000_000.0);
    assert_eq!(series["tidegate_transactions_total{outcome=\"aborted\"}"], 1.0);
    assert_eq!(series["tidegate_transactions_total{outcome=\"committed\"}"], 1.0);
    assert_eq!(series["tidegate_transaction_duration_seconds_bucket{le=\"0.025\"}"], 1.0);
    assert_eq!(series["tidegate_transaction_duration_seconds_count"], 2.0);
}

#[test]
fn a_scrape_changes_nothing() {
    let bench = bench();
    bench.publish_with(subtask_at(START));
    bench.metrics.kafka_error("BrokerTransportFailure", false);
    assert_eq!(bench.scrape(), bench.scrape());
}

#[test]
fn error_codes_have_a_limit() {
    let bench = bench();
    for number in 0..1_000 {
        bench.metrics.kafka_error(&format!("code{number}"), false);
    }
    bench.metrics.kafka_error("code0", false);
    assert_eq!(bench.like("tidegate_kafka_errors_total").len(), 65);
    assert_eq!(
        bench.get("tidegate_kafka_errors_total{code=\"other\",fatal=\"false\"}"),
        Some(936.0)
    );
    assert_eq!(bench.get("tidegate_kafka_errors_total{code=\"code0\",fatal=\"false\"}"), Some(2.0));
}

#[test]
fn a_generators_number_is_shown_unless_its_name_is_taken_or_it_is_none() {
    let bench = bench();
    let gauges = vec![
        ("observed_out_of_orderness_seconds", 1.5),
        ("idle", 7.0),
        ("no name", 1.0),
        ("endless", f64::INFINITY),
    ];
    bench.publish(vec![PartitionSnapshot { gauges, ..fresh(0) }]);
    let own =
        "tidegate_partition_observed_out_of_orderness_seconds{topic=\"orders\",partition=\"0\"}";
    assert_eq!(bench.get(own), Some(1.5));
    assert_eq!(bench.get("tidegate_partition_idle{topic=\"orders\",partition=\"0\"}"), Some(0.0));
    assert_eq!(bench.like("tidegate_partition_no"), [""; 0]);
    assert_eq!(bench.like("tidegate_partition_endless"), [""; 0]);
}

#[test]
fn offsets_and_lag_are_shown_once_known() {
    let bench = bench();
    let read = PartitionSnapshot { position: Some(12), end_offset: Some(10), ..fresh(0) };
    bench.publish(vec![read]);
    let of = |name: &str| bench.get(&format!("{name}{{topic=\"orders\",partition=\"0\"}}"));
    assert_eq!(of("tidegate_consumed_offset"), Some(12.0));
    assert_eq!(of("tidegate_consumer_lag_records"), Some(0.0));
}

#[test]
fn the_configured_bound_is_the_greatest_the_strategy_can_come_to() {
    let adaptive = WatermarkStrategy::Adaptive(AdaptiveSettings::default());
    let minute = Some(Duration::from_mins(1));
    assert_eq!(info::max_out_of_orderness(&adaptive), minute);
    let ascending = &WatermarkStrategy::AscendingTimestamps;
    assert_eq!(info::max_out_of_orderness(ascending), Some(Duration::ZERO));
    assert_eq!(info::max_out_of_orderness(&WatermarkStrategy::Punctuated), None);
}

/// The clock is read in the middle of a scrape, when what is counted has been copied and its text is still to be made.
#[test]
fn in_the_middle_of_a_scrape_the_loop_counts_and_publishes() {
    let loops: Arc<Mutex<Option<(Metrics, Watches)>>> = Arc::default();
    let scraped = Arc::clone(&loops);
    let clock = move || {
        let first = scraped.lock().unwrap().take();
        if let Some((metrics, watches)) = first {
            let (passed, passing) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let subtask = metrics.of(0);
                subtask.assigned(id(7));
                let mut tally = Tally::default();
                tally.partition(id(7)).records = 3;
                subtask.add(&tally);
                subtask.committed(Duration::from_millis(5), CommitOutcome::Committed);
                subtask.ticked();
                subtask.revoked(id(7));
                watches.of(0).publish(subtask_at(START));
                passed.send(()).unwrap();
            });
            let waited = passing.recv_timeout(Duration::from_secs(30));
            assert!(waited.is_ok(), "the loop waits for the scrape");
        }
        Now { monotonic: MonotonicTime::default(), wall: START }
    };
    let watches = Watches::new(1);
    let source = SourceInfo {
        topic: "orders".to_owned(),
        strategy: "ascending".to_owned(),
        idle_timeout: None,
        max_out_of_orderness: None,
    };
    let info = MetricsInfo {
        librdkafka: "2.12.1".to_owned(),
        config_sha256: "0".repeat(64),
        sources: vec![source],
        window_size: Duration::from_mins(1),
        allowed_lateness: Duration::ZERO,
    };
    let metrics = Metrics::new(&info, watches.clone(), Arc::new(clock)).unwrap();
    *loops.lock().unwrap() = Some((metrics.clone(), watches));
    let text = metrics.render().unwrap();
    // It shows how things stood when it began.
    assert!(!text.contains("partition=\"7\""), "{text}");
    assert!(loops.lock().unwrap().is_none(), "the clock was read");
    let counted = "tidegate_records_in_total{topic=\"orders\",partition=\"7\"} 3";
    assert!(metrics.render().unwrap().contains(counted));
}
