//! The decoder: any payload gives an event, a tombstone, a heartbeat or a refusal, and a general parser agrees about what
//! was JSON and what stood in it.

use std::cell::RefCell;

use serde_json::Value as Json;
use serde_json::value::RawValue;
use tidegate::codec::{Decoded, Decoder, RawRecord, Reason};
use tidegate::config::Sources;
use tidegate::event_time::{EventTime, Value};

use crate::configuration::load_text;

/// Reads the bytes as the payload, the key and the timestamp's header of a record, in each of the ways.
pub(crate) fn check(data: &[u8]) {
    thread_local! {
        static DECODERS: RefCell<Vec<(Decoder, Way)>> = RefCell::new(WAYS.iter().map(|way| (decoder(way), *way)).collect());
    }
    let text = std::str::from_utf8(data).ok();
    let text = text.map(|text| text.strip_prefix('\u{feff}').unwrap_or(text));
    let syntax = text.is_some_and(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    // It refuses some numbers that nobody has to read.
    let parsed = text.and_then(|text| serde_json::from_str::<Json>(text).ok());
    DECODERS.with_borrow_mut(|decoders| {
        for (decoder, way) in decoders {
            check_one(decoder, *way, data, syntax, parsed.as_ref());
        }
    });
}

fn check_one(decoder: &mut Decoder, way: Way, data: &[u8], syntax: bool, parsed: Option<&Json>) {
    let record = RawRecord {
        key: Some(data),
        payload: Some(data),
        timestamp: i64::try_from(data.len()).ok(),
        timestamp_header: Some(data),
    };
    let first = format!("{:?}", decoder.decode(record, WALL));
    let outcome = decoder.decode(record, WALL);
    assert_eq!(format!("{outcome:?}"), first, "the record before has left something behind");
    match outcome {
        Ok(Decoded::Event(event)) => {
            assert!(syntax, "no JSON was taken for an event: {event:?}");
            let Some(parsed) = parsed else { return };
            if let Some(path) = way.milliseconds {
                let number = parsed.pointer(path);
                if let Some(integer) = number.and_then(Json::as_i64) {
                    assert_eq!(event.timestamp, EventTime(integer));
                }
            }
            for (path, value) in way.values.iter().zip(event.values) {
                match (parsed.pointer(path), value) {
                    (None | Some(Json::Null), value) => assert_eq!(*value, None),
                    (Some(found), Some(Value::Integer(value))) => {
                        // An integer -0 is a float there.
                        let expected =
                            if found.as_f64() == Some(0.0) { Some(0) } else { found.as_i64() };
                        assert_eq!(expected, Some(*value), "{found}");
                    }
                    (Some(found), Some(Value::Float(value))) => {
                        let expected = found.as_f64().map(|number| number + 0.0);
                        let close = expected.is_some_and(|e| (e - value).abs() <= e.abs() * 1e-15);
                        assert!(close, "{found} became {value}");
                    }
                    (Some(found), None) => panic!("{found} was not read"),
                }
            }
        }
        Ok(Decoded::Heartbeat(_)) => assert!(syntax, "no JSON was taken for a heartbeat"),
        Ok(Decoded::Tombstone) => panic!("a payload was taken for a tombstone"),
        Err(refusal) => {
            assert!(!refusal.detail.is_empty());
            assert!(refusal.detail.len() < 2_000, "{} bytes of detail", refusal.detail.len());
            match refusal.reason {
                Reason::BadJson => assert!(parsed.is_none(), "JSON was refused: {refusal}"),
                Reason::NotObject => assert!(parsed.is_none_or(|parsed| !parsed.is_object())),
                Reason::EmptyPayload => assert!(data.is_empty()),
                Reason::BadUtf8 => assert!(std::str::from_utf8(data).is_err()),
                Reason::TooDeep => assert!(data.len() > 127),
                _ => {}
            }
        }
    }
}

/// A configuration, and where in a record the general parser finds the same.
#[derive(Clone, Copy)]
struct Way {
    source: &'static str,
    key: &'static str,
    /// The timestamp, where it is a number of milliseconds.
    milliseconds: Option<&'static str>,
    /// The fields of the aggregates.
    values: &'static [&'static str],
}

const WAYS: [Way; 5] = [
    Way {
        source: r#"timestamp = { field = "t" }
            watermark = { strategy = "punctuated", marker = "m" }"#,
        key: r#"fields = ["k"]"#,
        milliseconds: Some("/t"),
        values: &["/v", "/a/0/w"],
    },
    Way {
        source: r#"timestamp = { field = "/at/t", unit = "rfc3339" }
            watermark = { max_out_of_orderness = "1s" }
            heartbeat = { field = "h", equals = "alive", watermark = true }"#,
        key: r#"fields = ["k", "l"]"#,
        milliseconds: None,
        values: &["/v", "/a/0/w"],
    },
    Way {
        source: r#"timestamp = { field = "t", unit = "s" }
            watermark = { max_out_of_orderness = "1s" }"#,
        key: r#"from = "message""#,
        milliseconds: None,
        values: &["/v", "/a/0/w"],
    },
    Way {
        source: r#"timestamp = { header = "t", unit = "us" }
            watermark = { max_out_of_orderness = "1s" }"#,
        key: r#"fields = ["a"]"#,
        milliseconds: None,
        values: &["/v", "/a/0/w"],
    },
    Way {
        source: r#"timestamp = { from = "record" }
            watermark = { max_out_of_orderness = "1s" }"#,
        key: r#"fields = ["k"]"#,
        milliseconds: None,
        values: &["/v", "/a/0/w"],
    },
];

fn decoder(way: &Way) -> Decoder {
    let config = format!(
        r#"
        [kafka]
        group_id = "fuzz"
        [[source]]
        topic = "in"
        {}
        fields = {{ w = "/a/0/w" }}
        [window]
        size = "1m"
        [key]
        {}
        [[aggregate]]
        name = "sum"
        function = "sum"
        field = "v"
        missing = "skip"
        [[aggregate]]
        name = "greatest"
        function = "max"
        field = "w"
        type = "integer"
        missing = "skip"
        [results]
        topic = "out"
        [late]
        topic = "late"
        [dead_letter]
        topic = "dead"
        [guard]
        min_timestamp = "off"
        max_future = "off"
        "#,
        way.source, way.key
    );
    let loaded = load_text(&config, Sources::default());
    let config = loaded.unwrap_or_else(|faults| panic!("{faults:?}")).config;
    let source = config.sources.first().unwrap();
    Decoder::new(source, &config.key, &config.aggregates)
}

/// 2026-01-01.
const WALL: EventTime = EventTime(1_767_225_600_000);
