//! `--until-end` over a topic that has grown since the last time: each run goes on from the clocks of the one before.

use serde_json::json;

use crate::support::cluster::Record;
use crate::support::job::Job;

fn job(name: &'static str, allowed_lateness: &str) -> Job {
    Job::new(name, 2).replace("fields = [\"k\"]", "from = \"message\"").replace(
        "size = \"10s\"",
        &format!("size = \"10s\"\nallowed_lateness = \"{allowed_lateness}\""),
    )
}

/// A record whose key is that of its partition.
fn record(partition: i32, ts: i64, v: i64) -> Record {
    let key = if partition == 0 { "a" } else { "b" };
    let payload = format!(r#"{{"ts":{ts},"v":{v}}}"#);
    Record { key: Some(key.as_bytes().to_vec()), ..Record::of(partition, payload) }
}

/// Key, start of the window, count, sum, pane, in the order of the results topic.
type Pane = (String, i64, i64, i64, serde_json::Value);

fn panes(job: &Job) -> Vec<Pane> {
    let pane = |record: &Record| {
        let result = record.json();
        let number = |name: &str| result[name].as_i64().unwrap();
        let key = result["key"].as_str().unwrap().to_owned();
        (key, number("window_start"), number("count"), number("sum"), result["pane"].clone())
    };
    job.read("out").iter().map(pane).collect()
}

/// Partition, time and clock of the late records.
fn late(job: &Job) -> Vec<(String, i64, String)> {
    let late = |record: &Record| {
        let header = |name: &str| record.header(&format!("tidegate.{name}")).unwrap();
        (header("partition"), record.json()["ts"].as_i64().unwrap(), header("watermark"))
    };
    job.read("late").iter().map(late).collect()
}

fn pane(key: &str, start: i64, count: i64, sum: i64, timing: &str, index: i64) -> Pane {
    (key.to_owned(), start, count, sum, json!({"timing": timing, "index": index}))
}

fn on_time(key: &str, start: i64, count: i64, sum: i64) -> Pane {
    pane(key, start, count, sum, "on_time", 0)
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

/// The panes in an order that does not depend on that of the partitions.
fn by_key(mut panes: Vec<Pane>) -> Vec<Pane> {
    panes.sort_by_key(|(key, start, count, ..)| (key.clone(), *start, *count));
    panes
}

/// The drain leaves the clock of partition 0 at 29,999 and that of partition 1 at 19,999.
fn first_run(job: &Job) -> Vec<Pane> {
    job.produce(&[
        record(0, 1_000, 1),
        record(0, 11_000, 2),
        record(0, 25_000, 4),
        record(1, 2_000, 8),
        record(1, 14_000, 16),
    ]);
    job.run_to_end(&[]);
    let panes = vec![
        on_time("a", 0, 1, 1),
        on_time("a", 10_000, 1, 2),
        on_time("a", 20_000, 1, 4),
        on_time("b", 0, 1, 8),
        on_time("b", 10_000, 1, 16),
    ];
    assert_eq!(by_key(self::panes(job)), panes);
    assert_eq!(late(job), []);
    panes
}

/// Some of it in windows that the drain has closed, and some in windows that only the other partition's drain has.
fn grow(job: &Job) {
    job.produce(&[
        record(0, 5_000, 32),
        record(0, 26_000, 64),
        record(0, 31_000, 128),
        record(1, 5_000, 256),
        record(1, 12_000, 512),
        record(1, 21_000, 1_024),
    ]);
}

#[test]
fn what_the_drain_has_closed_is_late_and_nothing_else() {
    let job = job("until-end-twice", "0s");
    let mut expected = first_run(&job);
    grow(&job);
    job.run_to_end(&[]);
    expected.extend([on_time("a", 30_000, 1, 128), on_time("b", 20_000, 1, 1_024)]);
    assert_eq!(by_key(panes(&job)), by_key(expected));
    let is_late = |partition: &str, ts, clock: &str| (partition.to_owned(), ts, clock.to_owned());
    assert_eq!(
        sorted(late(&job)),
        [
            is_late("0", 5_000, "29999"),
            is_late("0", 26_000, "29999"),
            is_late("1", 5_000, "19999"),
            is_late("1", 12_000, "19999"),
        ]
    );
    assert_eq!(job.committed(2), job.ends(2));
}

#[test]
fn within_the_lateness_what_the_drain_has_closed_fires_again() {
    let job = job("until-end-late", "10s");
    let mut expected = first_run(&job);
    grow(&job);
    job.run_to_end(&[]);
    expected.extend([
        pane("a", 20_000, 2, 4 + 64, "late", 1),
        on_time("a", 30_000, 1, 128),
        pane("b", 10_000, 2, 16 + 512, "late", 1),
        on_time("b", 20_000, 1, 1_024),
    ]);
    let expected = by_key(expected);
    assert_eq!(by_key(panes(&job)), expected);
    let is_late = |partition: &str, ts, clock: &str| (partition.to_owned(), ts, clock.to_owned());
    let late_ones = [is_late("0", 5_000, "29999"), is_late("1", 5_000, "19999")];
    assert_eq!(sorted(late(&job)), late_ones);

    // A run over nothing new leaves everything as it is.
    job.run_to_end(&[]);
    assert_eq!(by_key(panes(&job)), expected);
    assert_eq!(sorted(late(&job)), late_ones);
}
