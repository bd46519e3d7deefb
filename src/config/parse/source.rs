//! `[[source]]`: an input topic, its timestamps and its watermark strategy.

use std::collections::BTreeMap;
use std::time::Duration;

use super::topics::Named;
use super::{Surroundings, and_one_more, exceptions, topics, values};
use crate::codec::FieldPath;
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::{SourceSettings, StrategySettings, TimestampSettings};
use crate::config::{
    Aggregate, Guard, Key, KeyFrom, OnMissing, Source, SourcePattern, Start, Timestamp,
    TimestampFrom, TimestampUnit,
};
use crate::event_time::{AdaptiveSettings, WatermarkStrategy};

/// What is read: topics that are named, and patterns.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub(super) sources: Vec<Source>,
    pub(super) patterns: Vec<SourcePattern>,
}

impl Inputs {
    /// One source of each `[[source]]`.
    pub(super) fn tables(&self) -> Vec<&Source> {
        let mut tables: Vec<&Source> = Vec::new();
        let patterns = self.patterns.iter().map(|pattern| &pattern.source);
        for source in self.sources.iter().chain(patterns) {
            if tables.iter().all(|seen| seen.table != source.table) {
                tables.push(source);
            }
        }
        tables
    }
}

pub(super) fn parse_all(
    settings: &[SourceSettings],
    guard: Result<Guard, Noted>,
    surroundings: &Surroundings<'_>,
    report: &mut Report<'_>,
) -> Result<Inputs, Noted> {
    let list = KeyPath::of("source");
    if settings.is_empty() {
        let hint = "write one [[source]] with `topic`, `timestamp` and `watermark`";
        return Err(report.missing(&list, hint));
    }
    let mut inputs = Ok(Inputs::default());
    for (place, source) in settings.iter().enumerate() {
        let at = list.place(place);
        let named = topics::parse(source, &at, report);
        let own = exceptions::parse_guard(&source.guard, &at.key("guard"), guard, report);
        let source = parse(source, place, &at, surroundings, report);
        inputs = inputs.and_then(|mut inputs: Inputs| {
            let source = Source { guard: own?, ..source? };
            match named? {
                Named::Pattern(pattern) => inputs.patterns.push(SourcePattern { pattern, source }),
                Named::Topics(topics) => inputs
                    .sources
                    .extend(topics.into_iter().map(|topic| Source { topic, ..source.clone() })),
            }
            Ok(inputs)
        });
    }
    inputs
}

/// A source without its topics and its guard.
fn parse(
    settings: &SourceSettings,
    table: usize,
    at: &KeyPath,
    surroundings: &Surroundings<'_>,
    report: &mut Report<'_>,
) -> Result<Source, Noted> {
    let timestamp = parse_timestamp(&settings.timestamp, &at.key("timestamp"), report);
    let watermark = at.key("watermark");
    let strategy = parse_strategy(&settings.watermark, &watermark, surroundings, report);
    let marker = parse_marker(&settings.watermark, &watermark, strategy.as_ref().ok(), report);
    let idle_timeout = report.value(
        &watermark.key("idle_timeout"),
        settings.watermark.idle_timeout.as_ref(),
        "write \"30s\"",
        values::positive_or_off,
    );
    let partitions = exceptions::parse_partitions(
        &settings.partitions,
        &at.key("partitions"),
        strategy.as_ref().map_err(|noted| *noted),
        idle_timeout,
        report,
    );
    let heartbeat = exceptions::parse_heartbeat(&settings.heartbeat, &at.key("heartbeat"), report);
    let fields = parse_fields(&settings.fields, &at.key("fields"), report);
    let start =
        report.value(&at.key("start"), settings.start.as_ref(), "write \"earliest\"", parse_start);
    let on_missing = report.value(
        &at.key("on_missing"),
        settings.on_missing.as_ref(),
        "write \"stop\"",
        |text| values::word(text, &ON_MISSING),
    );
    Ok(Source {
        topic: String::new(),
        table,
        timestamp: timestamp?,
        strategy: strategy?,
        marker: marker?,
        idle_timeout: idle_timeout?,
        partitions: partitions?,
        heartbeat: heartbeat?,
        guard: Guard::ALL,
        fields: fields?,
        start: start?,
        on_missing: on_missing?,
    })
}

