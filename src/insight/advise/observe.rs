//! What is seen of the records of partitions, in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::pauses::Pauses;
use super::sketch::Sketch;
use crate::codec::{Reason, Refusal};
use crate::event_time::{
    EventTime, LateCause, Lateness, MonotonicTime, PartitionId, TumblingWindows,
};

/// A record that was accepted, as far as advice goes.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its offset; records that come again are not counted again.
    pub offset: i64,
    /// When it happened.
    pub event_time: EventTime,
    /// When it came: its Kafka timestamp, the producer's or the broker's by the topic's `message.timestamp.type`.
    pub arrival: Option<EventTime>,
    /// How it was late, if it was.
    pub late: Option<&'a Lateness>,
}

/// What was seen of one partition.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Records accepted.
    pub records: u64,
    /// How far each was behind the greatest event time before it, 0 if it was not, in ms.
    pub out_of_orderness: Sketch,
    /// The least bound with which each would not have been late, given the windows and the allowed lateness, in ms.
    pub needed_bound: Sketch,
    /// Time between the arrivals of two records, in ms.
    pub gaps: Sketch,
    /// The same by size.
    pub pauses: Pauses,
    /// Arrival - event time of the records that were not behind another one, 0 if that is negative, in ms; beyond
    /// [`Observed::SAMPLED_FROM`] records one in [`Observed::SAMPLED`] counts.
    pub transport: Sketch,
    /// Records whose event time is more than [`Observed::AHEAD`] past their arrival.
    pub ahead: u64,
    /// The most that one was ahead.
    pub ahead_most: Duration,
    /// Records that were late, by cause.
    pub late: [u64; LateCause::ALL.len()],
    /// How far behind the watermark those were that were late after their partition had been idle, in ms.
    pub after_idle: Sketch,
    /// Records that could not be used: how many, and what was said of the first.
    pub refused: BTreeMap<Reason, (u64, String)>,
    /// The greatest event time.
    pub max_event_time: Option<EventTime>,
    /// The first arrival.
    pub first_arrival: Option<EventTime>,
    /// The newest arrival.
    pub last_arrival: Option<EventTime>,
}

impl Observed {
    /// An event time is ahead of its arrival from here on.
    pub const AHEAD: Duration = Duration::from_secs(1);
    /// The transport of so many records is always taken.
    pub const SAMPLED_FROM: u64 = 1_024;
    /// Beyond them, that of one in so many.
    pub const SAMPLED: u64 = 16;

    /// Takes in what was seen later.
    pub fn merge(&mut self, later: &Self) {
        self.records += later.records;
        self.out_of_orderness.merge(&later.out_of_orderness);
        self.needed_bound.merge(&later.needed_bound);
        self.gaps.merge(&later.gaps);
        self.pauses.merge(&later.pauses);
        self.transport.merge(&later.transport);
        self.ahead += later.ahead;
        self.ahead_most = self.ahead_most.max(later.ahead_most);
        for (count, more) in self.late.iter_mut().zip(later.late) {
            *count += more;
        }
        self.after_idle.merge(&later.after_idle);
        for (reason, (count, detail)) in &later.refused {
            let held = self.refused.entry(*reason).or_insert_with(|| (0, detail.clone()));
            held.0 += count;
        }
        self.max_event_time = self.max_event_time.max(later.max_event_time);
        let arrivals = [self.first_arrival, later.first_arrival];
        self.first_arrival = arrivals.into_iter().flatten().min();
        self.last_arrival = self.last_arrival.max(later.last_arrival);
    }

    /// Records that could not be used.
    pub fn refused_count(&self) -> u64 {
        self.refused.values().map(|(count, _)| count).sum()
    }

    /// About how much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let sketches = [
            &self.out_of_orderness,
            &self.needed_bound,
            &self.gaps,
            &self.transport,
            &self.after_idle,
        ];
        let bins: usize = sketches.map(|sketch| sketch.bytes() - size_of::<Sketch>()).iter().sum();
        let said: usize = self.refused.values().map(|(_, detail)| detail.capacity() + 64).sum();
        size_of::<Self>() + bins + said
    }
}

