//! Input topics by a pattern of their names, also those that come while the service runs.

use super::check::check;
use super::sources::check_the_late_one;
use crate::support::cluster::Record;
use crate::support::job::{Job, keyed, row, total, wait_for_total};
use crate::support::process::{Tidegate, tidegate};

/// The job with a pattern instead of its topic, and no input yet.
fn by_pattern(name: &'static str, pattern: &str) -> Job {
    let job = Job::without_topics(name);
    for output in ["out", "late", "dead"] {
        job.create(output, 1, &[]);
    }
    let topic = format!("topic = \"{name}-in\"");
    job.replace(&topic, &format!("pattern = \"{pattern}\""))
        .consumer("topic.metadata.refresh.interval.ms", "500")
}

/// A topic that matches joins a running service, which is then stopped or killed and goes on with the windows of both.
fn joins(job: &Job, kill: bool, changelogs: &[&str]) {
    let committed = |topic: &str| job.cluster.committed(job.name, &job.topic(topic), 1)[0];
    let mut service = job.run(&[]);
    service.wait_for_line("no topic matches");
    assert_eq!((service.get("/livez").0, service.get("/readyz").0), (200, 503));
    job.create("in-a", 1, &[]);
    job.cluster.produce(&job.topic("in-a"), &[keyed(0, "a", 1_000, 1), keyed(0, "a", 12_000, 2)]);
    service.wait_until("the first topic is read", |_| committed("in-a") == Some(2));

    job.create("in-b", 1, &[]);
    // It begins at the clock that it finds, which has passed the first of these, and is read from its beginning.
    job.cluster
        .produce(&job.topic("in-b"), &[keyed(0, "b", 9_000, 1_000), keyed(0, "b", 15_000, 4)]);
    service.wait_until("the topic has joined and is read", |_| committed("in-b") == Some(2));
    let labels = format!("topic=\"{}\"", job.topic("in-b"));
    assert_eq!(total(&mut service, "tidegate_records_in_total", &labels), 2);
    assert!(service.get("/api/v1/status").1.contains(&job.topic("in-b")));
    if kill {
        drop(service);
    } else {
        service.stop();
    }

    let mut service = job.run(&[]);
    let closing = [keyed(0, "a", 17_000, 8), keyed(0, "x", 40_000, 0)];
    job.cluster.produce(&job.topic("in-a"), &closing);
    let closing = [keyed(0, "b", 18_000, 16), keyed(0, "y", 40_000, 0)];
    job.cluster.produce(&job.topic("in-b"), &closing);
    service.wait_until("both are read", |_| {
        (committed("in-a"), committed("in-b")) == (Some(4), Some(4))
    });
    service.stop();
    let expected = [
        row(0, "a", "0 on_time", 1, 1),
        row(10_000, "a", "0 on_time", 2, 10),
        row(10_000, "b", "0 on_time", 2, 20),
    ];
    assert_eq!(job.rows(), expected);
    check_the_late_one(job, "in-b", "joined");
    let names: Vec<_> = job.cluster.topics(job.name).into_iter().map(|(name, _)| name).collect();
    let found: Vec<_> = names.iter().filter(|name| name.ends_with("-changelog")).collect();
    assert_eq!(found, changelogs);
    look_at_both(job, changelogs);
}

/// The commands that look, or begin anew, find both topics and their state.
fn look_at_both(job: &Job, changelogs: &[&str]) {
    let inputs = ["in-a", "in-b"].map(|topic| job.topic(topic));
    let said = check(&job.config, &[]);
    said.has("ok", &["input `^", "2 topics match it"]).has("ok", &["state", "fits this"]);
    let (code, reset) = job.reset(&["--to", "current", "--dry-run"]);
    assert_eq!(code, Some(0), "{reset}");
    for input in &inputs {
        said.has("ok", &["input", input]);
        assert!(reset.contains(input), "{reset}");
    }
    for changelog in changelogs {
        said.has("ok", &["changelog", changelog]);
        assert!(reset.contains(changelog), "{reset}");
    }
    let advice = tidegate("advise", &job.config, &["--topic", &inputs[1], "--json"]);
    assert!(advice.status.success(), "{advice:?}");
    assert!(String::from_utf8(advice.stdout).unwrap().contains(&inputs[1]));
}