fn parse_fields(
    settings: &BTreeMap<String, String>,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Result<BTreeMap<String, FieldPath>, Noted> {
    let mut fields = Ok(Vec::new());
    for (name, text) in settings {
        let path = report.value(&at.key(name), Some(text), "", values::path);
        fields = and_one_more(fields, path.map(|path| (name.clone(), path)));
    }
    Ok(fields?.into_iter().collect())
}

fn parse_timestamp(
    settings: &TimestampSettings,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Timestamp, Noted> {
    let TimestampSettings { field, header, from, unit, naive } = settings;
    let given = [field, header, from].into_iter().flatten().count();
    let alone =
        match given {
            0 => Err(report.missing(at, ONE_PLACE)),
            1 => Ok(()),
            _ => Err(report
                .fault(at, "has more than one of `field`, `header` and `from`; give one of them")),
        };
    let field = report.optional(&at.key("field"), field.as_ref(), values::path);
    let header = report.optional(&at.key("header"), header.as_ref(), values::filled);
    let from = report.optional(&at.key("from"), from.as_ref(), |text| {
        values::word(text, &[("record", TimestampFrom::Record)])
    });
    let is_record = settings.from.is_some() && given == 1;
    let unit_key = at.key("unit");
    if is_record && unit.is_some() {
        report.fault(
            &unit_key,
            "goes only with `field` or `header`: Kafka's own timestamps are always milliseconds; leave it out",
        );
    }
    let unit = report.optional(&unit_key, unit.as_ref(), |text| values::word(text, &UNITS))?;
    let unit = unit.unwrap_or(TimestampUnit::Milliseconds);
    let naive_key = at.key("naive");
    if naive.is_some() && (is_record || unit != TimestampUnit::Rfc3339) {
        report.fault(&naive_key, "goes only with unit = \"rfc3339\"; leave it out");
    }
    let naive = report.optional(&naive_key, naive.as_ref(), |text| values::word(text, &NAIVE))?;
    alone?;
    let from = match (field?, header?, from?) {
        (Some(field), None, None) => TimestampFrom::Field(field),
        (None, Some(header), None) => TimestampFrom::Header(header),
        (_, _, Some(record)) => record,
        _ => return Err(report.missing(at, ONE_PLACE)),
    };
    Ok(Timestamp { from, unit, naive_is_utc: naive.unwrap_or(false) })
}

fn parse_strategy(
    settings: &StrategySettings,
    at: &KeyPath,
    surroundings: &Surroundings<'_>,
    report: &mut Report<'_>,
) -> Result<WatermarkStrategy, Noted> {
    let own = surroundings.strategies;
    let words: Vec<(&str, WatermarkStrategy)> = BUILT_IN
        .into_iter()
        .chain(own.iter().map(|named| (named.name(), WatermarkStrategy::Named(named.clone()))))
        .collect();
    let strategy = report.value(
        &at.key("strategy"),
        settings.strategy.as_ref(),
        "write \"bounded_out_of_orderness\"",
        |text| values::word(text, &words),
    )?;
    let bound_key = at.key("max_out_of_orderness");
    let bound =
        report.optional(&bound_key, settings.max_out_of_orderness.as_ref(), values::duration);
    let adaptive = parse_adaptive(settings, at, &strategy, report);
    if matches!(strategy, WatermarkStrategy::BoundedOutOfOrderness { .. }) {
        let hint = "write how far a record may come behind the greatest timestamp of its partition, such as \"5s\"; \
                    `tidegate advise` measures it";
        let bound = bound?.ok_or_else(|| report.missing(&bound_key, hint))?;
        return Ok(WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness: bound });
    }
    if settings.max_out_of_orderness.is_some() {
        let name = strategy.name();
        let problem = format!(
            "goes only with strategy = \"bounded_out_of_orderness\", and this is \"{name}\"; leave it out"
        );
        return Err(report.fault(&bound_key, problem));
    }
    adaptive.map(|adaptive| adaptive.map_or(strategy, WatermarkStrategy::Adaptive))
}

/// The settings of the adaptive strategy; `None` where it is another, to which these keys mean nothing.
fn parse_adaptive(
    settings: &StrategySettings,
    at: &KeyPath,
    strategy: &WatermarkStrategy,
    report: &mut Report<'_>,
) -> Result<Option<AdaptiveSettings>, Noted> {
    let StrategySettings { margin, buckets, bucket_width, floor, ceiling, initial, .. } = settings;
    if !matches!(strategy, WatermarkStrategy::Adaptive(_)) {
        for (name, text) in [
            ("margin", margin),
            ("buckets", buckets),
            ("bucket_width", bucket_width),
            ("floor", floor),
            ("ceiling", ceiling),
            ("initial", initial),
        ] {
            if text.is_some() {
                let problem = format!(
                    "goes only with strategy = \"adaptive\", and this is \"{}\"; leave it out",
                    strategy.name()
                );
                report.fault(&at.key(name), problem);
            }
        }
        return Ok(None);
    }
    let margin = report.optional(&at.key("margin"), margin.as_ref(), parse_margin);
    let buckets = report.optional(&at.key("buckets"), buckets.as_ref(), |text| {
        values::whole(text, &(1..=u16::MAX))
    });
    let bucket_width =
        report.optional(&at.key("bucket_width"), bucket_width.as_ref(), values::positive_duration);
    let floor_key = at.key("floor");
    let floor = report.optional(&floor_key, floor.as_ref(), values::duration);
    let ceiling = report.optional(&at.key("ceiling"), ceiling.as_ref(), values::duration);
    let initial_key = at.key("initial");
    let initial = report.optional(&initial_key, initial.as_ref(), values::duration);

    let defaults = AdaptiveSettings::default();
    let adaptive = AdaptiveSettings {
        margin: margin?.unwrap_or(defaults.margin),
        buckets: buckets?.unwrap_or(defaults.buckets),
        bucket_width: bucket_width?.unwrap_or(defaults.bucket_width),
        floor: floor?.unwrap_or(defaults.floor),
        ceiling: ceiling?.unwrap_or(defaults.ceiling),
        initial: initial?,
    };
    let AdaptiveSettings { floor, ceiling, initial, .. } = adaptive;
    if floor > ceiling {
        let problem = format!(
            "is {floor:?}, above the ceiling of {ceiling:?}; lower it or raise the ceiling"
        );
        report.fault(&floor_key, problem);
    } else if initial.is_some_and(|initial| initial < floor || initial > ceiling) {
        let problem =
            format!("is not between the floor of {floor:?} and the ceiling of {ceiling:?}");
        report.fault(&initial_key, problem);
    }
    Ok(Some(adaptive))
}

fn parse_margin(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(margin) if margin > 0.0 && margin.is_finite() => Ok(margin),
        _ => Err(format!("\"{text}\" is no number above zero; write one such as 2 or 1.5")),
    }
}

