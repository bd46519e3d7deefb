//! Runs the steps of a case against decoder, core and encoder, on a manual clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate::codec::changelog::Layout;
use tidegate::codec::{Decoded, Decoder, Encoded, Encoder, RawRecord};
use tidegate::config::{IntegerFormat, ResultKey, Results, TimestampFormat};
use tidegate::event_time::{
    Disposition, EventTime, MonotonicTime, Now, Output, PartitionId, ShardId, Sharding, Subtask,
    WatermarkStatus, WindowSettings,
};

use super::case_config::{aggregates, key, settings, source};
use super::case_file::{Config, Record, Rejected, Step, Sum};
use super::case_restart::Changelog;

/// When watermarks are emitted in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emission {
    /// After each record for its partition alone, as with `emit_interval = 0`, and as the clock passes each interval.
    AfterEachRecord,
    /// After each record for all partitions, and as the clock passes each interval.
    TickAfterEachRecord,
    /// As the clock passes each interval.
    ByTheClock,
    /// The same, and once more at the end.
    ByTheClockAndAtTheEnd,
}

impl Emission {
    /// Whether a step without a duration emits too.
    fn at_each_step(self) -> bool {
        matches!(self, Self::AfterEachRecord | Self::TickAfterEachRecord)
    }
}

/// A result record, or what one would say of a window that has not fired.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PaneRow {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) key: Value,
    pub(crate) count: u64,
    pub(crate) sum: Sum,
    pub(crate) timing: String,
    pub(crate) index: u32,
}

/// What came of the steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) panes: Vec<PaneRow>,
    pub(crate) late: Vec<String>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) tombstones: Vec<String>,
    pub(crate) ignored: Vec<String>,
    /// What would still fire.
    pub(crate) open: Vec<PaneRow>,
    /// All windows held, those included that have fired and wait for late records.
    pub(crate) open_windows: BTreeSet<(i64, i64)>,
    /// The (window, key) entries held; `None` where several partitions hold shares of one.
    pub(crate) open_entries: Option<usize>,
    pub(crate) watermark_after: Vec<Option<i64>>,
    /// When partitions fell idle, by partition, on the monotonic clock.
    pub(crate) idle_at: BTreeMap<i32, Vec<u64>>,
    pub(crate) records_in: u64,
    /// By logical name; `None`: no such series at present.
    pub(crate) metrics: BTreeMap<&'static str, Option<i128>>,
    /// What must never be, and was.
    pub(crate) broken: Vec<String>,
}

/// Runs a case once.
pub(crate) fn run(
    config: &Config,
    steps: &[Step],
    emission: Emission,
    sharding: Sharding,
) -> Result<Outcome, String> {
    let mut run = Run::new(config, emission, sharding)?;
    for partition in &config.partitions {
        run.assign(*partition);
    }
    for (number, step) in (1..).zip(steps) {
        let name = || format!("step {number} ({})", step.name());
        run.step(step).map_err(|fault| format!("{}: {fault}", name()))?;
        let watermark = run.subtask.watermark().map(|time| time.0);
        if watermark < run.highest && run.subtask.partitions().next().is_some() {
            let fault = format!(
                "{}: the watermark went back from {:?} to {watermark:?}",
                name(),
                run.highest
            );
            run.seen.outcome.broken.push(fault);
        }
        run.highest = watermark;
        run.seen.outcome.watermark_after.push(watermark);
    }
    if emission == Emission::ByTheClockAndAtTheEnd {
        run.tick()?;
    }
    run.finish()
}

/// The records of one window and key, for the conservation of records.
#[derive(Clone, Debug, Default)]
struct Group {
    /// With their partitions, since they leave with these.
    records: Vec<(i32, String)>,
    published: bool,
}

/// A window's start and a key as the core holds it.
type GroupId = (i64, Vec<u8>);

