//! The adaptive bound: it grows with the disorder, comes back with order, and never makes the watermark fall.
//!
//! Most tests drive one generator by hand; to add one, say what it sees with [`Driven::see`] and look at its bound. The last
//! test is an experiment on a made stream of two days; its figures are printed
//! (`cargo test --test adaptive -- --nocapture`).
#![expect(clippy::print_stdout, reason = "the figures are for whoever runs the test")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate::event_time::{
    Adaptive, AdaptiveSettings, BoundedOutOfOrderness, Event, EventTime, MonotonicTime,
    WatermarkGenerator, WatermarkOutput, WatermarkStrategy,
};

const SECOND: i64 = 1_000;

/// 2 x the disorder of the last 3 buckets of 10 s, between 1 s and 60 s; a cold start waits 60 s.
const SETTINGS: AdaptiveSettings = AdaptiveSettings {
    margin: 2.0,
    buckets: 3,
    bucket_width: Duration::from_secs(10),
    floor: Duration::from_secs(1),
    ceiling: Duration::from_mins(1),
    initial: None,
};

#[test]
fn order_for_as_long_as_all_buckets_brings_the_bound_to_the_floor() {
    for epoch in [0, -7, 1_000_000_007, -1_000_000_007] {
        let mut driven = warm(epoch);
        driven.see(epoch + 92 * SECOND);
        assert_eq!(driven.bound_ms(), 14_000, "twice the 7 s");
        for second in 100..=129 {
            driven.see(epoch + second * SECOND);
        }
        assert_eq!(driven.bound_ms(), 1_000, "30 s of order have passed since {epoch}");
    }
}

#[test]
fn an_outlier_leaves_with_its_bucket_and_not_before() {
    let mut driven = warm(0);
    driven.see(79 * SECOND);
    // It was seen while the greatest time lay in the bucket from 90 s to 100 s, which is remembered until 120 s.
    for second in [99, 100, 101, 110, 119] {
        driven.see(second * SECOND);
        assert_eq!(driven.bound_ms(), 40_000, "at {second} s");
    }
    driven.see(120 * SECOND);
    assert_eq!(driven.bound_ms(), 1_000);
}

#[test]
fn a_jump_over_all_buckets_forgets_them_all() {
    let mut driven = warm(0);
    driven.see(70 * SECOND);
    assert_eq!(driven.bound_ms(), 58_000);
    driven.see(1_000_000 * SECOND);
    assert_eq!(driven.bound_ms(), 1_000);
}

#[test]
fn the_bound_stays_between_floor_and_ceiling() {
    let mut driven = warm(0);
    driven.see(99 * SECOND - 100);
    assert_eq!(driven.bound_ms(), 1_000, "twice 0.1 s is below the floor");
    driven.see(0);
    assert_eq!(driven.bound_ms(), 60_000, "twice 99 s is above the ceiling");
}

#[test]
fn a_cold_start_is_not_below_the_initial_bound_until_all_buckets_have_passed() {
    for (initial, expected_ms) in [(None, 60_000), (Some(Duration::from_secs(20)), 20_000)] {
        let mut driven = Driven::new(AdaptiveSettings { initial, ..SETTINGS });
        assert_eq!(driven.bound_ms(), expected_ms, "before any record");
        for second in 4..30 {
            driven.see(second * SECOND);
            assert_eq!(driven.bound_ms(), expected_ms, "at {second} s");
        }
        driven.see(30 * SECOND);
        assert_eq!(driven.bound_ms(), 1_000, "the buckets from 0 s, 10 s and 20 s are over");
    }
}

#[test]
fn a_cold_start_still_grows_above_the_initial_bound() {
    let initial = Some(Duration::from_secs(5));
    let mut driven = Driven::new(AdaptiveSettings { initial, ..SETTINGS });
    driven.see(20 * SECOND);
    driven.see(10 * SECOND);
    assert_eq!(driven.bound_ms(), 20_000);
}

