//! What settings mean once they are right.

use std::time::Duration;

use super::{EXAMPLE, Folder, example_with, load_text};
use crate::config::{
    Delivery, Guarantee, KeyFrom, Missing, OnMissing, Sources, Start, TimestampFrom, TimestampUnit,
    ValueType, load,
};
use crate::event_time::{
    AdaptiveSettings, AggregateFunction, AllIdle, BoundedOutOfOrderness, EventTime, NamedStrategy,
    Panes, StateLimits, WatermarkStrategy,
};

#[test]
fn the_example_means_what_it_says() {
    let loaded = load_text(EXAMPLE, &[]).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    let config = loaded.config;
    let source = &config.sources[0];
    assert_eq!(source.timestamp.from, TimestampFrom::Field("scheduled".parse().unwrap()));
    assert_eq!(source.timestamp.unit, TimestampUnit::Seconds);
    assert!(matches!(
        source.strategy,
        WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness }
            if max_out_of_orderness == Duration::from_hours(3)
    ));
    assert_eq!(source.path("origin"), Some("airport.from".parse().unwrap()));
    assert_eq!(source.idle_timeout, Some(Duration::from_secs(30)));
    assert_eq!((source.start, source.on_missing), (Start::Earliest, OnMissing::Stop));
    assert_eq!(config.windows.size(), Duration::from_hours(1));
    assert_eq!(config.key.from, KeyFrom::Fields(vec!["origin".to_owned()]));
    assert_eq!(config.aggregates[0].function, AggregateFunction::Count);
    assert_eq!(config.aggregates[1].field.as_deref(), Some("delay_min"));
    assert_eq!(config.aggregates[1].missing, Missing::Refuse);
    assert_eq!(config.kafka.instance_id, "host-1");
    assert!(config.topics.create);
}

