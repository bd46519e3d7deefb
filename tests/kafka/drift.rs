//! Offsets, state and configuration do not belong together any more, since somebody has changed one of them: the service
//! ends and says what to do, or goes on where that is certain. It never guesses.

use std::time::Duration;

use rdkafka::consumer::Consumer;
use tidegate::clock::Clock;

use crate::support::cluster::Record;
use crate::support::job::{Job, event, keyed, row, total};

fn by_message_key(job: Job) -> Job {
    job.replace("fields = [\"k\"]", "from = \"message\"")
}

/// A service that has stopped with windows open in both partitions.
fn stopped(job: Job) -> Job {
    let mut service = job.run(&[]);
    job.produce(&[
        keyed(0, "a", 1_000, 1),
        keyed(0, "a", 2_000, 2),
        keyed(1, "b", 3_000, 4),
        keyed(1, "b", 4_000, 8),
    ]);
    job.wait_until_committed(2, &mut service);
    service.stop();
    job
}

/// The error with which it ends.
fn error(job: &Job) -> String {
    let log = job.fail(&[]);
    let last = log.lines().last().unwrap().to_owned();
    println!("{}: {last}", job.name);
    last
}

/// Closes all windows and returns how many rows there are.
fn finish(job: &Job) -> Vec<crate::support::job::Row> {
    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "y", 50_000, 0), keyed(1, "z", 50_000, 0)]);
    job.wait_until_committed(2, &mut service);
    service.stop();
    job.rows()
}

fn says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "no {part:?} in\n{error}");
    }
}

// Offsets

fn offsets_that_somebody_has_moved(job: Job) {
    let job = stopped(job);
    let input = job.topic("in");
    let before = job.committed(2);
    for moved in [0, 1, 3] {
        job.cluster.commit(job.name, &input, 1, moved);
        let place = format!("{input}/1 is {moved}");
        says(&error(&job), &[&place, "belongs to 2", "somebody has moved it", "`tidegate reset`"]);
    }
    // Nobody can tell that it was written again.
    job.cluster.commit(job.name, &input, 1, 2);
    assert_eq!(job.committed(2), before);
    assert_eq!(
        finish(&job),
        [row(0, "a", "0 on_time", 2, 3), row(0, "b", "0 on_time", 2, 12)],
        "what was not touched goes on"
    );
}

#[test]
fn offsets_that_somebody_has_moved_end_it() {
    offsets_that_somebody_has_moved(Job::new("drift-moved", 2));
    offsets_that_somebody_has_moved(by_message_key(Job::new("drift-moved-own", 2)));
}

/// The group may only not have been found, so it is asked again for half a minute.
#[test]
fn offsets_that_the_group_has_lost_are_taken_from_the_changelog() {
    let jobs = [Job::new("drift-lost", 2), by_message_key(Job::new("drift-lost-own", 2))];
    let jobs = jobs.map(stopped);
    for job in &jobs {
        job.cluster.delete_group(job.name);
        assert_eq!(job.committed(2), [None, None]);
    }
    let clock = Clock::start();
    let mut services = jobs.each_ref().map(|job| job.run(&[]));
    for (job, service) in jobs.iter().zip(&mut services) {
        service.wait_for_line("taking the changelog's");
        assert!(clock.monotonic().0 > Duration::from_secs(30), "{}", service.log());
        job.produce(&[keyed(0, "a", 5_000, 16), keyed(0, "y", 50_000, 0)]);
        job.produce(&[keyed(1, "b", 6_000, 32), keyed(1, "z", 50_000, 0)]);
        job.wait_until_committed(2, service);
        let rows = [row(0, "a", "0 on_time", 3, 19), row(0, "b", "0 on_time", 3, 44)];
        assert_eq!(job.rows(), rows);
    }
    for service in services {
        service.stop();
    }
}

#[test]
fn records_that_were_deleted_meanwhile_are_missing_and_what_was_open_is_whole() {
    let job = Job::new("drift-deleted", 2)
        .replace("timestamp = {", "on_missing = \"continue\"\ntimestamp = {");
    let job = stopped(job);
    job.produce(&[keyed(1, "b", 5_000, 16), keyed(1, "b", 6_000, 32), keyed(1, "b", 7_000, 64)]);
    job.cluster.delete_before(&job.topic("in"), 1, 4);
    let mut service = job.run(&[]);
    job.wait_until_committed(2, &mut service);
    assert_eq!(total(&mut service, "tidegate_records_missing_total", ""), 2);
    service.stop();
    let strict = Job { config: job.config.replace("on_missing = \"continue\"\n", ""), ..job };
    assert_eq!(finish(&strict), [row(0, "a", "0 on_time", 2, 3), row(0, "b", "0 on_time", 3, 76)]);
}

