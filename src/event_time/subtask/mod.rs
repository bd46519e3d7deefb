//! The whole machine: partitions in, panes and watermarks out.

mod alignment;
mod membership;
mod view;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event_time::alignment::ReadAhead;
use crate::event_time::facts::{Disposition, LateCause, Lateness, Output, Pane};
use crate::event_time::multiplexer::{ChannelId, WatermarkMultiplexer, WatermarkStatus};
use crate::event_time::settings::{AllIdle, SubtaskSettings, TopicSettings};
use crate::event_time::shard::{Shard, ShardId};
use crate::event_time::time::{EventTime, Now, PartitionId, Watermark};
use crate::event_time::watermark::{IdleClock, IdlenessTimer, WatermarkGenerator, WatermarkOutput};
use crate::event_time::window_operator::{PaneAt, Size};
use crate::event_time::{Event, Heartbeat};

/// Event time of one subtask: joins generators, idleness, multiplexer and window operators.
///
/// It knows no clock and no input or output: time comes in as an argument, effects are taken by
/// [`Self::poll_output`]. Its owner takes all outputs before it hands in the next event.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::*;
///
/// let mut subtask = Subtask::new(SubtaskSettings {
///     topics: vec![TopicSettings { strategy: WatermarkStrategy::AscendingTimestamps, idle_timeout: None }],
///     window: WindowSettings {
///         windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
///         allowed_lateness: Duration::ZERO,
///         panes: Panes::Accumulating,
///         aggregates: vec![AggregateFunction::Count],
///         limits: StateLimits::default(),
///     },
///     sharding: Sharding::OneForAll,
///     all_idle: AllIdle::Hold,
/// });
/// let partition = PartitionId { topic: 0, partition: 0 };
/// let now = Now { monotonic: MonotonicTime::default(), wall: EventTime(0) };
/// subtask.assign(partition, None);
/// for ms in [1_000, 10_000] {
///     subtask.on_event(partition, &Event::new(EventTime(ms), b"EWR", &[Some(Value::Integer(1))]));
/// }
/// subtask.on_periodic_emit(now);
/// assert!(matches!(subtask.poll_output(), Some(Output::WatermarkAdvanced(Watermark(EventTime(9_999))))));
/// let Some(Output::Fired(pane)) = subtask.poll_output() else { panic!("the window is due") };
/// assert_eq!(pane.key, b"EWR");
/// assert!(pane.aggregates.values().eq([AggregateValue::Integer(1)]));
/// ```
#[derive(Debug)]
pub struct Subtask {
    settings: SubtaskSettings,
    /// Partitions that event time follows in another way than the others of their topic.
    exceptions: BTreeMap<PartitionId, TopicSettings>,
    multiplexer: WatermarkMultiplexer,
    /// In the order of assignment, which is the order of the periodic emission.
    partitions: Vec<Partition>,
    /// Topic, then partition number, to the place in `partitions`.
    places: Vec<Vec<Option<usize>>>,
    /// A place stays empty after its shard has left, until another takes it.
    shards: Vec<Option<Shard>>,
    /// The first clocks of the shards that were abandoned and have not come back.
    abandoned: BTreeMap<ShardId, Watermark>,
    /// The greatest candidate so far.
    watermark: Watermark,
    /// No shard that follows the watermark has anything to fire or free below this time.
    next_change: Option<EventTime>,
    /// Whether any shard may have a clock of its own, so that a combine has to look at all of them.
    own_clocks: bool,
    /// How far the idle clocks have run.
    idle_clock: Duration,
    /// When all partitions were first found idle, while they are.
    all_idle_since: Option<Now>,
    pending: VecDeque<Pending>,
    /// What all shards hold.
    size: Size,
    windows_freed: u64,
    /// Times the candidate went below the watermark, and whether it is there now.
    regressions_suppressed: u64,
    candidate_below: bool,
}

#[derive(Debug)]
struct Partition {
    id: PartitionId,
    channel: ChannelId,
    generator: Box<dyn WatermarkGenerator>,
    idleness: Option<IdlenessTimer>,
    idle_clock: IdleClock,
    /// Its place in the shards.
    shard: usize,
    max_event_time: Option<EventTime>,
    /// The shard's clock when the partition came in.
    clock_at_assignment: Watermark,
    read_ahead: ReadAhead,
}

#[derive(Debug)]
enum Pending {
    /// With the clock that the record was judged by, which the same record may since have moved.
    LatePane(usize, PaneAt, Watermark),
    DuePanes(usize),
    WatermarkAdvanced(Watermark),
    StatusChanged(PartitionId, WatermarkStatus),
}

