//! A model of event time in one subtask that is slow and simple: it keeps every timestamp and every value, recomputes
//! everything from them, and looks at all partitions and all windows each time.

use std::collections::BTreeMap;

use tidegate::event_time::{Marker, PartitionId};

use crate::facts::{Fact, Fired};

/// How one topic's partitions follow event time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Follow {
    /// Greatest timestamp - bound - 1, periodically.
    Bounded { bound_ms: i64 },
    /// What the marker says: a time, or `true` for the record's own timestamp.
    Punctuated,
    /// What the marker says: a time, or the words `idle` and `active`.
    Marks,
    /// Greatest timestamp - bound - 1, periodically, with a bound made of the disorder.
    Adaptive(AdaptiveRules),
}

/// The adaptive bound's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdaptiveRules {
    pub(crate) margin: i64,
    pub(crate) buckets: i64,
    pub(crate) width_ms: i64,
    pub(crate) floor_ms: i64,
    pub(crate) ceiling_ms: i64,
    pub(crate) initial_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenAllIdle {
    Hold,
    Flush,
    WallClock,
}

/// Everything that is told once.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// By topic: how it follows event time, and the idle timeout.
    pub(crate) topics: Vec<(Follow, Option<u64>)>,
    pub(crate) size_ms: i64,
    pub(crate) offset_ms: i64,
    pub(crate) lateness_ms: i64,
    pub(crate) discarding: bool,
    pub(crate) one_for_all: bool,
    pub(crate) all_idle: WhenAllIdle,
}

/// The model of a subtask. No watermark is `None`, which is less than any.
#[derive(Clone, Debug)]
pub(crate) struct Naive {
    rules: Rules,
    partitions: Vec<Partition>,
    /// By the partition whose shard it is.
    shards: BTreeMap<Option<PartitionId>, Shard>,
    watermark: Option<i64>,
    all_idle_since: Option<(u64, i64)>,
    facts: Vec<Fact>,
}

/// What can be seen of a partition from outside.
#[derive(Debug, PartialEq)]
pub(crate) struct PartitionSeen {
    pub(crate) id: PartitionId,
    pub(crate) watermark: Option<i64>,
    pub(crate) max_event_time: Option<i64>,
    pub(crate) status: &'static str,
    pub(crate) bound_ms: Option<u128>,
    pub(crate) idle_in_ms: Option<u128>,
    pub(crate) idle_clock_held: bool,
}

#[derive(Clone, Debug)]
struct Partition {
    id: PartitionId,
    /// Every timestamp taken, in order.
    seen: Vec<i64>,
    watermark: Option<i64>,
    idle: bool,
    emitted: Option<i64>,
    clock_at_assignment: Option<i64>,
    /// Idleness: how long its clock has run, whether that stands, activity since the last look, start of the countdown.
    ran_ms: u64,
    held: bool,
    activity: bool,
    countdown_from: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    clock: Option<i64>,
    /// By window start and key.
    windows: BTreeMap<(i64, String), Contents>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    values: Vec<Option<i64>>,
    /// How many of them an earlier discarding pane has handed out.
    handed_out: usize,
    panes: u32,
}

/// What a revoked partition takes along.
#[derive(Clone, Debug)]
pub(crate) struct Luggage {
    partition: Partition,
    shard: Option<Shard>,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) ts: i64,
    pub(crate) key: &'a str,
    pub(crate) value: Option<i64>,
    pub(crate) marker: Option<Marker<'a>>,
}

impl Naive {
    pub(crate) fn new(rules: Rules) -> Self {
        let (partitions, shards, facts) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { rules, partitions, shards, watermark: None, all_idle_since: None, facts }
    }

    pub(crate) fn watermark(&self) -> Option<i64> {
        self.watermark
    }

    pub(crate) fn partitions(&self) -> Vec<PartitionSeen> {
        self.partitions.iter().map(|partition| partition.seen_by(&self.rules)).collect()
    }

    pub(crate) fn clocks(&self) -> BTreeMap<Option<PartitionId>, Option<i64>> {
        self.shards.iter().map(|(name, shard)| (*name, shard.clock)).collect()
    }

    pub(crate) fn open_panes(&self) -> usize {
        self.shards.values().map(|shard| shard.windows.len()).sum()
    }

