//! What is generated, by count and by decoding it.

use std::collections::BTreeMap;

use super::*;
use crate::codec::{Decoded, Decoder, RawRecord, Reason};
use crate::config::{
    Aggregate, Guard, Key, KeyFrom, Missing, OnMissing, Source, Start, Timestamp, TimestampFrom,
    TimestampUnit, ValueType,
};
use crate::event_time::{
    AggregateFunction, AllIdle, Disposition, Event, LateCause, MonotonicTime, Now, Panes,
    PartitionId, Sharding, StateLimits, Subtask, SubtaskSettings, TopicSettings, TumblingWindows,
    Value, WatermarkStrategy, WindowSettings,
};

const START: EventTime = EventTime(1_800_000_000_000);

fn settings() -> GeneratorSettings {
    GeneratorSettings::new(7, 6, 100, START)
}

fn records(settings: GeneratorSettings, for_time: Duration) -> Vec<Generated> {
    let until = settings.start + for_time;
    let mut generator = Generator::new(settings);
    std::iter::from_fn(|| generator.next_due(until)).collect()
}

fn share(records: &[Generated], mut of: impl FnMut(&Generated) -> bool) -> f64 {
    let count = |n: usize| f64::from(u32::try_from(n).unwrap());
    count(records.iter().filter(|record| of(record)).count()) / count(records.len())
}

