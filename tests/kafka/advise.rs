//! Advice on a topic of a real broker: by the command, which only reads, and by the running service.

use std::io::Read;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record};
use crate::support::job::{Job, event, wait_for_offset};
use crate::support::process::tidegate;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn advise(cluster: &Cluster, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["advise", "--bootstrap", &cluster.bootstrap])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_month_of_flights_needs_its_99th_percentile() {
    let data: &[u8] = include_bytes!("../data/flights-2013-01.jsonl.gz");
    let mut lines = String::new();
    flate2::read::GzDecoder::new(data).read_to_string(&mut lines).unwrap();
    let cluster = Cluster::new(Broker::shared());
    cluster.create("advise-flights", 1, &[]);
    let records: Vec<_> = lines.lines().map(|line| Record::of(0, line)).collect();
    cluster.produce("advise-flights", &records);

    // Without a configuration: only the event time is read.
    let by_flags = ["--topic", "advise-flights", "--field", "scheduled", "--unit", "s"];
    let by_flags = [&by_flags[..], &["--records", "30000", "--set", "window.size=1h"]].concat();
    let found = json(&advise(&cluster, &[&by_flags[..], &["--json"]].concat()));
    assert_eq!(found["records"], 27_004);
    let fit = &found["recommendation"];
    let bound = fit["max_out_of_orderness_ms"].as_u64().unwrap();
    assert!(bound.abs_diff(161 * 60_000) <= 161 * 600, "{bound}");
    assert!(fit["late_share"].as_f64().unwrap() < 0.01, "{fit}");
    assert!((0.09..0.11).contains(&found["late_share_at_mean"].as_f64().unwrap()));

    let output = advise(&cluster, &by_flags);
    let said = text(&output.stdout);
    println!("{said}");
    for expected in ["27,004 records in 1 partition", "within 1 %", "the mean would be no guide"] {
        assert!(said.contains(expected), "no {expected:?} in\n{said}");
    }
    // The README shows it as it is printed.
    let (_, shown) = include_str!("../../README.md").split_once("```text\nrecommended:").unwrap();
    let shown = shown.split("```").next().unwrap();
    for line in shown.lines().filter(|line| *line != "...") {
        assert!(said.contains(line), "the README has {line:?}, which is not in\n{said}");
    }
    // Not on a terminal: lines that say how far it is.
    assert!(text(&output.stderr).contains("read 27,004 of 27,004 records"));

    // What the service would refuse does not count, and what it finds late is what is told.
    let config = include_str!("../../config/flights.toml");
    let at = format!("kafka.bootstrap_servers={}", cluster.bootstrap);
    let topic = "source[0].topic=advise-flights";
    let arguments = ["--set", &at, "--set", topic, "--records", "30000", "--bound", "14m"];
    let output = tidegate("advise", config, &[&arguments[..], &["--json"]].concat());
    let found = json(&output);
    assert_eq!((&found["records"], &found["refused"]), (&26_483.into(), &521.into()));
    let late = found["what_if"]["late_records"].as_u64().unwrap();
    assert!(late.abs_diff(2_693) <= 60, "{late}");

    // It has joined no group and committed nothing.
    assert_eq!(cluster.committed("flights", "advise-flights", 1), [None]);
    assert_eq!(cluster.committed("tidegate-advise", "advise-flights", 1), [None]);

    // The snippet, with what else a configuration has to say, is one.
    let output = tidegate("advise", config, &[&arguments[..6], &["--snippet"]].concat());
    let (_, rest) = config.split_once("[key]").unwrap();
    let whole = format!(
        "{}\n[kafka]\ngroup_id = \"flights\"\n[watermark]\nemit_interval = \"0ms\"\n[key]{rest}",
        text(&output.stdout)
    );
    let checked = tidegate("check", &whole, &[]);
    assert!(checked.status.success(), "{}\n{whole}", text(&checked.stderr));
}

