//! `[key]` and `[[aggregate]]`: what records are grouped by and what is computed.

use super::{and_one_more, values};
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::{AggregateSettings, KeySettings};
use crate::config::{Aggregate, Key, KeyFrom, Missing, Source, ValueType};
use crate::event_time::AggregateFunction;

pub(super) fn parse_key(
    settings: &KeySettings,
    tables: &[&Source],
    across_topics: bool,
    report: &mut Report<'_>,
) -> Result<Key, Noted> {
    let section = KeyPath::of("key");
    let (fields_key, from_key) = (section.key("fields"), section.key("from"));
    let partial_key = section.key("partial");
    let partial =
        report.value(&partial_key, settings.partial.as_ref(), "write false", values::flag);
    match (&settings.fields, &settings.from) {
        (Some(_), Some(_)) => {
            Err(report.fault(&section, "has both `fields` and `from`; give one of them"))
        }
        (None, None) => {
            let hint = "give `fields = [\"...\"]` or `from = \"message\"`";
            Err(report.missing(&section, hint))
        }
        (None, Some(from)) => {
            let from =
                report.value(&from_key, Some(from), "", |text| values::word(text, &KEY_FROM));
            if matches!(partial, Ok(true)) && !across_topics {
                let problem = "goes only with `key.fields` or several topics: the records of a message key are in one \
                               partition of a topic anyway; leave it out";
                return Err(report.fault(&partial_key, problem));
            }
            Ok(Key { from: from?, partial: partial?, across_topics })
        }
        (Some(fields), None) => {
            if fields.0.is_empty() {
                return Err(report.fault(&fields_key, "is empty; name at least one field"));
            }
            for (place, field) in fields.0.iter().enumerate() {
                let reserved = matches!(partial, Ok(true)) && across_topics && field == "topic";
                check_key_field(&fields.0, place, reserved, tables, report);
            }
            report.sound(&fields_key, ())?;
            let from = KeyFrom::Fields(fields.0.clone());
            Ok(Key { from, partial: partial?, across_topics })
        }
    }
}

fn check_key_field(
    fields: &[String],
    place: usize,
    reserved: bool,
    tables: &[&Source],
    report: &mut Report<'_>,
) {
    let Some(field) = fields.get(place).map(String::as_str) else { return };
    let key = KeyPath::of("key.fields").place(place);
    if fields.iter().take(place).any(|earlier| earlier == field) {
        report.fault(&key, format!("\"{field}\" is there twice; name each field once"));
    } else if reserved || RESERVED_FOR_FIELDS.contains(&field) {
        report.fault(
            &key,
            format!("every result has its own `{field}`; give the field another logical name in source.fields"),
        );
    } else {
        check_field(&key, field, tables, report);
    }
}

/// A logical field must be found somewhere in each source: under its path or, as a path, under its own name.
fn check_field(key: &KeyPath, field: &str, tables: &[&Source], report: &mut Report<'_>) {
    // Of sources with faults it is not known what they have.
    let found = tables.iter().all(|source| source.fields.contains_key(field));
    if let Err(problem) = values::path(field)
        && !found
    {
        report.fault(key, problem);
    }
}

pub(super) fn parse_aggregates(
    settings: &[AggregateSettings],
    tables: &[&Source],
    key: Option<&Key>,
    report: &mut Report<'_>,
) -> Result<Vec<Aggregate>, Noted> {
    let list = KeyPath::of("aggregate");
    if settings.is_empty() {
        let hint = "write at least one [[aggregate]] with `name` and `function`";
        return Err(report.missing(&list, hint));
    }
    let mut aggregates = Ok(Vec::new());
    for (place, aggregate) in settings.iter().enumerate() {
        let at = list.place(place);
        if let Some(name) = &aggregate.name {
            let taken =
                settings.iter().take(place).any(|earlier| earlier.name.as_ref() == Some(name));
            check_aggregate_name(&at.key("name"), name, taken, key, report);
        }
        let aggregate = parse_aggregate(aggregate, &at, tables, report);
        aggregates = and_one_more(aggregates, aggregate);
    }
    report.sound(&list, ())?;
    aggregates
}

