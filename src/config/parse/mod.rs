//! The settings as written into the configuration as meant.
//!
//! Every function here reads what it can, notes all faults in the report and goes on: whoever
//! corrects the settings sees everything at once.

mod admin;
mod exceptions;
mod export;
mod grouping;
mod kafka;
mod log;
mod oauth;
mod output;
mod source;
mod topics;
mod values;

use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) use admin::read_token;
pub(crate) use log::log_filter;
pub(crate) use source::parse_start;
pub(crate) use values::duration;

use super::fault::{Noted, Report};
use super::key_path::KeyPath;
use super::settings::{
    AlignmentSettings, DeliverySettings, GuardSettings, HttpSettings, LimitsSettings,
    ServiceSettings, Settings, WatermarkSettings, WindowSettings,
};
use super::{Config, Delivery, Guarantee, Guard, Http, Key, KeyFrom};
use crate::event_time::{AllIdle, NamedStrategy, Panes, StateLimits, TumblingWindows};

/// What the reading knows besides the settings.
#[derive(Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) host_name: Option<&'a str>,
    pub(super) strategies: &'a [NamedStrategy],
}

/// Reads all settings. A failure is in the report.
pub(super) fn parse(
    settings: &Settings,
    surroundings: &Surroundings<'_>,
    report: &mut Report<'_>,
) -> Result<Config, Noted> {
    let kafka = kafka::parse(&settings.kafka, surroundings, report);
    let guard = parse_guard(&settings.guard, report);
    let inputs = source::parse_all(&settings.source, guard, surroundings, report);
    topics::check_that_each_is_read_once(settings, report);
    let window = parse_window(&settings.window, report);
    let watermark = parse_watermark(&settings.watermark, report);
    let max_drift = parse_max_drift(&settings.alignment, report);
    let tables = inputs.as_ref().map(source::Inputs::tables).unwrap_or_default();
    let across_topics = topics::are_several(settings);
    let key = grouping::parse_key(&settings.key, &tables, across_topics, report);
    let aggregates =
        grouping::parse_aggregates(&settings.aggregate, &tables, key.as_ref().ok(), report);
    let limits = parse_limits(&settings.limits, report);
    let results = output::parse_results(&settings.results, report);
    let late_topic = output::parse_topic("late.topic", &settings.late, report);
    let dead_letter_topic = output::parse_topic("dead_letter.topic", &settings.dead_letter, report);
    let topics = output::parse_topics(&settings.topics, report);
    output::check_topics(settings, report);
    let exported = export::Exported {
        key: key.as_ref().ok(),
        aggregates: aggregates.as_deref().ok(),
        panes: window.as_ref().ok().map(|(_, _, panes)| *panes),
    };
    let postgres_export = export::parse(settings, &exported, report);
    let delivery = parse_delivery(&settings.delivery, report);
    let http = parse_http(&settings.http, report);
    let admin = admin::parse(&settings.admin, http.as_ref().ok().map(|http| http.listen), report);
    let log = log::parse(&settings.log, report);
    let service = parse_service(&settings.service, key.as_ref().ok(), report);

    let (windows, allowed_lateness, panes) = window?;
    let ((emit_interval, all_idle), key, aggregates) = (watermark?, key?, aggregates?);
    let (subtasks, shutdown_timeout) = service?;
    source::warn(&tables, emit_interval, &key, &aggregates, report);
    let source::Inputs { sources, patterns } = inputs?;
    Ok(Config {
        // Of all layers, which are not known here.
        fingerprint: String::new(),
        kafka: kafka?,
        sources,
        patterns,
        windows,
        allowed_lateness,
        panes,
        emit_interval,
        all_idle,
        max_drift: max_drift?,
        key,
        aggregates,
        guard: guard?,
        limits: limits?,
        results: results?,
        late_topic: late_topic?,
        dead_letter_topic: dead_letter_topic?,
        topics: topics?,
        delivery: delivery?,
        postgres_export: postgres_export?,
        http: http?,
        admin: admin?,
        log: log?,
        subtasks,
        shutdown_timeout,
    })
}

