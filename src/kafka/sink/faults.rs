//! What a failed call of the producer means for the caller.

#![expect(clippy::wildcard_enum_match_arm, reason = "librdkafka has two hundred error codes")]

use std::sync::PoisonError;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaError};
use rdkafka::producer::Producer;
use rdkafka::types::RDKafkaErrorCode;

use super::{Deliveries, KafkaSink, Life, TOLD_WITHIN};
use crate::kafka::MissingRight;
use crate::pipeline::SinkError;

impl Deliveries {
    /// Where a transaction fails before its messages are sent, only a line of the log names the topic.
    pub(super) fn look_at_line(&self, facility: &str, line: &str) {
        if facility == "ADDPARTS" && line.contains("Topic authorization failed") {
            let topic = line.split('"').nth(1).unwrap_or_default().to_owned();
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert((RDKafkaErrorCode::TopicAuthorizationFailed, topic));
        }
    }
}

impl KafkaSink {
    /// What a failed call means for the caller.
    pub(super) fn classify(&mut self, error: &KafkaError) -> SinkError {
        // A refused message fails the transaction before a poll has told of the message.
        let requires_abort = matches!(error, KafkaError::Transaction(e) if e.txn_requires_abort());
        let began = self.clock.monotonic();
        self.producer.poll(Duration::ZERO);
        while requires_abort
            && self.producer.context().first_failure().is_none()
            && self.producer.in_flight_count() > 0
            && self.clock.monotonic().since(began) < TOLD_WITHIN
        {
            self.producer.poll(Duration::from_millis(1));
        }
        self.refusal().unwrap_or_else(|| self.judge(error))
    }

    /// The same where messages are of no account, since they are undone.
    pub(super) fn judge(&mut self, error: &KafkaError) -> SinkError {
        match error {
            KafkaError::Transaction(error) => self.classify_transaction(error),
            KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut) => {
                SinkError::Retry("the brokers have not taken everything yet".to_owned())
            }
            _ => match self.producer.client().fatal_error() {
                Some((code, reason)) => self.fatal(code, &reason),
                None => SinkError::Abort(error.to_string()),
            },
        }
    }

    fn classify_transaction(&mut self, error: &RDKafkaError) -> SinkError {
        let cause = format!("{} ({})", error.string(), error.name());
        match error.code() {
            RDKafkaErrorCode::TransactionalIdAuthorizationFailed => {
                let id = &self.clients.transactional_id;
                SinkError::Fatal(MissingRight::transactional_id(id).to_string())
            }
            RDKafkaErrorCode::GroupAuthorizationFailed => {
                SinkError::Fatal(MissingRight::group(&self.clients.group_id).to_string())
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                let names: Vec<_> = self.topics.values().map(String::as_str).collect();
                SinkError::Fatal(MissingRight::topic("Write", names.join("`, `")).to_string())
            }
            code if error.is_fatal() => self.fatal(code, &cause),
            RDKafkaErrorCode::UnknownMemberId
            | RDKafkaErrorCode::IllegalGeneration
            | RDKafkaErrorCode::FencedInstanceId
            | RDKafkaErrorCode::RebalanceInProgress
            | RDKafkaErrorCode::StaleMemberEpoch => SinkError::NotAMember(cause),
            _ if error.txn_requires_abort() => SinkError::Abort(cause),
            _ if error.is_retriable() => SinkError::Retry(cause),
            _ => self.break_down(cause),
        }
    }

    /// A topic that refuses a message for good, or that may not be written.
    pub(super) fn refusal(&self) -> Option<SinkError> {
        let (code, topic) = self.producer.context().first_failure()?;
        let cause = code.to_string();
        match code {
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidTimestamp
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::MessageBatchTooLarge => {
                let to = self.topics.iter().find(|(_, name)| **name == topic).map(|(to, _)| *to)?;
                Some(SinkError::Refused { to, topic, cause })
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                Some(SinkError::Fatal(MissingRight::topic("Write", topic).to_string()))
            }
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition => {
                Some(SinkError::Fatal(format!("topic `{topic}` does not exist any more: {cause}")))
            }
            _ => None,
        }
    }

    /// The producer and the brokers do not agree any more what the transaction is: a new one begins where the brokers say.
    pub(super) fn break_down(&mut self, cause: String) -> SinkError {
        if self.made_anew >= MADE_ANEW_AT_MOST {
            let times = self.made_anew;
            return SinkError::Fatal(format!(
                "{cause}; a new producer met the same {times} times, and nothing was committed"
            ));
        }
        self.life = Life::Broken;
        self.rebuild = true;
        SinkError::Abort(cause)
    }

    /// A producer that can do nothing more. That another one has taken its transactional id may be its own doing: an answer
    /// of the coordinator that is lost with a broker leaves the client with an epoch that is not the last, and so does a
    /// transaction that outlasts its timeout. So it is made anew, unless there really is somebody else.
    fn fatal(&mut self, code: RDKafkaErrorCode, reason: &str) -> SinkError {
        match code {
            RDKafkaErrorCode::FencedInstanceId
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
            | RDKafkaErrorCode::UnsupportedForMessageFormat
            | RDKafkaErrorCode::UnsupportedVersion
            | RDKafkaErrorCode::UnsupportedFeature => SinkError::Fatal(reason.to_owned()),
            _ if self.timed_out() => {
                self.break_down(format!("the transaction outlasted its timeout: {reason}"))
            }
            _ => self.break_down(reason.to_owned()),
        }
    }
}

/// So often, with nothing committed in between, is a producer made anew: what a broker's fault has broken, one or two mend.
const MADE_ANEW_AT_MOST: u32 = 8;
