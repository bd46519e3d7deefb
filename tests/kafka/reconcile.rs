//! `tidegate reconcile`: late records in the rows they belong to, each once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::flights::{CONFIG, HOURLY, last_panes, read_live, reference, settings};
use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record};
use crate::support::job::{Job, event, keyed, row};
use crate::support::process::{Tidegate, tidegate};

#[test]
fn half_an_hour_and_reconciling_gives_the_flights_of_the_reference_row_for_row() {
    let cluster = Cluster::new(Broker::shared());
    let prefix = "flights-reconciled";
    let (_, _, late) = read_live(&cluster, prefix, "30m");
    let results = format!("{prefix}-hourly");
    assert!(late.len() > 500, "{}", late.len());
    assert_ne!(last_panes(&cluster, prefix), reference(HOURLY));
    let settings = settings(&cluster, prefix, "30m");
    let with = |more: &[&'static str]| -> Vec<String> {
        settings.iter().cloned().chain(more.iter().map(|word| (*word).to_owned())).collect()
    };
    let reconcile = |arguments: &[String]| {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let output = tidegate("reconcile", CONFIG, &arguments);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        said
    };

    // Only shown, and only into a file: nothing changes, and what is in the file is right.
    let end = cluster.end(&results, 0);
    let said = reconcile(&with(&["--dry-run"]));
    assert!(said.contains(&format!("would be corrected: {} late records", late.len())), "{said}");
    let file = std::env::temp_dir().join(format!("tidegate-corrections-{}", std::process::id()));
    let mut to_file = with(&["--batch", "300", "--to"]);
    to_file.push(file.to_str().unwrap().to_owned());
    for _ in 0..2 {
        reconcile(&to_file);
        let mut panes = last_panes(&cluster, prefix);
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            assert_eq!(row["pane"]["timing"], "correction");
            let number = |name: &str| row[name].as_i64().unwrap();
            let id = (number("window_start") / 1_000, row["origin"].as_str().unwrap().to_owned());
            panes.insert(id, ["count", "sum", "min", "max"].map(number));
        }
        assert_eq!(panes, reference(HOURLY));
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(cluster.end(&results, 0), end);
    let group = format!("{prefix}-reconcile");
    let late_topic = format!("{prefix}-late");
    assert_eq!(cluster.committed(&group, &late_topic, 1), [None]);

    // Killed at its very beginning, and within or between transactions.
    let slowly = with(&["--batch", "25"]);
    let slowly: Vec<_> = slowly.iter().map(String::as_str).collect();
    let mut killed = 0;
    for rows in [0, 1, 3, 10, 20, 25, 30, 35] {
        let begun = cluster.end(&results, 0);
        let command = Tidegate::start("reconcile", CONFIG, &slowly);
        let by_now = || rows == 0 || cluster.end(&results, 0) >= begun + rows;
        killed += usize::from(command.kill_when(by_now));
    }
    assert!(killed > 5, "{killed}");
    let committed = cluster.committed(&group, &late_topic, 1);
    println!("killed {killed} times, {committed:?} of {} late records dealt with", late.len());

    println!("{}", reconcile(&with(&[])).lines().last().unwrap());
    assert_eq!(last_panes(&cluster, prefix), reference(HOURLY));
    let corrected = cluster.read(&results);
    let corrections =
        corrected.iter().filter(|record| record.json()["pane"]["timing"] == "correction");
    assert!(corrections.count() > 100);

    // There is nothing left to do.
    let end = cluster.end(&results, 0);
    let said = reconcile(&with(&[]));
    assert!(said.contains("corrected: 0 late records, 0 rows"), "{said}");
    assert_eq!(cluster.end(&results, 0), end);
    assert_eq!(last_panes(&cluster, prefix), reference(HOURLY));
}

/// One window with a row, one without, closed; then what is late for them.
fn late_ones() -> Vec<Record> {
    vec![
        event(0, "a", 1_000, 1),
        event(0, "a", 2_000, 2),
        event(0, "closing", 60_000, 0),
        event(0, "a", 3_000, 4),
        event(0, "b", 4_000, 8),
        event(0, "a", 5_000, 16),
    ]
}

fn reconcile(job: &Job, arguments: &[&str]) -> (Option<i32>, String) {
    let (code, said) = job.command("reconcile", arguments);
    println!("{}: {said}", job.name);
    (code, said)
}