/// Adds one more to what has been read, as long as nothing has a fault.
fn and_one_more<T>(
    read: Result<Vec<T>, Noted>,
    one_more: Result<T, Noted>,
) -> Result<Vec<T>, Noted> {
    let mut read = read?;
    read.push(one_more?);
    Ok(read)
}

fn parse_window(
    settings: &WindowSettings,
    report: &mut Report<'_>,
) -> Result<(TumblingWindows, Duration, Panes), Noted> {
    let section = KeyPath::of("window");
    let size = report.value(
        &section.key("size"),
        settings.size.as_ref(),
        "write how long a window is, such as \"1m\"",
        values::positive_duration,
    );
    let offset_key = section.key("offset");
    let offset_ms =
        report.value(&offset_key, settings.offset.as_ref(), "write \"0s\"", values::signed_millis);
    let allowed_lateness = report.value(
        &section.key("allowed_lateness"),
        settings.allowed_lateness.as_ref(),
        "write \"0s\"",
        duration,
    );
    let panes = report.value(
        &section.key("panes"),
        settings.panes.as_ref(),
        "write \"accumulating\"",
        |text| values::word(text, &PANES),
    );
    let windows = TumblingWindows::new(size?, offset_ms?).ok_or_else(|| {
        let problem =
            "is not smaller than window.size; windows repeat after one size, so take off whole sizes";
        report.fault(&offset_key, problem)
    });
    Ok((windows?, allowed_lateness?, panes?))
}

fn parse_watermark(
    settings: &WatermarkSettings,
    report: &mut Report<'_>,
) -> Result<(Duration, AllIdle), Noted> {
    let section = KeyPath::of("watermark");
    let emit_interval = report.value(
        &section.key("emit_interval"),
        settings.emit_interval.as_ref(),
        "write how often, such as \"200ms\"",
        duration,
    );
    let all_idle = report.value(
        &section.key("all_idle"),
        settings.all_idle.as_ref(),
        "write \"hold\"",
        |text| values::word(text, &ALL_IDLE),
    );
    Ok((emit_interval?, all_idle?))
}

/// How far partitions may be read ahead.
fn parse_max_drift(
    settings: &AlignmentSettings,
    report: &mut Report<'_>,
) -> Result<Option<Duration>, Noted> {
    let key = KeyPath::of("alignment.max_drift");
    let written = report.optional(&key, settings.max_drift.as_ref(), values::positive_or_off)?;
    Ok(written.flatten())
}

fn parse_guard(settings: &GuardSettings, report: &mut Report<'_>) -> Result<Guard, Noted> {
    let section = KeyPath::of("guard");
    let max_future = report.value(
        &section.key("max_future"),
        settings.max_future.as_ref(),
        "write \"1h\"",
        values::duration_or_off,
    );
    let min_timestamp = report.value(
        &section.key("min_timestamp"),
        settings.min_timestamp.as_ref(),
        "write \"2000-01-01T00:00:00Z\"",
        values::time_or_off,
    );
    Ok(Guard { max_future: max_future?, min_timestamp: min_timestamp? })
}

fn parse_limits(settings: &LimitsSettings, report: &mut Report<'_>) -> Result<StateLimits, Noted> {
    let section = KeyPath::of("limits");
    let mut limit = |name, text: &Option<String>, hint, parse: fn(&str) -> _| {
        report.value(&section.key(name), text.as_ref(), hint, parse)
    };
    let windows =
        limit("open_windows", &settings.open_windows, "write 100000", values::count_or_off);
    let keys =
        limit("keys_per_window", &settings.keys_per_window, "write 10000000", values::count_or_off);
    let bytes = limit("state_bytes", &settings.state_bytes, "write \"1GiB\"", values::size_or_off);
    Ok(StateLimits { windows: windows?, keys_per_window: keys?, bytes: bytes? })
}

