//! Random worlds: settings, and a script of what happens to one or two subtasks and the partitions between them.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::event_time::{
    AdaptiveSettings, AggregateFunction, AllIdle, Disposition, Event, EventTime, Marker,
    MonotonicTime, NamedStrategy, Now, Panes, PartitionId, PartitionState, PartitionView, ShardId,
    Sharding, StateLimits, Subtask, SubtaskSettings, TopicSettings, TumblingWindows, Value,
    Watermark, WatermarkGenerator, WatermarkOutput, WatermarkStrategy, WindowSettings,
};

use crate::facts::{Fact, Fired, status_name, take_fact, take_facts};
use crate::naive::{
    AdaptiveRules, Follow, Luggage, Naive, PartitionSeen, Record, Rules, WhenAllIdle,
};

/// The partitions of every world: two of each of two topics.
pub(crate) const PARTITIONS: [PartitionId; 4] = [
    PartitionId { topic: 0, partition: 0 },
    PartitionId { topic: 0, partition: 5 },
    PartitionId { topic: 1, partition: 0 },
    PartitionId { topic: 1, partition: 1 },
];

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A record of a partition, so far behind the front of event time.
    Event {
        partition: usize,
        behind_ms: i64,
        key: u8,
        value: Option<i64>,
        marker: Mark,
    },
    /// The front of event time moves.
    Ahead {
        ms: i64,
    },
    /// Processing time passes; then, perhaps, a periodic emission of all subtasks.
    Pass {
        ms: u64,
        emit: bool,
    },
    /// The wall clock is set.
    StepWall {
        ms: i64,
    },
    Hold {
        partition: usize,
        hold: bool,
    },
    /// The partition goes to a subtask, or comes back to the same; without its state it is new there.
    Move {
        partition: usize,
        to: usize,
        with_state: bool,
    },
    /// The partition goes and comes again as a new one, and its records stay in their windows.
    Renew {
        partition: usize,
    },
    Drain {
        subtask: usize,
    },
}

/// The marker of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    None,
    Behind(i64),
    Flag(bool),
    Idle,
    Active,
}

/// Settings and script.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) subtasks: usize,
    /// Each record is followed by its own partition's emission, or by a full one.
    pub(crate) emission: Emission,
    pub(crate) reading: Reading,
    pub(crate) script: Vec<Op>,
}

/// When outputs are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reading {
    AtOnce,
    /// As late as is allowed.
    BeforeTheNextRecord,
    /// One whenever something has happened, the rest as late as is allowed.
    InPart,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Emission {
    Periodic,
    OfTheRecordsPartition,
    OfAllAfterEachRecord,
}

pub(crate) fn worlds(rules: impl Strategy<Value = Rules>) -> impl Strategy<Value = World> {
    let emission = prop_oneof![
        3 => Just(Emission::Periodic),
        1 => Just(Emission::OfTheRecordsPartition),
        1 => Just(Emission::OfAllAfterEachRecord),
    ];
    (rules, emission, prop::collection::vec(ops(), 1..80)).prop_map(|(rules, emission, script)| {
        let subtasks = if rules.one_for_all { 1 } else { 2 };
        World { rules, subtasks, emission, reading: Reading::AtOnce, script }
    })
}

pub(crate) fn rules() -> impl Strategy<Value = Rules> {
    let topic = || (follow(), prop::option::of(prop_oneof![Just(300u64), 0..2_000u64]));
    let windows = prop_oneof![Just(1_000i64), 1..3_000i64]
        .prop_flat_map(|size| (Just(size), prop_oneof![2 => Just(0), 1 => (1 - size)..size]));
    let lateness = prop_oneof![2 => Just(0i64), 1 => 1..4_000i64];
    let all_idle = prop_oneof![
        Just(WhenAllIdle::Hold),
        Just(WhenAllIdle::Flush),
        Just(WhenAllIdle::WallClock),
    ];
    ([topic(), topic()], windows, lateness, any::<bool>(), any::<bool>(), all_idle).prop_map(
        |(topics, (size_ms, offset_ms), lateness_ms, discarding, one_for_all, all_idle)| Rules {
            topics: topics.map(|(follow, timeout)| (follow, timeout.map(|ms| ms + 1))).to_vec(),
            size_ms,
            offset_ms,
            lateness_ms,
            discarding,
            one_for_all,
            all_idle,
        },
    )
}