#[test]
fn what_nobody_wrote_has_its_default() {
    let config = load_text(&example_with(", idle_timeout = \"30s\"", ""), &[]).unwrap().config;
    assert_eq!(config.sources[0].idle_timeout, Some(Duration::from_secs(30)));
    assert_eq!((config.windows.offset_ms(), config.panes), (0, Panes::Accumulating));
    assert_eq!(config.emit_interval, Duration::from_millis(200));
    assert_eq!(config.all_idle, AllIdle::Hold);
    assert_eq!(config.max_drift, None);
    assert_eq!(config.guard.max_future, Some(Duration::from_hours(1)));
    assert_eq!(config.guard.min_timestamp, Some(EventTime(946_684_800_000)));
    let limits = StateLimits {
        windows: Some(100_000),
        keys_per_window: Some(10_000_000),
        bytes: Some(1 << 30),
    };
    assert_eq!(config.limits, limits);
    assert_eq!((config.topics.partitions, config.topics.replication_factor), (6, None));
    let delivery = Delivery {
        guarantee: Guarantee::ExactlyOnce,
        commit_interval: Duration::from_secs(1),
        transaction_timeout: Duration::from_secs(15),
    };
    assert_eq!(config.delivery, delivery);
    assert_eq!(config.http.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!((config.subtasks, config.shutdown_timeout), (1, Duration::from_secs(25)));
}

#[test]
fn other_words_have_other_meanings() {
    let overrides = [
        "window.size=24h",
        "window.offset=-8h",
        "window.panes=discarding",
        "watermark.emit_interval=0ms",
        "alignment.max_drift=10m",
        "guard.max_future=off",
        "guard.min_timestamp=off",
        "topics.replication_factor=3",
        "source[0].start=2025-01-01T00:00:00+01:00",
        "aggregate[1].type=integer",
        "kafka.instance_id=a",
    ];
    let config = load_text(EXAMPLE, &overrides).unwrap().config;
    assert_eq!(config.windows.offset_ms(), -8 * 3_600_000);
    assert_eq!(config.panes, Panes::Discarding);
    assert_eq!(
        (config.emit_interval, config.max_drift),
        (Duration::ZERO, Some(Duration::from_mins(10)))
    );
    assert_eq!((config.guard.max_future, config.guard.min_timestamp), (None, None));
    assert_eq!(config.topics.replication_factor, Some(3));
    assert_eq!(config.sources[0].start, Start::At(EventTime(1_735_686_000_000)));
    assert_eq!(config.aggregates[1].value_type, ValueType::Integer);
    assert_eq!(config.kafka.instance_id, "a");
}

#[test]
fn timestamps_may_be_in_the_record_or_in_a_header() {
    let at = "field = \"scheduled\", unit = \"s\"";
    let timestamp = |to: &str| {
        let loaded = load_text(&example_with(at, to), &[]).unwrap();
        loaded.config.sources[0].timestamp.clone()
    };
    let record = timestamp("from = \"record\"");
    assert_eq!(record.from, TimestampFrom::Record);
    assert_eq!(record.unit, TimestampUnit::Milliseconds);
    let header = timestamp("header = \"at\", unit = \"rfc3339\", naive = \"utc\"");
    assert_eq!(header.from, TimestampFrom::Header("at".to_owned()));
    assert!(header.naive_is_utc);
}

#[test]
fn the_adaptive_strategy_has_the_defaults_of_its_type() {
    let bounded = r#"strategy = "bounded_out_of_orderness", max_out_of_orderness = "3h""#;
    let adaptive = |to: &str| {
        let loaded = load_text(&example_with(bounded, to), &[]).unwrap();
        let WatermarkStrategy::Adaptive(settings) = loaded.config.sources[0].strategy else {
            panic!("{to} is not adaptive");
        };
        settings
    };
    assert_eq!(adaptive("strategy = \"adaptive\""), AdaptiveSettings::default());
    let settings =
        adaptive("strategy = \"adaptive\", margin = 1.5, buckets = 3, initial = \"30s\"");
    assert_eq!((settings.margin, settings.buckets), (1.5, 3));
    assert_eq!(settings.initial, Some(Duration::from_secs(30)));
}

#[test]
fn a_strategy_of_the_librarys_user_has_a_name() {
    let folder = Folder::new();
    let text = example_with(
        "strategy = \"bounded_out_of_orderness\", max_out_of_orderness = \"3h\"",
        "strategy = \"ours\", marker = \"kind\"",
    );
    let ours = || Box::new(BoundedOutOfOrderness::new(Duration::from_secs(7))) as _;
    let loaded = load(&Sources {
        files: vec![folder.write("job.toml", &text)],
        host_name: Some("host-1".to_owned()),
        strategies: vec![NamedStrategy::new("ours", ours)],
        ..Sources::default()
    });
    let source = &loaded.unwrap().config.sources[0];
    assert_eq!(source.strategy.generator().bound(), Some(Duration::from_secs(7)));
    assert_eq!(source.marker, Some("kind".parse().unwrap()));
}

#[test]
fn what_is_odd_is_a_warning() {
    let warnings = |overrides: &[&str]| load_text(EXAMPLE, overrides).unwrap().warnings;
    for emit_interval in ["watermark.emit_interval=200ms", "watermark.emit_interval=0ms"] {
        let short = warnings(&["source[0].watermark.idle_timeout=900ms", emit_interval]);
        assert_eq!(short.len(), 1, "{short:?}");
        assert!(short[0].contains("source[0].watermark.idle_timeout") && short[0].contains("five"));
    }
    let unused = warnings(&["source[0].fields.carier=/carrier"]);
    assert_eq!(unused.len(), 1, "{unused:?}");
    assert!(unused[0].contains("source[0].fields.carier"));
}

#[test]
fn limits_are_numbers_and_sizes_or_off() {
    let limits = |overrides: &[&str]| load_text(EXAMPLE, overrides).unwrap().config.limits;
    let off = ["limits.open_windows=off", "limits.keys_per_window=off", "limits.state_bytes=off"];
    assert_eq!(limits(&off), StateLimits::default());
    for (text, bytes) in
        [("4096", 4_096), ("2KiB", 2_048), ("512MiB", 512 << 20), ("3 GiB", 3 << 30)]
    {
        assert_eq!(limits(&[&format!("limits.state_bytes={text}")]).bytes, Some(bytes), "{text}");
    }
    assert_eq!(limits(&["limits.open_windows=7"]).windows, Some(7));
}