    pub(crate) fn take_facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }

    pub(crate) fn assign(&mut self, id: PartitionId, luggage: Option<Luggage>) {
        if self.partitions.iter().any(|partition| partition.id == id) {
            return;
        }
        let (moved, brought) = luggage.map_or((None, None), |l| (Some(l.partition), l.shard));
        let name = self.shard_name(id);
        let new = Shard { clock: self.watermark, windows: BTreeMap::new() };
        let clock = self.shards.entry(name).or_insert(brought.unwrap_or(new)).clock;
        self.partitions.push(Partition {
            id,
            seen: moved.as_ref().map_or(Vec::new(), |moved| moved.seen.clone()),
            watermark: moved.as_ref().and_then(|moved| moved.watermark),
            idle: false,
            emitted: moved.and_then(|moved| moved.emitted),
            clock_at_assignment: clock,
            ran_ms: 0,
            held: false,
            activity: false,
            countdown_from: None,
        });
    }

    pub(crate) fn retire(&mut self, id: PartitionId) -> Option<Luggage> {
        let place = self.partitions.iter().position(|partition| partition.id == id)?;
        Some(Luggage { partition: self.partitions.remove(place), shard: None })
    }

    pub(crate) fn revoke(&mut self, id: PartitionId) -> Option<Luggage> {
        let mut luggage = self.retire(id)?;
        luggage.shard = self.shards.remove(&Some(id));
        if self.partitions.is_empty() {
            self.shards.clear();
            self.all_idle_since = None;
        }
        Some(luggage)
    }

    /// Judges, adds, and then moves the generator; how the record was judged.
    pub(crate) fn on_event(&mut self, id: PartitionId, record: Record<'_>) -> String {
        let Some(place) = self.partitions.iter().position(|partition| partition.id == id) else {
            return "not assigned".to_owned();
        };
        let rules = &self.rules;
        let start = record.ts - (record.ts - rules.offset_ms).rem_euclid(rules.size_ms);
        let last = start + rules.size_ms - 1;
        let name = self.shard_name(id);
        let shard = self.shards.entry(name).or_default();
        let partition = &mut self.partitions[place];
        let passed = |clock: Option<i64>| clock >= Some(last + self.rules.lateness_ms);
        let judged = if passed(shard.clock) {
            let cause = if passed(partition.watermark) {
                "out_of_order"
            } else if passed(partition.clock_at_assignment) {
                "joined"
            } else {
                "after_idle"
            };
            format!("late for {start} at {}: {cause}", shard.clock.unwrap_or(i64::MIN))
        } else {
            let contents = shard.windows.entry((start, record.key.to_owned())).or_default();
            contents.values.push(record.value);
            if shard.clock >= Some(last) {
                let pane =
                    contents.fire("late", &self.rules, (start, record.key), shard.clock, name);
                self.facts.push(Fact::Fired(pane));
            }
            "windowed".to_owned()
        };
        partition.seen.push(record.ts);
        partition.activity = true;
        let follow = self.rules.topics[usize::from(id.topic)].0;
        let said = match (follow, record.marker) {
            (Follow::Punctuated | Follow::Marks, Some(Marker::Time(time))) => Some(time.0),
            (Follow::Punctuated, Some(Marker::Flag(true))) => Some(record.ts),
            _ => None,
        };
        if let Some(said) = said
            && self.emit(place, Some(said))
            && (Some(said) > self.watermark
                || self.shards.values().any(|shard| shard.clock < Some(said)))
        {
            self.combine(None);
        }
        if let (Follow::Marks, Some(Marker::Text(word))) = (follow, record.marker) {
            self.set_idle(place, word == "idle");
            self.combine(None);
        }
        judged
    }

    pub(crate) fn run_idle_clocks(&mut self, ms: u64) {
        for partition in self.partitions.iter_mut().filter(|partition| !partition.held) {
            partition.ran_ms += ms;
        }
    }

    pub(crate) fn hold_idle_clock(&mut self, id: PartitionId, hold: bool) {
        for partition in self.partitions.iter_mut().filter(|partition| partition.id == id) {
            partition.held = hold;
        }
    }

    pub(crate) fn on_periodic_emit(&mut self, monotonic_ms: u64, wall: i64) {
        for place in 0..self.partitions.len() {
            let timeout = self.rules.topics[usize::from(self.partitions[place].id.topic)].1;
            if timeout.is_some_and(|timeout| self.partitions[place].is_silent(timeout)) {
                self.set_idle(place, true);
            } else {
                self.emit_periodically(place);
            }
        }
        self.combine(Some((monotonic_ms, wall)));
    }

    pub(crate) fn on_record_emit(&mut self, id: PartitionId, monotonic_ms: u64, wall: i64) {
        if let Some(place) = self.partitions.iter().position(|partition| partition.id == id) {
            self.emit_periodically(place);
            self.combine(Some((monotonic_ms, wall)));
        }
    }

    /// Fires what has not fired; each clock goes to the last end - 1 that its shard fires.
    pub(crate) fn drain(&mut self) {
        let (size, before) = (self.rules.size_ms, self.watermark);
        let mut fired = Vec::new();
        for (name, shard) in &mut self.shards {
            let unfired = shard.windows.iter().filter(|(_, contents)| contents.panes == 0);
            if let Some(last) = unfired.map(|((start, _), _)| start + size - 1).max() {
                shard.clock = Some(last);
                self.watermark = self.watermark.max(Some(last));
                fired.extend(shard.fire_due(*name, &self.rules));
            }
        }
        if self.watermark > before {
            self.facts.extend(self.watermark.map(Fact::Watermark));
        }
        self.facts.extend(fired.into_iter().map(Fact::Fired));
    }

    fn shard_name(&self, id: PartitionId) -> Option<PartitionId> {
        (!self.rules.one_for_all).then_some(id)
    }

    fn emit_periodically(&mut self, place: usize) {
        let partition = &mut self.partitions[place];
        let follow = self.rules.topics[usize::from(partition.id.topic)].0;
        let Some(bound_ms) = partition.bound(follow) else { return };
        let wanted = partition.seen.iter().max().map(|greatest| greatest - bound_ms - 1);
        partition.emitted = partition.emitted.max(wanted);
        let emitted = partition.emitted;
        self.emit(place, emitted);
    }

    /// An emission makes the partition active and raises its watermark. Whether it rose.
    fn emit(&mut self, place: usize, watermark: Option<i64>) -> bool {
        self.set_idle(place, false);
        let partition = &mut self.partitions[place];
        let rises = watermark > partition.watermark;
        partition.watermark = partition.watermark.max(watermark);
        rises
    }

    fn set_idle(&mut self, place: usize, idle: bool) {
        let partition = &mut self.partitions[place];
        if partition.idle != idle {
            partition.idle = idle;
            let name = if idle { "idle" } else { "active" };
            self.facts.push(Fact::Status(partition.id, name));
        }
    }

    /// The candidate of all partitions, and what it raises.
    fn combine(&mut self, now: Option<(u64, i64)>) {
        let Some(candidate) = self.candidate(now) else { return };
        if Some(candidate) > self.watermark {
            self.watermark = Some(candidate);
            self.facts.push(Fact::Watermark(candidate));
        }
        for (name, shard) in &mut self.shards {
            shard.clock = shard.clock.max(Some(candidate));
            let fired = shard.fire_due(*name, &self.rules);
            self.facts.extend(fired.into_iter().map(Fact::Fired));
        }
    }

    fn candidate(&mut self, now: Option<(u64, i64)>) -> Option<i64> {
        let active: Vec<&Partition> = self.partitions.iter().filter(|p| !p.idle).collect();
        if !active.is_empty() || self.partitions.is_empty() {
            self.all_idle_since = None;
            return active.iter().map(|partition| partition.watermark).min()?;
        }
        match self.rules.all_idle {
            WhenAllIdle::Hold => None,
            WhenAllIdle::Flush => {
                self.partitions.iter().map(|partition| partition.watermark).max()?
            }
            WhenAllIdle::WallClock => {
                let now = now?;
                let since = *self.all_idle_since.get_or_insert(now);
                if self.partitions.iter().any(|partition| partition.held) {
                    return None;
                }
                let follow = |p: &Partition| p.bound(self.rules.topics[usize::from(p.id.topic)].0);
                let bound = self.partitions.iter().filter_map(follow).max().unwrap_or(0);
                let timeout =
                    self.rules.topics.iter().filter_map(|topic| topic.1).max().unwrap_or(0);
                let steady = since.1 + i64::try_from(now.0 - since.0).ok()?;
                Some(now.1.min(steady) - bound - i64::try_from(timeout).ok()?)
            }
        }
    }
}

