//! Which topics a `[[source]]` reads, and that each topic belongs to one of them.

use super::values;
use crate::config::TopicPattern;
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::{Settings, SourceSettings, Words};

/// How a source says what it reads.
pub(super) enum Named {
    Topics(Vec<String>),
    Pattern(TopicPattern),
}

pub(super) fn parse(
    settings: &SourceSettings,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Named, Noted> {
    let given = [settings.topic.is_some(), settings.topics.is_some(), settings.pattern.is_some()];
    if given.into_iter().filter(|given| *given).count() > 1 {
        let problem = "has more than one of `topic`, `topics` and `pattern`; give one of them";
        return Err(report.fault(at, problem));
    }
    let pattern = report.optional(&at.key("pattern"), settings.pattern.as_ref(), parse_pattern)?;
    if let Some(pattern) = pattern {
        return Ok(Named::Pattern(pattern));
    }
    if let Some(Words(topics)) = &settings.topics {
        return parse_list(topics, &at.key("topics"), report).map(Named::Topics);
    }
    let topic = report.value(
        &at.key("topic"),
        settings.topic.as_ref(),
        "write the name of the input topic, or several as `topics`, or a `pattern`",
        values::topic,
    );
    Ok(Named::Topics(vec![topic?]))
}

fn parse_list(
    topics: &[String],
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Vec<String>, Noted> {
    if topics.is_empty() {
        return Err(report.fault(at, "is empty; name at least one topic"));
    }
    for (place, topic) in topics.iter().enumerate() {
        if let Err(problem) = values::topic(topic) {
            report.fault(&at.place(place), problem);
        }
    }
    report.sound(at, topics.to_vec())
}

/// The whole of a name is hardly ever meant where only a piece of it is written, so it has to begin with the beginning.
fn parse_pattern(text: &str) -> Result<TopicPattern, String> {
    if !text.starts_with('^') {
        return Err(format!(
            "\"{text}\" does not begin with \"^\"; write a regular expression from the beginning of the name on, such \
             as \"^orders-.*\""
        ));
    }
    text.parse().map_err(|fault: regex::Error| {
        let fault = fault.to_string();
        let last = fault.lines().last().unwrap_or_default();
        format!("\"{text}\" is no regular expression: {}", last.trim_start_matches("error: "))
    })
}

/// The topics that are named, each with its key.
pub(super) fn named(settings: &Settings) -> impl Iterator<Item = (KeyPath, &str)> {
    let list = KeyPath::of("source");
    settings.source.iter().enumerate().flat_map(move |(place, source)| {
        let at = list.place(place);
        let one = source.topic.as_deref().map(|topic| (at.key("topic"), topic));
        let several = source.topics.iter().flat_map(|Words(topics)| topics).enumerate();
        let topics = at.key("topics");
        one.into_iter()
            .chain(several.map(move |(place, topic)| (topics.place(place), topic.as_str())))
    })
}

/// The patterns that can be read, each with its key.
pub(super) fn patterns(settings: &Settings) -> impl Iterator<Item = (KeyPath, TopicPattern)> {
    let list = KeyPath::of("source");
    settings.source.iter().enumerate().filter_map(move |(place, source)| {
        let pattern = source.pattern.as_deref()?.parse().ok()?;
        Some((list.place(place).key("pattern"), pattern))
    })
}

/// Whether records come from more than one topic, or may.
pub(super) fn are_several(settings: &Settings) -> bool {
    named(settings).count() > 1 || patterns(settings).next().is_some()
}

/// A topic that two sources read would be read as one of them says.
pub(super) fn check_that_each_is_read_once(settings: &Settings, report: &mut Report<'_>) {
    let named: Vec<_> = named(settings).collect();
    for (place, (key, topic)) in named.iter().enumerate() {
        if let Some((other, _)) = named.iter().take(place).find(|(_, other)| other == topic) {
            let problem = format!("\"{topic}\" is also in {other}; a topic belongs to one source");
            report.fault(key, problem);
        }
    }
    let patterns: Vec<_> = patterns(settings).collect();
    for (place, (key, pattern)) in patterns.iter().enumerate() {
        if let Some((other, topic)) = named.iter().find(|(_, topic)| pattern.matches(topic)) {
            let problem = format!(
                "\"{}\" matches \"{topic}\", which {other} names; a topic belongs to one source",
                pattern.as_str()
            );
            report.fault(key, problem);
        }
        let same = |(_, other): &&(KeyPath, TopicPattern)| other.as_str() == pattern.as_str();
        if let Some((other, _)) = patterns.iter().take(place).find(same) {
            let problem = format!("\"{}\" is also {other}", pattern.as_str());
            report.fault(key, problem);
        }
    }
}