/// What is seen of the partitions of one reader.
///
/// It keeps three half hours, the running one included, and forgets the oldest when a new one begins: an answer is about
/// the last 60 to 90 minutes, or about everything where no time is handed in.
#[derive(Clone, Debug)]
pub struct Observations {
    windows: TumblingWindows,
    allowed_lateness: Duration,
    partitions: BTreeMap<PartitionId, Box<Watched>>,
    /// The partition of the last record, taken out of the map: records come in runs.
    last: Option<(PartitionId, Box<Watched>)>,
}

/// One partition: what carries over from record to record, and the generations of what was seen.
#[derive(Clone, Debug, Default)]
struct Watched {
    next_offset: i64,
    max_event_time: Option<EventTime>,
    last_arrival: Option<EventTime>,
    /// When the running generation began.
    turned: MonotonicTime,
    running: Observed,
    older: [Option<Box<Observed>>; 2],
}

impl Observations {
    /// A generation lasts this long.
    pub const GENERATION: Duration = Duration::from_mins(30);

    /// Nothing seen yet; what is late is judged by these windows.
    pub fn new(windows: TumblingWindows, allowed_lateness: Duration) -> Self {
        Self { windows, allowed_lateness, partitions: BTreeMap::new(), last: None }
    }

    /// Takes in a record that was accepted. The gap between it and the one before it in its partition, if both have a
    /// time of arrival.
    pub fn on_event(
        &mut self,
        id: PartitionId,
        seen: Seen<'_>,
        now: MonotonicTime,
    ) -> Option<Duration> {
        let (windows, allowed_lateness) = (self.windows, self.allowed_lateness);
        let partition = self.watched(id, now);
        if !partition.is_new(seen.offset) {
            return None;
        }
        partition.turn(now);
        partition.take(seen, windows, allowed_lateness)
    }

    /// Takes in a record that could not be used.
    pub fn on_refusal(
        &mut self,
        id: PartitionId,
        offset: i64,
        refusal: &Refusal,
        now: MonotonicTime,
    ) {
        let partition = self.watched(id, now);
        if !partition.is_new(offset) {
            return;
        }
        partition.turn(now);
        let refused = &mut partition.running.refused;
        refused.entry(refusal.reason).or_insert_with(|| (0, refusal.detail.clone())).0 += 1;
    }

    /// Forgets all partitions but these, and knows of these.
    pub fn keep(&mut self, ids: &BTreeSet<PartitionId>, now: MonotonicTime) {
        self.put_back();
        self.partitions.retain(|id, _| ids.contains(id));
        for id in ids {
            self.partitions.entry(*id).or_insert_with(|| Watched::begun(now));
        }
    }

    /// Forgets a partition: what comes of it later does not go on from here.
    pub fn forget(&mut self, id: PartitionId) {
        self.put_back();
        self.partitions.remove(&id);
    }

    /// What was seen of each partition of a topic.
    pub fn of_topic(&self, topic: u16) -> BTreeMap<i32, Observed> {
        let last = self.last.iter().map(|(id, watched)| (id, watched));
        let all = self.partitions.iter().chain(last).filter(|(id, _)| id.topic == topic);
        all.map(|(id, watched)| (id.partition, watched.total())).collect()
    }

    /// About how much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let last = self.last.iter().map(|(_, watched)| watched);
        self.partitions.values().chain(last).map(|watched| watched.bytes()).sum()
    }

    fn watched(&mut self, id: PartitionId, now: MonotonicTime) -> &mut Watched {
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            self.put_back();
        }
        let (_, watched) = self.last.get_or_insert_with(|| {
            let held = self.partitions.remove(&id);
            (id, held.unwrap_or_else(|| Watched::begun(now)))
        });
        watched
    }

    fn put_back(&mut self) {
        if let Some((id, watched)) = self.last.take() {
            self.partitions.insert(id, watched);
        }
    }
}

impl Watched {
    fn begun(now: MonotonicTime) -> Box<Self> {
        Box::new(Self { turned: now, ..Self::default() })
    }

    /// Whether the record has not been seen yet: after an aborted transaction records come again.
    fn is_new(&mut self, offset: i64) -> bool {
        let new = offset >= self.next_offset;
        if new {
            self.next_offset = offset.saturating_add(1);
        }
        new
    }