fn parse_marker(
    settings: &StrategySettings,
    at: &KeyPath,
    strategy: Option<&WatermarkStrategy>,
    report: &mut Report<'_>,
) -> Result<Option<FieldPath>, Noted> {
    let key = at.key("marker");
    let marker = report.optional(&key, settings.marker.as_ref(), values::path)?;
    match (strategy, &marker) {
        (Some(WatermarkStrategy::Punctuated), None) => {
            let hint = "name the field that carries or announces the watermark";
            Err(report.missing(&key, hint))
        }
        (
            Some(
                other @ (WatermarkStrategy::AscendingTimestamps
                | WatermarkStrategy::BoundedOutOfOrderness { .. }
                | WatermarkStrategy::Adaptive(_)),
            ),
            Some(_),
        ) => {
            let name = other.name();
            let problem = format!(
                "goes only with a strategy that looks at a field, such as \"punctuated\", and this is \"{name}\"; \
                 leave it out"
            );
            Err(report.fault(&key, problem))
        }
        _ => Ok(marker),
    }
}

/// Where to begin: "earliest", "latest" or a time.
pub(crate) fn parse_start(text: &str) -> Result<Start, String> {
    match text {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        time => values::time(time).map(Start::At).map_err(|problem| {
            let guess = values::guess(time, &[("earliest", ()), ("latest", ())]);
            format!("{problem}, \"earliest\" or \"latest\"{guess}")
        }),
    }
}

