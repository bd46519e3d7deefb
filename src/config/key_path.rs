//! Where a setting stands: the names and list places that lead to it.

use std::fmt;

use ::config::{Value, ValueKind};
use serde_path_to_error::Segment;

use super::tree::{self, Table};

/// The way to a setting, outermost first, such as `source[0].watermark.idle_timeout`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Place(usize),
}

impl KeyPath {
    /// A path of plain names, written with dots.
    pub(super) fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(|name| Step::Key(name.to_owned())).collect())
    }

    /// One step further, by a name that may have dots in it.
    pub(super) fn key(&self, name: &str) -> Self {
        self.step(Step::Key(name.to_owned()))
    }

    /// One step further, by a place in a list.
    pub(super) fn place(&self, place: usize) -> Self {
        self.step(Step::Place(place))
    }

    fn step(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }

    /// The path without its last step; `None` at the root.
    pub(super) fn parent(&self) -> Option<Self> {
        self.0.split_last().map(|(_, parent)| Self(parent.to_vec()))
    }

    /// The last name.
    pub(super) fn name(&self) -> Option<&str> {
        match self.0.last() {
            Some(Step::Key(name)) => Some(name),
            Some(Step::Place(_)) | None => None,
        }
    }

    /// Whether this is the other or stands below it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The path without list places, as the tables of a file are written.
    pub(super) fn names(&self) -> String {
        let names = self.0.iter().filter_map(|step| match step {
            Step::Key(name) => Some(name.as_str()),
            Step::Place(_) => None,
        });
        names.collect::<Vec<_>>().join(".")
    }

    /// The value there.
    pub(super) fn find<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(root, |value, step| match (&value.kind, step) {
            (ValueKind::Table(table), Step::Key(name)) => table.get(name),
            (ValueKind::Array(list), Step::Place(place)) => list.get(*place),
            _ => None,
        })
    }

    /// The value there, to be changed.
    pub(super) fn find_mut<'v>(&self, root: &'v mut Value) -> Option<&'v mut Value> {
        self.0.iter().try_fold(root, |value, step| match (&mut value.kind, step) {
            (ValueKind::Table(table), Step::Key(name)) => table.get_mut(name),
            (ValueKind::Array(list), Step::Place(place)) => list.get_mut(*place),
            _ => None,
        })
    }

    /// Takes the value out, so that the others can be read. The place of a list stays as an empty table, since the
    /// places behind it must not change.
    ///
    /// Returns whether there was something.
    pub(super) fn take_out(&self, root: &mut Value) -> bool {
        let Some((last, around)) = self.0.split_last() else { return false };
        let Some(around) = Self(around.to_vec()).find_mut(root) else { return false };
        match last {
            Step::Key(name) => {
                tree::table_mut(around).is_some_and(|table| table.remove(name).is_some())
            }
            Step::Place(place) => {
                let entries = tree::list_mut(around);
                let Some(entry) = entries.and_then(|entries| entries.get_mut(*place)) else {
                    return false;
                };
                let was_empty = tree::table(entry).is_some_and(Table::is_empty);
                *entry = Table::new().into();
                !was_empty
            }
        }
    }
}

impl From<&serde_path_to_error::Path> for KeyPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        let steps = path.iter().filter_map(|segment| match segment {
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Seq { index } => Some(Step::Place(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        Self(steps.collect())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Place(place) => write!(f, "[{place}]")?,
                Step::Key(name) => {
                    let dot = if position == 0 { "" } else { "." };
                    write!(f, "{dot}{}", quoted_key(name))?;
                }
            }
        }
        Ok(())
    }
}

/// A name as a TOML key: bare where that is possible.
pub(super) fn quoted_key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { quoted(name) }
}

/// A text as a TOML basic string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => {
                let code = format!("\\u{:04X}", u32::from(control));
                quoted.push_str(&code);
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}
