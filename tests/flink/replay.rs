//! Runs one recorded scenario against a [`Subtask`] and compares step by step.
#![expect(clippy::panic, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tidegate::event_time::{
    AggregateFunction, AggregateValue, AllIdle, Disposition, Event, EventTime, Marker,
    MonotonicTime, Now, Output, Pane, Panes, PartitionId, Sharding, StateLimits, Subtask,
    SubtaskSettings, TopicSettings, TumblingWindows, Value, WatermarkStatus, WatermarkStrategy,
    WindowSettings,
};

use super::Rule;
use super::trace::{
    Accumulation, Action, Config, Entry, Generator, Scenario, Step, TracedEvent, TracedPane,
};

/// What a comparison made use of; a scenario that was cut short ends with the rule that did it.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    pub(crate) steps: usize,
    pub(crate) rules: BTreeSet<Rule>,
}

/// Compares a scenario; the error tells scenario, step, and both sides.
pub(crate) fn compare(scenario: &Scenario) -> Result<Compared, String> {
    let mut replay = Replay::new(&scenario.config);
    let mut compared = Compared::default();
    for (number, step) in scenario.trace.iter().enumerate() {
        let mismatch = |expected: &dyn fmt::Display, got: &dyn fmt::Display| {
            let (name, action) = (&scenario.name, &step.action);
            format!(
                "{name}, step {number}: {action:?}\n  expected:\n{expected}  got:\n{got}  trace: {:?}",
                step.out
            )
        };
        let Some(got) = replay.step(step) else {
            compared.rules.insert(Rule::TimestampOutOfRange);
            return Ok(compared);
        };
        let expected = replay.expected(step, &mut compared.rules);
        if expected != got {
            return Err(mismatch(&expected, &got));
        }
        compared.steps += 1;
    }
    Ok(compared)
}

/// What a step brought about, as text.
#[derive(Debug, Default, PartialEq)]
struct Observed {
    /// One for the step itself, one for each tick in it.
    segments: Vec<Segment>,
    watermark: Option<EventTime>,
    open: Option<usize>,
}

#[derive(Debug, PartialEq)]
struct Segment {
    label: String,
    /// Of the partitions, without an order among them.
    partitions: BTreeSet<String>,
    /// Of the records and windows, in order.
    facts: Vec<String>,
}

impl Observed {
    fn begin(&mut self, label: impl Into<String>) -> &mut Segment {
        self.segments.push(Segment {
            label: label.into(),
            partitions: BTreeSet::new(),
            facts: Vec::new(),
        });
        self.current()
    }

    fn current(&mut self) -> &mut Segment {
        self.segments.last_mut().unwrap_or_else(|| panic!("a step begins with a segment"))
    }

    fn fact(&mut self, fact: String) {
        self.current().facts.push(fact);
    }

    fn without_silent_ticks(mut self) -> Self {
        self.segments.retain(|segment| segment.partitions.len() + segment.facts.len() > 0);
        self
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Segment { label, partitions, facts } in &self.segments {
            writeln!(f, "    {label}")?;
            for line in partitions.iter().chain(facts) {
                writeln!(f, "      {line}")?;
            }
        }
        writeln!(f, "    watermark after it {:?}, open {:?}", self.watermark, self.open)
    }
}

/// The subtask with what surrounds it: processing time, backpressure and pauses.
struct Replay<'a> {
    config: &'a Config,
    subtask: Subtask,
    now: u64,
    backpressure: bool,
    pauses: BTreeMap<i32, u32>,
    ledger: Ledger,
}

impl<'a> Replay<'a> {
    fn new(config: &'a Config) -> Self {
        let mut subtask = Subtask::new(settings(config));
        for number in config.subtasks.iter().flatten() {
            subtask.assign(partition(*number), None);
        }
        let (pauses, ledger) = (BTreeMap::new(), Ledger::default());
        Self { config, subtask, now: 0, backpressure: false, pauses, ledger }
    }

