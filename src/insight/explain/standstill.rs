//! A watermark that stands still although records flow, for the log.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Cause, Explanation, Question, Terms, explain};
use crate::event_time::{EventTime, MonotonicTime, Now};
use crate::insight::{Overview, Snapshot};

/// Finds watermarks that have stood still for longer than expected while records flow, and says so once a minute for
/// each cause and holder.
///
/// Expected is at most the longest idle timeout and three emit intervals, which a partition that falls silent costs, and
/// never less than [`Standstill::LEAST`]. Records flow if some were read, or are there to be read, within that time: where
/// everything is idle in peace nothing is said.
#[derive(Clone, Debug, Default)]
pub struct Standstill {
    seen: BTreeMap<u16, Seen>,
    said: BTreeMap<(Cause, Option<(String, i32)>), MonotonicTime>,
}

#[derive(Clone, Debug)]
struct Seen {
    watermark: Option<EventTime>,
    since: MonotonicTime,
    records: u64,
    flowed: Option<MonotonicTime>,
}

impl Standstill {
    /// A watermark may always stand still for this long.
    pub const LEAST: Duration = Duration::from_secs(10);
    /// The same is said no more often.
    pub const AT_MOST_EVERY: Duration = Duration::from_mins(1);

    /// For how long a watermark may stand still while records flow.
    pub fn expected(terms: &Terms) -> Duration {
        let longest = terms.sources.iter().filter_map(|source| source.idle_timeout).max();
        (longest.unwrap_or_default() + terms.emit_interval * 3).max(Self::LEAST)
    }

    /// Looks at the snapshots; what is to be logged now, and for how long the watermark has stood.
    pub fn look(
        &mut self,
        overview: &Overview,
        terms: &Terms,
        now: Now,
    ) -> Option<(Explanation, Duration)> {
        let expected = Self::expected(terms);
        let stood = overview
            .subtasks()
            .filter_map(|(number, snapshot)| self.stands(number, snapshot, expected, now.monotonic))
            .max()?;
        let explanation = explain(overview, terms, &Question::Next, now).ok()?;
        let holder = explanation.holder.as_ref();
        let kind =
            (explanation.cause?, holder.map(|holder| (holder.topic.clone(), holder.partition)));
        let lately = |said: &MonotonicTime| now.monotonic.since(*said) < Self::AT_MOST_EVERY;
        if self.said.get(&kind).is_some_and(lately) {
            return None;
        }
        self.said.retain(|_, said| lately(said));
        self.said.insert(kind, now.monotonic);
        Some((explanation, stood))
    }

    /// For how long a subtask's watermark has stood still, if that is too long and records flow.
    fn stands(
        &mut self,
        number: u16,
        snapshot: &Snapshot,
        expected: Duration,
        now: MonotonicTime,
    ) -> Option<Duration> {
        let records = snapshot.partitions.iter().map(|partition| partition.history.records).sum();
        let to_read = snapshot.partitions.iter().any(|partition| partition.lag() > Some(0));
        let watermark = snapshot.watermark;
        let seen = self.seen.entry(number).or_insert(Seen {
            watermark,
            since: now,
            records,
            flowed: None,
        });
        if seen.watermark != watermark || snapshot.partitions.is_empty() {
            *seen = Seen { watermark, since: now, records, flowed: None };
        }
        if records > seen.records || to_read {
            seen.flowed = Some(now);
        }
        seen.records = records;
        let stood = now.since(seen.since);
        let flows = seen.flowed.is_some_and(|flowed| now.since(flowed) < expected);
        (stood > expected && flows).then_some(stood)
    }
}
