//! What happens to one record, and to what the core says of it; everything but reading and the schedule.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::edge::{InputRecord, Progress, SinkError, TransactionalSink};
use super::history::Histories;
use super::judge::{judge, take_heartbeat};
use super::message::{Message, OutputTopic};
use super::topics::subtask_settings;
use crate::codec::{
    Decoded, Decoder, Encoded, Encoder, RawRecord, Reason, Refusal, partition_name,
};
use crate::config::{Aggregate, Config, Key};
use crate::event_time::{
    Disposition, EventTime, LateCause, LimitExceeded, MonotonicTime, Now, Output, Pane,
    PartitionId, ShardId, Subtask, Timing, Watermark, WatermarkStatus,
};
use crate::insight::advise::Observations;
use crate::insight::{FiredWindow, PartitionSnapshot, Phase, Snapshot, Tally};

/// Decodes, judges, aggregates, encodes and sends; counts what became of it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they have nothing to do with each other")]
pub(super) struct Engine<K> {
    pub(super) sink: K,
    pub(super) subtask: Subtask,
    pub(super) tally: Tally,
    /// Up to where each partition is committed.
    pub(super) committed: BTreeMap<PartitionId, i64>,
    /// What is to be sent next: the message of a call that failed, or several that belong together.
    queue: VecDeque<Message>,
    /// Messages in the open transaction.
    pub(super) sent: usize,
    /// The largest message to each topic in the open transaction, in bytes.
    largest: BTreeMap<OutputTopic, usize>,
    pub(super) decoders: Vec<Decoder>,
    /// What further decoders are made with.
    pub(super) decoding: (Key, Vec<Aggregate>),
    encoder: Encoder,
    encoded: Encoded,
    pub(super) topics: Vec<String>,
    progress: Option<ProgressRecords>,
    /// Whether an on-time pane was sent since the last commit.
    pub(super) fired_on_time: bool,
    recent: Vec<FiredWindow>,
    histories: Histories,
    /// What was seen of the records, for advice.
    pub(super) observations: Observations,
    /// A clock may have risen since progress was told.
    clocks_moved: bool,
    /// What is due is only partly sent.
    firing: bool,
    /// What of the core's counts is in a tally already.
    windows_counted: u64,
    regressions_counted: u64,
    emit_after_each_record: bool,
}

/// Writes "complete until" records: up to which window end each shard has said so.
#[derive(Debug, Default)]
struct ProgressRecords {
    told: BTreeMap<ShardId, EventTime>,
}

/// How delivering went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    /// Everything was taken.
    All,
    /// There is more, and a commit may come between.
    Slice,
}

impl<K: TransactionalSink> Engine<K> {
    pub(super) fn new(config: &Config, sink: K) -> Self {
        let mut engine = Self {
            sink,
            subtask: Subtask::new(subtask_settings(config)),
            tally: Tally::default(),
            queue: VecDeque::new(),
            sent: 0,
            largest: BTreeMap::new(),
            decoders: Vec::new(),
            decoding: (config.key.clone(), config.aggregates.clone()),
            encoder: Encoder::new(&config.key, &config.aggregates, &config.results),
            encoded: Encoded::default(),
            topics: Vec::new(),
            progress: config.results.progress.then(ProgressRecords::default),
            fired_on_time: false,
            recent: Vec::new(),
            committed: BTreeMap::new(),
            histories: Histories::default(),
            observations: Observations::new(config.windows, config.allowed_lateness),
            clocks_moved: false,
            firing: false,
            windows_counted: 0,
            regressions_counted: 0,
            emit_after_each_record: config.emit_interval.is_zero(),
        };
        for source in &config.sources {
            engine.add_topic(source);
        }
        engine
    }

