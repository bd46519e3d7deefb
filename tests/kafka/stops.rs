//! The service is stopped, killed, or stands still: how it ends, and how the next one goes on.

use std::time::Duration;

use tidegate::clock::Clock;

use super::outages::{broker, read_on};
use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record};
use crate::support::ledger::{
    Feed, Feeding, Order, PARTITIONS, check, check_complete, config, create_topics, finish,
};
use crate::support::process::Tidegate;

pub(crate) fn ends(cluster: &Cluster, topic: &str) -> Vec<Option<i64>> {
    (0..PARTITIONS).map(|partition| Some(cluster.end(topic, partition))).collect()
}

fn wait_until_ready(service: &mut Tidegate) {
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
}

fn end_of(service: &mut Tidegate, signal: &str) -> (Option<i32>, Duration) {
    let clock = Clock::start();
    service.signal(signal);
    let status = service.wait();
    (status.code(), clock.monotonic().0)
}

#[test]
fn a_stop_commits_what_was_read_fires_nothing_early_and_leaves_the_group() {
    let prefix = "stopped";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let input = format!("{prefix}-in");
    // A member that did not leave would hold the partitions back for half a minute.
    let config = config(&cluster.bootstrap, prefix).replace("\"6000\"", "\"30000\"");
    let mut feed = Feed::new(Order::Ascending, 5);
    let mut read = 0;
    for signal in ["TERM", "INT"] {
        let mut service = Tidegate::run(&config, &[]);
        let clock = Clock::start();
        wait_until_ready(&mut service);
        let ready = clock.monotonic().0;
        // Within one window, which must not fire.
        cluster.produce(&input, &feed.take(150));
        read += 150;
        service.wait_until("it has read them", |service| {
            service.metric_sum("tidegate_consumed_offset", "") >= f64::from(read)
        });
        let (code, took) = end_of(&mut service, signal);
        println!("stopped: ready in {ready:?}, SIG{signal}: {code:?} in {took:?}");
        assert_eq!(code, Some(0), "{}", service.log());
        assert!(took < Duration::from_secs(4) && ready < Duration::from_secs(20));
        assert_eq!(cluster.committed(prefix, &input, PARTITIONS), ends(&cluster, &input));
        assert!(cluster.read(&format!("{prefix}-out")).is_empty(), "a partial pane");
    }
}

#[test]
fn thirty_starts_and_stops_in_a_row_end_as_they_should() {
    let prefix = "restarted";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let config = config(&cluster.bootstrap, prefix);
    let mut feed = Feed::new(Order::Ascending, 6);
    let mut longest = Duration::ZERO;
    for _ in 0..30 {
        let mut service = Tidegate::run(&config, &[]);
        wait_until_ready(&mut service);
        cluster.produce(&format!("{prefix}-in"), &feed.take(30));
        let (code, took) = end_of(&mut service, "TERM");
        assert_eq!(code, Some(0), "{}", service.log());
        longest = longest.max(took);
    }
    println!("restarted: the longest stop took {longest:?}");
    let mut service = Tidegate::run(&config, &[]);
    wait_until_ready(&mut service);
    finish(&cluster, prefix, service);
    let places = check_complete(&cluster, prefix);
    println!("restarted: {places:?}");
}

#[test]
fn a_stop_without_a_broker_ends_in_time_and_says_what_is_missing() {
    let prefix = "stranded";
    let mut broker = broker();
    let cluster = Cluster::new(broker.bootstrap());
    create_topics(&cluster, prefix);
    // With a field as the key the second would stand by. A member whose session ends first has nothing left to commit.
    let config = config(&cluster.bootstrap, prefix)
        .replace("fields = [\"k\"]", "from = \"message\"")
        .replace("\"6000\"", "\"60000\"");
    let mut services = ["one", "two"].map(|instance| {
        Tidegate::run(&config, &["--set", &format!("kafka.instance_id={instance}")])
    });
    for service in &mut services {
        wait_until_ready(service);
    }
    let feeding = Feeding::start(&cluster, &format!("{prefix}-in"), Feed::new(Order::Disorder, 7));
    let [mut reader, mut other] = services;
    reader.wait_until("both read", |reader| {
        let has_read =
            |service: &mut Tidegate| service.metric_sum("tidegate_records_in_total", "") > 0.0;
        has_read(reader) && has_read(&mut other)
    });
    broker.kill();
    // Records that were read and not committed are what makes a stop fail. Who had none to commit cannot know.
    let is_blocked = |service: &mut Tidegate| service.log().contains("waiting for the brokers");
    reader.wait_until("one of them is blocked", |reader| {
        is_blocked(reader) || is_blocked(&mut other)
    });
    if !is_blocked(&mut reader) {
        std::mem::swap(&mut reader, &mut other);
    }

    let (code, took) = end_of(&mut reader, "TERM");
    let log = reader.log();
    println!("stranded: {code:?} in {took:?}: {}", log.lines().last().unwrap());
    assert_eq!(code, Some(1), "{log}");
    assert!(took < Duration::from_secs(7), "{took:?}");
    assert!(log.contains("read again"), "{log}");

    // The second signal waits for nothing.
    other.signal("TERM");
    other.wait_for_line("stopping");
    let (code, took) = end_of(&mut other, "INT");
    println!("stranded: {code:?} in {took:?} after the second signal");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(code, Some(130), "{}", other.log());
    broker.start_again();
    feeding.finish();
}

