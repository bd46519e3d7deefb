//! Windows that are open when the service ends are whole when it is back, and its clocks are what they were.

use crate::support::broker::Broker;
use crate::support::cluster::Cluster;
use crate::support::job::{Job, keyed, row};
use crate::support::ledger::{Feed, Feeding, Order, check, config, create_topics, finish};
use crate::support::process::Tidegate;

use super::outages::read_on;

fn job(name: &'static str, partitions: i32) -> Job {
    Job::new(name, partitions).consumer("session.timeout.ms", "6000")
}

/// Ends the service in good order, or as a power cut would.
fn end(service: Tidegate, signal: &str) {
    if signal == "TERM" {
        service.stop();
    } else {
        drop(service);
    }
}

#[test]
fn what_is_open_outlasts_stops_and_kills_at_any_moment() {
    const LATENESS: i64 = 20_000;
    let prefix = "reopened";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let config = config(&cluster.bootstrap, prefix)
        .replace("size = \"10s\"", &format!("size = \"10s\"\nallowed_lateness = \"{LATENESS}ms\""));
    let input = format!("{prefix}-in");
    let feeding = Feeding::start(&cluster, &input, Feed::new(Order::Disorder, 31));
    for signal in ["KILL", "TERM", "KILL", "TERM", "KILL"] {
        let mut service = Tidegate::run(&config, &[]);
        read_on(&mut service, 300.0);
        end(service, signal);
    }
    let mut service = Tidegate::run(&config, &[]);
    read_on(&mut service, 300.0);
    let written = feeding.finish();
    let restored = service.metric_sum("tidegate_restored_entries_total", "");
    finish(&cluster, prefix, service);
    let figures = check(&cluster, prefix, LATENESS).figures();
    println!("reopened: {written} records, {restored} entries restored last, {figures:?}");
    assert!(figures.late > 0 && figures.late_panes > 0, "{figures:?}");
}

/// Two partitions whose slower one holds the clock at 11,999.
fn what_was_late_stays_late(job: &Job) {
    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "a", 12_000, 1), keyed(1, "b", 25_000, 2)]);
    job.wait_until_committed(2, &mut service);
    let round = |value, service: &mut Tidegate| {
        job.produce(&[
            keyed(0, "a", 9_999, 1_000_000),
            keyed(0, "a", 10_000, value),
            keyed(1, "b", 9_000, 1_000_000),
            keyed(1, "b", 10_001, 2 * value),
        ]);
        job.wait_until_committed(2, service);
    };
    round(10, &mut service);
    for (signal, value) in [("TERM", 100), ("KILL", 1_000)] {
        end(service, signal);
        service = job.run(&[]);
        round(value, &mut service);
    }
    // A clock that went by the faster partition alone would close the next window too.
    end(service, "TERM");
    service = job.run(&[]);
    job.produce(&[keyed(1, "b", 26_000, 4)]);
    job.wait_until_committed(2, &mut service);
    job.produce(&[keyed(0, "a", 13_000, 8)]);
    job.wait_until_committed(2, &mut service);
    job.produce(&[keyed(0, "z", 40_000, 1), keyed(1, "y", 40_000, 1)]);
    job.wait_until_committed(2, &mut service);
    service.stop();

    let late = job.late();
    assert_eq!(late.len(), 6, "{late:?}");
    assert!(late.values().all(|clock| *clock == 11_999), "{late:?}");
    assert_eq!(
        job.rows(),
        [
            row(10_000, "a", "0 on_time", 5, 1_119),
            row(10_000, "b", "0 on_time", 3, 2_220),
            row(20_000, "b", "0 on_time", 2, 6),
        ]
    );
}

#[test]
fn with_a_field_as_the_key_the_clock_of_all_partitions_comes_back() {
    what_was_late_stays_late(&job("clock-of-all", 2));
}

#[test]
fn with_the_message_key_each_partition_has_its_clock_back() {
    let job = job("own-clocks", 2).replace("fields = [\"k\"]", "from = \"message\"");
    what_was_late_stays_late(&job);
}

#[test]
fn the_panes_of_a_window_are_counted_on_after_a_restart() {
    let job = job("counted-on", 1)
        .replace("size = \"10s\"", "size = \"10s\"\nallowed_lateness = \"20s\"");
    let mut service = job.run(&[]);
    let go_on = |records: &[_], service: &mut Tidegate| {
        job.produce(records);
        job.wait_until_committed(1, service);
    };
    go_on(
        &[keyed(0, "a", 1_000, 1), keyed(0, "b", 2_000, 2), keyed(0, "a", 11_000, 4)],
        &mut service,
    );
    go_on(&[keyed(0, "a", 3_000, 8)], &mut service);
    end(service, "TERM");
    let mut service = job.run(&[]);
    go_on(&[keyed(0, "a", 4_000, 16), keyed(0, "b", 5_000, 32)], &mut service);
    end(service, "KILL");
    let mut service = job.run(&[]);
    go_on(&[keyed(0, "a", 6_000, 64), keyed(0, "c", 7_000, 128)], &mut service);
    // The first window is freed, and the second one has fired.
    go_on(&[keyed(0, "a", 30_000, 256)], &mut service);
    end(service, "TERM");
    let mut service = job.run(&[]);
    go_on(&[keyed(0, "a", 8_000, 512), keyed(0, "a", 12_000, 1_024)], &mut service);
    service.stop();
    assert_eq!(
        job.rows(),
        [
            row(0, "a", "0 on_time", 1, 1),
            row(0, "a", "1 late", 2, 9),
            row(0, "a", "2 late", 3, 25),
            row(0, "a", "3 late", 4, 89),
            row(0, "b", "0 on_time", 1, 2),
            row(0, "b", "1 late", 2, 34),
            row(0, "c", "0 late", 1, 128),
            row(10_000, "a", "0 on_time", 1, 4),
            row(10_000, "a", "1 late", 2, 1_028),
        ]
    );
    assert_eq!(job.late().into_values().collect::<Vec<_>>(), [29_999]);
}
