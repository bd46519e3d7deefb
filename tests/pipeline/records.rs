//! What goes out: keys, values, headers and timestamps.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::config::KeyFrom;
use tidegate::insight::Tally;
use tidegate::pipeline::{Message, OutputTopic, Polled};

use crate::memory::{Input, Slot, WALL};
use crate::view::header;
use crate::world::{World, headers, id, payload, reason, record, slot};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

fn with_headers(slot: &Slot, headers: &[(&str, Option<&str>)], timestamp: Option<i64>) -> Slot {
    let mut input = Input::clone(slot.content.as_deref().unwrap());
    input.headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.map(|value| value.as_bytes().to_vec())))
        .collect();
    input.timestamp = timestamp;
    input.key = Some(b"original".to_vec());
    crate::world::slot(0, input)
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_result_says_what_it_is_of() {
    let world = World::new([vec![record(0, T, "a"), record(0, T + 5, "a")]]);
    world.run_to_the_end().unwrap();
    let [result] = &world.topic(OutputTopic::Results)[..] else { panic!("one result") };
    let end = T + 10_000;
    assert_eq!(
        payload(result),
        format!(
            r#"{{"window_start":{T},"window_end":{end},"k":"a","n":2,"sum":2,"max":1,"pane":{{"timing":"on_time","index":0}}}}"#
        )
    );
    assert_eq!(result.key.as_deref(), Some(b"a".as_slice()));
    assert_eq!(result.partition, None, "the key's hash says which");
    let clock = (end - 1).to_string();
    let expected = pairs(&[("tidegate.watermark", &clock), ("tidegate.partition", "all")]);
    assert_eq!(headers(result), expected);
}

