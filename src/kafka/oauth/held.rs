//! Clients that are handed tokens as long as they live.

#![expect(
    unsafe_code,
    reason = "rdkafka sets a token only where a client polls, and without extensions"
)]

use std::ffi::{CStr, CString, c_char};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::admin::AdminClient;
use rdkafka::bindings::{rd_kafka_oauthbearer_set_token, rd_kafka_t};
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::producer::{BaseProducer, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaRespErr;

use super::{Token, Tokens};
use crate::config::OAuth;

/// A client, and where the tokens find it.
pub(in crate::kafka) struct Held<C> {
    // It ends first: the order of the fields is that of their ends.
    _registration: Option<Registration>,
    client: C,
}

impl<C: Native> Held<C> {
    /// Needs no tokens where there are none.
    pub(in crate::kafka) fn new(client: C, tokens: Option<&Arc<Tokens>>) -> Self {
        let registration = tokens.map(|tokens| {
            let slot = Arc::new(Slot(Mutex::new(NonNull::new(client.native()).map(Pointer))));
            tokens.register(&slot);
            Registration { slot, _tokens: Arc::clone(tokens) }
        });
        Self { _registration: registration, client }
    }
}

impl<C> Deref for Held<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.client
    }
}

/// A client of rdkafka.
pub(in crate::kafka) trait Native {
    /// librdkafka's own, for as long as this one lives.
    fn native(&self) -> *mut rd_kafka_t;
}

impl<C: ConsumerContext> Native for BaseConsumer<C> {
    fn native(&self) -> *mut rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ProducerContext> Native for BaseProducer<C> {
    fn native(&self) -> *mut rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ClientContext> Native for AdminClient<C> {
    fn native(&self) -> *mut rd_kafka_t {
        self.inner().native_ptr()
    }
}

/// While it lives, its client does. Its end waits for a token that is being handed over.
struct Registration {
    slot: Arc<Slot>,
    _tokens: Arc<Tokens>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        *self.slot.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Where a client is; nowhere after its end.
pub(super) struct Slot(Mutex<Option<Pointer>>);

struct Pointer(NonNull<rd_kafka_t>);

// SAFETY: librdkafka's handles may be used by any thread.
unsafe impl Send for Pointer {}

impl Slot {
    /// What librdkafka has against the token; the client is not told anything then.
    pub(super) fn hand_over(&self, token: &Token, settings: &OAuth) -> Result<(), String> {
        let zero = |_| "the token has a zero byte in it".to_owned();
        let value = CString::new(token.value.as_str()).map_err(zero)?;
        let principal = CString::new(settings.client_id.as_str()).map_err(zero)?;
        let texts = settings.extensions.iter().flat_map(|(name, value)| [name, value]);
        let texts: Result<Vec<_>, _> = texts.map(|text| CString::new(text.as_str())).collect();
        let texts = texts.map_err(zero)?;
        let mut extensions: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        let mut said: [c_char; 512] = [0; 512];
        let client = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Pointer(client)) = &*client else { return Ok(()) };
        // SAFETY: the client is there, since its registration is, whose end would wait for the lock. librdkafka copies all
        // texts, and writes at most the given number of bytes, the last of which is zero.
        let (code, said) = unsafe {
            let code = rd_kafka_oauthbearer_set_token(
                client.as_ptr(),
                value.as_ptr(),
                token.expires,
                principal.as_ptr(),
                extensions.as_mut_ptr(),
                extensions.len(),
                said.as_mut_ptr(),
                said.len(),
            );
            (code, CStr::from_ptr(said.as_ptr()).to_string_lossy())
        };
        if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Ok(());
        }
        // It may quote the token.
        let said = said.replace(&token.value, "***");
        Err(format!("the Kafka client does not take the token: {said}"))
    }
}