    /// What the step does here; `None` if its record was refused for its timestamp.
    fn step(&mut self, step: &Step) -> Option<Observed> {
        let mut observed = Observed::default();
        observed.begin("the step itself");
        let ends = matches!(step.action, Action::End { .. });
        match &step.action {
            Action::Event { event } => self.event(event, &mut observed)?,
            Action::Advance { advance_ms } => self.advance(*advance_ms, &mut observed),
            Action::Emit { emit: _ } => self.emit(&mut observed),
            Action::AddPartition { add_partition: number } => {
                self.subtask.assign(partition(*number), None);
            }
            Action::RemovePartition { remove_partition: number } => {
                self.pauses.remove(number);
                self.subtask.retire(partition(*number));
            }
            Action::PausePartition { pause_partition: number } => self.pause(*number, true),
            Action::ResumePartition { resume_partition: number } => self.pause(*number, false),
            Action::Backpressure { backpressure } => self.backpressure = backpressure.on,
            Action::End { end: _ } => self.subtask.drain(),
            Action::Restart { restart: _ } => panic!("scenarios with restarts are not run"),
        }
        self.take_outputs(&mut observed);
        assert_eq!(self.now, step.now, "the harness keeps the same processing time");
        observed.watermark = self.subtask.watermark();
        let comparable = self.config.accumulation == Accumulation::Accumulate && !ends;
        observed.open = comparable.then(|| self.subtask.open_panes());
        Some(observed.without_silent_ticks())
    }

    fn event(&mut self, event: &TracedEvent, observed: &mut Observed) -> Option<()> {
        let before = self.partition_watermarks();
        let values = [Some(Value::Integer(event.value)); 4];
        let disposition = self.subtask.on_event(
            partition(event.partition),
            &Event {
                marker: event.wm.map(|wm| Marker::Time(EventTime(wm))),
                ..Event::new(EventTime(event.ts), event.key.as_bytes(), &values)
            },
        );
        let window = window_of(self.config, event.ts);
        match disposition {
            Disposition::TimestampOutOfRange => {
                assert_eq!(window, None, "refused, though its window is in range: {event:?}");
                return None;
            }
            Disposition::KeyLimit(limit) => panic!("no limit is set: {limit:?}"),
            Disposition::NotAssigned => panic!("a scenario sends to its own partitions only"),
            Disposition::Windowed | Disposition::Refired => observed.fact(forwarded(event.ts)),
            Disposition::Late(lateness) => {
                observed.fact(forwarded(event.ts));
                let watermark = lateness.watermark.0.0;
                observed.fact(late(&event.key, event.ts, event.value, watermark));
            }
        }
        assert!(window.is_some(), "taken, though its window is out of range: {event:?}");
        self.take_outputs(observed);
        self.note_partition_watermarks(&before, observed);
        if self.config.auto_watermark_interval_ms == Some(0) {
            self.emit(observed);
        }
        Some(())
    }

    /// Moves processing time; a tick at each multiple of the interval.
    fn advance(&mut self, advance_ms: u64, observed: &mut Observed) {
        let target = self.now + advance_ms;
        if let Some(interval @ 1..) = self.config.auto_watermark_interval_ms {
            loop {
                let tick = (self.now / interval + 1) * interval;
                if tick > target {
                    break;
                }
                self.run_clocks_to(tick);
                observed.begin(format!("tick {tick}"));
                self.emit(observed);
            }
        }
        self.run_clocks_to(target);
    }

    fn run_clocks_to(&mut self, time: u64) {
        if !self.backpressure {
            self.subtask.run_idle_clocks(Duration::from_millis(time - self.now));
        }
        self.now = time;
    }

    fn emit(&mut self, observed: &mut Observed) {
        let before = self.partition_watermarks();
        self.subtask.on_periodic_emit(Now {
            monotonic: MonotonicTime(Duration::from_millis(self.now)),
            wall: EventTime(0),
        });
        self.take_outputs(observed);
        self.note_partition_watermarks(&before, observed);
    }

    fn pause(&mut self, number: i32, pause: bool) {
        let pauses = self.pauses.entry(number).or_default();
        *pauses = if pause { *pauses + 1 } else { pauses.saturating_sub(1) };
        self.subtask.hold_idle_clock(partition(number), *pauses > 0);
    }

    fn partition_watermarks(&self) -> BTreeMap<i32, Option<EventTime>> {
        self.subtask.partitions().map(|view| (view.id.partition, view.watermark)).collect()
    }

    fn note_partition_watermarks(
        &self,
        before: &BTreeMap<i32, Option<EventTime>>,
        observed: &mut Observed,
    ) {
        for (number, watermark) in self.partition_watermarks() {
            if let Some(time) = watermark
                && before.get(&number) != Some(&watermark)
            {
                observed.current().partitions.insert(partition_watermark(number, time.0));
            }
        }
    }

