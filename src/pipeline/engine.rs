//! What happens to one record, and to what the core says of it; everything but reading and the schedule.

use std::collections::BTreeMap;
use std::time::Duration;

use super::edge::{InputRecord, Progress, SinkError, TransactionalSink};
use super::message::{Message, OutputTopic};
use super::outbox::Outbox;
use crate::codec::{
    Decoded, Decoder, Encoded, Encoder, RawRecord, Reason, Refusal, partition_name,
};
use crate::config::Config;
use crate::event_time::{
    Disposition, EventTime, LateCause, LimitExceeded, MonotonicTime, Now, Output, Pane,
    PartitionId, ShardId, Sharding, Subtask, SubtaskSettings, Timing, TopicSettings, Watermark,
    WatermarkStatus, WindowSettings,
};
use crate::insight::{FiredWindow, PartitionSnapshot, Phase, Snapshot, Tally};
use crate::recovery::{Recovered, Recovery};

/// Decodes, judges, aggregates, encodes and sends; counts what became of it.
#[derive(Debug)]
pub(super) struct Engine<K> {
    pub(super) sink: K,
    pub(super) outbox: Outbox,
    pub(super) subtask: Subtask,
    pub(super) tally: Tally,
    pub(super) recovery: Recovery,
    decoders: Vec<Decoder>,
    encoder: Encoder,
    encoded: Encoded,
    topics: Vec<String>,
    progress: Option<ProgressRecords>,
    /// Whether an on-time pane was sent since the last commit.
    pub(super) fired_on_time: bool,
    recent: Vec<FiredWindow>,
    watermark_advanced: bool,
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
    /// So many panes that a commit must come first.
    Slice,
}

impl<K: TransactionalSink> Engine<K> {
    pub(super) fn new(config: &Config, sink: K) -> Self {
        let decoder = |source| Decoder::new(source, &config.key, &config.aggregates, config.guard);
        Self {
            sink,
            outbox: Outbox::default(),
            subtask: Subtask::new(subtask_settings(config)),
            tally: Tally::default(),
            recovery: Recovery::default(),
            decoders: config.sources.iter().map(decoder).collect(),
            encoder: Encoder::new(&config.key, &config.aggregates, &config.results),
            encoded: Encoded::default(),
            topics: config.sources.iter().map(|source| source.topic.clone()).collect(),
            progress: config.results.progress.then(ProgressRecords::default),
            fired_on_time: false,
            recent: Vec::new(),
            watermark_advanced: false,
            windows_counted: 0,
            regressions_counted: 0,
            emit_after_each_record: config.emit_interval.is_zero(),
        }
    }

