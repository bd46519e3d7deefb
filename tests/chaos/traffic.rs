//! Records that come in while all this happens: paced, in bursts, in disorder, some late, some broken.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::producer::{BaseProducer, Producer};

use crate::random::Random;
use crate::support::cluster::{Cluster, Record, send};

/// A thread that writes until it is told to end.
#[derive(Debug)]
pub(crate) struct Traffic {
    orders: mpsc::Sender<Order>,
    thread: JoinHandle<Written>,
}

/// What it has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) records: usize,
    /// The time of the records that close everything else.
    pub(crate) closing: i64,
}

#[derive(Debug)]
enum Order {
    /// Write to this partition too.
    Add(i32),
    /// Write a record far ahead to each partition, so that all windows but its own fire.
    Close,
}

impl Traffic {
    pub(crate) fn start(cluster: &Cluster, topic: &str, partitions: i32, seed: u64) -> Self {
        let (orders, ordered) = mpsc::channel();
        let producer: BaseProducer = cluster.producer();
        let topic = topic.to_owned();
        let mut writer = Writer::new(partitions, seed);
        let thread = std::thread::spawn(move || {
            let mut count = 0;
            let mut write = |records: Vec<Record>| {
                for record in &records {
                    send(&producer, &topic, record);
                }
                count += records.len();
                producer.poll(Duration::ZERO);
            };
            loop {
                match ordered.recv_timeout(TURN) {
                    Err(mpsc::RecvTimeoutError::Timeout) => write(writer.turn()),
                    Ok(Order::Add(partition)) => {
                        wait_for(&producer, &topic, partition);
                        writer.add(partition);
                    }
                    Ok(Order::Close) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
            }
            write(writer.close());
            producer.flush(PATIENCE).unwrap();
            Written { records: count, closing: writer.closing() }
        });
        Self { orders, thread }
    }

    /// From now on it writes to this partition too, with keys of its own.
    pub(crate) fn add(&self, partition: i32) {
        self.orders.send(Order::Add(partition)).unwrap();
    }

    /// Closes all windows and ends once the brokers have everything.
    pub(crate) fn close(self) -> Written {
        self.orders.send(Order::Close).unwrap();
        self.thread.join().unwrap()
    }
}

/// How far event time has come, and what each partition has had of it.
#[derive(Debug)]
struct Writer {
    seed: u64,
    random: Random,
    /// The present of event time.
    now: i64,
    /// For so many turns it runs faster.
    hurry: u64,
    lanes: Vec<Lane>,
}

/// One partition.
#[derive(Debug)]
struct Lane {
    partition: i32,
    begin: i64,
    /// How far behind the present its records are.
    lag: i64,
    written: i64,
    /// For so many turns its records are held up; then they come all at once.
    held: u64,
}

impl Writer {
    fn new(partitions: i32, seed: u64) -> Self {
        let mut writer =
            Self { seed, random: Random::new(!seed), now: BASE_MS, hurry: 0, lanes: Vec::new() };
        for partition in 0..partitions {
            // The partitions are at different event times.
            writer.lanes.push(Lane::new(partition, BASE_MS, i64::from(partition) * SKEW_MS));
        }
        writer
    }

    /// Its records begin far below the clock that the group has come to, and then catch up.
    fn add(&mut self, partition: i32) {
        self.lanes.push(Lane { lag: SKEW_MS, ..Lane::new(partition, self.now, BEHIND_MS) });
    }

    fn turn(&mut self) -> Vec<Record> {
        if self.hurry == 0 && self.random.below(HURRIES) == 0 {
            self.hurry = HURRY_TURNS;
        }
        self.now += if self.hurry > 0 { TURN_MS * HURRY } else { TURN_MS };
        self.hurry = self.hurry.saturating_sub(1);
        let mut records = Vec::new();
        for lane in &mut self.lanes {
            if lane.held == 0 && self.random.below(HOLDS) == 0 {
                lane.held = 20 + self.random.below(120);
            }
            lane.held = lane.held.saturating_sub(1);
            while lane.held == 0 && lane.next_time() <= self.now - lane.lag {
                records.push(lane.record(self.seed));
            }
        }
        records
    }

