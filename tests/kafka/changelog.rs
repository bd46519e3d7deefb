//! The topic that keeps the state: how it is made, which settings it must not have, and that it stays short.

use crate::support::cluster::Record;
use crate::support::job::{Job, event, noise, panes, row, total};

#[test]
fn it_is_made_with_the_settings_that_keep_it() {
    let job = Job::without_topics("changelog-made");
    // One broker can never have two copies, so this is only ever read.
    job.create("in", 3, &[("min.insync.replicas", "2")]);
    for output in ["out", "late", "dead"] {
        job.create(output, 1, &[]);
    }
    let job = job.replace("fields = [\"k\"]", "from = \"message\"");
    let mut service = job.run(&[]);
    service.wait_for_line("changelog topic created");
    drop(service);
    // One partition for each of the input.
    job.cluster.wait_for(&job.changelog(), 3);
    let settings = job.cluster.settings(&job.changelog());
    let found = |name: &str| settings[name].as_str();
    let policy: std::collections::BTreeSet<_> = found("cleanup.policy").split(',').collect();
    assert_eq!(policy, ["compact", "delete"].into());
    for (name, value) in [
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("segment.bytes", "16777216"),
        ("min.cleanable.dirty.ratio", "0.1"),
        ("delete.retention.ms", "3600000"),
        ("message.timestamp.type", "CreateTime"),
        ("min.insync.replicas", "2"),
    ] {
        assert_eq!(found(name), value, "{name}");
    }
}

#[test]
fn settings_that_would_delete_state_end_the_service() {
    let job = Job::new("changelog-kept-short", 1);
    let topic = job.changelog();
    // As a topic is that somebody makes by hand.
    job.cluster.create(&topic, 1, &[]);
    let log = job.fail(&[]);
    let last = log.lines().last().unwrap();
    for part in [topic.as_str(), "retention.ms = 604800000", "set it to -1"] {
        assert!(last.contains(part), "no {part:?} in\n{log}");
    }
    job.cluster.alter(&topic, &[("retention.ms", "-1"), ("retention.bytes", "1000000")]);
    let log = job.fail(&[]);
    let last = log.lines().last().unwrap();
    for part in [topic.as_str(), "retention.bytes = 1000000", "set it to -1"] {
        assert!(last.contains(part), "no {part:?} in\n{log}");
    }
    job.cluster.alter(&topic, &[("retention.ms", "-1"), ("cleanup.policy", "compact,delete")]);
    job.produce(&[event(0, "a", 1_000, 1)]);
    let log = job.run_to_end(&[]);
    assert!(!log.contains("WARN"), "{log}");
}

/// Large keys, so that few commits write as much as many would.
const KEYS: usize = 30;
const KEY_BYTES: usize = 2_000;

/// One record for each key, all in the window that begins at 10,000.
fn records(text: &str, value: i64) -> Vec<Record> {
    let key = |number| format!("{number}-{text}");
    (0..KEYS).map(|number| event(0, &key(number), 10_000 + value, value)).collect()
}

#[test]
fn it_stays_as_short_as_what_is_open() {
    let job = Job::new("changelog-short", 1);
    let topic = job.changelog();
    let text = noise(KEY_BYTES);
    let quick = ["--set", "delivery.commit_interval=1ms"];
    let mut service = job.run(&quick);
    let mut rounds = 0;
    let mut beginning = 0;
    let mut moves = 0;
    // A window of many commits, in each of which a few of its keys have changed.
    while moves < 3 {
        rounds += 1;
        assert!(rounds < 2_000, "nothing is deleted\n{}", service.log());
        for few in records(&text, rounds).chunks(3) {
            job.produce(few);
        }
        let now = job.cluster.beginning(&topic, 0);
        moves += i32::from(now > beginning);
        beginning = now;
    }
    job.wait_until_committed(1, &mut service);
    let commits = total(&mut service, "tidegate_transactions_total", "committed");
    service.stop();

    let held = job.cluster.read(&topic);
    let size = |record: &Record| record.payload.as_ref().map_or(0, Vec::len);
    let bytes: usize = held.iter().map(size).sum();
    println!(
        "short: {commits} commits, {rounds} rounds, begins at {beginning}, {} messages of {bytes} bytes",
        held.len()
    );
    assert!(commits > 100, "{commits} commits say little");
    // Twice the snapshot and 256 KiB after it, and the last commit.
    assert!(bytes < 4 * KEYS * (KEY_BYTES + 200) + (256 << 10), "{bytes} bytes");

    let mut service = job.run(&quick);
    let restored = service.wait_for_line("state restored");
    println!("short: {restored}");
    assert!(restored.contains(&format!("\"entries\":{KEYS}")), "{restored}");
    job.produce(&[event(0, "end", 20_000, 0)]);
    job.wait_until_committed(1, &mut service);
    service.stop();
    let sum = rounds * (rounds + 1) / 2;
    for row in job.rows() {
        assert_eq!((row.start, row.count, row.sum), (10_000, rounds, sum), "{}", &row.key[..4]);
    }
    assert_eq!(job.rows().len(), KEYS);
}

#[test]
fn where_records_may_not_be_deleted_it_says_so_once_and_goes_on() {
    let job = Job::new("changelog-compact", 1);
    let settings =
        [("cleanup.policy", "compact"), ("retention.ms", "-1"), ("retention.bytes", "-1")];
    job.cluster.create(&job.changelog(), 1, &settings);
    // Nearly everything changes in each commit, so each is a snapshot.
    let mut service = job.run(&["--set", "delivery.commit_interval=1ms"]);
    for nth in 0..20 {
        job.produce(&[event(0, "a", 1_000 + nth, 1)]);
        job.wait_until_committed(1, &mut service);
    }
    let log = service.stop();
    assert_eq!(log.matches("best kept with cleanup.policy=compact,delete").count(), 1, "{log}");
    assert_eq!(log.matches("cannot be deleted").count(), 1, "{log}");
    assert_eq!(job.cluster.beginning(&job.changelog(), 0), 0);
    job.produce(&[event(0, "a", 2_000, 1), event(0, "b", 12_000, 1)]);
    job.run_to_end(&[]);
    assert_eq!(job.rows(), [row(0, "a", "0 on_time", 21, 21), row(10_000, "b", "0 on_time", 1, 1)]);
}

/// Without a state in it there is nothing to restore.
#[test]
fn an_empty_changelog_that_somebody_made_is_taken() {
    let job = Job::new("changelog-taken", 2);
    let settings =
        [("cleanup.policy", "compact,delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")];
    job.cluster.create(&job.changelog(), 5, &settings);
    job.produce(&[event(0, "a", 1_000, 1), event(1, "a", 2_000, 2)]);
    let log = job.run_to_end(&[]);
    assert!(!log.contains("WARN"), "{log}");
    assert_eq!(job.panes(), panes(&[(0, "a", 2, 3)]));
}
