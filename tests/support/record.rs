//! A record of a topic, as the tests write and read it.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::fmt;

/// A record, to be written or as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) timestamp: Option<i64>,
}

impl Record {
    /// A record with this payload, for one partition.
    pub(crate) fn of(partition: i32, payload: impl Into<Vec<u8>>) -> Self {
        Self { partition, payload: Some(payload.into()), ..Self::default() }
    }

    /// The payload as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(self.payload.as_deref().unwrap_or_default())
            .expect("the payload is JSON")
    }

    /// The last header of a name, as text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self.headers.iter().rev().find(|(key, _)| key == name)?;
        Some(String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned())
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Option<Vec<u8>>| match bytes {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => "-".to_owned(),
        };
        write!(
            f,
            "{}@{} {} {}",
            self.partition,
            self.offset,
            text(&self.key),
            text(&self.payload)
        )?;
        self.headers.iter().try_for_each(|(name, value)| write!(f, " {name}={}", text(value)))
    }
}
