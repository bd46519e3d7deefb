//! Records in, results out, by example.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::config::{
    Aggregate, Guard, IntegerFormat, Key, KeyFrom, Missing, OnMissing, ResultKey, Results, Source,
    Start, Timestamp, TimestampFormat, TimestampFrom, TimestampUnit, ValueType,
};
use crate::event_time::{
    AggregateFunction, AllIdle, Event, EventTime, Marker, MonotonicTime, Now, Output, Panes,
    PartitionId, Sharding, StateLimits, Subtask, SubtaskSettings, TopicSettings, TumblingWindows,
    Value, WatermarkStrategy, WindowSettings,
};

const WALL: EventTime = EventTime(1_800_000_000_000);

fn source() -> Source {
    Source {
        topic: "in".to_owned(),
        table: 0,
        timestamp: Timestamp {
            from: TimestampFrom::Field("ts".parse().unwrap()),
            unit: TimestampUnit::Milliseconds,
            naive_is_utc: false,
        },
        strategy: WatermarkStrategy::Punctuated,
        marker: Some("wm".parse().unwrap()),
        idle_timeout: None,
        partitions: BTreeMap::new(),
        heartbeat: None,
        guard: Guard::ALL,
        fields: [("from".to_owned(), "/airport/from".parse().unwrap())].into(),
        start: Start::Earliest,
        on_missing: OnMissing::Stop,
    }
}

fn aggregate(name: &str, function: AggregateFunction, field: Option<&str>) -> Aggregate {
    Aggregate {
        name: name.to_owned(),
        function,
        field: field.map(str::to_owned),
        value_type: ValueType::Number,
        missing: Missing::Refuse,
    }
}

fn fields(names: &[&str]) -> Key {
    Key {
        from: KeyFrom::Fields(names.iter().map(|name| (*name).to_owned()).collect()),
        partial: false,
        across_topics: false,
    }
}

fn decoder(key: &[&str], value: Option<&str>) -> Decoder {
    let guard = Guard {
        max_future: Some(Duration::from_hours(1)),
        min_timestamp: Some(EventTime(946_684_800_000)),
    };
    let function = if value.is_some() { AggregateFunction::Sum } else { AggregateFunction::Count };
    let source = Source { guard, ..source() };
    Decoder::new(&source, &fields(key), &[aggregate("v", function, value)])
}

/// What becomes of a payload: the timestamp, or the reason and the detail.
fn read(payload: &[u8]) -> Result<i64, (Reason, String)> {
    let mut decoder = decoder(&["k"], Some("v"));
    match decoder.decode(RawRecord { payload: Some(payload), ..RawRecord::default() }, WALL) {
        Ok(Decoded::Event(event)) => Ok(event.timestamp.0),
        Ok(Decoded::Tombstone | Decoded::Heartbeat(_)) => Ok(-1),
        Err(refusal) => Err((refusal.reason, refusal.detail)),
    }
}

fn reason(payload: &str) -> Option<Reason> {
    read(payload.as_bytes()).err().map(|(reason, _)| reason)
}

