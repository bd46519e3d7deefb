//! A world out of a seed: a configuration, input partitions, and what goes wrong.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate::config::{Config, KeyFrom, Source};
use tidegate::event_time::{AdaptiveSettings, AllIdle, Panes, PartitionId, WatermarkStrategy};
use tidegate::pipeline::OutputTopic;

use crate::memory::{
    Broker, Call, Fault, Faults, Group, Input, Mood, Partition, Plant, Slot, WALL,
};
use crate::random::Random;
use crate::settings;

/// What must become of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A pane, an open window, or the late topic.
    Good {
        window_start: i64,
        key: String,
        value: u64,
    },
    /// The dead-letter topic, for this reason.
    Dead(&'static str),
    Tombstone,
}

/// A record as its maker knows it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: PartitionId,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) fate: Fate,
}

/// Everything that a seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) config: Config,
    pub(crate) instances: usize,
    pub(crate) sent: Vec<Sent>,
    pub(crate) inputs: BTreeMap<PartitionId, Partition>,
    pub(crate) result_partitions: i32,
    /// When the last record arrives.
    pub(crate) last_arrival: Duration,
    /// Whether anything fails at all.
    pub(crate) has_faults: bool,
    /// Whether partitions go round all the time.
    pub(crate) is_restless: bool,
}