fn follow() -> impl Strategy<Value = Follow> {
    let adaptive = (1..4i64, 1..5i64, 1..2_000i64, 0..500i64, 0..4_000i64, 0..5_000i64).prop_map(
        |(margin, buckets, width_ms, floor_ms, above_floor, initial_ms)| {
            let ceiling_ms = floor_ms + above_floor;
            let initial_ms = initial_ms.clamp(floor_ms, ceiling_ms);
            Follow::Adaptive(AdaptiveRules {
                margin,
                buckets,
                width_ms,
                floor_ms,
                ceiling_ms,
                initial_ms,
            })
        },
    );
    prop_oneof![
        3 => prop_oneof![Just(0), 1..3_000i64].prop_map(|bound_ms| Follow::Bounded { bound_ms }),
        1 => Just(Follow::Punctuated),
        1 => Just(Follow::Marks),
        1 => adaptive,
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    let partition = || 0..PARTITIONS.len();
    let marker = prop_oneof![
        3 => Just(Mark::None),
        3 => (-4_000..3_000i64).prop_map(Mark::Behind),
        1 => any::<bool>().prop_map(Mark::Flag),
        1 => Just(Mark::Idle),
        1 => Just(Mark::Active),
    ];
    let event = (
        partition(),
        prop_oneof![-1_000..500i64, -100..6_000i64],
        0..3u8,
        prop::option::weighted(0.9, -50..100i64),
        marker,
    )
        .prop_map(|(partition, behind_ms, key, value, marker)| Op::Event {
            partition,
            behind_ms,
            key,
            value,
            marker,
        });
    let ms = || prop_oneof![3 => Just(200u64), 1 => 0..2_500u64];
    let moved = (partition(), 0..2usize, prop::bool::weighted(0.8));
    prop_oneof![
        12 => event,
        2 => (0..2_000i64).prop_map(|ms| Op::Ahead { ms }),
        7 => (ms(), prop::bool::weighted(0.8)).prop_map(|(ms, emit)| Op::Pass { ms, emit }),
        1 => (-100_000..100_000i64).prop_map(|ms| Op::StepWall { ms }),
        1 => (partition(), any::<bool>()).prop_map(|(partition, hold)| Op::Hold { partition, hold }),
        2 => moved.prop_map(|(partition, to, with_state)| Op::Move { partition, to, with_state }),
        1 => partition().prop_map(|partition| Op::Renew { partition }),
        1 => (0..2usize).prop_map(|subtask| Op::Drain { subtask }),
    ]
}

/// What happened, as text, and the records and panes it was about.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Transcript {
    pub(crate) lines: Vec<String>,
    pub(crate) judged: BTreeMap<String, usize>,
    /// By shard, window start and key: the values of the records that were windowed.
    pub(crate) windowed: BTreeMap<(Option<PartitionId>, i64, String), Vec<Option<i64>>>,
    pub(crate) panes: Vec<Fired>,
    pub(crate) records: usize,
}

/// A subtask as the script drives it, alone or beside its model.
pub(crate) struct Player {
    world: World,
    subtasks: Vec<Subtask>,
    models: Option<Vec<Naive>>,
    monotonic_ms: u64,
    wall: i64,
    front: i64,
    transcript: Transcript,
    /// By subtask: its watermark, and by shard its clock, as they were last.
    last: Vec<(Option<EventTime>, BTreeMap<ShardId, Watermark>)>,
}

/// Runs the script to its end, drains included, and checks on the way that nothing goes back.
pub(crate) fn play(world: &World, beside_the_model: bool) -> Transcript {
    let subtasks = (0..world.subtasks).map(|_| Subtask::new(settings(&world.rules))).collect();
    let models = (0..world.subtasks).map(|_| Naive::new(world.rules.clone())).collect();
    let mut player = Player {
        world: world.clone(),
        subtasks,
        models: beside_the_model.then_some(models),
        monotonic_ms: 0,
        wall: 1_000_000,
        front: -10_000,
        transcript: Transcript::default(),
        last: vec![(None, BTreeMap::new()); world.subtasks],
    };
    for (place, id) in PARTITIONS.into_iter().enumerate().skip(1) {
        player.assign(place % world.subtasks, id, None);
    }
    for op in &world.script {
        player.transcript.lines.push(format!("{op:?}"));
        player.play(op);
    }
    for subtask in 0..world.subtasks {
        player.play(&Op::Drain { subtask });
        player.take(subtask);
    }
    player.transcript
}