impl Subtask {
    /// A subtask without partitions.
    pub fn new(settings: SubtaskSettings) -> Self {
        Self {
            settings,
            exceptions: BTreeMap::new(),
            multiplexer: WatermarkMultiplexer::default(),
            partitions: Vec::new(),
            places: Vec::new(),
            shards: Vec::new(),
            abandoned: BTreeMap::new(),
            watermark: Watermark::NONE,
            next_change: None,
            own_clocks: false,
            idle_clock: Duration::ZERO,
            all_idle_since: None,
            pending: VecDeque::new(),
            size: Size::default(),
            windows_freed: 0,
            regressions_suppressed: 0,
            candidate_below: false,
        }
    }

    /// Takes in one record: it is judged by the watermark as it is, and then moves it.
    ///
    /// # Panics
    /// If outputs of before are still there: a pane must be read before its window changes.
    pub fn on_event(&mut self, id: PartitionId, event: &Event<'_>) -> Disposition {
        assert!(self.pending.is_empty(), "outputs must be taken before the next event");
        let Some(partition) = self.place(id).and_then(|place| self.partitions.get_mut(place))
        else {
            return Disposition::NotAssigned;
        };
        let Some(window) = self.settings.window.windows.assign(event.timestamp) else {
            return Disposition::TimestampOutOfRange;
        };
        let Some(Some(shard)) = self.shards.get_mut(partition.shard) else {
            return Disposition::NotAssigned;
        };
        let clock = shard.clock(self.watermark);
        let lateness = if shard.has_closed(window) {
            Duration::ZERO
        } else {
            self.settings.window.allowed_lateness
        };
        let disposition = if window.is_freed(clock, lateness) {
            let cause = if window.is_freed(self.multiplexer.watermark(partition.channel), lateness)
            {
                LateCause::OutOfOrder
            } else if window.is_freed(partition.clock_at_assignment, lateness) {
                LateCause::Joined
            } else {
                LateCause::AfterIdle
            };
            Disposition::Late(Lateness { window, watermark: clock, cause })
        } else {
            let before = shard.operator.size();
            match shard.operator.add(event, window, clock, &self.settings.window, self.size) {
                // It moves the watermark all the same, or what fills the room would never fire.
                Err(limit) => Disposition::KeyLimit(limit),
                Ok(pane) => {
                    self.size.replace(before, shard.operator.size());
                    let change = window.max_timestamp();
                    self.next_change =
                        Some(self.next_change.map_or(change, |next| next.min(change)));
                    match pane {
                        None => Disposition::Windowed,
                        Some(pane) => {
                            self.pending.push_back(Pending::LatePane(partition.shard, pane, clock));
                            Disposition::Refired
                        }
                    }
                }
            }
        };
        partition.max_event_time = partition.max_event_time.max(Some(event.timestamp));
        partition.read_ahead.on_event(event.timestamp);
        let mut output = WatermarkOutput::default();
        partition.generator.on_event(event, &mut output);
        if let Some(idleness) = &mut partition.idleness {
            idleness.activity();
        }
        if output != WatermarkOutput::default() {
            let channel = partition.channel;
            let raised = self.apply(id, channel, output);
            if output.marked() || (raised && self.may_move(self.multiplexer.watermark(channel))) {
                let candidate = self.candidate(None);
                self.combine(candidate);
            }
        }
        disposition
    }

    /// Takes in a sign of life. One that is no activity ends no idleness, though its watermark counts as soon as its
    /// partition does. Whether the partition is here.
    ///
    /// # Panics
    /// If outputs of before are still there, as with a record.
    pub fn on_heartbeat(&mut self, id: PartitionId, heartbeat: Heartbeat) -> bool {
        assert!(self.pending.is_empty(), "outputs must be taken before the next event");
        let Some(partition) = self.place(id).and_then(|place| self.partitions.get_mut(place))
        else {
            return false;
        };
        let channel = partition.channel;
        if let Some(idleness) = partition.idleness.as_mut().filter(|_| heartbeat.is_activity) {
            idleness.activity();
        }
        let Some(watermark) = heartbeat.watermark else { return true };
        let raised = if heartbeat.is_activity {
            let mut output = WatermarkOutput::default();
            output.emit(watermark);
            self.apply(id, channel, output)
        } else {
            self.multiplexer.raise(channel, watermark)
        };
        if raised && self.may_move(self.multiplexer.watermark(channel)) {
            let candidate = self.candidate(None);
            self.combine(candidate);
        }
        true
    }

    /// Lets the idle clocks run, those of partitions that are held excepted. The owner hands in the time that passed in
    /// its loop, but no more than one emit interval: what the loop could not see is not silence.
    pub fn run_idle_clocks(&mut self, elapsed: Duration) {
        self.idle_clock += elapsed;
    }

