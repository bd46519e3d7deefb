//! `tidegate reset`: what it says, what it leaves alone, and where the next run begins.

use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};

use crate::support::cluster::Record;
use crate::support::job::{Job, Row, event, row};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The Kafka timestamps of the records, a second apart.
const THEN: i64 = 1_700_000_000_000;

fn at(nth: i64, value: i64) -> Record {
    let timestamp = Some(THEN + 1_000 * nth);
    Record { timestamp, ..event(0, "a", 1_000 * (nth + 1), value) }
}

/// A job that has stopped with a window of three records open.
fn stopped(name: &'static str) -> Job {
    let job = Job::without_topics(name);
    // The records are old.
    job.create("in", 1, &[("retention.ms", "-1")]);
    for output in ["out", "late", "dead"] {
        job.create(output, 1, &[]);
    }
    let mut service = job.run(&[]);
    job.produce(&[at(0, 1), at(1, 2), at(2, 4)]);
    job.wait_until_committed(1, &mut service);
    service.stop();
    job
}

/// What a reset may change: the group's offset, and where the changelog begins and ends.
fn places(job: &Job) -> (Vec<Option<i64>>, i64, i64) {
    let changelog = job.changelog();
    let bounds = (job.cluster.beginning(&changelog, 0), job.cluster.end(&changelog, 0));
    (job.committed(1), bounds.0, bounds.1)
}

