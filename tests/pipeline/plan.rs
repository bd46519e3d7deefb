//! A world out of a seed: a configuration, input partitions, and what goes wrong.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate::config::{Config, KeyFrom};
use tidegate::event_time::{AllIdle, Panes, PartitionId, WatermarkStrategy};
use tidegate::pipeline::{OutputTopic, Polled, RunUntil};

use crate::memory::{Broker, Call, Fault, Input, Partition, Slot, Stop, WALL};
use crate::settings;

/// Numbers out of a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

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
    pub(crate) until: RunUntil,
    pub(crate) sent: Vec<Sent>,
    pub(crate) inputs: BTreeMap<PartitionId, Partition>,
    /// Whether what comes out depends on nothing but the order of the records.
    pub(crate) timeless: bool,
    pub(crate) result_partitions: i32,
}

pub(crate) const WINDOW: i64 = 10_000;
/// Event time begins a day before the present.
const BEGIN: i64 = WALL - 86_400_000;

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut config = settings::config();
        let timeless = random.chance(30);
        config.emit_interval =
            if timeless || random.chance(30) { Duration::ZERO } else { Duration::from_millis(200) };
        config.allowed_lateness = Duration::from_secs(random.pick(&[0, 0, 5, 20]));
        config.panes = random.pick(&[Panes::Accumulating, Panes::Discarding]);
        config.all_idle = random.pick(&[AllIdle::Hold, AllIdle::Flush, AllIdle::WallClock]);
        config.results.progress = random.chance(40);
        config.delivery.commit_interval = Duration::from_millis(random.pick(&[100, 1_000, 7_000]));
        let bound = Duration::from_secs(random.pick(&[0, 1, 3, 8]));
        for source in &mut config.sources {
            source.strategy =
                WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness: bound };
            if !timeless && random.chance(50) {
                source.idle_timeout = Some(Duration::from_secs(2));
            }
        }
        match random.below(3) {
            0 => config.key.from = KeyFrom::Message,
            1 => config.key.partial = true,
            _ => {}
        }
        if config.key.from != KeyFrom::Message && !config.key.partial && random.chance(30) {
            let other = config.sources[0].clone();
            config.sources.push(tidegate::config::Source { topic: "other".to_owned(), ..other });
        }
        let until = if random.chance(40) { RunUntil::End } else { RunUntil::Stopped };
        let mut plan = Self {
            seed,
            config,
            until,
            sent: Vec::new(),
            inputs: BTreeMap::new(),
            timeless,
            result_partitions: 1 + i32::try_from(random.below(3)).unwrap(),
        };
        plan.write_inputs(&mut random);
        plan
    }

    fn write_inputs(&mut self, random: &mut Random) {
        let topics = u16::try_from(self.config.sources.len()).unwrap();
        for topic in 0..topics {
            for partition in 0..=i32::try_from(random.below(4)).unwrap() {
                let first = i64::try_from(random.below(3) * 10).unwrap();
                let held = Partition { first, ..Partition::default() };
                self.inputs.insert(PartitionId { topic, partition }, held);
            }
        }
        let ids: Vec<_> = self.inputs.keys().copied().collect();
        let at_once = self.timeless || self.until == RunUntil::End;
        let (mut arrival, mut event_time) = (Duration::ZERO, BEGIN);
        let mut away: Option<(PartitionId, u64)> = None;
        for number in 0..20 + random.below(150) {
            event_time += i64::try_from(random.below(1_500)).unwrap();
            if !at_once {
                arrival += Duration::from_millis(random.below(120));
                if random.chance(2) {
                    arrival += Duration::from_secs(random.below(8));
                }
            }
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
    }

    fn append(&mut self, id: PartitionId, arrives: Duration, record: Option<(Input, i64, Fate)>) {
        let held = self.inputs.get_mut(&id).unwrap();
        let offset = held.first + i64::try_from(held.slots.len()).unwrap();
        let content = record.map(|(input, timestamp, fate)| {
            self.sent.push(Sent { id, offset, timestamp, fate });
            Rc::new(input)
        });
        held.slots.push(Slot { arrives, content });
    }

    fn record(&self, random: &mut Random, key: String, timestamp: i64) -> (Input, Fate) {
        let value = random.next() >> 8;
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

    /// The broker of this world; without faults nothing fails and no limit changes.
    pub(crate) fn broker(&self, with_faults: bool) -> Broker {
        let mut random = Random(self.seed ^ 0xB20C_E12A);
        let broker = Broker::new(self.inputs.clone());
        let late_comers = self.until == RunUntil::Stopped && !self.timeless && random.chance(30);
        broker.with(|state| {
            let mut order = Random(random.next());
            state.choose = Box::new(move |of| usize::try_from(order.below(of as u64)).unwrap());
            state.poll_takes = Duration::from_micros(random.pick(&[0, 50, 2_000, 30_000]));
            state.stop = match self.until {
                RunUntil::End => Stop::Never,
                RunUntil::Stopped if with_faults && random.chance(20) => {
                    Stop::At(Duration::from_millis(random.below(20_000)))
                }
                RunUntil::Stopped => Stop::AfterAll(Duration::from_secs(random.below(10))),
            };
            for limits in [&mut state.limits, &mut state.known_limits] {
                limits.get_mut(&OutputTopic::Results).unwrap().partitions = self.result_partitions;
            }
            if late_comers && self.inputs.len() > 1 {
                let ids: Vec<_> = self.inputs.keys().copied().collect();
                let (first, rest) = ids.split_at(1);
                state.rebalances = [
                    (Duration::ZERO, Polled::Assigned(first.to_vec())),
                    (Duration::from_secs(3), Polled::Assigned(rest.to_vec())),
                ]
                .into();
            }
            if with_faults {
                if random.chance(50) {
                    let after = |random: &mut Random| usize::try_from(random.below(6)).unwrap();
                    state.shrinks = vec![
                        (after(&mut random), OutputTopic::Results, 700),
                        (after(&mut random), OutputTopic::Late, 900),
                        (after(&mut random), OutputTopic::DeadLetter, 1_100),
                    ];
                }
                state.spare_refusals = true;
                state.faults = faults(&mut random);
            }
        });
        broker
    }
}

/// Each world has some kinds of faults, from seldom to often.
fn faults(random: &mut Random) -> crate::memory::Faults {
    let rate = |kinds: &mut Random| {
        if kinds.chance(50) { kinds.pick(&[1, 5, 15, 30]) } else { 0 }
    };
    let rates: [u64; 9] = std::array::from_fn(|_| rate(random));
    let mut random = Random(random.next());
    Box::new(move |call, _| {
        let [poll, jump, retry_send, abort_send, refuse, retry, abort, lost, member] = rates;
        let hit = |random: &mut Random, rate: u64, fault| random.chance(rate).then_some(fault);
        // After each of these everything is sent again.
        let seldom =
            |random: &mut Random, rate: u64, fault| (random.below(3_000) < rate).then_some(fault);
        let random = &mut random;
        match call {
            Call::Poll => hit(random, jump / 4, Fault::Jump(Duration::from_secs(40)))
                .or_else(|| hit(random, poll, Fault::Retry)),
            Call::Start | Call::Ends => hit(random, poll, Fault::Retry),
            Call::Send(_) => hit(random, retry_send, Fault::Retry)
                .or_else(|| seldom(random, abort_send, Fault::Abort))
                .or_else(|| seldom(random, refuse, Fault::Refused)),
            Call::Commit => hit(random, retry, Fault::Retry)
                .or_else(|| hit(random, abort, Fault::Abort))
                .or_else(|| hit(random, lost, Fault::AbortAfterCommit))
                .or_else(|| hit(random, member, Fault::NotAMember))
                .or_else(|| hit(random, refuse, Fault::Refused)),
            Call::Abort => {
                hit(random, retry, Fault::Retry).or_else(|| hit(random, abort, Fault::Abort))
            }
            Call::RefreshLimits => hit(random, retry, Fault::Retry),
        }
    })
}
