//! What a topic does not take.

use tidegate::pipeline::{OutputTopic, PipelineError};

use crate::memory::{Call, Fault, Input, Slot, WALL};
use crate::view::header;
use crate::world::{World, headers, payload, reason, record, slot};

/// The beginning of a window.
const T: i64 = WALL - WALL % 10_000 - 1_000_000;

impl World {
    /// What a topic takes from now on; `known`: the service knows it from the start.
    fn limited(self, topic: OutputTopic, bytes: usize, known: bool) -> Self {
        self.broker.with(|state| {
            state.limits.get_mut(&topic).unwrap().max_message_bytes = bytes;
            if known {
                state.clients[0].known_limits = state.limits.clone();
            }
        });
        self
    }

    fn undeliverable(&self) -> u64 {
        self.broker.with(|state| {
            state.clients[0].tallies.iter().map(|tally| tally.panes_undeliverable).sum()
        })
    }
}

#[test]
fn a_result_too_large_becomes_a_dead_letter() {
    for known in [true, false] {
        let key = format!("{}, and on", "é".repeat(500));
        let slots = vec![record(0, T, "a"), record(0, T, &key), record(0, T, &key)];
        let world = World::new([slots]).limited(OutputTopic::Results, 1_000, known);
        world.run_to_the_end().unwrap();
        assert_eq!(world.results().len(), 1, "the other one is there");
        let [letter] = &world.topic(OutputTopic::DeadLetter)[..] else { panic!("one dead letter") };
        assert_eq!(reason(letter), "result_too_large");
        let value: serde_json::Value =
            serde_json::from_slice(letter.payload.as_deref().unwrap()).unwrap();
        let cut = format!("{}… ({} bytes)", "é".repeat(200), key.len());
        assert_eq!(value["k"], cut);
        assert_eq!(
            (&value["window_start"], &value["n"], &value["sum"]),
            (&T.into(), &2.into(), &2.into())
        );
        assert_eq!(value["pane"]["timing"], "on_time");
        let detail = header(letter, "tidegate.detail").unwrap();
        assert!(detail.contains("its topic takes 1000 (max.message.bytes)"), "{detail}");
        assert_eq!(world.undeliverable(), 1, "known: {known}");
    }
}

