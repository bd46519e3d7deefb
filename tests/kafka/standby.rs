//! With a field as the key one instance reads all partitions: others stand by, and take over when it ends.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use tidegate::clock::Clock;

use crate::support::broker::Broker;
use crate::support::brokers::Brokers;
use crate::support::cluster::Cluster;
use crate::support::ledger::{
    Feed, Feeding, Order, PARTITIONS, check_complete, config, create_topics, finish,
};
use crate::support::process::Tidegate;

use super::outages::read_on;

/// Instances of one job, and its topics.
struct Group {
    cluster: Cluster,
    prefix: &'static str,
    config: String,
}

const SESSION: &str = "\"session.timeout.ms\" = \"6000\"";
const NEWER: &str = "\"group.protocol\" = \"consumer\"";

impl Group {
    fn new(prefix: &'static str) -> Self {
        Self::on(Cluster::new(Broker::shared()), prefix)
    }

    fn on(cluster: Cluster, prefix: &'static str) -> Self {
        create_topics(&cluster, prefix);
        let config = config(&cluster.bootstrap, prefix);
        Self { cluster, prefix, config }
    }

    /// The same with other properties of the consumer.
    fn with(prefix: &'static str, properties: &str) -> Self {
        let group = Self::new(prefix);
        let config = group.config.replace(SESSION, properties);
        Self { config, ..group }
    }

    fn input(&self) -> String {
        format!("{}-in", self.prefix)
    }

    fn feed(&self, seed: u64) -> Feeding {
        Feeding::start(&self.cluster, &self.input(), Feed::new(Order::Disorder, seed))
    }

    fn run(&self, instance: &str, arguments: &[&str]) -> Tidegate {
        let instance = format!("kafka.instance_id={instance}");
        Tidegate::run(&self.config, &[&["--set", &instance], arguments].concat())
    }

    /// An instance that has got to work.
    fn at_work(&self, instance: &str) -> Tidegate {
        let mut instance = self.run(instance, &[]);
        wait_until_at_work(&mut instance);
        instance
    }

    /// A member that takes partitions and does nothing with them.
    fn intruder(&self, properties: &[(&str, &str)]) -> BaseConsumer {
        let member = self.cluster.member(self.prefix, &self.input(), properties);
        let clock = Clock::start();
        while member.assignment().unwrap().count() == 0 {
            assert!(clock.monotonic().0 < Duration::from_mins(1), "it is given nothing");
            drop(member.poll(Duration::from_millis(50)));
        }
        member
    }
}

fn wait_until_at_work(instance: &mut Tidegate) {
    instance.wait_until("it is at work", is_at_work);
}

fn is_at_work(instance: &mut Tidegate) -> bool {
    instance.get("/readyz").0 == 200
        && instance.metric_sum("tidegate_partitions", "") >= f64::from(PARTITIONS)
}

fn phase(instance: &mut Tidegate) -> String {
    let (code, body) = instance.get("/api/v1/status");
    assert_eq!(code, 200, "{body}");
    let status: serde_json::Value = serde_json::from_str(&body).unwrap();
    status["phase"].as_str().unwrap().to_owned()
}

/// Waits until an instance stands by, because of the instance of this name.
fn wait_until_it_stands_by(instance: &mut Tidegate, because_of: &str) {
    instance.wait_until("it stands by", |instance| phase(instance) == "standby");
    let (code, reason) = instance.get("/readyz");
    assert_eq!(code, 503, "{reason}");
    assert!(reason.contains(&format!("tidegate-{because_of}-0")), "{reason}");
    assert_eq!(instance.get("/livez").0, 200);
}

#[test]
fn one_that_stands_by_says_for_whom_and_takes_everything_over() {
    let group = Group::new("taken-over");
    let feeding = group.feed(41);
    let mut first = group.at_work("first");
    let mut second = group.run("second", &[]);
    wait_until_it_stands_by(&mut second, "first");
    read_on(&mut first, 500.0);
    first.stop();
    let clock = Clock::start();
    wait_until_at_work(&mut second);
    let stopped = clock.monotonic().0;
    let mut third = group.run("third", &[]);
    wait_until_it_stands_by(&mut third, "second");
    read_on(&mut second, 500.0);
    // SIGKILL.
    drop(second);
    let clock = Clock::start();
    wait_until_at_work(&mut third);
    let killed = clock.monotonic().0;
    read_on(&mut third, 500.0);
    feeding.finish();
    finish(&group.cluster, group.prefix, third);
    let figures = check_complete(&group.cluster, group.prefix);
    println!("taken over: {stopped:?} after a stop, {killed:?} after a kill, {figures:?}");
}

