//! Histograms of what is counted by class.

use std::time::Duration;

use super::{START, bench};
use crate::event_time::Timing;
use crate::insight::Tally;

#[test]
fn they_exist_before_anything_happened_and_add_up_over_commits_and_subtasks() {
    let bench = bench();
    for family in ["out_of_orderness", "event_time_lag", "late_by", "interarrival"] {
        for topic in ["orders", "clicks"] {
            let count = format!("tidegate_{family}_seconds_count{{topic=\"{topic}\"}}");
            assert_eq!(bench.get(&count), Some(0.0), "{count}");
        }
    }
    assert_eq!(bench.get("tidegate_result_latency_seconds_count"), Some(0.0));

    let mut tally = Tally::default();
    let orders = tally.topics.entry(0).or_default();
    orders.out_of_orderness.add(Duration::ZERO, 7);
    orders.out_of_orderness.add(Duration::from_millis(1_500), 2);
    orders.late_by.add(Duration::from_hours(2), 1);
    orders.interarrival.add(Duration::from_secs(20), 3);
    bench.metrics.of(0).add(&tally);
    bench.metrics.of(0).add(&tally);
    let series = bench.scrape();
    let bucket = |family: &str, le: &str| {
        series[&format!("tidegate_{family}_seconds_bucket{{topic=\"orders\",le=\"{le}\"}}")]
    };
    for (le, expected) in [("0", 14.0), ("1", 14.0), ("2.5", 18.0), ("3600", 18.0), ("+Inf", 18.0)]
    {
        assert_eq!(bucket("out_of_orderness", le), expected, "{le}");
    }
    assert_eq!((bucket("interarrival", "10"), bucket("interarrival", "30")), (0.0, 6.0));
    assert_eq!(series["tidegate_out_of_orderness_seconds_sum{topic=\"orders\"}"], 6.0);
    assert_eq!((bucket("late_by", "3600"), bucket("late_by", "+Inf")), (0.0, 2.0));
    assert_eq!(series["tidegate_out_of_orderness_seconds_count{topic=\"clicks\"}"], 0.0);
}

#[test]
fn a_result_is_as_late_as_its_commit_is_after_the_end_of_its_window() {
    let bench = bench();
    let mut tally = Tally::default();
    for _ in 0..3 {
        tally.pane(Timing::OnTime, START);
    }
    // Late panes are late by the record, not by us; a window that ends in the future is not late.
    tally.pane(Timing::Late, START);
    tally.pane(Timing::OnTime, START + Duration::from_mins(1));
    bench.pass(Duration::from_secs(4));
    bench.metrics.of(0).add(&tally);
    let series = bench.scrape();
    let bucket =
        |le: &str| series[&format!("tidegate_result_latency_seconds_bucket{{le=\"{le}\"}}")];
    assert_eq!((bucket("0"), bucket("2.5"), bucket("5"), bucket("+Inf")), (1.0, 1.0, 4.0, 4.0));
    assert_eq!(series["tidegate_result_latency_seconds_sum"], 12.0);
}
