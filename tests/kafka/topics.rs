//! What topics are like: limits, retention, transactions, offsets, partitions, names.

use std::time::{Duration, SystemTime};

use rdkafka::producer::Producer as _;
use serde_json::json;

use crate::support::cluster::Record;
use crate::support::job::{Job, event, noise, panes, total, wait_for_offset, wait_for_total};
use crate::support::process::Tidegate;

const TIMEOUT: Duration = Duration::from_secs(30);

fn wall() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Waits until this many more watermark emissions have been made: the clock that silence is measured by.
fn wait_for_ticks(service: &mut Tidegate, ticks: i64) {
    let ticked = total(service, "tidegate_watermark_ticks_total", "");
    wait_for_total(service, "tidegate_watermark_ticks_total", "", ticked + ticks);
}

// Limits

#[test]
fn a_result_too_large_for_its_topic_costs_that_one_result() {
    let job = Job::without_topics("too-large");
    job.create("in", 1, &[]);
    job.create("out", 1, &[("max.message.bytes", "100000")]);
    job.create("late", 1, &[]);
    job.create("dead", 1, &[]);
    let mut service = job.run(&[]);
    let large = noise(400_000);
    job.produce(&[
        event(0, "a", 1_000, 1),
        event(0, &large, 1_500, 2),
        event(0, "a", 12_000, 4),
        event(0, "a", 22_000, 8),
    ]);
    wait_for_total(&mut service, "tidegate_window_fires_total", "on_time", 3);
    assert_eq!(total(&mut service, "tidegate_panes_undeliverable_total", ""), 1);
    let reason = "\"result_too_large\"";
    assert_eq!(total(&mut service, "tidegate_dead_letter_records_total", reason), 1);
    assert_eq!(total(&mut service, "tidegate_transactions_total", "aborted"), 0);
    service.stop();
    assert_eq!(job.panes(), panes(&[(0, "a", 1, 1), (10_000, "a", 1, 4)]));
    let [letter] = &job.read("dead")[..] else { panic!("one dead letter") };
    assert_eq!(letter.header("tidegate.reason").as_deref(), Some("result_too_large"));
    assert!(letter.header("tidegate.detail").unwrap().contains("takes 100000"), "{letter:?}");
    let said = letter.json();
    assert_eq!((&said["window_start"], &said["window_end"]), (&json!(0), &json!(10_000)));
    assert_eq!((&said["count"], &said["sum"]), (&json!(1), &json!(2)));
    assert!(said["k"].as_str().unwrap().starts_with(&large[..100]), "the start of the key");
    assert_eq!(job.committed(1), job.ends(1));
}

#[test]
fn a_limit_that_is_lowered_while_the_service_runs_costs_one_transaction() {
    let job = Job::new("lowered", 1);
    let mut service = job.run(&[]);
    job.produce(&[event(0, "before", 1_000, 1), event(0, "a", 10_000, 1)]);
    wait_for_total(&mut service, "tidegate_window_fires_total", "on_time", 1);

    for topic in ["out", "late"] {
        job.cluster.alter(&job.topic(topic), &[("max.message.bytes", "3000")]);
    }
    // A result that is too large now, among results which are not but are so together, and a late record that is.
    let large = noise(5_000);
    let mut records: Vec<_> =
        (0..100).map(|number| event(0, &format!("{}-{number}", noise(100)), 11_000, 1)).collect();
    records.push(event(0, &large, 11_000, 1));
    records.push(event(0, "a", 20_000, 1));
    let late = Record { key: Some(b"late".to_vec()), ..event(0, &large, 1_000, 1) };
    records.push(late.clone());
    job.produce(&records);
    wait_for_total(&mut service, "tidegate_window_fires_total", "on_time", 103);
    // And everything goes on.
    job.produce(&[event(0, "a", 30_000, 1), event(0, &large, 2_000, 1)]);
    wait_for_total(&mut service, "tidegate_late_records_total", "", 2);
    assert_eq!(total(&mut service, "tidegate_panes_undeliverable_total", ""), 1);
    let aborted = total(&mut service, "tidegate_transactions_total", "aborted");
    assert!((1..=2).contains(&aborted), "{aborted} transactions aborted, for two topics");
    service.stop();

    let panes = job.panes();
    assert_eq!(panes.len(), 103);
    assert!(!panes.contains_key(&(10_000, large)));
    assert_eq!(job.read("dead").len(), 1);
    let [first, second] = &job.read("late")[..] else { panic!("two late records") };
    assert_eq!((&first.key, &first.payload), (&late.key, &None));
    let omitted = late.payload.unwrap().len().to_string();
    assert_eq!(first.header("tidegate.payload.omitted"), Some(omitted));
    assert_eq!(second.payload, None);
    assert_eq!(job.committed(1), job.ends(1));
}

