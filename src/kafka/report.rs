//! What a client reports of itself: in the metrics every time, in the log without a flood.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::OnError;
use crate::clock::Clock;
use crate::event_time::MonotonicTime;

/// Takes the reports of one client.
pub(super) struct Reports {
    clock: Clock,
    on_error: OnError,
    /// For each kind of line, when it was logged last and how often it has come since.
    logged: Mutex<BTreeMap<String, (MonotonicTime, u64)>>,
}

impl Reports {
    pub(super) fn new(clock: Clock, on_error: OnError) -> Self {
        Self { clock, on_error, logged: Mutex::default() }
    }

    /// Counts an error and logs it: while a broker is away, each attempt to reach it is one.
    pub(super) fn take(&self, error: &KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let name = code.map_or_else(|| error.to_string(), |code| format!("{code:?}"));
        (self.on_error)(&name, code == Some(RDKafkaErrorCode::Fatal));
        if let Some(repeated) = self.repeated(&name) {
            tracing::warn!(%error, reason, repeated, "the Kafka client reports");
        } else {
            tracing::debug!(%error, reason, "the Kafka client reports");
        }
    }

    /// Passes on a line that the client writes of itself.
    pub(super) fn line(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        let warns = matches!(
            level,
            RDKafkaLogLevel::Emerg
                | RDKafkaLogLevel::Alert
                | RDKafkaLogLevel::Critical
                | RDKafkaLogLevel::Error
                | RDKafkaLogLevel::Warning
        );
        if let Some(repeated) = warns.then(|| self.repeated(facility)).flatten() {
            tracing::warn!(target: "librdkafka", facility, repeated, "{line}");
        } else {
            tracing::debug!(target: "librdkafka", facility, "{line}");
        }
    }

    /// How often a line of this kind has come since one was logged; `None` if that was so lately that it is not to be
    /// logged again.
    fn repeated(&self, kind: &str) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let repeated = match logged.get_mut(kind) {
            Some((last, since)) if now.since(*last) < LOGGED_AT_MOST_EVERY => {
                *since += 1;
                return None;
            }
            Some((_, since)) => *since,
            None => 0,
        };
        logged.insert(kind.to_owned(), (now, 0));
        Some(repeated)
    }
}

/// A client of which nothing is wanted but its reports.
pub(super) struct Reported(pub(super) Reports);

impl ClientContext for Reported {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.0.line(level, facility, line);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.take(&error, reason);
    }
}

impl ConsumerContext for Reported {}

/// Lines of one kind are logged no more often.
const LOGGED_AT_MOST_EVERY: Duration = Duration::from_secs(30);