    fn take_outputs(&mut self, observed: &mut Observed) {
        while let Some(output) = self.subtask.poll_output() {
            match output {
                Output::Fired(pane) => observed.fact(pane_text(&read_pane(&pane))),
                Output::WatermarkAdvanced(watermark) => {
                    observed.fact(combined_watermark(watermark.0.0));
                }
                Output::StatusChanged(id, status) => {
                    let status = match status {
                        WatermarkStatus::Active => "ACTIVE",
                        WatermarkStatus::Idle => "IDLE",
                    };
                    observed.current().partitions.insert(partition_status(id.partition, status));
                }
            }
        }
    }

    /// What the trace says of the step, but for the rules that stand in [`Rule`].
    fn expected(&mut self, step: &Step, rules: &mut BTreeSet<Rule>) -> Observed {
        let ends = matches!(step.action, Action::End { .. });
        let mut expected = Observed::default();
        let mut panes_at_end = Vec::new();
        expected.begin("the step itself");
        for entry in &step.out {
            match entry {
                Entry::Tick { now } => {
                    expected.begin(format!("tick {now}"));
                }
                Entry::Forward { ts } => expected.fact(forwarded(*ts)),
                Entry::Late { key, ts, value, watermark } => {
                    expected.fact(late(key, *ts, *value, *watermark));
                }
                Entry::Pane(pane) if ends => panes_at_end.push(pane.clone()),
                Entry::Pane(pane) => expected.fact(pane_text(pane)),
                Entry::PartitionWatermark { partition, watermark } => {
                    expected
                        .current()
                        .partitions
                        .insert(partition_watermark(*partition, *watermark));
                }
                Entry::PartitionStatus { partition, status } => {
                    expected.current().partitions.insert(partition_status(*partition, status));
                }
                Entry::Watermark { watermark } if !ends => {
                    expected.fact(combined_watermark(*watermark));
                }
                // Said of the subtask and of the one valve behind it, which are the same here.
                Entry::SubtaskWatermark | Entry::Watermark { .. } => {}
                Entry::SubtaskStatus | Entry::Status => {
                    rules.insert(Rule::AnnouncedStatus);
                }
                Entry::EndWatermarkDropped => {
                    rules.insert(Rule::EndWhileIdle);
                }
                Entry::Lost | Entry::Fatal => {
                    expected.fact("no window can be given to this record".to_owned());
                }
            }
        }
        self.ledger.note(self.config, step);
        expected.watermark = (step.wm != i64::MIN).then_some(EventTime(step.wm));
        if ends {
            rules.insert(Rule::ClockAfterDrain);
            self.expect_drain(&panes_at_end, &mut expected);
        } else if self.config.accumulation == Accumulation::Accumulate {
            expected.open = Some(step.open);
        }
        expected.without_silent_ticks()
    }

    /// Every window that has not fired does, and the clock goes to the last one's end - 1 and no further. Where Flink
    /// fires them too, it must be the same ones.
    fn expect_drain(&self, traced: &[TracedPane], expected: &mut Observed) {
        let unfired = self.ledger.unfired(self.config);
        let contents = |panes: &[TracedPane]| {
            let panes = panes.iter().map(|pane| TracedPane { watermark: 0, ..pane.clone() });
            panes.map(|pane| pane_text(&pane)).collect::<Vec<_>>()
        };
        if !traced.is_empty() {
            assert_eq!(contents(&unfired), contents(traced), "the ledger knows what is open");
        }
        let before = self.ledger.watermark.filter(|before| *before != i64::MIN);
        let last = unfired.iter().map(|pane| pane.end - 1).max();
        for pane in &unfired {
            let watermark = last.unwrap_or(i64::MIN);
            expected.fact(pane_text(&TracedPane { watermark, ..pane.clone() }));
        }
        if let Some(last) = last {
            expected.current().facts.insert(0, combined_watermark(last));
        }
        expected.watermark = last.or(before).map(EventTime);
    }
}

/// What was given to windows and has not fired, by the trace alone.
#[derive(Default)]
struct Ledger {
    /// By window start and key: the values so far, and whether a pane came.
    windows: BTreeMap<(i64, String), (Vec<i64>, bool)>,
    watermark: Option<i64>,
}

impl Ledger {
    fn note(&mut self, config: &Config, step: &Step) {
        let judged_late = step.out.iter().any(|entry| matches!(entry, Entry::Late { .. }));
        if let Action::Event { event } = &step.action
            && !judged_late
            && let Some((start, _)) = window_of(config, event.ts)
        {
            let (values, _) = self.windows.entry((start, event.key.clone())).or_default();
            values.push(event.value);
        }
        if matches!(step.action, Action::End { .. }) {
            return;
        }
        self.watermark = Some(step.wm);
        for entry in &step.out {
            if let Entry::Pane(pane) = entry
                && let Some((_, fired)) = self.windows.get_mut(&(pane.start, pane.key.clone()))
            {
                *fired = true;
            }
        }
    }

