//! Several subtasks in one process, and members of the group that come back.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::producer::Producer;
use tidegate::clock::Clock;

use crate::support::broker::Broker;
use crate::support::cluster::Cluster;
use crate::support::job::{total, wait_for_offset};
use crate::support::ledger::{Feed, Order, check_by_partition, config};
use crate::support::process::Tidegate;

/// The topics of a job with so many partitions, and its configuration with the message key as the key.
fn job(prefix: &str, partitions: i32) -> (Cluster, String) {
    let cluster = Cluster::new(Broker::shared());
    for (suffix, partitions) in [("in", partitions), ("out", 2), ("late", 1), ("dead", 1)] {
        cluster.create(&format!("{prefix}-{suffix}"), partitions, &[]);
    }
    let config =
        config(&cluster.bootstrap, prefix).replace("fields = [\"k\"]", "from = \"message\"");
    (cluster, config)
}

/// The partitions of each subtask.
fn shares(service: &mut Tidegate) -> Vec<Vec<i64>> {
    let (code, body) = service.get("/api/v1/status");
    assert_eq!(code, 200, "{body}");
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    let of = |subtask: &serde_json::Value| {
        let partitions = subtask["partitions"].as_array().unwrap().iter();
        partitions.map(|partition| partition["partition"].as_i64().unwrap()).collect()
    };
    status["subtasks"].as_array().unwrap().iter().map(of).collect()
}

fn sizes(service: &mut Tidegate) -> Vec<usize> {
    let mut sizes: Vec<_> = shares(service).iter().map(Vec::len).collect();
    sizes.sort_unstable();
    sizes
}

/// Waits until the service is ready and its subtasks have shares of these sizes, in whatever order.
fn wait_for_shares(service: &mut Tidegate, expected: &[usize]) {
    service.wait_until(&format!("shares of {expected:?}"), |service| {
        service.get("/readyz").0 == 200 && sizes(service) == expected
    });
}

/// How often each partition is shown in a series that every partition has from its assignment on.
fn shown(service: &mut Tidegate) -> BTreeMap<String, usize> {
    let (_, body) = service.get("/metrics");
    let mut shown = BTreeMap::new();
    for line in body.lines().filter_map(|line| line.strip_prefix("tidegate_partition_idle{")) {
        let (labels, _) = line.rsplit_once('}').unwrap();
        *shown.entry(labels.to_owned()).or_default() += 1;
    }
    shown
}

fn stop(service: &mut Tidegate) -> Duration {
    let clock = Clock::start();
    service.signal("TERM");
    let status = service.wait();
    assert!(status.success(), "{status}\n{}", service.log());
    clock.monotonic().0
}