    /// Takes in one record.
    pub(super) fn on_record(
        &mut self,
        record: &impl InputRecord,
        now: Now,
    ) -> Result<(), SinkError> {
        let id = record.partition();
        let topic = usize::from(id.topic);
        let (Some(decoder), Some(topic_name)) =
            (self.decoders.get_mut(topic), self.topics.get(topic))
        else {
            return Ok(());
        };
        let tally = self.tally.partition(id);
        tally.records += 1;
        tally.bytes += record.payload().map_or(0, |payload| payload.len() as u64);
        let raw = RawRecord {
            key: record.key(),
            payload: record.payload(),
            timestamp: record.timestamp(),
            timestamp_header: decoder.timestamp_header().and_then(|name| record.header(name)),
        };
        let message = match decoder.decode(raw, now.wall) {
            Ok(Decoded::Tombstone) => {
                tally.tombstones += 1;
                return Ok(());
            }
            Ok(Decoded::Event(event)) => match self.subtask.on_event(id, &event) {
                Disposition::Windowed => None,
                Disposition::Refired => {
                    tally.refired += 1;
                    None
                }
                Disposition::Late(lateness) => {
                    tally.late_of(lateness.cause);
                    Some(Message::late(record, topic_name, event.timestamp, &lateness))
                }
                Disposition::NotAssigned => {
                    tally.ignored += 1;
                    None
                }
                Disposition::KeyLimit(limit) => {
                    let refusal = Refusal { reason: Reason::KeyLimit, detail: over(limit) };
                    self.tally.dead_letter(id.topic, refusal.reason);
                    Some(Message::dead_letter(record, topic_name, &refusal))
                }
                Disposition::TimestampOutOfRange => {
                    let detail = format!(
                        "the window of timestamp {} ms ends beyond 64 bits",
                        event.timestamp
                    );
                    let refusal = Refusal { reason: Reason::TsOutOfRange, detail };
                    self.tally.dead_letter(id.topic, refusal.reason);
                    Some(Message::dead_letter(record, topic_name, &refusal))
                }
            },
            Err(refusal) => {
                self.tally.dead_letter(id.topic, refusal.reason);
                Some(Message::dead_letter(record, topic_name, &refusal))
            }
        };
        if self.emit_after_each_record
            && message.as_ref().is_none_or(|message| message.to == OutputTopic::Late)
        {
            self.subtask.on_record_emit(id, now);
        }
        match message {
            Some(message) => self.send(message, now.wall),
            None => Ok(()),
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
        self.tally.watermark_regressions +=
            self.subtask.regressions_suppressed() - self.regressions_counted;
        self.regressions_counted = self.subtask.regressions_suppressed();
    }

    /// Sends what the core has to say, up to a transaction's worth.
    pub(super) fn deliver(&mut self, now: Now) -> Result<Delivered, SinkError> {
        while !self.outbox.is_full() {
            let Some(output) = self.subtask.poll_output() else {
                self.tally.windows_freed += self.subtask.windows_freed() - self.windows_counted;
                self.windows_counted = self.subtask.windows_freed();
                if std::mem::take(&mut self.watermark_advanced) {
                    self.write_progress()?;
                }
                return Ok(Delivered::All);
            };
            let message = match output {
                Output::WatermarkAdvanced(_) => {
                    self.watermark_advanced = true;
                    continue;
                }
                Output::StatusChanged(id, status) => {
                    let tally = self.tally.partition(id);
                    match status {
                        WatermarkStatus::Idle => tally.to_idle += 1,
                        WatermarkStatus::Active => tally.to_active += 1,
                    }
                    let (topic, partition) = (self.topics.get(usize::from(id.topic)), id.partition);
                    tracing::info!(topic, partition, ?status, "partition changed its status");
                    continue;
                }
                Output::Fired(pane) => {
                    remember(&mut self.recent, &pane, now.wall);
                    self.tally.pane(pane.timing);
                    self.fired_on_time |= pane.timing == Timing::OnTime;
                    self.encoder.result(&pane, &mut self.encoded);
                    Message::result(&self.encoded, &pane)
                }
            };
            self.send(message, now.wall)?;
        }
        Ok(Delivered::Slice)
    }

    /// Makes a message fit its topic, sends it, and keeps it until the commit.
    fn send(&mut self, mut message: Message, wall: EventTime) -> Result<(), SinkError> {
        let limits = self.sink.limits(message.to);
        self.tally.timestamps_replaced += u64::from(message.fit_timestamp(limits, wall));
        let message = fit_size(message, &self.sink, &mut self.tally);
        self.outbox.send(message, &mut self.sink)
    }

    /// After a commit.
    pub(super) fn committed(&mut self) {
        self.recovery.committed();
        self.discard();
    }

    /// Forgets what was sent since the last commit, and its counts.
    pub(super) fn discard(&mut self) {
        self.outbox.clear();
        self.tally = Tally::default();
        self.fired_on_time = false;
    }

    /// Notes a failed write, for [`Self::recover`]. `Err`: it cannot be mended.
    pub(super) fn note(&mut self, error: SinkError) -> Result<(), String> {
        self.recovery.note(error, &self.outbox, &self.sink)
    }

    /// Undoes what has to be undone.
    pub(super) fn undo(&mut self, sequence: u64) -> Result<Recovered, SinkError> {
        self.recovery.undo(&mut self.outbox, &mut self.sink, sequence)
    }

    /// Undoes what has to be undone and sends everything again.
    pub(super) fn recover(&mut self, sequence: u64) -> Result<Recovered, SinkError> {
        let tally = &mut self.tally;
        let fit = |message, sink: &K| fit_size(message, sink, tally);
        self.recovery.attempt(&mut self.outbox, &mut self.sink, sequence, fit)
    }

    /// Tells each partition of the results topic which windows are complete, once a shard's clock has passed an end.
    fn write_progress(&mut self) -> Result<(), SinkError> {
        let Some(progress) = &mut self.progress else { return Ok(()) };
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
                self.outbox.keep(message);
            }
        }
        // All of them are kept before the first is sent: what fails is sent again, what was not kept would be lost.
        self.outbox.send_rest(&mut self.sink)
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
                caught_up: progress.is_some_and(|progress| progress.caught_up),
                position: progress.map(|progress| progress.position),
                end_offset: progress.and_then(|progress| progress.end_offset),
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
            state_bytes: 0,
            restoring: Vec::new(),
            recent: self.recent.clone(),
            last_commit,
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

/// What a record with a new key is told when a limit is reached.
fn over(limit: LimitExceeded) -> String {
    match limit {
        LimitExceeded::Windows(most) => {
            format!("{most} windows are open, as many as limits.open_windows allows")
        }
        LimitExceeded::KeysPerWindow(most) => {
            format!("its window has {most} keys, as many as limits.keys_per_window allows")
        }
        LimitExceeded::Bytes(most) => {
            format!(
                "with this key the state would have more than the {most} bytes of limits.state_bytes"
            )
        }
    }
}

fn subtask_settings(config: &Config) -> SubtaskSettings {
    let topic = |source: &crate::config::Source| TopicSettings {
        strategy: source.strategy.clone(),
        idle_timeout: source.idle_timeout,
    };
    let by_message_key = config.key.from == crate::config::KeyFrom::Message;
    SubtaskSettings {
        topics: config.sources.iter().map(topic).collect(),
        window: WindowSettings {
            windows: config.windows,
            allowed_lateness: config.allowed_lateness,
            panes: config.panes,
            aggregates: config.aggregates.iter().map(|aggregate| aggregate.function).collect(),
            limits: config.limits,
        },
        sharding: if by_message_key || config.key.partial {
            Sharding::PerPartition
        } else {
            Sharding::OneForAll
        },
        all_idle: config.all_idle,
    }
}

/// The longest stretch of firing before a commit comes between.
pub(super) const FIRING_PER_TRANSACTION: Duration = Duration::from_secs(5);
