//! A limit on what is held is reached: new keys go to the dead letters, and what is held stays, fires and makes room.

use crate::support::cluster::Record;
use crate::support::job::{Job, event, row, total};
use crate::support::process::Tidegate;

fn go_on(job: &Job, service: &mut Tidegate, records: &[Record]) {
    job.produce(records);
    job.wait_until_committed(1, service);
}

/// The offsets of the dead letters, all of them for a limit, and what they say.
fn refused(job: &Job) -> Vec<(i64, String)> {
    let refused = job.read("dead").into_iter().map(|letter| {
        let header = |name: &str| letter.header(&format!("tidegate.{name}")).unwrap();
        assert_eq!(header("reason"), "key_limit", "{letter:?}");
        (header("offset").parse().unwrap(), header("detail"))
    });
    refused.collect()
}

/// Runs through three windows, and ends the service in between in good order and as a power cut would.
fn run(job: &Job, limit: &str) {
    let limits = ["--set", limit];
    let mut service = job.run(&limits);
    go_on(job, &mut service, &[event(0, "a", 1_000, 1), event(0, "b", 2_000, 2)]);
    go_on(job, &mut service, &[event(0, "c", 3_000, 4), event(0, "a", 4_000, 8)]);
    service.stop();
    let mut service = job.run(&limits);
    go_on(job, &mut service, &[event(0, "d", 5_000, 16), event(0, "b", 6_000, 32)]);
    // SIGKILL.
    drop(service);
    let mut service = job.run(&limits);
    go_on(job, &mut service, &[event(0, "e", 7_000, 64), event(0, "a", 8_000, 128)]);
    // What is over the limit moves the watermark all the same.
    go_on(job, &mut service, &[event(0, "f", 12_000, 256)]);
    go_on(job, &mut service, &[event(0, "g", 13_000, 512), event(0, "h", 25_000, 1_024)]);
    let counted = total(&mut service, "tidegate_dead_letter_records_total", "\"key_limit\"");
    println!("{}: {counted} counted since the kill, {:?}", job.name, refused(job));
    service.stop();
}

#[test]
fn keys_over_the_limit_of_a_window_are_refused_before_and_after_a_restart() {
    let job = Job::new("limit-keys", 1).consumer("session.timeout.ms", "6000");
    run(&job, "limits.keys_per_window=2");
    let detail = "its window has 2 keys, as many as limits.keys_per_window allows";
    assert_eq!(refused(&job), [2, 4, 6].map(|offset| (offset, detail.to_owned())));
    assert_eq!(
        job.rows(),
        [
            row(0, "a", "0 on_time", 3, 137),
            row(0, "b", "0 on_time", 2, 34),
            row(10_000, "f", "0 on_time", 1, 256),
            row(10_000, "g", "0 on_time", 1, 512),
        ]
    );
}

#[test]
fn windows_over_the_limit_are_refused_until_those_that_are_open_have_fired() {
    let job = Job::new("limit-windows", 1).consumer("session.timeout.ms", "6000");
    run(&job, "limits.open_windows=1");
    // The record that has closed the window came before there was room.
    let detail = "1 windows are open, as many as limits.open_windows allows";
    assert_eq!(refused(&job), [(8, detail.to_owned()), (10, detail.to_owned())]);
    assert_eq!(job.rows().len(), 6);
    assert_eq!(job.rows()[5], row(10_000, "g", "0 on_time", 1, 512));
}

#[test]
fn keys_over_the_limit_of_the_memory_are_refused_until_windows_have_fired() {
    let job = Job::new("limit-bytes", 1).consumer("session.timeout.ms", "6000");
    let mut service = job.run(&[]);
    go_on(&job, &mut service, &[event(0, "a", 1_000, 1), event(0, "b", 2_000, 2)]);
    let mut held = 0;
    service.wait_until("it tells of both keys", |service| {
        let status: serde_json::Value =
            serde_json::from_str(&service.get("/api/v1/status").1).unwrap();
        let subtask = &status["subtasks"][0];
        held = subtask["state_bytes"].as_i64().unwrap();
        subtask["panes_open"] == 2
    });
    service.stop();
    // Room for what is there, and not for one more key.
    let limit = held + 20;
    run(&job, &format!("limits.state_bytes={limit}"));
    let refused = refused(&job);
    let offsets: Vec<_> = refused.iter().map(|(offset, _)| *offset).collect();
    // The last one needs a window of its own beside that of the one before, which takes more than a second key.
    assert_eq!(offsets, [4, 6, 8, 10, 12]);
    let detail = format!("more than the {limit} bytes of limits.state_bytes");
    assert!(refused.iter().all(|(_, text)| text.contains(&detail)), "{refused:?}");
    assert_eq!(
        job.rows(),
        [
            row(0, "a", "0 on_time", 4, 138),
            row(0, "b", "0 on_time", 3, 36),
            row(10_000, "g", "0 on_time", 1, 512),
        ]
    );
}
