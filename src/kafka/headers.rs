//! Headers as the wire has them.
//!
//! rdkafka takes header names for UTF-8 and panics on others, while Kafka takes any bytes: one such record would end the
//! service at each start anew. So they are read from librdkafka itself, in the one place of this crate that needs
//! unsafe code.

#![expect(unsafe_code, reason = "rdkafka offers no way to a header whose name is not UTF-8")]

use std::borrow::Cow;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr;

use rdkafka::bindings::{rd_kafka_header_get_all, rd_kafka_headers_t};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Message as _};
use rdkafka::types::RDKafkaRespErr;

/// The headers of a message, in their order, repeated names included.
pub(super) struct Headers<'m> {
    list: *const rd_kafka_headers_t,
    next: usize,
    count: usize,
    message: PhantomData<&'m BorrowedHeaders>,
}

impl<'m> Headers<'m> {
    pub(super) fn of(message: &'m BorrowedMessage<'_>) -> Self {
        let headers = message.headers();
        Self {
            // rdkafka's type is the address of librdkafka's list and nothing else.
            list: headers.map_or(ptr::null(), |headers| ptr::from_ref(headers).cast()),
            next: 0,
            count: headers.map_or(0, rdkafka::message::Headers::count),
            message: PhantomData,
        }
    }
}

impl<'m> Iterator for Headers<'m> {
    /// The name, with U+FFFD for what is not UTF-8, and the value.
    type Item = (Cow<'m, str>, Option<&'m [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.count {
            return None;
        }
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: `list` is the message's own and lives as long as the message, which `'m` holds on to; the three
        // pointers are ours.
        let code = unsafe {
            rd_kafka_header_get_all(
                self.list,
                self.next,
                &raw mut name,
                &raw mut value,
                &raw mut size,
            )
        };
        if code != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return None;
        }
        self.next += 1;
        // SAFETY: on success the name ends in a zero byte, and both lie in the message until it is destroyed.
        let name = unsafe { CStr::from_ptr(name) };
        let value = (!value.is_null()).then(|| {
            // SAFETY: as above; librdkafka gives the size with the pointer.
            unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) }
        });
        Some((name.to_string_lossy(), value))
    }
}