#[test]
fn the_dead_letter_of_a_result_follows_the_rules_of_its_own_topic() {
    let job = Job::without_topics("too-large-old");
    job.create("in", 1, &[]);
    job.create("out", 1, &[("max.message.bytes", "5000"), ("retention.ms", "-1")]);
    job.create("late", 1, &[]);
    job.create("dead", 1, &[("retention.ms", "60000")]);
    let began = wall();
    job.produce(&[event(0, &noise(6_000), 1_000, 1), event(0, "a", 2_000, 1)]);
    job.run_to_end(&[]);
    let timestamp = |topic: &str| job.read(topic)[0].timestamp.unwrap();
    assert_eq!(timestamp("out"), 9_999);
    assert!((began..=wall()).contains(&timestamp("dead")), "{}", timestamp("dead"));
}

/// A dead letter that is read again may become one again: what it brings along counts as its own, whatever its name.
#[test]
fn headers_too_large_for_the_topic_are_left_out_whatever_their_names() {
    let job = Job::without_topics("large-headers");
    job.create("in", 1, &[("max.message.bytes", "5000000")]);
    for output in ["out", "late", "dead"] {
        job.create(output, 1, &[]);
    }
    let bad = Record {
        key: Some(b"key".to_vec()),
        headers: vec![("tidegate.detail".to_owned(), Some(noise(2_000_000).into_bytes()))],
        ..Record::of(0, "{")
    };
    job.produce(&[bad, event(0, "a", 1_000, 1)]);
    job.run_to_end(&[]);
    assert_eq!(job.panes(), panes(&[(0, "a", 1, 1)]));
    let [letter] = &job.read("dead")[..] else { panic!("one dead letter") };
    for (name, value) in [
        ("reason", "bad_json"),
        ("offset", "0"),
        ("payload.omitted", "1"),
        ("key.omitted", "3"),
        ("headers.omitted", "1"),
    ] {
        assert_eq!(letter.header(&format!("tidegate.{name}")).as_deref(), Some(value), "{name}");
    }
}

// Retention and timestamps