/// Warns of what is odd in the sources.
pub(super) fn warn(
    tables: &[&Source],
    emit_interval: Duration,
    key: &Key,
    aggregates: &[Aggregate],
    report: &mut Report<'_>,
) {
    warn_of_short_timeouts(tables, emit_interval, report);
    warn_of_unused_fields(tables, key, aggregates, report);
}

/// Silence is looked for at the periodic emission, so a timeout of a few of them is found late and unevenly.
fn warn_of_short_timeouts(tables: &[&Source], emit_interval: Duration, report: &mut Report<'_>) {
    // With an interval of zero a periodic emission still runs at the default.
    let interval = if emit_interval.is_zero() { Duration::from_millis(200) } else { emit_interval };
    for source in tables {
        let own = source.partitions.values().filter_map(|terms| terms.idle_timeout).min();
        let at = KeyPath::of("source").place(source.table);
        let timeouts = [
            (at.key("watermark").key("idle_timeout"), source.idle_timeout),
            (at.key("partitions"), own.filter(|own| Some(*own) != source.idle_timeout)),
        ];
        for (key, timeout) in timeouts {
            if let Some(timeout) = timeout.filter(|timeout| *timeout < interval.saturating_mul(5)) {
                report.warn(
                    &key,
                    format!(
                        "{timeout:?} is less than five times watermark.emit_interval ({interval:?}); silence is only \
                         looked for that often, so partitions will fall idle late and unevenly"
                    ),
                );
            }
        }
    }
}

/// A logical field that nothing names is more likely mistyped than meant.
fn warn_of_unused_fields(
    tables: &[&Source],
    key: &Key,
    aggregates: &[Aggregate],
    report: &mut Report<'_>,
) {
    let key_fields = match &key.from {
        KeyFrom::Fields(fields) => fields.as_slice(),
        KeyFrom::Message => &[],
    };
    let used = |name: &String| {
        key_fields.contains(name)
            || aggregates.iter().any(|aggregate| aggregate.field.as_ref() == Some(name))
    };
    for source in tables {
        for name in source.fields.keys().filter(|name| !used(name)) {
            let key = KeyPath::of("source").place(source.table).key("fields").key(name);
            report.warn(&key, "is used neither by key.fields nor by an aggregate");
        }
    }
}

const ONE_PLACE: &str =
    "say where the event time is: `field = \"...\"`, `header = \"...\"` or `from = \"record\"`";

const BUILT_IN: [(&str, WatermarkStrategy); 4] = [
    (
        "bounded_out_of_orderness",
        WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness: Duration::ZERO },
    ),
    ("ascending", WatermarkStrategy::AscendingTimestamps),
    ("punctuated", WatermarkStrategy::Punctuated),
    (
        "adaptive",
        WatermarkStrategy::Adaptive(AdaptiveSettings {
            margin: 2.0,
            buckets: 6,
            bucket_width: Duration::from_secs(10),
            floor: Duration::from_secs(1),
            ceiling: Duration::from_mins(1),
            initial: None,
        }),
    ),
];

const UNITS: [(&str, TimestampUnit); 5] = [
    ("ms", TimestampUnit::Milliseconds),
    ("s", TimestampUnit::Seconds),
    ("us", TimestampUnit::Microseconds),
    ("ns", TimestampUnit::Nanoseconds),
    ("rfc3339", TimestampUnit::Rfc3339),
];

const NAIVE: [(&str, bool); 2] = [("reject", false), ("utc", true)];

const ON_MISSING: [(&str, OnMissing); 2] =
    [("stop", OnMissing::Stop), ("continue", OnMissing::Continue)];
