//! `tidegate replay`: chosen dead letters back where they came from, each once.

use crate::support::cluster::Record;
use crate::support::job::{Job, event, row};
use crate::support::process::Tidegate;

fn replay(job: &Job, arguments: &[&str]) -> (Option<i32>, String) {
    let arguments = [&["--from", "dead-letter"], arguments].concat();
    let (code, said) = job.command("replay", &arguments);
    println!("{}: {said}", job.name);
    (code, said)
}

/// Refuses what is before the year 2000, which is what records of the tests are.
fn strict(name: &'static str, partitions: i32) -> Job {
    let job = Job::new(name, partitions);
    // The records are old.
    job.cluster.alter(&job.topic("in"), &[("retention.ms", "-1")]);
    job.replace("min_timestamp = \"off\"", "min_timestamp = \"2000-01-01T00:00:00Z\"")
}

fn lenient(job: Job) -> Job {
    job.replace("min_timestamp = \"2000-01-01T00:00:00Z\"", "min_timestamp = \"off\"")
}

const THEN: i64 = 1_790_000_000_000;

#[test]
fn chosen_dead_letters_go_back_as_they_came_and_once() {
    let job = strict("replay-chosen", 2);
    let header = |name: &str, value: &str| (name.to_owned(), Some(value.as_bytes().to_vec()));
    let original = Record {
        key: Some(b"key".to_vec()),
        // A service may read what another one has written.
        headers: vec![
            header("trace", "7"),
            header("tidegate.reason", "late"),
            header("trace", "8"),
        ],
        timestamp: Some(THEN),
        ..event(1, "a", 1_000, 5)
    };
    let broken = Record { timestamp: Some(THEN + 1_000), ..Record::of(0, "no JSON") };
    let other = Record { timestamp: Some(THEN + 2_000), ..event(0, "b", 2_000, 6) };
    job.produce(&[original.clone(), broken.clone(), other]);
    job.run_to_end(&[]);
    assert_eq!(job.read("dead").len(), 3);
    let input = || job.read("in").len();

    // Nothing is done where it is only shown or nobody agrees.
    let chosen = ["--reason", "ts_past", "--key", "key"];
    let (code, said) = replay(&job, &[&chosen[..], &["--dry-run"]].concat());
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "to be sent back from replay-chosen-dead: 1 dead letter",
        "ts_past: 1 to replay-chosen-in",
        "replay-chosen-dead/0 offset",
        "not chosen: 2; sent back before: 0",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
    let (code, said) = replay(&job, &chosen);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nobody to ask"), "{said}");
    let (code, said) = replay(&job, &["--reason", "unknown"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no such reason") && said.contains("ts_past"), "{said}");
    assert_eq!(input(), 3);

    let (code, said) = replay(&job, &[&chosen[..], &["--yes"]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("sent 1 dead letter\n"), "{said}");
    let back = job.read("in").into_iter().rfind(|r| r.partition == 1).unwrap();
    let mut headers = original.headers.clone();
    headers.push(header("tidegate.replayed", "1"));
    assert_eq!(
        (back.key, back.payload, back.timestamp, back.headers),
        (original.key, original.payload, original.timestamp, headers)
    );

    // Another choice that has it in it too sends the others.
    let (_, said) = replay(&job, &[&chosen[..], &["--yes"]].concat());
    assert!(said.contains("0 dead letters") && said.contains("sent back before: 1"), "{said}");
    let until = jiff::Timestamp::from_millisecond(THEN + 2_000).unwrap().to_string();
    let (_, said) = replay(&job, &["--until", &until, "--yes"]);
    assert!(said.ends_with("sent 1 dead letter\n"), "{said}");
    let since = jiff::Timestamp::from_millisecond(THEN + 2_000).unwrap().to_string();
    let (_, said) = replay(&job, &["--since", &since, "--yes"]);
    assert!(said.ends_with("sent 1 dead letter\n"), "{said}");
    let (_, said) = replay(&job, &["--yes"]);
    assert!(said.contains("0 dead letters"), "{said}");
    assert_eq!(input(), 6);
    // All have been sent, so reading begins behind them.
    let group = "replay-chosen-replay";
    assert!(job.cluster.committed(group, &job.topic("dead"), 1)[0] >= Some(3));

    // After the fix they count, and what is still broken is not sent back again but when that is asked for.
    let job = lenient(job);
    job.run_to_end(&[]);
    assert_eq!(job.rows(), [row(0, "a", "0 on_time", 1, 5), row(0, "b", "0 on_time", 1, 6)]);
    let (_, said) = replay(&job, &["--yes"]);
    assert!(said.contains("left out: 1 sent back before and dead again"), "{said}");
    assert_eq!(job.read("in").len(), 6);
    let (_, said) = replay(&job, &["--again", "--yes"]);
    assert!(said.ends_with("sent 1 dead letter\n"), "{said}");
    let back = job.read("in").into_iter().rfind(|r| r.partition == 0).unwrap();
    assert_eq!((back.payload, back.timestamp), (broken.payload, broken.timestamp));
    assert_eq!(back.headers, [header("tidegate.replayed", "2")]);
}

#[test]
fn what_is_not_whole_is_listed_and_not_sent() {
    let job = Job::new("replay-omitted", 1);
    job.cluster.alter(&job.topic("dead"), &[("max.message.bytes", "2000")]);
    let noise = crate::support::job::noise(4_000);
    job.produce(&[Record::of(0, format!("no JSON {noise}")), Record::of(0, "no JSON")]);
    job.run_to_end(&[]);
    let (code, said) = replay(&job, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("cannot be sent back: 1 dead letter; their payload"), "{said}");
    assert!(said.ends_with("sent 1 dead letter\n"), "{said}");
    assert_eq!(job.read("in").len(), 3);
}

#[test]
fn killed_at_any_moment_and_run_again_each_is_sent_once() {
    const LETTERS: usize = 3_000;
    let job = Job::new("replay-killed", 2);
    let broken = |nth| Record::of(i32::try_from(nth % 2).unwrap(), format!("no JSON {nth}"));
    job.produce(&(0..LETTERS).map(broken).collect::<Vec<_>>());
    job.run_to_end(&[]);
    let written = || job.cluster.end(&job.topic("in"), 0) + job.cluster.end(&job.topic("in"), 1);
    let mut killed = 0;
    for records in [0, 1, 10, 99, 100, 101, 250, 700] {
        let begun = written();
        let arguments =
            ["--from", "dead-letter", "--reason", "bad_json", "--yes", "--batch", "100"];
        let command = Tidegate::start("replay", &job.config, &arguments);
        killed += usize::from(command.kill_when(|| records == 0 || written() >= begun + records));
    }
    assert!(killed > 3, "{killed}");
    let (code, said) = replay(&job, &["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    job.cluster.wait_for_transactions(&job.topic("in"));
    let mut payloads: Vec<_> = job.read("in").into_iter().map(|record| record.payload).collect();
    payloads.sort();
    let mut expected: Vec<_> =
        (0..LETTERS).chain(0..LETTERS).map(|nth| broken(nth).payload).collect();
    expected.sort();
    assert!(payloads == expected, "{} records", payloads.len());
    let (_, said) = replay(&job, &["--yes"]);
    assert!(said.contains("0 dead letters"), "{said}");
}
