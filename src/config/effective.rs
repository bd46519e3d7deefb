//! The settings as they are in force, to be shown: all layers merged, secrets hidden.

use std::fmt::Write as _;

use ::config::{Value, ValueKind};
use sha2::{Digest as _, Sha256};

use super::key_path::{KeyPath, quoted, quoted_key};
use super::layers::{DEFAULTS, SECRET_TABLES};
use super::load::{Loaded, default_toml};
use super::properties::{HIDDEN, is_secret};
use super::tree::{self, Table};

/// All layers merged, each value with where it was written; secrets are not in it.
#[derive(Clone, Debug)]
pub struct Effective(Value);

impl Effective {
    pub(super) fn new(mut merged: Value) -> Self {
        for path in SECRET_TABLES.map(KeyPath::of) {
            let properties = path.find_mut(&mut merged).and_then(tree::table_mut);
            for (name, value) in properties.into_iter().flatten() {
                if is_secret(name) {
                    value.kind = HIDDEN.into();
                }
            }
        }
        Self(merged)
    }

    /// The SHA-256 of all of them but the name of the instance, whatever layers they come from.
    pub(super) fn fingerprint(&self) -> String {
        let mut lines = Vec::new();
        each_value(&self.0, "", &mut lines);
        lines.retain(|line| !line.starts_with(".kafka.instance_id="));
        lines.sort_unstable();
        let digest = Sha256::digest(lines.join("\n"));
        digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    }

    /// As JSON, for readers that are programs.
    pub fn to_json(&self) -> serde_json::Value {
        json(&self.0)
    }
}

/// The settings in force as TOML, each that is not a default with where it was written; secrets are hidden.
///
/// It can be given back to the service as a file, once the secrets are put in again.
pub fn render_effective(loaded: &Loaded) -> String {
    let mut text = String::new();
    if let Some(root) = tree::table(&loaded.effective.0) {
        render_table(root, &KeyPath::default(), &mut text);
    }
    text.trim_start().to_owned()
}

/// A line for each value that is neither a table nor a list.
fn each_value(value: &Value, path: &str, lines: &mut Vec<String>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (name, value) in table {
                each_value(value, &format!("{path}.{name}"), lines);
            }
        }
        ValueKind::Array(list) => {
            for (place, value) in list.iter().enumerate() {
                each_value(value, &format!("{path}[{place}]"), lines);
            }
        }
        ValueKind::Nil
        | ValueKind::Boolean(_)
        | ValueKind::I64(_)
        | ValueKind::I128(_)
        | ValueKind::U64(_)
        | ValueKind::U128(_)
        | ValueKind::Float(_)
        | ValueKind::String(_) => lines.push(format!("{path}={}", value.kind)),
    }
}

fn json(value: &Value) -> serde_json::Value {
    match &value.kind {
        ValueKind::Nil => serde_json::Value::Null,
        ValueKind::Boolean(flag) => (*flag).into(),
        ValueKind::I64(number) => (*number).into(),
        ValueKind::U64(number) => (*number).into(),
        ValueKind::Float(number) => (*number).into(),
        ValueKind::I128(_) | ValueKind::U128(_) => value.kind.to_string().into(),
        ValueKind::String(text) => text.as_str().into(),
        ValueKind::Array(list) => list.iter().map(json).collect(),
        ValueKind::Table(table) => {
            table.iter().map(|(name, value)| (name.clone(), json(value))).collect()
        }
    }
}

/// Single values first, since in TOML whatever follows a table's head belongs to that table.
fn render_table(table: &Table, at: &KeyPath, text: &mut String) {
    let mut entries: Vec<(&String, &Value)> = table.iter().collect();
    entries.sort_by_cached_key(|(name, value)| {
        let is_table = tree::table(value).is_some() || is_list_of_tables(value);
        let key = at.key(name);
        (is_table, place_in_reference(&key), (*name).clone())
    });
    for (name, value) in entries {
        let key = at.key(name);
        if let Some(inner) = tree::table(value) {
            if inner.values().any(|value| tree::table(value).is_none()) {
                push(text, format_args!("\n[{key}]\n"));
            }
            render_table(inner, &key, text);
        } else if is_list_of_tables(value) {
            for inner in tree::list(value).into_iter().flatten().filter_map(tree::table) {
                push(text, format_args!("\n[[{key}]]\n"));
                render_table(inner, &key, text);
            }
        } else {
            let line = format!("{} = {}", quoted_key(name), inline(value));
            match value.origin() {
                Some(origin) if origin != DEFAULTS => {
                    push(text, format_args!("{line}  # {}\n", origin.replace('\n', " ")));
                }
                _ => push(text, format_args!("{line}\n")),
            }
        }
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    text.write_fmt(line).unwrap_or_default();
}

fn is_list_of_tables(value: &Value) -> bool {
    tree::list(value).is_some_and(|list| list.iter().any(|entry| tree::table(entry).is_some()))
}

fn inline(value: &Value) -> String {
    if let ValueKind::String(text) = &value.kind {
        quoted(text)
    } else if let ValueKind::Float(number) = value.kind {
        // A float keeps its point, or it would come back as an integer.
        format!("{number:?}")
    } else if let Some(list) = tree::list(value) {
        format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", "))
    } else {
        value.kind.to_string()
    }
}

/// Where the reference has a key, so that the output follows its order; at the end if it has not.
fn place_in_reference(key: &KeyPath) -> usize {
    let place = reference_keys().position(|known| known == key.names());
    place.unwrap_or(usize::MAX)
}

/// The keys of the reference in their order, tables and commented examples included, list places left out.
pub(super) fn reference_keys() -> impl Iterator<Item = String> {
    let mut section = String::new();
    default_toml().lines().filter_map(move |line| {
        let line = line.trim_start_matches("#:").trim_start_matches("#|").trim();
        let is_name =
            |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '_' | '.'));
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let name = name.trim_matches(['[', ']']);
            name.clone_into(&mut section);
            return Some(section.clone()).filter(|name| is_name(name));
        }
        let (name, _) = line.split_once(" = ")?;
        is_name(name).then(|| format!("{section}.{name}"))
    })
}
