//! Several sources, what differs within one of them, and what cannot be together.

use std::time::Duration;

use super::{EXAMPLE, check_fault, load_text};
use crate::codec::changelog::layout;
use crate::config::{Config, Inputs};
use crate::event_time::WatermarkStrategy;

/// The example with one more source.
fn with(source: &str) -> String {
    EXAMPLE.replacen(
        "[window]",
        &format!(
            "[[source]]\n{source}\ntimestamp = {{ field = \"at\", unit = \"rfc3339\" }}\n\
             watermark = {{ max_out_of_orderness = \"5s\", idle_timeout = \"10s\" }}\n[window]"
        ),
        1,
    )
}

fn load(text: &str, overrides: &[&str]) -> Config {
    let loaded = load_text(text, overrides);
    loaded.unwrap_or_else(|faults| panic!("{faults:#?}")).config
}

const TWO: &str = "topics = [\"charters\", \"ferries\"]\nfields = { origin = \"from\" }";

#[test]
fn each_topic_is_read_by_the_terms_of_its_source() {
    let config = load(&with(TWO), &[]);
    let topics: Vec<_> = config.sources.iter().map(|source| source.topic.as_str()).collect();
    assert_eq!(topics, ["flights", "charters", "ferries"]);
    assert_eq!(config.sources.iter().map(|source| source.table).collect::<Vec<_>>(), [0, 1, 1]);
    let path = |source: usize| config.sources[source].path("origin").unwrap().to_string();
    assert_eq!((path(0), path(1)), ("airport.from".to_owned(), "from".to_owned()));
    let timeouts: Vec<_> = config.sources.iter().map(|source| source.idle_timeout).collect();
    assert_eq!(timeouts, [30, 10, 10].map(|seconds| Some(Duration::from_secs(seconds))));
    assert_eq!(config.first_named(), Some("flights"));
}

#[test]
fn a_topic_belongs_to_one_source_and_the_fault_names_both() {
    let twice = "\"flights\" is also in source[0].topic";
    check_fault(load_text(&with("topic = \"flights\""), &[]), "source[1].topic", &[twice]);
    let list = with("topics = [\"charters\", \"flights\"]");
    check_fault(load_text(&list, &[]), "source[1].topics[1]", &[twice]);
    let own = with("topics = [\"charters\", \"charters\"]");
    check_fault(load_text(&own, &[]), "source[1].topics[1]", &["source[1].topics[0]"]);
    let matched = ["\"^fli.*\" matches \"flights\"", "source[0].topic", "belongs to one source"];
    let narrow = with("pattern = \"^fli.*\"").replace("flights-", "totals-");
    check_fault(load_text(&narrow, &[]), "source[1].pattern", &matched);
}

#[test]
fn a_source_says_in_one_way_what_it_reads() {
    let two = "topic = \"a\"\npattern = \"^b\"";
    check_fault(load_text(&with(two), &[]), "source[1]", &["more than one of `topic`, `topics`"]);
    check_fault(load_text(&with("topics = []"), &[]), "source[1].topics", &["at least one"]);
    check_fault(load_text(&with("topics = [\"a b\"]"), &[]), "source[1].topics[0]", &["' '"]);
    check_fault(load_text(&with(""), &[]), "source[1].topic", &["`topics`", "`pattern`"]);
    let pattern = "pattern = \"orders-.*\"";
    check_fault(load_text(&with(pattern), &[]), "source[1].pattern", &["begin with \"^\""]);
    let pattern = "pattern = \"^orders-(\"";
    check_fault(load_text(&with(pattern), &[]), "source[1].pattern", &["unclosed group"]);
}

#[test]
fn no_source_reads_what_the_service_writes() {
    let pattern = with("pattern = \"^flights-l.*\"");
    let essentials = ["matches \"flights-late\", the topic of late records", "narrower pattern"];
    check_fault(load_text(&pattern, &[]), "source[1].pattern", &essentials);
    let output = with("topics = [\"charters\", \"flights-late\"]");
    check_fault(load_text(&output, &[]), "late.topic", &["is also an input topic"]);
    let state = with("topic = \"flights-flights-changelog\"");
    check_fault(load_text(&state, &[]), "source[1].topic", &["changelog topic of another input"]);
}

