//! The topics that are written, and how.

use super::{topics, values};
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::{ResultsSettings, Settings, TopicSettings, TopicsSettings};
use crate::config::{IntegerFormat, ResultKey, Results, TimestampFormat, Topics};

pub(super) fn parse_results(
    settings: &ResultsSettings,
    report: &mut Report<'_>,
) -> Result<Results, Noted> {
    let section = KeyPath::of("results");
    let topic = report.value(
        &section.key("topic"),
        settings.topic.as_ref(),
        "write the topic that results go to",
        values::topic,
    );
    let key = report.value(&section.key("key"), settings.key.as_ref(), "write \"key\"", |text| {
        values::word(text, &KEYS)
    });
    let progress = report.value(
        &section.key("progress"),
        settings.progress.as_ref(),
        "write false",
        values::flag,
    );
    let timestamps = report.value(
        &section.key("timestamps"),
        settings.timestamps.as_ref(),
        "write \"epoch_ms\"",
        |text| values::word(text, &TIMESTAMPS),
    );
    let integers = report.value(
        &section.key("integers"),
        settings.integers.as_ref(),
        "write \"number\"",
        |text| values::word(text, &INTEGERS),
    );
    Ok(Results {
        topic: topic?,
        key: key?,
        progress: progress?,
        timestamps: timestamps?,
        integers: integers?,
    })
}

/// The topic of late records or of dead letters.
pub(super) fn parse_topic(
    key: &str,
    settings: &TopicSettings,
    report: &mut Report<'_>,
) -> Result<String, Noted> {
    let hint = "write the topic that these records go to; nothing is dropped";
    report.value(&KeyPath::of(key), settings.topic.as_ref(), hint, values::topic)
}

pub(super) fn parse_topics(
    settings: &TopicsSettings,
    report: &mut Report<'_>,
) -> Result<Topics, Noted> {
    let section = KeyPath::of("topics");
    let create =
        report.value(&section.key("create"), settings.create.as_ref(), "write false", values::flag);
    let partitions =
        report.value(&section.key("partitions"), settings.partitions.as_ref(), "write 6", |text| {
            values::whole(text, &(1..=i32::MAX))
        });
    let replication_factor = report.value(
        &section.key("replication_factor"),
        settings.replication_factor.as_ref(),
        "write \"default\"",
        |text| match text {
            "default" => Ok(None),
            number => values::whole(number, &(1..=i32::from(i16::MAX)))
                .map(Some)
                .map_err(|problem| format!("{problem}, nor \"default\"")),
        },
    );
    Ok(Topics { create: create?, partitions: partitions?, replication_factor: replication_factor? })
}

/// Each topic has one use. Looks at what is written, so that a fault elsewhere hides none of these.
pub(super) fn check_topics(settings: &Settings, report: &mut Report<'_>) {
    let mut taken: Vec<(&str, &str, &str)> = Vec::new();
    let inputs: Vec<&str> = topics::named(settings).map(|(_, topic)| topic).collect();
    let an_input = if inputs.len() > 1 { "an input topic" } else { "the input topic" };
    for input in &inputs {
        taken.push((input, an_input, "the service would read what it writes"));
    }
    let changelogs: Vec<String> = match settings.kafka.group_id.as_deref() {
        Some(group) => inputs.iter().map(|input| format!("{group}-{input}-changelog")).collect(),
        None => Vec::new(),
    };
    for (key, topic) in topics::named(settings) {
        if changelogs.iter().any(|changelog| changelog == topic) {
            let problem = format!(
                "\"{topic}\" is the changelog topic of another input; the state is kept there"
            );
            report.fault(&key, problem);
        }
    }
    for changelog in &changelogs {
        taken.push((changelog, "the changelog topic", "the state is kept there"));
        if changelog.len() > values::LONGEST_TOPIC {
            report.fault(
                &KeyPath::of("kafka.group_id"),
                format!(
                    "is too long: the changelog topic <group_id>-<topic>-changelog would have {} characters, and {} are \
                     the most",
                    changelog.len(),
                    values::LONGEST_TOPIC
                ),
            );
        }
    }
    for (key, topic, use_of_it) in [
        ("results.topic", &settings.results.topic, "the topic of results"),
        ("late.topic", &settings.late.topic, "the topic of late records"),
        ("dead_letter.topic", &settings.dead_letter.topic, "the topic of dead letters"),
    ] {
        let Some(topic) = topic.as_deref().filter(|topic| !topic.is_empty()) else { continue };
        if let Some((_, other, reason)) = taken.iter().find(|(name, ..)| *name == topic) {
            report.fault(
                &KeyPath::of(key),
                format!("\"{topic}\" is also {other}, and {reason}; give it a topic of its own"),
            );
        }
        for (key, pattern) in topics::patterns(settings) {
            if pattern.matches(topic) {
                let pattern = pattern.as_str();
                let problem = format!(
                    "\"{pattern}\" matches \"{topic}\", {use_of_it}: the service would read what it writes; write a \
                     narrower pattern, or give the other topic another name"
                );
                report.fault(&key, problem);
            }
        }
        taken.push((topic, use_of_it, "readers could not tell the two apart"));
    }
}

const KEYS: [(&str, ResultKey); 2] =
    [("key", ResultKey::Key), ("key_window", ResultKey::KeyWindow)];

const TIMESTAMPS: [(&str, TimestampFormat); 2] =
    [("epoch_ms", TimestampFormat::EpochMs), ("rfc3339", TimestampFormat::Rfc3339)];

const INTEGERS: [(&str, IntegerFormat); 2] =
    [("number", IntegerFormat::Number), ("text", IntegerFormat::Text)];
