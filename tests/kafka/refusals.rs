//! The brokers refuse: credentials, rights, a topic that is gone. Waiting does not mend it, so the service ends and
//! says what to do.

use std::time::Duration;

use tidegate::clock::Clock;

use super::outages::read_on;
use crate::support::broker::Broker;
use crate::support::cluster::Cluster;
use crate::support::ledger::{Feed, Feeding, Order, check_complete, config, create_topics, finish};
use crate::support::process::Tidegate;

/// Its clients need a name and a password, and rights that `allow` gives.
pub(super) fn guarded_broker() -> Broker {
    Broker::start_with(&[
        ("listeners", "SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"),
        ("listener.security.protocol.map", "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"),
        ("inter.broker.listener.name", "SASL_PLAINTEXT"),
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
        (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
             password=\"admin\" user_admin=\"admin\" user_reader=\"reader\";",
        ),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("super.users", "User:admin;User:ANONYMOUS"),
    ])
}

pub(super) const ADMIN: [(&str, &str); 4] = [
    ("security.protocol", "SASL_PLAINTEXT"),
    ("sasl.mechanism", "PLAIN"),
    ("sasl.username", "admin"),
    ("sasl.password", "admin"),
];

pub(super) fn with_credentials(config: &str, name: &str, password: &str) -> String {
    let properties = format!(
        r#"
        [kafka.properties]
        "security.protocol" = "SASL_PLAINTEXT"
        "sasl.mechanism" = "PLAIN"
        "sasl.username" = "{name}"
        "sasl.password" = "{password}"
        [kafka.consumer.properties]"#
    );
    config.replacen("[kafka.consumer.properties]", &properties, 1)
}

/// Runs a service that must end by itself with an error, and returns its log.
fn refused(config: &str) -> String {
    let clock = Clock::start();
    let mut service = Tidegate::run(config, &[]);
    let status = service.wait();
    let (log, took) = (service.log(), clock.monotonic().0);
    println!("refused after {took:?}: {}", log.lines().last().unwrap_or_default());
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    log
}

#[test]
fn wrong_credentials_and_missing_rights_end_it_with_their_names() {
    let prefix = "guarded";
    let broker = guarded_broker();
    let cluster = Cluster::with(broker.bootstrap(), &ADMIN);
    create_topics(&cluster, prefix);
    let config = config(&cluster.bootstrap, prefix);

    let log = refused(&with_credentials(&config, "reader", "a guess"));
    for part in [cluster.bootstrap.as_str(), "credentials", "kafka.properties"] {
        assert!(log.contains(part), "no {part:?} in\n{log}");
    }
    assert!(!log.contains("a guess"), "the password is in the log");

    // A name without any right does not see that there are topics.
    let log = refused(&with_credentials(&config, "reader", "reader"));
    assert!(log.contains(&format!("{prefix}-in")), "{log}");

    let service = Tidegate::run(&with_credentials(&config, "admin", "admin"), &[]);
    cluster.produce(&format!("{prefix}-in"), &Feed::new(Order::Disorder, 9).take(1_000));
    finish(&cluster, prefix, service);
    check_complete(&cluster, prefix);
}

#[test]
fn a_topic_that_is_deleted_under_way_ends_it_with_its_name() {
    for suffix in ["out", "in"] {
        let prefix = format!("deleted-{suffix}");
        let cluster = Cluster::new(Broker::shared());
        create_topics(&cluster, &prefix);
        let mut service = Tidegate::run(&config(&cluster.bootstrap, &prefix), &[]);
        let feeding =
            Feeding::start(&cluster, &format!("{prefix}-in"), Feed::new(Order::Disorder, 10));
        read_on(&mut service, 300.0);
        if suffix == "in" {
            feeding.finish();
        }
        let gone = format!("{prefix}-{suffix}");
        cluster.delete(&gone);
        let clock = Clock::start();
        let status = service.wait();
        let log = service.log();
        println!(
            "deleted {suffix}: {status} after {:?}: {}",
            clock.monotonic().0,
            log.lines().last().unwrap()
        );
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.lines().last().unwrap().contains(&gone), "{log}");
    }
}
