//! What must not cost much, counted in instructions: valgrind counts them in runs of this very program, so that a busy
//! machine changes nothing. Times are printed, and prove nothing.
//!
//! To add one: a `Work` with its ceiling, a fifth above what was counted, or a `Ratio` of two streams. The counts are of the test profile, which is
//! not optimised; a program that is runs a small part of them.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, and says what it has measured"
)]

use std::hint::black_box;
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::event_time::{
    EventTime, MonotonicTime, Now, PartitionId, TumblingWindows, WatermarkStatus,
};
use tidegate::insight::advise::{Observations, Seen};
use tidegate::insight::{PartitionHistory, PartitionSnapshot, Phase, Snapshot, Tally, Watches};
use tidegate::metrics::{Metrics, MetricsInfo, SourceInfo};

#[path = "support/hostile.rs"]
mod hostile;
#[path = "support/settings.rs"]
mod settings;
#[path = "costs/stream.rs"]
mod stream;

use stream::{BEGIN_MS, Stream};

/// What is done again and again.
struct Work {
    name: &'static str,
    /// Prepares, does it so many times, and says how many lines or records that were.
    run: fn(u32) -> usize,
    /// How often it is done more in the second run than in the first one.
    times: u32,
    /// Instructions each time, at most.
    ceiling: u64,
}

const WORKS: [Work; 4] = [
    Work {
        name: "scrape of 1,000 partitions",
        run: |times| scrape(1_000, times),
        times: 1,
        ceiling: 510_000_000,
    },
    Work {
        name: "scrape of 10,000 lines",
        run: |times| scrape(571, times),
        times: 1,
        ceiling: 295_000_000,
    },
    Work { name: "copy under the lock", run: copy, times: 10, ceiling: 1_230_000 },
    Work { name: "observing a record", run: observe, times: 20_000, ceiling: 7_000 },
];

/// What must not cost much more than something else.
struct Ratio {
    name: &'static str,
    /// The whole loop over a stream of records.
    of: Stream,
    to: Stream,
    /// So many records count: with 20,000 a commit is among what they cost, with 4,000 a tick.
    records: u32,
    /// Hundredths of the other one's instructions for a record, at most.
    percent: u64,
}

const RATIOS: [Ratio; 2] = [
    Ratio {
        name: "10 partitions with data among 1,000, to 10 alone",
        of: Stream { partitions: 1_000, with_data: 10, payload: clean },
        to: Stream { partitions: 10, with_data: 10, payload: clean },
        records: 20_000,
        percent: 110,
    },
    Ratio {
        name: "every third record hostile, to none",
        of: Stream { partitions: 8, with_data: 8, payload: every_third_hostile },
        to: Stream { partitions: 8, with_data: 8, payload: clean },
        records: 4_000,
        percent: 200,
    },
];

impl Ratio {
    /// What the second of the two is called.
    fn base(&self) -> String {
        format!("{}: the other", self.name)
    }
}

/// Records that a stream begins with.
const FIRST: u32 = 2_000;

/// 1,000 keys, three numbers and as much text as records usually have beside what is read.
fn clean(nth: u32) -> Vec<u8> {
    let ts = BEGIN_MS + i64::from(nth);
    let (key, value) = (nth.wrapping_mul(7_919) % 1_000, nth % 977);
    format!(
        r#"{{"id":"{nth:016x}","k":"key-{key:08}","ts":{ts},"v":{value},"name":"somebody or something","tags":["one","two"],"at":{{"lat":52.5,"lon":13.4}},"ok":true}}"#
    )
    .into_bytes()
}

/// What was found by the search for input that does harm, and what the cases have of it.
fn every_third_hostile(nth: u32) -> Vec<u8> {
    static HOSTILE: LazyLock<Vec<Vec<u8>>> = LazyLock::new(hostile::payloads);
    if nth % 3 != 2 {
        return clean(nth);
    }
    let nth = usize::try_from(nth / 3).unwrap();
    HOSTILE.get(nth % HOSTILE.len()).cloned().unwrap()
}

/// 2027-01-15, 08:00.
const NOW: EventTime = EventTime(1_800_000_000_000);