    fn close(&self) -> Vec<Record> {
        let close = |lane: &Lane| good(lane.partition, "closing", self.closing(), 0);
        self.lanes.iter().map(close).collect()
    }

    fn closing(&self) -> i64 {
        self.now + CLOSING_MS
    }
}

impl Lane {
    fn new(partition: i32, now: i64, lag: i64) -> Self {
        Self { partition, begin: now - lag, lag, written: 0, held: 0 }
    }

    fn next_time(&self) -> i64 {
        self.begin + self.written * STEP_MS
    }

    /// What it is depends on the seed, the partition and its number alone.
    fn record(&mut self, seed: u64) -> Record {
        let time = self.next_time();
        let number =
            (u64::from(self.partition.cast_unsigned()) << 40) | self.written.cast_unsigned();
        self.written += 1;
        let mut random = Random::stream(seed, number);
        let key = format!("k{}", random.below(3));
        let value = random.up_to_60_bits();
        match random.below(1_000) {
            0..25 => good(self.partition, &key, time - 5_000 - random.up_to(60_000), value),
            25..40 => self.broken(&mut random, &key, time, value),
            40..50 => Record { payload: None, ..good(self.partition, &key, time, value) },
            _ => good(self.partition, &key, time - random.up_to(OUT_OF_ORDER_MS), value),
        }
    }

    /// None of these moves a clock, whatever time it claims.
    fn broken(&self, random: &mut Random, key: &str, time: i64, value: i64) -> Record {
        let of = |payload: String| Record {
            payload: Some(payload.into_bytes()),
            ..good(self.partition, key, time, value)
        };
        match random.below(7) {
            0 => of(format!("no JSON {value}")),
            1 => of(format!(r#"{{"t":{time}}}"#)),
            2 => of(format!(r#"{{"t":{time},"v":"{value}"}}"#)),
            3 => of(format!(r#"{{"v":{value}}}"#)),
            4 => of(format!(r#"{{"t":{},"v":{value}}}"#, time / 1_000)),
            5 => of(format!(r#"{{"t":{},"v":{value}}}"#, 3 * time)),
            _ => Record { key: None, ..good(self.partition, key, time, value) },
        }
    }
}

/// Waits until the producer knows of a partition.
fn wait_for(producer: &BaseProducer, topic: &str, partition: i32) {
    for _ in 0..600 {
        let known = producer.client().fetch_metadata(Some(topic), PATIENCE).unwrap();
        let known = known.topics().first().map_or(0, |topic| topic.partitions().len());
        if i32::try_from(known).is_ok_and(|known| known > partition) {
            return;
        }
        producer.poll(TURN);
    }
    panic!("partition {partition} of {topic} did not appear");
}

/// A record that counts; each partition has keys of its own.
fn good(partition: i32, key: &str, time: i64, value: i64) -> Record {
    Record {
        key: Some(format!("{key}-{partition}").into_bytes()),
        ..Record::of(partition, format!(r#"{{"t":{time},"v":{value}}}"#))
    }
}

/// How far the records that are no stragglers are out of order at most.
pub(crate) const OUT_OF_ORDER_MS: u32 = 1_900;

const BASE_MS: i64 = 1_700_000_000_000;
/// Between two records of a partition.
const STEP_MS: i64 = 500;
const SKEW_MS: i64 = 2_500;
const BEHIND_MS: i64 = 300_000;
const CLOSING_MS: i64 = 3_600_000;

/// Event time runs thirty times as fast as the clock on the wall: three windows of 10 s fire each second.
const TURN: Duration = Duration::from_millis(20);
const TURN_MS: i64 = 600;
/// One in so many turns begins a rush of so many turns, in which it runs so many times as fast.
const HURRIES: u64 = 500;
const HURRY_TURNS: u64 = 25;
const HURRY: i64 = 8;
/// One in so many turns of a partition begins to hold its records up.
const HOLDS: u64 = 1_000;

const PATIENCE: Duration = Duration::from_mins(2);
