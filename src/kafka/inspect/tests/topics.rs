//! Topics and their settings.

use super::*;

#[test]
fn topics_that_are_not_there() {
    let missing = |facts: &mut Facts| {
        facts.topics.insert("out".to_owned(), Found::Missing);
    };
    with(missing, "fault", &["results `out`: missing topics: `out`; create them", "topics.create"]);
    let creation = |said: Result<(), String>| {
        move |facts: &mut Facts| {
            facts.topics.insert("out".to_owned(), Found::Missing);
            let creation = Creation { partitions: 4, replicas: None, settings: String::new() };
            facts.creations.insert("out".to_owned(), said.map(|()| creation));
        }
    };
    with(
        creation(Ok(())),
        "note",
        &["the service will create it: 4 partitions, as many replicas as"],
    );
    let refused = || Err("Broker: Policy violation".to_owned());
    with(
        creation(refused()),
        "fault",
        &["topic `out` could not be created: Broker: Policy violation"],
    );
    let hidden = |facts: &mut Facts| {
        facts.topics.insert("in".to_owned(), Found::Hidden);
    };
    with(hidden, "fault", &["the brokers refuse operation Read on topic `in`"]);
    let unknown = |facts: &mut Facts| {
        facts.topics.insert("in".to_owned(), Found::Unknown("no answer".to_owned()));
    };
    with(unknown, "not looked at", &["input `in`: no answer"]);
}

#[test]
fn topics_of_which_something_is_missing() {
    with(
        |facts| change(facts, "in", |topic| topic.leaderless = vec![1]),
        "fault",
        &["input `in`: no broker leads partition 1"],
    );
    with(
        |facts| change(facts, "late", |topic| topic.settings = None),
        "warning",
        &["late `late`: the settings cannot be read (operation DescribeConfigs on the topic)"],
    );
    with(
        |facts| change(facts, "in", |topic| topic.settings = None),
        "not looked at",
        &["input `in`: the settings (operation DescribeConfigs on the topic)"],
    );
    with(
        set("out", &[("min.insync.replicas", "2")]),
        "fault",
        &["min.insync.replicas is 2, and there is only 1 replica"],
    );
    with(
        |facts| {
            change(facts, "out", |topic| {
                topic.replicas = 3;
                topic.settings = Some(settings(&[("min.insync.replicas", "2")]));
            });
        },
        "fault",
        &["1 replica of a partition in sync, fewer than min.insync.replicas = 2"],
    );
    with(
        without("in", Operation::Read),
        "fault",
        &["the brokers refuse operation Read on topic `in`"],
    );
    with(
        without("out", Operation::Write),
        "fault",
        &["the brokers refuse operation Write on topic `out`"],
    );
    with(
        |facts| change(facts, "out", |topic| topic.rights = None),
        "not looked at",
        &["results `out`: rights (Write on the topic)"],
    );
}

#[test]
fn settings_of_the_input() {
    let arrival = [("message.timestamp.type", "LogAppendTime")];
    with(set("in", &arrival), "warning", &["input `in`", "the time of arrival", "CreateTime"]);
    let mut by_field = config(&[]);
    by_field.sources[0].timestamp.from = TimestampFrom::Field("ts".parse().unwrap());
    let mut facts = good();
    set("in", &arrival)(&mut facts);
    assert!(!lines(&by_field, &facts).iter().any(|line| line.starts_with("warning")));
    with(set("in", &[("cleanup.policy", "compact")]), "note", &["input `in`: it is compacted"]);
}