fn roll(group: &Group, rounds: i32) {
    let prefix = group.prefix;
    let feeding = group.feed(42);
    let mut running = group.at_work("pod-0");
    for round in 1..=rounds {
        let mut next = group.run(&format!("pod-{round}"), &[]);
        // Not even ready to stand by: the next two rounds do not wait for that.
        if round % 3 == 0 {
            wait_until_it_stands_by(&mut next, &format!("pod-{}", round - 1));
        }
        read_on(&mut running, 200.0);
        running.stop();
        let clock = Clock::start();
        wait_until_at_work(&mut next);
        println!(
            "{prefix} {round}: at work {:?} after the last one had ended",
            clock.monotonic().0
        );
        read_on(&mut next, 200.0);
        running = next;
    }
    feeding.finish();
    finish(&group.cluster, group.prefix, running);
    println!("{prefix}: {:?}", check_complete(&group.cluster, prefix));
}

/// What the client remembers of where the group is managed is out of date after each of the kills but one. On a busy
/// machine the one at work may lose the group by them, and the other takes over.
#[test]
fn one_that_stands_by_takes_over_when_the_group_has_moved_to_another_broker() {
    let mut brokers = Brokers::start_with(&[]);
    let group = Group::on(Cluster::new(brokers.bootstrap()), "moved-group");
    let feeding = group.feed(44);
    let mut first = group.at_work("first");
    let mut second = group.run("second", &[]);
    wait_until_it_stands_by(&mut second, "first");
    for nth in 0..brokers.count() {
        brokers.node(nth).kill();
        one_reads_on(&mut first, &mut second);
        brokers.node(nth).start_again();
        one_reads_on(&mut first, &mut second);
    }
    first.wait_until("one is at work, and the other stands by", |first| {
        let phases = [phase(first), phase(&mut second)];
        (is_at_work(first) && phases[1] == "standby")
            || (is_at_work(&mut second) && phases[0] == "standby")
    });
    let (works, mut stands_by) =
        if is_at_work(&mut first) { (first, second) } else { (second, first) };
    works.stop();
    let clock = Clock::start();
    wait_until_at_work(&mut stands_by);
    let took = clock.monotonic().0;
    read_on(&mut stands_by, 500.0);
    feeding.finish();
    finish(&group.cluster, group.prefix, stands_by);
    let figures = check_complete(&group.cluster, group.prefix);
    println!("moved group: taken over after {took:?}, {figures:?}");
}

/// Waits until the two have read on, whichever of them it is that reads.
fn one_reads_on(one: &mut Tidegate, other: &mut Tidegate) {
    let mut read = |one: &mut Tidegate| {
        [one, &mut *other].map(|each| each.metric_sum("tidegate_records_in_total", ""))
    };
    let before = read(one);
    one.wait_until("one of two reads on", |one| {
        read(one).iter().zip(before).any(|(now, before)| *now >= before + 500.0)
    });
}

#[test]
fn a_rolling_update_with_a_replica_to_spare_loses_nothing_and_ends_nobody() {
    roll(&Group::new("rolled"), 6);
}

#[test]
fn a_rolling_update_by_the_newer_protocol_loses_nothing_and_ends_nobody() {
    roll(&Group::with("rolled-newer", NEWER), 3);
}

#[test]
fn of_two_that_start_at_once_in_an_empty_group_one_gets_to_work() {
    let group = Group::new("started-at-once");
    one_gets_to_work(&group);
}

#[test]
fn of_two_of_the_newer_protocol_that_start_at_once_one_gets_to_work() {
    let group = Group::with("started-at-once-newer", NEWER);
    one_gets_to_work(&group);
}

fn one_gets_to_work(group: &Group) {
    for round in 0..4 {
        let clock = Clock::start();
        // As the replicas of a stateful set are called.
        let mut both = ["worker-0", "worker-1"].map(|name| group.run(name, &[]));
        let [one, other] = &mut both;
        let mut works = false;
        one.wait_until("one is at work, and the other stands by", |one| {
            let phases = [phase(one), phase(other)];
            let [first, second] = [is_at_work(one), is_at_work(other)];
            works = first;
            (first && phases[1] == "standby") || (second && phases[0] == "standby")
        });
        let took = clock.monotonic().0;
        println!("started at once {round}: {} after {took:?}", if works { "one" } else { "other" });
        assert!(took < Duration::from_secs(20), "{took:?}\n{}\n{}", both[0].log(), both[1].log());
        for instance in both {
            instance.stop();
        }
    }
}

