//! Deletes what a changelog partition no longer needs.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdkafka::admin::AdminOptions;
use rdkafka::error::KafkaResult;
use rdkafka::producer::Producer;
use rdkafka::{Offset, TopicPartitionList};

use super::KafkaSink;
use crate::event_time::MonotonicTime;
use crate::kafka::client::{Admin, REQUEST_TIMEOUT};
use crate::kafka::ending::EndsAside;

/// By topic and partition, the offset before which nothing is needed any more.
pub(super) type Superseding = BTreeMap<(String, i32), i64>;

type Answer = Pin<Box<dyn Future<Output = KafkaResult<TopicPartitionList>> + Send>>;

/// Requests to delete records (`DeleteRecords`) that nobody waits for: what one of them does not delete, the next one
/// does.
pub(super) struct Trim {
    /// The broker deletes records when asked.
    enabled: bool,
    admin: Option<EndsAside<Admin>>,
    answers: Vec<Answer>,
    /// What may go, since the last request.
    due: Superseding,
    asked: Option<MonotonicTime>,
    warned: bool,
}

impl fmt::Debug for Trim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trim").field("open", &self.answers.len()).finish_non_exhaustive()
    }
}

impl KafkaSink {
    /// After a commit: what was superseded by it may go.
    pub(super) fn trim_changelog(&mut self) {
        let superseding = self.producer.context().take_superseding();
        self.trim.look_at_answers();
        if !self.trim.enabled {
            return;
        }
        self.trim.due.extend(superseding);
        let now = self.clock.monotonic();
        let lately = self.trim.asked.is_some_and(|asked| now.since(asked) < AT_MOST_EVERY);
        if lately || self.trim.due.is_empty() {
            return;
        }
        self.trim.asked = Some(now);
        let superseding = std::mem::take(&mut self.trim.due);
        if self.trim.admin.is_none() {
            self.trim.admin = self.clients.admin().ok();
        }
        let Some(admin) = &self.trim.admin else { return };
        let mut list = TopicPartitionList::new();
        for ((topic, partition), offset) in &superseding {
            if let Err(error) =
                list.add_partition_offset(topic, *partition, Offset::Offset(*offset))
            {
                tracing::debug!(%error, "an offset that is none");
            }
        }
        let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
        self.trim.answers.push(Box::pin(admin.delete_records(&list, &options)));
    }
}

/// A shard that is nearly empty supersedes all before it with each commit.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

impl Trim {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            admin: None,
            answers: Vec::new(),
            due: Superseding::new(),
            asked: None,
            warned: false,
        }
    }

    fn look_at_answers(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut failure = None;
        self.answers.retain_mut(|answer| match answer.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(Ok(list)) => {
                let failed = list.elements().iter().find_map(|element| {
                    element.error().err().map(|error| (element.topic().to_owned(), error))
                });
                failure = failure.take().or(failed);
                false
            }
            Poll::Ready(Err(error)) => {
                failure = Some((String::new(), error));
                false
            }
        });
        if let Some((topic, error)) = failure
            && !self.warned
        {
            self.warned = true;
            tracing::warn!(
                topic,
                %error,
                "the changelog's old records cannot be deleted (operation Delete on the topic), so it is kept short by \
                 compaction alone"
            );
        }
    }
}
