//! Several topics as one stream, each with fields, units and timeouts of its own.

use std::collections::BTreeMap;
use std::io::Read;

use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record};
use crate::support::job::{Job, Row, event, row, total, wait_for_total};
use crate::support::ledger::{self, Feed, Order, rules};
use crate::support::oracle::{Rules, Topics, judge};
use crate::support::process::Tidegate;

use super::flights::reference;

/// How many partitions the first of two topics has, as far as the oracle is concerned.
const FIRST: i32 = 3;
const SECOND: i32 = 2;

fn time_of(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap().to_string()
}

/// A record of a feed as the second topic has it: other names, and the time as text.
fn translated(record: &Record) -> Record {
    let Ok(fields) =
        serde_json::from_slice::<serde_json::Value>(record.payload.as_deref().unwrap())
    else {
        return record.clone();
    };
    let at = time_of(fields["t"].as_i64().unwrap());
    let payload = format!(r#"{{"who":{},"at":"{at}","amount":{}}}"#, fields["k"], fields["v"]);
    Record { payload: Some(payload.into_bytes()), ..record.clone() }
}

/// What was made of a record of the second topic, as the oracle knows records: under the first one's names, and in
/// partitions behind that one's.
fn back(record: &Record) -> Record {
    let mut record = record.clone();
    let payload = record.payload.as_deref().map(serde_json::from_slice::<serde_json::Value>);
    if let Some(Ok(fields)) = payload {
        let at: jiff::Timestamp = fields["at"].as_str().unwrap().parse().unwrap();
        let (k, v) = (&fields["who"], &fields["amount"]);
        let payload = format!(r#"{{"k":{k},"t":{},"v":{v}}}"#, at.as_millisecond());
        record.payload = Some(payload.into_bytes());
    }
    for (name, value) in &mut record.headers {
        if name == "tidegate.partition" {
            let number: i32 = String::from_utf8(value.clone().unwrap()).unwrap().parse().unwrap();
            *value = Some((number + FIRST).to_string().into_bytes());
        }
    }
    record
}

/// Late records or dead letters of both topics, under the first one's names.
fn as_one(records: Vec<Record>, second: &str) -> Vec<Record> {
    let is_second =
        |record: &Record| record.header("tidegate.topic").is_some_and(|topic| topic == second);
    records.into_iter().map(|it| if is_second(&it) { back(&it) } else { it }).collect()
}

/// The ledger's job with a second source that says everything in another way.
fn two_sources(cluster: &Cluster, prefix: &str) -> String {
    ledger::config(&cluster.bootstrap, prefix).replace(
        "[window]",
        &format!(
            r#"[[source]]
            topic = "{prefix}-second"
            timestamp = {{ field = "at", unit = "rfc3339" }}
            watermark = {{ max_out_of_orderness = "2s", idle_timeout = "5m" }}
            fields = {{ k = "who", v = "amount" }}
            [window]"#
        ),
    )
}

#[test]
fn two_sources_are_one_stream_in_which_each_record_is_in_exactly_one_place_also_after_a_kill() {
    let (cluster, prefix) = (Cluster::new(Broker::shared()), "sources-two");
    let (first, second) = (format!("{prefix}-in"), format!("{prefix}-second"));
    cluster.create(&first, FIRST, &[]);
    cluster.create(&second, SECOND, &[]);
    for output in ["out", "late", "dead"] {
        cluster.create(&format!("{prefix}-{output}"), 1, &[]);
    }
    let config = two_sources(&cluster, prefix);
    let mut feeds =
        (Feed::new(Order::Disorder, 11).over(FIRST), Feed::new(Order::Disorder, 12).over(SECOND));
    let mut feed = |count: usize| {
        cluster.produce(&first, &feeds.0.take(count));
        let records = feeds.1.take(count);
        cluster.produce(&second, &records.iter().map(translated).collect::<Vec<_>>());
    };
    let read = |service: &mut Tidegate, least| {
        wait_for_total(service, "tidegate_committed_offset", "", least);
    };
    feed(3_000);
    let mut service = Tidegate::run(&config, &[]);
    read(&mut service, 6_000);
    assert!(total(&mut service, "tidegate_windows_open", "") > 0);
    for (topic, records) in [(&first, 3_000), (&second, 3_000)] {
        let of = format!("topic=\"{topic}\"");
        assert_eq!(total(&mut service, "tidegate_records_in_total", &of), records);
    }
    // SIGKILL, with windows open that both of them are in.
    drop(service);
    let mut service = Tidegate::run(&config, &[]);
    service.wait_for_line("state restored");
    feed(3_000);
    read(&mut service, 12_000);
    cluster.produce(&first, &Feed::closing_over(FIRST));
    let closing = Feed::closing_over(SECOND);
    cluster.produce(&second, &closing.iter().map(translated).collect::<Vec<_>>());
    read(&mut service, 12_000 + i64::from(FIRST + SECOND));
    let closed = "only the last windows are open";
    service.wait_until(closed, |service| service.metric("tidegate_windows_open") == Some(1.0));
    service.stop();

    let topic = |suffix: &str| cluster.read(&format!("{prefix}-{suffix}"));
    let moved = |record: &Record| Record { partition: record.partition + FIRST, ..back(record) };
    let mut input = topic("in");
    input.extend(topic("second").iter().map(moved));
    let topics = Topics {
        input,
        results: topic("out"),
        late: as_one(topic("late"), &second),
        dead: as_one(topic("dead"), &second),
    };
    let rules = Rules { partitions: FIRST + SECOND, ..rules(0) };
    let figures = judge(&rules, &topics).figures();
    println!("{figures:?}");
    assert!(figures.late > 0 && figures.dead > 0 && figures.in_panes > 10_000, "{figures:?}");
    let of_second =
        |record: &&Record| record.header("tidegate.topic").is_some_and(|it| it == second);
    assert!(topic("late").iter().filter(of_second).count() > 0);
    // One shard for all has one changelog, that of the topic that is named first; another one must not become the first.
    let changelogs = cluster.topics(&format!("{prefix}-{prefix}"));
    assert_eq!(changelogs, [(format!("{prefix}-{first}-changelog"), 1)]);
    let tables: Vec<&str> = config.split("[[source]]").collect();
    let (own, window) = tables[2].split_once("[window]").unwrap();
    let swapped = format!("{}[[source]]{own}[[source]]{}[window]{window}", tables[0], tables[1]);
    let mut service = Tidegate::run(&swapped, &[]);
    assert_eq!(service.wait().code(), Some(1));
    let log = service.log();
    let essentials = ["named first: is that still the same?", "tidegate reset"];
    assert!(essentials.iter().all(|essential| log.contains(essential)), "{log}");
}

#[test]
fn a_source_that_stops_holds_nobody_after_its_own_timeout_and_nothing_falls_when_it_is_back() {
    let job = Job::new("stopped-source", 1).replace(
        "[window]",
        "[[source]]\ntopic = \"stopped-source-second\"\ntimestamp = { field = \"ts\" }\n\
         watermark = { max_out_of_orderness = \"0s\", idle_timeout = \"3s\" }\n[window]",
    );
    job.create("second", 1, &[]);
    let second = |records: &[Record]| job.cluster.produce(&job.topic("second"), records);
    let rows = |service: &mut Tidegate, least| {
        wait_for_total(service, "tidegate_window_fires_total", "kind=\"on_time\"", least);
    };
    job.produce(&[event(0, "a", 1_000, 1)]);
    second(&[event(0, "a", 2_000, 2), event(0, "b", 11_000, 4)]);
    let mut service = job.run(&[]);
    wait_for_total(&mut service, "tidegate_committed_offset", "", 3);
    // One goes on and the other says nothing more.
    job.produce(&[event(0, "a", 12_000, 8), event(0, "a", 30_000, 16)]);
    rows(&mut service, 1);
    let idle = |service: &mut Tidegate| {
        total(service, "tidegate_partition_idle", "topic=\"stopped-source-second\"")
    };
    service.wait_until("it is idle", |service| idle(service) == 1);
    rows(&mut service, 3);
    let clock = |service: &mut Tidegate| service.metric("tidegate_watermark_timestamp_seconds");
    assert!(clock(&mut service) > Some(29.0));

    // It comes back with what is older: that is late, and it holds from now on.
    second(&[event(0, "late", 15_000, 32), event(0, "b", 31_000, 64)]);
    service.wait_until("it is back", |service| idle(service) == 0);
    wait_for_total(&mut service, "tidegate_late_records_total", "after_idle", 1);
    job.produce(&[event(0, "a", 60_000, 128)]);
    wait_for_total(&mut service, "tidegate_committed_offset", "", 8);
    assert!(clock(&mut service) > Some(29.0) && clock(&mut service) < Some(31.5));
    second(&[event(0, "z", 61_000, 0)]);
    rows(&mut service, 5);
    service.stop();
    let expected = [
        row(0, "a", "0 on_time", 2, 3),
        row(10_000, "a", "0 on_time", 1, 8),
        row(10_000, "b", "0 on_time", 1, 4),
        row(30_000, "a", "0 on_time", 1, 16),
        row(30_000, "b", "0 on_time", 1, 64),
    ];
    assert_eq!(job.rows(), expected);
    check_the_late_one(&job, "second", "after_idle");
}

/// A single record is late: one of this topic, for this cause.
pub(super) fn check_the_late_one(job: &Job, topic: &str, cause: &str) {
    let late = job.read("late");
    assert_eq!(late.len(), 1);
    assert_eq!(late[0].header("tidegate.cause").as_deref(), Some(cause));
    assert_eq!(late[0].header("tidegate.topic"), Some(job.topic(topic)));
}

#[test]
fn heartbeats_keep_a_partition_active_and_are_counted_apart() {
    let job =
        Job::new("beating", 2).replace("idle_timeout = \"off\"", "idle_timeout = \"3s\"").replace(
            "[window]",
            "[source.heartbeat]\nfield = \"type\"\nequals = \"heartbeat\"\n[window]",
        );
    let beat = || Record::of(1, r#"{"type":"heartbeat"}"#);
    job.produce(&[event(0, "a", 1_000, 1), event(1, "b", 2_000, 2), event(0, "a", 20_000, 4)]);
    let mut service = job.run(&[]);
    wait_for_total(&mut service, "tidegate_committed_offset", "", 3);
    let idle = |service: &mut Tidegate, partition: &str| {
        total(service, "tidegate_partition_idle", &format!("partition=\"{partition}\""))
    };
    let mut beats = 0;
    // The other one is silent, and falls idle.
    service.wait_until("the silent one is idle", |service| {
        job.produce(&[beat()]);
        beats += 1;
        idle(service, "0") == 1
    });
    assert_eq!(idle(&mut service, "1"), 0);
    let counted = |service: &mut Tidegate| total(service, "tidegate_heartbeats_total", "");
    service.wait_until("all are counted", |service| counted(service) == beats);
    assert_eq!(total(&mut service, "tidegate_window_fires_total", ""), 0);
    job.produce(&[event(1, "b", 20_000, 8)]);
    wait_for_total(&mut service, "tidegate_window_fires_total", "", 2);
    service.stop();
    let expected: [Row; 2] = [row(0, "a", "0 on_time", 1, 1), row(0, "b", "0 on_time", 1, 2)];
    assert_eq!(job.rows(), expected);
    assert!(job.read("dead").is_empty() && job.read("late").is_empty());
}

const FLIGHTS: &[u8] = include_bytes!("../data/flights-2013-01.jsonl.gz");
const CARRIERS: &str = include_str!("../data/flights-2013-01-carriers.csv");

/// Flights that flew, keyed by carrier, and those that were cancelled as another system would tell of them.
fn flown_and_cancelled() -> (Vec<Record>, Vec<Record>) {
    let mut lines = String::new();
    flate2::read::GzDecoder::new(FLIGHTS).read_to_string(&mut lines).unwrap();
    let (mut flown, mut cancelled) = (Vec::new(), Vec::new());
    for line in lines.lines() {
        let flight: serde_json::Value = serde_json::from_str(line).unwrap();
        let carrier = flight["carrier"].as_str().unwrap();
        let key = Some(carrier.as_bytes().to_vec());
        if flight["delay_min"].is_null() {
            let at = time_of(flight["scheduled"].as_i64().unwrap() * 1_000);
            let payload =
                format!(r#"{{"airline":{{"code":"{carrier}"}},"planned":"{at}","of":1}}"#);
            cancelled.push(Record { key, ..Record::of(0, payload) });
        } else {
            let partition = i32::from(carrier.bytes().map(u16::from).sum::<u16>() % 3 == 0);
            flown.push(Record { key, ..Record::of(partition, line) });
        }
    }
    (flown, cancelled)
}

/// The month of both, per carrier and hour.
fn carriers(cluster: &Cluster) -> String {
    format!(
        r#"
        [kafka]
        bootstrap_servers = "{}"
        group_id = "carriers"
        [[source]]
        topic = "carriers-flown"
        timestamp = {{ field = "scheduled", unit = "s" }}
        watermark = {{ max_out_of_orderness = "24h" }}
        [[source]]
        topic = "carriers-cancelled"
        timestamp = {{ field = "planned", unit = "rfc3339" }}
        watermark = {{ max_out_of_orderness = "24h", idle_timeout = "5m" }}
        fields = {{ cancelled = "of" }}
        [window]
        size = "1h"
        [key]
        from = "message"
        [[aggregate]]
        name = "flights"
        function = "count"
        [[aggregate]]
        name = "flown"
        function = "count"
        field = "delay_min"
        missing = "skip"
        [[aggregate]]
        name = "delay_sum"
        function = "sum"
        field = "delay_min"
        missing = "skip"
        [[aggregate]]
        name = "cancelled"
        function = "count"
        field = "cancelled"
        missing = "skip"
        [results]
        topic = "carriers-hourly"
        [late]
        topic = "carriers-late"
        [dead_letter]
        topic = "carriers-dead"
        [topics]
        create = true
        partitions = 1
        "#,
        cluster.bootstrap
    )
}

#[test]
fn flights_and_cancelled_flights_of_two_topics_are_the_totals_of_the_whole_month() {
    let cluster = Cluster::new(Broker::shared());
    let (flown, cancelled) = flown_and_cancelled();
    assert_eq!((flown.len(), cancelled.len()), (26_483, 521));
    cluster.create("carriers-flown", 2, &[]);
    cluster.create("carriers-cancelled", 1, &[]);
    cluster.produce("carriers-flown", &flown);
    cluster.produce("carriers-cancelled", &cancelled);
    let mut service = Tidegate::run(&carriers(&cluster), &["--until-end"]);
    let status = service.wait();
    assert!(status.success(), "{}", service.log());
    let mut found = BTreeMap::new();
    for record in cluster.read("carriers-hourly") {
        let result = record.json();
        // A sum of nothing is null, and awk's is 0.
        let number = |name: &str| result[name].as_i64().unwrap_or(0);
        let key = (number("window_start") / 1_000, result["key"].as_str().unwrap().to_owned());
        let numbers = ["flights", "flown", "delay_sum", "cancelled"].map(number);
        assert!(found.insert(key, numbers).is_none(), "twice: {result}");
    }
    println!("{} rows of {} flights", found.len(), found.values().map(|row| row[0]).sum::<i64>());
    assert_eq!(found, reference(CARRIERS));
    for nothing in ["carriers-late", "carriers-dead"] {
        assert!(cluster.read(nothing).is_empty(), "{nothing}");
    }
}