#[test]
fn the_watermark_stays_while_the_bound_grows() {
    let mut driven = warm(0);
    let before = driven.watermark();
    assert_eq!(before, Some(98 * SECOND - 1), "99 s - 1 s - 1 ms");
    driven.see(80 * SECOND);
    assert_eq!((driven.bound_ms(), driven.watermark()), (38_000, before));
    // It goes on when the greatest time is 38 s past it.
    driven.see(119 * SECOND);
    assert_eq!(driven.watermark(), before);
    driven.see(120 * SECOND);
    assert_eq!(driven.watermark(), Some(119 * SECOND - 1), "the outlier has left");
}

#[test]
fn a_snapshot_with_other_buckets_is_not_taken() {
    let snapshot = warm(0).generator.snapshot();
    let narrow = AdaptiveSettings { bucket_width: Duration::from_secs(5), ..SETTINGS };
    for settings in [narrow, AdaptiveSettings { buckets: 4, ..SETTINGS }] {
        let mut successor = Driven::new(settings);
        assert!(!successor.generator.restore(&snapshot));
        assert_eq!(successor.bound_ms(), 60_000, "a cold start is safe");
    }
    for broken in [&snapshot[..snapshot.len() - 1], &[9][..]] {
        assert!(!Driven::new(SETTINGS).generator.restore(broken));
    }
}

#[test]
fn a_snapshot_of_another_kind_is_not_taken_and_an_empty_one_always() {
    let strategies = [
        WatermarkStrategy::Adaptive(SETTINGS),
        WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness: Duration::from_secs(1) },
    ];
    for of in 0..2 {
        for to in 0..2 {
            let mut generator = strategies[of].generator();
            generator
                .on_event(&Event::new(EventTime(0), b"", &[]), &mut WatermarkOutput::default());
            let mut successor = strategies[to].generator();
            assert_eq!(successor.restore(&generator.snapshot()), of == to, "{of} to {to}");
            assert!(successor.restore(&[]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::Direct("proptest-regressions/adaptive.txt"),
    ))]

    #[test]
    fn the_watermark_never_falls(
        settings in settings(), records in prop::collection::vec(-200_000..200_000i64, 1..100)
    ) {
        let mut driven = Driven::new(settings);
        let mut last = None;
        for ts in records {
            driven.see(ts);
            let watermark = driven.watermark();
            prop_assert!(watermark >= last, "{:?} after {:?}", watermark, last);
            last = watermark;
        }
    }

    #[test]
    fn snapshot_and_restore_change_nothing(
        settings in settings(),
        before in prop::collection::vec(-200_000..200_000i64, 0..60),
        after in prop::collection::vec(-200_000..200_000i64, 0..60),
    ) {
        let mut driven = Driven::new(settings);
        for ts in before {
            driven.see(ts);
            driven.watermark();
        }
        let mut successor = Driven::new(settings);
        prop_assert!(successor.generator.restore(&driven.generator.snapshot()));
        for ts in std::iter::once(None).chain(after.into_iter().map(Some)) {
            for generator in [&mut driven, &mut successor] {
                if let Some(ts) = ts {
                    generator.see(ts);
                }
            }
            prop_assert_eq!(driven.bound_ms(), successor.bound_ms());
            prop_assert_eq!(driven.watermark(), successor.watermark());
            prop_assert_eq!(driven.generator.gauges(), successor.generator.gauges());
        }
    }

    #[test]
    fn whole_buckets_earlier_is_the_same(
        settings in settings(),
        records in prop::collection::vec(0..200_000i64, 1..100),
        earlier in 1..1_000_000i64,
    ) {
        let shift = earlier * i64::try_from(settings.bucket_width.as_millis()).unwrap();
        let (mut driven, mut shifted) = (Driven::new(settings), Driven::new(settings));
        for ts in records {
            driven.see(ts);
            shifted.see(ts - shift);
            prop_assert_eq!(driven.bound_ms(), shifted.bound_ms());
            prop_assert_eq!(driven.watermark().map(|time| time - shift), shifted.watermark());
        }
    }
}

