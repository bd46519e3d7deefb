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