#[test]
fn a_result_of_a_shard_names_its_partition() {
    let keyed = |key: &str| {
        let payload = Some(format!(r#"{{"ts":{T},"v":1}}"#).into_bytes());
        slot(0, Input { key: Some(key.as_bytes().to_vec()), payload, ..Input::default() })
    };
    let mut world = World::new([vec![keyed("a")], vec![keyed("b")]]);
    world.config.key.from = KeyFrom::Message;
    world.run_to_the_end().unwrap();
    let partitions: Vec<_> = world
        .topic(OutputTopic::Results)
        .iter()
        .map(|result| (result.key.clone().unwrap(), header(result, "tidegate.partition").unwrap()))
        .collect();
    assert_eq!(partitions, [(b"a".to_vec(), "0".to_owned()), (b"b".to_vec(), "1".to_owned())]);
}

/// The timestamp of the one result of a window that ends here, and how many were counted as replaced.
fn result_timestamp(ts: i64, retention: Option<Duration>) -> (i64, u64) {
    let world = World::new([vec![record(0, ts, "a")]]);
    world.broker.with(|state| {
        let limits = &mut [&mut state.limits, &mut state.clients[0].known_limits];
        for limits in limits {
            limits.get_mut(&OutputTopic::Results).unwrap().retention = retention;
        }
    });
    world.run_to_the_end().unwrap();
    let replaced =
        world.service(|client| client.tallies.iter().map(|tally| tally.timestamps_replaced).sum());
    (world.topic(OutputTopic::Results)[0].timestamp.unwrap(), replaced)
}

#[test]
fn a_result_has_the_time_of_its_window() {
    assert_eq!(result_timestamp(T, None), (T + 9_999, 0));
    assert_eq!(result_timestamp(T, Some(Duration::from_hours(1))), (T + 9_999, 0));
}

#[test]
fn a_result_that_its_topic_would_delete_has_the_present() {
    // The window ended 990 s ago; half of the retention is 900 s.
    let (timestamp, replaced) = result_timestamp(T, Some(Duration::from_mins(30)));
    assert!((WALL..WALL + 1_000).contains(&timestamp), "{timestamp}");
    assert_eq!(replaced, 1);
}

#[test]
fn a_result_of_a_window_that_is_not_over_has_the_present() {
    let (timestamp, replaced) = result_timestamp(WALL, None);
    assert!((WALL..WALL + 1_000).contains(&timestamp), "{timestamp}");
    assert_eq!(replaced, 1);
}

/// The late record that comes of this one.
fn late(slot: Slot, retention: Option<Duration>) -> Message {
    let mut world = World::new([vec![record(0, T + 21_000, "a"), slot]]);
    world.config.emit_interval = Duration::ZERO;
    world.broker.with(|state| {
        state.clients[0].known_limits.get_mut(&OutputTopic::Late).unwrap().retention = retention;
    });
    world.run_to_the_end().unwrap();
    world.topic(OutputTopic::Late)[0].clone()
}

#[test]
fn a_late_record_is_as_it_came_and_says_how_late_it_is() {
    let original = [("b", Some("1")), ("a", None), ("b", Some("2"))];
    let message = late(with_headers(&record(0, T + 3, "a"), &original, Some(T)), None);
    assert_eq!(payload(&message), format!(r#"{{"ts":{},"k":"a","v":1}}"#, T + 3));
    assert_eq!(message.key.as_deref(), Some(b"original".as_slice()));
    assert_eq!(message.timestamp, Some(T));
    let (start, end, clock) = (T.to_string(), (T + 10_000).to_string(), (T + 19_999).to_string());
    assert_eq!(
        headers(&message),
        pairs(&[
            ("b", "1"),
            ("a", "null"),
            ("b", "2"),
            ("tidegate.reason", "late"),
            ("tidegate.topic", "in"),
            ("tidegate.partition", "0"),
            ("tidegate.offset", "1"),
            ("tidegate.cause", "out_of_order"),
            ("tidegate.window.start", &start),
            ("tidegate.window.end", &end),
            ("tidegate.watermark", &clock),
            ("tidegate.lateness.ms", "19996"),
        ])
    );
}

#[test]
fn a_late_record_that_would_be_deleted_has_the_present_and_remembers() {
    let old = with_headers(&record(0, T, "a"), &[], Some(T));
    let message = late(old, Some(Duration::from_mins(30)));
    assert!(message.timestamp.unwrap() >= WALL);
    assert_eq!(header(&message, "tidegate.timestamp"), Some(T.to_string()));
}

#[test]
fn a_record_without_a_timestamp_gets_the_producers() {
    for timestamp in [None, Some(-1)] {
        let message = late(with_headers(&record(0, T, "a"), &[], timestamp), None);
        assert_eq!(message.timestamp, None);
        assert_eq!(header(&message, "tidegate.timestamp"), None);
    }
}

#[test]
fn a_dead_letter_is_as_it_came_and_says_why() {
    let input = Input {
        key: Some(vec![0xFF]),
        payload: Some(b"{\"ts\":".to_vec()),
        timestamp: Some(WALL + 86_400_000),
        headers: vec![("a".to_owned(), Some(b"1".to_vec()))],
    };
    let world = World::new([vec![], vec![slot(0, input)]]);
    world.run_to_the_end().unwrap();
    let [message] = &world.topic(OutputTopic::DeadLetter)[..] else { panic!("one dead letter") };
    assert_eq!(message.key.as_deref(), Some([0xFF].as_slice()));
    assert_eq!(payload(message), "{\"ts\":");
    let all = headers(message);
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "a",
            "tidegate.reason",
            "tidegate.topic",
            "tidegate.partition",
            "tidegate.offset",
            "tidegate.detail",
            "tidegate.timestamp"
        ]
    );
    let values: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(values["tidegate.reason"], "bad_json");
    assert_eq!((&*values["tidegate.partition"], &*values["tidegate.offset"]), ("1", "0"));
    assert_eq!(values["tidegate.timestamp"], (WALL + 86_400_000).to_string());
    assert!(!values["tidegate.detail"].is_empty());
}

#[test]
fn records_that_were_deleted_unread_are_counted() {
    let world = World::new([vec![record(0, T, "a")]]);
    world.broker.with(|state| {
        let missing = Polled::Missing(vec![(id(0), 7)]);
        state.rebalances.push_back((Duration::from_millis(300), missing));
    });
    world.run_until(Duration::from_secs(3)).unwrap();
    let counted =
        |tally: &Tally| tally.partitions.values().map(|partition| partition.missing).sum::<u64>();
    let missing: u64 =
        world.broker.with(|state| state.clients[0].tallies.iter().map(counted).sum::<u64>());
    assert_eq!(missing, 7);
}

#[test]
fn progress_reaches_each_partition_once_for_each_end_and_shard() {
    let slots = |shift: i64| {
        [0, 5_000, 11_000, 12_000, 21_000, 22_000].map(|at| record(0, T + at + shift, "a")).to_vec()
    };
    let mut world = World::new([slots(0), slots(1)]);
    world.config.key.partial = true;
    world.config.results.progress = true;
    world.config.emit_interval = Duration::ZERO;
    world.broker.with(|state| {
        state.clients[0].known_limits.get_mut(&OutputTopic::Results).unwrap().partitions = 2;
    });
    world.run_until(Duration::from_secs(2)).unwrap();
    let told: Vec<_> = world
        .topic(OutputTopic::Results)
        .iter()
        .filter(|message| header(message, "tidegate.progress").as_deref() == Some("1"))
        .map(|message| {
            let value: BTreeMap<String, serde_json::Value> =
                serde_json::from_slice(message.payload.as_deref().unwrap()).unwrap();
            assert_eq!(value["topic"], "in");
            let shard = header(message, "tidegate.partition").unwrap();
            let key = format!("tidegate.progress/in/{shard}");
            assert_eq!(message.key.as_deref(), Some(key.as_bytes()));
            let until = value["complete_until"].as_i64().unwrap() - T;
            (until, shard, message.partition.unwrap())
        })
        .collect();
    let mut expected = Vec::new();
    for until in [-10_000, 0, 10_000, 20_000] {
        for shard in ["0", "1"] {
            expected.extend([0, 1].map(|partition| (until, shard.to_owned(), partition)));
        }
    }
    assert_eq!(told, expected);
}

#[test]
fn a_key_over_a_limit_is_a_dead_letter_that_names_it() {
    let keys = ["a", "b", "c", "a"];
    let mut world = World::new([keys.map(|key| record(0, T, key)).to_vec()]);
    world.config.limits.keys_per_window = Some(2);
    world.run_to_the_end().unwrap();
    assert_eq!(world.results().len(), 2);
    let [message] = &world.topic(OutputTopic::DeadLetter)[..] else { panic!("one dead letter") };
    assert_eq!(reason(message), "key_limit");
    let detail = header(message, "tidegate.detail").unwrap();
    assert!(detail.contains("2 keys") && detail.contains("limits.keys_per_window"), "{detail}");
    assert_eq!(world.committed_offset(0), Some(4));
}
