//! `check --connect`: what it says of clusters that are new, at work, or wrong; that it disturbs nobody, and says what the
//! service would.

use std::time::Duration;

use tidegate::clock::Clock;

use super::refusals::{ADMIN, guarded_broker, with_credentials};
use crate::support::cluster::Cluster;
use crate::support::job::{Job, event, keyed};
use crate::support::process::{Tidegate, tidegate};

/// The exit code and the lines.
pub(super) struct Said {
    pub(super) code: Option<i32>,
    pub(super) text: String,
}

impl Said {
    /// The line with this verdict that has all of these.
    pub(super) fn has(&self, verdict: &str, parts: &[&str]) -> &Self {
        let is_it = |line: &&str| {
            line.starts_with(&format!("{verdict:<13}  "))
                && parts.iter().all(|part| line.contains(part))
        };
        assert!(
            self.text.lines().any(|line| is_it(&line)),
            "no {verdict} {parts:?} in\n{}",
            self.text
        );
        self
    }

    /// No line with this verdict.
    pub(super) fn has_no(&self, verdict: &str) -> &Self {
        let begins = format!("{verdict:<13}  ");
        assert!(
            !self.text.lines().any(|line| line.starts_with(&begins)),
            "{verdict} in\n{}",
            self.text
        );
        self
    }
}

pub(super) fn check(config: &str, more: &[&str]) -> Said {
    let clock = Clock::start();
    let output = tidegate("check", config, &[&["--connect"], more].concat());
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    println!("{text}(after {:?})\n", clock.monotonic().0);
    Said { code: output.status.code(), text }
}

/// What a service with this configuration ends with.
fn last_words(config: &str) -> String {
    let mut service = Tidegate::run(config, &[]);
    let status = service.wait();
    let log = service.log();
    assert_eq!(status.code(), Some(1), "{log}");
    log.lines().last().unwrap().to_owned()
}

#[test]
fn a_cluster_without_topics_is_told_what_would_be_created_and_stays_as_it_is() {
    let job = Job::without_topics("check-fresh");
    let missing = check(&job.config, &[]);
    assert_eq!(missing.code, Some(1));
    for topic in ["in", "out", "late", "dead"] {
        missing.has("fault", &[&format!("missing topics: `check-fresh-{topic}`"), "topics.create"]);
    }
    assert!(last_words(&job.config).contains("missing topics: `check-fresh-in`"));

    let creating = format!("{}\n[topics]\ncreate = true\npartitions = 3", job.config);
    let created = check(&creating, &[]);
    assert_eq!(created.code, Some(0), "{}", created.text);
    created
        .has("note", &["input `check-fresh-in`", "the service will create it: 3 partitions"])
        .has("note", &["results `check-fresh-out`", "3 partitions"])
        .has(
            "note",
            &["changelog `check-fresh-check-fresh-in-changelog`", "1 partition", "compact"],
        )
        .has("ok", &["brokers", "1 of 1 broker answers"])
        .has("ok", &["group `check-fresh`", "the service will begin it"])
        .has("not looked at", &["clock", "--write-probe"])
        .has_no("fault");

    let too_many = check(&creating, &["--set", "topics.replication_factor=3"]);
    assert_eq!(too_many.code, Some(1));
    too_many.has("fault", &["topic `check-fresh-out` could not be created", "replication factor"]);
    assert_eq!(job.cluster.topics("check-fresh"), []);
}