#[test]
fn results_for_old_windows_outlive_retention() {
    const OLD: i64 = 1_600_000_000_000;
    const SHORT: [(&str, &str); 2] = [("retention.ms", "60000"), ("segment.ms", "1000")];
    let job = Job::without_topics("retention");
    job.create("in", 1, &[("retention.ms", "-1")]);
    job.create("out", 1, &SHORT);
    job.create("late", 1, &SHORT);
    job.create("dead", 1, &SHORT);
    job.create("control", 1, &SHORT);
    let began = wall();
    let at = |record| Record { timestamp: Some(OLD), ..record };
    job.produce(&[
        at(event(0, "a", OLD, 1)),
        at(event(0, "a", OLD + 20_000, 2)),
        at(event(0, "a", OLD, 4)),
        at(Record::of(0, "{")),
    ]);
    let mut service = job.run(&[]);
    wait_for_total(&mut service, "tidegate_dead_letter_records_total", "", 1);
    assert_eq!(total(&mut service, "tidegate_timestamps_replaced_total", ""), 3);
    service.stop();

    // What has such a timestamp does not outlive the next sweep, and neither would what was written before it.
    job.cluster.produce(&job.topic("control"), &[at(Record::of(0, "{}"))]);
    for _ in 0..600 {
        if job.cluster.beginning(&job.topic("control"), 0) == 1 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert_eq!(job.cluster.beginning(&job.topic("control"), 0), 1, "the broker sweeps");
    assert_eq!(job.panes(), panes(&[(OLD, "a", 1, 1)]));
    for (topic, kept) in [("out", None), ("late", Some(OLD)), ("dead", Some(OLD))] {
        let [record] = &job.read(topic)[..] else { panic!("one record in {topic}") };
        let timestamp = record.timestamp.unwrap();
        assert!((began..=wall()).contains(&timestamp), "{topic}: {timestamp}");
        assert_eq!(record.header("tidegate.timestamp"), kept.map(|time| time.to_string()));
    }
}

#[test]
fn a_result_has_the_last_moment_of_its_window_as_its_timestamp() {
    let job = Job::new("timestamps", 1);
    let start = (wall() - 3_600_000) / 10_000 * 10_000;
    let late = Record { timestamp: Some(start + 7), ..event(0, "a", start, 4) };
    job.produce(&[event(0, "a", start, 1), event(0, "a", start + 25_000, 2), late]);
    job.run_to_end(&[]);
    let timestamps = |topic| -> Vec<_> {
        job.read(topic).into_iter().map(|record| record.timestamp.unwrap()).collect()
    };
    assert_eq!(timestamps("out"), [start + 9_999, start + 29_999]);
    assert_eq!(timestamps("late"), [start + 7]);
}

#[test]
fn a_topic_that_refuses_old_timestamps_gets_the_present() {
    let job = Job::without_topics("old-refused");
    job.create("in", 1, &[]);
    let settings = [("message.timestamp.before.max.ms", "3600000"), ("retention.ms", "-1")];
    job.create("out", 1, &settings);
    for output in ["late", "dead"] {
        job.create(output, 1, &[]);
    }
    let began = wall();
    job.produce(&[event(0, "a", 1_600_000_000_000, 1)]);
    job.run_to_end(&[]);
    let [result] = &job.read("out")[..] else { panic!("one result") };
    assert!((began..=wall()).contains(&result.timestamp.unwrap()), "{result:?}");
}

// Partitions and headers

/// The hash by which Java's producer chooses a partition.
fn java_partition(murmur2: i32, partitions: i32) -> i32 {
    (murmur2 & 0x7fff_ffff) % partitions
}

#[test]
fn results_are_where_a_java_producer_would_put_their_keys() {
    // From Kafka's own tests; the last one is that of no bytes.
    const KNOWN: [(&str, i32); 6] = [
        ("21", -973_932_308),
        ("foobar", -790_332_482),
        ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("abc", 479_470_107),
        ("", 275_646_681),
    ];
    let job = Job::without_topics("murmur");
    job.create("in", 1, &[]);
    job.create("out", 7, &[]);
    job.create("late", 1, &[]);
    job.create("dead", 1, &[]);
    let windows = 0..12;
    let records: Vec<_> = windows
        .flat_map(|window| KNOWN.map(|(key, _)| event(0, key, window * 10_000, 1)))
        .collect();
    job.produce(&records);
    job.run_to_end(&[]);
    assert_eq!(job.panes().len(), records.len());
    for result in job.read("out") {
        let key = String::from_utf8(result.key.unwrap()).unwrap();
        let (_, murmur2) = KNOWN.iter().find(|(known, _)| *known == key).unwrap();
        assert_eq!(result.partition, java_partition(*murmur2, 7), "{key:?}");
    }
}

#[test]
fn headers_with_one_name_keep_their_number_and_order() {
    let job = Job::new("headers", 1);
    let headers = [("tag", Some("1")), ("other", Some("x")), ("tag", Some("2")), ("tag", None)]
        .map(|(name, value)| (name.to_owned(), value.map(|value| value.as_bytes().to_vec())))
        .to_vec();
    let late =
        Record { key: Some(b"kk".to_vec()), headers: headers.clone(), ..event(0, "a", 2_000, 4) };
    job.produce(&[
        event(0, "a", 1_000, 1),
        event(0, "a", 12_000, 2),
        late.clone(),
        event(0, "a", 21_000, 8),
    ]);
    job.run_to_end(&[]);
    assert_eq!(job.panes(), panes(&[(0, "a", 1, 1), (10_000, "a", 1, 2), (20_000, "a", 1, 8)]));
    let [record] = &job.read("late")[..] else { panic!("one late record") };
    assert_eq!((&record.key, &record.payload), (&late.key, &late.payload));
    assert_eq!(record.headers[..headers.len()], headers);
    for (name, value) in [
        ("reason", "late"),
        ("cause", "out_of_order"),
        ("topic", "headers-in"),
        ("partition", "0"),
        ("offset", "2"),
        ("window.start", "0"),
        ("window.end", "10000"),
        ("watermark", "11999"),
        ("lateness.ms", "9999"),
    ] {
        assert_eq!(record.header(&format!("tidegate.{name}")).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn with_the_message_key_each_partition_has_its_own_results() {
    let job = Job::new("message-key", 3).replace("fields = [\"k\"]", "from = \"message\"");
    let record = |partition, key: &str, ts: i64| Record {
        key: Some(key.as_bytes().to_vec()),
        ..Record::of(partition, format!(r#"{{"ts":{ts},"v":1}}"#))
    };
    job.produce(&[
        record(0, "a", 1_000),
        record(0, "a", 2_000),
        record(1, "b", 1_000),
        // A key may be in another partition after the topic has grown: a row of its own.
        record(2, "a", 1_000),
    ]);
    job.run_to_end(&[]);
    let mut rows: Vec<_> = job
        .read("out")
        .iter()
        .map(|result| {
            let (partition, value) = (result.header("tidegate.partition").unwrap(), result.json());
            (partition, value["key"].clone(), value["count"].clone())
        })
        .collect();
    rows.sort_by_key(|(partition, ..)| partition.clone());
    let row = |partition: &str, key: &str, count| (partition.to_owned(), json!(key), json!(count));
    assert_eq!(rows, [row("0", "a", 2), row("1", "b", 1), row("2", "a", 1)]);
}

// How results are written

#[test]
fn results_and_progress_are_written_as_the_configuration_says() {
    let job = Job::without_topics("formats");
    let job = job.replace(
        "topic = \"formats-out\"",
        "topic = \"formats-out\"\nkey = \"key_window\"\nprogress = true\nintegers = \"text\"\n\
         timestamps = \"rfc3339\"",
    );
    job.create("in", 1, &[]);
    job.create("out", 2, &[]);
    job.create("late", 1, &[]);
    job.create("dead", 1, &[]);
    job.produce(&[
        event(0, "a", 1_000, 9_007_199_254_740_993),
        event(0, "a", 2_000, 1),
        event(0, "b", 41_000, 5),
    ]);
    job.run_to_end(&[]);
    let (progress, results): (Vec<_>, Vec<_>) = job
        .read("out")
        .into_iter()
        .partition(|record| record.header("tidegate.progress").is_some());
    let text = |bytes: &Option<Vec<u8>>| String::from_utf8(bytes.clone().unwrap()).unwrap();
    let mut written: Vec<_> =
        results.iter().map(|result| (text(&result.key), text(&result.payload))).collect();
    written.sort();
    let row = |k: &str, start: &str, end: &str, count: &str, sum: &str| {
        (
            format!(r#"{{"k":"{k}","window_start":"{start}"}}"#),
            format!(
                r#"{{"window_start":"{start}","window_end":"{end}","k":"{k}","count":"{count}","sum":"{sum}","pane":{{"timing":"on_time","index":0}}}}"#
            ),
        )
    };
    assert_eq!(
        written,
        [
            row("a", "1970-01-01T00:00:00Z", "1970-01-01T00:00:10Z", "2", "9007199254740994"),
            row("b", "1970-01-01T00:00:40Z", "1970-01-01T00:00:50Z", "1", "5"),
        ]
    );
    for partition in 0..2 {
        let here: Vec<_> = progress.iter().filter(|record| record.partition == partition).collect();
        let said: Vec<_> = here.iter().map(|record| record.json()).collect();
        let complete = |until: &str, watermark: &str| json!({"complete_until": until, "watermark": watermark, "topic": "formats-in", "partition": "all"});
        // The record of 41 s completes 40 s, also where there was no row; the end of the run what was open.
        assert_eq!(
            said[said.len() - 2..],
            [
                complete("1970-01-01T00:00:40Z", "1970-01-01T00:00:40.999Z"),
                complete("1970-01-01T00:00:50Z", "1970-01-01T00:00:49.999Z"),
            ]
        );
        assert!(here.iter().all(|record| text(&record.key) == "tidegate.progress/formats-in/all"));
        // It comes after the rows that it speaks of.
        let last_row =
            results.iter().filter(|row| row.partition == partition).map(|row| row.offset);
        assert!(last_row.max().unwrap_or(-1) < here.last().unwrap().offset);
    }
}

// Transactions in the input and the output

#[test]
fn records_written_by_transactions_leave_no_lag_and_aborted_ones_no_trace() {
    let job = Job::new("transactions", 1);
    let topic = job.topic("in");
    let mut service = job.run(&[]);
    let write = |records: &[Record], commit| {
        job.cluster.produce_in_transaction(&topic, records, commit);
    };
    write(&[event(0, "a", 1_000, 100), event(0, "a", 99_000, 100)], false);
    write(&[event(0, "a", 2_000, 1), event(0, "a", 3_000, 2)], true);
    write(&[event(0, "a", 12_000, 4)], true);
    write(&[event(0, "a", 99_000, 100)], false);
    let end = job.cluster.end(&topic, 0);
    assert_eq!(end, 10, "six records and four markers");
    wait_for_offset(&mut service, end);
    service.wait_until("the markers are behind", |service| {
        service.metric("tidegate_partition_caught_up").is_some_and(|caught_up| caught_up > 0.5)
    });
    assert_eq!(total(&mut service, "tidegate_consumer_lag_records", ""), 0);
    service.wait_until("the markers are committed", |_| job.committed(1) == job.ends(1));
    assert_eq!(total(&mut service, "tidegate_records_in_total", ""), 3);
    let watermark = service.metric("tidegate_watermark_timestamp_seconds").unwrap();
    assert!((11.9..12.0).contains(&watermark), "{watermark}");
    service.stop();
    assert_eq!(job.panes(), panes(&[(0, "a", 2, 3)]));

    // Another start reads nothing again, and fires what was open.
    job.run_to_end(&[]);
    assert_eq!(job.panes(), panes(&[(0, "a", 2, 3), (10_000, "a", 1, 4)]));
    assert_eq!(job.committed(1), job.ends(1));
}

#[test]
fn the_end_is_before_an_open_transaction_and_behind_markers() {
    let job = Job::new("until-end", 3);
    let topic = job.topic("in");
    // Partition 0: a record, an open transaction, a record behind it. Partition 1: a marker at the end. 2: nothing.
    job.produce(&[event(0, "a", 1_000, 1)]);
    let open = job.cluster.open_transaction("until-end-open", &topic, &[event(0, "a", 21_000, 2)]);
    job.produce(&[event(0, "a", 41_000, 4)]);
    job.cluster.produce_in_transaction(&topic, &[event(1, "b", 1_000, 8)], true);
    job.run_to_end(&[]);
    let first = [(0, "a", 1, 1), (0, "b", 1, 8)];
    assert_eq!(job.panes(), panes(&first));
    assert_eq!(job.committed(3), [Some(1), Some(2), Some(0)]);

    open.commit_transaction(TIMEOUT).unwrap();
    job.run_to_end(&[]);
    assert_eq!(job.panes(), panes(&[first[0], first[1], (20_000, "a", 1, 2), (40_000, "a", 1, 4)]));
    assert_eq!(job.committed(3), [Some(4), Some(2), Some(0)]);
    assert!(job.read("late").is_empty());

    // An aborted transaction at the very end.
    job.cluster.produce_in_transaction(&topic, &[event(2, "c", 1_000, 16)], false);
    job.run_to_end(&[]);
    assert_eq!(job.panes().len(), 4);
    assert_eq!(job.committed(3), [Some(4), Some(2), Some(2)]);
}

#[test]
fn a_partition_behind_an_open_transaction_is_not_silent() {
    const TICKS: i64 = 25; // of 200 ms, and idle after 1 s
    let job = Job::new("open-in-front", 2);
    let topic = job.topic("in");
    job.produce(&[event(0, "a", 1_000, 1), event(1, "a", 1_000, 1)]);
    let open = job.cluster.open_transaction("open-in-front", &topic, &[event(0, "a", 2_000, 1)]);
    let mut service = job.run(&["--set", "source[0].watermark.idle_timeout=1s"]);
    let is_idle = |service: &mut Tidegate, partition: i32| {
        total(service, "tidegate_partition_idle", &format!("partition=\"{partition}\"")) == 1
    };
    service.wait_until("the other one is idle", |service| is_idle(service, 1));
    wait_for_ticks(&mut service, TICKS);
    assert!(!is_idle(&mut service, 0), "{}", service.log());
    assert_eq!(total(&mut service, "tidegate_partition_caught_up", "partition=\"0\""), 0);
    open.abort_transaction(TIMEOUT).unwrap();
    service.wait_until("it is idle too", |service| is_idle(service, 0));
    assert_eq!(total(&mut service, "tidegate_records_in_total", ""), 2);
    service.stop();
}

#[test]
fn a_reader_sees_a_result_when_its_window_has_fired_and_not_an_interval_later() {
    let job = Job::new("soon", 1);
    let arguments =
        ["--set", "delivery.commit_interval=10m", "--set", "delivery.transaction_timeout=11m"];
    let mut service = job.run(&arguments);
    job.produce(&[event(0, "a", 1_000, 1)]);
    wait_for_offset(&mut service, 1);
    assert!(job.read("out").is_empty());
    job.produce(&[event(0, "a", 10_000, 1)]);
    service.wait_until("the result is there", |_| !job.read("out").is_empty());
    service.stop();
    assert_eq!(job.panes(), panes(&[(0, "a", 1, 1)]));
}

#[test]
fn at_least_once_uses_no_transaction() {
    let job = Job::new("at-least-once", 2);
    job.produce(&[
        event(0, "a", 1_000, 1),
        event(0, "a", 12_000, 2),
        event(0, "a", 3_000, 4),
        event(1, "b", 1_000, 8),
        Record::of(1, "{"),
    ]);
    job.run_to_end(&["--set", "delivery.guarantee=at_least_once"]);
    let expected = panes(&[(0, "a", 2, 5), (0, "b", 1, 8), (10_000, "a", 1, 2)]);
    assert_eq!(job.panes(), expected);
    assert_eq!(job.committed(2), job.ends(2));
    for topic in ["out", "late", "dead"] {
        let everything = job.cluster.read_with(&job.topic(topic), "read_uncommitted");
        let end = usize::try_from(job.cluster.end(&job.topic(topic), 0)).unwrap();
        assert_eq!(everything.len(), end, "no markers in {topic}");
        assert_eq!(everything, job.read(topic), "nothing aborted in {topic}");
    }
}

// Offsets that are not where they were

#[test]
fn records_deleted_before_they_were_read_stop_the_service_or_are_counted() {
    let job = Job::new("deleted", 1);
    job.produce(&[event(0, "a", 1_000, 1)]);
    job.run_to_end(&[]);
    job.produce(&[event(0, "a", 22_000, 2), event(0, "a", 23_000, 4), event(0, "a", 24_000, 8)]);
    job.cluster.delete_before(&job.topic("in"), 0, 3);

    let log = job.fail(&[]);
    for said in ["deleted-in/0", "offset 1", "is 3", "2 records", "on_missing = "] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert_eq!(job.committed(1), [Some(1)]);

    let mut service = job.run(&["--set", "source[0].on_missing=continue"]);
    job.produce(&[event(0, "a", 32_000, 16)]);
    wait_for_total(&mut service, "tidegate_window_fires_total", "on_time", 1);
    assert_eq!(total(&mut service, "tidegate_records_missing_total", "partition=\"0\""), 2);
    service.stop();
    assert_eq!(job.panes(), panes(&[(0, "a", 1, 1), (20_000, "a", 1, 8)]));
}

/// The service is held up while records come and go in front of it.
fn delete_in_front_of(job: &Job, service: &Tidegate) {
    service.signal("STOP");
    // This one answers the request that the service has left at the broker.
    job.produce(&[event(0, "a", 1_001, 1)]);
    job.produce(&[event(0, "a", 1_002, 1), event(0, "a", 1_003, 1), event(0, "a", 1_004, 1)]);
    job.cluster.delete_before(&job.topic("in"), 0, 4);
    service.signal("CONT");
}

#[test]
fn records_deleted_in_front_of_a_running_service_are_counted() {
    go_on_behind_deleted_records(&Job::new("deleted-live", 1));
}

#[test]
fn records_deleted_in_front_of_a_member_by_the_newer_protocol_are_counted() {
    let protocol = "[kafka.consumer.properties]\n\"group.protocol\" = \"consumer\"\n[[source]]";
    let job = Job::new("deleted-newer", 1).replace("[[source]]", protocol);
    go_on_behind_deleted_records(&job);
}

fn go_on_behind_deleted_records(job: &Job) {
    let mut service = job.run(&["--set", "source[0].on_missing=continue"]);
    job.produce(&[event(0, "a", 1_000, 1)]);
    wait_for_offset(&mut service, 1);
    delete_in_front_of(job, &service);
    job.produce(&[event(0, "a", 10_000, 1)]);
    wait_for_total(&mut service, "tidegate_window_fires_total", "on_time", 1);
    let read = total(&mut service, "tidegate_records_in_total", "");
    let missing = total(&mut service, "tidegate_records_missing_total", "");
    assert!(missing >= 2, "{missing}");
    assert_eq!(read + missing, 6, "{missing} missing: {}", service.log());
    service.stop();
    assert_eq!(job.committed(1), job.ends(1));
}

#[test]
fn records_deleted_in_front_of_a_running_service_stop_it() {
    let job = Job::new("deleted-stop", 1);
    let mut service = job.run(&[]);
    job.produce(&[event(0, "a", 1_000, 1)]);
    wait_for_offset(&mut service, 1);
    delete_in_front_of(&job, &service);
    assert_eq!(service.wait().code(), Some(1));
    let log = service.log();
    for said in ["deleted-stop-in/0", "is 4", "on_missing = "] {
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn an_offset_beyond_the_end_is_an_error_that_names_it() {
    let job = Job::new("beyond", 1);
    job.produce(&[event(0, "a", 1_000, 1)]);
    job.cluster.commit("beyond", &job.topic("in"), 0, 17);
    let log = job.fail(&[]);
    for said in ["beyond-in/0", "offset 1,", "committed 17", "deleted"] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert_eq!(job.committed(1), [Some(17)]);
}

#[test]
fn a_topic_that_is_deleted_and_created_again_while_it_is_read_ends_the_service() {
    let job = Job::new("again", 1);
    let mut service = job.run(&[]);
    job.produce(&[event(0, "a", 1_000, 1), event(0, "a", 2_000, 1), event(0, "a", 3_000, 1)]);
    service.wait_until("all is committed", |_| job.committed(1) == [Some(3)]);
    job.cluster.delete(&job.topic("in"));
    job.create("in", 1, &[]);
    job.produce(&[event(0, "a", 4_000, 1)]);
    assert_eq!(service.wait().code(), Some(1));
    let log = service.log();
    for said in ["again-in", "deleted"] {
        assert!(log.contains(said), "{said}: {log}");
    }
}

#[test]
fn gaps_that_compaction_leaves_neither_stop_nor_delay_anything() {
    let job = Job::without_topics("compacted");
    let compact = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "100"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("max.compaction.lag.ms", "100"),
    ];
    job.create("in", 1, &compact);
    for output in ["out", "late", "dead"] {
        job.create(output, 1, &[]);
    }
    let with_key = |key: &str, record| Record { key: Some(key.into()), ..record };
    job.produce(&[
        with_key("x", event(0, "a", 1_000, 1)),
        with_key("x", event(0, "a", 2_000, 2)),
        with_key("x", event(0, "a", 3_000, 4)),
        with_key("y", event(0, "a", 4_000, 8)),
    ]);
    let mut written = 4;
    let first_offsets = |job: &Job| -> Vec<_> {
        job.read("in").iter().map(|record| record.offset).take(2).collect()
    };
    for _ in 0..600 {
        if first_offsets(&job) == [2, 3] {
            break;
        }
        // A segment is closed by what is written after it.
        job.produce(&[with_key("z", event(0, "a", 12_000, 16))]);
        written += 1;
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert_eq!(first_offsets(&job), [2, 3], "the broker compacts");
    job.run_to_end(&[]);
    assert_eq!(job.panes()[&(0, "a".to_owned())], panes(&[(0, "a", 2, 12)])[&(0, "a".to_owned())]);
    assert_eq!(job.committed(1), [Some(written)]);
}

// Where to begin

#[test]
fn the_latest_start_is_not_for_partitions_that_are_added_later() {
    let job = Job::new("latest", 1);
    job.produce(&[event(0, "a", 1_000, 100)]);
    let mut service = job.run(&["--set", "source[0].start=latest"]);
    service.wait_until("it has begun", |_| job.committed(1) == [Some(1)]);
    job.produce(&[event(0, "a", 1_500, 1)]);
    job.cluster.grow(&job.topic("in"), 3);
    job.produce(&[event(1, "a", 2_000, 2), event(2, "a", 3_000, 4)]);
    wait_for_total(&mut service, "tidegate_records_in_total", "", 3);
    job.produce(&[event(1, "a", 12_000, 8), event(2, "a", 12_000, 16), event(0, "a", 12_000, 32)]);
    wait_for_total(&mut service, "tidegate_window_fires_total", "on_time", 1);
    service.stop();
    assert_eq!(job.panes(), panes(&[(0, "a", 3, 7)]));
    assert!(job.read("late").is_empty());
}

#[test]
fn a_start_at_a_time_begins_at_the_first_record_that_is_not_before_it() {
    const TIME: i64 = 1_700_000_000_000;
    let job = Job::without_topics("start-time");
    job.create("in", 3, &[("retention.ms", "-1")]);
    for output in ["out", "late", "dead"] {
        job.create(output, 1, &[]);
    }
    let at = |timestamp, record| Record { timestamp: Some(timestamp), ..record };
    job.produce(&[
        at(TIME - 1, event(0, "before", 1_000, 1)),
        at(TIME, event(0, "at", 1_000, 1)),
        at(TIME + 1, event(0, "after", 1_000, 1)),
        at(TIME - 1, event(1, "before", 1_000, 1)),
    ]);
    job.run_to_end(&["--set", "source[0].start=2023-11-14T22:13:20Z"]);
    assert_eq!(job.panes(), panes(&[(0, "at", 1, 1), (0, "after", 1, 1)]));
    assert_eq!(job.committed(3), job.ends(3));
}

// Topics by name

#[test]
fn all_missing_topics_are_named_at_once_or_created() {
    let job = Job::without_topics("missing");
    job.create("late", 1, &[]);
    let log = job.fail(&[]);
    for said in ["`missing-in`", "`missing-out`", "`missing-dead`", "topics.create = true"] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(!log.contains("`missing-late`"), "{log}");
    assert_eq!(job.cluster.topics("missing-").len(), 1);

    job.run_to_end(&["--set", "topics.create=true", "--set", "topics.partitions=2"]);
    let topic = |which: &str, partitions| (job.topic(which), partitions);
    assert_eq!(
        job.cluster.topics("missing-"),
        [
            topic("dead", 2),
            topic("in", 2),
            topic("late", 1),
            // One shard for all partitions, since the key is a field.
            topic("missing-in-changelog", 1),
            topic("out", 2)
        ]
    );
}

// Two under one name

#[test]
fn a_second_instance_under_the_same_id_ends_the_first() {
    let job = Job::new("fenced", 1);
    let arguments = ["--set", "kafka.instance_id=one"];
    let mut first = job.run(&arguments);
    job.produce(&[event(0, "a", 1_000, 1), event(0, "a", 12_000, 2)]);
    wait_for_total(&mut first, "tidegate_window_fires_total", "on_time", 1);

    let mut second = job.run(&arguments);
    // It has joined, and has no partition as long as the first one is there.
    second.wait_for_line("partitions assigned");
    job.produce(&[event(0, "a", 50_000, 4)]);
    assert_eq!(first.wait().code(), Some(1), "{}", first.log());
    let log = first.log();
    for said in ["another instance", "`fenced-one-0`", "kafka.instance_id"] {
        assert!(log.contains(said), "{said}: {log}");
    }
    job.produce(&[event(0, "a", 51_000, 8), event(0, "a", 60_000, 16)]);
    wait_for_total(&mut second, "tidegate_window_fires_total", "on_time", 1);
    second.stop();
    let mut rows = job.panes();
    rows.remove(&(10_000, "a".to_owned()));
    assert_eq!(rows, panes(&[(0, "a", 1, 1), (50_000, "a", 2, 12)]));
    assert!(job.read("late").is_empty());
}
