//! Random records in event time, and the check that each of them ended up in exactly one place.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::cluster::{Cluster, Record, send};
use super::oracle::{Figures, KeyOf, Rules, Topics, Verdict, judge};
use super::process::Tidegate;
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

/// Everything in the four topics of a prefix, once no transaction is open in them.
pub(crate) fn read_topics(cluster: &Cluster, prefix: &str) -> Topics {
    let read = |suffix: &str| {
        let topic = format!("{prefix}-{suffix}");
        cluster.wait_for_transactions(&topic);
        cluster.read(&topic)
    };
    Topics { input: read("in"), results: read("out"), late: read("late"), dead: read("dead") }
}

/// Waits until everything but the closing records' windows has fired, then stops the service.
pub(crate) fn finish(cluster: &Cluster, prefix: &str, mut service: Tidegate) -> String {
    cluster.produce(&format!("{prefix}-in"), &Feed::closing());
    service.wait_until("the closing records are the only ones left", |service| {
        service.metric("tidegate_windows_open") == Some(1.0)
            && service.metric("tidegate_watermark_timestamp_seconds").unwrap_or(0.0)
                > CLOSED_SECONDS
    });
    service.stop()
}

/// Checks that each record of the input is in exactly one place and each pane was written once.
pub(crate) fn check_complete(cluster: &Cluster, prefix: &str) -> Figures {
    check(cluster, prefix, 0).figures()
}

/// The same of a service whose key is the message key, over this many partitions.
pub(crate) fn check_by_partition(cluster: &Cluster, prefix: &str, partitions: i32) -> Figures {
    let rules = Rules { partitions, key: KeyOf::Message, ..rules(0) };
    judge(&rules, &read_topics(cluster, prefix)).figures()
}

/// What the oracle says of a service of [`config`] that allows this lateness, in milliseconds.
pub(crate) fn check(cluster: &Cluster, prefix: &str, allowed_lateness: i64) -> Verdict {
    judge(&rules(allowed_lateness), &read_topics(cluster, prefix))
}

/// What the oracle goes by for a service of [`config`] that allows this lateness, in milliseconds.
pub(crate) fn rules(allowed_lateness: i64) -> Rules {
    Rules {
        partitions: PARTITIONS,
        bound: 2_000,
        window: 10_000,
        allowed_lateness,
        time: "t",
        value: "v",
        key: KeyOf::Field("k"),
        added: BTreeSet::new(),
    }
}

pub(crate) const PARTITIONS: i32 = 3;

/// Between the last record of a feed and the closing ones.
const CLOSED_SECONDS: f64 = 1_700_080_000.0;
const CLOSING: &str = "closing";
const BASE_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 20;
const RECORDS_AT_ONCE: usize = 20;
const PACE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_mins(1);
