//! A small job on topics of its own, for tests that look at one thing.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::collections::BTreeMap;

use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record};
use crate::support::ledger::read_topics;
use crate::support::oracle::Topics;
use crate::support::process::{Tidegate, tidegate};

/// Counts records and adds up `v` by `k` in windows of 10 s, on the topics `<name>-in`, `-out`, `-late` and `-dead`.
/// The watermark follows every record at once, without a bound, and partitions are never idle.
pub(crate) struct Job {
    pub(crate) cluster: Cluster,
    pub(crate) name: &'static str,
    /// What the service is given; a test changes what it is about.
    pub(crate) config: String,
}

/// A result with all that tells it from others, and its pane as `index timing`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) start: i64,
    pub(crate) key: String,
    pub(crate) pane: String,
    pub(crate) count: i64,
    pub(crate) sum: i64,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pane {
    pub(crate) count: i64,
    pub(crate) sum: i64,
}

impl Job {
    /// The job, without its topics.
    pub(crate) fn without_topics(name: &'static str) -> Self {
        Self::of(name, Cluster::new(Broker::shared()))
    }

    fn of(name: &'static str, cluster: Cluster) -> Self {
        let config = format!(
            r#"
            [kafka]
            bootstrap_servers = "{}"
            group_id = "{name}"
            [[source]]
            topic = "{name}-in"
            timestamp = {{ field = "ts" }}
            watermark = {{ max_out_of_orderness = "0s", idle_timeout = "off" }}
            [window]
            size = "10s"
            [watermark]
            emit_interval = "0ms"
            [key]
            fields = ["k"]
            [[aggregate]]
            name = "count"
            function = "count"
            [[aggregate]]
            name = "sum"
            function = "sum"
            field = "v"
            [guard]
            min_timestamp = "off"
            [results]
            topic = "{name}-out"
            [late]
            topic = "{name}-late"
            [dead_letter]
            topic = "{name}-dead"
            "#,
            cluster.bootstrap
        );
        Self { cluster, name, config }
    }

    /// The job with topics: so many partitions of the input, one of each output.
    pub(crate) fn new(name: &'static str, partitions: i32) -> Self {
        Self::at(name, partitions, Cluster::new(Broker::shared()))
    }

    /// The same on a broker of the test's own.
    pub(crate) fn at(name: &'static str, partitions: i32, cluster: Cluster) -> Self {
        let job = Self::of(name, cluster);
        job.create("in", partitions, &[]);
        for output in ["out", "late", "dead"] {
            job.create(output, 1, &[]);
        }
        job
    }

    /// The name of one of its topics.
    pub(crate) fn topic(&self, which: &str) -> String {
        format!("{}-{which}", self.name)
    }

    /// Makes one of its topics.
    pub(crate) fn create(&self, which: &str, partitions: i32, settings: &[(&str, &str)]) {
        self.cluster.create(&self.topic(which), partitions, settings);
    }

    /// Changes the configuration where it says `from`.
    pub(crate) fn replace(mut self, from: &str, to: &str) -> Self {
        assert!(self.config.contains(from), "no {from:?} in the configuration");
        self.config = self.config.replace(from, to);
        self
    }

    /// Sets a property of the consumer.
    pub(crate) fn consumer(self, property: &str, value: &str) -> Self {
        let section = "[kafka.consumer.properties]\n";
        let job = if self.config.contains(section) {
            self
        } else {
            self.replace("[[source]]", &format!("{section}[[source]]"))
        };
        job.replace(section, &format!("{section}\"{property}\" = \"{value}\"\n"))
    }

    /// Writes to its input.
    pub(crate) fn produce(&self, records: &[Record]) {
        self.cluster.produce(&self.topic("in"), records);
    }

    /// Everything in all of them.
    pub(crate) fn read_all(&self) -> Topics {
        read_topics(&self.cluster, self.name)
    }

    /// Everything in one of its topics.
    pub(crate) fn read(&self, which: &str) -> Vec<Record> {
        self.cluster.read(&self.topic(which))
    }

    /// Starts the service.
    pub(crate) fn run(&self, arguments: &[&str]) -> Tidegate {
        Tidegate::run(&self.config, arguments)
    }

    /// Runs the service to the end of the input; its log.
    pub(crate) fn run_to_end(&self, arguments: &[&str]) -> String {
        let mut service = self.run(&[&["--until-end"], arguments].concat());
        let status = service.wait();
        assert!(status.success(), "{status}\n{}", service.log());
        service.log()
    }

    /// Runs the service, which must end with an error; its log.
    pub(crate) fn fail(&self, arguments: &[&str]) -> String {
        let mut service = self.run(arguments);
        let status = service.wait();
        assert_eq!(status.code(), Some(1), "{}", service.log());
        service.log()
    }

