//! Records that cannot be used: none of them ends the service, each is in the dead-letter topic as it came.

use std::collections::BTreeMap;

use crate::support::cluster::Record;
use crate::support::job::{Job, event, noise, panes, total, wait_for_total};

/// 2025-06-15, on the minute.
const NOW: i64 = 1_750_000_020_000;
const PARTITIONS: i32 = 3;

/// A payload, and what its dead letter says; `None` where the record is used, or is a tombstone.
struct Case {
    payload: Option<Vec<u8>>,
    refused: Option<(&'static str, &'static str)>,
}

fn refused(payload: impl Into<Vec<u8>>, reason: &'static str, detail: &'static str) -> Case {
    Case { payload: Some(payload.into()), refused: Some((reason, detail)) }
}

fn used(payload: impl Into<Vec<u8>>) -> Case {
    Case { payload: Some(payload.into()), refused: None }
}

fn cases() -> Vec<Case> {
    let with_ts = |ts: &str| format!(r#"{{"k":"a","ts":{ts},"v":1}}"#);
    let with = |k: &str, v: &str| format!(r#"{{"k":{k},"ts":{NOW},"v":{v}}}"#);
    let deep =
        |levels: usize| format!(r#"{{"k":"a","x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    vec![
        refused("", "empty_payload", "no bytes"),
        refused("{", "bad_json", "EOF"),
        refused(r#"{"k":"a","ts":17500000"#, "bad_json", "EOF"),
        refused("{} {}", "bad_json", "trailing"),
        refused("<xml/>", "bad_json", "expected value"),
        refused([0, 0, 0, 0, 7, 2, 97], "bad_json", "expected value"),
        refused(deep(100_000), "too_deep", "127"),
        refused("[".repeat(100_000), "too_deep", "127"),
        refused(*b"{\"k\":\"\xff\xfe\",\"ts\":1}", "bad_utf8", "invalid utf-8"),
        refused("null", "not_object", "no object"),
        refused("[1]", "not_object", "no object"),
        refused("17", "not_object", "no object"),
        refused("\"text\"", "not_object", "no object"),
        refused(r#"{"k":"a","v":1}"#, "ts_missing", "`ts`"),
        refused(with_ts("null"), "ts_missing", "`ts`"),
        refused(with_ts("\"2025-06-15T15:07:00Z\""), "ts_invalid", "is a text"),
        refused(with_ts("true"), "ts_invalid", "true"),
        refused(with_ts("{}"), "ts_invalid", "{}"),
        refused(with_ts("NaN"), "bad_json", "expected"),
        // Seconds, before 1970, after 2200, beyond 64 bits.
        refused(with_ts("1750000020"), "ts_past", "unit = \"s\""),
        refused(with_ts("1750000020000000"), "ts_future", "unit = \"us\""),
        refused(with_ts("-1"), "ts_past", "1969-12-31T23:59:59.999Z"),
        refused(with_ts("0"), "ts_past", "1970-01-01"),
        refused(with_ts("7258118400000"), "ts_future", "2200-01-01"),
        refused(with_ts("9223372036854775807"), "ts_future", "9223372036854775807"),
        refused(with_ts("-9223372036854775808"), "ts_past", "-9223372036854775808"),
        refused(with_ts("9223372036854775808"), "ts_out_of_range", "9223372036854775808"),
        refused(with_ts("1e300"), "ts_invalid", "1e300"),
        refused(format!(r#"{{"ts":{NOW},"v":1}}"#), "key_missing", "`k`"),
        refused(with("null", "1"), "key_missing", "`k`"),
        refused(with("[\"a\"]", "1"), "key_type", "[\"a\"]"),
        refused(with("1.5", "1"), "key_type", "1.5"),
        refused(format!(r#"{{"k":"a","ts":{NOW}}}"#), "value_missing", "`v`"),
        refused(with("\"a\"", "\"1\""), "value_type", "\"1\""),
        refused(with("\"a\"", "false"), "value_type", "false"),
        refused(with("\"a\"", "9223372036854775808"), "value_out_of_range", "9223372036854775808"),
        refused(with("\"a\"", "1e400"), "value_out_of_range", "1e400"),
        refused(with("\"a\"", "1,\"v\":2"), "duplicate_field", "`v`"),
        refused(with("\"a\",\"k\":\"b\"", "1"), "duplicate_field", "`k`"),
        Case { payload: None, refused: None },
        used(format!("\u{feff}{}", with("\"byte order mark\"", "1"))),
        used(with("\"beyond 2^53\"", "9007199254740993")),
        used(with("\"\"", "9223372036854775807")),
        used(with("\"twice\"", "1,\"x\":1,\"x\":2")),
    ]
}

/// Each case with a key and headers, and a good record after it in the same partition.
fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for (number, case) in cases().into_iter().enumerate() {
        let partition = i32::try_from(number).unwrap() % PARTITIONS;
        let (name, value) = (format!("trace-{number}"), number.to_string().into_bytes());
        records.push(Record {
            partition,
            key: (number % 5 != 0).then(|| vec![0xFF, 0, u8::try_from(number).unwrap()]),
            payload: case.payload,
            headers: vec![
                (name.clone(), Some(value)),
                ("empty".to_owned(), Some(Vec::new())),
                (name, None),
            ],
            ..Record::default()
        });
        records.push(event(partition, &format!("after {number}"), NOW, 1));
    }
    records
}

fn job(name: &'static str) -> Job {
    Job::new(name, PARTITIONS)
        .replace("min_timestamp = \"off\"", "min_timestamp = \"2000-01-01T00:00:00Z\"")
}

/// What was written is where it belongs.
fn check(job: &Job) {
    let input = job.read("in");
    let cases = cases();
    let mut letters: BTreeMap<_, _> = BTreeMap::new();
    for letter in job.read("dead") {
        let number = |name: &str| letter.header(name).unwrap().parse::<i64>().unwrap();
        let place =
            (i32::try_from(number("tidegate.partition")).unwrap(), number("tidegate.offset"));
        assert_eq!(letter.header("tidegate.topic"), Some(job.topic("in")));
        assert!(letters.insert(place, letter).is_none(), "twice: {place:?}");
    }
    for record in &input {
        let Some((name, number)) = record.headers.first() else { continue };
        let number: usize = String::from_utf8(number.clone().unwrap()).unwrap().parse().unwrap();
        let letter = letters.remove(&(record.partition, record.offset));
        let Some((reason, detail)) = cases[number].refused else {
            assert_eq!(letter, None, "{name} was used");
            continue;
        };
        let letter = letter.unwrap_or_else(|| panic!("no dead letter of {name} ({reason})"));
        assert_eq!(letter.header("tidegate.reason").as_deref(), Some(reason), "{name}");
        let said = letter.header("tidegate.detail").unwrap();
        assert!(said.contains(detail), "{name}: {said}");
        assert!(letter.payload == record.payload, "{name}: the payload is as it came");
        assert_eq!(letter.key, record.key, "{name}");
        assert_eq!(letter.headers[..record.headers.len()], record.headers, "{name}");
        assert_eq!(letter.timestamp, record.timestamp, "{name}");
    }
    assert!(letters.is_empty(), "of good records: {letters:?}");

    let names: Vec<_> = (0..cases.len()).map(|number| format!("after {number}")).collect();
    let mut expected: Vec<_> = names.iter().map(|key| (NOW, key.as_str(), 1, 1)).collect();
    expected.extend([
        (NOW, "byte order mark", 1, 1),
        (NOW, "beyond 2^53", 1, 9_007_199_254_740_993),
        (NOW, "", 1, i64::MAX),
        (NOW, "twice", 1, 1),
    ]);
    assert_eq!(job.panes(), panes(&expected));
}

#[test]
fn bad_records_end_in_the_dead_letter_topic_as_they_came() {
    let job = job("bad-to-end");
    job.produce(&records());
    let log = job.run_to_end(&[]);
    assert!(!log.contains("aborted"), "{log}");
    check(&job);
    assert_eq!(job.committed(PARTITIONS), job.ends(PARTITIONS));
}

#[test]
fn bad_records_are_behind_a_service_that_is_started_again() {
    let job = job("bad-live");
    let mut service = job.run(&[]);
    let mut records = records();
    records.extend((0..PARTITIONS).map(|partition| event(partition, "closing", NOW + 10_000, 1)));
    // The last of each partition is a bad one.
    records.extend((0..PARTITIONS).map(|partition| Record {
        headers: vec![("trace".to_owned(), Some(b"1".to_vec()))],
        ..Record::of(partition, "{")
    }));
    job.produce(&records);
    let bad = cases().iter().filter(|case| case.refused.is_some()).count() + 3;
    let dead_letters = "tidegate_dead_letter_records_total";
    wait_for_total(&mut service, dead_letters, "", i64::try_from(bad).unwrap());
    for (reason, many) in [("bad_json", 9), ("ts_past", 4), ("too_deep", 2), ("key_type", 2)] {
        assert_eq!(total(&mut service, dead_letters, &format!("\"{reason}\"")), many, "{reason}");
    }
    assert_eq!(total(&mut service, "tidegate_tombstones_total", ""), 1);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    assert_eq!(service.get("/livez").0, 200);
    service.stop();
    check(&job);
    assert_eq!(job.committed(PARTITIONS), job.ends(PARTITIONS));

    // Nothing is refused a second time.
    let before = job.read("dead").len();
    job.run_to_end(&[]);
    assert_eq!(job.read("dead").len(), before);
}

#[test]
fn a_message_key_that_is_no_text_is_refused() {
    let job = Job::new("bad-keys", 1).replace("fields = [\"k\"]", "from = \"message\"");
    let keys = [None, Some(vec![0xFF]), Some(Vec::new()), Some(b"a".to_vec())];
    let record = |key: &Option<Vec<u8>>| Record {
        key: key.clone(),
        ..Record::of(0, r#"{"ts":1000,"v":1}"#)
    };
    job.produce(&keys.iter().map(record).collect::<Vec<_>>());
    job.run_to_end(&[]);
    let refused: Vec<_> = job
        .read("dead")
        .into_iter()
        .map(|letter| (letter.header("tidegate.reason").unwrap(), letter.key, letter.offset))
        .collect();
    let expected =
        [("key_missing".to_owned(), None, 0), ("key_type".to_owned(), Some(vec![0xFF]), 1)];
    assert_eq!(refused, expected);
    let keys: Vec<_> = job.read("out").iter().map(|record| record.json()["key"].clone()).collect();
    assert_eq!(keys, ["", "a"]);
}

const LARGE: (&str, &str) = ("max.message.bytes", "20000000");

fn large_input(name: &'static str, dead_letter_settings: &[(&str, &str)]) -> Job {
    let job = Job::without_topics(name);
    job.create("in", 1, &[LARGE]);
    job.create("out", 1, &[]);
    job.create("late", 1, &[]);
    job.create("dead", 1, dead_letter_settings);
    job
}

#[test]
fn ten_megabytes_of_json_are_a_record_like_any_other() {
    let job = large_input("large-good", &[]);
    let unread = noise(10_000_000);
    let large = |ts: i64, k: &str| {
        Record::of(0, format!(r#"{{"ts":{ts},"unread":"{unread}","v":1,"k":"{k}"}}"#))
    };
    job.produce(&[large(1_000, "large"), event(0, "small", 2_000, 1), large(3_000, "large")]);
    job.run_to_end(&[]);
    assert_eq!(job.panes(), panes(&[(0, "large", 2, 2), (0, "small", 1, 1)]));
    assert!(job.read("dead").is_empty());
}

#[test]
fn a_dead_letter_too_large_for_its_topic_goes_without_its_payload() {
    let job = large_input("large-bad", &[]);
    let bad = Record {
        key: Some(b"key".to_vec()),
        headers: vec![("trace".to_owned(), Some(b"1".to_vec()))],
        ..Record::of(0, format!(r#"{{"ts":1000,"unread":"{}"#, noise(10_000_000)))
    };
    let size = bad.payload.as_ref().unwrap().len();
    job.produce(&[bad.clone(), event(0, "a", 2_000, 1)]);
    let log = job.run_to_end(&[]);
    assert!(!log.contains("aborted"), "{log}");
    assert_eq!(job.panes(), panes(&[(0, "a", 1, 1)]));
    let [letter] = &job.read("dead")[..] else { panic!("one dead letter") };
    assert_eq!((&letter.key, &letter.payload), (&bad.key, &None));
    assert_eq!(letter.header("trace").as_deref(), Some("1"));
    assert_eq!(letter.header("tidegate.reason").as_deref(), Some("bad_json"));
    assert_eq!(letter.header("tidegate.offset").as_deref(), Some("0"));
    assert_eq!(letter.header("tidegate.payload.omitted"), Some(size.to_string()));
}

/// Each topic has a limit of its own: what the results topic would not take is no reason to shorten a dead letter.
#[test]
fn a_large_dead_letter_goes_whole_where_its_topic_takes_it() {
    let job = large_input("large-bad-whole", &[LARGE]);
    let bad = Record::of(0, format!(r#"{{"ts":1000,"unread":"{}"#, noise(10_000_000)));
    job.produce(&[bad.clone(), event(0, "a", 2_000, 1)]);
    let log = job.run_to_end(&[]);
    assert!(!log.contains("aborted"), "{log}");
    assert_eq!(job.panes(), panes(&[(0, "a", 1, 1)]));
    let [letter] = &job.read("dead")[..] else { panic!("one dead letter") };
    assert!(letter.payload == bad.payload);
}
