//! The promises, on records made for them and on a month of real flights.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use super::*;
use crate::config::{Sources, load};
use crate::event_time::{EventTime, MonotonicTime, PartitionId, TumblingWindows};

/// Numbers between 0 and 1, 0 left out, the same for a seed.
pub(super) fn shares(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap();
        (f64::from(high) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }
}

const BASE: i64 = 1_800_000_000_000;

fn terms(max_delay: Option<u64>) -> Terms {
    Terms {
        topic: "orders".to_owned(),
        source: vec![
            "timestamp = { field = \"ts\", unit = \"ms\" }".to_owned(),
            "heartbeat = { field = \"type\", equals = \"beat\", counts_as = \"silence\", watermark = true }"
                .to_owned(),
        ],
        window_size: Duration::from_mins(1),
        emit_interval: Duration::from_millis(200),
        idle_timeout: Some(Duration::from_secs(30)),
        batch_period: None,
        max_delay: max_delay.map(Duration::from_secs),
        bound: None,
        is_live: false,
    }
}

/// What is seen of records given as (event time, arrival) in ms, by partition.
fn observe(window: Duration, partitions: &[Vec<(i64, i64)>]) -> BTreeMap<i32, Observed> {
    let windows = TumblingWindows::new(window, 0).unwrap();
    let mut observations = Observations::new(windows, Duration::ZERO);
    let ids = (0..).map(|partition| PartitionId { topic: 0, partition });
    for (id, records) in ids.zip(partitions) {
        observations.keep(
            &[id]
                .into_iter()
                .chain((0..id.partition).map(|partition| PartitionId { topic: 0, partition }))
                .collect(),
            MonotonicTime::default(),
        );
        for (offset, (event_time, arrival)) in (0..).zip(records) {
            let arrival = Some(EventTime(*arrival));
            let seen = Seen { offset, event_time: EventTime(*event_time), arrival, late: None };
            observations.on_event(id, seen, MonotonicTime::default());
        }
    }
    observations.of_topic(0)
}

/// One record each 100 ms, every other of them behind the one before it by chance, so that the P99 of all is this.
fn disordered(seed: u64, p99_ms: f64) -> Vec<(i64, i64)> {
    let mut random = shares(seed);
    let record = |i: i64| {
        let newest = BASE + i / 2 * 200;
        #[expect(clippy::cast_possible_truncation, reason = "a test")]
        let behind = if i % 2 == 0 { 0 } else { (-p99_ms / 50f64.ln() * random().ln()) as i64 };
        (newest - behind, newest + 40 + i % 2)
    };
    (0..50_000).map(record).collect()
}

fn advice(partitions: &[Vec<(i64, i64)>], terms: &Terms) -> Advice {
    Advice::new(&observe(terms.window_size, partitions), terms)
}

#[test]
fn with_a_p99_of_six_seconds_and_thirty_allowed_it_recommends_eight_to_ten() {
    let found = advice(&[disordered(1, 6_000.0)], &terms(Some(30)));
    let p99 = found.out_of_orderness_ms.unwrap().p99;
    assert!((5_800..=6_200).contains(&p99), "{p99}");
    let fit = found.recommendation.as_ref().unwrap();
    assert!((8_000..=10_000).contains(&fit.max_out_of_orderness_ms), "{fit:?}");
    let delay = fit.delay;
    assert_eq!(delay.total_ms, delay.transport_ms + delay.bound_ms + 200 + 100);
    assert!(delay.total_ms <= 30_000);
    let left = found.max_delay.unwrap();
    assert_eq!(left.room_ms, 30_000 - delay.transport_ms - 300);
    assert!(left.late_share_at_room <= left.late_share_at_p99);
    assert!(found.contradictions.is_empty(), "{:?}", found.contradictions);
    // Falling silent costs the timeout and up to three emit intervals, and that has to fit too.
    assert!(fit.idle_timeout_ms + 3 * 200 + 100 + delay.transport_ms <= 30_000, "{fit:?}");
    assert!(fit.idle_timeout_ms >= 1_000);
}

#[test]
fn without_a_greatest_delay_the_bound_is_the_99th_percentile() {
    let found = advice(&[disordered(2, 6_000.0)], &terms(None));
    let fit = found.recommendation.as_ref().unwrap();
    let p99 = found.out_of_orderness_ms.unwrap().p99;
    assert!(fit.max_out_of_orderness_ms.abs_diff(p99) <= 50, "{fit:?}");
    assert_eq!(fit.idle_timeout_ms, 30_000);
    assert!(fit.late_share < 0.01, "{fit:?}");
}