#[test]
fn a_service_at_work_is_found_well_and_not_disturbed_by_a_probe() {
    let job = Job::new("check-at-work", 2).replace("fields = [\"k\"]", "from = \"message\"");
    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "a", 1_000, 1), keyed(1, "b", 2_000, 2), keyed(1, "b", 12_000, 4)]);
    job.wait_until_committed(2, &mut service);
    let topics = job.cluster.topics("check-at-work");
    let rebalances = service.metric_sum("tidegate_rebalances_total", "");

    let said = check(&job.config, &["--write-probe"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    said.has(
        "ok",
        &["group `check-at-work`", "Stable with 1 member by the classic protocol: tidegate-"],
    )
    .has("ok", &["offsets `check-at-work`", "2 of 2 partitions", "0 records behind"])
    .has("ok", &["state", "entries of open windows in 2 shards"])
    .has("ok", &["changelog `check-at-work-check-at-work-in-changelog`", "2 partitions"])
    .has("ok", &["transactions", "15 s", "15 min"])
    .has("ok", &["transactions", "read back by a read_committed reader"])
    .has("ok", &["clock", "the clock of the broker is"])
    .has("note", &["has a member at work"])
    .has_no("warning")
    .has_no("fault")
    .has_no("not looked at");
    let json = tidegate("check", &job.config, &["--connect", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| {
        finding["verdict"] == "ok"
            && finding["check"] == "input"
            && finding["subject"] == "check-at-work-in"
    }));
    assert!(findings.iter().any(|finding| finding["verdict"] == "not_looked_at"), "{json}");

    // The probe's topic is gone, and the service goes on as if nobody had looked.
    assert_eq!(job.cluster.topics("check-at-work"), topics);
    job.produce(&[keyed(0, "a", 25_000, 8), keyed(1, "b", 25_000, 8)]);
    job.wait_until_committed(2, &mut service);
    assert!((service.metric_sum("tidegate_rebalances_total", "") - rebalances).abs() < 0.5);
    let log = service.stop();
    assert!(!log.contains("another instance") && !log.contains("\"ERROR\""), "{log}");
}

#[test]
fn topics_with_settings_that_do_not_fit_are_named_with_what_to_do() {
    let name = "check-unfit";
    let job = Job::without_topics(name)
        .replace("fields = [\"k\"]", "from = \"message\"")
        .replace("size = \"10s\"", "size = \"3h\"")
        .replace("max_out_of_orderness = \"0s\"", "max_out_of_orderness = \"2h\"");
    job.create("in", 3, &[]);
    let settings = [
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "3600000"),
        ("max.message.bytes", "200"),
    ];
    job.create("out", 1, &[&settings[..], &[("message.timestamp.type", "LogAppendTime")]].concat());
    job.create(
        "late",
        1,
        &[("message.timestamp.after.max.ms", "1000"), ("max.message.bytes", "2000")],
    );
    job.create("dead", 1, &[("cleanup.policy", "compact"), ("min.insync.replicas", "2")]);
    job.cluster.create(
        &job.changelog(),
        1,
        &[("retention.ms", "60000"), ("cleanup.policy", "delete")],
    );

    let said = check(&job.config, &["--set", "delivery.transaction_timeout=20m"]);
    assert_eq!(said.code, Some(1));
    said.has(
        "warning",
        &["results `check-unfit-out`", "only the newest window stays", "key_window"],
    )
    .has("warning", &["results", "keeps records for 1 h, and a window lasts 3 h"])
    .has("warning", &["results", "may come 2 h after", "retention.ms is 1 h"])
    .has("warning", &["results", "LogAppendTime", "CreateTime"])
    .has("fault", &["results", "up to 200 bytes", "becomes a dead letter"])
    .has("warning", &["late `check-unfit-late`", "message.timestamp.after.max.ms is 1 s"])
    .has("warning", &["late", "this topic takes 2000", "without their payload"])
    .has("fault", &["dead letters `check-unfit-dead`", "refuses records without a key"])
    .has("fault", &["dead letters", "min.insync.replicas is 2", "takes no record"])
    .has("warning", &["changelog", "cleanup.policy=compact,delete"])
    .has("note", &["changelog", "it has 1 partition, and the input 3"])
    .has("fault", &["transactions", "transaction_timeout is 20 min", "at most 15 min"]);
    // What the service ends with is said by both, in the same words.
    let words = "keeps the window state and must not have retention.ms = 60000";
    said.has("fault", &["changelog", words]);
    let last = last_words(&job.config);
    assert!(last.contains(words), "{last}");
    assert_eq!(job.cluster.topics(&job.changelog()), [(job.changelog(), 1)]);
}

