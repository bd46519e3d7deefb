//! Random records in event time, and the check that each of them ended up in exactly one place.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::cluster::{Cluster, Record, send};
use rdkafka::producer::{BaseProducer, Producer};

/// How the records of a [`Feed`] follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Within each partition timestamps only grow, and every record is good.
    Ascending,
    /// Some disorder, some late records, some that are no JSON.
    Disorder,
}

/// An endless supply of records, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Feed {
    order: Order,
    random: u64,
    next: i64,
    partitions: i32,
}

impl Feed {
    pub(crate) fn new(order: Order, seed: u64) -> Self {
        Self { order, random: seed, next: 0, partitions: PARTITIONS }
    }

    /// The same over another number of partitions.
    pub(crate) fn over(self, partitions: i32) -> Self {
        Self { partitions, ..self }
    }

    /// The next records, over all partitions in turn.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Record> {
        (0..count).map(|_| self.record()).collect()
    }

    /// A record far ahead for each partition: all windows but its own fire.
    pub(crate) fn closing() -> Vec<Record> {
        Self::closing_over(PARTITIONS)
    }

    /// The same over another number of partitions.
    pub(crate) fn closing_over(partitions: i32) -> Vec<Record> {
        let record = |partition| {
            let time = BASE_MS + 86_400_000;
            let payload = format!(r#"{{"k":"{CLOSING}-{partition}","t":{time},"v":0}}"#);
            let key = format!("{CLOSING}-{partition}").into_bytes();
            Record { key: Some(key), ..Record::of(partition, payload) }
        };
        (0..partitions).map(record).collect()
    }

    fn record(&mut self) -> Record {
        let nth = self.next;
        self.next += 1;
        let partition = i32::try_from(nth % i64::from(self.partitions)).unwrap();
        let key = format!("k{}-{partition}", self.random() % 3);
        let value = self.random() >> 16;
        let mut time = BASE_MS + nth * STEP_MS;
        let mut payload = None;
        if self.order == Order::Disorder {
            time -= i64::try_from(self.random() % 1_500).unwrap();
            if nth % 97 == 96 {
                time -= 30_000;
            }
            if nth % 53 == 52 {
                payload = Some(format!("no JSON {value}"));
            }
        }
        let payload =
            payload.unwrap_or_else(|| format!(r#"{{"k":"{key}","t":{time},"v":{value}}}"#));
        Record { key: Some(key.into_bytes()), ..Record::of(partition, payload) }
    }

    /// xorshift64*
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// A thread that writes records again and again until the broker has them, whatever the broker does meanwhile.
#[derive(Debug)]
pub(crate) struct Feeding {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<usize>,
}

impl Feeding {
    pub(crate) fn start(cluster: &Cluster, topic: &str, mut feed: Feed) -> Self {
        let (stop, stopped) = mpsc::channel();
        let producer: BaseProducer = cluster.producer();
        let topic = topic.to_owned();
        let thread = std::thread::spawn(move || {
            let mut count = 0;
            // A slow trickle, so that there is something to read at any moment.
            while stopped.recv_timeout(PACE) == Err(mpsc::RecvTimeoutError::Timeout) {
                for record in feed.take(RECORDS_AT_ONCE) {
                    send(&producer, &topic, &record);
                    count += 1;
                }
                producer.poll(Duration::ZERO);
            }
            producer.flush(PATIENCE).unwrap();
            count
        });
        Self { stop, thread }
    }

    /// Ends it once the broker has everything. How many records that was.
    pub(crate) fn finish(self) -> usize {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

/// A service of one input topic `PREFIX-in` and the outputs `PREFIX-out`, `PREFIX-late` and `PREFIX-dead`.
pub(crate) fn config(bootstrap: &str, prefix: &str) -> String {
    format!(
        r#"
        [kafka]
        bootstrap_servers = "{bootstrap}"
        group_id = "{prefix}"
        instance_id = "one"
        [kafka.consumer.properties]
        "session.timeout.ms" = "6000"
        [[source]]
        topic = "{prefix}-in"
        timestamp = {{ field = "t" }}
        watermark = {{ strategy = "bounded_out_of_orderness", max_out_of_orderness = "2s", idle_timeout = "off" }}
        [window]
        size = "10s"
        [key]
        fields = ["k"]
        [[aggregate]]
        name = "count"
        function = "count"
        [[aggregate]]
        name = "sum"
        function = "sum"
        field = "v"
        [results]
        topic = "{prefix}-out"
        [late]
        topic = "{prefix}-late"
        [dead_letter]
        topic = "{prefix}-dead"
        [delivery]
        transaction_timeout = "5s"
        [service]
        shutdown_timeout = "5s"
        "#
    )
}

/// Makes the topics that [`config`] names.
pub(crate) fn create_topics(cluster: &Cluster, prefix: &str) {
    for (suffix, partitions) in [("in", PARTITIONS), ("out", 2), ("late", 1), ("dead", 1)] {
        cluster.create(&format!("{prefix}-{suffix}"), partitions, &[]);
    }
}

/// Where the records of an input topic are, as a `read_committed` reader finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) in_panes: i64,
    pub(crate) late: usize,
    pub(crate) dead: usize,
    pub(crate) panes: usize,
}

/// Checks that each record of the input but the closing ones is in exactly one place and each pane was written once.
pub(crate) fn check_complete(cluster: &Cluster, prefix: &str) -> Places {
    let (expected, panes, places) = compare(cluster, prefix);
    assert_eq!(panes, expected, "panes, and what they should be");
    places
}

/// The same where windows were lost with the process or the partition that held them: panes may be missing or short,
/// but nothing may be written twice or be more than there was.
pub(crate) fn check_nothing_twice(cluster: &Cluster, prefix: &str) -> Places {
    let (expected, panes, places) = compare(cluster, prefix);
    for (place, (count, sum)) in panes {
        let (all, total) = expected.get(&place).copied().unwrap_or_default();
        assert!(count <= all && sum <= total, "{place:?}: {count} of {all}, {sum} of {total}");
    }
    places
}

/// Count and sum of each window and key.
type Panes = BTreeMap<(i64, Vec<u8>), (i64, i64)>;

fn compare(cluster: &Cluster, prefix: &str) -> (Panes, Panes, Places) {
    let input: BTreeMap<_, _> = cluster
        .read(&format!("{prefix}-in"))
        .into_iter()
        .map(|record| ((record.partition, record.offset), record.payload.unwrap()))
        .collect();
    let mut elsewhere = BTreeSet::new();
    let mut count = |suffix: &str| {
        let records = cluster.read(&format!("{prefix}-{suffix}"));
        for record in &records {
            let number = |name: &str| record.header(name).unwrap().parse::<i64>().unwrap();
            let partition = i32::try_from(number("tidegate.partition")).unwrap();
            let place = (partition, number("tidegate.offset"));
            assert_eq!(input.get(&place), record.payload.as_ref(), "{suffix}: {place:?}");
            assert!(elsewhere.insert(place), "twice: {place:?} in {suffix}");
        }
        records.len()
    };
    let (late, dead) = (count("late"), count("dead"));

    let mut expected = Panes::new();
    for (place, payload) in &input {
        if elsewhere.contains(place) {
            continue;
        }
        let record: serde_json::Value = serde_json::from_slice(payload).unwrap();
        let (key, time) = (record["k"].as_str().unwrap(), record["t"].as_i64().unwrap());
        if key.starts_with(CLOSING) {
            continue;
        }
        let window = (time - time.rem_euclid(10_000), key.as_bytes().to_vec());
        let (count, sum) = expected.entry(window).or_default();
        *count += 1;
        *sum += record["v"].as_i64().unwrap();
    }

    let mut panes = Panes::new();
    let mut seen = BTreeSet::new();
    for record in cluster.read(&format!("{prefix}-out")) {
        let result = record.json();
        let number = |name: &str| result[name].as_i64().unwrap();
        let window = (number("window_start"), record.key.clone().unwrap());
        let index = result["pane"]["index"].as_i64().unwrap();
        assert!(seen.insert((window.clone(), index)), "twice: {result}");
        panes.insert(window, (number("count"), number("sum")));
    }
    let in_panes = panes.values().map(|(count, _)| count).sum();
    let places = Places { in_panes, late, dead, panes: seen.len() };
    (expected, panes, places)
}

pub(crate) const PARTITIONS: i32 = 3;

const CLOSING: &str = "closing";
const BASE_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 20;
const RECORDS_AT_ONCE: usize = 20;
const PACE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_mins(1);