/// The metrics of a subtask that has so many partitions, each with all there is to show of it.
fn metrics(partitions: i32) -> Metrics {
    let info = MetricsInfo {
        librdkafka: "2.12.1".to_owned(),
        config_sha256: "0".repeat(64),
        sources: vec![SourceInfo {
            topic: "orders".to_owned(),
            strategy: "adaptive".to_owned(),
            idle_timeout: Some(Duration::from_secs(30)),
            max_out_of_orderness: Some(Duration::from_mins(1)),
        }],
        window_size: Duration::from_mins(1),
        allowed_lateness: Duration::ZERO,
    };
    let watches = Watches::new(1);
    let now = Now { monotonic: MonotonicTime::default(), wall: NOW };
    let metrics = Metrics::new(&info, watches.clone(), Arc::new(move || now)).unwrap();
    let ids: Vec<_> =
        (0..partitions).map(|partition| PartitionId { topic: 0, partition }).collect();
    let snapshot = |id: &PartitionId| PartitionSnapshot {
        id: *id,
        watermark: Some(NOW - Duration::from_millis(2_345)),
        max_event_time: Some(NOW),
        status: WatermarkStatus::Active,
        bound: Some(Duration::from_millis(2_345)),
        gauges: vec![("observed_out_of_orderness_seconds", 1.172)],
        idle_in: Some(Duration::from_secs(20)),
        paused: None,
        caught_up: true,
        position: Some(123_456_789),
        end_offset: Some(123_456_999),
        last_stable_offset: Some(123_456_999),
        committed: Some(4),
        history: PartitionHistory::default(),
    };
    let mut tally = Tally::default();
    for id in &ids {
        metrics.of(0).assigned(*id);
        tally.partition(*id).records = 123_456;
    }
    metrics.of(0).add(&tally);
    watches.of(0).publish(Snapshot {
        taken: Some(MonotonicTime::default()),
        phase: Phase::Running,
        watermark: Some(NOW - Duration::from_millis(2_345)),
        holder: ids.first().copied(),
        partitions: ids.iter().map(snapshot).collect(),
        ..Snapshot::default()
    });
    metrics
}

/// The lines of a scrape.
fn scrape(partitions: i32, times: u32) -> usize {
    let metrics = metrics(partitions);
    (0..times).fold(0, |_, _| black_box(metrics.render().unwrap()).lines().count())
}

/// What a scrape of 1,000 partitions does while a loop that has committed would have to wait.
fn copy(times: u32) -> usize {
    let metrics = metrics(1_000);
    (0..times).fold(0, |_, _| black_box(metrics.totals()).partitions.len())
}

/// Records as the service observes them for its advice: every other one out of order, now and then a late one.
fn observe(times: u32) -> usize {
    let windows = TumblingWindows::new(Duration::from_mins(1), 0).unwrap();
    let mut observations = Observations::new(windows, Duration::ZERO);
    for offset in 0..i64::from(times) {
        let arrival = NOW.0 + offset * 10;
        let behind = if offset % 2 == 0 { 0 } else { offset * 7_919 % 5_000 };
        let event_time = EventTime(arrival - behind);
        let id = PartitionId { topic: 0, partition: i32::try_from(offset % 8).unwrap() };
        let seen = Seen { offset, event_time, arrival: Some(EventTime(arrival)), late: None };
        black_box(observations.on_event(id, seen, MonotonicTime::default()));
    }
    usize::try_from(times).unwrap()
}

/// The instructions of a run of this program that does it so many times.
fn instructions(name: &str, times: u32) -> u64 {
    let own = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(own)
        .args(["--work", name, &times.to_string()])
        .output()
        .unwrap_or_else(|error| {
            panic!("valgrind: {error}; it is in Debian's package `valgrind`, and `tests/run` installs it")
        });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let collected = said.lines().find_map(|line| line.split("Collected : ").nth(1));
    collected.unwrap_or_else(|| panic!("no count in\n{said}")).trim().parse().unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, times] = &arguments[..]
        && flag == "--work"
    {
        let times = times.parse().unwrap();
        for ratio in &RATIOS {
            for (of, stream) in [(ratio.name.to_owned(), &ratio.of), (ratio.base(), &ratio.to)] {
                if of == *name {
                    println!("{of}: {:?}", stream.run(times));
                    return;
                }
            }
        }
        let work = WORKS.iter().find(|work| work.name == name).unwrap();
        black_box((work.run)(times));
        return;
    }
    let mut dear = Vec::new();
    for work in &WORKS {
        // What preparing costs is in both.
        let [once, more] = [1, 1 + work.times].map(|times| instructions(work.name, times));
        let each = (more - once) / u64::from(work.times);
        let clock = Clock::start();
        let units = (work.run)(1);
        let took = clock.monotonic().0;
        println!(
            "{}: {each} instructions, at most {}; {units} lines or records; once with preparations in {took:?}",
            work.name, work.ceiling
        );
        if each > work.ceiling {
            dear.push(work.name);
        }
    }
    for ratio in &RATIOS {
        let [of, to] = [ratio.name, &ratio.base()].map(|name| {
            let [first, more] = [FIRST, FIRST + ratio.records].map(|n| instructions(name, n));
            (more - first) / u64::from(ratio.records)
        });
        let percent = of * 100 / to;
        println!(
            "{}: {of} instructions for a record to {to}, {percent} %; at most {} %",
            ratio.name, ratio.percent
        );
        if percent > ratio.percent {
            dear.push(ratio.name);
        }
    }
    assert!(dear.is_empty(), "above their ceilings: {dear:?}");
}