    fn unfired(&self, config: &Config) -> Vec<TracedPane> {
        let unfired = self.windows.iter().filter(|(_, (_, fired))| !fired);
        let pane = |((start, key), (values, _)): (&(i64, String), &(Vec<i64>, bool))| {
            let values = || values.iter().copied();
            TracedPane {
                key: key.clone(),
                start: *start,
                end: start + config.window_ms,
                count: values().map(|_| 1).sum(),
                sum: values().sum(),
                min: values().min().unwrap_or(0),
                max: values().max().unwrap_or(0),
                watermark: i64::MIN,
            }
        };
        unfired.map(pane).collect()
    }
}

fn settings(config: &Config) -> SubtaskSettings {
    let strategy = match config.generator {
        Generator::Ascending => WatermarkStrategy::AscendingTimestamps,
        Generator::Punctuated => WatermarkStrategy::Punctuated,
        Generator::Bounded => WatermarkStrategy::BoundedOutOfOrderness {
            max_out_of_orderness: Duration::from_millis(config.out_of_orderness_ms),
        },
    };
    let size = Duration::from_millis(config.window_ms.unsigned_abs());
    let windows = TumblingWindows::new(size, config.offset_ms)
        .unwrap_or_else(|| panic!("{config:?} has windows"));
    SubtaskSettings {
        topics: vec![TopicSettings {
            strategy,
            idle_timeout: config.idle_timeout_ms.map(Duration::from_millis),
        }],
        window: WindowSettings {
            windows,
            allowed_lateness: Duration::from_millis(config.allowed_lateness_ms),
            panes: match config.accumulation {
                Accumulation::Accumulate => Panes::Accumulating,
                Accumulation::Purge => Panes::Discarding,
            },
            aggregates: vec![
                AggregateFunction::Count,
                AggregateFunction::Sum,
                AggregateFunction::Min,
                AggregateFunction::Max,
            ],
            limits: StateLimits::default(),
        },
        sharding: Sharding::OneForAll,
        all_idle: AllIdle::Flush,
    }
}

fn partition(number: i32) -> PartitionId {
    PartitionId { topic: 0, partition: number }
}

/// The window's bounds, reckoned apart from the code under test; `None` where they leave the range of time, and for the
/// least time.
fn window_of(config: &Config, ts: i64) -> Option<(i64, i64)> {
    let size = i128::from(config.window_ms);
    let start = i128::from(ts) - (i128::from(ts) - i128::from(config.offset_ms)).rem_euclid(size);
    let bounds = (i64::try_from(start).ok()?, i64::try_from(start + size).ok()?);
    (ts != i64::MIN).then_some(bounds)
}

fn read_pane(pane: &Pane<'_>) -> TracedPane {
    let numbers: Vec<i64> =
        pane.aggregates
            .values()
            .map(|aggregate| match aggregate {
                AggregateValue::Integer(number) => i64::try_from(number)
                    .unwrap_or_else(|_| panic!("{number} is beyond the traces")),
                other @ (AggregateValue::Float(_)
                | AggregateValue::Overflow
                | AggregateValue::Missing) => panic!("an aggregate of integers is {other:?}"),
            })
            .collect();
    let [count, sum, min, max] = numbers[..] else { panic!("four aggregates are configured") };
    TracedPane {
        key: String::from_utf8_lossy(pane.key).into_owned(),
        start: pane.window.start.0,
        end: pane.window.end.0,
        count,
        sum,
        min,
        max,
        watermark: pane.watermark.0.0,
    }
}

fn forwarded(ts: i64) -> String {
    format!("forward {ts}")
}

fn late(key: &str, ts: i64, value: i64, watermark: i64) -> String {
    format!("late {key} {ts} value {value} at watermark {watermark}")
}

fn combined_watermark(watermark: i64) -> String {
    format!("watermark {watermark}")
}

fn partition_watermark(partition: i32, watermark: i64) -> String {
    format!("partition {partition} watermark {watermark}")
}

fn partition_status(partition: i32, status: &str) -> String {
    format!("partition {partition} {status}")
}

fn pane_text(pane: &TracedPane) -> String {
    let TracedPane { key, start, end, count, sum, min, max, watermark } = pane;
    format!(
        "pane {key} [{start}, {end}) count {count} sum {sum} min {min} max {max} at watermark {watermark}"
    )
}