#[test]
fn a_new_topic_of_a_pattern_joins_and_shares_the_changelog_of_the_group() {
    let job = by_pattern("pattern-one", "^pattern-one-in.*").consumer("session.timeout.ms", "6000");
    joins(&job, true, &["pattern-one-changelog"]);

    // One that is deleted while it is read ends the service, and the next start goes on without it.
    let mut service = job.run(&[]);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    job.cluster.delete(&job.topic("in-b"));
    assert_eq!(service.wait().code(), Some(1));
    let log = service.log();
    assert!(log.contains("`pattern-one-in-b` has been deleted while it was read"), "{log}");
    let mut service = job.run(&[]);
    job.cluster.produce(&job.topic("in-a"), &[keyed(0, "a", 60_000, 0)]);
    wait_for_total(&mut service, "tidegate_committed_offset", "", 5);
    service.stop();
    let fired: Vec<_> = job.rows().into_iter().filter(|row| row.start == 40_000).collect();
    let keys: Vec<_> = fired.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys, ["x", "y"], "what it had open is in the windows of the shard for all");
}

#[test]
fn a_new_topic_of_a_pattern_joins_and_gets_a_changelog_of_its_own() {
    // The pattern matches the names of the changelogs too, which are never read.
    let job = by_pattern("pattern-each", "^pattern-each-(in|pattern).*")
        .consumer("session.timeout.ms", "6000")
        .replace("fields = [\"k\"]", "from = \"message\"\npartial = true");
    let changelog = |topic: &str| format!("pattern-each-pattern-each-{topic}-changelog");
    joins(&job, true, &[&changelog("in-a"), &changelog("in-b")]);
    for result in job.read("out") {
        let topic = result.header("tidegate.topic").unwrap();
        assert_eq!(result.json()["topic"].as_str(), Some(topic.as_str()));
        assert_eq!(result.json()["partition"], 0);
    }
}

#[test]
fn a_new_topic_of_a_pattern_joins_a_group_of_the_newer_protocol() {
    let job =
        by_pattern("pattern-newer", "^pattern-newer-in.*").consumer("group.protocol", "consumer");
    // A group of this protocol waits long for a member that was killed.
    joins(&job, false, &["pattern-newer-changelog"]);
}

#[test]
fn subtasks_share_the_topics_of_a_pattern_and_those_that_come() {
    let job = by_pattern("pattern-shared", "^pattern-shared-in.*")
        .consumer("session.timeout.ms", "6000")
        .replace("fields = [\"k\"]", "from = \"message\"\npartial = true")
        .replace("[results]", "[service]\nsubtasks = 2\n[results]");
    let send = |topic: &str, records: &[Record]| job.cluster.produce(&job.topic(topic), records);
    let read = |service: &mut Tidegate, least| {
        wait_for_total(service, "tidegate_committed_offset", "", least);
    };
    for (topic, key, v) in [("in-a", "a", 1), ("in-b", "b", 2)] {
        job.create(topic, 1, &[]);
        send(topic, &[keyed(0, key, 1_000, v)]);
    }
    let mut service = job.run(&[]);
    read(&mut service, 2);
    job.create("in-c", 2, &[]);
    send("in-c", &[keyed(0, "c", 1_000, 4), keyed(1, "d", 1_000, 8)]);
    read(&mut service, 4);
    for (topic, partition) in [("in-a", 0), ("in-b", 0), ("in-c", 0), ("in-c", 1)] {
        send(topic, &[keyed(partition, "z", 20_000, 0)]);
    }
    wait_for_total(&mut service, "tidegate_window_fires_total", "", 4);
    service.stop();
    let expected = [("a", 1), ("b", 2), ("c", 4), ("d", 8)];
    assert_eq!(job.rows(), expected.map(|(key, v)| row(0, key, "0 on_time", 1, v)));
    assert!(job.read("late").is_empty());
}

#[test]
fn a_topic_that_two_patterns_match_ends_the_service_whenever_it_comes() {
    let job = by_pattern("pattern-two", "^pattern-two-in.*").replace(
        "[window]",
        "[[source]]\npattern = \"^pattern-two-.*-eu\"\ntimestamp = { field = \"ts\" }\n\
         watermark = { max_out_of_orderness = \"0s\" }\n[window]",
    );
    job.create("in-a", 1, &[]);
    let mut service = job.run(&[]);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    job.create("in-eu", 1, &[]);
    let essentials = ["`pattern-two-in-eu` matches", "`^pattern-two-in.*`", "`^pattern-two-.*-eu`"];
    assert_eq!(service.wait().code(), Some(1));
    let log = service.log();
    // And at the next start.
    for said in [log, job.fail(&[])] {
        assert!(essentials.iter().all(|essential| said.contains(essential)), "{said}");
    }
}