    /// Takes in one record.
    pub(super) fn on_record(&mut self, record: &impl InputRecord, now: Now) {
        let id = record.partition();
        let topic = usize::from(id.topic);
        let (Some(decoder), Some(topic_name)) =
            (self.decoders.get_mut(topic), self.topics.get(topic))
        else {
            return;
        };
        let Tally { partitions, topics, .. } = &mut self.tally;
        let (tally, of_topic) =
            (partitions.entry(id).or_default(), topics.entry(id.topic).or_default());
        tally.read(record.payload());
        let raw = RawRecord {
            key: record.key(),
            payload: record.payload(),
            timestamp: record.timestamp(),
            timestamp_header: decoder.timestamp_header().and_then(|name| record.header(name)),
        };
        let mut moved = true;
        let outcome = match decoder.decode(raw, now.wall) {
            Ok(Decoded::Tombstone) => {
                tally.tombstones += 1;
                return;
            }
            Ok(Decoded::Heartbeat(heartbeat)) => {
                moved = false;
                take_heartbeat(&mut self.subtask, tally, id, heartbeat).map_err(out_of_range)
            }
            Ok(Decoded::Event(event)) => match judge(
                &mut self.subtask,
                (&mut self.observations, of_topic),
                (id, record.offset()),
                (&event, raw.timestamp),
                now,
            ) {
                Disposition::Windowed => Ok(None),
                Disposition::Refired => {
                    tally.refired += 1;
                    Ok(None)
                }
                Disposition::Late(lateness) => {
                    tally.late_of(lateness.cause);
                    Ok(Some(Message::late(record, topic_name, event.timestamp, &lateness)))
                }
                Disposition::NotAssigned => {
                    moved = false;
                    tally.ignored += 1;
                    Ok(None)
                }
                Disposition::KeyLimit(limit) => Err(over(limit)),
                Disposition::TimestampOutOfRange => {
                    moved = false;
                    Err(out_of_range(event.timestamp))
                }
            },
            Err(refusal) => {
                moved = false;
                self.observations.on_refusal(id, record.offset(), &refusal, now.monotonic);
                Err(refusal)
            }
        };
        let message = outcome.unwrap_or_else(|refusal| {
            self.histories.refused(id, &refusal, &mut self.tally);
            Some(Message::dead_letter(record, topic_name, &refusal))
        });
        if self.emit_after_each_record && moved {
            self.subtask.on_record_emit(id, now);
        }
        if let Some(message) = message {
            self.put(message, now.wall);
        }
    }

    /// The periodic emission.
    pub(super) fn on_periodic_emit(
        &mut self,
        now: Now,
        progress: &BTreeMap<PartitionId, Progress>,
    ) {
        for (id, progress) in progress {
            self.subtask.hold_idle_clock(*id, !progress.caught_up);
        }
        self.subtask.on_periodic_emit(now);
        self.histories.look(&self.subtask, &self.tally, now.monotonic);
        self.clocks_moved = true;
        self.tally.watermark_regressions +=
            self.subtask.regressions_suppressed() - self.regressions_counted;
        self.regressions_counted = self.subtask.regressions_suppressed();
    }

    /// Sends what the core has to say, or a slice of it. After an error the same call goes on.
    pub(super) fn deliver(&mut self, now: Now) -> Result<Delivered, SinkError> {
        let before = self.sent;
        loop {
            self.send()?;
            // The late pane of a record belongs into the transaction of the record.
            if self.sent - before >= MESSAGES_PER_SLICE && !self.subtask.late_pane_is_next() {
                self.firing = true;
                return Ok(Delivered::Slice);
            }
            let Some(output) = self.subtask.poll_output() else {
                self.tally.windows_freed += self.subtask.windows_freed() - self.windows_counted;
                self.windows_counted = self.subtask.windows_freed();
                self.firing = false;
                if std::mem::take(&mut self.clocks_moved) {
                    self.put_progress();
                    self.send()?;
                }
                return Ok(Delivered::All);
            };
            match output {
                Output::WatermarkAdvanced(_) => self.clocks_moved = true,
                Output::StatusChanged(id, status) => {
                    let tally = self.tally.partition(id);
                    match status {
                        WatermarkStatus::Idle => tally.to_idle += 1,
                        WatermarkStatus::Active => tally.to_active += 1,
                    }
                    let (topic, partition) = (self.topics.get(usize::from(id.topic)), id.partition);
                    tracing::info!(topic, partition, ?status, "partition changed its status");
                }
                Output::Fired(pane) => {
                    remember(&mut self.recent, &pane, now.wall);
                    self.tally.pane(pane.timing, pane.window.end);
                    self.fired_on_time |= pane.timing == Timing::OnTime;
                    let topic = pane.shard.partition().map(|id| usize::from(id.topic));
                    let topic = topic.and_then(|topic| self.topics.get(topic)).map(String::as_str);
                    self.encoder.result(&pane, topic.unwrap_or_default(), &mut self.encoded);
                    let topic = topic.filter(|_| self.decoding.0.across_topics);
                    let message = Message::result(&self.encoded, &pane, topic);
                    self.put(message, now.wall);
                }
            }
        }
    }

