//! Why a window has or has not fired.
//!
//! [`explain`] is a function of what the loops publish anyway, so asking costs them nothing. It names the window, the
//! partition that holds the watermark, the [`Cause`] out of a closed list, the numbers behind it, what will make the
//! window fire, and when at the earliest.

mod answer;
mod cause;
mod holder;
mod question;
mod standstill;
mod subtask;

use std::time::Duration;

pub use answer::{Explanation, Numbers, Partition, Window, WindowState};
pub use cause::Cause;
pub use question::{Question, QuestionError};
pub use standstill::Standstill;

use super::{Overview, Phase, Snapshot};
use crate::config::Config;
use crate::event_time::{AllIdle, EventTime, Now, PartitionId, TimeWindow, TumblingWindows};
use subtask::Asked;

/// What of the configuration an explanation needs.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The topics, by number.
    pub topics: Vec<String>,
    /// How each is read.
    pub sources: Vec<SourceTerms>,
    /// The windows.
    pub windows: TumblingWindows,
    /// How long a window takes late records.
    pub allowed_lateness: Duration,
    /// The policy for silence everywhere.
    pub all_idle: AllIdle,
    /// How often watermarks are emitted.
    pub emit_interval: Duration,
}

/// How a topic is read.
#[derive(Clone, Debug, Default)]
pub struct SourceTerms {
    /// The watermark strategy's name.
    pub strategy: String,
    /// The longest silence after which one of its partitions is idle.
    pub idle_timeout: Option<Duration>,
}

impl From<&Config> for Terms {
    fn from(config: &Config) -> Self {
        let terms = |source: &crate::config::Source| SourceTerms {
            strategy: source.strategy.name().to_owned(),
            idle_timeout: source
                .partitions
                .values()
                .map(|terms| terms.idle_timeout)
                .chain([source.idle_timeout])
                .max()
                .flatten(),
        };
        Self {
            topics: config.sources.iter().map(|source| source.topic.clone()).collect(),
            sources: config.sources.iter().map(terms).collect(),
            windows: config.windows,
            allowed_lateness: config.allowed_lateness,
            all_idle: config.all_idle,
            emit_interval: config.emit_interval,
        }
    }
}

impl Terms {
    fn source(&self, id: PartitionId) -> SourceTerms {
        self.sources.get(usize::from(id.topic)).cloned().unwrap_or_default()
    }
}

/// Answers why a window has or has not fired; of several subtasks it tells of the one that the window waits for longest.
///
/// # Errors
/// If the question names no window.
pub fn explain(
    overview: &Overview,
    terms: &Terms,
    question: &Question,
    now: Now,
) -> Result<Explanation, QuestionError> {
    let named = question.window(terms.windows)?;
    let window = named.or_else(|| next_to_fire(overview, terms));
    let subtasks: Vec<_> = overview.subtasks().collect();
    let reads = |snapshot: &Snapshot| {
        !snapshot.partitions.is_empty()
            || !snapshot.restoring.is_empty()
            || !matches!(snapshot.phase, Phase::Running)
    };
    let any_reads = subtasks.iter().any(|(_, snapshot)| reads(snapshot));
    let asked = subtasks
        .iter()
        .filter(|(_, snapshot)| !any_reads || reads(snapshot))
        .map(|(number, snapshot)| Asked {
            number: *number,
            snapshot,
            committing_since: overview.committing_since(*number),
            terms,
            window,
            now,
        })
        .min_by_key(Asked::headway);
    let mut explanation = asked.map_or_else(Explanation::nothing, |asked| asked.explain());
    if let (all @ 2.., Some(_)) = (subtasks.len(), explanation.cause) {
        explanation.sentence =
            format!("Subtask {} of {all}: {}", explanation.subtask, explanation.sentence);
    }
    if let Question::KeyAndTime(key, _) = question {
        explanation.key = Some(key.clone());
    }
    Ok(explanation)
}

/// The first window that holds records and has not fired everywhere, or else the one that the watermark passes next.
fn next_to_fire(overview: &Overview, terms: &Terms) -> Option<TimeWindow> {
    let passed = |snapshot: &Snapshot, window: &TimeWindow| {
        snapshot.least_clock.is_some_and(|clock| window.max_timestamp() <= clock)
    };
    let first = |snapshot: &Snapshot| {
        snapshot.open.iter().find(|window| !passed(snapshot, window)).copied()
    };
    let open = overview.subtasks().filter_map(|(_, snapshot)| first(snapshot)).min();
    open.or_else(|| {
        let watermark = overview.watermark()?;
        terms.windows.assign(EventTime(watermark.0.checked_add(1)?))
    })
}

impl Explanation {
    fn nothing() -> Self {
        Self {
            sentence: String::new(),
            window: None,
            state: WindowState::Empty,
            key: None,
            cause: None,
            subtask: 0,
            holder: None,
            holders: 0,
            waiting_for: Vec::new(),
            watermark: None,
            needed_watermark: None,
            fires_when: None,
            earliest: None,
            numbers: Numbers::default(),
        }
    }
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
