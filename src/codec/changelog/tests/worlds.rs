//! Two worlds go the same way. In one, shards stay in memory and move from subtask to subtask as they are. In the other,
//! they move, crash and come back through the changelog. Their records meet the same fate, and their panes are the same.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use super::*;

const PARTITIONS: usize = 4;
const SUBTASKS: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    Record {
        partition: usize,
        step: i64,
        key: u8,
        value: Option<Value>,
        marker: bool,
    },
    Tick {
        subtask: usize,
    },
    Commit,
    /// An aborted transaction: everything since the last commit is undone and done again.
    Abort {
        subtask: usize,
    },
    /// The same in a new process.
    Crash {
        subtask: usize,
    },
    /// To the other subtask, after a commit.
    Move {
        partition: usize,
    },
}

#[derive(Clone, Debug)]
struct Way {
    settings: SubtaskSettings,
    /// Each with the number of panes that are taken at once; the rest waits until the next record or tick.
    ops: Vec<(Op, usize)>,
    max_bytes: usize,
}

fn values() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        any::<i64>().prop_map(|integer| Some(Value::Integer(integer))),
        (-5i64..5).prop_map(|integer| Some(Value::Integer(integer))),
        (-9..9, -300..300).prop_map(|(digit, exponent)| {
            Value::float(f64::from(digit) * 10f64.powi(exponent))
        }),
        Just(Value::float(f64::MAX)),
        Just(Value::float(-0.1)),
    ]
}

fn ops() -> impl Strategy<Value = Vec<(Op, usize)>> {
    let partition = || 0..PARTITIONS;
    let subtask = || 0..SUBTASKS;
    let op = prop_oneof![
        12 => (partition(), -150..250i64, 0..6u8, values(), any::<bool>()).prop_map(
            |(partition, step, key, value, marker)| Op::Record { partition, step, key, value, marker }
        ),
        6 => subtask().prop_map(|subtask| Op::Tick { subtask }),
        4 => Just(Op::Commit),
        1 => subtask().prop_map(|subtask| Op::Abort { subtask }),
        1 => subtask().prop_map(|subtask| Op::Crash { subtask }),
        1 => partition().prop_map(|partition| Op::Move { partition }),
    ];
    prop::collection::vec((op, prop_oneof![0..4usize, Just(usize::MAX)]), 1..120)
}

fn ways() -> impl Strategy<Value = Way> {
    let lateness = prop_oneof![Just(0), Just(150), Just(2_000)];
    let shape = (any::<bool>(), any::<bool>(), lateness, prop_oneof![Just(60), Just(1 << 20)]);
    (shape, ops()).prop_map(|((one, discarding, lateness, max_bytes), ops)| {
        let strategies = [
            WatermarkStrategy::BoundedOutOfOrderness {
                max_out_of_orderness: Duration::from_millis(50),
            },
            WatermarkStrategy::Adaptive(AdaptiveSettings {
                bucket_width: Duration::from_millis(100),
                floor: Duration::ZERO,
                ceiling: Duration::from_millis(300),
                ..AdaptiveSettings::default()
            }),
            WatermarkStrategy::Punctuated,
            WatermarkStrategy::AscendingTimestamps,
        ];
        let topic = |strategy| TopicSettings { strategy, idle_timeout: None };
        let panes = if discarding { Panes::Discarding } else { Panes::Accumulating };
        let settings = SubtaskSettings {
            topics: strategies.into_iter().map(topic).collect(),
            window: WindowSettings {
                windows: TumblingWindows::new(Duration::from_millis(100), 7).unwrap(),
                allowed_lateness: Duration::from_millis(lateness),
                panes,
                aggregates: vec![
                    AggregateFunction::Count,
                    AggregateFunction::Sum,
                    AggregateFunction::Min,
                    AggregateFunction::Max,
                    AggregateFunction::Avg,
                ],
                limits: StateLimits::default(),
            },
            sharding: if one { Sharding::OneForAll } else { Sharding::PerPartition },
            all_idle: AllIdle::Hold,
        };
        Way { settings, ops, max_bytes }
    })
}

/// What came of it, of each partition's records and each shard's panes; up to the last commit, then all.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    dispositions: BTreeMap<usize, Vec<String>>,
    panes: BTreeMap<ShardId, Vec<String>>,
    /// The clocks at the end.
    clocks: BTreeMap<ShardId, Watermark>,
    held: usize,
}

struct World {
    way: Way,
    /// Whether shards go through the changelog.
    durable: bool,
    subtasks: Vec<Subtask>,
    /// Where a partition is.
    place: [usize; PARTITIONS],
    newest: i64,
    seen: Seen,
    /// What each subtask did since its last commit, and what had been seen of it then.
    since: Vec<Vec<(Op, usize)>>,
    committed: Seen,
    logs: BTreeMap<ShardId, Log>,
    writers: BTreeMap<ShardId, ShardWriter>,
    offsets: [i64; PARTITIONS],
}