    fn turn(&mut self, now: MonotonicTime) {
        if now.since(self.turned) >= 3 * Observations::GENERATION {
            (self.turned, self.running, self.older) = (now, Observed::default(), [None, None]);
        }
        while now.since(self.turned) >= Observations::GENERATION {
            self.turned = MonotonicTime(self.turned.0 + Observations::GENERATION);
            let [newer, oldest] = &mut self.older;
            *oldest = newer.take();
            *newer = Some(Box::new(std::mem::take(&mut self.running)));
        }
    }

    /// The gap to the record before.
    fn take(
        &mut self,
        seen: Seen<'_>,
        windows: TumblingWindows,
        allowed_lateness: Duration,
    ) -> Option<Duration> {
        let Self { max_event_time, last_arrival, running, .. } = self;
        let gap = seen.arrival.zip(*last_arrival).map(|(arrival, last)| last.behind(arrival));
        running.records += 1;
        let behind = max_event_time.and_then(|max| (max > seen.event_time).then_some(max));
        if let Some(max) = behind {
            running.out_of_orderness.add(millis(seen.event_time.behind(max)));
            let needed = windows
                .assign(seen.event_time)
                .map_or(0, |window| needed_bound(window.end + allowed_lateness, max));
            running.needed_bound.add(needed);
        } else {
            running.out_of_orderness.add(0);
            running.needed_bound.add(0);
            *max_event_time = Some(seen.event_time);
            running.max_event_time = *max_event_time;
        }
        if let Some(arrival) = seen.arrival {
            if let Some(gap) = gap.map(millis) {
                running.gaps.add(gap);
                running.pauses.add(gap);
            }
            *last_arrival = (*last_arrival).max(Some(arrival));
            running.first_arrival.get_or_insert(arrival);
            running.last_arrival = *last_arrival;
            let records = running.records;
            let counts = records < Observed::SAMPLED_FROM || records % Observed::SAMPLED == 0;
            if behind.is_none() && counts {
                running.transport.add(millis(seen.event_time.behind(arrival)));
            }
            let ahead = arrival.behind(seen.event_time);
            if ahead > Observed::AHEAD {
                running.ahead += 1;
                running.ahead_most = running.ahead_most.max(ahead);
            }
        }
        if let Some(late) = seen.late {
            for (count, cause) in running.late.iter_mut().zip(LateCause::ALL) {
                *count += u64::from(cause == late.cause);
            }
            if let (LateCause::AfterIdle, Some(watermark)) = (late.cause, late.watermark.time()) {
                running.after_idle.add(millis(seen.event_time.behind(watermark)));
            }
        }
        gap
    }

    fn total(&self) -> Observed {
        let mut total = Observed::default();
        for generation in self.older.iter().rev().flatten() {
            total.merge(generation);
        }
        total.merge(&self.running);
        total.max_event_time = self.max_event_time;
        total
    }

    fn bytes(&self) -> usize {
        let older: usize = self.older.iter().flatten().map(|observed| observed.bytes()).sum();
        size_of::<Self>() - size_of::<Observed>() + self.running.bytes() + older
    }
}