#[test]
fn gaps_of_two_minutes_and_a_delay_of_one_are_a_contradiction_with_its_ways_out() {
    let mut random = shares(9);
    let mut at = BASE;
    // Exponential gaps with a P99 of 2 min.
    let sparse: Vec<_> = (0..5_000)
        .map(|_| {
            #[expect(clippy::cast_possible_truncation, reason = "a test")]
            let gap = (-120_000.0 / 100f64.ln() * random().ln()) as i64;
            at += gap;
            (at, at + 50)
        })
        .collect();
    let busy: Vec<_> = (0..50_000).map(|i| (BASE + i * 2_600, BASE + i * 2_600 + 50)).collect();
    let found = advice(&[busy, sparse], &terms(Some(60)));
    let [contradiction] = &found.contradictions[..] else { panic!("{:?}", found.contradictions) };
    assert_eq!((contradiction.setting, contradiction.partition), ("idle_timeout", Some(1)));
    assert!((330_000..=390_000).contains(&contradiction.needed_ms), "{contradiction:?}");
    assert!(contradiction.allowed_ms < 60_000);
    let text = found.text();
    for way in ["of its own", "heartbeats", "wall_clock", "other partitioning"] {
        assert!(text.contains(way), "no {way} in\n{text}");
    }
    assert!(text.contains("contradiction: partition 1 needs an idle timeout of 6."), "{text}");
}

#[test]
fn batches_every_five_minutes_need_ten() {
    for records in [3, 40, 2_000] {
        let batch = |n: i64| {
            (0..records).map(move |i| {
                let arrival = BASE + n * 300_000 + i * 5;
                (arrival - 300_000 + i * 300_000 / records, arrival)
            })
        };
        let found = advice(&[(0..24).flat_map(batch).collect()], &terms(None));
        let fit = found.recommendation.as_ref().unwrap();
        assert_eq!(fit.idle_timeout_ms, 600_000, "{records} a batch: {}", found.text());
        assert_eq!(found.partitions[0].batch_period_ms, Some(300_000));
        assert!(found.snippet.as_ref().unwrap().contains("idle_timeout = \"10m\""));
        let contradicted = advice(&[(0..24).flat_map(batch).collect()], &terms(Some(120)));
        assert_eq!(contradicted.contradictions.last().unwrap().needed_ms, 600_000);
        assert!(contradicted.text().contains("batches every 5.0 min, as it seems"));
    }
    // Or as it is given.
    let given = Terms { batch_period: Some(Duration::from_mins(15)), ..terms(None) };
    let found = advice(&[disordered(4, 100.0)], &given);
    assert_eq!(found.recommendation.unwrap().idle_timeout_ms, 1_800_000);
}

#[test]
fn what_another_bound_would_have_lost_is_told_by_the_windows() {
    // Every tenth record comes 5 s after its window of a minute has ended, seen from the greatest event time.
    let records: Vec<_> = (0..10_000_i64)
        .map(|i| {
            let minute = BASE + i * 60_000;
            let event_time = if i % 10 == 9 { minute - 60_001 } else { minute + 5_000 };
            (event_time, minute + 5_100)
        })
        .collect();
    for (bound, expected) in [(4, 0.1), (6, 0.0)] {
        let asked = Terms { bound: Some(Duration::from_secs(bound)), ..terms(None) };
        let told = advice(std::slice::from_ref(&records), &asked).what_if.unwrap();
        assert!((told.late_share - expected).abs() < 0.001, "{bound} s: {told:?}");
        assert_eq!(
            told.delay_ms,
            advice(std::slice::from_ref(&records), &asked)
                .recommendation
                .unwrap()
                .delay
                .transport_ms
                + bound * 1_000
                + 300
        );
    }
}

#[test]
fn odd_partitions_are_named() {
    let steady = |from: i64, records: i64| -> Vec<_> {
        (0..records).map(|i| (from + i * 100, BASE + i * 100 + 40)).collect()
    };
    let mut ahead = steady(BASE, 6_000);
    ahead.push((BASE + 600_000 + 3_000_000, BASE + 600_000));
    let partitions =
        [steady(BASE, 6_000), vec![], steady(BASE, 2_000), steady(BASE - 900_000, 6_000), ahead];
    let found = advice(&partitions, &terms(None));
    let kinds: Vec<_> = found.findings.iter().map(|found| (found.kind, found.partition)).collect();
    for odd in [("no_records", 1), ("silent", 2), ("skewed", 3), ("clock_ahead", 4)] {
        assert!(kinds.contains(&(odd.0, Some(odd.1))), "no {odd:?}: {kinds:?}");
    }
    assert!(
        found.text().contains("partition 4: 1 records are ahead of their arrival, by up to 50 min"),
        "{}",
        found.text()
    );
}