#[test]
fn rows_are_corrected_and_those_that_were_missing_created() {
    let job = Job::new("reconcile-rows", 1);
    job.produce(&late_ones());
    job.run_to_end(&[]);
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    let window = "window 1970-01-01T00:00:00Z: 3 late records, 2 rows corrected, 1 of them new";
    assert!(said.contains(window), "{said}");
    let mut expected = [
        row(0, "a", "0 on_time", 2, 3),
        row(0, "a", "1 correction", 4, 23),
        row(0, "b", "0 correction", 1, 8),
        row(60_000, "closing", "0 on_time", 1, 0),
    ]
    .to_vec();
    assert_eq!(job.rows(), expected);

    // What is late after that goes on from the correction.
    job.produce(&[event(0, "a", 6_000, 32), event(0, "b", 6_000, 64)]);
    job.run_to_end(&[]);
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    expected.extend([row(0, "a", "2 correction", 5, 55), row(0, "b", "1 correction", 2, 72)]);
    expected.sort();
    assert_eq!(job.rows(), expected);
    for record in job.read("out") {
        assert_eq!(record.header("tidegate.partition").as_deref(), Some("all"));
    }
}

#[test]
fn rows_of_one_partition_stay_those_of_that_partition() {
    let partial = "fields = [\"k\"]\n            partial = true";
    let job = Job::new("reconcile-partial", 2)
        .replace("fields = [\"k\"]", partial)
        .replace("topic = \"reconcile-partial-out\"", "topic = \"reconcile-partial-out\"\nkey = \"key_window\"\ntimestamps = \"rfc3339\"\nintegers = \"text\"");
    let of = |partition, v| {
        [
            keyed(partition, "a", 1_000, v),
            keyed(partition, "c", 60_000, 0),
            keyed(partition, "a", 2_000, 10 * v),
        ]
    };
    let is_late = |record: &Record| record.json()["ts"] == 2_000;
    let (closed, late): (Vec<_>, Vec<_>) =
        [of(0, 1), of(1, 2)].concat().into_iter().partition(|record| !is_late(record));
    job.produce(&closed);
    let mut service = job.run(&[]);
    service.wait_until("both windows have fired", |_| job.read("out").len() == 2);
    job.produce(&late);
    service.wait_until("both are late", |_| job.read("late").len() == 2);
    service.stop();
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    let mut last = BTreeMap::new();
    for record in job.read("out") {
        let row = record.json();
        assert_eq!(row["partition"].to_string(), record.header("tidegate.partition").unwrap());
        let id = (row["k"].to_string(), row["partition"].to_string());
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        last.insert(id, (record.key, text("window_start"), text("count"), text("sum")));
    }
    for (partition, sum) in [(0, "11"), (1, "22")] {
        let (key, start, count, total) = &last[&("\"a\"".to_owned(), partition.to_string())];
        let key: Value = serde_json::from_slice(key.as_ref().unwrap()).unwrap();
        assert_eq!(key["window_start"], "1970-01-01T00:00:00Z");
        assert_eq!((start.as_str(), count.as_str()), ("1970-01-01T00:00:00Z", "2"));
        assert_eq!(total, sum);
    }
}

/// A job whose sum is of floats, and whose average stands alone.
fn rounded(name: &'static str) -> Job {
    let average = "[[aggregate]]\nname = \"average\"\nfunction = \"avg\"\nfield = \"v\"\n[guard]";
    let (sum, guard) = ("field = \"v\"\n            ", "[guard]");
    Job::new(name, 1)
        .replace(&format!("{sum}{guard}"), &format!("{sum}type = \"float\"\n{guard}"))
        .replace(guard, average)
}

fn last_of(job: &Job, key: &str) -> Value {
    let mut rows = job.read("out").into_iter().map(|record| record.json());
    rows.rfind(|row| row["k"] == key && row["window_start"] == 0).unwrap()
}

