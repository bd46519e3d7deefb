//! How far a partition reads ahead of the others.
//!
//! Results wait for the slowest partition anyway, so what is read far ahead of it only takes memory: such a partition is
//! paused until the watermark has come near (Flink: watermark alignment, FLIP-182 and FLIP-217).

use std::collections::BTreeSet;
use std::time::Duration;

use super::time::{EventTime, MonotonicTime, PartitionId};

/// What the source knows of the records in front of a partition.
///
/// ```
/// use tidegate::event_time::Unread;
///
/// assert_ne!(Unread::Some, Unread::None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// There are records to be read.
    Some,
    /// There are none: it is caught up.
    None,
    /// It is not known.
    Unknown,
    /// There are none, and none will be read any more: nobody waits for it.
    Ended,
}

/// A partition that is paused, and until when.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{EventTime, Paused};
///
/// let paused = Paused { ahead: Duration::from_mins(5), resumes_at: EventTime(60_000) };
/// assert_eq!(paused.resumes_at.behind(EventTime(61_000)), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// How far it is ahead of the watermark.
    pub ahead: Duration,
    /// The watermark at which it is read on.
    pub resumes_at: EventTime,
}

/// What a look at all partitions has changed.
///
/// ```
/// use tidegate::event_time::Aligned;
///
/// assert!(Aligned::default().paused.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aligned {
    /// To be read no further.
    pub paused: BTreeSet<PartitionId>,
    /// To be read on.
    pub resumed: BTreeSet<PartitionId>,
}

/// The event times that a partition has read lately, and whether it is paused.
///
/// The least of the last records tells where a partition stands, and not the greatest: so one early record pauses nobody.
/// It is kept for whole runs of [`RUN`] records, the last complete one and the one that is filling up: a comparison for
/// each record, and nothing to look through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadAhead {
    /// The least of all complete runs.
    least: EventTime,
    /// The least of the last complete run.
    complete: Option<EventTime>,
    /// The least of the run that is filling up, and how many records it lacks.
    filling: EventTime,
    left: u16,
    /// When it was last seen to be caught up.
    caught_up: Option<MonotonicTime>,
    pub(super) paused: Option<Paused>,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self {
            least: EventTime::MAX,
            complete: None,
            filling: EventTime::MAX,
            left: RUN,
            caught_up: None,
            paused: None,
        }
    }
}

impl ReadAhead {
    /// Takes in the time of an accepted record.
    pub(crate) fn on_event(&mut self, time: EventTime) {
        self.filling = self.filling.min(time);
        self.left -= 1;
        if self.left == 0 {
            self.least = self.least.min(self.filling);
            self.complete = Some(self.filling);
            self.filling = EventTime::MAX;
            self.left = RUN;
        }
    }

    /// The least event time of the last records; `None` before there were enough to tell.
    pub(crate) fn least_lately(&self) -> Option<EventTime> {
        self.complete.map(|complete| complete.min(self.filling))
    }

    /// The least event time read so far.
    pub(crate) fn least(&self) -> Option<EventTime> {
        Some(self.least.min(self.filling)).filter(|least| *least < EventTime::MAX)
    }

    /// Whether what is unread is a backlog: of a partition that is read as its records come there are always some that
    /// have come a moment ago.
    pub(crate) fn has_backlog(&mut self, unread: Unread, now: MonotonicTime) -> bool {
        if unread == Unread::None {
            self.caught_up = Some(now);
        }
        unread == Unread::Some && self.caught_up.is_none_or(|when| now.since(when) > A_MOMENT)
    }

    /// Decides anew, by where the partition stands and the watermark: paused beyond the drift, if it has a backlog, and read on
    /// at half of it. Whether that changed.
    pub(crate) fn look(
        &mut self,
        stands: Option<EventTime>,
        watermark: Option<EventTime>,
        has_backlog: bool,
        max_drift: Duration,
    ) -> bool {
        let before = self.paused;
        self.paused = stands.zip(watermark).and_then(|(stands, watermark)| {
            let ahead = watermark.behind(stands);
            let pauses = match before {
                Some(_) => ahead > max_drift / 2,
                None => has_backlog && ahead > max_drift,
            };
            pauses.then(|| Paused { ahead, resumes_at: stands - max_drift / 2 })
        });
        self.paused.is_some() != before.is_some()
    }
}

/// A partition that was caught up has a backlog once it has not been for longer than this. That it is caught up is known
/// about once a second.
const A_MOMENT: Duration = Duration::from_secs(3);

/// Where a partition stands is told by no fewer records than this.
pub(crate) const RUN: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_last_records_is_that_of_at_least_256() {
        let mut read = ReadAhead::default();
        assert_eq!((read.least_lately(), read.least()), (None, None));
        let mut greatest = 0;
        let mut up_to = |read: &mut ReadAhead, ms| {
            while greatest < ms {
                greatest += 1;
                read.on_event(EventTime(greatest));
            }
        };
        up_to(&mut read, 255);
        assert_eq!((read.least_lately(), read.least()), (None, Some(EventTime(1))));
        for (ms, least) in [(256, 1), (257, 1), (511, 1), (512, 257), (700, 257), (768, 513)] {
            up_to(&mut read, ms);
            assert_eq!(read.least_lately(), Some(EventTime(least)), "{ms}");
            assert_eq!(read.least(), Some(EventTime(1)));
        }
    }
}