/// What has been seen so far, as far as a crash undoes it.
#[derive(Clone, Debug, Default)]
struct Seen {
    groups: BTreeMap<GroupId, Group>,
    /// The last pane of each shard, whose sum is the pane of the whole.
    shares: BTreeMap<GroupId, BTreeMap<ShardId, PaneRow>>,
    panes_of: BTreeMap<GroupId, u32>,
    outcome: Outcome,
}

struct Run<'c> {
    config: &'c Config,
    emission: Emission,
    sharding: Sharding,
    decoder: Decoder,
    encoder: Encoder,
    subtask: Subtask,
    changelog: Changelog,
    /// The records since the last commit, and what had been seen then.
    since_commit: Vec<Record>,
    committed: Seen,
    assigned: BTreeSet<i32>,
    monotonic_ms: u64,
    wall_ms: i64,
    /// What has passed on the idle clocks since the loop's last turn.
    since_last_turn: Duration,
    highest: Option<i64>,
    last_event_lag: Option<i128>,
    seen: Seen,
}

impl<'c> Run<'c> {
    fn new(config: &'c Config, emission: Emission, sharding: Sharding) -> Result<Self, String> {
        let (source, key, aggregates) = (source(config)?, key(config), aggregates(config));
        let format = Results {
            topic: "results".to_owned(),
            key: ResultKey::Key,
            progress: false,
            timestamps: TimestampFormat::EpochMs,
            integers: IntegerFormat::Number,
        };
        let settings = settings(config, &source, &aggregates, sharding)?;
        let WindowSettings { windows, panes, .. } = settings.window;
        let layout = Layout::new(windows, panes, &key, &aggregates);
        Ok(Self {
            config,
            emission,
            sharding,
            decoder: Decoder::new(&source, &key, &aggregates),
            encoder: Encoder::new(&key, &aggregates, &format),
            subtask: Subtask::new(settings.clone()),
            changelog: Changelog::new(settings, layout),
            since_commit: Vec::new(),
            committed: Seen::default(),
            assigned: BTreeSet::new(),
            monotonic_ms: 0,
            wall_ms: config.wall_start_ms,
            since_last_turn: Duration::ZERO,
            highest: None,
            last_event_lag: None,
            seen: Seen::default(),
        })
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Record(record) => {
                self.since_commit.push(record.clone());
                return self.record(record);
            }
            Step::Advance(ms) => return self.advance(*ms),
            Step::Blocked(ms) => {
                // The loop comes back after a block of any length; its turn counts at most one interval.
                self.pass(*ms);
                if self.emission != Emission::TickAfterEachRecord {
                    self.since_last_turn += Duration::from_millis(*ms);
                }
                return Ok(());
            }
            Step::WallJump(ms) => self.wall_ms = self.wall_ms.saturating_add(*ms),
            Step::Assign(partitions) => partitions.iter().for_each(|p| self.assign(*p)),
            Step::Revoke(partitions) => partitions.iter().for_each(|p| self.revoke(*p)),
            Step::Commit => self.commit(),
            Step::Stop => {
                self.commit();
                self.restart()?;
            }
            Step::Crash => self.crash()?,
        }
        if self.emission.at_each_step() { self.tick() } else { Ok(()) }
    }

    fn assign(&mut self, partition: i32) {
        self.assigned.insert(partition);
        self.subtask.assign(id(partition), None);
    }

    /// The partition's windows leave with it, and with the last one the watermark.
    fn revoke(&mut self, partition: i32) {
        self.assigned.remove(&partition);
        self.subtask.revoke(id(partition));
        for group in self.seen.groups.values_mut() {
            group.records.retain(|(from, _)| *from != partition);
        }
        self.seen.groups.retain(|_, group| !group.records.is_empty());
        for shares in self.seen.shares.values_mut() {
            shares.remove(&ShardId::Partition(id(partition)));
        }
    }

    fn partitions(&self) -> BTreeSet<PartitionId> {
        self.assigned.iter().map(|partition| id(*partition)).collect()
    }

    fn commit(&mut self) {
        let partitions = self.partitions();
        self.changelog.commit(&mut self.subtask, &partitions);
        self.committed = self.seen.clone();
        self.since_commit.clear();
    }

    fn restart(&mut self) -> Result<(), String> {
        let partitions = self.partitions();
        self.subtask = self.changelog.restart(&partitions)?;
        self.publish()
    }

    /// Undoes what came of the records since the last commit, and reads them again in a new process.
    fn crash(&mut self) -> Result<(), String> {
        let watermark_after = std::mem::take(&mut self.seen.outcome.watermark_after);
        self.seen = self.committed.clone();
        self.seen.outcome.watermark_after = watermark_after;
        self.highest = None;
        self.restart()?;
        for record in self.since_commit.clone() {
            self.record(&record)?;
        }
        Ok(())
    }

    /// Both clocks run.
    fn pass(&mut self, ms: u64) {
        self.monotonic_ms += ms;
        self.wall_ms = self.wall_ms.saturating_add_unsigned(ms);
    }

    fn advance(&mut self, ms: u64) -> Result<(), String> {
        let interval = self.config.emit_interval_ms.max(1);
        let end = self.monotonic_ms + ms;
        while self.monotonic_ms < end {
            let next = (self.monotonic_ms / interval + 1) * interval;
            let passes = next.min(end) - self.monotonic_ms;
            self.pass(passes);
            self.since_last_turn += Duration::from_millis(passes);
            if self.monotonic_ms == next {
                self.tick()?;
            }
        }
        Ok(())
    }

    /// A turn of the loop: the idle clocks run by what has passed, at most by one interval.
    fn turn(&mut self) -> Now {
        let interval = Duration::from_millis(self.config.emit_interval_ms);
        self.subtask.run_idle_clocks(self.since_last_turn.min(interval));
        self.since_last_turn = Duration::ZERO;
        Now {
            monotonic: MonotonicTime(Duration::from_millis(self.monotonic_ms)),
            wall: EventTime(self.wall_ms),
        }
    }

    fn tick(&mut self) -> Result<(), String> {
        let now = self.turn();
        self.subtask.on_periodic_emit(now);
        self.publish()
    }

    fn record(&mut self, record: &Record) -> Result<(), String> {
        self.seen.outcome.records_in += 1;
        let accepted = self.judge(record)?;
        self.publish()?;
        match self.emission {
            Emission::AfterEachRecord if accepted => {
                let now = self.turn();
                self.subtask.on_record_emit(id(record.partition), now);
                self.publish()
            }
            Emission::TickAfterEachRecord => self.tick(),
            Emission::AfterEachRecord | Emission::ByTheClock | Emission::ByTheClockAndAtTheEnd => {
                Ok(())
            }
        }
    }

    /// Whether the record counts as activity.
    fn judge(&mut self, record: &Record) -> Result<bool, String> {
        let raw = RawRecord {
            key: record.key.as_ref().map(String::as_bytes),
            payload: record.payload.as_deref(),
            timestamp: record.kafka_timestamp_ms,
            timestamp_header: None,
        };
        let decoded = self.decoder.decode(raw, EventTime(self.wall_ms));
        let record_id = record.id.clone();
        if !self.assigned.contains(&record.partition) {
            if let Ok(Decoded::Event(event)) = decoded {
                let disposition = self.subtask.on_event(id(record.partition), &event);
                if disposition != Disposition::NotAssigned {
                    return Err(format!(
                        "a record of a partition that is not assigned: {disposition:?}"
                    ));
                }
            }
            self.seen.outcome.ignored.push(record_id);
            return Ok(false);
        }
        let event = match decoded {
            Ok(Decoded::Event(event)) => event,
            Ok(Decoded::Heartbeat(_)) => return Err("a heartbeat in a case without any".to_owned()),
            Ok(Decoded::Tombstone) => {
                self.seen.outcome.tombstones.push(record_id);
                return Ok(false);
            }
            Err(refusal) => {
                let reason = refusal.reason.name().to_owned();
                self.seen.outcome.rejected.push(Rejected { id: record_id, reason });
                return Ok(false);
            }
        };
        match self.subtask.on_event(id(record.partition), &event) {
            Disposition::Windowed | Disposition::Refired => {
                let start = window_start(event.timestamp.0, self.config);
                let group = self.seen.groups.entry((start, event.key.to_vec())).or_default();
                group.records.push((record.partition, record_id));
            }
            Disposition::Late(_) => self.seen.outcome.late.push(record_id),
            Disposition::TimestampOutOfRange => {
                let reason = "ts_out_of_range".to_owned();
                self.seen.outcome.rejected.push(Rejected { id: record_id, reason });
                return Ok(false);
            }
            Disposition::KeyLimit(limit) => return Err(format!("no limit is set: {limit:?}")),
            Disposition::NotAssigned => {
                return Err("its partition is assigned, and the core says it is not".to_owned());
            }
        }
        self.last_event_lag = Some(i128::from(self.wall_ms) - i128::from(event.timestamp.0));
        Ok(true)
    }

    /// Takes the core's outputs; the panes go to the results.
    fn publish(&mut self) -> Result<(), String> {
        for (group_id, pane) in self.take_outputs()? {
            let group = self.seen.groups.entry(group_id).or_default();
            group.published = true;
            if group.records.len() as u64 != pane.count {
                let fault = format!("a pane of {} records: {pane:?}", group.records.len());
                self.seen.outcome.broken.push(fault);
            }
            self.seen.outcome.panes.push(pane);
        }
        Ok(())
    }

    /// One pane per window and key, the partitions' shares added.
    fn take_outputs(&mut self) -> Result<Vec<(GroupId, PaneRow)>, String> {
        let mut fired: Vec<(GroupId, String)> = Vec::new();
        let mut encoded = Encoded::default();
        while let Some(output) = self.subtask.poll_output() {
            match output {
                Output::StatusChanged(partition, WatermarkStatus::Idle) => {
                    let times = self.seen.outcome.idle_at.entry(partition.partition).or_default();
                    times.push(self.monotonic_ms);
                }
                Output::WatermarkAdvanced(_)
                | Output::StatusChanged(_, WatermarkStatus::Active) => {}
                Output::Fired(pane) => {
                    self.encoder.result(&pane, "events", &mut encoded);
                    let row = PaneRow::read(&encoded.value)?;
                    let group_id = (pane.window.start.0, pane.key.to_vec());
                    let shares = self.seen.shares.entry(group_id.clone()).or_default();
                    let due = shares.get(&pane.shard).map_or(0, |before| before.index + 1);
                    if row.index != due {
                        self.seen
                            .outcome
                            .broken
                            .push(format!("pane {due} is missing before {row:?}"));
                    }
                    if !fired.iter().any(|(fired, _)| *fired == group_id) {
                        fired.push((group_id, row.timing.clone()));
                    }
                    shares.insert(pane.shard, row);
                }
            }
        }
        let mut rows = Vec::new();
        for (group_id, timing) in fired {
            let shares = self.seen.shares.get(&group_id).into_iter().flat_map(BTreeMap::values);
            let whole = shares.cloned().reduce(|a, b| PaneRow {
                count: a.count + b.count,
                sum: a.sum.plus(b.sum),
                ..b
            });
            let mut whole = whole.ok_or("a pane without shares")?;
            let index = self.seen.panes_of.entry(group_id.clone()).or_default();
            whole.index = *index;
            *index += 1;
            whole.timing = timing;
            rows.push((group_id, whole));
        }
        Ok(rows)
    }

    /// Looks at what is held, then drains it.
    fn finish(mut self) -> Result<Outcome, String> {
        self.metrics();
        self.seen.outcome.open_windows = self
            .subtask
            .open_windows()
            .into_iter()
            .map(|window| (window.start.0, window.end.0))
            .collect();
        self.seen.outcome.open_entries =
            (self.sharding == Sharding::OneForAll).then(|| self.subtask.open_panes());
        self.subtask.drain();
        for (group_id, pane) in self.take_outputs()? {
            let group = self.seen.groups.entry(group_id).or_default();
            if group.published || group.records.len() as u64 != pane.count {
                let fault = format!("an open window of {group:?}: {pane:?}");
                self.seen.outcome.broken.push(fault);
            }
            group.published = true;
            self.seen.outcome.open.push(pane);
        }
        for ((start, _), group) in self.seen.groups.iter().filter(|(_, group)| !group.published) {
            let fault = format!("in no pane and no open window {start}: {:?}", group.records);
            self.seen.outcome.broken.push(fault);
        }
        Ok(self.seen.outcome)
    }

    fn metrics(&mut self) {
        let outcome = &self.seen.outcome;
        let count = |count: usize| i128::try_from(count).ok();
        let panes = |timing: &str| outcome.panes.iter().filter(|p| p.timing == timing).count();
        let watermark = self.subtask.watermark().map(|time| i128::from(time.0));
        let lag = watermark.map(|watermark| i128::from(self.wall_ms) - watermark);
        let oldest = self.subtask.open_windows().first().map(|window| i128::from(window.start.0));
        let idle = self.subtask.partitions().filter(|p| p.status == WatermarkStatus::Idle).count();
        let metrics = [
            ("watermark_ms", watermark),
            ("watermark_lag_ms", lag),
            ("last_record_event_lag_ms", self.last_event_lag),
            ("open_windows", count(self.subtask.open_windows().len())),
            ("open_panes", count(self.subtask.open_panes())),
            ("oldest_open_window_ms", oldest),
            ("assigned_partitions", count(self.assigned.len())),
            ("idle_partitions", count(idle)),
            ("watermark_holder", self.subtask.holder().map(|id| i128::from(id.partition))),
            ("idle_transitions_total", count(outcome.idle_at.values().map(Vec::len).sum())),
            ("records_in_total", Some(outcome.records_in.into())),
            ("records_late_total", count(outcome.late.len())),
            ("records_rejected_total", count(outcome.rejected.len())),
            ("records_tombstone_total", count(outcome.tombstones.len())),
            ("records_ignored_total", count(outcome.ignored.len())),
            ("panes_total", count(outcome.panes.len())),
            ("panes_on_time_total", count(panes("on_time"))),
            ("panes_late_total", count(panes("late"))),
        ];
        self.seen.outcome.metrics = metrics.into_iter().collect();
    }
}