impl Partition {
    /// Looks for silence, as an emission does: activity since the last look; then the countdown.
    fn is_silent(&mut self, timeout_ms: u64) -> bool {
        if std::mem::take(&mut self.activity) {
            self.countdown_from = None;
            return false;
        }
        self.ran_ms - *self.countdown_from.get_or_insert(self.ran_ms) > timeout_ms
    }

    fn seen_by(&self, rules: &Rules) -> PartitionSeen {
        let (follow, timeout) = rules.topics[usize::from(self.id.topic)];
        let silent =
            self.countdown_from.filter(|_| !self.activity).map_or(0, |from| self.ran_ms - from);
        PartitionSeen {
            id: self.id,
            watermark: self.watermark,
            max_event_time: self.seen.iter().max().copied(),
            status: if self.idle { "idle" } else { "active" },
            bound_ms: self.bound(follow).and_then(|bound| u128::try_from(bound).ok()),
            idle_in_ms: timeout.map(|timeout| u128::from(timeout.saturating_sub(silent))),
            idle_clock_held: self.held,
        }
    }

    fn bound(&self, follow: Follow) -> Option<i64> {
        match follow {
            Follow::Bounded { bound_ms } => Some(bound_ms),
            Follow::Adaptive(rules) => Some(self.adaptive_bound(rules)),
            Follow::Punctuated | Follow::Marks => None,
        }
    }