#[test]
fn a_sample_is_what_was_asked_for_and_what_is_committed() {
    let cluster = Cluster::new(Broker::shared());
    let topic = "advise-sample";
    cluster.create(topic, 3, &[]);
    let record = |partition, i: i64| event(partition, "a", 1_800_000_000_000 + i * 1_000, 1);
    let of = |partition| (0..100).map(|i| record(partition, i)).collect::<Vec<_>>();
    cluster.produce(topic, &of(0));
    cluster.produce_in_transaction(topic, &of(1), true);
    cluster.produce_in_transaction(topic, &of(1), false);

    let arguments = ["--topic", topic, "--field", "ts", "--set", "guard.max_future=off", "--json"];
    let records = |more: &[&str]| -> Vec<u64> {
        let found = json(&advise(&cluster, &[&arguments[..], more].concat()));
        let partitions = found["partitions"].as_array().unwrap();
        partitions.iter().map(|partition| partition["records"].as_u64().unwrap()).collect()
    };
    assert_eq!(records(&[]), [100, 100, 0]);
    assert_eq!(records(&["--records", "40"])[0], 40);
    assert_eq!(records(&["--last", "1h"]), [100, 100, 0]);
    let found = json(&advise(&cluster, &arguments));
    let odd: Vec<_> = found["findings"].as_array().unwrap().iter().collect();
    assert!(odd.iter().any(|odd| odd["kind"] == "no_records" && odd["partition"] == 2), "{odd:?}");
    assert!(odd.iter().any(|odd| odd["kind"] == "clock_ahead"), "{odd:?}");

    // Seconds read as milliseconds are named, with the unit that would make sense.
    cluster.create("advise-unit", 1, &[]);
    let seconds: Vec<_> = (0..50).map(|i| event(0, "a", 1_790_000_000 + i, 1)).collect();
    cluster.produce("advise-unit", &seconds);
    let output = advise(&cluster, &["--topic", "advise-unit", "--field", "ts"]);
    let said = text(&output.stdout);
    assert!(said.contains("50 records cannot be used (ts_past)"), "{said}");
    assert!(said.contains("as `unit = \"s\"` it would be near the present"), "{said}");

    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["advise", "--bootstrap", &cluster.bootstrap, "--topic", "advise-nowhere"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("topic `advise-nowhere` does not exist"));
}