#[test]
fn two_subtasks_share_four_partitions_and_every_record_is_in_one_place() {
    let prefix = "shared";
    let (cluster, config) = job(prefix, 4);
    let mut service = Tidegate::run(&config, &["--set", "service.subtasks=2"]);
    wait_for_shares(&mut service, &[2, 2]);
    let mut partitions = shares(&mut service).concat();
    partitions.sort_unstable();
    assert_eq!(partitions, [0, 1, 2, 3]);

    let input = format!("{prefix}-in");
    cluster.produce(&input, &Feed::new(Order::Disorder, 21).over(4).take(4_000));
    cluster.produce(&input, &Feed::closing_over(4));
    service.wait_until("the closing records are the only ones left", |service| {
        service.metric("tidegate_window_panes_open") == Some(4.0)
            && service.metric_sum("tidegate_records_in_total", "") >= 4_004.0
    });
    for subtask in ["subtask=\"0\"", "subtask=\"1\""] {
        for family in [
            "tidegate_watermark_lag_seconds",
            "tidegate_watermark_timestamp_seconds",
            "tidegate_last_commit_timestamp_seconds",
            "tidegate_watermark_ticks_total",
        ] {
            let value = service.metric_sum(family, subtask);
            assert!(value > 0.0, "{family} of {subtask}: {value}");
        }
        assert_eq!(total(&mut service, "tidegate_watermark_holder", subtask), 1);
    }
    assert_eq!(shown(&mut service).into_values().collect::<Vec<_>>(), [1; 4]);
    let took = stop(&mut service);
    let ends: Vec<_> = (0..4).map(|partition| Some(cluster.end(&input, partition))).collect();
    assert_eq!(cluster.committed(prefix, &input, 4), ends, "both have committed all they read");
    let places = check_by_partition(&cluster, prefix, 4);
    println!("shared: stopped in {took:?}, {places:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    let log = service.log();
    assert!(log.contains("\"number\":1"), "what a subtask logs says which one it is:\n{log}");
}

#[test]
fn a_subtask_without_partitions_is_a_standby() {
    let (cluster, config) = job("spared", 2);
    let mut service = Tidegate::run(&config, &["--set", "service.subtasks=3"]);
    wait_for_shares(&mut service, &[0, 1, 1]);
    cluster.produce("spared-in", &Feed::new(Order::Ascending, 22).over(2).take(300));
    service.wait_until("both have a watermark", |service| {
        service.metric_sum("tidegate_records_in_total", "") >= 300.0
            && service.get("/metrics").1.matches("tidegate_watermark_lag_seconds{").count() == 2
    });
    assert_eq!((service.get("/readyz").0, service.get("/livez").0), (200, 200));
    stop(&mut service);
}

#[test]
fn a_partition_that_moves_is_shown_by_one_subtask_at_a_time() {
    let prefix = "shown-by-one";
    let (cluster, config) = job(prefix, 4);
    let mut first = Tidegate::run(&config, &["--set", "service.subtasks=2"]);
    wait_for_shares(&mut first, &[2, 2]);
    let input = format!("{prefix}-in");
    let mut feed = Feed::new(Order::Ascending, 23).over(4);
    cluster.produce(&input, &feed.take(400));
    first.wait_until("it reads", |first| first.metric_sum("tidegate_records_in_total", "") > 0.0);

    let other = ["--set", "kafka.instance_id=two", "--set", "service.subtasks=2"];
    let mut second = Tidegate::run(&config, &other);
    second.wait_until("each of the four has one", |second| {
        let here = shown(&mut first);
        assert!(here.values().all(|times| *times == 1), "{here:?}");
        let there = shown(second);
        assert!(there.values().all(|times| *times == 1), "{there:?}");
        sizes(&mut first) == [1, 1] && sizes(second) == [1, 1]
    });
    let (here, there) = (shown(&mut first), shown(&mut second));
    assert_eq!((here.len(), there.len()), (2, 2));
    assert!(here.keys().all(|partition| !there.contains_key(partition)), "{here:?} {there:?}");
    let counted = first.metric_sum("tidegate_records_in_total", "");
    stop(&mut second);
    first.wait_until("it has them back", |first| {
        let here = shown(first);
        assert!(here.values().all(|times| *times == 1), "{here:?}");
        here.len() == 4
    });
    cluster.produce(&input, &feed.take(400));
    cluster.produce(&input, &Feed::closing_over(4));
    // Records are committed before the watermark moves on, and a stop in between leaves their windows to the next start.
    first.wait_until("the closing records are the only ones left", |first| {
        first.metric("tidegate_window_panes_open") == Some(4.0)
            && first.metric_sum("tidegate_records_in_total", "") >= counted + 404.0
    });
    stop(&mut first);
    println!("moved: {:?}", check_by_partition(&cluster, prefix, 4));
}

#[test]
fn when_one_subtask_ends_with_an_error_the_others_commit_and_the_service_ends_with_it() {
    let prefix = "dragged";
    let (cluster, config) = job(prefix, 4);
    let mut service = Tidegate::run(&config, &["--set", "service.subtasks=2"]);
    wait_for_shares(&mut service, &[2, 2]);
    let input = format!("{prefix}-in");
    let mut feed = Feed::new(Order::Ascending, 24).over(4);
    cluster.produce(&input, &feed.take(400));
    service.wait_until("all is committed", |service| {
        service.metric_sum("tidegate_records_in_total", "") >= 400.0
    });
    let fenced = shares(&mut service)[1].clone();
    // Somebody else under the name of the second one, in the group and as a producer.
    let rival = cluster.member(
        prefix,
        &format!("{prefix}-out"),
        &[
            ("client.id", "tidegate-one-1.rival"),
            ("partition.assignment.strategy", "cooperative-sticky"),
        ],
    );
    service.wait_until("the rival is a member", |_| {
        drop(rival.poll(Duration::from_millis(100)));
        rival.assignment().unwrap().count() > 0
    });
    wait_for_shares(&mut service, &[2, 2]);
    assert_eq!(shares(&mut service)[1], fenced);
    let producer = cluster.transactional(&format!("{prefix}-one-1"));
    producer.init_transactions(Duration::from_secs(30)).unwrap();
    // The other has read all of its own before the second one learns of it, which it does at a commit.
    let (its_own, rest): (Vec<_>, Vec<_>) = feed
        .take(400)
        .into_iter()
        .partition(|record| fenced.contains(&i64::from(record.partition)));
    cluster.produce(&input, &rest);
    wait_for_offset(&mut service, 600);
    cluster.produce(&input, &its_own);
    let status = service.wait();
    let log = service.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("a subtask ended; stopping the others"), "{log}");
    assert!(log.lines().last().unwrap().contains("another"), "{log}");
    for (partition, committed) in (0..4).zip(cluster.committed(prefix, &input, 4)) {
        let all = committed == Some(cluster.end(&input, partition));
        assert_eq!(
            all,
            !fenced.contains(&i64::from(partition)),
            "{partition}: {committed:?}\n{log}"
        );
    }
}