/// Kafka deletes the offsets of a topic with the topic.
#[test]
fn an_input_that_was_made_again_with_fewer_records_ends_it() {
    let job = stopped(by_message_key(Job::new("drift-made-again", 2)));
    job.cluster.delete(&job.topic("in"));
    job.create("in", 2, &[]);
    job.produce(&[keyed(1, "b", 1_000, 1)]);
    let place = format!("{}/", job.topic("in"));
    says(&error(&job), &[&place, "deleted and created again", "`tidegate reset`"]);
}

// The changelog

#[test]
fn a_changelog_that_is_gone_or_cut_off_ends_it() {
    for (name, own) in [("drift-gone", false), ("drift-gone-own", true)] {
        let job = Job::new(name, 2);
        let job = stopped(if own { by_message_key(job) } else { job });
        let topic = job.changelog();
        let place = format!("of the changelog of `{}`", job.topic("in"));
        job.cluster.delete_before(&topic, 0, job.cluster.end(&topic, 0));
        says(&error(&job), &[&place, "deleted or cut off", "`tidegate reset`"]);
        job.cluster.delete(&topic);
        says(&error(&job), &[&place, "deleted or cut off", "`tidegate reset`"]);
    }
}

#[test]
fn a_changelog_that_is_deleted_under_way_ends_it_with_its_name() {
    let job = Job::new("drift-deleted-changelog", 1);
    let mut service = job.run(&[]);
    job.produce(&[event(0, "a", 1_000, 1)]);
    job.wait_until_committed(1, &mut service);
    job.cluster.delete(&job.changelog());
    job.produce(&[event(0, "a", 2_000, 1)]);
    let status = service.wait();
    let log = service.log();
    assert_eq!(status.code(), Some(1), "{log}");
    says(log.lines().last().unwrap(), &[&job.changelog(), "has been deleted"]);
}

#[test]
fn a_changelog_of_a_newer_format_ends_it() {
    let job = Job::new("drift-newer", 1);
    let settings =
        [("cleanup.policy", "compact,delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")];
    job.cluster.create(&job.changelog(), 1, &settings);
    let newer = Record { key: Some(vec![0, 0, 0, 0]), ..Record::of(0, vec![2, 3, 1, 0, 0]) };
    job.cluster.produce(&job.changelog(), &[newer]);
    says(&error(&job), &["format 2", "a newer tidegate wrote it", &job.topic("in")]);
}

// The configuration

/// A drain, and then another configuration.
fn change(job: &Job, from: &str, to: &str, parts: &[&str]) -> Job {
    let changed = Job {
        cluster: crate::support::cluster::Cluster::new(job.cluster.bootstrap.clone()),
        name: job.name,
        config: job.config.replace(from, to),
    };
    assert_ne!(changed.config, job.config);
    let error = error(&changed);
    says(&error, &["have not fired", "--until-end", "`tidegate reset`"]);
    says(&error, parts);
    job.run_to_end(&[]);
    changed
}

#[test]
fn another_window_size_needs_a_drain_and_then_nothing_comes_twice() {
    let job = Job::new("drift-window", 2)
        .replace("size = \"10s\"", "size = \"10s\"\nallowed_lateness = \"20s\"");
    let job = stopped(job);
    let mut service = job.run(&[]);
    // The first window fires and waits for late records.
    job.produce(&[keyed(0, "a", 12_000, 16), keyed(1, "b", 13_000, 32)]);
    job.wait_until_committed(2, &mut service);
    service.stop();
    let job = change(
        &job,
        "size = \"10s\"",
        "size = \"5s\"",
        &["it holds 1 windows", "windows=10000ms", "windows=5000ms"],
    );
    let rows = [
        row(0, "a", "0 on_time", 2, 3),
        row(0, "b", "0 on_time", 2, 12),
        row(10_000, "a", "0 on_time", 1, 16),
        row(10_000, "b", "0 on_time", 1, 32),
    ];
    assert_eq!(job.rows(), rows);

    let mut service = job.run(&[]);
    let warning = service.wait_for_line("the configuration has changed");
    says(&warning, &["\"entries\":4", "late topic"]);
    // Of what the drain has fired, kept for late records or not, nothing may begin anew.
    job.produce(&[keyed(0, "a", 9_000, 64), keyed(1, "b", 14_000, 64), keyed(0, "a", 19_999, 64)]);
    job.produce(&[keyed(0, "a", 20_000, 128), keyed(1, "b", 21_000, 256)]);
    job.wait_until_committed(2, &mut service);
    service.stop();
    assert_eq!(job.late().into_keys().collect::<Vec<_>>(), [(0, 3), (0, 4), (1, 3)]);
    let fired = finish(&job);
    assert_eq!(fired[..4], rows);
    assert_eq!(
        fired[4..],
        [row(20_000, "a", "0 on_time", 1, 128), row(20_000, "b", "0 on_time", 1, 256)]
    );
}