fn id(partition: usize) -> PartitionId {
    PartitionId { topic: u16::try_from(partition).unwrap(), partition: 3 }
}

impl World {
    fn new(way: &Way, durable: bool) -> Self {
        let mut world = Self {
            way: way.clone(),
            durable,
            subtasks: (0..SUBTASKS).map(|_| Subtask::new(way.settings.clone())).collect(),
            place: [0, 0, 1, 0],
            newest: 0,
            seen: Seen::default(),
            since: vec![Vec::new(); SUBTASKS],
            committed: Seen::default(),
            logs: BTreeMap::new(),
            writers: BTreeMap::new(),
            offsets: [0; PARTITIONS],
        };
        if way.settings.sharding == Sharding::OneForAll {
            world.place = [0; PARTITIONS];
        }
        for partition in 0..PARTITIONS {
            let place = world.place[partition];
            world.subtasks[place].assign(id(partition), None);
            world.writers.insert(world.shard(partition), ShardWriter::new());
        }
        world
    }

    fn shard(&self, partition: usize) -> ShardId {
        match self.way.settings.sharding {
            Sharding::OneForAll => ShardId::All,
            Sharding::PerPartition => ShardId::Partition(id(partition)),
        }
    }

    fn go(mut self) -> Seen {
        for (op, panes) in self.way.ops.clone() {
            self.step(&op, panes);
        }
        for subtask in 0..SUBTASKS {
            self.take(subtask, usize::MAX);
            self.seen.held += self.subtasks[subtask].open_panes();
            self.seen.clocks.extend(self.subtasks[subtask].clocks());
        }
        self.seen
    }

    fn step(&mut self, op: &Op, panes: usize) {
        match op {
            Op::Record { partition, step, .. } => {
                // The timestamp is fixed once, so that the record is the same when it is read again.
                let timestamp = self.newest + step;
                self.newest = self.newest.max(timestamp);
                let mut op = op.clone();
                if let Op::Record { step, .. } = &mut op {
                    *step = timestamp;
                }
                let subtask = self.place[*partition];
                self.since[subtask].push((op.clone(), panes));
                self.act(&op, panes);
            }
            Op::Tick { subtask } => {
                self.since[*subtask].push((op.clone(), panes));
                self.act(op, panes);
            }
            Op::Commit => self.commit(),
            Op::Abort { subtask } if self.durable => self.again(*subtask, false),
            Op::Crash { subtask } if self.durable => self.again(*subtask, true),
            Op::Abort { .. } | Op::Crash { .. } => {}
            Op::Move { partition } => self.shift(*partition),
        }
    }

    fn act(&mut self, op: &Op, panes: usize) {
        match op {
            Op::Record { partition, step: timestamp, key, value, marker } => {
                let subtask = self.place[*partition];
                self.take(subtask, usize::MAX);
                let mut values = vec![*value; 5];
                values[0] = Some(Value::Integer(0));
                let key = [b'a' + key];
                let event = Event {
                    marker: marker.then_some(Marker::Flag(true)),
                    ..Event::new(EventTime(*timestamp), &key, &values)
                };
                let disposition = match self.subtasks[subtask].on_event(id(*partition), &event) {
                    // Its cause looks at when the partition came in, which is later after a restart.
                    Disposition::Late(late) => format!("late at {:?}", late.watermark),
                    other @ (Disposition::Windowed
                    | Disposition::Refired
                    | Disposition::TimestampOutOfRange
                    | Disposition::KeyLimit(_)
                    | Disposition::NotAssigned) => format!("{other:?}"),
                };
                self.offsets[*partition] += 1;
                self.seen.dispositions.entry(*partition).or_default().push(disposition);
                self.take(subtask, panes);
            }
            Op::Tick { subtask } => {
                self.take(*subtask, usize::MAX);
                self.subtasks[*subtask].on_periodic_emit(NOW);
                self.take(*subtask, panes);
            }
            Op::Commit | Op::Abort { .. } | Op::Crash { .. } | Op::Move { .. } => unreachable!(),
        }
    }

    /// Takes the late pane, if there is one, and so many others.
    fn take(&mut self, subtask: usize, most: usize) {
        let mut taken = 0;
        while taken < most || self.subtasks[subtask].late_pane_is_next() {
            match self.subtasks[subtask].poll_output() {
                None => return,
                Some(Output::Fired(pane)) => {
                    taken += 1;
                    let text = format!("{} at {:?}", pane_text(&pane), pane.watermark);
                    self.seen.panes.entry(pane.shard).or_default().push(text);
                }
                Some(Output::WatermarkAdvanced(_) | Output::StatusChanged(..)) => {}
            }
        }
    }