impl World {
    /// The same where no shard is given up for good, which would take its outputs with it.
    pub(crate) fn keeping_states(mut self) -> Self {
        for op in &mut self.script {
            if let Op::Move { with_state, .. } = op {
                *with_state = true;
            }
        }
        self
    }

    /// What fires when outputs are read so, without the clocks, since firing later means a later one; and how the records
    /// were judged.
    pub(crate) fn contents(&self, reading: Reading) -> (Vec<Fired>, BTreeMap<String, usize>) {
        let transcript = play(&Self { reading, ..self.clone() }, false);
        let mut panes = transcript.panes;
        for pane in &mut panes {
            pane.watermark = 0;
        }
        panes.sort();
        (panes, transcript.judged)
    }
}

impl Player {
    fn play(&mut self, op: &Op) {
        match *op {
            Op::Event { partition, behind_ms, key, value, marker } => {
                self.event(PARTITIONS[partition], self.front - behind_ms, key, value, marker);
            }
            Op::Ahead { ms } => self.front += ms,
            Op::StepWall { ms } => self.wall += ms,
            Op::Pass { ms, emit } => self.pass(ms, emit),
            Op::Hold { partition, hold } => {
                let id = PARTITIONS[partition];
                self.subtasks.iter_mut().for_each(|subtask| subtask.hold_idle_clock(id, hold));
                self.models.iter_mut().flatten().for_each(|model| model.hold_idle_clock(id, hold));
            }
            Op::Move { partition, to, with_state } => {
                self.migrate(PARTITIONS[partition], to % self.world.subtasks, with_state);
            }
            Op::Renew { partition } => {
                let id = PARTITIONS[partition];
                if let Some(place) = self.owner(id) {
                    self.subtasks[place].retire(id);
                    self.models.iter_mut().flatten().for_each(|model| drop(model.retire(id)));
                    self.assign(place, id, None);
                }
            }
            Op::Drain { subtask } => {
                let place = subtask % self.world.subtasks;
                self.subtasks[place].drain();
                self.models.iter_mut().flatten().skip(place).take(1).for_each(Naive::drain);
                self.settle(place);
            }
        }
        self.check_states();
    }

    fn event(&mut self, id: PartitionId, ts: i64, key: u8, value: Option<i64>, mark: Mark) {
        let place = self.owner(id).unwrap_or(0);
        self.take(place);
        let key = char::from(b'a' + key).to_string();
        let values = [value.map(Value::Integer); 4];
        let marker = match mark {
            Mark::None => None,
            Mark::Behind(ms) => Some(Marker::Time(EventTime(ts - ms))),
            Mark::Flag(flag) => Some(Marker::Flag(flag)),
            Mark::Idle => Some(Marker::Text("idle")),
            Mark::Active => Some(Marker::Text("active")),
        };
        let event = Event { marker, ..Event::new(EventTime(ts), key.as_bytes(), &values) };
        let disposition = self.subtasks[place].on_event(id, &event);
        let text = judged(disposition);
        if let Some(models) = &mut self.models {
            let record = Record { ts, key: &key, value, marker };
            assert_eq!(text, models[place].on_event(id, record), "how it was judged");
        }
        self.transcript.records += 1;
        let kind = text.split(' ').next().unwrap_or_default().to_owned();
        *self.transcript.judged.entry(kind).or_default() += 1;
        if disposition.is_windowed() {
            let rules = &self.world.rules;
            let start = ts - (ts - rules.offset_ms).rem_euclid(rules.size_ms);
            let shard = (!rules.one_for_all).then_some(id);
            self.transcript.windowed.entry((shard, start, key)).or_default().push(value);
        }
        self.transcript.lines.push(text);
        self.take(place);
        let now = self.now();
        match self.world.emission {
            Emission::Periodic => {}
            Emission::OfTheRecordsPartition => {
                self.subtasks[place].on_record_emit(id, now);
                if let Some(models) = &mut self.models {
                    models[place].on_record_emit(id, self.monotonic_ms, self.wall);
                }
            }
            Emission::OfAllAfterEachRecord if disposition == Disposition::NotAssigned => {}
            Emission::OfAllAfterEachRecord => self.emit(place),
        }
        self.settle(place);
    }

