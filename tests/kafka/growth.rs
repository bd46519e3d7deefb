//! Partitions are added to the input: each has a place for its state before it is read.

use crate::support::job::{Job, Row, keyed, row, total};
use crate::support::process::Tidegate;

fn job(name: &'static str) -> Job {
    Job::new(name, 1)
        .consumer("session.timeout.ms", "6000")
        .consumer("topic.metadata.refresh.interval.ms", "500")
}

fn wait_for_partitions(service: &mut Tidegate, partitions: i64) {
    service.wait_until(&format!("it has {partitions} partitions"), |service| {
        total(service, "tidegate_partitions", "") == partitions
            && service.get("/readyz").0 == 200
            && service.metric_sum("tidegate_partition_idle", "") >= 0.0
    });
}

/// Grows the input under a running service, and again while it is stopped. The partitions of the changelog each time.
fn grow(job: &Job) -> Vec<usize> {
    let changelog = || job.cluster.topics(&job.changelog())[0].1;
    let mut sizes = Vec::new();
    let mut service = job.run(&[]);
    wait_for_partitions(&mut service, 1);
    job.produce(&[keyed(0, "a", 1_000, 1), keyed(0, "a", 12_000, 2)]);
    job.wait_until_committed(1, &mut service);
    sizes.push(changelog());

    job.cluster.grow(&job.topic("in"), 2);
    wait_for_partitions(&mut service, 2);
    // It begins at the clock that it finds, which has passed the first of these.
    job.produce(&[keyed(1, "b", 9_000, 1_000_000), keyed(1, "b", 15_000, 4)]);
    job.wait_until_committed(2, &mut service);
    sizes.push(changelog());
    assert_eq!(total(&mut service, "tidegate_transactions_total", "aborted"), 0);
    service.stop();

    job.cluster.grow(&job.topic("in"), 3);
    job.produce(&[keyed(2, "c", 16_000, 8)]);
    let mut service = job.run(&[]);
    job.wait_until_committed(3, &mut service);
    sizes.push(changelog());
    // SIGKILL.
    drop(service);

    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "a", 17_000, 16), keyed(1, "b", 18_000, 32), keyed(2, "c", 19_000, 64)]);
    job.wait_until_committed(3, &mut service);
    job.produce(&[keyed(0, "x", 30_000, 1), keyed(1, "y", 30_000, 1), keyed(2, "z", 30_000, 1)]);
    job.wait_until_committed(3, &mut service);
    service.stop();
    sizes
}

fn expected() -> [Row; 4] {
    [
        row(0, "a", "0 on_time", 1, 1),
        row(10_000, "a", "0 on_time", 2, 18),
        row(10_000, "b", "0 on_time", 2, 36),
        row(10_000, "c", "0 on_time", 2, 72),
    ]
}

#[test]
fn with_the_message_key_the_changelog_grows_with_the_input() {
    let job = job("grown").replace("fields = [\"k\"]", "from = \"message\"");
    assert_eq!(grow(&job), [1, 2, 3]);
    assert_eq!(job.rows(), expected());
    assert_eq!(job.late().into_keys().collect::<Vec<_>>(), [(1, 0)]);
}

#[test]
fn with_a_field_as_the_key_all_partitions_share_one() {
    let job = job("grown-together");
    assert_eq!(grow(&job), [1, 1, 1]);
    assert_eq!(job.rows(), expected());
    assert_eq!(job.late().into_keys().collect::<Vec<_>>(), [(1, 0)]);
}
