//! Dead letters, and the records that they were.

use std::borrow::Cow;

use crate::kafka::repair::Outgoing;
use crate::pipeline::{Header, InputRecord};

/// Counts how often a record was sent back.
pub(super) const REPLAYED: &str = "tidegate.replayed";

/// A record of the dead-letter topic that says which dead letters have been sent back.
pub(super) const RECEIPT: &str = "tidegate.replay.receipt";

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) reason: String,
    pub(super) detail: String,
    /// Kafka's timestamp of the record that it was.
    pub(super) timestamp: Option<i64>,
    /// How often it had been sent back before.
    pub(super) replayed: u32,
    /// The record that it was, or why there is none to send.
    pub(super) record: Result<Outgoing, Unfit>,
}

/// Why a dead letter is no record that can be sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfit {
    /// It was too large for the dead-letter topic, and its payload, key or headers are missing.
    Omitted,
    /// It was a result that its topic did not take.
    Result,
    /// It has no headers of the service.
    Foreign,
}

impl Unfit {
    /// What a person is told.
    pub fn why(self) -> &'static str {
        match self {
            Self::Omitted => {
                "their payload, key or headers were too large for the dead-letter topic and are not in it"
            }
            Self::Result => "they are results, not records (result_too_large)",
            Self::Foreign => "they have no headers that say which record they were",
        }
    }
}

impl Letter {
    pub(super) fn of(record: &impl InputRecord) -> Self {
        let mut headers: Vec<Header> = Vec::new();
        record.each_header(&mut |name, value| {
            headers.push((Cow::Owned(name.to_owned()), value.map(<[u8]>::to_vec)));
        });
        // What the record had brought comes first, and may have such names too.
        let brought = headers.iter().rposition(|(name, _)| name == "tidegate.reason");
        let added = brought.map_or_else(Vec::new, |brought| headers.split_off(brought));
        let text = |name: &str| {
            let (_, value) = added.iter().find(|(held, _)| held == name)?;
            Some(String::from_utf8_lossy(value.as_deref()?).into_owned())
        };
        let number = |name: &str| text(name).and_then(|text| text.parse().ok());
        let is_marker = |(name, _): &Header| name == REPLAYED;
        let replayed = headers.iter().rev().find(|header| is_marker(header));
        let replayed = replayed.and_then(|(_, value)| {
            std::str::from_utf8(value.as_deref()?).ok()?.parse::<u32>().ok()
        });
        let replayed = replayed.unwrap_or(0);
        headers.retain(|header| !is_marker(header));
        let again = replayed.saturating_add(1).to_string().into_bytes();
        headers.push((Cow::Borrowed(REPLAYED), Some(again)));
        let omitted = added.iter().any(|(name, _)| name.ends_with(".omitted"));
        let timestamp = number("tidegate.timestamp").or_else(|| record.timestamp());
        let reason = text("tidegate.reason");
        let sent = match (text("tidegate.topic"), number("tidegate.partition")) {
            _ if omitted => Err(Unfit::Omitted),
            (Some(topic), Some(partition)) => Ok(Outgoing {
                topic,
                partition: i32::try_from(partition).ok(),
                key: record.key().map(<[u8]>::to_vec),
                payload: record.payload().map(<[u8]>::to_vec),
                headers,
                timestamp: timestamp.filter(|timestamp| *timestamp >= 0),
            }),
            _ if reason.as_deref() == Some("result_too_large") => Err(Unfit::Result),
            _ => Err(Unfit::Foreign),
        };
        Self {
            reason: reason.unwrap_or_default(),
            detail: text("tidegate.detail").unwrap_or_default(),
            timestamp,
            replayed,
            record: sent,
        }
    }
}