#[test]
fn records_after_an_idle_time_ask_for_lateness() {
    let mut observed = observe(Duration::from_mins(1), &[disordered(1, 1_000.0)]);
    let seen = observed.get_mut(&0).unwrap();
    (0..100).for_each(|_| seen.after_idle.add(45_000));
    let fit = Advice::new(&observed, &terms(None)).recommendation.unwrap();
    // 30 s, three ticks, and 45 s of catching up.
    assert!((75_600..77_000).contains(&fit.allowed_lateness_ms), "{fit:?}");
}

#[test]
fn nothing_seen_recommends_nothing() {
    let found = advice(&[vec![]], &terms(Some(30)));
    assert_eq!((found.recommendation.clone(), found.snippet.clone()), (None, None));
    assert!(found.text().contains("nothing to go by"));
}

/// The departures in their real order, by the time they were scheduled for; written all at once, long after.
fn flights(cancelled: bool) -> Vec<(i64, i64)> {
    let data: &[u8] = include_bytes!("../../../tests/data/flights-2013-01.jsonl.gz");
    let mut lines = String::new();
    flate2::read::GzDecoder::new(data).read_to_string(&mut lines).unwrap();
    let flight = |line: &str| {
        let flight: serde_json::Value = serde_json::from_str(line).unwrap();
        let flew = flight["delay_min"].is_i64();
        (flew || cancelled).then_some(())?;
        Some((flight["scheduled"].as_i64()? * 1_000, BASE))
    };
    lines.lines().filter_map(flight).collect()
}

#[test]
fn for_a_month_of_flights_it_recommends_the_99th_percentile_and_not_the_mean() {
    let hourly = Terms {
        topic: "flights".to_owned(),
        window_size: Duration::from_hours(1),
        emit_interval: Duration::ZERO,
        ..terms(None)
    };
    let found = advice(&[flights(true)], &hourly);
    assert_eq!(found.records, 27_004);
    let fit = found.recommendation.as_ref().unwrap();
    // 161 min, give or take the sketch's error.
    let off = fit.max_out_of_orderness_ms.abs_diff(161 * 60_000);
    assert!(off <= 161 * 600, "{} ms", fit.max_out_of_orderness_ms);
    assert!(fit.late_share < 0.01);
    let text = found.text();
    assert!(text.contains("the mean would be no guide: as the bound it would lose 10."), "{text}");
    assert!(found.findings.iter().any(|found| found.kind == "replay"), "{text}");

    // The service finds 2,693 records late with a bound of 14 min, and 164 with 161 min, of those that flew.
    for (bound, late) in [(14, 2_693), (161, 164)] {
        let asked = Terms { bound: Some(Duration::from_mins(bound)), ..hourly.clone() };
        let told = advice(&[flights(false)], &asked).what_if.unwrap();
        assert!(told.late_records.abs_diff(late) <= late / 50, "{bound} min: {told:?}");
    }
}

#[test]
fn the_snippet_is_a_configuration_that_is_accepted() {
    let found = advice(&[disordered(1, 6_000.0)], &terms(Some(30)));
    let rest = r#"
        [kafka]
        group_id = "g"
        [key]
        from = "message"
        [[aggregate]]
        name = "n"
        function = "count"
        [results]
        topic = "out"
        [late]
        topic = "late"
        [dead_letter]
        topic = "dead"
    "#;
    let path = std::env::temp_dir().join(format!("tidegate-advise-{}.toml", std::process::id()));
    std::fs::write(&path, format!("{}{rest}", found.snippet.as_ref().unwrap())).unwrap();
    let sources = Sources {
        files: vec![path.clone()],
        host_name: Some("here".to_owned()),
        ..Sources::default()
    };
    let loaded = load(&sources);
    std::fs::remove_file(&path).unwrap();
    let loaded = loaded.unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let fit = found.recommendation.unwrap();
    let source = &loaded.config.sources[0];
    assert_eq!(source.idle_timeout, Some(Duration::from_millis(fit.idle_timeout_ms)));
    assert_eq!(loaded.config.allowed_lateness, Duration::from_millis(fit.allowed_lateness_ms));
    // The source's own lines are written as they were read.
    assert_eq!(Terms::new(&loaded.config, source).source, terms(None).source);
}