#[test]
fn the_sum_of_a_result_too_large_stays_exact() {
    let slots = (0..3).map(|_| {
        let key = "k".repeat(900);
        let text = format!(r#"{{"ts":{T},"k":"{key}","v":{}}}"#, i64::MAX);
        slot(0, Input { payload: Some(text.into_bytes()), ..Input::default() })
    });
    let world = World::new([slots.collect()]).limited(OutputTopic::Results, 1_000, true);
    world.run_to_the_end().unwrap();
    let text = payload(&world.topic(OutputTopic::DeadLetter)[0]);
    assert!(text.contains(r#""sum":27670116110564327421"#), "{text}");
}

/// A record with this much in its key, payload and one header.
fn bulky(ts: i64, key: usize, padding: usize, header: usize, good: bool) -> Slot {
    let name = if good { "ts" } else { "at" };
    let padding = "p".repeat(padding);
    let text = format!(r#"{{"{name}":{ts},"k":"a","v":1,"padding":"{padding}"}}"#);
    slot(
        0,
        Input {
            key: Some(vec![b'k'; key]),
            payload: Some(text.into_bytes()),
            timestamp: None,
            headers: vec![("original".to_owned(), Some(vec![b'h'; header]))],
        },
    )
}

/// Both kinds of records that are passed on, from one that is too large.
fn passed_on(key: usize, padding: usize, header: usize) -> [tidegate::pipeline::Message; 2] {
    for known in [true, false] {
        let mut world = World::new([vec![
            record(0, T + 21_000, "a"),
            bulky(T, key, padding, header, true),
            bulky(T, key, padding, header, false),
        ]]);
        world.config.emit_interval = std::time::Duration::ZERO;
        let world = world.limited(OutputTopic::Late, 1_000, known).limited(
            OutputTopic::DeadLetter,
            1_000,
            known,
        );
        world.run_to_the_end().unwrap();
        if known {
            let first = |topic| world.topic(topic)[0].clone();
            return [first(OutputTopic::Late), first(OutputTopic::DeadLetter)];
        }
    }
    unreachable!("both were run")
}

#[test]
fn a_record_too_large_is_passed_on_without_its_payload() {
    for message in passed_on(10, 2_000, 10) {
        assert_eq!(message.payload, None);
        let omitted: usize = header(&message, "tidegate.payload.omitted").unwrap().parse().unwrap();
        assert!((2_000..2_100).contains(&omitted));
        assert_eq!(message.key, Some(vec![b'k'; 10]));
        assert_eq!(headers(&message)[0].0, "original");
        assert_eq!(header(&message, "tidegate.offset").map(|offset| offset.len()), Some(1));
    }
}

#[test]
fn a_key_too_large_goes_as_well() {
    for message in passed_on(2_000, 2_000, 10) {
        assert_eq!((&message.payload, &message.key), (&None, &None));
        assert_eq!(header(&message, "tidegate.key.omitted").as_deref(), Some("2000"));
        assert_eq!(headers(&message)[0].0, "original");
    }
}

#[test]
fn headers_too_large_go_as_well() {
    for message in passed_on(2_000, 2_000, 2_000) {
        assert_eq!((&message.payload, &message.key), (&None, &None));
        assert_eq!(header(&message, "tidegate.headers.omitted").as_deref(), Some("1"));
        assert!(headers(&message).iter().all(|(name, _)| name.starts_with("tidegate.")));
        assert!(message.size() <= 1_000);
    }
}

#[test]
fn limits_that_shrink_are_read_again() {
    let slots = vec![bulky(T, 10, 2_000, 10, false), bulky(T, 10, 100, 10, false)];
    let world = World::new([slots]).limited(OutputTopic::DeadLetter, 1_000, false);
    world.run_to_the_end().unwrap();
    let letters = world.topic(OutputTopic::DeadLetter);
    assert_eq!(letters.len(), 2);
    assert!(letters[0].payload.is_none() && letters[1].payload.is_some());
    assert_eq!(world.service(|client| client.aborts), 1);
}

#[test]
fn a_topic_that_refuses_twice_ends_the_service() {
    // It takes nothing at all, and says so again when the limits have been read.
    let world = World::new([vec![record(0, T, "a")]]).limited(OutputTopic::Results, 500, true);
    world.broker.with(|state| {
        for limits in [&mut state.limits, &mut state.clients[0].known_limits] {
            limits.get_mut(&OutputTopic::DeadLetter).unwrap().max_message_bytes = 1_000;
        }
    });
    let world = world.failing(|call, _| match call {
        Call::Send(OutputTopic::Results) => Some(Fault::Refused),
        _ => None,
    });
    let error = world.run_to_the_end().unwrap_err();
    let PipelineError::Sink(cause) = &error else { panic!("{error}") };
    let size = cause.contains("the largest has 2") || cause.contains("the largest has 3");
    assert!(cause.contains("topic `Results`") && cause.contains("is 500") && size, "{cause}");
    assert_eq!(world.commit_times(), [(50, 0)]);
}

#[test]
fn a_refusal_long_ago_is_forgotten() {
    let broken = |at| record(at, T, "a\"");
    let mut refused = Vec::new();
    let world = World::new([vec![broken(0), broken(5_000)]]).failing(move |call, now| {
        let again = refused.last().is_none_or(|last| now > *last + crate::world::ms(3_000));
        if call == Call::Send(OutputTopic::DeadLetter) && again {
            refused.push(now);
            return Some(Fault::Refused);
        }
        None
    });
    world.run_until(crate::world::ms(9_000)).unwrap();
    assert_eq!(world.topic(OutputTopic::DeadLetter).len(), 2);
    assert_eq!(world.service(|client| client.aborts), 2);
}
