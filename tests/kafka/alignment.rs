//! One partition is a day behind seven others, and all of them have a backlog.

use std::collections::BTreeMap;

use crate::support::job::{Job, Pane, event, total};

const PARTITIONS: i32 = 8;
const DAY: i64 = 86_400_000;
/// Between two records of a partition.
const STEP: i64 = 8_000;
const RECORDS: i64 = DAY / STEP;

/// What a run came to.
#[derive(Debug)]
struct Run {
    /// The windows open before the partition that is behind brings anything.
    open: i64,
    pauses: i64,
}

/// Seven partitions have the records of a day, and the first one those of the day before too, which come later. The
/// windows of the seven are counted when nothing more of them is read.
fn run(name: &'static str, max_drift: &str, is_aligned: bool) -> Run {
    let job = Job::new(name, PARTITIONS)
        .replace("emit_interval = \"0ms\"", "emit_interval = \"50ms\"")
        .replace("[key]", &format!("{max_drift}\n[key]"))
        // So that the partitions are read side by side, and not one whole backlog after the other; so are the batches.
        .consumer("fetch.message.max.bytes", "16384");
    let mut expected: BTreeMap<_, Pane> = BTreeMap::new();
    let (mut behind, mut others) = (Vec::new(), Vec::new());
    for n in -RECORDS..RECORDS {
        let ts = 2 * DAY + n * STEP;
        for partition in 0..if n < 0 { 1 } else { PARTITIONS } {
            let records = if partition == 0 { &mut behind } else { &mut others };
            records.push(event(partition, "a", ts, n));
            let window = (ts - ts % 10_000, "a".to_owned());
            let pane = expected.entry(window).or_insert(Pane { count: 0, sum: 0 });
            (pane.count, pane.sum) = (pane.count + 1, pane.sum + n);
        }
    }
    others.chunks(4_000).for_each(|records| job.produce(records));
    let mut service = job.run(&[]);
    let offsets = 7 * RECORDS;
    service.wait_until("the seven are read no further", |service| {
        if is_aligned {
            total(service, "tidegate_partition_paused", "") == 7
        } else {
            total(service, "tidegate_consumed_offset", "") == offsets
        }
    });
    let open = total(&mut service, "tidegate_windows_open", "");
    // What is open at the end is fired by the next day.
    behind.extend((0..PARTITIONS).map(|partition| event(partition, "z", 4 * DAY, 0)));
    job.produce(&behind);
    job.wait_until_committed(PARTITIONS, &mut service);
    let pauses = total(&mut service, "tidegate_partition_pauses_total", "");
    assert_eq!(total(&mut service, "tidegate_partition_paused", ""), 0, "all have been read");
    service.stop();
    assert_eq!(job.panes(), expected);
    assert!(job.read("late").is_empty() && job.read("dead").is_empty());
    Run { open, pauses }
}

#[test]
fn open_windows_stay_few_where_one_partition_is_a_day_behind_seven_others() {
    let with = run("aligned", "[alignment]\nmax_drift = \"1m\"", true);
    let without = run("not-aligned", "[alignment]\nmax_drift = \"off\"", false);
    println!("aligned: {with:?}; not aligned: {without:?}");
    assert_eq!(without.pauses, 0);
    assert!(with.pauses >= 7, "{with:?}");
    assert!(with.open * 2 < without.open, "{with:?} {without:?}");
}