#[test]
fn a_static_standby_that_comes_back_disturbs_nobody() {
    let (_cluster, config) = job("static-spared", 1);
    let config = config.replace("\"session.timeout.ms\" = \"6000\"", PATIENT);
    let of = |instance: &str| {
        let instance = format!("kafka.instance_id={instance}");
        Tidegate::run(&config, &["--set", "kafka.static_membership=true", "--set", &instance])
    };
    let mut reads = of("one");
    wait_for_shares(&mut reads, &[1]);
    let mut spared = of("two");
    wait_for_shares(&mut spared, &[0]);
    let before = total(&mut reads, "tidegate_rebalances_total", "");
    stop(&mut spared);
    let mut spared = of("two");
    wait_for_shares(&mut spared, &[0]);
    let after = total(&mut reads, "tidegate_rebalances_total", "");
    assert_eq!(before, after, "{}", reads.log());
    stop(&mut reads);
    stop(&mut spared);
}

/// Restarts one of two static instances of two subtasks: it goes on with its partitions, and the other hears nothing.
fn restart_a_static_member(prefix: &str, properties: &str, killed: bool) {
    let (_cluster, config) = job(prefix, 4);
    let config = config.replace("\"session.timeout.ms\" = \"6000\"", properties);
    let of = |instance: &str| {
        let instance = format!("kafka.instance_id={instance}");
        let more = ["--set", "kafka.static_membership=true", "--set", "service.subtasks=2"];
        Tidegate::run(&config, &[&more[..], &["--set", &instance]].concat())
    };
    let (mut stays, mut restarted) = (of("one"), of("two"));
    wait_for_shares(&mut stays, &[1, 1]);
    wait_for_shares(&mut restarted, &[1, 1]);
    let before = (shares(&mut restarted), total(&mut stays, "tidegate_rebalances_total", ""));
    if killed {
        drop(restarted);
    } else {
        stop(&mut restarted);
    }
    let clock = Clock::start();
    let mut restarted = of("two");
    wait_for_shares(&mut restarted, &[1, 1]);
    println!("{prefix}: back after {:?}", clock.monotonic().0);
    let after = (shares(&mut restarted), total(&mut stays, "tidegate_rebalances_total", ""));
    assert_eq!(before, after, "{}", stays.log());
    stop(&mut stays);
    stop(&mut restarted);
}

/// 6 s are too few for a start where all tests run at once.
const PATIENT: &str = "\"session.timeout.ms\" = \"20000\"";

#[test]
fn a_static_member_that_was_stopped_finds_its_partitions_and_disturbs_nobody() {
    restart_a_static_member("static", PATIENT, false);
}

#[test]
fn a_static_member_that_was_killed_finds_its_partitions_and_disturbs_nobody() {
    restart_a_static_member("static-killed", PATIENT, true);
}

#[test]
fn a_static_member_of_the_newer_protocol_finds_its_partitions_and_disturbs_nobody() {
    restart_a_static_member("static-newer", "\"group.protocol\" = \"consumer\"", false);
}