#[test]
fn each_kind_of_bad_input_has_its_reason() {
    let good = r#""k":"a","ts":1800000000000,"v":1"#;
    for (payload, expected) in [
        (format!("{{{good}}}"), None),
        (format!("\u{feff}{{{good}}}"), None),
        (format!("{{{good},\"big\":1e400,\"note\":1,\"note\":2}}"), None),
        (format!("\u{feff}\u{feff}{{{good}}}"), Some(Reason::BadJson)),
        (format!("{{{good}}} x"), Some(Reason::BadJson)),
        (format!("{{{good}"), Some(Reason::BadJson)),
        (format!("{{{good},\"v\":2}}"), Some(Reason::DuplicateField)),
        (format!("{{{good},\"v\":2"), Some(Reason::BadJson)),
        (format!("[{{{good}}}]"), Some(Reason::NotObject)),
        (format!("[{{{good}}}"), Some(Reason::BadJson)),
        ("1 2".to_owned(), Some(Reason::BadJson)),
        ("null".to_owned(), Some(Reason::NotObject)),
        ("\"text\"".to_owned(), Some(Reason::NotObject)),
        (String::new(), Some(Reason::EmptyPayload)),
        (" ".to_owned(), Some(Reason::BadJson)),
        (format!("{{{good},\"deep\":{}{}}}", "[".repeat(126), "]".repeat(126)), None),
        (
            format!("{{{good},\"deep\":{}{}}}", "[".repeat(127), "]".repeat(127)),
            Some(Reason::TooDeep),
        ),
        (format!("{{{good},\"deep\":{}", "[{\"a\":".repeat(50_000)), Some(Reason::TooDeep)),
        (format!("{{{good},\"text\":\"{}\"}}", "[\\\"".repeat(500)), None),
        (r#"{"k":"a","v":1}"#.to_owned(), Some(Reason::TsMissing)),
        (r#"{"k":"a","ts":null,"v":1}"#.to_owned(), Some(Reason::TsMissing)),
        (r#"{"k":"a","ts":"x","v":1}"#.to_owned(), Some(Reason::TsInvalid)),
        (r#"{"k":"a","ts":1e400,"v":1}"#.to_owned(), Some(Reason::TsInvalid)),
        (r#"{"k":"a","ts":9223372036854775808,"v":1}"#.to_owned(), Some(Reason::TsOutOfRange)),
        (r#"{"k":"a","ts":1800000000,"v":1}"#.to_owned(), Some(Reason::TsPast)),
        (r#"{"k":"a","ts":-1,"v":1}"#.to_owned(), Some(Reason::TsPast)),
        (r#"{"k":"a","ts":1800000000000000,"v":1}"#.to_owned(), Some(Reason::TsFuture)),
        (r#"{"ts":1800000000000,"v":1}"#.to_owned(), Some(Reason::KeyMissing)),
        (r#"{"k":null,"ts":1800000000000,"v":1}"#.to_owned(), Some(Reason::KeyMissing)),
        (r#"{"k":[1],"ts":1800000000000,"v":1}"#.to_owned(), Some(Reason::KeyType)),
        (r#"{"k":1.5,"ts":1800000000000,"v":1}"#.to_owned(), Some(Reason::KeyType)),
        (r#"{"k":"","ts":1800000000000,"v":1}"#.to_owned(), None),
        (r#"{"k":"a","ts":1800000000000}"#.to_owned(), Some(Reason::ValueMissing)),
        (r#"{"k":"a","ts":1800000000000,"v":null}"#.to_owned(), Some(Reason::ValueMissing)),
        (r#"{"k":"a","ts":1800000000000,"v":"1"}"#.to_owned(), Some(Reason::ValueType)),
        (r#"{"k":"a","ts":1800000000000,"v":true}"#.to_owned(), Some(Reason::ValueType)),
        (r#"{"k":"a","ts":1800000000000,"v":1e400}"#.to_owned(), Some(Reason::ValueOutOfRange)),
        (
            r#"{"k":"a","ts":1800000000000,"v":9223372036854775808}"#.to_owned(),
            Some(Reason::ValueOutOfRange),
        ),
        (r#"{"k":"\ud800","ts":1800000000000,"v":1}"#.to_owned(), Some(Reason::BadJson)),
    ] {
        let shown: String = payload.chars().take(100).collect();
        assert_eq!(reason(&payload), expected, "{shown}");
    }
    assert_eq!(read(b"{\"k\":\"\xC3\",\"ts\":1}").unwrap_err().0, Reason::BadUtf8);
}

#[test]
fn a_float_aggregate_takes_integers_of_any_length() {
    let mut wanted = aggregate("v", AggregateFunction::Sum, Some("v"));
    wanted.value_type = ValueType::Float;
    let source = Source { guard: Guard::ALL, ..source() };
    let mut decoder = Decoder::new(&source, &fields(&["k"]), &[wanted]);
    let mut ask = |value: &str| {
        let payload = format!(r#"{{"k":1,"ts":1,"v":{value}}}"#);
        let record = RawRecord { payload: Some(payload.as_bytes()), ..RawRecord::default() };
        match decoder.decode(record, WALL) {
            Ok(Decoded::Event(event)) => Ok(event.values[0]),
            Ok(Decoded::Tombstone | Decoded::Heartbeat(_)) => panic!("it has a payload"),
            Err(refusal) => Err(refusal.reason),
        }
    };
    assert_eq!(ask("7"), Ok(Some(Value::Float(7.0))));
    assert_eq!(ask("-100000000000000000000"), Ok(Some(Value::Float(-1e20))));
    assert_eq!(ask(&"9".repeat(400)), Err(Reason::ValueOutOfRange));
    assert_eq!(ask("\"7\""), Err(Reason::ValueType));
}

#[test]
fn details_name_the_field_and_the_likely_unit() {
    let detail = |payload: &str| read(payload.as_bytes()).unwrap_err().1;
    assert!(detail(r#"{"k":"a","ts":1800000000,"v":1}"#).contains("`unit = \"s\"`"));
    assert!(detail(r#"{"k":"a","ts":1800000000000000,"v":1}"#).contains("`unit = \"us\"`"));
    assert!(
        detail(r#"{"k":"a","ts":1800000000000,"v":"many"}"#)
            .contains("field `v` is no number: \"many\"")
    );
    let long = format!(r#"{{"k":"a","ts":1800000000000,"v":"{}"}}"#, "é".repeat(100_000));
    assert!(detail(&long).len() < 300);
}

#[test]
fn nested_fields_arrays_escapes_and_dotted_names_are_reached() {
    let mut source = source();
    source.fields = [
        ("from".to_owned(), "airport.from".parse().unwrap()),
        ("leg".to_owned(), "/legs/1/n".parse().unwrap()),
        ("dotted".to_owned(), "/a.b".parse().unwrap()),
    ]
    .into();
    let aggregates = [aggregate("v", AggregateFunction::Sum, Some("leg"))];
    source.guard = Guard::ALL;
    let mut decoder = Decoder::new(&source, &fields(&["from", "dotted"]), &aggregates);
    let payload = r#"{"airport":{"x":[1,{"from":2}],"fr\u006fm":"E\"WR"},"legs":[{"n":1},{"n":7}],"a.b":-5,"ts":3}"#;
    let record = RawRecord { payload: Some(payload.as_bytes()), ..RawRecord::default() };
    let Ok(Decoded::Event(event)) = decoder.decode(record, WALL) else {
        panic!("it is a good record")
    };
    assert_eq!(event.values, [Some(Value::Integer(7))]);
    let parts: Vec<_> =
        KeyParts::new(event.key, 2).map(|part| part.as_text().into_owned()).collect();
    assert_eq!(parts, ["E\"WR", "-5"]);

    let twice =
        r#"{"airport":{"from":"a"},"airport":{"from":"b"},"legs":[0,{"n":7}],"a.b":1,"ts":3}"#;
    let record = RawRecord { payload: Some(twice.as_bytes()), ..RawRecord::default() };
    assert_eq!(decoder.decode(record, WALL).unwrap_err().reason, Reason::DuplicateField);
    let flat = r#"{"airport":"JFK","legs":[0,{"n":7}],"a.b":1,"ts":3}"#;
    let record = RawRecord { payload: Some(flat.as_bytes()), ..RawRecord::default() };
    assert_eq!(decoder.decode(record, WALL).unwrap_err().reason, Reason::KeyMissing);
}

#[test]
fn timestamps_come_from_the_record_or_a_header_too() {
    let ask = |from: TimestampFrom, unit: TimestampUnit, record: RawRecord<'_>| {
        let mut source = source();
        source.timestamp = Timestamp { from, unit, naive_is_utc: false };
        source.guard = Guard::ALL;
        let mut decoder = Decoder::new(&source, &fields(&["k"]), &[]);
        match decoder.decode(record, WALL) {
            Ok(Decoded::Event(event)) => Ok(event.timestamp.0),
            Ok(Decoded::Tombstone | Decoded::Heartbeat(_)) => panic!("it has a payload"),
            Err(refusal) => Err(refusal.reason),
        }
    };
    let record = RawRecord { payload: Some(br#"{"k":1}"#), ..RawRecord::default() };
    let at = |timestamp| RawRecord { timestamp, ..record };
    assert_eq!(ask(TimestampFrom::Record, TimestampUnit::Milliseconds, at(Some(5))), Ok(5));
    assert_eq!(
        ask(TimestampFrom::Record, TimestampUnit::Milliseconds, at(Some(-1))),
        Err(Reason::TsMissing)
    );
    assert_eq!(
        ask(TimestampFrom::Record, TimestampUnit::Milliseconds, at(None)),
        Err(Reason::TsMissing)
    );
    let header = || TimestampFrom::Header("when".to_owned());
    let with = |header: &'static [u8]| RawRecord { timestamp_header: Some(header), ..record };
    assert_eq!(ask(header(), TimestampUnit::Seconds, with(b"7")), Ok(7_000));
    assert_eq!(ask(header(), TimestampUnit::Rfc3339, with(b"1970-01-01T00:00:01Z")), Ok(1_000));
    assert_eq!(ask(header(), TimestampUnit::Seconds, with(b"\xff")), Err(Reason::TsInvalid));
    assert_eq!(ask(header(), TimestampUnit::Seconds, record), Err(Reason::TsMissing));
}

#[test]
fn markers_are_times_flags_or_text_and_guarded_like_timestamps() {
    let mut decoder = decoder(&["k"], None);
    let mut ask = |marker: &str| {
        let payload = format!(r#"{{"k":1,"ts":1800000000000,"wm":{marker}}}"#);
        let record = RawRecord { payload: Some(payload.as_bytes()), ..RawRecord::default() };
        match decoder.decode(record, WALL) {
            Ok(Decoded::Event(Event { marker: Some(Marker::Text(text)), .. })) => {
                Ok(text.to_owned())
            }
            Ok(Decoded::Event(event)) => Ok(format!("{:?}", event.marker)),
            Ok(Decoded::Tombstone | Decoded::Heartbeat(_)) => panic!("it has a payload"),
            Err(refusal) => Err(refusal.reason),
        }
    };
    assert_eq!(ask("1799999999999"), Ok("Some(Time(EventTime(1799999999999)))".to_owned()));
    assert_eq!(ask("true"), Ok("Some(Flag(true))".to_owned()));
    assert_eq!(ask("null"), Ok("None".to_owned()));
    assert_eq!(ask("\"heart\\tbeat\""), Ok("heart\tbeat".to_owned()));
    assert_eq!(ask("9999999999999"), Err(Reason::TsFuture));
}

#[test]
fn results_say_the_window_the_key_the_aggregates_and_the_pane() {
    let number = Results {
        topic: String::new(),
        key: ResultKey::Key,
        progress: false,
        timestamps: TimestampFormat::EpochMs,
        integers: IntegerFormat::Number,
    };
    let text = Results {
        key: ResultKey::KeyWindow,
        timestamps: TimestampFormat::Rfc3339,
        integers: IntegerFormat::Text,
        ..number.clone()
    };
    for (names, parts, format, key, value) in [
        (
            vec!["origin"],
            vec![KeyPart::Text("EWR".into())],
            &number,
            "EWR",
            r#"{"window_start":0,"window_end":10000,"origin":"EWR","n":1,"sum":2.5,"pane":{"timing":"on_time","index":0}}"#,
        ),
        (
            vec!["a", "b"],
            vec![KeyPart::Integer(7), KeyPart::Text("\"".into())],
            &number,
            r#"{"a":7,"b":"\""}"#,
            r#"{"window_start":0,"window_end":10000,"a":7,"b":"\"","n":1,"sum":2.5,"pane":{"timing":"on_time","index":0}}"#,
        ),
        (
            vec!["origin"],
            vec![KeyPart::Bool(true)],
            &text,
            r#"{"origin":true,"window_start":"1970-01-01T00:00:00Z"}"#,
            r#"{"window_start":"1970-01-01T00:00:00Z","window_end":"1970-01-01T00:00:10Z","origin":true,"n":"1","sum":2.5,"pane":{"timing":"on_time","index":0}}"#,
        ),
    ] {
        let aggregates = [
            aggregate("n", AggregateFunction::Count, None),
            aggregate("sum", AggregateFunction::Sum, Some("v")),
        ];
        let mut bytes = Vec::new();
        parts.iter().enumerate().for_each(|(i, part)| part.write(i + 1 == parts.len(), &mut bytes));
        let encoder = Encoder::new(&fields(&names), &aggregates, format);
        let mut record = Encoded::default();
        fire(&bytes, |pane| encoder.result(pane, "in", &mut record));
        assert_eq!(String::from_utf8_lossy(&record.key), key);
        assert_eq!(String::from_utf8_lossy(&record.value), value);
        serde_json::from_slice::<serde_json::Value>(&record.value).unwrap();
    }
}

/// One window with one record of this key, fired.
fn fire(key: &[u8], then: impl FnOnce(&crate::event_time::Pane<'_>)) {
    let mut subtask = Subtask::new(SubtaskSettings {
        topics: vec![TopicSettings {
            strategy: WatermarkStrategy::AscendingTimestamps,
            idle_timeout: None,
        }],
        window: WindowSettings {
            windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
            allowed_lateness: Duration::ZERO,
            panes: Panes::Accumulating,
            aggregates: vec![AggregateFunction::Count, AggregateFunction::Sum],
            limits: StateLimits::default(),
        },
        sharding: Sharding::OneForAll,
        all_idle: AllIdle::Hold,
    });
    let partition = PartitionId { topic: 0, partition: 0 };
    subtask.assign(partition, None);
    let values = [Some(Value::Integer(1)), Value::float(2.5)];
    subtask.on_event(partition, &Event::new(EventTime(0), key, &values));
    subtask.on_event(partition, &Event::new(EventTime(10_000), key, &values));
    subtask.on_periodic_emit(Now { monotonic: MonotonicTime::default(), wall: WALL });
    while let Some(output) = subtask.poll_output() {
        if let Output::Fired(pane) = output {
            return then(&pane);
        }
    }
    panic!("no pane fired");
}
