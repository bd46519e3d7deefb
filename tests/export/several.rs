//! Several exporters of one group.

use crate::support::cluster::{Cluster, Record};
use crate::support::job::Job;
use crate::support::postgres::Postgres;
use crate::support::process::Tidegate;
use crate::table::{Rows, last_panes, rows, watch_effects};

const AGGREGATES: [&str; 2] = ["count", "sum"];

/// Panes of this index of 50 windows and two keys, one key in each partition.
fn write(cluster: &Cluster, topic: &str, index: i64) {
    let result = |partition: i32, window: i64| {
        let start = window * 10_000;
        Record::of(
            partition,
            format!(
                r#"{{"window_start":{start},"window_end":{},"k":"k{partition}","count":{index},"sum":{},
                "pane":{{"timing":"correction","index":{index}}}}}"#,
                start + 10_000,
                index * 7
            ),
        )
    };
    let windows = (0..50).flat_map(|window| [result(0, window), result(1, window)]);
    cluster.produce(topic, &windows.collect::<Vec<_>>());
}

fn wait(job: &Job, postgres: &Postgres, witness: &mut Tidegate) -> Rows {
    let expected = last_panes(&job.cluster, &job.topic("out"), "k", &AGGREGATES);
    witness.wait_until("the table is the topic", |_| {
        rows(postgres, "t", "k", &AGGREGATES) == expected
    });
    expected
}

#[test]
fn they_share_the_partitions_and_one_that_was_halted_takes_nothing_back() {
    let job = Job::without_topics("several").consumer("session.timeout.ms", "2000");
    job.create("out", 2, &[]);
    let postgres = Postgres::start();
    let config = format!("{}{}batch_interval = \"50ms\"\n", job.config, postgres.config("t"));
    let export = |name: &str| {
        let instance = format!("kafka.instance_id={name}");
        let listen = "export.postgres.listen=127.0.0.1:0";
        Tidegate::export(&config, &["--set", &instance, "--set", listen])
    };
    let mut first = export("first");
    first.wait_for_line("partitions assigned");
    watch_effects(&postgres, "t", "k");
    write(&job.cluster, "several-out", 0);
    wait(&job, &postgres, &mut first);
    let mut second = export("second");
    second.wait_for_line("partitions assigned");
    write(&job.cluster, "several-out", 1);
    wait(&job, &postgres, &mut second);

    for exporter in [&mut first, &mut second] {
        exporter.wait_until("it says that it has written", |exporter| {
            exporter.metric("tidegate_export_last_write_timestamp_seconds").is_some()
                && exporter.metric("tidegate_export_partitions") == Some(1.0)
                && exporter.metric("tidegate_export_lag_records") == Some(0.0)
        });
        assert!(exporter.metric("tidegate_export_rows_total") >= Some(50.0));
        assert_eq!((exporter.get("/livez").0, exporter.get("/readyz").0), (200, 200));
    }
    // The group's own offsets follow, for tools that show lag.
    second.wait_until("the group is at the ends", |_| {
        let ends = [0, 1].map(|partition| Some(job.cluster.end("several-out", partition)));
        job.cluster.committed("several-export-postgres", "several-out", 2) == ends
    });

    // Halted with records on the way to it, for longer than its session: the other one goes on with all of them.
    first.signal("STOP");
    for index in 2..6 {
        write(&job.cluster, "several-out", index);
    }
    wait(&job, &postgres, &mut second);
    write(&job.cluster, "several-out", 6);
    let expected = wait(&job, &postgres, &mut second);
    // What it had fetched it may try to write now; nothing in the table goes back, nothing is there twice.
    first.signal("CONT");
    first.wait_for_line("partitions given up");
    write(&job.cluster, "several-out", 7);
    let after = wait(&job, &postgres, &mut second);
    assert_eq!(after.len(), expected.len());

    // One that ends leaves its part to the other.
    second.stop();
    write(&job.cluster, "several-out", 8);
    wait(&job, &postgres, &mut first);
    let log = first.stop();
    assert!(!log.contains("refuses"), "{log}");
}

#[test]
fn offsets_that_another_one_has_moved_are_not_written_over() {
    let job = Job::without_topics("moved");
    job.create("out", 1, &[]);
    let postgres = Postgres::start();
    let config = format!("{}{}batch_interval = \"10ms\"\n", job.config, postgres.config("t"));
    let mut exporter = Tidegate::export(&config, &[]);
    exporter.wait_for_line("partitions assigned");
    let result = |index: i64| {
        let pane = format!(r#""pane":{{"timing":"late","index":{index}}}"#);
        let text = format!(
            r#"{{"window_start":0,"window_end":10000,"k":"a","count":{index},"sum":0,{pane}}}"#
        );
        Record::of(0, text)
    };
    job.cluster.produce("moved-out", &[result(0), result(1)]);
    exporter.wait_until("both are in the table", |_| {
        postgres.number("SELECT next_offset FROM t_offsets") == Some(2)
    });
    // As if another one of the group had been here, and had read what comes now.
    postgres.run("UPDATE t_offsets SET next_offset = 3; UPDATE t SET pane_index = 2, count = 2");
    job.cluster.produce("moved-out", &[result(2), result(3)]);
    exporter.wait_for_line("another exporter has written these");
    exporter.wait_until("it has read on from there", |_| {
        postgres.number("SELECT next_offset FROM t_offsets") == Some(4)
    });
    assert_eq!(postgres.number("SELECT count FROM t"), Some(3));
    // From the beginning again: a pane replaces none that is later.
    exporter.stop();
    postgres.run("DELETE FROM t_offsets; UPDATE t SET pane_index = 9, count = 9");
    let mut exporter = Tidegate::export(&config, &["--until-end"]);
    assert!(exporter.wait().success(), "{}", exporter.log());
    assert_eq!(postgres.number("SELECT count FROM t"), Some(9));
}