    /// The results by window start and key. A row that is there twice fails the test.
    pub(crate) fn panes(&self) -> BTreeMap<(i64, String), Pane> {
        let mut panes = BTreeMap::new();
        for record in self.read("out") {
            let result = record.json();
            let number = |name: &str| result[name].as_i64().unwrap();
            let key = result["k"].as_str().unwrap().to_owned();
            let pane = Pane { count: number("count"), sum: number("sum") };
            let before = panes.insert((number("window_start"), key), pane);
            assert!(before.is_none(), "twice: {result}");
        }
        panes
    }

    /// The results with their panes, ordered by window, key and pane.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |record: &Record| {
            let result = record.json();
            let number = |name: &str| result[name].as_i64().unwrap();
            let key = result.get("k").or(result.get("key")).unwrap().as_str().unwrap();
            let pane = &result["pane"];
            Row {
                start: number("window_start"),
                key: key.to_owned(),
                pane: format!("{} {}", pane["index"], pane["timing"].as_str().unwrap()),
                count: number("count"),
                sum: number("sum"),
            }
        };
        let mut rows: Vec<_> = self.read("out").iter().map(row).collect();
        rows.sort();
        rows
    }

    /// The late records by their partitions and offsets, each with the clock it was judged by.
    pub(crate) fn late(&self) -> BTreeMap<(i64, i64), i64> {
        let late = self.read("late");
        let number = |record: &Record, name: &str| -> i64 {
            record.header(&format!("tidegate.{name}")).unwrap().parse().unwrap()
        };
        let places = late.iter().map(|record| {
            let place = (number(record, "partition"), number(record, "offset"));
            (place, number(record, "watermark"))
        });
        let places: BTreeMap<_, _> = places.collect();
        assert_eq!(places.len(), late.len(), "a record is late twice");
        places
    }

    /// The topic that keeps its state.
    pub(crate) fn changelog(&self) -> String {
        format!("{}-{}-changelog", self.name, self.topic("in"))
    }

    /// Waits until all that is in the input is committed.
    pub(crate) fn wait_until_committed(&self, partitions: i32, witness: &mut Tidegate) {
        let ends = self.ends(partitions);
        witness.wait_until("everything is committed", |_| self.committed(partitions) == ends);
    }

    /// Runs `tidegate reset`: whether it succeeded, and all that it said.
    pub(crate) fn reset(&self, arguments: &[&str]) -> (Option<i32>, String) {
        self.command("reset", arguments)
    }

    /// Runs a command that ends by itself: its exit code, and all that it said.
    pub(crate) fn command(&self, command: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let output = tidegate(command, &self.config, arguments);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    /// What the group has committed in the input, by partition.
    pub(crate) fn committed(&self, partitions: i32) -> Vec<Option<i64>> {
        self.cluster.committed(self.name, &self.topic("in"), partitions)
    }

    /// The end offsets of the input, by partition.
    pub(crate) fn ends(&self, partitions: i32) -> Vec<Option<i64>> {
        (0..partitions)
            .map(|partition| Some(self.cluster.end(&self.topic("in"), partition)))
            .collect()
    }
}

/// The sum over all series of a family with this in their labels, which are whole numbers.
pub(crate) fn total(service: &mut Tidegate, family: &str, labels: &str) -> i64 {
    format!("{:.0}", service.metric_sum(family, labels)).parse().unwrap()
}

/// Waits until that sum has come up to a number.
pub(crate) fn wait_for_total(service: &mut Tidegate, family: &str, labels: &str, least: i64) {
    let what = format!("{family} {labels} is {least}");
    service.wait_until(&what, |service| total(service, family, labels) >= least);
}

/// Waits until the service has read so far, all partitions added up; transaction markers count.
pub(crate) fn wait_for_offset(service: &mut Tidegate, offsets: i64) {
    wait_for_total(service, "tidegate_consumed_offset", "", offsets);
}

/// What one of [`Job::rows`] is to be.
pub(crate) fn row(start: i64, key: &str, pane: &str, count: i64, sum: i64) -> Row {
    Row { start, key: key.to_owned(), pane: pane.to_owned(), count, sum }
}

/// The same record where the message key is the key.
pub(crate) fn keyed(partition: i32, key: &str, ts: i64, v: i64) -> Record {
    Record { key: Some(key.as_bytes().to_vec()), ..event(partition, key, ts, v) }
}

/// A record that the job counts.
pub(crate) fn event(partition: i32, key: &str, ts: i64, v: i64) -> Record {
    Record::of(partition, format!(r#"{{"k":"{key}","ts":{ts},"v":{v}}}"#))
}

/// What [`Job::panes`] is to be.
pub(crate) fn panes(expected: &[(i64, &str, i64, i64)]) -> BTreeMap<(i64, String), Pane> {
    let pane = |(start, key, count, sum): &(i64, &str, i64, i64)| {
        ((*start, (*key).to_owned()), Pane { count: *count, sum: *sum })
    };
    expected.iter().map(pane).collect()
}

/// Text that no compression makes much shorter.
pub(crate) fn noise(length: usize) -> String {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(
            b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
                [usize::try_from(state % 64).unwrap()],
        )
    };
    (0..length).map(|_| next()).collect()
}
