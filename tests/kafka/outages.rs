//! The broker goes away while the service is at work: nothing is lost and nothing twice. That one is killed is in the
//! chaos test, on three brokers: a single one that is killed may forget offsets of a commit that it has acknowledged.

use std::time::Duration;

use tidegate::clock::Clock;

use crate::support::broker::Broker;
use crate::support::cluster::Cluster;
use crate::support::ledger::{Feed, Feeding, Order, check_complete, config, create_topics, finish};
use crate::support::process::Tidegate;

/// A broker that looks for transactions past their timeout every second.
pub(crate) fn broker() -> Broker {
    Broker::start_with(&[("transaction.abort.timed.out.transaction.cleanup.interval.ms", "1000")])
}

/// Waits until the service has read this many more records.
pub(crate) fn read_on(service: &mut Tidegate, more: f64) {
    let before = service.metric_sum("tidegate_records_in_total", "");
    service.wait_until("it reads on", |service| {
        service.metric_sum("tidegate_records_in_total", "") >= before + more
    });
}

/// Watches over an outage until the condition holds: the probes must answer as if nothing had happened.
fn sit_out(service: &mut Tidegate, what: &str, mut over: impl FnMut(&mut Tidegate) -> bool) {
    service.wait_until(what, |service| {
        assert_eq!(service.get("/livez").0, 200);
        assert_eq!(service.get("/readyz").0, 200);
        let (code, metrics) = service.get("/metrics");
        assert!(code == 200 && metrics.contains("tidegate_transactions_total"));
        over(service)
    });
}

/// The number of log lines beyond the first `before`, in their busiest second.
fn busiest_second(log: &str, before: usize) -> usize {
    let mut seconds = std::collections::BTreeMap::new();
    for line in log.lines().skip(before) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let second = line["timestamp"].as_str().unwrap()[..19].to_owned();
        *seconds.entry(second).or_insert(0) += 1;
    }
    seconds.into_values().max().unwrap_or(0)
}

#[test]
fn a_broker_that_stands_still_for_longer_than_all_timeouts_costs_nothing() {
    let prefix = "paused";
    let mut broker = broker();
    let cluster = Cluster::new(broker.bootstrap());
    create_topics(&cluster, prefix);
    let feeding = Feeding::start(&cluster, &format!("{prefix}-in"), Feed::new(Order::Disorder, 2));
    let mut service = Tidegate::run(&config(&cluster.bootstrap, prefix), &[]);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    read_on(&mut service, 500.0);
    let lines = service.log().lines().count();
    broker.pause();
    let clock = Clock::start();
    sit_out(&mut service, "the broker stands still", |_| {
        clock.monotonic().0 >= Duration::from_secs(15)
    });
    broker.resume();
    let resumed = clock.monotonic();
    read_on(&mut service, 1.0);
    let recovered = clock.monotonic().since(resumed);
    let log = service.log();
    let busiest = busiest_second(&log, lines);
    println!("paused: on after {recovered:?}, {busiest} lines in a second");
    read_on(&mut service, 500.0);
    let written = feeding.finish();
    // Shown where a check below fails.
    println!("{}", finish(&cluster, prefix, service));
    let places = check_complete(&cluster, prefix);
    println!("paused: {written} records, {places:?}");
}

#[test]
fn without_a_broker_at_the_start_it_waits_for_one() {
    let prefix = "absent";
    let mut broker = Broker::start();
    let cluster = Cluster::new(broker.bootstrap());
    create_topics(&cluster, prefix);
    broker.kill();
    let clock = Clock::start();

    // One that is stopped meanwhile.
    let mut service = Tidegate::run(&config(&cluster.bootstrap, prefix), &[]);
    let line = service.wait_for_line("no broker answers");
    assert!(line.contains(&cluster.bootstrap), "{line}");
    assert_eq!((service.get("/livez").0, service.get("/readyz").0), (200, 503));
    let asked = clock.monotonic();
    service.stop();
    let took = clock.monotonic().since(asked);
    println!("absent: stopped in {took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");

    // One that waits.
    let started = clock.monotonic();
    let mut service = Tidegate::run(&config(&cluster.bootstrap, prefix), &[]);
    service.wait_until("it has waited a while", |_| {
        clock.monotonic().since(started) > Duration::from_secs(12)
    });
    assert_eq!((service.get("/livez").0, service.get("/readyz").0), (200, 503));
    let log = service.log();
    let busy = cpu_time(service.id());
    let (lines, busiest) = (log.lines().count(), busiest_second(&log, 0));
    println!("absent: {busy:?} of processor time, {lines} lines, {busiest} in a second");
    assert!(busy < Duration::from_secs(3), "{busy:?}");
    assert!(lines < 60 && busiest <= 40, "{log}");
    broker.start_again();
    let back = clock.monotonic();
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    println!("absent: ready {:?} after the broker", clock.monotonic().since(back));
    cluster.produce(&format!("{prefix}-in"), &Feed::new(Order::Disorder, 3).take(1_000));
    // Shown where a check below fails.
    println!("{}", finish(&cluster, prefix, service));
    check_complete(&cluster, prefix);
}

#[test]
fn a_transactional_id_that_expired_in_the_silence_is_made_anew() {
    let prefix = "expired";
    let broker = Broker::start_with(&[
        ("transactional.id.expiration.ms", "3000"),
        ("transaction.remove.expired.transaction.cleanup.interval.ms", "500"),
        ("producer.id.expiration.ms", "3000"),
    ]);
    let cluster = Cluster::new(broker.bootstrap());
    create_topics(&cluster, prefix);
    let mut service = Tidegate::run(&config(&cluster.bootstrap, prefix), &[]);
    let mut feed = Feed::new(Order::Disorder, 4);
    let input = format!("{prefix}-in");
    cluster.produce(&input, &feed.take(2_000));
    read_on(&mut service, 1_500.0);
    let clock = Clock::start();
    sit_out(&mut service, "nothing comes", |_| clock.monotonic().0 > Duration::from_secs(10));
    cluster.produce(&input, &feed.take(2_000));
    // Shown where a check below fails.
    println!("{}", finish(&cluster, prefix, service));
    let places = check_complete(&cluster, prefix);
    println!("expired: {places:?}");
}

/// Processor time that a process has used, as the kernel counts it, at 100 ticks a second.
fn cpu_time(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = |nth| fields.split(' ').nth(nth).unwrap().parse::<u64>().unwrap();
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
