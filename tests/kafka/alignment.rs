//! One partition is a day behind seven others, and all of them have a backlog.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::clock::Clock;

use crate::support::job::{Job, Pane, event, total};

const PARTITIONS: i32 = 8;
const DAY: i64 = 86_400_000;
/// Between two records of a partition.
const STEP: i64 = 8_000;
const RECORDS: i64 = DAY / STEP;

/// What a run came to.
#[derive(Debug)]
struct Run {
    took: Duration,
    /// The most windows that were seen open at once.
    open: i64,
    /// Pauses of the partition that is behind, and of the others.
    pauses: (i64, i64),
    panes: BTreeMap<(i64, String), Pane>,
}

/// Seven partitions with the records of a day, and the first with those of the day before too.
fn run(name: &'static str, max_drift: &str) -> Run {
    let job = Job::new(name, PARTITIONS)
        .replace("emit_interval = \"0ms\"", "emit_interval = \"50ms\"")
        .replace("[key]", &format!("{max_drift}\n[key]"))
        // So that the partitions are read side by side, and not one whole backlog after the other; so are the batches.
        .consumer("fetch.message.max.bytes", "16384");
    let mut expected: BTreeMap<_, Pane> = BTreeMap::new();
    let mut records = Vec::new();
    for n in -RECORDS..RECORDS {
        let ts = 2 * DAY + n * STEP;
        for partition in 0..if n < 0 { 1 } else { PARTITIONS } {
            records.push(event(partition, "a", ts, n));
            let window = (ts - ts % 10_000, "a".to_owned());
            let pane = expected.entry(window).or_insert(Pane { count: 0, sum: 0 });
            (pane.count, pane.sum) = (pane.count + 1, pane.sum + n);
        }
    }
    // What is open at the end is fired by the next day.
    records.extend((0..PARTITIONS).map(|partition| event(partition, "z", 4 * DAY, 0)));
    records.chunks(4_000).for_each(|records| job.produce(records));
    let clock = Clock::start();
    let mut service = job.run(&[]);
    let (mut open, ends) = (0, job.ends(PARTITIONS));
    service.wait_until("everything is committed", |service| {
        open = total(service, "tidegate_windows_open", "").max(open);
        job.committed(PARTITIONS) == ends
    });
    let took = clock.monotonic().0;
    let pauses = "tidegate_partition_pauses_total";
    let of_first = total(&mut service, pauses, "partition=\"0\"");
    let of_others = total(&mut service, pauses, "") - of_first;
    assert_eq!(total(&mut service, "tidegate_partition_paused", ""), 0, "all have been read");
    service.stop();
    assert_eq!(job.panes(), expected);
    assert!(job.read("late").is_empty() && job.read("dead").is_empty());
    Run { took, open, pauses: (of_first, of_others), panes: expected }
}

#[test]
fn open_windows_stay_few_where_one_partition_is_a_day_behind_seven_others() {
    let with = run("aligned", "");
    let without = run("not-aligned", "[alignment]\nmax_drift = \"off\"");
    for run in [&with, &without] {
        println!("{:?}: {} windows open, {:?} pauses", run.took, run.open, run.pauses);
    }
    assert_eq!(with.panes, without.panes);
    assert_eq!(without.pauses, (0, 0));
    assert!(with.pauses.1 >= 7, "{:?}", with.pauses);
    assert!(with.open * 2 < without.open, "{} and {}", with.open, without.open);
}
