//! Result records into rows.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::table::{ColumnType, Layout, PartitionFrom};
use crate::pipeline::InputRecord;

/// What tells a row from all others, in the order of the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    /// Milliseconds since the epoch.
    pub(super) window_start: i64,
    pub(super) keys: Vec<String>,
    /// For each key field `s`, `i` or `b`: a string, an integer, a boolean.
    pub(super) key_types: String,
    pub(super) partition: i32,
}

/// The rest of a row: the pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pane {
    /// Milliseconds since the epoch.
    pub(super) window_end: i64,
    /// The aggregates as the text of a number; `None` where there is no number.
    pub(super) values: Vec<Option<String>>,
    /// The aggregates that no number can tell, with commas between them.
    pub(super) overflow: Option<String>,
    pub(super) index: i64,
    pub(super) timing: String,
}

/// Why a record makes no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Skipped {
    /// It has no payload.
    Tombstone,
    /// It tells how far the results are complete (`results.progress`).
    Progress,
    /// It is no result of this configuration, or one that no table can hold.
    Unreadable(String),
}

impl From<String> for Skipped {
    fn from(reason: String) -> Self {
        Self::Unreadable(reason)
    }
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

/// Reads a record.
pub(super) fn read(
    layout: &Layout,
    record: &impl InputRecord,
) -> Result<(Identity, Pane), Skipped> {
    let payload = record.payload().ok_or(Skipped::Tombstone)?;
    let members: Members<'_> = serde_json::from_slice(payload)
        .map_err(|error| Skipped::Unreadable(format!("it is no JSON object: {error}")))?;
    if members.contains_key("complete_until") && !members.contains_key("window_start") {
        return Err(Skipped::Progress);
    }
    let (mut keys, mut key_types) = (Vec::new(), String::new());
    for name in &layout.keys {
        let (key, kind) = key(name, member(&members, name)?)?;
        keys.push(key);
        if layout.typed_keys {
            key_types.push(kind);
        }
    }
    let bytes: usize = keys.iter().map(String::len).sum();
    if bytes > LONGEST_KEY {
        return Err(format!("its key has {bytes} bytes, and an index takes {LONGEST_KEY}").into());
    }
    let partition = match layout.partition {
        None => 0,
        Some(PartitionFrom::Field) => number("partition", member(&members, "partition")?.get())?,
        Some(PartitionFrom::Header) => {
            let header = record.header("tidegate.partition").unwrap_or_default();
            number("the header tidegate.partition", &String::from_utf8_lossy(header))?
        }
    };
    let identity =
        Identity { window_start: time(&members, "window_start")?, keys, key_types, partition };
    let (mut values, mut overflow) = (Vec::new(), Vec::new());
    for (name, kind) in &layout.aggregates {
        let value = aggregate(name, *kind, member(&members, name)?)?;
        if value == Aggregate::Overflow {
            overflow.push(name.as_str());
        }
        values.push(if let Aggregate::Number(text) = value { Some(text) } else { None });
    }
    let pane: PaneMember = serde_json::from_str(member(&members, "pane")?.get())
        .map_err(|error| Skipped::Unreadable(format!("`pane`: {error}")))?;
    Ok((
        identity,
        Pane {
            window_end: time(&members, "window_end")?,
            values,
            overflow: (!overflow.is_empty()).then(|| overflow.join(",")),
            index: pane.index,
            timing: without_zeros("pane.timing", pane.timing)?,
        },
    ))
}

#[derive(Deserialize)]
struct PaneMember {
    timing: String,
    index: i64,
}

fn member<'a>(members: &Members<'a>, name: &str) -> Result<&'a RawValue, String> {
    members.get(name).copied().ok_or_else(|| format!("it has no `{name}`"))
}

fn number<N: std::str::FromStr>(name: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{name} is no number"))
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// PostgreSQL's texts hold no zero bytes.
fn without_zeros(name: &str, text: String) -> Result<String, String> {
    if text.contains('\0') {
        return Err(format!("`{name}` has a zero byte in it, and PostgreSQL takes none"));
    }
    Ok(text)
}

fn key(name: &str, raw: &RawValue) -> Result<(String, char), String> {
    if let Some(text) = text(raw) {
        return Ok((without_zeros(name, text)?, 's'));
    }
    match raw.get() {
        word @ ("true" | "false") => Ok((word.to_owned(), 'b')),
        integer if integer.parse::<i128>().is_ok() => Ok((integer.to_owned(), 'i')),
        _ => Err(format!("`{name}` is neither a string nor an integer nor a boolean")),
    }
}

/// A time as either of the two formats of `results.timestamps` has it.
fn time(members: &Members<'_>, name: &str) -> Result<i64, String> {
    let raw = member(members, name)?;
    let ms = match text(raw) {
        Some(text) => text
            .parse()
            .map(jiff::Timestamp::as_millisecond)
            .map_err(|_| format!("`{name}` is no time"))?,
        None => number(&format!("`{name}`"), raw.get())?,
    };
    if !TIMES.contains(&ms) {
        return Err(format!("`{name}` is {ms}, which is outside of PostgreSQL's calendar"));
    }
    Ok(ms)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Aggregate {
    Number(String),
    Missing,
    Overflow,
}

/// A number of the column's type; with `results.integers = "text"` integers are texts.
fn aggregate(name: &str, kind: ColumnType, raw: &RawValue) -> Result<Aggregate, String> {
    let written = text(raw);
    let digits = match (&written, raw.get()) {
        (Some(text), _) if text == "overflow" => return Ok(Aggregate::Overflow),
        (None, "null") => return Ok(Aggregate::Missing),
        (Some(text), _) if text.parse::<i128>().is_ok() => text,
        (None, number) => number,
        (Some(_), _) => return Err(format!("`{name}` is a text and no number")),
    };
    let fits = if kind == ColumnType::BigInt {
        digits.parse::<i64>().is_ok()
    } else {
        digits.parse::<f64>().is_ok_and(f64::is_finite)
    };
    if !fits {
        return Err(format!("`{name}` is {digits}, and its column is {}", kind.name()));
    }
    Ok(Aggregate::Number(digits.to_owned()))
}

/// PostgreSQL's timestamps: from 4713 BC to the year 294276, less a year at both ends.
const TIMES: std::ops::RangeInclusive<i64> = -210_835_000_000_000..=9_224_286_000_000_000;

/// An entry of PostgreSQL's index has at most 2,704 bytes, the other columns and their lengths included.
const LONGEST_KEY: usize = 2_500;