    /// Makes a message fit its topic, and puts it where it is sent from.
    fn put(&mut self, mut message: Message, wall: EventTime) {
        let limits = self.sink.limits(message.to);
        self.tally.timestamps_replaced += u64::from(message.fit_timestamp(limits, wall));
        self.queue.push_back(fit_size(message, &self.sink, &mut self.tally));
    }

    /// Puts a part of a shard's state where it is sent from.
    pub(super) fn put_state(&mut self, message: Message) {
        self.queue.push_back(message);
    }

    /// Sends what is to be sent. After an error the same call goes on with the message that could not be sent.
    pub(super) fn send(&mut self) -> Result<(), SinkError> {
        while let Some(message) = self.queue.front() {
            self.sink.send(message)?;
            let largest = self.largest.entry(message.to).or_default();
            *largest = message.size().max(*largest);
            self.sent += 1;
            self.queue.pop_front();
        }
        Ok(())
    }

    /// The size of the largest message to a topic since the last commit, in bytes.
    pub(super) fn largest(&self, to: OutputTopic) -> usize {
        let waiting = self.queue.iter().filter(|message| message.to == to).map(Message::size);
        waiting.chain(self.largest.get(&to).copied()).max().unwrap_or(0)
    }

    /// Whether the transaction holds as much as one should.
    pub(super) fn is_full(&self) -> bool {
        self.sent >= MESSAGES_PER_TRANSACTION
    }

    /// Forgets what was sent since the last commit, and its counts: it was committed, or it is to be made again.
    pub(super) fn begin_anew(&mut self) {
        self.queue.clear();
        self.largest.clear();
        self.sent = 0;
        self.histories.count(&self.tally);
        self.tally = Tally::default();
        self.fired_on_time = false;
    }

    /// Drops all state and everything that was made since the last commit.
    pub(super) fn abandon(&mut self) {
        self.subtask.abandon();
        self.begin_anew();
        self.firing = false;
        if let Some(progress) = &mut self.progress {
            progress.told.clear();
        }
    }

    /// Tells what the clocks have passed that the next commit saves: who restores them takes it for told. The clock of a
    /// shard may rise by a record, and the watermark stay.
    pub(super) fn tell_what_is_saved(&mut self) {
        if !self.firing {
            self.put_progress();
        }
    }

    /// Tells each partition of the results topic which windows are complete, once a shard's clock has passed an end.
    fn put_progress(&mut self) {
        let Some(progress) = &mut self.progress else { return };
        let windows = self.subtask.window_settings().windows;
        let mut passed = Vec::new();
        for (shard, clock) in self.subtask.clocks() {
            let Some(window) = last_complete(windows, clock) else { continue };
            if progress.told.insert(shard, window.end) != Some(window.end) {
                passed.push((shard, clock, window));
            }
        }
        let partitions = self.sink.limits(OutputTopic::Results).partitions;
        for (shard, clock, window) in passed {
            let topic = shard.partition().map_or(0, |id| usize::from(id.topic));
            let topic = self.topics.get(topic).map_or("", String::as_str);
            self.encoder.progress(shard, topic, clock, window, &mut self.encoded);
            for partition in 0..partitions {
                let message =
                    Message::progress(&self.encoded, clock.0, &partition_name(shard), partition);
                self.queue.push_back(message);
            }
        }
    }

    /// What the clock of a restored shard has passed was told before, up to a window that still owes panes.
    pub(super) fn progress_was_told(&mut self, shard: ShardId) {
        let Some(progress) = &mut self.progress else { return };
        let windows = self.subtask.window_settings().windows;
        let clock = self.subtask.clocks().find(|(id, _)| *id == shard).map(|(_, clock)| clock);
        let owed = self.subtask.first_owed(shard).map(|window| window.start);
        match owed.or_else(|| Some(last_complete(windows, clock?)?.end)) {
            Some(told) => progress.told.insert(shard, told),
            None => progress.told.remove(&shard),
        };
    }