    fn pass(&mut self, ms: u64, emit: bool) {
        self.monotonic_ms += ms;
        self.wall = self.wall.saturating_add_unsigned(ms);
        self.front = self.front.saturating_add_unsigned(ms);
        for subtask in &mut self.subtasks {
            subtask.run_idle_clocks(Duration::from_millis(ms));
        }
        self.models.iter_mut().flatten().for_each(|model| model.run_idle_clocks(ms));
        for place in 0..self.subtasks.len() {
            if emit {
                self.emit(place);
                self.settle(place);
            }
        }
    }

    fn emit(&mut self, place: usize) {
        let now = self.now();
        self.subtasks[place].on_periodic_emit(now);
        if let Some(models) = &mut self.models {
            models[place].on_periodic_emit(self.monotonic_ms, self.wall);
        }
    }

    /// Takes a partition from its owner, if it has one, to another. With one shard for all the last partition stays, since
    /// the shared windows would go with it; without its state it only comes back where its windows stayed.
    fn migrate(&mut self, id: PartitionId, to: usize, with_state: bool) {
        let mut luggage = None;
        if let Some(from) = self.owner(id) {
            if self.world.rules.one_for_all && self.subtasks[from].partitions().count() == 1 {
                return;
            }
            let state = self.subtasks[from].revoke(id);
            let modelled = self.models.as_mut().and_then(|models| models[from].revoke(id));
            if self.subtasks[from].partitions().count() == 0 {
                self.last[from] = (None, BTreeMap::new());
            }
            luggage = Some((state, modelled)).filter(|_| with_state);
            if luggage.is_none() && !self.world.rules.one_for_all {
                self.forget(id, from);
            }
        }
        self.assign(to, id, luggage);
    }

    fn assign(
        &mut self,
        place: usize,
        id: PartitionId,
        luggage: Option<(Option<PartitionState>, Option<Luggage>)>,
    ) {
        let (state, modelled) = luggage.unwrap_or_default();
        self.subtasks[place].assign(id, state);
        if let Some(models) = &mut self.models {
            models[place].assign(id, modelled);
        }
        self.settle(place);
    }

    /// A shard that was given up for good: its windows are nobody's any more, and its clock begins anew.
    fn forget(&mut self, id: PartitionId, from: usize) {
        self.transcript.windowed.retain(|(shard, _, _), _| *shard != Some(id));
        self.transcript.panes.retain(|pane| pane.shard != Some(id));
        self.last[from].1.remove(&ShardId::Partition(id));
    }

    fn owner(&self, id: PartitionId) -> Option<usize> {
        self.subtasks.iter().position(|subtask| subtask.partitions().any(|view| view.id == id))
    }

    fn now(&self) -> Now {
        Now {
            monotonic: MonotonicTime(Duration::from_millis(self.monotonic_ms)),
            wall: EventTime(self.wall),
        }
    }

    /// Takes the outputs of a subtask, unless they may wait.
    fn settle(&mut self, place: usize) {
        match self.world.reading {
            Reading::AtOnce => self.take(place),
            Reading::BeforeTheNextRecord => {}
            Reading::InPart => {
                let fact = take_fact(&mut self.subtasks[place]);
                self.note(fact);
            }
        }
    }

    /// Takes the outputs of a subtask, and of its model, which must be the same.
    fn take(&mut self, place: usize) {
        let facts = take_facts(&mut self.subtasks[place]);
        if let Some(models) = &mut self.models {
            assert_eq!(facts, models[place].take_facts(), "what subtask {place} gave");
        }
        self.note(facts);
    }

    fn note(&mut self, facts: impl IntoIterator<Item = Fact>) {
        for fact in facts {
            self.transcript.lines.push(format!("{fact:?}"));
            if let Fact::Fired(fired) = fact {
                self.transcript.panes.push(fired);
            }
        }
    }

    /// Nothing has gone back, and the state is the model's.
    fn check_states(&mut self) {
        for (place, subtask) in self.subtasks.iter().enumerate() {
            let now = (subtask.watermark(), subtask.clocks().collect::<BTreeMap<_, _>>());
            let (watermark, clocks) = &self.last[place];
            assert!(now.0 >= *watermark, "the watermark went back: {watermark:?} {now:?}");
            for (shard, clock) in clocks {
                let later = now.1.get(shard);
                assert!(later.is_none_or(|later| later >= clock), "a clock went back: {now:?}");
            }
            self.last[place] = now;
            let Some(models) = &self.models else { continue };
            let model = &models[place];
            assert_eq!(subtask.watermark().map(|time| time.0), model.watermark());
            assert_eq!(subtask.open_panes(), model.open_panes(), "entries held");
            let clocks = subtask.clocks().map(|(id, clock)| (id.partition(), clock.time()));
            let clocks: BTreeMap<_, _> = clocks.map(|(id, time)| (id, time.map(|t| t.0))).collect();
            assert_eq!(clocks, model.clocks());
            let views: Vec<_> = subtask.partitions().map(|view| seen_of(&view)).collect();
            assert_eq!(views, model.partitions());
        }
    }
}