#[test]
fn settings_of_the_outputs() {
    let compact = [("cleanup.policy", "compact")];
    with(
        set("out", &compact),
        "warning",
        &["results have the key alone", "results.key = \"key_window\""],
    );
    let upsert = config(&["results.key=key_window"]);
    let mut facts = good();
    set("out", &compact)(&mut facts);
    assert!(!lines(&upsert, &facts).iter().any(|line| line.contains("it is compacted")));
    with(set("late", &compact), "fault", &["late `late`", "refuses records without a key"]);
    with(set("dead", &compact), "fault", &["dead letters `dead`", "cleanup.policy=delete"]);
    let arrival = [("message.timestamp.type", "LogAppendTime")];
    with(set("out", &arrival), "warning", &["results", "not the end of their window"]);
    with(set("late", &arrival), "warning", &["late", "lose the timestamp"]);
    with(
        set("dead", &[("message.timestamp.after.max.ms", "1500")]),
        "warning",
        &["message.timestamp.after.max.ms is 1.5 s"],
    );
    with(set("out", &[("max.message.bytes", "200")]), "fault", &["up to 200 bytes", "dead letter"]);
    with(set("out", &[("max.message.bytes", "9000")]), "warning", &["batches of up to 9000 bytes"]);
    with(
        set("dead", &[("max.message.bytes", "500000")]),
        "warning",
        &[
            "the input has messages of up to 1048588 bytes, this topic takes 500000",
            "without their payload",
        ],
    );
}

#[test]
fn retention_of_results_against_their_windows() {
    with(
        set("out", &[("retention.ms", "1800000")]),
        "warning",
        &["keeps records for 30 min, and a window lasts 1 h", "retention.ms"],
    );
    let late = config(&["window.allowed_lateness=3h"]);
    with_config(
        &late,
        set("out", &[("retention.ms", "21600000")]),
        "warning",
        &["may come 181 min after the end of their window", "retention.ms is 6 h", "the present"],
    );
    with_config(
        &late,
        set("out", &[("message.timestamp.before.max.ms", "3600000")]),
        "warning",
        &["message.timestamp.before.max.ms is 1 h", "set message.timestamp.before.max.ms to more"],
    );
    let mut facts = good();
    set("out", &[("retention.ms", "-1")])(&mut facts);
    assert!(!lines(&late, &facts).iter().any(|line| line.starts_with("warning")));
}

#[test]
fn the_changelog() {
    with(
        set("g-in-changelog", &[("cleanup.policy", "compact,delete"), ("retention.bytes", "5")]),
        "fault",
        &["keeps the window state and must not have retention.ms = 604800000", "set it to -1"],
    );
    with(
        set("g-in-changelog", &[("retention.ms", "-1")]),
        "warning",
        &["best kept with cleanup.policy=compact,delete"],
    );
    let small = [&CHANGELOG[..], &[("max.message.bytes", "5000")]].concat();
    with(set("g-in-changelog", &small), "warning", &["changelog", "batches of up to 5000 bytes"]);
    with(
        without("g-in-changelog", Operation::Delete),
        "warning",
        &["operation Delete", "compaction alone"],
    );
    let fewer = |facts: &mut Facts| change(facts, "g-in-changelog", |topic| topic.partitions = 1);
    with(fewer, "note", &["it has 1 partition, and the input 2: the service will add"]);
    with(
        |facts| {
            fewer(facts);
            without("g-in-changelog", Operation::Alter)(facts);
        },
        "fault",
        &["the brokers refuse operation Alter on topic `g-in-changelog`"],
    );
    with(
        |facts| change(facts, "in", |topic| topic.replicas = 3),
        "warning",
        &["changelog", "it has 1 replica, and the input 3"],
    );
}

#[test]
fn what_a_source_says_of_partitions_and_topics_that_are_not_there() {
    let own =
        config(&["source[0].partitions[0].ids=1,7,9", "source[0].partitions[0].idle_timeout=5m"]);
    let parts =
        ["input `in`: source.partitions has terms for partition 7, and it has 2 partitions"];
    with_config(&own, |_| {}, "warning", &parts);
    let pattern = [
        "source[1].pattern=^orders-.*",
        "source[1].timestamp.from=record",
        "source[1].watermark.max_out_of_orderness=1m",
    ];
    let pattern = config(&pattern);
    with_config(&pattern, |_| {}, "warning", &["input `^orders-.*`: no topic matches it yet"]);
    let inputs = Inputs::new(&pattern);
    inputs.admit(["orders-eu"]).unwrap();
    let there = |facts: &mut Facts| {
        facts.topics.insert("orders-eu".to_owned(), Found::There(topic(3, &[])));
    };
    let pattern = pattern.with_topics_of(&inputs);
    with_config(&pattern, there, "ok", &["input `^orders-.*`: 1 topic matches it"]);
    with_config(&pattern, there, "ok", &["input `orders-eu`: 3 partitions"]);
}
