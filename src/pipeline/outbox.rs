//! What was sent since the last commit, kept so that an aborted transaction can be sent again.

use super::edge::{SinkError, TransactionalSink};
use super::message::{Message, OutputTopic};

/// Holds the messages of the open transaction.
///
/// While the state lives in memory alone it stays right when a transaction is aborted: only what was sent is lost,
/// and is sent again from here. Bounded by what one transaction holds.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: Vec<Message>,
    /// How many of them the sink has in its open transaction.
    sent: usize,
    /// How many there were when a commit could not be made.
    went_on_at: usize,
}

impl Outbox {
    /// Sends a message and keeps it; it is kept also if sending fails.
    pub(crate) fn send(
        &mut self,
        message: Message,
        sink: &mut impl TransactionalSink,
    ) -> Result<(), SinkError> {
        self.keep(message);
        self.send_rest(sink)
    }

    /// Keeps a message, to be sent with the rest.
    pub(crate) fn keep(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Sends what has not been sent since the last abort.
    pub(crate) fn send_rest(&mut self, sink: &mut impl TransactionalSink) -> Result<(), SinkError> {
        while let Some(message) = self.messages.get(self.sent) {
            sink.send(message)?;
            self.sent += 1;
        }
        Ok(())
    }

    /// After an abort: everything is to be sent again.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Passes all messages through a function, after an abort: those that a topic refused must change.
    pub(crate) fn revise(&mut self, mut revise: impl FnMut(Message) -> Message) {
        self.messages = std::mem::take(&mut self.messages).into_iter().map(&mut revise).collect();
    }

    /// After a commit, or when what was sent must not be sent again.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.sent = 0;
        self.went_on_at = 0;
    }

    /// The size of the largest message to a topic, in bytes.
    pub(crate) fn largest(&self, to: OutputTopic) -> usize {
        self.messages
            .iter()
            .filter(|message| message.to == to)
            .map(Message::size)
            .max()
            .unwrap_or(0)
    }

    /// Whether it holds as much as one transaction should.
    pub(crate) fn is_full(&self) -> bool {
        self.messages.len() - self.went_on_at >= MESSAGES_PER_TRANSACTION
    }

    /// Lets it grow by another transaction's worth, where a commit could not be made.
    pub(crate) fn go_on(&mut self) {
        self.went_on_at = self.messages.len();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// More than this is committed in several transactions; it bounds what is kept to be sent again.
const MESSAGES_PER_TRANSACTION: usize = 50_000;