/// How a record was judged, in words.
fn judged(disposition: Disposition) -> String {
    match disposition {
        Disposition::Windowed | Disposition::Refired => "windowed".to_owned(),
        Disposition::TimestampOutOfRange => "timestamp out of range".to_owned(),
        Disposition::NotAssigned => "not assigned".to_owned(),
        Disposition::KeyLimit(limit) => format!("over {limit:?}"),
        Disposition::Late(lateness) => {
            format!(
                "late for {} at {}: {}",
                lateness.window.start,
                lateness.watermark.0,
                lateness.cause.name()
            )
        }
    }
}

fn seen_of(view: &PartitionView) -> PartitionSeen {
    PartitionSeen {
        id: view.id,
        watermark: view.watermark.map(|time| time.0),
        max_event_time: view.max_event_time.map(|time| time.0),
        status: status_name(view.status),
        bound_ms: view.bound.map(|bound| bound.as_millis()),
        idle_in_ms: view.idle_in.map(|idle_in| idle_in.as_millis()),
        idle_clock_held: view.idle_clock_held,
    }
}

fn settings(rules: &Rules) -> SubtaskSettings {
    let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
    let strategy = |follow: Follow| match follow {
        Follow::Bounded { bound_ms: 0 } => WatermarkStrategy::AscendingTimestamps,
        Follow::Bounded { bound_ms } => {
            WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness: ms(bound_ms) }
        }
        Follow::Punctuated => WatermarkStrategy::Punctuated,
        Follow::Marks => marks_strategy(),
        Follow::Adaptive(rules) => WatermarkStrategy::Adaptive(AdaptiveSettings {
            margin: f64::from(i32::try_from(rules.margin).unwrap_or(i32::MAX)),
            buckets: u16::try_from(rules.buckets).unwrap_or(u16::MAX),
            bucket_width: ms(rules.width_ms),
            floor: ms(rules.floor_ms),
            ceiling: ms(rules.ceiling_ms),
            initial: Some(ms(rules.initial_ms)),
        }),
    };
    let topic = |(follow, timeout): &(Follow, Option<u64>)| TopicSettings {
        strategy: strategy(*follow),
        idle_timeout: timeout.map(Duration::from_millis),
    };
    SubtaskSettings {
        topics: rules.topics.iter().map(topic).collect(),
        window: WindowSettings {
            windows: TumblingWindows::new(ms(rules.size_ms), rules.offset_ms).unwrap(),
            allowed_lateness: ms(rules.lateness_ms),
            panes: if rules.discarding { Panes::Discarding } else { Panes::Accumulating },
            aggregates: vec![
                AggregateFunction::Count,
                AggregateFunction::Sum,
                AggregateFunction::Min,
                AggregateFunction::Max,
            ],
            limits: StateLimits::default(),
        },
        sharding: if rules.one_for_all { Sharding::OneForAll } else { Sharding::PerPartition },
        all_idle: match rules.all_idle {
            WhenAllIdle::Hold => AllIdle::Hold,
            WhenAllIdle::Flush => AllIdle::Flush,
            WhenAllIdle::WallClock => AllIdle::WallClock,
        },
    }
}

/// The strategy whose generators do what the marker says.
pub(crate) fn marks_strategy() -> WatermarkStrategy {
    WatermarkStrategy::Named(NamedStrategy::new("marks", || Box::new(MarksGenerator)))
}

/// A generator that does what the marker says, in so many words.
#[derive(Debug)]
struct MarksGenerator;

impl WatermarkGenerator for MarksGenerator {
    fn on_event(&mut self, event: &Event<'_>, output: &mut WatermarkOutput) {
        match event.marker {
            Some(Marker::Time(time)) => output.emit(Watermark(time)),
            Some(Marker::Text("idle")) => output.mark_idle(),
            Some(Marker::Text("active")) => output.mark_active(),
            Some(Marker::Text(_) | Marker::Flag(_)) | None => {}
        }
    }

    fn on_periodic_emit(&mut self, _now: MonotonicTime, _output: &mut WatermarkOutput) {}
}
