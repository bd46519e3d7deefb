//! Partitions move between instances that come and go in good order: nothing of it can be seen in the results.

use std::collections::BTreeSet;

use crate::support::cluster::Record;
use crate::support::job::Job;
use crate::support::oracle::{Figures, KeyOf, Rules, judge};
use crate::support::process::Tidegate;

const PARTITIONS: i32 = 4;

/// Two partitions in a row are this far apart in event time, which is more than a window.
const APART: i64 = 17_000;

/// Far enough ahead to fire everything before it.
const CLOSING: i64 = 10_000_000;

fn job(name: &'static str) -> Job {
    Job::new(name, PARTITIONS).replace("fields = [\"k\"]", "from = \"message\"")
}

/// Three windows of each partition. The last record of each window is one millisecond above what its partition's
/// records before it have brought the clock to: any clock from elsewhere that is further would make it late.
fn windows(round: i64) -> Vec<Record> {
    let mut records = Vec::new();
    for window in 3 * round..3 * round + 3 {
        for at in [0, 2_500, 5_000, 9_999, 9_999] {
            records
                .extend((0..PARTITIONS).map(|partition| record(partition, 10_000 * window + at)));
        }
    }
    records
}

fn record(partition: i32, ms: i64) -> Record {
    const BASE: i64 = 1_700_000_000_000;
    let time = BASE + ms - i64::from(partition) * APART;
    // Different for each, and the same in each run.
    let value = time.wrapping_mul(0x2545_F491_4F6C_DD1D).cast_unsigned() >> 4;
    Record {
        key: Some(format!("k{}-{partition}", value % 2).into_bytes()),
        ..Record::of(partition, format!(r#"{{"ts":{time},"v":{value}}}"#))
    }
}

fn instance(job: &Job, name: &str) -> Tidegate {
    let mut instance = job.run(&["--set", &format!("kafka.instance_id={name}")]);
    instance.wait_until("it has partitions", |instance| {
        instance.metric_sum("tidegate_partitions", "") > 0.0
    });
    instance
}

/// Writes three windows, and waits until they are committed.
fn go_on(job: &Job, round: i64, witness: &mut Tidegate) {
    job.produce(&windows(round));
    wait_until_committed(job, witness);
}

fn wait_until_committed(job: &Job, witness: &mut Tidegate) {
    let ends = job.ends(PARTITIONS);
    witness.wait_until("everything is committed", |_| job.committed(PARTITIONS) == ends);
}

/// Closes all windows. What the oracle counts, and what the panes say.
fn finish(job: &Job, witness: &mut Tidegate) -> (Figures, BTreeSet<String>) {
    let closing = (0..PARTITIONS).map(|partition| Record {
        key: Some(format!("closing-{partition}").into_bytes()),
        ..record(partition, CLOSING)
    });
    job.produce(&closing.collect::<Vec<_>>());
    wait_until_committed(job, witness);
    let rules = Rules {
        partitions: PARTITIONS,
        bound: 0,
        window: 10_000,
        allowed_lateness: 0,
        time: "ts",
        value: "v",
        key: KeyOf::Message,
        added: BTreeSet::new(),
    };
    let topics = job.read_all();
    let figures = judge(&rules, &topics).figures();
    let text = |record: &Record| String::from_utf8(record.payload.clone().unwrap()).unwrap();
    (figures, topics.results.iter().map(text).collect())
}

#[test]
fn late_counts_are_the_same_with_and_without_rebalances() {
    moves_cannot_be_seen(&job("still"), &job("moved"));
}

#[test]
fn late_counts_are_the_same_with_and_without_rebalances_of_the_newer_protocol() {
    let newer = |name| job(name).consumer("group.protocol", "consumer");
    moves_cannot_be_seen(&newer("still-newer"), &newer("moved-newer"));
}

/// The partitions of a static member that is stopped wait for it, for as long as a session lasts.
#[test]
fn late_counts_are_the_same_with_and_without_moves_of_static_members() {
    let fixed = |name| {
        let job = job(name).consumer("session.timeout.ms", "6000");
        job.replace("[kafka]", "[kafka]\nstatic_membership = true")
    };
    moves_cannot_be_seen(&fixed("still-static"), &fixed("moved-static"));
}

fn moves_cannot_be_seen(still: &Job, moved: &Job) {
    let mut alone = instance(still, "alone");
    for round in 0..7 {
        still.produce(&windows(round));
    }
    let (expected, panes) = finish(still, &mut alone);
    alone.stop();
    println!("{}: {expected:?}", still.name);

    let mut one = instance(moved, "one");
    go_on(moved, 0, &mut one);
    let mut two = instance(moved, "two");
    go_on(moved, 1, &mut two);
    let mut three = instance(moved, "three");
    go_on(moved, 2, &mut three);
    one.stop();
    go_on(moved, 3, &mut three);
    let mut one = instance(moved, "one");
    go_on(moved, 4, &mut one);
    two.stop();
    three.stop();
    go_on(moved, 5, &mut one);
    // For a moment nobody is there.
    one.stop();
    let mut four = instance(moved, "four");
    go_on(moved, 6, &mut four);
    let (figures, moved_panes) = finish(moved, &mut four);
    four.stop();
    println!("{}: {figures:?}", moved.name);
    assert_eq!((figures.late, expected.late), (0, 0));
    assert_eq!(figures, expected);
    assert_eq!(moved_panes, panes);
}
