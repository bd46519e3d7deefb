//! `[log]`: what is written, and how often.

use tracing_subscriber::EnvFilter;

use super::values;
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::LogSettings;
use crate::config::{Log, LogFormat, RepeatLimit};

pub(super) fn parse(settings: &LogSettings, report: &mut Report<'_>) -> Result<Log, Noted> {
    let section = KeyPath::of("log");
    let format =
        report.value(&section.key("format"), settings.format.as_ref(), "write \"auto\"", |text| {
            values::word(text, &FORMATS)
        });
    let filter =
        report.value(&section.key("filter"), settings.filter.as_ref(), "write \"info\"", |text| {
            log_filter(text).map(|_| text.to_owned())
        });
    let lines =
        report.value(&section.key("repeats"), settings.repeats.as_ref(), "write 10", |text| {
            match text {
                "off" => Ok(None),
                number => values::whole(number, &(1..=1_000_000))
                    .map(Some)
                    .map_err(|problem| format!("{problem}, nor \"off\"")),
            }
        });
    let interval = report.value(
        &section.key("repeat_interval"),
        settings.repeat_interval.as_ref(),
        "write \"10s\"",
        values::positive_duration,
    );
    let interval = interval?;
    let repeats = lines?.map(|lines| RepeatLimit { lines, interval });
    Ok(Log { format: format?, filter: filter?, repeats })
}

/// A filter of log lines. A single word is a level or the name of a program: a level with a wrong letter would switch nearly
/// all of the log off.
pub(crate) fn log_filter(text: &str) -> Result<EnvFilter, String> {
    let hint = "write a level such as \"info\", or \"info,tidegate::kafka=debug\"";
    if text.trim().is_empty() {
        return Err(format!("is empty; {hint}"));
    }
    for part in text.split(',').map(str::trim) {
        let is_word = part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let lower = part.to_ascii_lowercase();
        if is_word && part != "tidegate" && !LEVELS.iter().any(|(level, ())| *level == lower) {
            let guess = values::guess(&lower, &LEVELS);
            return Err(format!("\"{part}\" is no level{guess}; {hint}"));
        }
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("\"{text}\": {error}; {hint}"))
}

const LEVELS: [(&str, ()); 12] = [
    ("error", ()),
    ("warn", ()),
    ("info", ()),
    ("debug", ()),
    ("trace", ()),
    ("off", ()),
    // The same as numbers.
    ("0", ()),
    ("1", ()),
    ("2", ()),
    ("3", ()),
    ("4", ()),
    ("5", ()),
];

const FORMATS: [(&str, LogFormat); 3] =
    [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