/// A field as the key, the message key, and the field again: one clock becomes two, and these become one.
#[test]
fn another_kind_of_key_needs_a_drain_and_then_nothing_comes_twice() {
    let job = stopped(Job::new("drift-key", 2));
    let (field, message) = ("fields = [\"k\"]", "from = \"message\"");
    let (one, own) = ("shards=one", "shards=per_partition");
    let job = change(&job, field, message, &[one, own, "key=fields(k)", "key=message"]);

    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "a", 9_000, 64), keyed(0, "a", 12_000, 16)]);
    job.produce(&[keyed(1, "b", 9_000, 64), keyed(1, "b", 23_000, 32)]);
    job.wait_until_committed(2, &mut service);
    service.stop();
    assert_eq!(job.late().into_keys().collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    // The drain leaves the clock of one at 19,999 and that of the other at 29,999.
    let job = change(&job, message, field, &[one, own]);

    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "a", 29_000, 64), keyed(0, "a", 31_000, 128)]);
    job.produce(&[keyed(1, "b", 9_000, 64), keyed(1, "b", 32_000, 256)]);
    job.wait_until_committed(2, &mut service);
    service.stop();
    assert_eq!(job.late().into_keys().collect::<Vec<_>>(), [(0, 2), (0, 4), (1, 2), (1, 4)]);
    assert_eq!(
        finish(&job),
        [
            row(0, "a", "0 on_time", 2, 3),
            row(0, "b", "0 on_time", 2, 12),
            row(10_000, "a", "0 on_time", 1, 16),
            row(20_000, "b", "0 on_time", 1, 32),
            row(30_000, "a", "0 on_time", 1, 128),
            row(30_000, "b", "0 on_time", 1, 256),
        ]
    );
}

/// Each partition has to find the clock that it shared, also the one that comes when others have long gone on.
#[test]
fn after_a_change_of_the_key_a_partition_that_comes_last_still_finds_its_clock() {
    let job = Job::new("drift-key-shared", 4).consumer("session.timeout.ms", "6000");
    job.produce(&[
        keyed(0, "a", 1_000, 1),
        keyed(1, "b", 2_000, 2),
        keyed(2, "c", 3_000, 4),
        keyed(3, "d", 4_000, 8),
    ]);
    job.run_to_end(&[]);
    let job = by_message_key(job);
    let properties =
        [("partition.assignment.strategy", "cooperative-sticky"), ("session.timeout.ms", "6000")];
    let other = job.cluster.member(job.name, &job.topic("in"), &properties);
    let clock = Clock::start();
    while other.assignment().unwrap().count() == 0 {
        assert!(clock.monotonic().0 < Duration::from_mins(1), "it is given nothing");
        drop(other.poll(Duration::from_millis(50)));
    }
    let mut service = job.run(&[]);
    service.wait_until("it has some", |service| {
        drop(other.poll(Duration::from_millis(50)));
        total(service, "tidegate_partitions", "") > 0
    });
    // The clock of all is kept where the first partition has its own now.
    let first = |ts| job.produce(&[keyed(0, "a", ts, 16)]);
    for nth in 0..5 {
        first(12_000 + nth);
        service.wait_until("it is committed", |_| {
            drop(other.poll(Duration::ZERO));
            job.committed(1) == job.ends(1)
        });
    }
    drop(other);
    job.produce(&[keyed(3, "d", 9_000, 64), keyed(3, "d", 13_000, 32)]);
    job.wait_until_committed(4, &mut service);
    service.stop();
    assert_eq!(job.late(), [((3, 1), 9_999)].into());
    // Once nobody needs it any more it goes.
    let mut service = job.run(&[]);
    let before = job.cluster.beginning(&job.changelog(), 0);
    for ts in [14_000, 14_001] {
        first(ts);
        job.wait_until_committed(4, &mut service);
    }
    service.wait_until("what was kept is deleted", |_| {
        job.cluster.beginning(&job.changelog(), 0) > before
    });
    service.stop();
}
