//! The configuration of a case as that of the service.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::config::{
    Aggregate, Guard, Key, KeyFrom, Missing, OnMissing, Source, Start, Timestamp, TimestampFrom,
    TimestampUnit, ValueType,
};
use tidegate::event_time::{
    AggregateFunction, AllIdle, EventTime, Panes, Sharding, StateLimits, SubtaskSettings,
    TopicSettings, TumblingWindows, WatermarkStrategy, WindowSettings,
};

use super::case_file::{self, Config, FieldOrKafka, NaivePolicy};

/// Where a case's records have what.
pub(crate) fn source(config: &Config) -> Result<Source, String> {
    let path = |field: &Option<String>, what: &str| {
        let field = field.as_deref().ok_or_else(|| format!("the config lacks {what}"))?;
        field.parse().map_err(|fault| format!("{what} {fault}"))
    };
    let from = match config.timestamp_source {
        FieldOrKafka::Field => {
            TimestampFrom::Field(path(&config.timestamp_field, "timestamp_field")?)
        }
        FieldOrKafka::Kafka => TimestampFrom::Record,
    };
    let unit = match config.timestamp_unit {
        case_file::TimestampUnit::Ms => TimestampUnit::Milliseconds,
        case_file::TimestampUnit::S => TimestampUnit::Seconds,
        case_file::TimestampUnit::Us => TimestampUnit::Microseconds,
        case_file::TimestampUnit::Ns => TimestampUnit::Nanoseconds,
        case_file::TimestampUnit::Iso8601 => TimestampUnit::Rfc3339,
    };
    let value = path(&Some(config.value_field.clone()), "value_field")?;
    let mut fields = BTreeMap::from([("value".to_owned(), value)]);
    if matches!(config.key_source, FieldOrKafka::Field) {
        fields.insert("key".to_owned(), path(&config.key_field, "key_field")?);
    }
    let max_out_of_orderness = Duration::from_millis(config.out_of_orderness_ms);
    Ok(Source {
        topic: "events".to_owned(),
        table: 0,
        timestamp: Timestamp { from, unit, naive_is_utc: config.naive_policy == NaivePolicy::Utc },
        strategy: WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness },
        marker: None,
        idle_timeout: config.idle_timeout_ms.map(Duration::from_millis),
        partitions: BTreeMap::new(),
        heartbeat: None,
        guard: Guard {
            max_future: config.max_future_ms.map(Duration::from_millis),
            min_timestamp: config.min_timestamp_ms.map(EventTime),
        },
        fields,
        start: Start::Earliest,
        on_missing: OnMissing::Stop,
    })
}

/// What a case groups by.
pub(crate) fn key(config: &Config) -> Key {
    let from = match config.key_source {
        FieldOrKafka::Field => KeyFrom::Fields(vec!["key".to_owned()]),
        FieldOrKafka::Kafka => KeyFrom::Message,
    };
    Key { from, partial: false, across_topics: false }
}

/// A count of records and the sum of the value field.
pub(crate) fn aggregates(config: &Config) -> Vec<Aggregate> {
    let value_type = match config.value_type {
        case_file::ValueType::I64 => ValueType::Integer,
        case_file::ValueType::F64 => ValueType::Float,
    };
    let aggregate = |name: &str, function, field: Option<&str>| Aggregate {
        name: name.to_owned(),
        function,
        field: field.map(str::to_owned),
        value_type,
        missing: Missing::Refuse,
    };
    vec![
        aggregate("count", AggregateFunction::Count, None),
        aggregate("sum", AggregateFunction::Sum, Some("value")),
    ]
}

/// What the core is told.
pub(crate) fn settings(
    config: &Config,
    source: &Source,
    aggregates: &[Aggregate],
    sharding: Sharding,
) -> Result<SubtaskSettings, String> {
    let size = Duration::from_millis(config.window_ms);
    Ok(SubtaskSettings {
        topics: vec![TopicSettings {
            strategy: source.strategy.clone(),
            idle_timeout: source.idle_timeout,
        }],
        window: WindowSettings {
            windows: TumblingWindows::new(size, config.window_offset_ms)
                .ok_or("window_ms and window_offset_ms do not fit")?,
            allowed_lateness: Duration::from_millis(config.allowed_lateness_ms),
            panes: Panes::Accumulating,
            aggregates: aggregates.iter().map(|aggregate| aggregate.function).collect(),
            limits: StateLimits::default(),
        },
        sharding,
        all_idle: match config.all_idle {
            case_file::AllIdle::Hold => AllIdle::Hold,
            case_file::AllIdle::FlushMax => AllIdle::Flush,
        },
    })
}