#[test]
fn what_is_stopped_or_killed_does_not_stand_in_its_own_way() {
    // A group keeps a static member for longer than this test waits.
    let group = Group::with("in-its-way", "\"session.timeout.ms\" = \"50000\"");
    let fixed = ["--set", "kafka.static_membership=true"];
    let feeding = group.feed(43);
    let mut instance = group.run("only", &fixed);
    wait_until_at_work(&mut instance);
    for signal in ["TERM", "KILL"] {
        read_on(&mut instance, 200.0);
        if signal == "TERM" {
            instance.stop();
        } else {
            drop(instance);
        }
        let clock = Clock::start();
        instance = group.run("only", &fixed);
        wait_until_at_work(&mut instance);
        println!("in its way: at work {:?} after SIG{signal}", clock.monotonic().0);
        assert!(clock.monotonic().0 < Duration::from_secs(30));
        assert!(!instance.log().contains("standing by"), "{}", instance.log());
    }
    read_on(&mut instance, 200.0);
    feeding.finish();
    finish(&group.cluster, group.prefix, instance);
    println!("in its way: {:?}", check_complete(&group.cluster, group.prefix));
}

/// Who is to read to the end needs all partitions, and says at once that somebody else has some.
fn run_to_the_end_beside(group: &Group) {
    let feeding = group.feed(44);
    let mut running = group.at_work("running");
    read_on(&mut running, 200.0);
    let clock = Clock::start();
    let mut other = group.run("other", &["--until-end"]);
    let status = other.wait();
    println!("beside {}: {status} after {:?}", group.prefix, clock.monotonic().0);
    let log = other.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.lines().last().unwrap().contains("--until-end needs all partitions"), "{log}");
    assert!(clock.monotonic().0 < Duration::from_secs(30));
    running.wait_until("it has all of them again", is_at_work);
    read_on(&mut running, 200.0);
    feeding.finish();
    finish(&group.cluster, group.prefix, running);
    println!("beside {}: {:?}", group.prefix, check_complete(&group.cluster, group.prefix));
}

#[test]
fn a_run_to_the_end_beside_another_member_ends_at_once() {
    run_to_the_end_beside(&Group::new("ended-beside"));
}

#[test]
fn a_run_to_the_end_beside_a_member_of_the_newer_protocol_ends_at_once() {
    run_to_the_end_beside(&Group::with("ended-beside-newer", NEWER));
}

/// Somebody else joins and takes some of the partitions: first for a while, then for good.
fn intrude(group: &Group, properties: &[(&str, &str)]) {
    let prefix = group.prefix;
    let feeding = group.feed(45);
    let mut running = group.at_work("running");
    read_on(&mut running, 200.0);
    let intruder = group.intruder(properties);
    running.wait_for_line("holding results back");
    let (code, reason) = running.get("/readyz");
    println!("{prefix}: {code} {reason}");
    drop(intruder);
    wait_until_at_work(&mut running);
    read_on(&mut running, 200.0);

    let intruder = group.intruder(properties);
    let clock = Clock::start();
    let status = loop {
        drop(intruder.poll(Duration::from_millis(50)));
        if let Some(status) = running.try_wait() {
            break status;
        }
        assert!(clock.monotonic().0 < Duration::from_mins(2), "{}", running.log());
    };
    let took = clock.monotonic().0;
    running.wait();
    let log = running.log();
    let last = log.lines().last().unwrap();
    println!("{prefix}: {status} after {took:?}: {last}");
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(last.contains("one instance has to read all of them"), "{log}");
    drop(intruder);
    let mut running = group.at_work("running");
    read_on(&mut running, 200.0);
    feeding.finish();
    finish(&group.cluster, prefix, running);
    println!("{prefix}: {:?}", check_complete(&group.cluster, prefix));
}

#[test]
fn partitions_that_return_in_time_are_gone_on_with_and_others_end_it() {
    let properties =
        [("partition.assignment.strategy", "cooperative-sticky"), ("session.timeout.ms", "6000")];
    intrude(&Group::new("intruded"), &properties);
}

#[test]
fn partitions_of_the_newer_protocol_that_return_in_time_are_gone_on_with_and_others_end_it() {
    intrude(&Group::with("intruded-newer", NEWER), &[("group.protocol", "consumer")]);
}

/// The same as with the classic protocol; nobody joins to see who is there, which would hold up the one at work.
#[test]
fn one_that_stands_by_leaves_a_member_of_the_newer_protocol_alone() {
    let group = Group::with("left-alone", NEWER);
    let feeding = group.feed(46);
    let mut running = group.at_work("running");
    read_on(&mut running, 200.0);
    let mut other = group.run("other", &[]);
    wait_until_it_stands_by(&mut other, "running");
    let clock = Clock::start();
    while clock.monotonic().0 < Duration::from_secs(15) {
        read_on(&mut running, 50.0);
    }
    let log = running.stop();
    assert_eq!(log.matches("partitions assigned").count(), 1, "{log}");
    let clock = Clock::start();
    wait_until_at_work(&mut other);
    println!("left alone: at work {:?} after a stop", clock.monotonic().0);
    read_on(&mut other, 200.0);
    feeding.finish();
    finish(&group.cluster, group.prefix, other);
    println!("left alone: {:?}", check_complete(&group.cluster, group.prefix));
}
