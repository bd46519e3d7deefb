//! A record as the client has it.

use std::borrow::Cow;

use rdkafka::message::{self, BorrowedMessage, Message as _, OwnedHeaders};

use super::headers::Headers;
use crate::event_time::PartitionId;
use crate::pipeline::{Header, InputRecord};

/// A record that the client lends out.
#[derive(Debug)]
pub struct KafkaRecord<'a> {
    pub(super) message: BorrowedMessage<'a>,
    pub(super) partition: PartitionId,
}

/// The headers of a record that is written; `None`: it has none.
pub(super) fn owned_headers(headers: &[Header]) -> Option<OwnedHeaders> {
    if headers.is_empty() {
        return None;
    }
    let all = OwnedHeaders::new_with_capacity(headers.len());
    Some(headers.iter().fold(all, |all, (name, value)| {
        all.insert(message::Header { key: name, value: value.as_deref() })
    }))
}

impl InputRecord for KafkaRecord<'_> {
    fn partition(&self) -> PartitionId {
        self.partition
    }
    fn offset(&self) -> i64 {
        self.message.offset()
    }
    fn key(&self) -> Option<&[u8]> {
        self.message.key()
    }
    fn payload(&self) -> Option<&[u8]> {
        self.message.payload()
    }
    fn timestamp(&self) -> Option<i64> {
        self.message.timestamp().to_millis()
    }
    fn header(&self, name: &str) -> Option<&[u8]> {
        Headers::of(&self.message).filter(|(key, _)| key == name).last()?.1
    }
    fn each_header(&self, visit: &mut dyn FnMut(&str, Option<&[u8]>)) {
        let mut replaced = 0usize;
        for (name, value) in Headers::of(&self.message) {
            replaced += usize::from(matches!(name, Cow::Owned(_)));
            visit(&name, value);
        }
        if replaced > 0 {
            visit("tidegate.header.names.replaced", Some(replaced.to_string().as_bytes()));
        }
    }
}