#[test]
fn a_seed_gives_the_same_records_however_time_is_cut() {
    let at_once = records(settings(), Duration::from_mins(2));
    let mut generator = Generator::new(settings());
    let in_slices: Vec<_> = (0..=1_200_u32)
        .flat_map(|slice| {
            let until = START + Duration::from_millis(100) * slice;
            std::iter::from_fn(|| generator.next_due(until)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(at_once, in_slices);
    assert_ne!(
        at_once,
        records(GeneratorSettings { seed: 8, ..settings() }, Duration::from_mins(2))
    );
}

#[test]
fn records_are_due_in_order_at_the_rate_asked_for() {
    let records =
        records(GeneratorSettings { silence: None, ..settings() }, Duration::from_mins(1));
    assert_eq!(records.len(), 6_000);
    assert!(records.is_sorted_by_key(|record| record.due));
    assert_eq!(records.first().unwrap().due, START);
    assert_eq!(records.last().unwrap().due, EventTime(START.0 + 59_990));
}

#[test]
fn shares_are_about_those_asked_for() {
    let settings = GeneratorSettings {
        late_share: 0.05,
        broken_share: 0.03,
        tombstone_share: 0.02,
        ..settings()
    };
    let records = records(settings, Duration::from_mins(10));
    let near = |share: f64, wanted: f64| (share - wanted).abs() < wanted / 5.0;
    assert!(near(share(&records, |record| record.kind == Kind::Late), 0.05));
    assert!(near(share(&records, |record| matches!(record.kind, Kind::Broken(_))), 0.03));
    assert!(near(share(&records, |record| record.kind == Kind::Tombstone), 0.02));
    for flaw in Flaw::ALL {
        assert!(records.iter().any(|record| record.kind == Kind::Broken(flaw)), "{flaw:?}");
    }

    let none = GeneratorSettings {
        late_share: 0.0,
        broken_share: 0.0,
        tombstone_share: 0.0,
        silence: None,
        ..self::settings()
    };
    let records = self::records(none, Duration::from_mins(10));
    assert!(records.iter().all(|record| record.kind == Kind::Ordinary));
}

#[test]
fn disorder_is_mostly_small_and_never_beyond_the_bound() {
    let disorder = Duration::from_secs(8);
    let records = records(GeneratorSettings { disorder, ..settings() }, Duration::from_mins(10));
    let ordinary: Vec<_> =
        records.into_iter().filter(|record| record.kind == Kind::Ordinary).collect();
    let behind = |record: &Generated| record.event_time.behind(record.due);
    assert!(ordinary.iter().all(|record| behind(record) <= disorder));
    assert!(share(&ordinary, |record| behind(record) < Duration::from_secs(1)) > 0.6);
    assert!(share(&ordinary, |record| behind(record) > Duration::from_secs(5)) > 0.01);

    let mut greatest = BTreeMap::new();
    let out_of_order = share(&ordinary, |record| {
        let before = greatest.get(&record.partition).copied().unwrap_or(EventTime::MIN);
        greatest.insert(record.partition, record.event_time.max(before));
        record.event_time < before
    });
    assert!((0.2..0.9).contains(&out_of_order), "{out_of_order}");
}

#[test]
fn late_records_are_behind_by_more_than_the_bound_and_the_window() {
    let records =
        records(GeneratorSettings { late_share: 0.1, ..settings() }, Duration::from_mins(10));
    let mut late = records.iter().filter(|record| record.kind == Kind::Late).peekable();
    assert!(late.peek().is_some());
    assert!(late.all(|record| record.event_time.behind(record.due) >= Duration::from_secs(12)));
}

#[test]
fn the_last_partition_is_silent_in_its_stretch_and_brings_a_few_orders_from_it() {
    let records = records(settings(), Duration::from_mins(3));
    let second = |record: &Generated| (record.due.0 - START.0) / 1_000 % 60;
    let last = records.iter().filter(|record| record.partition == 5);
    assert!(last.clone().all(|record| !(20..45).contains(&second(record))));
    assert!(last.clone().any(|record| second(record) < 20));
    let back: Vec<_> =
        last.filter(|record| second(record) == 45).take(HELD_BACK).map(|r| r.kind).collect();
    assert_eq!(back, [Kind::Delayed; HELD_BACK]);
    for partition in 0..5 {
        let mut there = records.iter().filter(|record| record.partition == partition);
        assert!(there.any(|record| (20..45).contains(&second(record))), "{partition}");
    }
}

#[test]
fn one_partition_and_a_rate_of_zero_are_taken_as_one() {
    let settings = GeneratorSettings::new(1, 0, 0, START);
    let records = records(settings, Duration::from_secs(10));
    assert_eq!(records.len(), 10);
    assert!(records.iter().all(|record| record.partition == 0));
}

#[test]
fn a_shop_stays_in_its_partition() {
    let mut partitions = BTreeMap::new();
    for record in records(settings(), Duration::from_mins(5)) {
        if let Some(shop) = record.key {
            assert_eq!(*partitions.entry(shop).or_insert(record.partition), record.partition);
        }
    }
    assert_eq!(partitions.len(), 24);
}

#[test]
fn the_service_decodes_what_is_right_and_refuses_what_is_broken() {
    for key in [KeyFrom::Message, KeyFrom::Fields(vec!["shop".to_owned()])] {
        let mut decoder = decoder(key);
        let settings = GeneratorSettings { broken_share: 0.1, tombstone_share: 0.1, ..settings() };
        let mut bytes = 0;
        let records = records(settings, Duration::from_mins(2));
        for record in &records {
            let raw = RawRecord {
                key: record.key.as_deref().map(str::as_bytes),
                payload: record.payload.as_deref(),
                ..RawRecord::default()
            };
            bytes += record.payload.as_ref().map_or(180, Vec::len);
            match (record.kind, decoder.decode(raw, record.due)) {
                (Kind::Ordinary | Kind::Delayed | Kind::Late, Ok(Decoded::Event(event))) => {
                    assert_eq!(event.timestamp, record.event_time);
                }
                (Kind::Tombstone, Ok(Decoded::Tombstone)) => {}
                (Kind::Broken(flaw), Err(refusal)) => assert_eq!(refusal.reason, reason(flaw)),
                (kind, outcome) => panic!("{kind:?} came out as {outcome:?}"),
            }
        }
        assert!((165..195).contains(&(bytes / records.len())), "{}", bytes / records.len());
    }
}

#[test]
fn with_a_bound_of_the_disorder_what_is_made_late_is_late_and_nothing_else() {
    let settings = GeneratorSettings { late_share: 0.02, ..settings() };
    let mut subtask = subtask(&settings);
    let mut emit_at = START;
    let (mut late, mut missed, mut after_idle) = (0, 0, 0);
    for record in records(settings, Duration::from_mins(10)) {
        while emit_at <= record.due {
            let monotonic = MonotonicTime(START.behind(emit_at));
            subtask.run_idle_clocks(TICK);
            subtask.on_periodic_emit(Now { monotonic, wall: emit_at });
            while subtask.poll_output().is_some() {}
            emit_at = emit_at + TICK;
        }
        let (Kind::Ordinary | Kind::Delayed | Kind::Late, Some(shop)) = (record.kind, &record.key)
        else {
            continue;
        };
        let id = PartitionId { topic: 0, partition: record.partition };
        let event = Event::new(record.event_time, shop.as_bytes(), &[Some(Value::Integer(1))]);
        let disposition = subtask.on_event(id, &event);
        while subtask.poll_output().is_some() {}
        match (record.kind, disposition) {
            (Kind::Late, Disposition::Late(_)) => late += 1,
            (Kind::Late, Disposition::Windowed | Disposition::Refired) => missed += 1,
            (Kind::Delayed, Disposition::Late(lateness)) => {
                assert_eq!(lateness.cause, LateCause::AfterIdle);
                after_idle += 1;
            }
            (_, Disposition::Windowed | Disposition::Refired) => {}
            (kind, disposition) => panic!("{kind:?}: {disposition:?}"),
        }
    }
    // While the silent partition holds the watermark until it is idle, windows wait for late records.
    assert!(late > 5 * missed, "{late} {missed}");
    assert!(missed > 0);
    assert!(after_idle >= 20, "{after_idle}");
}

fn subtask(settings: &GeneratorSettings) -> Subtask {
    let mut subtask = Subtask::new(SubtaskSettings {
        topics: vec![TopicSettings {
            strategy: WatermarkStrategy::BoundedOutOfOrderness {
                max_out_of_orderness: settings.disorder,
            },
            idle_timeout: Some(Duration::from_secs(10)),
        }],
        window: WindowSettings {
            windows: TumblingWindows::new(settings.late_by, 0).unwrap(),
            allowed_lateness: Duration::ZERO,
            panes: Panes::Accumulating,
            aggregates: vec![AggregateFunction::Count],
            limits: StateLimits::default(),
        },
        sharding: Sharding::OneForAll,
        all_idle: AllIdle::Hold,
    });
    for partition in 0..i32::try_from(settings.partitions).unwrap() {
        subtask.assign(PartitionId { topic: 0, partition }, None);
    }
    subtask
}

const TICK: Duration = Duration::from_millis(200);

fn reason(flaw: Flaw) -> Reason {
    match flaw {
        Flaw::Truncated => Reason::BadJson,
        Flaw::AmountAsText => Reason::ValueType,
        Flaw::NoKey => Reason::KeyMissing,
        Flaw::Seconds => Reason::TsPast,
        Flaw::FarFuture => Reason::TsFuture,
    }
}

fn decoder(key: KeyFrom) -> Decoder {
    let source = Source {
        topic: "orders".to_owned(),
        table: 0,
        timestamp: Timestamp {
            from: TimestampFrom::Field("ts".parse().unwrap()),
            unit: TimestampUnit::Milliseconds,
            naive_is_utc: false,
        },
        strategy: WatermarkStrategy::Punctuated,
        marker: None,
        idle_timeout: None,
        partitions: BTreeMap::new(),
        heartbeat: None,
        guard: Guard {
            max_future: Some(Duration::from_hours(1)),
            min_timestamp: Some(EventTime(946_684_800_000)),
        },
        fields: BTreeMap::new(),
        start: Start::Earliest,
        on_missing: OnMissing::Stop,
    };
    let amount = Aggregate {
        name: "amount".to_owned(),
        function: AggregateFunction::Sum,
        field: Some("amount_cents".to_owned()),
        value_type: ValueType::Integer,
        missing: Missing::Refuse,
    };
    Decoder::new(&source, &Key { from: key, partial: false, across_topics: false }, &[amount])
}