pub(crate) const WINDOW: i64 = 10_000;
/// Event time begins a day before the present.
const BEGIN: i64 = WALL - 86_400_000;

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let random = &mut random;
        let mut config = settings::config();
        config.emit_interval =
            if random.chance(40) { Duration::ZERO } else { Duration::from_millis(200) };
        config.allowed_lateness = Duration::from_secs(random.pick(&[0, 0, 5, 20]));
        config.panes = random.pick(&[Panes::Accumulating, Panes::Accumulating, Panes::Discarding]);
        config.all_idle = random.pick(&[AllIdle::Hold, AllIdle::Flush, AllIdle::WallClock]);
        config.results.progress = random.chance(40);
        config.delivery.commit_interval = Duration::from_millis(random.pick(&[100, 1_000, 7_000]));
        let strategy = strategy(random);
        let idle = random.chance(20);
        for source in &mut config.sources {
            source.strategy = strategy.clone();
            source.idle_timeout = idle.then_some(Duration::from_secs(2));
        }
        match random.below(5) {
            0 | 1 => config.key.from = KeyFrom::Message,
            2 => config.key.partial = true,
            _ => {}
        }
        config.key.across_topics = config.key.from == KeyFrom::Message && random.chance(30);
        let one_for_all = config.key.needs_all_partitions();
        let many = config.key.across_topics || (one_for_all && random.chance(30));
        if many && one_for_all {
            let other = config.sources[0].clone();
            config.sources.push(Source { topic: "other".to_owned(), ..other });
        }
        let most = if one_for_all { 2 } else { 3 };
        let is_restless = !one_for_all && random.chance(15);
        let mut plan = Self {
            seed,
            config,
            instances: if is_restless { 2 } else { 1 } + random.place(most),
            sent: Vec::new(),
            inputs: BTreeMap::new(),
            result_partitions: 1 + i32::try_from(random.below(3)).unwrap(),
            last_arrival: Duration::ZERO,
            has_faults: is_restless || random.chance(85),
            is_restless,
        };
        plan.write_inputs(random);
        plan
    }

    /// Whether lateness depends on nothing but the partition's own records.
    pub(crate) fn is_exact(&self) -> bool {
        self.inputs.len() == 1 && self.config.emit_interval.is_zero() && !self.has_idleness()
    }

    pub(crate) fn has_idleness(&self) -> bool {
        self.config.sources.iter().any(|source| source.idle_timeout.is_some())
    }

    pub(crate) fn lateness(&self) -> i64 {
        i64::try_from(self.config.allowed_lateness.as_millis()).unwrap()
    }

    /// The configuration of one instance.
    pub(crate) fn config_of(&self, name: &str) -> Config {
        let mut config = self.config.clone();
        name.clone_into(&mut config.kafka.instance_id);
        config
    }

    fn write_inputs(&mut self, random: &mut Random) {
        for topic in 0..u16::try_from(self.config.sources.len()).unwrap() {
            let least = if self.is_restless { 3 } else { 0 };
            for partition in 0..=least + i32::try_from(random.below(4)).unwrap() {
                let first = i64::try_from(random.below(3) * 10).unwrap();
                let held = Partition { first, ..Partition::default() };
                self.inputs.insert(PartitionId { topic, partition }, held);
            }
        }
        let at_once = random.chance(25) && !self.is_restless;
        if !at_once && random.chance(30) {
            // The topic grows.
            let of_first = self.inputs.keys().filter(|id| id.topic == 0).count();
            let id = PartitionId { topic: 0, partition: i32::try_from(of_first).unwrap() };
            let made = Duration::from_millis(random.below(15_000));
            self.inputs.insert(id, Partition { made, ..Partition::default() });
        }
        let (mut arrival, mut event_time) = (Duration::ZERO, BEGIN);
        let mut away: Option<(PartitionId, u64)> = None;
        for number in 0..20 + random.below(130) {
            event_time += i64::try_from(random.below(1_500)).unwrap();
            if !at_once {
                arrival += Duration::from_millis(random.below(160));
                if random.chance(3) {
                    arrival += Duration::from_secs(random.below(6));
                }
            }
            let made = self.inputs.iter().filter(|(_, partition)| partition.made <= arrival);
            let ids: Vec<_> = made.map(|(id, _)| *id).collect();
            let key = format!("k{}", random.below(6));
            let mut id = random.pick(&ids);
            if self.config.key.from == KeyFrom::Message {
                // A key's records are in one partition.
                id = ids[usize::from(key.as_bytes()[1]) % ids.len()];
            } else if let Some((silent, until)) = away {
                // Now and then a partition is silent for a while.
                if silent == id && number < until && ids.len() > 1 {
                    id = *ids.iter().find(|other| **other != silent).unwrap();
                }
            }
            if random.chance(3) {
                away = Some((random.pick(&ids), number + 40));
            }
            let disorder = random.pick(&[0, 0, 0, 500, 2_000, 12_000, 45_000]);
            let timestamp = event_time - i64::try_from(random.below(disorder + 1)).unwrap();
            let (input, fate) = self.record(random, key, timestamp);
            self.append(id, arrival, Some((input, timestamp, fate)));
            while random.chance(25) {
                self.append(id, arrival, None);
            }
        }
        self.last_arrival = arrival;
        for partition in self.inputs.values_mut() {
            put_into_transactions(partition, random);
            let last = partition.slots.iter().map(|slot| slot.stable).max();
            self.last_arrival = self.last_arrival.max(last.unwrap_or_default()).max(partition.made);
        }
    }

    fn append(&mut self, id: PartitionId, arrives: Duration, record: Option<(Input, i64, Fate)>) {
        let held = self.inputs.get_mut(&id).unwrap();
        let offset = held.first + i64::try_from(held.slots.len()).unwrap();
        let content = record.map(|(input, timestamp, fate)| {
            self.sent.push(Sent { id, offset, timestamp, fate });
            Rc::new(input)
        });
        held.slots.push(Slot { arrives, stable: arrives, content });
    }

    fn record(&self, random: &mut Random, key: String, timestamp: i64) -> (Input, Fate) {
        let value = random.next() >> 4;
        let by_message = self.config.key.from == KeyFrom::Message;
        let window_start = timestamp - timestamp.rem_euclid(WINDOW);
        // Some keys and payloads are too long for what the topics take later on.
        let key = if random.chance(10) && !by_message {
            format!("{key}{}", "x".repeat(300))
        } else {
            key
        };
        let padding = if random.chance(10) { "p".repeat(1_500) } else { String::new() };
        let good = format!(r#"{{"ts":{timestamp},"k":"{key}","v":{value},"padding":"{padding}"}}"#);
        let dead = |text: String, reason| (Some(text), Fate::Dead(reason));
        let future = WALL + 86_400_000_000;
        let (payload, fate) = match random.below(30) {
            0 => dead(good.replace('}', ""), "bad_json"),
            1 => dead(good.replace("\"ts\"", "\"at\""), "ts_missing"),
            2 => dead(good.replace(&timestamp.to_string(), &future.to_string()), "ts_future"),
            3 => dead(good.replace("\"v\"", "\"w\""), "value_missing"),
            4 if !by_message => dead(good.replace("\"k\"", "\"kk\""), "key_missing"),
            5 => (None, Fate::Tombstone),
            _ => (Some(good), Fate::Good { window_start, key: key.clone(), value }),
        };
        let input = Input {
            key: by_message.then(|| key.into_bytes()),
            payload: payload.map(String::into_bytes),
            timestamp: random.chance(80).then_some(timestamp),
            headers: Vec::new(),
        };
        (input, fate)
    }

    /// The broker of this world, with this mistake in it.
    pub(crate) fn broker(&self, plant: Option<Plant>) -> Broker {
        let mut random = Random(self.seed ^ 0xB20C_E12A);
        let random = &mut random;
        let broker = Broker::new(self.inputs.clone());
        broker.with(|state| {
            let mut order = random.branch();
            state.choose = Box::new(move |of| order.place(of));
            state.poll_takes = Duration::from_micros(random.pick(&[0, 50, 2_000, 30_000]));
            state.rebalances.clear();
            state.group = Some(Group::new(random.branch()));
            state.plant = plant;
            let limits = state.limits.get_mut(&OutputTopic::Results).unwrap();
            limits.partitions = self.result_partitions;
            if random.chance(30) {
                for topic in [0, 1] {
                    let held = state.limits.entry(OutputTopic::Changelog(topic)).or_default();
                    held.max_message_bytes = 1_000;
                }
            }
            if self.has_faults {
                if random.chance(30) {
                    state.shrinks = [
                        (OutputTopic::Results, 700),
                        (OutputTopic::Late, 900),
                        (OutputTopic::DeadLetter, 1_100),
                    ]
                    .map(|(topic, bytes)| (random.place(6), topic, bytes))
                    .into();
                }
                state.mood = Mood {
                    random: random.branch(),
                    slow_markers: random.pick(&[0, 10, 50]),
                    eager: random.pick(&[0, 20, 80]),
                    slow_reading: random.pick(&[0, 10, 90]),
                    slow_deletions: random.pick(&[0, 50, 100]),
                    compaction: random.pick(&[0, 5, 50]),
                    forgotten: random.pick(&[0, 0, 10, 50]),
                };
                state.spare_refusals = true;
                if !self.is_restless || random.chance(30) {
                    state.faults = faults(random);
                }
            }
        });
        broker
    }
}

