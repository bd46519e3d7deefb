//! Looking into the `config` crate's values.

use ::config::{Map, Value, ValueKind};

/// A table of values.
pub(super) type Table = Map<String, Value>;

/// The value as a table, if it is one.
pub(super) fn table(value: &Value) -> Option<&Table> {
    if let ValueKind::Table(table) = &value.kind { Some(table) } else { None }
}

/// The same, to be changed.
pub(super) fn table_mut(value: &mut Value) -> Option<&mut Table> {
    if let ValueKind::Table(table) = &mut value.kind { Some(table) } else { None }
}

/// The value as a list, if it is one.
pub(super) fn list(value: &Value) -> Option<&Vec<Value>> {
    if let ValueKind::Array(list) = &value.kind { Some(list) } else { None }
}

/// The same, to be changed.
pub(super) fn list_mut(value: &mut Value) -> Option<&mut Vec<Value>> {
    if let ValueKind::Array(list) = &mut value.kind { Some(list) } else { None }
}

/// The value, and all in it, as written in this place.
pub(super) fn with_origin(value: Value, origin: &String) -> Value {
    let mut value = Value::new(Some(origin), value.kind);
    if let Some(entries) = table_mut(&mut value) {
        for entry in entries.values_mut() {
            *entry = with_origin(std::mem::take(entry), origin);
        }
    } else if let Some(entries) = list_mut(&mut value) {
        for entry in entries {
            *entry = with_origin(std::mem::take(entry), origin);
        }
    }
    value
}

/// What kind of value it is, in words.
pub(super) fn kind_in_words(value: Option<&Value>) -> &'static str {
    match value.map(|value| &value.kind) {
        None | Some(ValueKind::Nil) => "has no value",
        Some(ValueKind::Table(_)) => "is a table",
        Some(ValueKind::Array(_)) => "is a list",
        Some(ValueKind::String(_)) => "is a text",
        Some(ValueKind::Boolean(_)) => "is a flag",
        Some(
            ValueKind::I64(_)
            | ValueKind::I128(_)
            | ValueKind::U64(_)
            | ValueKind::U128(_)
            | ValueKind::Float(_),
        ) => "is a number",
    }
}
