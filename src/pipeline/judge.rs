//! A record goes into the core, and what can be learnt from it is kept.

use super::message::Message;
use crate::event_time::{
    Disposition, Event, EventTime, Heartbeat, Now, PartitionId, Subtask, Watermark,
};
use crate::insight::advise::{Observations, Seen};
use crate::insight::{PartitionTally, TopicTally};

/// Has a record judged, and takes in how far it was behind.
pub(super) fn judge(
    subtask: &mut Subtask,
    (observations, tally): (&mut Observations, &mut TopicTally),
    (id, offset): (PartitionId, i64),
    (event, kafka_timestamp): (&Event<'_>, Option<i64>),
    now: Now,
) -> Disposition {
    let greatest = subtask.max_event_time(id).unwrap_or(event.timestamp);
    let disposition = subtask.on_event(id, event);
    let late = match &disposition {
        Disposition::Windowed | Disposition::Refired => None,
        Disposition::Late(lateness) => Some(lateness),
        Disposition::NotAssigned | Disposition::KeyLimit(_) | Disposition::TimestampOutOfRange => {
            return disposition;
        }
    };
    tally.out_of_orderness.add_behind(event.timestamp, greatest);
    tally.event_time_lag.add_behind(event.timestamp, now.wall);
    if let Some(clock) = late.and_then(|lateness| lateness.watermark.time()) {
        tally.late_by.add_behind(event.timestamp, clock);
    }
    let arrival = kafka_timestamp.filter(|ms| *ms >= 0).map(EventTime);
    let seen = Seen { offset, event_time: event.timestamp, arrival, late };
    if let Some(gap) = observations.on_event(id, seen, now.monotonic) {
        tally.interarrival.add(gap, 1);
    }
    disposition
}

/// Takes in a sign of life, of which nothing is sent; one is refused whose time no window has.
pub(super) fn take_heartbeat(
    subtask: &mut Subtask,
    tally: &mut PartitionTally,
    id: PartitionId,
    heartbeat: Heartbeat,
) -> Result<Option<Message>, EventTime> {
    let windows = subtask.window_settings().windows;
    if let Some(Watermark(time)) = heartbeat.watermark
        && windows.assign(time).is_none()
    {
        return Err(time);
    }
    let is_here = subtask.on_heartbeat(id, heartbeat);
    tally.heartbeats += u64::from(is_here);
    tally.ignored += u64::from(!is_here);
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event_time::{
        AllIdle, MonotonicTime, Panes, Sharding, StateLimits, SubtaskSettings, TopicSettings,
        TumblingWindows, WatermarkStrategy, WindowSettings,
    };
    use crate::insight::Distribution;

    #[test]
    fn each_record_is_measured_against_those_before_it_the_clock_on_the_wall_and_its_own() {
        let windows = TumblingWindows::new(Duration::from_secs(10), 0).unwrap();
        let strategy = WatermarkStrategy::AscendingTimestamps;
        let mut subtask = Subtask::new(SubtaskSettings {
            topics: vec![TopicSettings { strategy, idle_timeout: None }],
            window: WindowSettings {
                windows,
                allowed_lateness: Duration::ZERO,
                panes: Panes::Accumulating,
                aggregates: Vec::new(),
                limits: StateLimits::default(),
            },
            sharding: Sharding::PerPartition,
            all_idle: AllIdle::Hold,
        });
        let id = PartitionId { topic: 0, partition: 0 };
        subtask.assign(id, None);
        let mut observations = Observations::new(windows, Duration::ZERO);
        let mut tally = TopicTally::default();
        let now = Now { monotonic: MonotonicTime::default(), wall: EventTime(60_000) };
        // The third one comes again after an abort, which is no gap.
        let offsets = [0, 1, 1, 2];
        let arrivals = [70_000, 70_250, 70_250, 69_000];
        for ((offset, arrival), ms) in
            offsets.into_iter().zip(arrivals).zip([30_000, 28_000, 61_000, 20_000])
        {
            let event = Event::new(EventTime(ms), b"a", &[]);
            let to = (&mut observations, &mut tally);
            judge(&mut subtask, to, (id, offset), (&event, Some(arrival)), now);
            subtask.on_periodic_emit(now);
            while subtask.poll_output().is_some() {}
        }
        let seen = |of: &Distribution| (of.count(), of.sum().as_millis());
        assert_eq!(seen(&tally.out_of_orderness), (4, 2_000 + 41_000));
        assert_eq!(seen(&tally.event_time_lag), (4, 30_000 + 32_000 + 40_000));
        // By the clock as it was before each: a millisecond less than the greatest event time.
        assert_eq!(seen(&tally.late_by), (2, 1_999 + 40_999));
        // One that arrived before the one in front of it has no gap at all.
        assert_eq!(seen(&tally.interarrival), (2, 250));
    }
}
