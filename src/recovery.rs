//! The one way back after a failed write.
//!
//! State lives in memory, so an aborted transaction takes nothing from it: what the transaction had sent is kept in the
//! outbox and sent again in the next one. Its offsets are committed with it, so the effect is that of one commit. A
//! start and an assignment begin at the committed offsets with empty windows: what windows held that were open when the
//! service before ended is not carried over.

use crate::pipeline::{Aborted, Outbox, OutputTopic, SinkError, TransactionalSink};

/// How a failed write was made good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovered {
    /// Everything since the last commit has been sent again.
    Resent,
    /// Everything since the last commit is still to be sent.
    Undone,
    /// The broker had made the commit before its answer was lost.
    AlreadyCommitted,
}

/// What recovery remembers from one attempt to the next, until a commit succeeds.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// The transaction has to be undone before anything is sent.
    abort: bool,
    /// Which topic refused a message.
    refused: Option<OutputTopic>,
    /// The limits are to be read again before anything is sent.
    revise: bool,
}

impl Recovery {
    /// Notes what went wrong.
    ///
    /// # Errors
    /// What recovery cannot mend: the error itself if it is fatal, and a topic that refuses again what was made to fit.
    pub(crate) fn note(
        &mut self,
        error: SinkError,
        outbox: &Outbox,
        sink: &impl TransactionalSink,
    ) -> Result<(), String> {
        match error {
            SinkError::Fatal(cause) => return Err(cause),
            SinkError::Retry(_) => {}
            SinkError::Abort(_) | SinkError::NotAMember(_) => self.abort = true,
            SinkError::Refused { to, topic, cause } => {
                let largest = outbox.largest(to);
                let limit = sink.limits(to).max_message_bytes;
                if self.refused == Some(to) {
                    return Err(format!(
                        "topic `{topic}` refused the same records twice ({cause}); the largest has {largest} bytes, the \
                         topic's max.message.bytes is {limit}: raise it, or see the broker's log for the reason"
                    ));
                }
                tracing::warn!(
                    topic,
                    cause,
                    largest,
                    limit,
                    "a topic refused a message; reading its limits again"
                );
                self.refused = Some(to);
                self.abort = true;
                self.revise = true;
            }
        }
        Ok(())
    }

    /// Undoes what has to be undone, and sends nothing; to be repeated after an error, which is to be noted.
    pub(crate) fn undo(
        &mut self,
        outbox: &mut Outbox,
        sink: &mut impl TransactionalSink,
        sequence: u64,
    ) -> Result<Recovered, SinkError> {
        if self.abort {
            if sink.abort(sequence)? == Aborted::Committed {
                *self = Self::default();
                outbox.clear();
                return Ok(Recovered::AlreadyCommitted);
            }
            outbox.rewind();
            self.abort = false;
        }
        Ok(Recovered::Undone)
    }

    /// Undoes what has to be undone and sends everything again; to be repeated after an error, which is to be noted.
    ///
    /// `fit` makes a message fit the limits that were read again.
    pub(crate) fn attempt<K: TransactionalSink>(
        &mut self,
        outbox: &mut Outbox,
        sink: &mut K,
        sequence: u64,
        fit: impl FnMut(crate::pipeline::Message, &K) -> crate::pipeline::Message,
    ) -> Result<Recovered, SinkError> {
        if self.undo(outbox, sink, sequence)? == Recovered::AlreadyCommitted {
            return Ok(Recovered::AlreadyCommitted);
        }
        if self.revise {
            sink.refresh_limits()?;
            let mut fit = fit;
            outbox.revise(|message| fit(message, sink));
            self.revise = false;
        }
        outbox.send_rest(sink)?;
        Ok(Recovered::Resent)
    }

    /// A commit succeeded: what was refused before is in the past.
    pub(crate) fn committed(&mut self) {
        *self = Self::default();
    }
}