fn strategy(random: &mut Random) -> WatermarkStrategy {
    if random.chance(25) {
        return WatermarkStrategy::Adaptive(AdaptiveSettings {
            margin: 1.0,
            buckets: 3,
            bucket_width: Duration::from_secs(5),
            floor: Duration::from_millis(500),
            ceiling: Duration::from_secs(10),
            initial: random.pick(&[None, Some(Duration::from_secs(1))]),
        });
    }
    let max_out_of_orderness = Duration::from_secs(random.pick(&[0, 1, 3, 8]));
    WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness }
}

/// Some of a partition's records belong to transactions that stay open for a while.
fn put_into_transactions(partition: &mut Partition, random: &mut Random) {
    let mut place = 0;
    while place < partition.slots.len() {
        let length = 1 + random.place(6);
        if random.chance(8) {
            let end = partition.slots.len().min(place + length);
            let slots = &mut partition.slots[place..end];
            let ends = slots[slots.len() - 1].arrives + Duration::from_millis(random.below(4_000));
            for slot in slots {
                slot.stable = ends;
            }
        }
        place += length;
    }
}

/// Each world has some kinds of faults, from seldom to often.
fn faults(random: &mut Random) -> Faults {
    let rate = |kinds: &mut Random| {
        if kinds.chance(40) { kinds.pick(&[1, 5, 15, 30]) } else { 0 }
    };
    let rates: [u64; 10] = std::array::from_fn(|_| rate(random));
    let mut random = random.branch();
    Box::new(move |call, _| {
        let [poll, jump, retry_send, abort_send, refuse, retry, abort, lost, member, state] = rates;
        let hit = |random: &mut Random, rate: u64, fault| random.chance(rate).then_some(fault);
        let seldom =
            |random: &mut Random, rate: u64, fault| (random.below(3_000) < rate).then_some(fault);
        let random = &mut random;
        match call {
            Call::Poll => seldom(random, jump, Fault::Jump(Duration::from_secs(40)))
                .or_else(|| seldom(random, poll * 10, Fault::Retry)),
            Call::Start
            | Call::Ends
            | Call::Join
            | Call::Leave
            | Call::Others
            | Call::Partitions
            | Call::Accept
            | Call::Pause
            | Call::HoldBack => hit(random, poll, Fault::Retry),
            Call::Committed | Call::Ensure | Call::Open => hit(random, state, Fault::Retry),
            Call::ReadChangelog => seldom(random, state * 5, Fault::Retry),
            Call::Send(_) => seldom(random, retry_send * 10, Fault::Retry)
                .or_else(|| seldom(random, abort_send, Fault::Abort))
                .or_else(|| seldom(random, refuse, Fault::Refused)),
            Call::Commit => hit(random, retry, Fault::Retry)
                .or_else(|| hit(random, abort / 2, Fault::Abort))
                .or_else(|| hit(random, lost / 2, Fault::AbortAfterCommit))
                .or_else(|| hit(random, lost, Fault::RetryAfterCommit))
                .or_else(|| hit(random, member / 2, Fault::NotAMember))
                .or_else(|| hit(random, refuse, Fault::Refused)),
            Call::Abort => {
                hit(random, retry, Fault::Retry).or_else(|| hit(random, abort, Fault::Abort))
            }
            Call::RefreshLimits => hit(random, retry, Fault::Retry),
            Call::Release
            | Call::Progress
            | Call::Close
            | Call::SendOffsets
            | Call::EndTransaction => None,
        }
    })
}