/// Two days of three records a second that come up to 10 s late by day and up to 1 s by night.
#[test]
fn by_day_and_night_it_is_late_less_than_a_short_bound_and_quicker_than_a_long_one() {
    let adaptive = experiment(Adaptive::new(AdaptiveSettings::default()));
    let short = experiment(BoundedOutOfOrderness::new(Duration::from_secs(2)));
    let long = experiment(BoundedOutOfOrderness::new(Duration::from_secs(20)));
    println!("adaptive:   {adaptive:?}");
    println!("fixed 2 s:  {short:?}");
    println!("fixed 20 s: {long:?}");
    assert!(adaptive.late < short.late / 100);
    assert!(adaptive.mean_delay_ms < long.mean_delay_ms * 4 / 5);
}

#[derive(Debug)]
#[expect(dead_code, reason = "read where it is printed")]
struct Figures {
    records: i64,
    /// At or below the watermark when they came.
    late: i64,
    /// Of the watermark behind the greatest timestamp, averaged over the records.
    mean_delay_ms: i64,
}

fn experiment(generator: impl WatermarkGenerator) -> Figures {
    const HOUR: i64 = 3_600 * SECOND;
    let mut driven = Driven { generator };
    let (mut records, mut late, mut delay_ms) = (0, 0, 0);
    let (mut watermark, mut greatest) = (None, i64::MIN);
    let mut random = 88_172_645_463_325_252_u64;
    let mut next_emission = 0;
    for arrival in (0..48 * HOUR).step_by(333) {
        let by_day = (6..22).contains(&(arrival / HOUR % 24));
        // Marsaglia's xorshift: the same stream in every run.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let disorder = if by_day { 10 * SECOND } else { SECOND };
        let ts = arrival - i64::try_from(random % disorder.unsigned_abs()).unwrap();
        if arrival >= next_emission {
            watermark = driven.watermark();
            next_emission = arrival + 200;
        }
        records += 1;
        late += i64::from(watermark.is_some_and(|watermark| ts <= watermark));
        driven.see(ts);
        greatest = greatest.max(ts);
        delay_ms += watermark.map_or(0, |watermark| greatest - watermark);
    }
    Figures { records, late, mean_delay_ms: delay_ms / records }
}

/// A generator and what is asked of it.
struct Driven<G> {
    generator: G,
}

impl Driven<Adaptive> {
    fn new(settings: AdaptiveSettings) -> Self {
        Self { generator: Adaptive::new(settings) }
    }

    fn bound_ms(&self) -> u128 {
        self.generator.bound().map_or(0, |bound| bound.as_millis())
    }
}

impl<G: WatermarkGenerator> Driven<G> {
    fn see(&mut self, ts: i64) {
        let mut output = WatermarkOutput::default();
        self.generator.on_event(&Event::new(EventTime(ts), b"", &[]), &mut output);
        assert_eq!(output, WatermarkOutput::default(), "it emits periodically only");
    }

    /// What a periodic emission gives now.
    fn watermark(&mut self) -> Option<i64> {
        let mut output = WatermarkOutput::default();
        self.generator.on_periodic_emit(MonotonicTime::default(), &mut output);
        output.watermark()?.time().map(|time| time.0)
    }
}

/// A generator past its cold start that has seen only order, up to 99 s after the epoch given.
fn warm(epoch: i64) -> Driven<Adaptive> {
    let mut driven = Driven::new(SETTINGS);
    for second in 50..100 {
        driven.see(epoch + second * SECOND);
    }
    assert_eq!(driven.bound_ms(), 1_000);
    driven
}

fn settings() -> impl Strategy<Value = AdaptiveSettings> {
    let ms = |range: std::ops::Range<u64>| range.prop_map(Duration::from_millis);
    let initial = prop::option::of(ms(0..60_000));
    (0.5..4.0f64, 1..8u16, ms(1..30_000), ms(0..5_000), ms(0..90_000), initial).prop_map(
        |(margin, buckets, bucket_width, floor, ceiling, initial)| AdaptiveSettings {
            margin,
            buckets,
            bucket_width,
            floor,
            ceiling,
            initial,
        },
    )
}
