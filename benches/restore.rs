//! How fast state comes back: a restart with 1,000,000 open (window, key) entries beside a bare read of the same
//! changelog, on a real broker. Prints both, and what part of the bare read's speed the restore reaches. Since a message
//! of the changelog has thousands of entries, a bare read is little more than a copy; for comparison, the same entries are
//! also read from a topic in which each is a message of its own.
//!
//! `cargo bench --features real-kafka --bench restore`; the first argument that is a number is that of the entries.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark may panic, and says what it has measured"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use support::broker::Broker;
use support::cluster::{Cluster, send};
use support::ledger;
use support::process::Tidegate;
use support::record::Record;
use tidegate::clock::Clock;

const PARTITIONS: i32 = 4;
const WINDOWS: usize = 10;
const ROUNDS: usize = 5;
const CHANGELOG: &str = "restore-restore-in-changelog";
const SINGLE: &str = "restore-single";

fn main() {
    let given = std::env::args().find_map(|argument| argument.parse().ok());
    let entries = given.unwrap_or(1_000_000);
    let broker = Broker::start();
    let cluster = Cluster::new(broker.bootstrap());
    cluster.create("restore-in", PARTITIONS, &[]);
    open_windows(&cluster, entries);
    let config = config(&cluster.bootstrap);
    let mut service = Tidegate::run(&config, &[]);
    let ends: Vec<_> =
        (0..PARTITIONS).map(|partition| Some(cluster.end("restore-in", partition))).collect();
    while cluster.committed("restore", "restore-in", PARTITIONS) != ends {
        service.log();
        std::thread::park_timeout(Duration::from_millis(200));
    }
    service.stop();
    println!("{entries} entries in {WINDOWS} windows and {PARTITIONS} partitions are open");

    single_messages(&cluster, entries);
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        let bare = bare_read(&cluster, CHANGELOG);
        let (restored, took) = restore(&config);
        assert_eq!(restored, entries, "not all that was open came back");
        let ratio = bare.took.as_secs_f64() / took;
        println!(
            "{round}: bare read of {} messages, {} bytes in {:.3} s; restore in {took:.3} s ({:.0} entries/s): {:.0} % of \
             the speed",
            bare.messages,
            bare.bytes,
            bare.took.as_secs_f64(),
            f64::from(u32::try_from(restored).unwrap()) / took,
            ratio * 100.0
        );
        let single = bare_read(&cluster, SINGLE);
        println!(
            "   bare read of {} messages, one for each entry, in {:.3} s: the restore has {:.0} % of the speed",
            single.messages,
            single.took.as_secs_f64(),
            100.0 * single.took.as_secs_f64() / took
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ROUNDS / 2).unwrap();
    println!(
        "median of {ROUNDS}: a restore has {:.0} % of the speed of a bare read",
        median * 100.0
    );
}

/// Writes what a changelog would have that keeps each entry in a message of its own.
fn single_messages(cluster: &Cluster, entries: usize) {
    cluster.create(SINGLE, PARTITIONS, &[]);
    let producer = cluster.producer();
    for nth in 0..entries {
        let partition = i32::try_from(nth % usize::try_from(PARTITIONS).unwrap()).unwrap();
        let mut record = Record::of(partition, format!("{nth:024}"));
        record.key = Some(format!("{:013}customer-{nth:07}", nth % WINDOWS).into_bytes());
        send(&producer, SINGLE, &record);
    }
    rdkafka::producer::Producer::flush(&producer, Duration::from_mins(1)).unwrap();
}

/// Writes one record for each entry, so that the windows are open and stay so.
fn open_windows(cluster: &Cluster, entries: usize) {
    let producer = cluster.producer();
    for nth in 0..entries {
        let (window, key) = (nth % WINDOWS, nth / WINDOWS);
        let partition = i32::try_from(key % usize::try_from(PARTITIONS).unwrap()).unwrap();
        let json = format!(r#"{{"t":{},"v":{}}}"#, 1_700_000_000_000 + 10_000 * window, nth * 7);
        let mut record = Record::of(partition, json);
        record.key = Some(format!("customer-{key:07}").into_bytes());
        send(&producer, "restore-in", &record);
    }
    rdkafka::producer::Producer::flush(&producer, Duration::from_mins(1)).unwrap();
}

/// With a bound that keeps everything open, and a third aggregate.
fn config(bootstrap: &str) -> String {
    ledger::config(bootstrap, "restore")
        .replace("fields = [\"k\"]", "from = \"message\"")
        .replace("max_out_of_orderness = \"2s\"", "max_out_of_orderness = \"1h\"")
        .replace(
            "[results]",
            "[[aggregate]]\nname = \"max\"\nfunction = \"max\"\nfield = \"v\"\n[topics]\ncreate = true\n[results]",
        )
}

struct BareRead {
    messages: usize,
    bytes: usize,
    took: Duration,
}

/// Reads a topic as fast as the client does, and looks at nothing in it.
fn bare_read(cluster: &Cluster, topic: &str) -> BareRead {
    let clock = Clock::start();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &cluster.bootstrap)
        .set("group.id", "restore-bare-read")
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        // So that it waits for nothing.
        .set("fetch.queue.backoff.ms", "5")
        .set("fetch.message.max.bytes", "10485760")
        .set("fetch.wait.max.ms", "10")
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    let mut ends = Vec::new();
    for partition in 0..PARTITIONS {
        let (beginning, end) =
            consumer.fetch_watermarks(topic, partition, Duration::from_secs(10)).unwrap();
        list.add_partition_offset(topic, partition, Offset::Offset(beginning)).unwrap();
        ends.push(Offset::Offset(end));
    }
    // Without it the client would look for the leaders when it begins, and again after a while.
    consumer.fetch_metadata(Some(topic), Duration::from_secs(10)).unwrap();
    consumer.assign(&list).unwrap();
    let (mut messages, mut bytes) = (0, 0);
    loop {
        if let Some(message) = consumer.poll(Duration::from_millis(5)) {
            messages += 1;
            bytes += message.unwrap().payload().map_or(0, <[u8]>::len);
            continue;
        }
        let positions = consumer.position().unwrap();
        let at: Vec<_> = positions
            .elements()
            .iter()
            .map(rdkafka::topic_partition_list::TopicPartitionListElem::offset)
            .collect();
        if at == ends {
            return BareRead { messages, bytes, took: clock.monotonic().0 };
        }
    }
}

/// Starts the service and stops it again: how many entries came back, and in how many seconds.
fn restore(config: &str) -> (usize, f64) {
    let mut service = Tidegate::run(config, &[]);
    service.wait_for_line("state restored");
    let line: serde_json::Value =
        serde_json::from_str(&service.wait_for_line("state restored")).unwrap();
    let entries = usize::try_from(line["entries"].as_u64().unwrap()).unwrap();
    let took = service.metric("tidegate_restore_seconds_sum").unwrap();
    service.stop();
    (entries, took)
}