#[test]
fn topics_of_a_pattern_come_by_their_names_and_never_what_the_group_keeps() {
    let config = load(&with("pattern = \"^(orders|__|flights-orders).*\""), &[]);
    assert_eq!(config.sources.len(), 1);
    let inputs = Inputs::new(&config);
    let there = ["orders-b", "orders-a", "__orders", "flights-orders-a-changelog", "ferries"];
    assert_eq!(inputs.admit(there), Ok(2));
    assert_eq!(inputs.names(), ["flights", "orders-a", "orders-b"]);
    assert_eq!(inputs.admit(["flights", "orders-0", "orders-a"]), Ok(1));
    assert_eq!(inputs.number("orders-0"), Some(3), "a number stays what it is");
    let all = config.with_topics_of(&inputs);
    assert_eq!((all.sources[3].table, all.first_named()), (1, Some("flights")));
    assert!(inputs.is_of_pattern(&all.sources[3]) && !inputs.is_of_pattern(&all.sources[0]));
}

#[test]
fn a_topic_of_two_patterns_is_an_error_that_names_both() {
    let third = with("pattern = \"^orders-.*\"").replacen(
        "[window]",
        "[[source]]\npattern = \"^.*-eu\"\ntimestamp = { from = \"record\" }\n\
         watermark = { max_out_of_orderness = \"0s\" }\n[window]",
        1,
    );
    let inputs = Inputs::new(&load(&third, &[]));
    assert_eq!(inputs.admit(["orders-us", "ferries-eu"]), Ok(2));
    let error = inputs.admit(["orders-eu"]).unwrap_err().to_string();
    for essential in ["orders-eu", "`^orders-.*` (source[1]", "`^.*-eu` (source[2]"] {
        assert!(error.contains(essential), "{error}");
    }
    let same = third.replace("^.*-eu", "^orders-.*");
    check_fault(load_text(&same, &[]), "source[2].pattern", &["is also source[1].pattern"]);
}

#[test]
fn message_keys_of_several_topics_are_read_by_one_instance_unless_results_are_partial() {
    let by_message = with(TWO).replace("fields = [\"origin\"]\n\n", "from = \"message\"\n\n");
    assert!(by_message.contains("from = \"message\""));
    let config = load(&by_message, &[]);
    assert!(config.key.needs_all_partitions());
    assert!(layout(&config).as_str().contains("key=message shards=one"));
    let several = ["several topics the records of one message key", "key.partial = true"];
    check_fault(load_text(&by_message, &["service.subtasks=2"]), "service.subtasks", &several);
    let partial = load(&by_message, &["service.subtasks=2", "key.partial=true"]);
    assert!(!partial.key.needs_all_partitions());
    // As before there was a second topic, so the state is gone on with.
    assert!(layout(&partial).as_str().contains("key=message shards=per_partition"));
    let named = ["aggregate[0].name=topic", "key.partial=true"];
    check_fault(load_text(&by_message, &named), "aggregate[0].name", &["its own `topic`"]);
    let export = ["key.partial=true", "export.postgres.table=t", "export.postgres.host=db"];
    check_fault(load_text(&by_message, &export), "export.postgres.table", &["several topics"]);
    let one = load(EXAMPLE, &[]);
    assert!(!one.key.across_topics);
}

#[test]
fn each_source_has_the_fields_that_are_asked_for() {
    // In the second one nothing says where it is, and its name is no path.
    let config = with("topic = \"charters\"")
        .replace("fields = [\"origin\"]", "fields = [\"a..b\"]")
        .replace("origin = \"/airport", "\"a..b\" = \"/airport");
    check_fault(load_text(&config, &[]), "key.fields[0]", &["\"a..b\"", "JSON Pointer"]);
    let unused = load_text(&with("topic = \"charters\"\nfields = { orgin = \"x\" }"), &[]).unwrap();
    assert!(unused.warnings[0].contains("source[1].fields.orgin"), "{:?}", unused.warnings);
}

/// The example with this in its source.
fn within(source: &str) -> String {
    EXAMPLE.replacen("[window]", &format!("{source}\n[window]"), 1)
}

#[test]
fn single_partitions_have_terms_of_their_own() {
    let text = within(
        "[[source.partitions]]\nids = [3, 7]\nmax_out_of_orderness = \"6h\"\n\
         [[source.partitions]]\nids = [0]\nidle_timeout = \"off\"",
    );
    let source = &load(&text, &[]).sources[0];
    assert_eq!(source.partitions.keys().copied().collect::<Vec<_>>(), [0, 3, 7]);
    let hours = |hours| WatermarkStrategy::BoundedOutOfOrderness {
        max_out_of_orderness: Duration::from_hours(hours),
    };
    let of = |partition: i32| {
        let terms = &source.partitions[&partition];
        (format!("{:?}", terms.strategy), terms.idle_timeout)
    };
    assert_eq!(of(3), (format!("{:?}", hours(6)), Some(Duration::from_secs(30))));
    assert_eq!(of(0), (format!("{:?}", hours(3)), None));
    let by_variable =
        ["source[0].partitions[0].ids=1,2", "source[0].partitions[0].idle_timeout=5m"];
    let partitions = &load(EXAMPLE, &by_variable).sources[0].partitions;
    assert_eq!(partitions[&2].idle_timeout, Some(Duration::from_mins(5)));
}