#[test]
fn the_running_service_says_what_another_bound_would_have_lost() {
    let job = Job::new("advise-service", 1);
    let mut service = job.run(&[]);
    // One record per window of 10 s, and one in ten 3 s before the end of a window that has just been passed.
    let records: Vec<_> = (0..2_000_i64)
        .map(|i| {
            let newest = i * 10_000;
            event(0, "a", if i % 10 == 9 { newest - 13_000 } else { newest }, 1)
        })
        .collect();
    job.produce(&records);
    wait_for_offset(&mut service, 2_000);
    let mut ask = |query: &str| -> Value {
        let (code, body) = service.get(&format!("/api/v1/advise{query}"));
        assert_eq!(code, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()["advice"][0].clone()
    };
    // The bound in force is zero.
    let found = ask("?bound=0s");
    assert_eq!(found["records"], 2_000);
    let told = found["what_if"]["late_records"].as_u64().unwrap();
    let really = found["late"]["out_of_order"].as_u64().unwrap();
    assert!(really > 150 && told.abs_diff(really) <= 2, "{told} told, {really} were late");
    assert_eq!(u64::try_from(job.read("late").len()).unwrap(), really);
    let found = ask("?bound=20s&max_delay=1m");
    assert_eq!(found["what_if"]["late_records"], 0, "{found}");
    assert_eq!(found["max_delay"]["asked_ms"], 60_000);
    // Asking has changed nothing.
    let bound = service.metric_sum("tidegate_partition_out_of_orderness_bound_seconds", "");
    assert!(bound.abs() < f64::EPSILON, "{bound}");
    service.stop();
}

/// Numbers between 0 and 1, 0 left out, the same each time.
fn shares() -> impl FnMut() -> f64 {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let high = u32::try_from(state >> 32).unwrap();
        (f64::from(high) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Milliseconds of an exponential distribution that has this value at 1 - 1 / `one_in`.
#[expect(clippy::cast_possible_truncation, reason = "of a test")]
fn exponential(share: f64, value_ms: f64, one_in: f64) -> i64 {
    (-value_ms / one_in.ln() * share.ln()) as i64
}

fn arriving(partition: i32, ts: i64, arrival: i64) -> Record {
    Record { timestamp: Some(arrival), ..event(partition, "a", ts, 1) }
}

#[test]
fn topics_of_known_disorder_and_gaps_are_told_what_fits_them() {
    let cluster = Cluster::new(Broker::shared());
    let now = tidegate::clock::Clock::start().now().wall.0;
    let mut random = shares();

    // Every other record is behind, so that the P99 of all is 6 s; 30 s are allowed.
    cluster.create("advise-known", 1, &[]);
    let begin = now - 4_000_000;
    let events: Vec<(i64, i64)> = (0..40_000)
        .map(|i| {
            let newest = begin + i / 2 * 200;
            let behind = if i % 2 == 0 { 0 } else { exponential(random(), 6_000.0, 50.0) };
            (newest - behind, newest + 40 + i % 2)
        })
        .collect();
    let records: Vec<_> = events.iter().map(|(ts, at)| arriving(0, *ts, *at)).collect();
    cluster.produce("advise-known", &records);
    let by_field = |topic, more: &[&str]| {
        let arguments = ["--topic", topic, "--field", "ts", "--records", "50000", "--json"];
        json(&advise(&cluster, &[&arguments[..], more].concat()))
    };
    let found = by_field("advise-known", &["--max-delay", "30s"]);
    let mut greatest = i64::MIN;
    let mut behind: Vec<i64> = events
        .iter()
        .map(|(ts, _)| {
            greatest = greatest.max(*ts);
            greatest - ts
        })
        .collect();
    behind.sort_unstable();
    for (name, place) in [("p90", 36_000), ("p99", 39_600), ("p99.9", 39_960), ("max", 39_999)] {
        let told = found["out_of_orderness_ms"][name].as_i64().unwrap();
        let really = behind[place];
        assert!((told - really).abs() <= really / 100 + 2, "{name}: {told} told, {really} are");
    }
    let bound = found["recommendation"]["max_out_of_orderness_ms"].as_i64().unwrap();
    assert!((8_000..=10_000).contains(&bound), "{bound}");

    // Gaps of a P99 of 2 min in one of two partitions, and results within 1 min.
    cluster.create("advise-gaps", 2, &[]);
    let mut at = now - 24 * 3_600_000;
    let sparse = (0..3_000).map(|_| {
        at += exponential(random(), 120_000.0, 100.0);
        arriving(1, at, at + 50)
    });
    let sparse: Vec<_> = sparse.collect();
    let busy: Vec<_> = (0..10_000)
        .map(|i| now - 24 * 3_600_000 + i * 7_000)
        .map(|at| arriving(0, at, at + 50))
        .collect();
    cluster.produce("advise-gaps", &[busy, sparse].concat());
    let found = by_field("advise-gaps", &["--max-delay", "1m"]);
    let [contradiction] = &found["contradictions"].as_array().unwrap()[..] else {
        panic!("{:#}", found["contradictions"])
    };
    assert_eq!(
        (&contradiction["setting"], &contradiction["partition"]),
        (&"idle_timeout".into(), &1.into())
    );
    let needed = contradiction["needed_ms"].as_i64().unwrap();
    assert!((300_000..=420_000).contains(&needed), "{contradiction}");

    // Batches every 5 min.
    cluster.create("advise-batches", 1, &[]);
    let batch = |n: i64| {
        let arrival = now - 200 * 300_000 + n * 300_000;
        (0..40).map(move |i| arriving(0, arrival - 300_000 + i * 7_500, arrival + i * 5))
    };
    cluster.produce("advise-batches", &(0..200).flat_map(batch).collect::<Vec<_>>());
    let found = by_field("advise-batches", &[]);
    let timeout = found["recommendation"]["idle_timeout_ms"].as_i64().unwrap();
    assert!((594_000..=610_000).contains(&timeout), "{timeout}");
}
