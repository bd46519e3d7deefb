//! What is wrong with the settings, and what would be right.

use std::fmt;

use ::config::Value;

use super::key_path::KeyPath;

/// One fault of the settings: where it was written, its key, what is wrong and what would be right.
///
/// It never holds the value of a librdkafka property, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    origin: String,
    key: Option<String>,
    problem: String,
}

impl ConfigFault {
    pub(super) fn new(
        origin: impl Into<String>,
        key: Option<&KeyPath>,
        problem: impl Into<String>,
    ) -> Self {
        Self { origin: origin.into(), key: key.map(ToString::to_string), problem: problem.into() }
    }

    /// Where it was written: a file, a variable of the environment, or what was read where a key is missing.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The key, such as `source[0].topic`; `None` where a source could not be read at all.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What is wrong and what would be right.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ConfigFault {}

/// A fault that is in the report. Only the report makes one, so whoever gets it has nothing left to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted(());

/// Collects the faults and warnings of one reading.
#[derive(Debug)]
pub(super) struct Report<'a> {
    /// The layers merged, to look up where a key was written.
    merged: &'a Value,
    /// What was read, for keys that nobody wrote.
    read: &'a str,
    /// Whether all sources could be read; otherwise what is missing may be in the others.
    complete: bool,
    pub(super) faults: Vec<ConfigFault>,
    pub(super) warnings: Vec<String>,
    /// Keys whose absence needs no fault of its own, since they or what they were mistyped as have one.
    excused: Vec<KeyPath>,
}

impl<'a> Report<'a> {
    pub(super) fn new(merged: &'a Value, read: &'a str, complete: bool) -> Self {
        let (faults, warnings, excused) = (Vec::new(), Vec::new(), Vec::new());
        Self { merged, read, complete, faults, warnings, excused }
    }

    /// Notes a fault of a key, with the place where the key, or else the table around it, was written.
    pub(super) fn fault(&mut self, key: &KeyPath, problem: impl Into<String>) -> Noted {
        let origin = self.origin(key);
        self.faults.push(ConfigFault::new(origin, Some(key), problem));
        self.excuse(key.clone());
        Noted(())
    }

    /// Notes that a key must be there, unless it, or something in it, has a fault already. `hint` says what to write.
    pub(super) fn missing(&mut self, key: &KeyPath, hint: &str) -> Noted {
        match self.sound(key, ()) {
            Ok(()) if !self.complete => Noted(()),
            Ok(()) => self.fault(key, format!("is missing; {hint}")),
            Err(noted) => noted,
        }
    }

    /// Notes something odd that can be lived with.
    pub(super) fn warn(&mut self, key: &KeyPath, problem: impl fmt::Display) {
        let origin = self.origin(key);
        self.warnings.push(format!("{origin}: {key}: {problem}"));
    }

    /// Whether the key itself has a fault.
    pub(super) fn has(&self, key: &KeyPath) -> bool {
        let key = key.to_string();
        self.faults.iter().any(|fault| fault.key() == Some(&key))
    }

    /// Lets a key be absent without a further fault.
    pub(super) fn excuse(&mut self, key: KeyPath) {
        self.excused.push(key);
    }

    /// Passes a value on if nothing at its key, below or around it has a fault.
    pub(super) fn sound<T>(&self, key: &KeyPath, value: T) -> Result<T, Noted> {
        let touches = |excused: &KeyPath| excused.is_within(key) || key.is_within(excused);
        if self.excused.iter().any(touches) { Err(Noted(())) } else { Ok(value) }
    }

    /// Reads a text that must be there; `hint` says what to write where it is not.
    pub(super) fn value<T>(
        &mut self,
        key: &KeyPath,
        text: Option<&String>,
        hint: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Noted> {
        match self.optional(key, text, read)? {
            Some(value) => Ok(value),
            None => Err(self.missing(key, hint)),
        }
    }

    /// Reads a text that may be absent.
    pub(super) fn optional<T>(
        &mut self,
        key: &KeyPath,
        text: Option<&String>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Noted> {
        let read = text.map(|text| read(text)).transpose();
        read.map_err(|problem| self.fault(key, problem))
    }

    fn origin(&self, key: &KeyPath) -> String {
        let mut around = Some(key.clone());
        while let Some(key) = around {
            if let Some(origin) = key.find(self.merged).and_then(Value::origin) {
                return origin.to_owned();
            }
            around = key.parent();
        }
        self.read.to_owned()
    }
}

/// The one of these that a word is nearly, if there is one.
pub(super) fn did_you_mean<'w>(
    word: &str,
    known: impl IntoIterator<Item = &'w str>,
) -> Option<&'w str> {
    let most = (word.chars().count().saturating_add(1) / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (edit_distance(&word.to_lowercase(), candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many characters must be put in, taken out or changed to make one word of the other (Levenshtein).
fn edit_distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (line, left) in from.chars().enumerate() {
        let mut diagonal = line;
        let mut before = line + 1;
        let mut next = vec![before];
        for (above, right) in row.iter().skip(1).zip(to.chars()) {
            let changed = diagonal + usize::from(left != right);
            before = changed.min(above + 1).min(before + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_nearly_right_is_recognised() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(
            did_you_mean("alowed_latenes", ["size", "allowed_lateness"]),
            Some("allowed_lateness")
        );
        assert_eq!(did_you_mean("feild", ["field", "header"]), Some("field"));
        assert_eq!(did_you_mean("colour", ["field", "header"]), None);
    }
}