/// The least bound, in ms, with which a record is not late whose window is freed at `end` plus allowed lateness, after
/// an event at `max`: late is what comes when max - bound - 1 >= end - 1 + lateness.
fn needed_bound(end: EventTime, max: EventTime) -> u64 {
    if max < end { 0 } else { millis(end.behind(max)) + 1 }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_time::TimeWindow;
    use crate::event_time::Watermark;

    const P0: PartitionId = PartitionId { topic: 0, partition: 0 };
    const START: MonotonicTime = MonotonicTime(Duration::ZERO);

    fn observations() -> Observations {
        let windows = TumblingWindows::new(Duration::from_secs(10), 0).unwrap();
        Observations::new(windows, Duration::ZERO)
    }

    fn seen(offset: i64, event_time: i64) -> Seen<'static> {
        let arrival = Some(EventTime(event_time.max(0) + 500));
        Seen { offset, event_time: EventTime(event_time), arrival, late: None }
    }

    fn total(observations: &Observations) -> Observed {
        observations.of_topic(0).remove(&0).unwrap()
    }

    #[test]
    fn the_needed_bound_is_the_least_with_which_a_record_is_not_late() {
        let mut observations = observations();
        // Its window [0, 10 s) is passed by 2 s: a bound of 2 s still loses it (12000 - 2000 - 1 >= 9999), 2001 ms not.
        for (offset, ts) in [(0, 12_000), (1, 9_000), (2, 11_000)] {
            observations.on_event(P0, seen(offset, ts), START);
        }
        let observed = total(&observations);
        assert_eq!(observed.needed_bound.max(), Some(2_001));
        assert_eq!(observed.out_of_orderness.max(), Some(3_000));
        assert!((observed.needed_bound.share_above(0) - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn records_that_come_again_after_an_abort_are_not_counted_again() {
        let mut observations = observations();
        for (offset, ts) in [(0, 1_000), (1, 2_000), (2, 3_000), (0, 1_000), (1, 2_000), (3, 4_000)]
        {
            observations.on_event(P0, seen(offset, ts), START);
        }
        let observed = total(&observations);
        assert_eq!((observed.records, observed.out_of_orderness.max()), (4, Some(0)));
        assert_eq!(observed.gaps.max(), Some(1_000));
    }

    #[test]
    fn what_is_older_than_an_hour_and_a_half_is_forgotten() {
        let mut observations = observations();
        let at = |minutes: u64| MonotonicTime(Duration::from_mins(minutes));
        for minute in 0..200_u64 {
            let ms = i64::try_from(minute).unwrap();
            observations.on_event(P0, seen(ms, ms * 60_000), at(minute));
            let held = total(&observations).records;
            assert!(held == minute + 1 || (60..=90).contains(&held), "{held} at {minute}");
        }
        // After a long silence only what is new counts.
        observations.on_event(P0, seen(1_000, 1), at(2_000));
        assert_eq!(total(&observations).records, 1);
    }

    #[test]
    fn a_partition_that_was_given_up_begins_anew() {
        let mut observations = observations();
        observations.on_event(P0, seen(7, 50_000), START);
        observations.forget(P0);
        observations.on_event(P0, seen(3, 1_000), START);
        let observed = total(&observations);
        assert_eq!((observed.records, observed.out_of_orderness.max()), (1, Some(0)));
        observations.keep(&BTreeSet::from([PartitionId { topic: 0, partition: 5 }]), START);
        assert_eq!(observations.of_topic(0).keys().copied().collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn late_records_and_clocks_ahead_are_counted() {
        let mut observations = observations();
        let window = TimeWindow { start: EventTime(0), end: EventTime(10_000) };
        let watermark = Watermark(EventTime(14_000));
        let late = Lateness { window, watermark, cause: LateCause::AfterIdle };
        let mut record = seen(0, 9_000);
        record.late = Some(&late);
        observations.on_event(P0, record, START);
        let arrival = Some(EventTime(10_000));
        let ahead = Seen { offset: 1, event_time: EventTime(70_000), arrival, late: None };
        observations.on_event(P0, ahead, START);
        let refusal = Refusal { reason: Reason::TsPast, detail: "in 1970".to_owned() };
        observations.on_refusal(P0, 2, &refusal, START);
        let observed = total(&observations);
        assert_eq!((observed.late, observed.after_idle.max()), ([0, 1, 0], Some(5_000)));
        assert_eq!((observed.ahead, observed.ahead_most), (1, Duration::from_mins(1)));
        assert_eq!(observed.refused[&Reason::TsPast], (1, "in 1970".to_owned()));
    }

    #[test]
    fn a_thousand_partitions_take_bounded_memory() {
        let mut observations = observations();
        let mut random = crate::insight::advise::tests::shares(1);
        for minute in [0_u32, 31, 62] {
            for partition in 0..1_000 {
                let id = PartitionId { topic: 0, partition };
                for offset in 0..200 {
                    // Over nine decades, more than any topic.
                    #[expect(clippy::cast_possible_truncation, reason = "a test")]
                    let ts = 2_000_000_000_000 - 10f64.powf(random() * 9.0) as i64;
                    let arrival = Some(EventTime(1_000_000_000_000 + i64::from(offset)));
                    let offset = i64::from(minute) * 1_000 + i64::from(offset);
                    let seen = Seen { offset, event_time: EventTime(ts), arrival, late: None };
                    let now = MonotonicTime(Duration::from_mins(minute.into()));
                    observations.on_event(id, seen, now);
                }
            }
        }
        let bytes = observations.bytes();
        assert!(bytes < 100 << 20, "{bytes} bytes");
    }
}
