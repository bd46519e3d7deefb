//! Why one partition's watermark is where it is.

use std::time::Duration;

use super::{Cause, Numbers, Terms, ms};
use crate::event_time::{AllIdle, EventTime, MonotonicTime, Now, WatermarkStatus};
use crate::insight::{PartitionSnapshot, Snapshot, words};

/// What is to be said of a partition that holds.
pub(super) struct Holding {
    pub(super) cause: Cause,
    /// A clause that begins with the partition.
    pub(super) because: String,
    pub(super) fires_when: String,
    pub(super) earliest: Option<EventTime>,
}

/// A partition below the watermark that a window needs.
pub(super) struct Holder<'a> {
    pub(super) partition: &'a PartitionSnapshot,
    pub(super) snapshot: &'a Snapshot,
    pub(super) terms: &'a Terms,
    pub(super) now: Now,
    /// When the snapshot was taken.
    pub(super) taken: MonotonicTime,
    /// The watermark at which the window fires; `None`: any.
    pub(super) needed: Option<EventTime>,
}

impl Holder<'_> {
    pub(super) fn cause(&self) -> Cause {
        let (partition, history) = (self.partition, &self.partition.history);
        if partition.paused.is_some() {
            return Cause::PausedByAlignment;
        }
        let refused = history.refused_in_row;
        if refused > 0 && (history.accepted == 0 || refused >= MANY_REFUSED) {
            return Cause::AllRefused;
        }
        if history.accepted == 0 && history.records == 0 {
            let silence = self.silence();
            return if silence == Cause::Silent { Cause::NoData } else { silence };
        }
        if self.generator_stands() {
            return Cause::GeneratorNotAdvanced;
        }
        if partition.watermark.is_some() && partition.watermark < self.snapshot.watermark {
            return Cause::BackFromIdle;
        }
        let old = partition.max_event_time.is_none_or(|newest| newest.behind(self.now.wall) > OLD);
        if old && self.unread() > self.read_lately() {
            return Cause::Behind;
        }
        if self.silent_for() > A_WHILE { self.silence() } else { Cause::EventTimeSlow }
    }

    /// What a partition is from which nothing comes.
    fn silence(&self) -> Cause {
        if self.partition.caught_up {
            Cause::Silent
        } else if self.unread() > 0 {
            Cause::Behind
        } else {
            Cause::SilentWithoutEvidence
        }
    }

    /// Records that could be read: those behind the beginning of an open transaction cannot.
    fn unread(&self) -> u64 {
        let end = self.partition.last_stable_offset.or(self.partition.end_offset);
        let unread = end.zip(self.partition.position).map(|(end, position)| end - position);
        unread.and_then(|unread| u64::try_from(unread).ok()).unwrap_or(0)
    }

    /// Offsets that an open transaction hides.
    fn unstable(&self) -> Option<u64> {
        let (stable, end) = self.partition.last_stable_offset.zip(self.partition.end_offset)?;
        u64::try_from(end - stable).ok().filter(|hidden| *hidden > 0)
    }

    fn silent_for(&self) -> Duration {
        let history = &self.partition.history;
        self.taken.since(history.last_record.unwrap_or(history.since))
    }

    /// Where no more than this is unread, it is read in a moment.
    fn read_lately(&self) -> u64 {
        let history = &self.partition.history;
        history.records_lately.unwrap_or(history.records)
    }

    /// Its records would have raised the watermark far enough by their times alone.
    fn generator_stands(&self) -> bool {
        let (partition, history) = (self.partition, &self.partition.history);
        if history.accepted_since_rise == 0 {
            return false;
        }
        let Some(newest) = partition.max_event_time else { return false };
        let grown = partition.bound > history.bound_at_rise;
        match self.terms.source(partition.id).strategy.as_str() {
            "bounded_out_of_orderness" | "ascending" => false,
            "adaptive" if !grown => false,
            "adaptive" => self
                .needed
                .is_none_or(|needed| newest - history.bound_at_rise.unwrap_or_default() > needed),
            _ => partition.watermark.is_none() || self.needed.is_none_or(|needed| newest > needed),
        }
    }

    /// The event time that a record needs, where the watermark follows event time by a bound.
    fn needed_event_time(&self) -> Option<EventTime> {
        Some(self.needed? + Duration::from_millis(1) + self.partition.bound?)
    }

    pub(super) fn numbers(&self) -> Numbers {
        let (partition, history) = (self.partition, &self.partition.history);
        Numbers {
            max_event_time: partition.max_event_time.map(|time| time.0),
            needed_event_time: self.needed_event_time().map(|time| time.0),
            bound_ms: partition.bound.map(ms),
            bound_at_rise_ms: history.bound_at_rise.map(ms),
            assigned_for_ms: Some(ms(self.now.monotonic.since(history.since))),
            silent_for_ms: Some(ms(self.silent_for())),
            idle_in_ms: partition.idle_in.map(ms),
            lag: partition.lag(),
            unstable_offsets: self.unstable(),
            accepted: Some(history.accepted),
            accepted_since_rise: Some(history.accepted_since_rise),
            refused_in_row: Some(history.refused_in_row).filter(|refused| *refused > 0),
            reason: history.last_refusal.as_ref().map(|(reason, _)| reason.name()),
            ..Numbers::default()
        }
    }

    pub(super) fn holding(&self) -> Holding {
        let cause = self.cause();
        let name = words::partition(self.partition.id, &self.terms.topics);
        let because = format!("{name} {}", self.because(cause));
        let waits = !matches!(cause, Cause::AllRefused | Cause::SilentWithoutEvidence);
        let needed = self.needed_event_time();
        let earliest = needed.filter(|_| waits).map(|needed| needed.max(self.now.wall));
        let record = self.what_raises(cause);
        let silent = matches!(cause, Cause::NoData | Cause::Silent);
        let (mut fires_when, mut earliest) = (record, earliest);
        if let Some(left) = self.partition.idle_in.filter(|_| silent) {
            if self.idle_helps() {
                fires_when = format!(
                    "{fires_when}, or when the partition falls idle in {}",
                    words::countdown(left)
                );
                let at = self.now.wall + left;
                earliest = Some(earliest.map_or(at, |record| record.min(at)));
            } else {
                fires_when = format!(
                    "{fires_when}; falling idle in {} does not help alone, since no other partition that \
                     stays active is past the window",
                    words::countdown(left)
                );
            }
        }
        Holding { cause, because, fires_when, earliest }
    }

    /// Whether the others, or the policy, would fire the window once this partition is idle.
    fn idle_helps(&self) -> bool {
        let past = |watermark: Option<EventTime>| watermark.is_some() && watermark >= self.needed;
        // One that is idle by then, as far as is known, cannot fire it any more.
        let stays = |other: &PartitionSnapshot| {
            other.idle_in.is_none_or(|left| Some(left) > self.partition.idle_in)
        };
        let mut others = self.snapshot.partitions.iter().filter(|other| {
            other.id != self.partition.id && other.status == WatermarkStatus::Active && stays(other)
        });
        match self.terms.all_idle {
            AllIdle::Hold => others.any(|other| past(other.watermark)),
            AllIdle::Flush => self.snapshot.partitions.iter().any(|other| past(other.watermark)),
            AllIdle::WallClock => true,
        }
    }

    fn because(&self, cause: Cause) -> String {
        let (partition, history) = (self.partition, &self.partition.history);
        let newest = partition.max_event_time.map_or_else(
            || "no event time yet".to_owned(),
            |newest| format!("newest event {}", words::time(newest, self.now.wall)),
        );
        let silent = words::span(self.silent_for());
        match cause {
            Cause::NoData => format!(
                "has brought no record since it was assigned {} ago ({})",
                words::span(self.now.monotonic.since(history.since)),
                self.idle()
            ),
            Cause::Silent => {
                format!("is caught up and has been silent for {silent} ({newest}, {})", self.idle())
            }
            Cause::SilentWithoutEvidence => match self.unstable() {
                Some(hidden) => format!(
                    "has been silent for {silent}, and a producer's open transaction hides {} in front of it, so it \
                     does not count as idle",
                    words::counted(hidden, "offset")
                ),
                None => format!(
                    "has been silent for {silent} without evidence that nothing is in front of it (its broker has \
                     not answered lately), so it does not count as idle"
                ),
            },
            Cause::Behind => {
                format!(
                    "is behind by {} not read yet ({newest})",
                    words::counted(self.unread(), "record")
                )
            }
            Cause::PausedByAlignment => partition.paused.map_or_else(String::new, |paused| {
                format!(
                    "is paused, since it is {} ahead of the watermark, and read on when that is {}",
                    words::span(paused.ahead),
                    words::time(paused.resumes_at, self.now.wall)
                )
            }),
            Cause::BackFromIdle => format!(
                "is back from idle, or came in, below the watermark (its own is {}, {newest}, {})",
                partition.watermark.map_or_else(String::new, |own| words::time(own, self.now.wall)),
                self.idle()
            ),
            Cause::GeneratorNotAdvanced => self.generator(),
            Cause::AllRefused => {
                let (reason, detail) = history
                    .last_refusal
                    .as_ref()
                    .map_or(("", ""), |(reason, detail)| (reason.name(), detail.as_str()));
                let refused = words::counted(history.refused_in_row, "record");
                format!("has had its last {refused} refused as dead letters ({reason}: {detail})")
            }
            Cause::EventTimeSlow
            | Cause::OutputBlocked
            | Cause::BrokersUnreachable
            | Cause::LoopNotTicking
            | Cause::AllIdle
            | Cause::Restoring
            | Cause::NotAssigned
            | Cause::Stopping => match self.needed_event_time().zip(partition.max_event_time) {
                Some((needed, newest)) => format!(
                    "has event time {}, {} short of what is needed",
                    words::time(newest, self.now.wall),
                    words::span(newest.behind(needed))
                ),
                None => format!("has not brought a high enough watermark ({newest})"),
            },
        }
    }

    fn idle(&self) -> String {
        self.partition.idle_in.map_or_else(
            || "never idle, since it has no idle timeout".to_owned(),
            |left| format!("idle in {} if nothing comes", words::countdown(left)),
        )
    }

    fn generator(&self) -> String {
        let (partition, history) = (self.partition, &self.partition.history);
        let accepted = words::counted(history.accepted_since_rise, "record");
        let since = if partition.watermark.is_some() { "last rose" } else { "was to begin" };
        let why = match (self.terms.source(partition.id).strategy.as_str(), partition.bound) {
            ("punctuated", _) => "none carried a marker that raises it".to_owned(),
            ("adaptive", Some(bound)) => format!(
                "its adaptive bound grew from {} to {}",
                words::span(history.bound_at_rise.unwrap_or_default()),
                words::span(bound)
            ),
            (name, _) => format!("the strategy `{name}` has not raised it"),
        };
        format!("has brought {accepted} since its watermark {since}, and {why}")
    }

    /// The record that would raise its watermark far enough.
    fn what_raises(&self, cause: Cause) -> String {
        let topic = words::partition(self.partition.id, &self.terms.topics);
        let record = match (self.needed_event_time(), self.needed) {
            (Some(time), _) => {
                format!("a record of event time {} or later", words::time(time, self.now.wall))
            }
            (None, Some(needed)) => {
                format!(
                    "a record that raises the watermark to {}",
                    words::time(needed, self.now.wall)
                )
            }
            (None, None) => "a record that brings a watermark".to_owned(),
        };
        if cause == Cause::AllRefused {
            format!("{record} is accepted from {topic}")
        } else if matches!(cause, Cause::Behind | Cause::PausedByAlignment) {
            format!("{record} has been read from {topic}")
        } else if cause == Cause::SilentWithoutEvidence && self.unstable().is_some() {
            format!("the transaction ends, and {record} comes in {topic} or it falls idle")
        } else {
            format!("{record} comes in {topic}")
        }
    }
}

/// So many refused records in a row are no accident.
const MANY_REFUSED: u64 = 20;

/// Without a record for longer than this a partition is called silent.
const A_WHILE: Duration = Duration::from_secs(2);

/// With more unread than can be read in a moment, and its newest event older than this, a partition is called behind.
const OLD: Duration = Duration::from_secs(5);
