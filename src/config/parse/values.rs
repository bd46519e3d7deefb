//! Single values: text to meaning, or what is wrong with it and what would be right.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;

use crate::codec::FieldPath;
use crate::config::fault::did_you_mean;
use crate::event_time::EventTime;

/// A duration of whole milliseconds, zero included.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = SpanParser::new()
        .parse_unsigned_duration(text.trim())
        .map_err(|_| not_a_duration(text.trim()))?;
    if duration.subsec_nanos() % NANOS_PER_MILLI != 0 {
        return Err(format!(
            "\"{text}\" is finer than a millisecond; write a whole number of \"ms\""
        ));
    }
    Ok(duration)
}

/// A duration above zero.
pub(super) fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("\"{text}\" is too short; it must be longer than zero")),
        duration => Ok(duration),
    }
}

/// A duration above zero, or `None` for `off`.
pub(super) fn positive_or_off(text: &str) -> Result<Option<Duration>, String> {
    if text == OFF {
        return Ok(None);
    }
    if is_negative(text) || duration(text) == Ok(Duration::ZERO) {
        return Err(format!("\"{text}\" is not longer than zero; write \"off\" to disable it"));
    }
    duration(text).map(Some).map_err(|problem| format!("{problem}, or \"off\""))
}

/// A duration, zero included, or `None` for `off`.
pub(super) fn duration_or_off(text: &str) -> Result<Option<Duration>, String> {
    if text == OFF {
        return Ok(None);
    }
    duration(text).map(Some).map_err(|problem| format!("{problem}, or \"off\""))
}

/// A duration in either direction, in milliseconds.
pub(super) fn signed_millis(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let (sign, size) = text.strip_prefix('-').map_or((1, text), |size| (-1, size));
    let millis = duration(size)?.as_millis();
    i64::try_from(millis).map(|millis| sign * millis).map_err(|_| format!("\"{text}\" is too long"))
}

fn is_negative(text: &str) -> bool {
    text.trim().strip_prefix('-').is_some_and(|size| duration(size).is_ok())
}

fn not_a_duration(text: &str) -> String {
    let number = |digits: &str| digits.parse::<u64>().ok();
    if number(text).is_some() || text.parse::<f64>().is_ok() {
        return format!("\"{text}\" has no unit; write \"{text}s\" or \"{text}ms\"");
    }
    let days = text.strip_suffix('d').and_then(number).map(|days| days.saturating_mul(24));
    let weeks = || text.strip_suffix('w').and_then(number).map(|weeks| weeks.saturating_mul(168));
    if let Some(hours) = days.or_else(weeks) {
        return format!("\"{text}\" has no fixed length; write it in hours: \"{hours}h\"");
    }
    if is_negative(text) {
        return format!("\"{text}\" is negative; write a duration that is not");
    }
    format!("\"{text}\" is no duration; write one such as \"200ms\", \"2s\", \"1m\" or \"1h30m\"")
}

/// A moment, RFC 3339 with its offset.
pub(super) fn time(text: &str) -> Result<EventTime, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(EventTime(time.as_millisecond()));
    }
    let hint = match text.parse::<jiff::civil::DateTime>() {
        Ok(_) if text.contains(':') => format!("has no offset; write \"{text}Z\" for UTC"),
        Ok(_) => format!("has no time of day; write \"{text}T00:00:00Z\" for midnight UTC"),
        Err(_) => "is no time; write one such as \"2025-01-01T00:00:00Z\"".to_owned(),
    };
    Err(format!("\"{text}\" {hint}"))
}

/// A moment, or `None` for `off`.
pub(super) fn time_or_off(text: &str) -> Result<Option<EventTime>, String> {
    if text == OFF {
        return Ok(None);
    }
    time(text).map(Some).map_err(|problem| format!("{problem}, or \"off\""))
}

/// One of some words.
pub(super) fn word<T: Clone>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(meaning.clone());
    }
    let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    Err(format!("\"{text}\" is none of {}{}", known.join(", "), guess(text, words)))
}

/// `; did you mean ...?` or nothing.
pub(super) fn guess<T>(text: &str, words: &[(&str, T)]) -> String {
    let guess = did_you_mean(text, words.iter().map(|(word, _)| *word));
    guess.map_or_else(String::new, |guess| format!("; did you mean \"{guess}\"?"))
}

/// `true` or `false`.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    word(text, &[("true", true), ("false", false)])
}

/// A whole number within a range.
pub(super) fn whole<N>(text: &str, range: &RangeInclusive<N>) -> Result<N, String>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            Err(format!("\"{text}\" is no whole number from {} to {}", range.start(), range.end()))
        }
    }
}

/// A number above zero, or `None` for `off`.
pub(super) fn count_or_off(text: &str) -> Result<Option<usize>, String> {
    if text == OFF {
        return Ok(None);
    }
    let problem = |problem| format!("{problem}, or \"off\"");
    whole(text, &(1..=usize::MAX)).map(Some).map_err(problem)
}

/// A number of bytes above zero, also with a unit, or `None` for `off`.
pub(super) fn size_or_off(text: &str) -> Result<Option<usize>, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let size = units.iter().find_map(|(unit, bytes)| {
        let number: usize = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(*bytes).filter(|size| *size > 0)
    });
    match size {
        None if text == OFF => Ok(None),
        None => Err(format!(
            "\"{text}\" is no size; write a number of bytes above zero, or one such as \"512MiB\", or \"off\""
        )),
        size => Ok(size),
    }
}

/// A topic's name, by Kafka's rules.
pub(super) fn topic(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty; give the topic's name".to_owned());
    }
    if text == "." || text == ".." {
        return Err(format!("\"{text}\" is no topic name, by Kafka's rules"));
    }
    if let Some(wrong) = text.chars().find(|c| !is_topic_character(*c)) {
        return Err(format!(
            "\"{text}\" has a {wrong:?} in it; topic names are made of letters, digits, \".\", \"_\" and \"-\""
        ));
    }
    if text.len() > LONGEST_TOPIC {
        return Err(format!(
            "has {} characters; a topic name has at most {LONGEST_TOPIC}",
            text.len()
        ));
    }
    Ok(text.to_owned())
}

/// Whether Kafka allows this character in the name of a topic.
pub(super) fn is_topic_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
}

/// Where a field stands in a record.
pub(super) fn path(text: &str) -> Result<FieldPath, String> {
    text.parse().map_err(|fault| format!("\"{text}\" {fault}"))
}

/// A text with something in it.
pub(super) fn filled(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    Ok(text.to_owned())
}

/// The most characters of a topic's name.
pub(super) const LONGEST_TOPIC: usize = 249;

/// Switches off what has a duration or a time.
const OFF: &str = "off";

const NANOS_PER_MILLI: u32 = 1_000_000;