#[test]
fn the_successor_of_a_killed_instance_ends_its_transaction_at_once() {
    let prefix = "succeeded";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let (input, dead) = (format!("{prefix}-in"), format!("{prefix}-dead"));
    let config = config(&cluster.bootstrap, prefix);
    // A reader would be held up for a minute.
    let timeout = ["--set", "delivery.transaction_timeout=60s"];
    let mut killed = Tidegate::run(&config, &timeout);
    wait_until_ready(&mut killed);
    let bad: Vec<_> = (0..30).map(|nth| Record::of(nth % PARTITIONS, "no JSON")).collect();
    cluster.produce(&input, &bad);
    killed.wait_until("they are committed", |_| cluster.read(&dead).len() == bad.len());
    killed.wait_until("there is nothing left to commit", |_| {
        cluster.committed(prefix, &input, PARTITIONS) == ends(&cluster, &input)
    });
    drop(killed);

    let slowly =
        ["--set", "delivery.transaction_timeout=60s", "--set", "delivery.commit_interval=50s"];
    let mut killed = Tidegate::run(&config, &slowly);
    wait_until_ready(&mut killed);
    cluster.produce(&input, &bad);
    killed.wait_until("they are in an open transaction", |_| {
        cluster.end(&dead, 0) >= i64::try_from(2 * bad.len()).unwrap()
    });
    // SIGKILL.
    drop(killed);

    let clock = Clock::start();
    let mut successor = Tidegate::run(&config, &timeout);
    // It returns when no transaction is open any more.
    cluster.read(&dead);
    let free = clock.monotonic().0;
    wait_until_ready(&mut successor);
    let ready = clock.monotonic().0;
    successor.wait_until("they are committed", |_| cluster.read(&dead).len() == 2 * bad.len());
    println!("succeeded: readers go on after {free:?}, ready after {ready:?}");
    assert!(free < Duration::from_secs(15), "{free:?}");
    successor.stop();
    assert_eq!(check_complete(&cluster, prefix).dead, 2 * bad.len());
}

/// What was open may be results: a late pane waits for the commit interval.
#[test]
fn a_killed_instance_does_not_hold_up_readers_of_the_results_beyond_its_restart() {
    const LATENESS: i64 = 3_600_000;
    let prefix = "unblocked";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let input = format!("{prefix}-in");
    let config = config(&cluster.bootstrap, prefix)
        .replace("size = \"10s\"", &format!("size = \"10s\"\nallowed_lateness = \"{LATENESS}ms\""));
    // A reader would be held up for a minute, and a late pane is not committed for almost as long.
    let timeout = ["--set", "delivery.transaction_timeout=60s"];
    let slowly = [&timeout[..], &["--set", "delivery.commit_interval=50s"]].concat();
    let mut killed = Tidegate::run(&config, &slowly);
    wait_until_ready(&mut killed);
    let mut feed = Feed::new(Order::Ascending, 9);
    let first = feed.take(600);
    cluster.produce(&input, &first);
    cluster.produce(&input, &feed.take(600));
    let results = || {
        let topic = format!("{prefix}-out");
        (0..2).map(|partition| cluster.end(&topic, partition)).sum::<i64>()
    };
    // On-time panes are committed at once.
    killed.wait_until("windows have fired", |killed| {
        killed.metric_sum("tidegate_window_fires_total", "on_time") >= 9.0
    });
    let before = results();
    // The first record of all, again: its window fires once more.
    cluster.produce(&input, &first[..1]);
    killed.wait_until("a late pane is in an open transaction", |_| results() > before);
    assert!(killed.metric_sum("tidegate_window_fires_total", "late") < 1.0);
    // SIGKILL.
    drop(killed);

    let clock = Clock::start();
    let mut successor = Tidegate::run(&config, &timeout);
    // It returns when no transaction is open any more.
    cluster.read(&format!("{prefix}-out"));
    let free = clock.monotonic().0;
    println!("unblocked: readers go on after {free:?}");
    assert!(free < Duration::from_secs(15), "{free:?}");
    successor.wait_until("the late pane is committed", |successor| {
        successor.metric_sum("tidegate_window_fires_total", "late") > 0.0
    });
    println!("unblocked: the pane is there after {:?}", clock.monotonic().0);
    finish(&cluster, prefix, successor);
    let figures = check(&cluster, prefix, LATENESS).figures();
    println!("unblocked: {figures:?}");
    assert_eq!(figures.late_panes, 1);
}

#[test]
fn a_service_that_stood_still_for_longer_than_all_timeouts_goes_on() {
    let prefix = "stalled";
    let broker = broker();
    let cluster = Cluster::new(broker.bootstrap());
    create_topics(&cluster, prefix);
    let input = format!("{prefix}-in");
    let mut service = Tidegate::run(&config(&cluster.bootstrap, prefix), &[]);
    wait_until_ready(&mut service);
    let feeding = Feeding::start(&cluster, &input, Feed::new(Order::Disorder, 8));
    read_on(&mut service, 500.0);
    service.signal("STOP");
    let clock = Clock::start();
    // The broker goes on alone: until the group is empty and the transactions are at an end.
    while clock.monotonic().0 < Duration::from_secs(12) {
        cluster.end(&input, 0);
    }
    service.signal("CONT");
    let continued = clock.monotonic();
    read_on(&mut service, 500.0);
    println!("stalled: on after {:?}", clock.monotonic().since(continued));
    let written = feeding.finish();
    let log = finish(&cluster, prefix, service);
    let places = check_complete(&cluster, prefix);
    println!("stalled: {written} records, {places:?}");
    assert!(log.matches("the producer is made anew").count() <= 1, "{log}");
}