fn parse_delivery(settings: &DeliverySettings, report: &mut Report<'_>) -> Result<Delivery, Noted> {
    let section = KeyPath::of("delivery");
    let guarantee = report.value(
        &section.key("guarantee"),
        settings.guarantee.as_ref(),
        "write \"exactly_once\"",
        |text| values::word(text, &GUARANTEES),
    );
    let commit_key = section.key("commit_interval");
    let commit_interval = report.value(
        &commit_key,
        settings.commit_interval.as_ref(),
        "write \"1s\"",
        values::positive_duration,
    );
    let transaction_timeout = report.value(
        &section.key("transaction_timeout"),
        settings.transaction_timeout.as_ref(),
        "write \"15s\"",
        parse_transaction_timeout,
    );
    let (commit_interval, transaction_timeout) = (commit_interval?, transaction_timeout?);
    if commit_interval >= transaction_timeout {
        report.fault(
            &commit_key,
            "is not shorter than delivery.transaction_timeout, so the broker would end every transaction before its \
             commit; make it shorter, or the timeout longer",
        );
    }
    Ok(Delivery { guarantee: guarantee?, commit_interval, transaction_timeout })
}

fn parse_transaction_timeout(text: &str) -> Result<Duration, String> {
    let timeout = values::positive_duration(text)?;
    // The range of librdkafka's `transaction.timeout.ms`.
    if timeout < Duration::from_secs(1) || i32::try_from(timeout.as_millis()).is_err() {
        return Err(format!(
            "\"{text}\" is out of range; write at least \"1s\" and at most \"596h\""
        ));
    }
    Ok(timeout)
}

fn parse_http(settings: &HttpSettings, report: &mut Report<'_>) -> Result<Http, Noted> {
    let key = KeyPath::of("http.listen");
    let hint = "write \"127.0.0.1:8080\"";
    let listen = report.value(&key, settings.listen.as_ref(), hint, parse_listen)?;
    Ok(Http { listen })
}

fn parse_listen(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().unwrap_or_default();
        let port = port.parse::<u16>().unwrap_or(8080);
        format!(
            "\"{text}\" is no address with a port; write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" to be reached \
             from other hosts"
        )
    })
}

fn parse_service(
    settings: &ServiceSettings,
    key: Option<&Key>,
    report: &mut Report<'_>,
) -> Result<(u16, Duration), Noted> {
    let section = KeyPath::of("service");
    let subtasks_key = section.key("subtasks");
    let subtasks = report.value(&subtasks_key, settings.subtasks.as_ref(), "write 1", |text| {
        values::whole(text, &SUBTASKS)
    });
    let shutdown_timeout = report.value(
        &section.key("shutdown_timeout"),
        settings.shutdown_timeout.as_ref(),
        "write \"25s\"",
        values::positive_duration,
    );
    let subtasks = subtasks?;
    if subtasks > 1 && key.is_some_and(Key::needs_all_partitions) {
        let (why, other) = match key.map(|key| &key.from) {
            Some(KeyFrom::Message) => {
                ("several topics the records of one message key are in several partitions", "")
            }
            _ => (
                "key.fields the records of one key are in all partitions",
                "take the message key (key.from = \"message\"), or ",
            ),
        };
        let problem = format!(
            "is {subtasks}, but with {why}, and each subtask would count only those of its own; write 1, or {other}have \
             a result for each partition (key.partial = true)"
        );
        return Err(report.fault(&subtasks_key, problem));
    }
    Ok((subtasks, shutdown_timeout?))
}

/// Each has a consumer and a producer with their threads and queues.
const SUBTASKS: RangeInclusive<u16> = 1..=64;

const ALL_IDLE: [(&str, AllIdle); 3] =
    [("hold", AllIdle::Hold), ("flush", AllIdle::Flush), ("wall_clock", AllIdle::WallClock)];

const PANES: [(&str, Panes); 2] =
    [("accumulating", Panes::Accumulating), ("discarding", Panes::Discarding)];

const GUARANTEES: [(&str, Guarantee); 2] =
    [("exactly_once", Guarantee::ExactlyOnce), ("at_least_once", Guarantee::AtLeastOnce)];