    /// From all that was seen: the disorder of each record against the greatest before it, in the bucket in which that
    /// greatest lay.
    fn adaptive_bound(&self, rules: AdaptiveRules) -> i64 {
        let bucket = |ts: i64| ts.div_euclid(rules.width_ms);
        let mut disorders = Vec::new();
        let mut greatest: Option<i64> = None;
        for ts in &self.seen {
            let max = greatest.unwrap_or(*ts);
            if *ts <= max {
                disorders.push((bucket(max), max - ts));
            }
            greatest = Some(max.max(*ts));
        }
        let newest = greatest.map(bucket);
        let remembered = |number: i64| Some(number) > newest.map(|newest| newest - rules.buckets);
        let largest = disorders.iter().filter(|d| remembered(d.0)).map(|d| d.1).max().unwrap_or(0);
        let first = self.seen.first().copied().map(bucket);
        let warm = newest.zip(first).is_some_and(|(newest, first)| newest - first >= rules.buckets);
        let least = if warm { rules.floor_ms } else { rules.initial_ms };
        (largest * rules.margin).clamp(least, rules.ceiling_ms)
    }
}

impl Shard {
    /// Fires the windows that the clock has passed and that never fired, in order; frees those past their lateness.
    fn fire_due(&mut self, name: Option<PartitionId>, rules: &Rules) -> Vec<Fired> {
        let clock = self.clock;
        let mut fired = Vec::new();
        for ((start, key), contents) in &mut self.windows {
            if contents.panes == 0 && clock >= Some(start + rules.size_ms - 1) {
                fired.push(contents.fire("on_time", rules, (*start, key), clock, name));
            }
        }
        let freed_at = |start: i64| start + rules.size_ms - 1 + rules.lateness_ms;
        self.windows.retain(|(start, _), _| clock < Some(freed_at(*start)));
        fired
    }
}

impl Contents {
    fn fire(
        &mut self,
        timing: &'static str,
        rules: &Rules,
        (start, key): (i64, &str),
        clock: Option<i64>,
        shard: Option<PartitionId>,
    ) -> Fired {
        let from = if rules.discarding { self.handed_out } else { 0 };
        let values: Vec<i128> =
            self.values[from..].iter().flatten().copied().map(i128::from).collect();
        self.handed_out = self.values.len();
        self.panes += 1;
        let counted = i128::try_from(values.len()).ok();
        let sum = (!values.is_empty()).then(|| values.iter().sum());
        Fired {
            shard,
            start,
            end: start + rules.size_ms,
            key: key.to_owned(),
            timing,
            index: self.panes - 1,
            aggregates: vec![
                counted,
                sum,
                values.iter().min().copied(),
                values.iter().max().copied(),
            ],
            watermark: clock.unwrap_or(i64::MIN),
        }
    }
}
