//! A service under constant load for a long time grows in nothing: memory, threads, file descriptors, changelog.
//!
//! `tests/run soak-long` takes half an hour; everything else a minute and a half.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may panic, and says what it has measured"
)]

mod support;

use std::ops::Range;
use std::time::Duration;

use tidegate::clock::Clock;

use support::broker::Broker;
use support::cluster::{Cluster, send};
use support::ledger::{Feed, Order, check, config, create_topics, finish};
use support::process::Tidegate;

type Figure = fn(&Sample) -> f64;

/// What the service needs at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    resident_bytes: f64,
    threads: f64,
    open_fds: f64,
    changelog_messages: i64,
}

impl Sample {
    fn take(service: &mut Tidegate, cluster: &Cluster, changelog: &str) -> Self {
        // One shard for all partitions has one changelog partition.
        let changelog_messages = cluster.end(changelog, 0) - cluster.beginning(changelog, 0);
        let mut metric = |name: &str| service.metric(name).unwrap();
        Self {
            resident_bytes: metric("process_resident_memory_bytes"),
            threads: metric("process_threads"),
            open_fds: metric("process_open_fds"),
            changelog_messages,
        }
    }
}

#[test]
fn under_constant_load_nothing_grows() {
    let length = std::env::var("TIDEGATE_SOAK_SECONDS").map_or(80, |given| given.parse().unwrap());
    let prefix = "soak";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let config = config(&cluster.bootstrap, prefix)
        .replace("size = \"10s\"", "size = \"10s\"\nallowed_lateness = \"20s\"");
    let mut service = Tidegate::run(&config, &[]);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);

    let producer = cluster.producer();
    let mut feed = Feed::new(Order::Disorder, 61);
    let clock = Clock::start();
    let mut written = 0;
    let mut samples = Vec::new();
    for second in 1..=length {
        while clock.monotonic().0 < Duration::from_secs(second) {
            for record in feed.take(RECORDS_PER_STEP) {
                send(&producer, &format!("{prefix}-in"), &record);
                written += 1;
            }
            producer.poll(STEP);
            std::thread::park_timeout(STEP);
        }
        samples.push(Sample::take(
            &mut service,
            &cluster,
            &format!("{prefix}-{prefix}-in-changelog"),
        ));
    }
    rdkafka::producer::Producer::flush(&producer, Duration::from_mins(1)).unwrap();
    let third = samples.len() / 3;
    let most = |range: Range<usize>, of: Figure| samples[range].iter().map(of).fold(0.0, f64::max);
    let fewest = |range: Range<usize>, of: Figure| {
        samples[range].iter().map(of).fold(f64::INFINITY, f64::min)
    };
    let (middle, last) = (third..2 * third, 2 * third..samples.len());
    println!("soak: {written} records in {length} s");
    // Some threads and descriptors live for the length of a commit, and a moment may show one or not; what is never given
    // back is there at each moment.
    for (name, of) in [
        ("threads", (|sample| sample.threads) as Figure),
        ("open file descriptors", |sample| sample.open_fds),
    ] {
        let (before, after) = (fewest(middle.clone(), of), fewest(last.clone(), of));
        println!("soak: {name}: at least {before} in the middle third, {after} in the last");
        assert!(after <= before, "{name} grew: {before}, {after}");
    }
    let figures: [(&str, Figure, f64, f64); 2] = [
        ("resident bytes", |sample| sample.resident_bytes, 1.05, 4_000_000.0),
        (
            "changelog messages",
            |sample| f64::from(i32::try_from(sample.changelog_messages).unwrap()),
            1.5,
            500.0,
        ),
    ];
    for (name, of, factor, slack) in figures {
        let (before, after) = (most(middle.clone(), of), most(last.clone(), of));
        println!("soak: {name}: at most {before} in the middle third, {after} in the last");
        assert!(after <= before * factor + slack, "{name} grew: {before}, {after}");
    }
    finish(&cluster, prefix, service);
    println!("soak: {:?}", check(&cluster, prefix, 20_000).figures());
}

const STEP: Duration = Duration::from_millis(10);
const RECORDS_PER_STEP: usize = 10;