    /// Stops a partition's idle clock, or lets it run again: silence counts only while nothing can be in front of it. That
    /// of a paused one stands still in any case.
    pub fn hold_idle_clock(&mut self, id: PartitionId, hold: bool) {
        let Some(partition) = self.place(id).and_then(|place| self.partitions.get_mut(place))
        else {
            return;
        };
        if hold || partition.read_ahead.paused.is_some() {
            partition.idle_clock.hold(self.idle_clock);
        } else {
            partition.idle_clock.release(self.idle_clock);
        }
    }

    /// The periodic emission of all partitions, in the order of their assignment, and one combine after it
    /// (Flink: `ProgressiveTimestampsAndWatermarks`).
    pub fn on_periodic_emit(&mut self, now: Now) {
        for place in 0..self.partitions.len() {
            let Some(partition) = self.partitions.get_mut(place) else { break };
            let (id, channel) = (partition.id, partition.channel);
            let mut output = WatermarkOutput::default();
            let silent = partition
                .idleness
                .as_mut()
                .is_some_and(|idleness| idleness.look(partition.idle_clock, self.idle_clock));
            if silent {
                output.mark_idle();
            } else {
                partition.generator.on_periodic_emit(now.monotonic, &mut output);
            }
            self.apply(id, channel, output);
        }
        let candidate = self.candidate(Some(now));
        self.combine(candidate);
    }

    /// The emission after a record, for `emit_interval = 0`: only its own partition's, at the same cost whatever the
    /// number of partitions.
    pub fn on_record_emit(&mut self, id: PartitionId, now: Now) {
        let Some(partition) = self.place(id).and_then(|place| self.partitions.get_mut(place))
        else {
            return;
        };
        let channel = partition.channel;
        let mut output = WatermarkOutput::default();
        partition.generator.on_periodic_emit(now.monotonic, &mut output);
        self.apply(id, channel, output);
        let candidate = self.candidate(Some(now));
        self.combine(candidate);
    }

    /// Fires every window that has not fired, also where everything is idle. Each shard's clock goes to the greatest
    /// end - 1 that it fires and no further, so that only records of windows closed here are late afterwards.
    pub fn drain(&mut self) {
        let mut greatest = self.watermark;
        for place in 0..self.shards.len() {
            let clock = self.clock_of(place);
            let Some(Some(shard)) = self.shards.get_mut(place) else { continue };
            let Some(target) = shard.operator.last_not_due(clock).map(Watermark) else { continue };
            shard.operator.advance(clock, target, &self.settings.window);
            shard.own_clock = Some(target);
            self.own_clocks = true;
            greatest = greatest.max(target);
            self.pending.push_back(Pending::DuePanes(place));
        }
        if greatest > self.watermark {
            // What follows the watermark stays where it is.
            let before = self.watermark;
            for shard in self.shards.iter_mut().flatten() {
                shard.own_clock.get_or_insert(before);
            }
            self.watermark = greatest;
            self.pending.push_front(Pending::WatermarkAdvanced(greatest));
        }
    }

