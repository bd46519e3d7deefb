//! An instance stands still for so long that its partitions are somebody else's, and then goes on as if nothing had
//! happened: it can change nothing any more.

use std::time::Duration;

use rdkafka::producer::Producer;
use tidegate::clock::Clock;

use crate::support::broker::Broker;
use crate::support::cluster::Cluster;
use crate::support::job::total;
use crate::support::ledger::{
    Feed, Feeding, Order, PARTITIONS, check_complete, config, create_topics, finish, read_topics,
    rules,
};
use crate::support::oracle::{KeyOf, Rules, judge};
use crate::support::process::Tidegate;

use super::outages::read_on;
use super::stops::ends;

fn instance(config: &str, name: &str) -> Tidegate {
    let mut instance = Tidegate::run(config, &["--set", &format!("kafka.instance_id={name}")]);
    instance.wait_until("it is a member or stands by", |instance| {
        instance.get("/livez").0 == 200 && !instance.get("/readyz").1.contains("starting")
    });
    instance
}

fn partitions(instance: &mut Tidegate) -> i64 {
    total(instance, "tidegate_partitions", "")
}

#[test]
fn one_that_stood_still_while_its_partitions_moved_changes_nothing_and_goes_on() {
    let prefix = "undead";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let input = format!("{prefix}-in");
    let config = config(&cluster.bootstrap, prefix)
        .replace("fields = [\"k\"]", "from = \"message\"")
        .replace("size = \"10s\"", "size = \"10s\"\nallowed_lateness = \"20s\"");
    let feeding = Feeding::start(&cluster, &input, Feed::new(Order::Disorder, 51));
    let mut both = ["one", "two"].map(|name| instance(&config, name));
    for round in 0..3 {
        let [stands, goes] = &mut both;
        stands
            .wait_until("both have some", |stands| partitions(stands) > 0 && partitions(goes) > 0);
        read_on(stands, 200.0);
        stands.signal("STOP");
        let clock = Clock::start();
        goes.wait_until("the other has all", |goes| partitions(goes) == i64::from(PARTITIONS));
        read_on(goes, 500.0);
        // Its session has ended, and its transaction.
        goes.wait_until("it has stood still for longer than all timeouts", |_| {
            clock.monotonic().0 > Duration::from_secs(8)
        });
        let stood = clock.monotonic().0;
        stands.signal("CONT");
        stands.wait_until("both have some again", |stands| {
            let shares = [partitions(stands), partitions(goes)];
            shares.iter().sum::<i64>() == i64::from(PARTITIONS) && !shares.contains(&0)
        });
        println!(
            "undead {round}: stood for {stood:?}, back after {:?}",
            clock.monotonic().0.saturating_sub(stood)
        );
        both.reverse();
    }
    let written = feeding.finish();
    let [mut one, two] = both;
    cluster.produce(&input, &Feed::closing());
    let ends = ends(&cluster, &input);
    one.wait_until("everything is committed", |_| {
        cluster.committed(prefix, &input, PARTITIONS) == ends
    });
    one.stop();
    two.stop();
    let rules = Rules { key: KeyOf::Message, ..rules(20_000) };
    let figures = judge(&rules, &read_topics(&cluster, prefix)).figures();
    println!("undead: {written} records, {figures:?}");
}

/// The client does this to itself where an answer of the coordinator is lost with its broker: it asks again, and has an
/// epoch that is not the last.
#[test]
fn an_epoch_that_is_not_the_last_ends_nobody_who_is_alone_under_his_name() {
    let prefix = "own-epoch";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let input = format!("{prefix}-in");
    let feeding = Feeding::start(&cluster, &input, Feed::new(Order::Disorder, 53));
    let mut service = instance(&config(&cluster.bootstrap, prefix), "one");
    for _ in 0..3 {
        read_on(&mut service, 200.0);
        let other = cluster.transactional(&format!("{prefix}-one-0"));
        let before = total(&mut service, ABORTED.0, ABORTED.1);
        other.init_transactions(Duration::from_secs(30)).unwrap();
        service.wait_until("a transaction is aborted", |service| {
            total(service, ABORTED.0, ABORTED.1) > before
        });
    }
    read_on(&mut service, 200.0);
    let written = feeding.finish();
    finish(&cluster, prefix, service);
    println!("own epoch: {written} records, {:?}", check_complete(&cluster, prefix));
}

/// With a field as the key another instance has taken all over, so this one stands by.
#[test]
fn one_that_read_everything_before_it_stood_still_stands_by_afterwards() {
    let prefix = "undead-alone";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let input = format!("{prefix}-in");
    let config = config(&cluster.bootstrap, prefix);
    let feeding = Feeding::start(&cluster, &input, Feed::new(Order::Disorder, 52));
    let (mut stands, mut goes) = (instance(&config, "one"), instance(&config, "two"));
    for round in 0..2 {
        read_on(&mut stands, 200.0);
        stands.signal("STOP");
        goes.wait_until("the other is at work", |goes| {
            goes.get("/readyz").0 == 200 && partitions(goes) == i64::from(PARTITIONS)
        });
        read_on(&mut goes, 200.0);
        let clock = Clock::start();
        stands.signal("CONT");
        stands.wait_until("it stands by", |stands| {
            let (code, reason) = stands.get("/readyz");
            code == 503 && reason.contains("reads the input")
        });
        println!("undead alone {round}: stands by after {:?}", clock.monotonic().0);
        goes.wait_until("the other is at work", |goes| goes.get("/readyz").0 == 200);
        read_on(&mut goes, 200.0);
        std::mem::swap(&mut stands, &mut goes);
    }
    let written = feeding.finish();
    goes.stop();
    finish(&cluster, prefix, stands);
    println!("undead alone: {written} records, {:?}", check_complete(&cluster, prefix));
}

/// Transactions that came to nothing.
const ABORTED: (&str, &str) = ("tidegate_transactions_total", "outcome=\"aborted\"");