    /// Where the subtask stands.
    pub(super) fn snapshot(
        &self,
        phase: Phase,
        taken: MonotonicTime,
        progress: &BTreeMap<PartitionId, Progress>,
        last_commit: Option<MonotonicTime>,
    ) -> Snapshot {
        let partitions = self.subtask.partitions().map(|view| {
            let progress = progress.get(&view.id);
            PartitionSnapshot {
                id: view.id,
                watermark: view.watermark,
                max_event_time: view.max_event_time,
                status: view.status,
                bound: view.bound,
                gauges: view.gauges,
                idle_in: view.idle_in,
                paused: view.paused,
                caught_up: progress.is_some_and(|progress| progress.caught_up),
                position: progress.map(|progress| progress.position),
                end_offset: progress.and_then(|progress| progress.end_offset),
                last_stable_offset: progress.and_then(|progress| progress.last_stable_offset),
                committed: self.committed.get(&view.id).copied(),
                history: self.histories.of(view.id),
            }
        });
        Snapshot {
            taken: Some(taken),
            phase,
            watermark: self.subtask.watermark(),
            holder: self.subtask.holder(),
            partitions: partitions.collect(),
            windows_open: self.subtask.open_window_count(),
            panes_open: self.subtask.open_panes(),
            oldest_open_window: self.subtask.oldest_open_window().map(|window| window.start),
            state_bytes: self.subtask.state_bytes(),
            restoring: Vec::new(),
            recent: self.recent.clone(),
            last_commit,
            least_clock: self.subtask.least_clock(),
            open: self.subtask.first_open_windows(Snapshot::OPEN),
            write_blocked_since: None,
            producer_queue: self.sink.in_flight(),
            input_partitions: None,
        }
    }
}

/// A message that its topic takes: itself, or the dead letter of a result that is too large.
fn fit_size(mut message: Message, sink: &impl TransactionalSink, tally: &mut Tally) -> Message {
    let Err(mut dead_letter) = message.fit_size(sink.limits(message.to)) else { return message };
    tally.panes_undeliverable += 1;
    tally.dead_letter(0, Reason::ResultTooLarge);
    // A dead letter is only ever shortened.
    dead_letter.fit_size(sink.limits(OutputTopic::DeadLetter)).unwrap_or_default();
    *dead_letter
}

impl crate::insight::PartitionTally {
    fn read(&mut self, payload: Option<&[u8]>) {
        self.records += 1;
        self.bytes += payload.map_or(0, |payload| payload.len() as u64);
    }

    fn late_of(&mut self, cause: LateCause) {
        for (count, counted) in self.late.iter_mut().zip(LateCause::ALL) {
            *count += u64::from(counted == cause);
        }
    }
}

/// The last window whose end the clock has passed.
fn last_complete(
    windows: crate::event_time::TumblingWindows,
    clock: Watermark,
) -> Option<crate::event_time::TimeWindow> {
    let next = windows.assign(EventTime(clock.time()?.0.checked_add(1)?))?;
    windows.assign(EventTime(next.start.0.checked_sub(1)?))
}

fn remember(recent: &mut Vec<FiredWindow>, pane: &Pane<'_>, wall: EventTime) {
    if !recent.iter().any(|fired| fired.window == pane.window) {
        if recent.len() >= Snapshot::RECENT {
            recent.remove(0);
        }
        recent.push(FiredWindow { window: pane.window, on_time: 0, late: 0, fired_at: wall });
    }
    let held = recent.iter_mut().rev().find(|fired| fired.window == pane.window);
    let Some(fired) = held else { return };
    fired.fired_at = wall;
    match pane.timing {
        Timing::OnTime => fired.on_time += 1,
        Timing::Late => fired.late += 1,
    }
}

/// The refusal of a record whose window cannot be told.
fn out_of_range(timestamp: EventTime) -> Refusal {
    let detail = format!("the window of timestamp {timestamp} ms ends beyond 64 bits");
    Refusal { reason: Reason::TsOutOfRange, detail }
}

/// What a record with a new key is told when a limit is reached.
fn over(limit: LimitExceeded) -> Refusal {
    let detail = match limit {
        LimitExceeded::Windows(most) => {
            format!("{most} windows are open, as many as limits.open_windows allows")
        }
        LimitExceeded::KeysPerWindow(most) => {
            format!("its window has {most} keys, as many as limits.keys_per_window allows")
        }
        LimitExceeded::WindowBytes(most) => {
            format!(
                "the keys of its window would take more than {most} bytes, and no window can hold more"
            )
        }
        LimitExceeded::Bytes(most) => {
            format!(
                "with this key the state would have more than the {most} bytes of limits.state_bytes"
            )
        }
    };
    Refusal { reason: Reason::KeyLimit, detail }
}

/// More than this is committed in several transactions.
const MESSAGES_PER_TRANSACTION: usize = 50_000;

/// After so many messages the clock is looked at.
const MESSAGES_PER_SLICE: usize = 5_000;

/// The longest stretch of firing before a commit comes between.
pub(super) const FIRING_PER_TRANSACTION: Duration = Duration::from_secs(5);