#[test]
fn a_window_that_may_still_take_records_is_left_to_the_service() {
    let job = Job::new("reconcile-waits", 1);
    job.produce(&late_ones());
    job.run_to_end(&[]);
    let rows = job.rows();
    for _ in 0..2 {
        let (code, said) = reconcile(&job, &["--set", "window.allowed_lateness=1h"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("3 late records wait"), "{said}");
        assert_eq!(job.rows(), rows);
    }
    let (code, said) = reconcile(&job, &["--batch", "1"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(job.rows().len(), rows.len() + 3, "one late record in each transaction");
}

#[test]
fn what_was_rounded_is_computed_from_the_input() {
    let job = rounded("reconcile-rounded");
    let with = |v: &str| Record::of(0, format!(r#"{{"k":"a","ts":3000,"v":{v}}}"#));
    let mut records = late_ones();
    // One that no row has.
    records.insert(0, with("\"text\""));
    records.push(with("0.1"));
    job.produce(&records);
    job.run_to_end(&[]);
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 of them computed from the input"), "{said}");
    let a = last_of(&job, "a");
    assert_eq!((&a["count"], &a["sum"]), (&5.into(), &23.1.into()), "{a}");
    assert_eq!((&a["average"], &a["pane"]["index"]), (&(23.1 / 5.0).into(), &1.into()), "{a}");
    let b = last_of(&job, "b");
    assert_eq!((&b["count"], &b["average"]), (&1.into(), &8.0.into()), "{b}");
    let end = job.cluster.end(&job.topic("out"), 0);
    assert_eq!(reconcile(&job, &[]).0, Some(0));
    assert_eq!(job.cluster.end(&job.topic("out"), 0), end);
}

#[test]
fn what_is_computed_from_the_input_goes_by_the_guard_of_its_source() {
    let guard = "min_timestamp = \"off\"\n";
    let job = rounded("reconcile-guarded")
        .replace(guard, "")
        .replace("[window]", &format!("[source.guard]\n{guard}[window]"));
    job.produce(&late_ones());
    job.run_to_end(&[]);
    assert_eq!(last_of(&job, "a")["count"], 2);
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 of them computed from the input"), "{said}");
    assert_eq!(last_of(&job, "a")["count"], 4);
}

#[test]
fn a_row_is_not_replaced_by_one_of_fewer_records() {
    let job = rounded("reconcile-fewer");
    job.produce(&late_ones());
    job.run_to_end(&[]);
    let before = last_of(&job, "a");
    // A guard that refuses what the service believed.
    let (code, said) = reconcile(&job, &["--set", "guard.min_timestamp=2000-01-01T00:00:00Z"]);
    assert_eq!(code, Some(3), "{said}");
    let why = "0 of its 4 records can be read under this configuration";
    assert!(said.contains(why), "{said}");
    assert_eq!(last_of(&job, "a"), before);
}

#[test]
fn what_the_input_has_lost_is_listed_and_not_guessed() {
    let job = rounded("reconcile-lost");
    job.produce(&[event(0, "old", -20_000, 1)]);
    job.produce(&late_ones());
    job.run_to_end(&[]);
    let before = job.read("out").len();
    // The first record of the row is gone with the old one.
    job.cluster.delete_before(&job.topic("in"), 0, 2);
    for arguments in [&["--dry-run"][..], &[]] {
        let (code, said) = reconcile(&job, arguments);
        assert_eq!(code, Some(3), "{said}");
        for part in [
            "not repaired: reconcile-lost-in/0 offset 4:",
            "not repaired: reconcile-lost-in/0 offset 6:",
            "reconcile-lost-in/0 begins at offset 2, and 3 of its 4 records are there",
            "2 places could not be repaired",
        ] {
            assert!(said.contains(part), "no {part:?} in\n{said}");
        }
    }
    // The other row is there, and no other.
    assert_eq!(job.read("out").len(), before + 1);
    assert_eq!(last_of(&job, "a")["count"], 2);
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_the_input_has_lost_of_others_does_not_matter() {
    let job = rounded("reconcile-trimmed");
    job.produce(&[event(0, "old", -20_000, 1)]);
    job.produce(&late_ones());
    job.run_to_end(&[]);
    job.cluster.delete_before(&job.topic("in"), 0, 1);
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(last_of(&job, "a")["count"], 4);
}

#[test]
fn a_row_that_the_results_may_have_lost_comes_from_the_input() {
    let job = Job::new("reconcile-removed", 1);
    job.produce(&late_ones());
    job.run_to_end(&[]);
    job.cluster.delete_before(&job.topic("out"), 0, job.cluster.end(&job.topic("out"), 0));
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(job.rows(), [row(0, "a", "1 correction", 4, 23), row(0, "b", "1 correction", 1, 8)]);
}

#[test]
fn a_row_of_another_configuration_is_an_error_and_changes_nothing() {
    let job = Job::new("reconcile-foreign", 1);
    job.produce(&late_ones());
    job.run_to_end(&[]);
    let ends = job.cluster.end(&job.topic("out"), 0);
    let other = job.replace("name = \"sum\"", "name = \"total\"");
    let (code, said) = reconcile(&other, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another configuration: it has no `total`"), "{said}");
    assert_eq!(other.cluster.end(&other.topic("out"), 0), ends);
}

#[test]
fn panes_that_are_added_up_get_what_is_late_alone() {
    let discarding = "size = \"10s\"\n            panes = \"discarding\"";
    let job = Job::new("reconcile-discarding", 1).replace("size = \"10s\"", discarding);
    job.produce(&late_ones());
    job.run_to_end(&[]);
    let (code, said) = reconcile(&job, &["--to", "nowhere.jsonl"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("rows are added up"), "{said}");
    let (code, said) = reconcile(&job, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(job.rows().contains(&row(0, "a", "1 correction", 2, 20)), "{:?}", job.rows());
}