#[test]
fn nothing_changes_where_it_is_only_shown_or_nobody_agrees() {
    let job = stopped("reset-shown");
    let before = places(&job);
    let (code, said) = job.reset(&["--to", "earliest", "--dry-run"]);
    println!("{said}");
    assert_eq!(code, Some(0), "{said}");
    for part in ["group reset-shown reads on:", "reset-shown-in/0: 3 -> 0", "changelog is emptied"]
    {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    assert_eq!(places(&job), before);
    let (code, said) = job.reset(&["--to", "earliest"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nobody to ask") && said.contains("--yes"), "{said}");
    assert_eq!(places(&job), before);
    job.run_to_end(&[]);
    assert_eq!(job.rows(), [row(0, "a", "0 on_time", 3, 7)]);
}

/// A group that is at work is left alone, whichever protocol manages it.
fn in_use(job: &Job) {
    let mut service = job.run(&["--set", "kafka.instance_id=busy"]);
    job.produce(&[event(0, "a", 1_000, 1)]);
    job.wait_until_committed(1, &mut service);
    let before = places(job);
    for arguments in [&["--to", "earliest", "--yes"][..], &["--to", "current", "--dry-run"]] {
        let (code, said) = job.reset(arguments);
        assert_eq!(code, Some(1), "{said}");
        for part in ["has members", "tidegate-busy-0", "stop them first"] {
            assert!(said.contains(part), "no {part:?} in\n{said}");
        }
    }
    assert_eq!(places(job), before);
    service.stop();
    let (code, said) = job.reset(&["--to", "earliest", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    job.run_to_end(&[]);
    assert_eq!(job.rows(), [row(0, "a", "0 on_time", 1, 1)]);
}

#[test]
fn a_group_in_use_is_left_alone() {
    in_use(&Job::new("reset-in-use", 1));
}

#[test]
fn a_group_of_the_newer_protocol_in_use_is_left_alone() {
    in_use(&Job::new("reset-in-use-newer", 1).consumer("group.protocol", "consumer"));
}

/// Resets a stopped job that has one more record to read, adds another one, and runs to the end.
fn reset(name: &'static str, to: &str) -> Vec<Row> {
    let job = stopped(name);
    job.produce(&[at(3, 8)]);
    let (code, said) = job.reset(&["--to", to, "--yes"]);
    println!("{name}: {said}");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("done\n"), "{said}");
    let (_, beginning, end) = places(&job);
    assert_eq!(beginning, end, "the changelog is empty");
    job.produce(&[at(4, 16)]);
    job.run_to_end(&[]);
    let rows = job.rows();
    // And it goes on as if nothing had been.
    job.produce(&[event(0, "b", 20_000, 1)]);
    job.run_to_end(&[]);
    assert_eq!(job.rows().len(), rows.len() + 1);
    rows
}

#[test]
fn the_next_run_begins_where_it_was_told() {
    let time = jiff::Timestamp::from_millisecond(THEN + 1_000).unwrap().to_string();
    for (name, to, count, sum) in [
        ("reset-earliest", "earliest", 5, 31),
        ("reset-latest", "latest", 1, 16),
        ("reset-time", time.as_str(), 4, 30),
        ("reset-current", "current", 2, 24),
    ] {
        assert_eq!(reset(name, to), [row(0, "a", "0 on_time", count, sum)], "{to}");
    }
}

#[test]
fn what_has_never_run_or_has_lost_its_changelog_can_be_reset() {
    let job = Job::new("reset-new", 2);
    let (code, said) = job.reset(&["--to", "current", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    for part in ["reset-new-in/1: nowhere yet -> nowhere yet", "the changelog is empty"] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    assert_eq!(job.committed(2), [None, None]);

    let job = stopped("reset-lost");
    job.cluster.delete(&job.changelog());
    let log = job.fail(&[]);
    assert!(log.contains("`tidegate reset`"), "{log}");
    let (code, said) = job.reset(&["--to", "earliest", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    job.run_to_end(&[]);
    assert_eq!(job.rows(), [row(0, "a", "0 on_time", 3, 7)]);

    let missing = Job::without_topics("reset-missing");
    let (code, said) = missing.reset(&["--to", "earliest", "--yes"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`reset-missing-in` does not exist"), "{said}");
}

#[test]
fn a_transaction_that_may_still_change_the_offsets_is_named() {
    let job = stopped("reset-unsettled");
    let before = places(&job);
    // As an instance leaves it behind that is killed between sending its offsets and committing.
    let id = "reset-unsettled-killed-0";
    let killed = job.cluster.open_transaction(id, &job.topic("dead"), &[Record::of(0, "{}")]);
    let outside = job.cluster.member(job.name, &job.topic("in"), &[]);
    outside.unsubscribe();
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(&job.topic("in"), 0, Offset::Offset(3)).unwrap();
    let group = outside.group_metadata().unwrap();
    killed.send_offsets_to_transaction(&offsets, &group, TIMEOUT).unwrap();
    let (code, said) = job.reset(&["--to", "earliest", "--yes"]);
    println!("{said}");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("transaction ends when it is started again"), "{said}");
    killed.abort_transaction(TIMEOUT).unwrap();
    assert_eq!(places(&job), before);
    let (code, said) = job.reset(&["--to", "earliest", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    job.run_to_end(&[]);
    assert_eq!(job.rows(), [row(0, "a", "0 on_time", 3, 7)]);
}

#[test]
fn the_open_transaction_of_a_killed_instance_is_in_nobodys_way() {
    let job = Job::new("reset-killed", 1).consumer("session.timeout.ms", "6000");
    let slowly =
        ["--set", "delivery.transaction_timeout=60s", "--set", "delivery.commit_interval=50s"];
    let mut killed = job.run(&slowly);
    job.produce(&[event(0, "a", 1_000, 1), Record::of(0, "no JSON")]);
    killed.wait_until("they are in an open transaction", |_| {
        job.cluster.end(&job.topic("dead"), 0) > 0
    });
    // SIGKILL.
    drop(killed);
    let mut said = String::new();
    // The group takes it for a member until its session has ended.
    for _ in 0..60 {
        let (code, text) = job.reset(&["--to", "earliest", "--yes"]);
        said = text;
        if code == Some(0) {
            break;
        }
        assert!(said.contains("has members"), "{said}");
    }
    assert!(said.ends_with("done\n"), "{said}");
    job.run_to_end(&["--set", "delivery.transaction_timeout=60s"]);
    assert_eq!(job.rows(), [row(0, "a", "0 on_time", 1, 1)]);
    assert_eq!(job.read("dead").len(), 1);
}