#[test]
fn state_and_offsets_that_do_not_fit_are_found_as_a_start_would_find_them() {
    let job = Job::new("check-state", 1);
    let mut service = job.run(&[]);
    job.produce(&[event(0, "a", 1_000, 1), event(0, "b", 2_000, 2), event(0, "c", 3_000, 4)]);
    job.wait_until_committed(1, &mut service);
    service.stop();
    check(&job.config, &[])
        .has("ok", &["state: fits this configuration: 3 entries of open windows in 1 shard"])
        .has("ok", &["group `check-state`", "nobody is in it"])
        .has_no("fault");

    let other = job.config.replace("size = \"10s\"", "size = \"20s\"");
    let said = check(&other, &[]);
    assert_eq!(said.code, Some(1));
    let said = said.has("fault", &["state", "the window state cannot be restored", "until-end"]);
    let found = said.text.lines().find(|line| line.contains("cannot be restored")).unwrap();
    let last = last_words(&other);
    let theirs = found.split("state: ").nth(1).unwrap();
    assert!(last.contains(theirs), "{theirs}\n{last}");

    job.cluster.commit("check-state", "check-state-in", 0, 1);
    let moved = check(&job.config, &[]);
    assert_eq!(moved.code, Some(1));
    moved.has("fault", &["state", "somebody has moved it", "tidegate reset"]);
    job.cluster.commit("check-state", "check-state-in", 0, 99);
    check(&job.config, &[]).has("fault", &["offsets", "the group has committed 99"]);
}

#[test]
fn refused_credentials_missing_rights_and_absent_brokers_are_told_apart() {
    let broker = guarded_broker();
    let cluster = Cluster::with(broker.bootstrap(), &ADMIN);
    let shared = Job::without_topics("check-guarded");
    let config = shared.config.replace(&shared.cluster.bootstrap, &cluster.bootstrap);
    let config = config.replace("[[source]]", "[kafka.consumer.properties]\n[[source]]");
    for topic in ["in", "out", "late", "dead"] {
        cluster.create(&format!("check-guarded-{topic}"), 1, &[]);
    }

    let said = check(&with_credentials(&config, "reader", "a guess"), &[]);
    assert_eq!(said.code, Some(1));
    said.has("fault", &["credentials", &cluster.bootstrap, "kafka.properties"])
        .has("not looked at", &["results"])
        .has("not looked at", &["group"]);
    assert!(!said.text.contains("a guess"), "the password is in the list");

    let said = check(&with_credentials(&config, "reader", "reader"), &["--write-probe"]);
    assert_eq!(said.code, Some(1));
    said.has("ok", &["credentials", "`reader`", "PLAIN"])
        .has("fault", &["input", "operation Read on topic `check-guarded-in`"])
        .has("fault", &["results", "operation Write on topic `check-guarded-out`"])
        .has("fault", &["group", "operation Read on group `check-guarded`"])
        .has("not looked at", &["transactions", "operation DescribeConfigs on the cluster"])
        .has("not looked at", &["transactions", "could not be created", "`check-guarded-check-`"]);

    // A cluster that has had no group and no transaction is left so.
    let admin = with_credentials(&config, "admin", "admin");
    check(&admin, &[])
        .has("ok", &["group `check-guarded`", "is not there"])
        .has("ok", &["offsets", "none yet: the service begins at the oldest record of 1 partition"])
        .has("ok", &["state", "no changelog yet"])
        .has_no("fault");
    assert_eq!(cluster.topics("__"), []);
    let said = check(&admin, &["--write-probe"]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    said.has("ok", &["input `check-guarded-in`"]).has("ok", &["clock"]).has_no("fault");

    let clock = Clock::start();
    let said = check(&config.replace(&cluster.bootstrap, "127.0.0.1:1"), &["--timeout", "2s"]);
    assert!(clock.monotonic().0 < Duration::from_secs(20));
    assert_eq!(said.code, Some(1));
    said.has(
        "fault",
        &[
            "brokers",
            "no broker at 127.0.0.1:1 answers within 2 s",
            "Connection refused",
            "bootstrap_servers",
        ],
    )
    .has("not looked at", &["state"])
    .has("not looked at", &["transactions"]);
}