    fn commit(&mut self) {
        self.committed = self.seen.clone();
        self.since.iter_mut().for_each(Vec::clear);
        if !self.durable {
            return;
        }
        let layout = layout_of(&self.way.settings);
        for (shard, writer) in &mut self.writers {
            let is_its = |partition: &usize| match shard {
                ShardId::All => true,
                ShardId::Partition(own) => id(*partition) == *own,
            };
            let partitions: Vec<usize> = (0..PARTITIONS).filter(is_its).collect();
            let subtask = &mut self.subtasks[self.place[partitions[0]]];
            let saved = |partition: &usize| SavedPartition {
                topic: partition.to_string(),
                partition: 3,
                offset: self.offsets[*partition],
                state: subtask.partition_state(id(*partition)).unwrap(),
            };
            let saved: Vec<_> = partitions.iter().map(saved).collect();
            let written = writer.write(subtask, *shard, &saved, &layout, self.way.max_bytes);
            writer.committed();
            subtask.mark_saved(*shard);
            assert_eq!(subtask.changed_count(*shard), 0);
            let messages = written.into_iter().flat_map(|written| written.messages);
            self.logs.entry(*shard).or_default().extend(messages);
        }
    }

    /// Undoes what a subtask did since the last commit and does it again.
    fn again(&mut self, subtask: usize, new_process: bool) {
        let back: Vec<_> =
            (0..PARTITIONS).filter(|partition| self.place[*partition] == subtask).collect();
        for partition in &back {
            let shard = self.shard(*partition);
            let panes = self.committed.panes.get(&shard).cloned().unwrap_or_default();
            self.seen.panes.insert(shard, panes);
            let dispositions = self.committed.dispositions.get(partition).cloned();
            self.seen.dispositions.insert(*partition, dispositions.unwrap_or_default());
        }
        if new_process {
            self.subtasks[subtask] = Subtask::new(self.way.settings.clone());
        } else {
            self.subtasks[subtask].abandon();
        }
        self.bring_back(subtask, &back);
        for (op, panes) in self.since[subtask].clone() {
            self.act(&op, panes);
        }
    }

    /// Reads partitions' shards from the changelog into a subtask.
    fn bring_back(&mut self, subtask: usize, partitions: &[usize]) {
        let shards: std::collections::BTreeSet<_> =
            partitions.iter().map(|partition| self.shard(*partition)).collect();
        let mut states = BTreeMap::new();
        let mut clocks = Vec::new();
        for shard in shards {
            let log = self.logs.entry(shard).or_default();
            let settings = &self.way.settings;
            let restored = restore(log, settings, shard).unwrap();
            let from_compacted = restore(&compacted(log), settings, shard).unwrap();
            assert_eq!(restored.as_ref().map(told), from_compacted.as_ref().map(told));
            let Some(restored) = restored else { continue };
            clocks.extend(restored.shard.clock_brought());
            self.writers.insert(shard, restored.writer);
            let mut shard = Some(restored.shard);
            for saved in restored.partitions {
                let partition: usize = saved.topic.parse().unwrap();
                self.offsets[partition] = saved.offset;
                states.insert(partition, PartitionState { shard: shard.take(), ..saved.state });
            }
        }
        if let Some(least) = clocks.into_iter().min() {
            self.subtasks[subtask].restore_watermark(least);
        }
        for partition in partitions {
            if !states.contains_key(partition) {
                self.offsets[*partition] = 0;
                self.writers.insert(self.shard(*partition), ShardWriter::new());
            }
            let assigned = self.subtasks[subtask].assign(id(*partition), states.remove(partition));
            assert_eq!(assigned, Assigned::AsItWas);
        }
    }

    /// Moves a partition to the next subtask; where all share a shard, all of them through a new process.
    fn shift(&mut self, partition: usize) {
        self.commit();
        if self.way.settings.sharding == Sharding::OneForAll {
            if self.durable {
                self.again(0, true);
            }
            return;
        }
        let from = self.place[partition];
        let to = (from + 1) % SUBTASKS;
        let state = self.subtasks[from].revoke(id(partition));
        self.place[partition] = to;
        if self.durable {
            self.bring_back(to, &[partition]);
        } else {
            self.subtasks[to].assign(id(partition), state);
        }
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/changelog.txt",
        ))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn shards_go_on_through_the_changelog_as_in_memory(way in ways()) {
        let in_memory = World::new(&way, false).go();
        let mut through_the_changelog = World::new(&way, true).go();
        through_the_changelog.dispositions.retain(|_, dispositions| !dispositions.is_empty());
        through_the_changelog.panes.retain(|_, panes| !panes.is_empty());
        assert_eq!(through_the_changelog.dispositions, in_memory.dispositions);
        assert_eq!(through_the_changelog.panes, in_memory.panes);
        assert_eq!(through_the_changelog.clocks, in_memory.clocks);
        assert_eq!(through_the_changelog.held, in_memory.held);
    }
}
