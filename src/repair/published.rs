//! The rows of the results topic.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::late::text as header;
use super::{Place, RowId};
use crate::codec::KeyPart;
use crate::config::{Config, KeyFrom};
use crate::event_time::AggregateValue;
use crate::kafka::repair::{End, Repair, RepairError};
use crate::pipeline::InputRecord;

/// The last pane of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Published {
    /// In their configured order.
    pub(super) values: Vec<AggregateValue>,
    pub(super) index: u32,
    partition: i32,
}

/// What the results topic says about rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) rows: BTreeMap<RowId, Published>,
    /// Its oldest records have been removed, so a row that is not there may have been.
    pub(super) trimmed: bool,
}

type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Reads the last panes of these rows. What was being written is waited for.
pub(super) fn last_panes(
    repair: &Repair,
    config: &Config,
    wanted: &BTreeSet<RowId>,
) -> Result<Found, RepairError> {
    let topic = &config.results.topic;
    let ranges = repair.ranges(topic, End::Written)?;
    let trimmed = ranges.values().any(|(begin, _)| *begin > 0);
    let mut rows: BTreeMap<RowId, Published> = BTreeMap::new();
    if wanted.is_empty() {
        return Ok(Found { rows, trimmed });
    }
    repair.read(topic, &ranges, |record| {
        let members = record.payload().and_then(|payload| serde_json::from_slice(payload).ok());
        let Some(members): Option<Members<'_>> = members else {
            return Ok(ControlFlow::Continue(()));
        };
        let Some(id) = identity(config, record, &members).filter(|id| wanted.contains(id)) else {
            return Ok(ControlFlow::Continue(()));
        };
        let partition = record.partition().partition;
        let published = published(config, &members, partition).map_err(|fault| {
            let offset = record.offset();
            RepairError::Foreign(format!(
                "the row at offset {offset} of {topic}/{partition} was written under another \
                 configuration: {fault}; reconcile with the one that wrote it"
            ))
        })?;
        let is_later = rows
            .get(&id)
            .is_none_or(|before| before.partition == partition || before.index <= published.index);
        if is_later {
            rows.insert(id, published);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Found { rows, trimmed })
}

/// Which row it is; none for what is no row of this configuration, such as progress.
fn identity(config: &Config, record: &impl InputRecord, members: &Members<'_>) -> Option<RowId> {
    let start = time(members.get("window_start")?)?;
    let names = match &config.key.from {
        KeyFrom::Message => vec!["key"],
        KeyFrom::Fields(fields) => fields.iter().map(String::as_str).collect(),
    };
    let mut key = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        key_part(members.get(*name)?)?.write(nth + 1 == names.len(), &mut key);
    }
    let place = if config.key.needs_all_partitions() {
        None
    } else {
        let topic = header(record, "tidegate.topic").filter(|_| config.key.across_topics);
        Some(Place { topic, partition: header(record, "tidegate.partition")?.parse().ok()? })
    };
    Some(RowId { start, key, place })
}

fn published(config: &Config, members: &Members<'_>, partition: i32) -> Result<Published, String> {
    #[derive(Deserialize)]
    struct Pane {
        index: u32,
    }
    let member = |name: &str| members.get(name).ok_or_else(|| format!("it has no `{name}`"));
    let values = config.aggregates.iter().map(|aggregate| {
        let raw = member(&aggregate.name)?;
        value(raw).ok_or_else(|| format!("`{}` is {raw}, which is no aggregate", aggregate.name))
    });
    let pane: Pane =
        serde_json::from_str(member("pane")?.get()).map_err(|error| format!("`pane`: {error}"))?;
    Ok(Published { values: values.collect::<Result<_, _>>()?, index: pane.index, partition })
}

/// An aggregate, as the encoder writes it.
fn value(raw: &RawValue) -> Option<AggregateValue> {
    let text = serde_json::from_str::<String>(raw.get());
    if let Ok(text) = text {
        if text == "overflow" {
            return Some(AggregateValue::Overflow);
        }
        return text.parse().ok().map(AggregateValue::Integer);
    }
    match raw.get() {
        "null" => Some(AggregateValue::Missing),
        number => number.parse().map(AggregateValue::Integer).ok().or_else(|| {
            number.parse().ok().filter(|float: &f64| float.is_finite()).map(AggregateValue::Float)
        }),
    }
}

fn key_part(raw: &RawValue) -> Option<KeyPart<'static>> {
    if let Ok(text) = serde_json::from_str::<String>(raw.get()) {
        return Some(KeyPart::Text(Cow::Owned(text)));
    }
    match raw.get() {
        "true" => Some(KeyPart::Bool(true)),
        "false" => Some(KeyPart::Bool(false)),
        integer => integer.parse().ok().map(KeyPart::Integer),
    }
}

/// A time as either of the two formats of `results.timestamps` has it.
fn time(raw: &RawValue) -> Option<i64> {
    match serde_json::from_str::<String>(raw.get()) {
        Ok(text) => text.parse().ok().map(jiff::Timestamp::as_millisecond),
        Err(_) => raw.get().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregates_come_back_as_they_were_written() {
        let value = |text: &str| value(&RawValue::from_string(text.to_owned()).unwrap());
        let most = i128::from(u64::MAX) * 4;
        assert_eq!(value(&most.to_string()), Some(AggregateValue::Integer(most)));
        assert_eq!(value(&format!("\"{most}\"")), Some(AggregateValue::Integer(most)));
        assert_eq!(value("1.0"), Some(AggregateValue::Float(1.0)));
        assert_eq!(value("1e300"), Some(AggregateValue::Float(1e300)));
        assert_eq!(value("\"overflow\""), Some(AggregateValue::Overflow));
        assert_eq!(value("null"), Some(AggregateValue::Missing));
        assert_eq!(value("\"text\""), None);
        assert_eq!(value("[]"), None);
    }

    #[test]
    fn times_of_both_formats_are_read() {
        let time = |text: &str| time(&RawValue::from_string(text.to_owned()).unwrap());
        assert_eq!(time("1357020000000"), Some(1_357_020_000_000));
        assert_eq!(time("\"2013-01-01T06:00:00Z\""), Some(1_357_020_000_000));
        assert_eq!(time("true"), None);
    }
}