fn check_aggregate_name(
    at: &KeyPath,
    name: &str,
    taken: bool,
    key: Option<&Key>,
    report: &mut Report<'_>,
) {
    let is_key_field = match key.map(|key| &key.from) {
        Some(KeyFrom::Fields(fields)) => fields.iter().any(|field| field == name),
        Some(KeyFrom::Message) | None => false,
    };
    if taken {
        report.fault(at, format!("\"{name}\" is there twice; give each aggregate its own name"));
    } else if is_key_field {
        report.fault(at, format!("\"{name}\" is a key field; give the aggregate another name"));
    } else if RESERVED_FOR_AGGREGATES.contains(&name)
        || (name == "topic" && key.is_some_and(|key| key.partial && key.across_topics))
    {
        let problem = format!("every result has its own `{name}`; give the aggregate another name");
        report.fault(at, problem);
    }
}

fn parse_aggregate(
    settings: &AggregateSettings,
    at: &KeyPath,
    tables: &[&Source],
    report: &mut Report<'_>,
) -> Result<Aggregate, Noted> {
    let name = report.value(
        &at.key("name"),
        settings.name.as_ref(),
        "write what the result calls it",
        values::filled,
    );
    let function = report.value(
        &at.key("function"),
        settings.function.as_ref(),
        "write one of \"count\", \"sum\", \"min\", \"max\", \"avg\"",
        |text| values::word(text, &FUNCTIONS),
    );
    let field_key = at.key("field");
    if let Some(field) = &settings.field {
        check_field(&field_key, field, tables, report);
    } else if let Ok(function) = function
        && function != AggregateFunction::Count
    {
        let name = function.name();
        let hint = format!("name the field that \"{name}\" takes; only \"count\" does without");
        report.missing(&field_key, &hint);
    } else if report.sound(&field_key, ()).is_ok() {
        for (word, text) in [("type", &settings.value_type), ("missing", &settings.missing)] {
            if text.is_some() {
                let problem = "says something about a field, and there is none; leave it out";
                report.fault(&at.key(word), problem);
            }
        }
    }
    let value_type = report
        .optional(&at.key("type"), settings.value_type.as_ref(), |text| {
            values::word(text, &VALUE_TYPES)
        })?
        .unwrap_or(ValueType::Number);
    let missing = report
        .optional(&at.key("missing"), settings.missing.as_ref(), |text| {
            values::word(text, &MISSING)
        })?
        .unwrap_or(Missing::Refuse);
    Ok(Aggregate {
        name: name?,
        function: function?,
        field: settings.field.clone(),
        value_type,
        missing,
    })
}

const KEY_FROM: [(&str, KeyFrom); 1] = [("message", KeyFrom::Message)];

const FUNCTIONS: [(&str, AggregateFunction); 5] = [
    ("count", AggregateFunction::Count),
    ("sum", AggregateFunction::Sum),
    ("min", AggregateFunction::Min),
    ("max", AggregateFunction::Max),
    ("avg", AggregateFunction::Avg),
];

const VALUE_TYPES: [(&str, ValueType); 3] =
    [("number", ValueType::Number), ("integer", ValueType::Integer), ("float", ValueType::Float)];

const MISSING: [(&str, Missing); 2] = [("refuse", Missing::Refuse), ("skip", Missing::Skip)];

/// Names that every result has, whatever is configured.
const RESERVED_FOR_FIELDS: [&str; 4] = ["window_start", "window_end", "pane", "partition"];

/// The same, and the name of the message key.
const RESERVED_FOR_AGGREGATES: [&str; 5] =
    ["window_start", "window_end", "pane", "partition", "key"];