#[test]
fn faults_of_single_partitions_are_named() {
    let bound = "max_out_of_orderness = \"1s\"";
    let cases: [(String, &str, &[&str]); 8] = [
        (format!("ids = [3, 3]\n{bound}"), "[0].ids[1]", &["partition 3 is also in"]),
        (
            format!("ids = [3]\n{bound}\n[[source.partitions]]\nids = [3]\n{bound}"),
            "[1].ids[0]",
            &["source[0].partitions[0].ids[0]"],
        ),
        (format!("ids = [-1]\n{bound}"), "[0].ids[0]", &["no whole number from 0"]),
        (format!("ids = [\"a\"]\n{bound}"), "[0].ids[0]", &["no whole number"]),
        (format!("ids = []\n{bound}"), "[0].ids", &["is missing", "[3, 7]"]),
        (bound.to_owned(), "[0].ids", &["is missing"]),
        ("ids = [3]".to_owned(), "[0]", &["says nothing", "`idle_timeout`"]),
        ("ids = [3]\nidle_timeout = \"0s\"".to_owned(), "[0].idle_timeout", &["\"off\""]),
    ];
    for (text, key, essentials) in cases {
        let loaded = load_text(&within(&format!("[[source.partitions]]\n{text}")), &[]);
        check_fault(loaded, &format!("source[0].partitions{key}"), essentials);
    }
    let ascending = within(&format!("[[source.partitions]]\nids = [3]\n{bound}")).replace(
        "strategy = \"bounded_out_of_orderness\", max_out_of_orderness = \"3h\"",
        "strategy = \"ascending\"",
    );
    let key = "source[0].partitions[0].max_out_of_orderness";
    check_fault(load_text(&ascending, &[]), key, &["is \"ascending\""]);
    let short = within("[[source.partitions]]\nids = [3]\nidle_timeout = \"500ms\"");
    let warnings = load_text(&short, &[]).unwrap().warnings;
    assert!(warnings[0].contains("source[0].partitions: 500ms"), "{warnings:?}");
}

#[test]
fn a_guard_is_that_of_all_sources_where_one_says_nothing_else() {
    let all = load(EXAMPLE, &["guard.max_future=2h"]);
    assert_eq!(all.sources[0].guard, all.guard);
    assert_eq!(all.guard.max_future, Some(Duration::from_hours(2)));
    let own =
        load(EXAMPLE, &["source[0].guard.max_future=10m", "source[0].guard.min_timestamp=off"]);
    assert_eq!(own.guard, load(EXAMPLE, &[]).guard);
    let guard = own.sources[0].guard;
    assert_eq!((guard.max_future, guard.min_timestamp), (Some(Duration::from_mins(10)), None));
    let half = load(EXAMPLE, &["source[0].guard.max_future=off"]);
    let guard = half.sources[0].guard;
    assert_eq!((guard.max_future, guard.min_timestamp), (None, half.guard.min_timestamp));
}

#[test]
fn a_heartbeat_is_told_by_a_field() {
    let text = within("[source.heartbeat]\nfield = \"type\"\nequals = \"heartbeat\"");
    let heartbeat = load(&text, &[]).sources[0].heartbeat.clone().unwrap();
    assert_eq!(heartbeat.field.to_string(), "type");
    assert!(heartbeat.is_activity && !heartbeat.carries_watermark);
    let silent = ["source[0].heartbeat.field=type", "source[0].heartbeat.equals=true"];
    let silent = [&silent[..], &["source[0].heartbeat.counts_as=silence"]].concat();
    assert!(!load(EXAMPLE, &silent).sources[0].heartbeat.clone().unwrap().is_activity);
    let cases: [(&[&str], &str, &str); 3] = [
        (&["source[0].heartbeat.equals=x"], "field", "is missing"),
        (&["source[0].heartbeat.field=x"], "equals", "is missing"),
        (
            &[
                "source[0].heartbeat.field=x",
                "source[0].heartbeat.equals=x",
                "source[0].heartbeat.counts_as=active",
            ],
            "counts_as",
            "none of \"activity\", \"silence\"",
        ),
    ];
    for (overrides, key, essential) in cases {
        let key = format!("source[0].heartbeat.{key}");
        check_fault(load_text(EXAMPLE, overrides), &key, &[essential]);
    }
}