    /// The next fact, in the order in which it came about; `None` when all have been taken.
    pub fn poll_output(&mut self) -> Option<Output<'_>> {
        loop {
            let place = match self.pending.front()? {
                Pending::LatePane(place, ..) | Pending::DuePanes(place) => *place,
                Pending::WatermarkAdvanced(watermark) => {
                    let watermark = *watermark;
                    self.pending.pop_front();
                    return Some(Output::WatermarkAdvanced(watermark));
                }
                Pending::StatusChanged(id, status) => {
                    let (id, status) = (*id, *status);
                    self.pending.pop_front();
                    return Some(Output::StatusChanged(id, status));
                }
            };
            if let Some((at, clock)) = self.next_pane(place) {
                return self.pane(place, at, clock);
            }
        }
    }

    /// Whether the next fact is the pane of a late record: nothing may be committed between a record and its pane.
    pub fn late_pane_is_next(&self) -> bool {
        matches!(self.pending.front(), Some(Pending::LatePane(..)))
    }

    fn place(&self, id: PartitionId) -> Option<usize> {
        *self.places.get(usize::from(id.topic))?.get(usize::try_from(id.partition).ok()?)?
    }

    fn clock_of(&self, place: usize) -> Watermark {
        let shard = self.shards.get(place).and_then(Option::as_ref);
        shard.map_or(Watermark::NONE, |shard| shard.clock(self.watermark))
    }

    /// Writes what a generator decided into its channel. Whether the channel's watermark rose.
    fn apply(&mut self, id: PartitionId, channel: ChannelId, output: WatermarkOutput) -> bool {
        if let Some(status) = output.status()
            && self.multiplexer.set_status(channel, status)
        {
            self.pending.push_back(Pending::StatusChanged(id, status));
        }
        output.watermark().is_some_and(|watermark| self.multiplexer.raise(channel, watermark))
    }

    /// What the partitions' watermarks amount to, before the never-back rule; without a time where the wall clock is
    /// not known.
    fn candidate(&mut self, now: Option<Now>) -> Option<Watermark> {
        if !self.multiplexer.all_idle() {
            self.all_idle_since = None;
            return self.multiplexer.least_active();
        }
        match (self.settings.all_idle, now) {
            (AllIdle::Hold, _) | (AllIdle::WallClock, None) => None,
            (AllIdle::Flush, _) => self.multiplexer.greatest(),
            (AllIdle::WallClock, Some(now)) => self.wall_clock_candidate(now),
        }
    }

    /// The wall clock when everything fell silent plus monotonic time since, or the wall clock if that is less: so a
    /// stepping clock closes nothing. Only with evidence for every partition.
    fn wall_clock_candidate(&mut self, now: Now) -> Option<Watermark> {
        let since = *self.all_idle_since.get_or_insert(now);
        if self.partitions.iter().any(|partition| partition.idle_clock.is_held()) {
            return None;
        }
        let greatest = |durations: &mut dyn Iterator<Item = Duration>| {
            durations.max().unwrap_or(Duration::ZERO)
        };
        let bound = greatest(
            &mut self.partitions.iter().filter_map(|partition| partition.generator.bound()),
        );
        let terms = self.settings.topics.iter().chain(self.exceptions.values());
        let timeout = greatest(&mut terms.filter_map(|topic| topic.idle_timeout));
        let steady = since.wall + now.monotonic.since(since.monotonic);
        Some(Watermark(now.wall.min(steady) - bound - timeout))
    }

    /// Whether a clock is below this watermark of a partition; without shards that brought their own it is the
    /// subtask's (Flink: `WatermarkOutputMultiplexer.ImmediateOutput`).
    fn may_move(&self, watermark: Watermark) -> bool {
        let clock = |shard: &Shard| shard.clock(self.watermark);
        watermark > self.watermark
            || self.own_clocks && self.shards.iter().flatten().any(|held| clock(held) < watermark)
    }

    /// Raises the clocks to the candidate, and the subtask watermark if it is the greatest so far; nothing falls.
    fn combine(&mut self, candidate: Option<Watermark>) {
        let Some(candidate) = candidate.filter(|candidate| candidate.time().is_some()) else {
            return;
        };
        let before = self.watermark;
        let below = candidate < before;
        self.regressions_suppressed += u64::from(below && !self.candidate_below);
        self.candidate_below = below;
        // While outputs wait, `next_change` is not yet renewed after the change before.
        let due = candidate > before
            && (!self.pending.is_empty()
                || self.next_change.is_some_and(|next| next <= candidate.0));
        if candidate > before {
            self.watermark = candidate;
            self.pending.push_back(Pending::WatermarkAdvanced(candidate));
        }
        if due {
            self.next_change = None;
        } else if !self.own_clocks {
            return;
        }
        self.own_clocks = false;
        for (place, shard) in self.shards.iter_mut().enumerate() {
            let Some(shard) = shard else { continue };
            let from = match shard.own_clock {
                None if due => before,
                Some(own) if own < candidate => own,
                other => {
                    self.own_clocks |= other.is_some();
                    continue;
                }
            };
            shard.own_clock = (candidate < self.watermark).then_some(candidate);
            self.own_clocks |= shard.own_clock.is_some();
            shard.operator.advance(from, candidate, &self.settings.window);
            self.pending.push_back(Pending::DuePanes(place));
        }
    }

    /// Where the next pane stands, and the clock it fires at; takes the entry off the queue once it has no more.
    fn next_pane(&mut self, place: usize) -> Option<(PaneAt, Watermark)> {
        if let Some(Pending::LatePane(_, at, clock)) = self.pending.front() {
            let late = (*at, *clock);
            self.pending.pop_front();
            return Some(late);
        }
        let clock = self.clock_of(place);
        let settings = &self.settings.window;
        if let Some(Some(shard)) = self.shards.get_mut(place) {
            let before = shard.operator.size();
            let due = shard.operator.next_due(clock, settings);
            if due.is_none() {
                shard.operator.free(clock, settings);
            }
            self.size.replace(before, shard.operator.size());
            if let Some(at) = due {
                return Some((at, clock));
            }
            self.windows_freed += shard.operator.take_freed();
            let next = shard.operator.next_change(clock, settings);
            self.next_change = self.next_change.into_iter().chain(next).min();
        }
        self.pending.pop_front();
        None
    }

    fn pane(&mut self, place: usize, at: PaneAt, watermark: Watermark) -> Option<Output<'_>> {
        let shard = self.shards.get_mut(place)?.as_mut()?;
        let id = shard.id;
        let fired = shard.operator.fire(at, &self.settings.window)?;
        Some(Output::Fired(Pane {
            window: fired.entry.window,
            key: fired.entry.key,
            aggregates: fired.entry.aggregates,
            timing: fired.timing,
            index: fired.index,
            watermark,
            shard: id,
        }))
    }
}