impl PaneRow {
    /// Reads a result record back.
    fn read(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Row {
            window_start: i64,
            window_end: i64,
            key: Value,
            count: u64,
            sum: Box<RawValue>,
            pane: PaneInfo,
        }
        #[derive(Deserialize)]
        struct PaneInfo {
            timing: String,
            index: u32,
        }
        let fault = |error: &dyn std::fmt::Display| {
            format!("the result record {}: {error}", String::from_utf8_lossy(json))
        };
        let row: Row = serde_json::from_slice(json).map_err(|error| fault(&error))?;
        Ok(Self {
            start: row.window_start,
            end: row.window_end,
            key: row.key,
            count: row.count,
            sum: Sum::read(&row.sum).map_err(|error| fault(&error))?,
            timing: row.pane.timing,
            index: row.pane.index,
        })
    }
}

fn id(partition: i32) -> PartitionId {
    PartitionId { topic: 0, partition }
}

/// Worked out here once more: timestamp - floormod(timestamp - offset, size).
fn window_start(timestamp: i64, config: &Config) -> i64 {
    let since_offset = i128::from(timestamp) - i128::from(config.window_offset_ms);
    let start = i128::from(timestamp) - since_offset.rem_euclid(i128::from(config.window_ms));
    i64::try_from(start).unwrap_or(i64::MIN)
}

/// A key of a result as plain text, for cases that write every key as text.
pub(crate) fn key_text(key: &Value) -> String {
    key.as_str().map_or_else(|| key.to_string(), str::to_owned)
}
