//! Events to try the service with: orders of a chain of shops, with the faults that real topics have.
//!
//! Pure and seeded: the same settings give the same records on every machine, and time comes in as an argument. A
//! shop's orders are all in one partition. The records come
//!
//! - **out of order** within a partition: half by under a fourteenth of `disorder`, few by nearly all of it, none by more;
//! - **late**, a share of them: behind by `disorder` and at least `late_by`, so that with a bound of `disorder` their
//!   window has fired unless some other partition holds the watermark back;
//! - **broken**, a share of them, in one of the ways of [`Flaw`];
//! - as **tombstones**, a small share;
//! - and not at all from the last partition while it is **silent**. When it comes back, a few orders from the silence
//!   come first, as from a till that was offline.

mod order;
mod random;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use self::random::Random;
use crate::event_time::EventTime;

/// What is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorSettings {
    /// Settings and seed determine every record.
    pub seed: u64,
    /// Partitions of the topic; at least one is assumed.
    pub partitions: u32,
    /// Records per second, over all partitions; at least one is assumed.
    pub rate: u32,
    /// When the first record is due.
    pub start: EventTime,
    /// The most that an ordinary record is behind its event time.
    pub disorder: Duration,
    /// The share of late records, 0 to 1.
    pub late_share: f64,
    /// The least that late records are behind beyond `disorder`; with a window's size they miss it for certain.
    pub late_by: Duration,
    /// The share of broken records, 0 to 1.
    pub broken_share: f64,
    /// The share of tombstones, 0 to 1.
    pub tombstone_share: f64,
    /// When the last partition is silent; `None`: never.
    pub silence: Option<Silence>,
}

impl GeneratorSettings {
    /// Settings with a little of every fault.
    pub fn new(seed: u64, partitions: u32, rate: u32, start: EventTime) -> Self {
        Self {
            seed,
            partitions,
            rate,
            start,
            disorder: Duration::from_secs(2),
            late_share: 0.002,
            late_by: Duration::from_secs(10),
            broken_share: 0.002,
            tombstone_share: 0.001,
            silence: Some(Silence::default()),
        }
    }
}

/// A stretch of each cycle in which the last partition has no records; counted from the generator's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// How long a cycle is.
    pub cycle: Duration,
    /// Where in the cycle the silence begins.
    pub from: Duration,
    /// Where in the cycle it ends; to be seen it must be further from the beginning than the idle timeout.
    pub until: Duration,
}

impl Default for Silence {
    fn default() -> Self {
        Self {
            cycle: Duration::from_mins(1),
            from: Duration::from_secs(20),
            until: Duration::from_secs(45),
        }
    }
}

impl Silence {
    fn contains(self, since_start: Duration) -> bool {
        let cycle = self.cycle.as_millis().max(1);
        let place = since_start.as_millis() % cycle;
        (self.from.as_millis()..self.until.as_millis()).contains(&place)
    }
}

/// A record and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// When it reaches the topic.
    pub due: EventTime,
    /// Which partition it belongs in, or [`Generated::BY_KEY`].
    pub partition: i32,
    /// The message key: the shop.
    pub key: Option<String>,
    /// The order as JSON; `None` is a tombstone.
    pub payload: Option<Vec<u8>>,
    /// When the order was made, whatever a broken payload says.
    pub event_time: EventTime,
    /// What it is an example of.
    pub kind: Kind,
}

impl Generated {
    /// In place of a partition: the one that the key's hash says.
    pub const BY_KEY: i32 = -1;
}

/// What a record is an example of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In order, or within the disorder.
    Ordinary,
    /// From the silence of its partition, sent at its end.
    Delayed,
    /// Behind by more than the disorder.
    Late,
    /// Not usable.
    Broken(Flaw),
    /// Without a payload.
    Tombstone,
}

/// What is wrong with a broken record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The JSON ends in the middle.
    Truncated,
    /// The amount is a text.
    AmountAsText,
    /// Neither a message key nor a shop.
    NoKey,
    /// The timestamp is in seconds where milliseconds are expected.
    Seconds,
    /// The timestamp is a year ahead.
    FarFuture,
}

impl Flaw {
    /// All of them, each as likely as the others.
    pub const ALL: [Self; 5] =
        [Self::Truncated, Self::AmountAsText, Self::NoKey, Self::Seconds, Self::FarFuture];
}

/// Yields the records in the order in which they are due.
#[derive(Clone, Debug)]
pub struct Generator {
    settings: GeneratorSettings,
    random: Random,
    /// The number of the record to come.
    number: u64,
    /// What the silent partition has kept back.
    held_back: VecDeque<Generated>,
}

/// Where records to be sent come from.
pub trait Supply: Send {
    /// When the first record is due.
    fn start(&self) -> EventTime;

    /// The next record that is due before `until`; `None` if there is none.
    fn next_due(&mut self, until: EventTime) -> Option<Generated>;

    /// Whether there will never be another.
    fn is_exhausted(&self) -> bool {
        false
    }
}

impl Supply for Generator {
    fn start(&self) -> EventTime {
        self.settings.start
    }

    fn next_due(&mut self, until: EventTime) -> Option<Generated> {
        Self::next_due(self, until)
    }
}

impl Generator {
    /// A generator at its start.
    pub fn new(mut settings: GeneratorSettings) -> Self {
        settings.partitions = settings.partitions.max(1);
        settings.rate = settings.rate.max(1);
        let random = Random::new(settings.seed);
        Self { settings, random, number: 0, held_back: VecDeque::new() }
    }

    /// What is generated.
    pub fn settings(&self) -> &GeneratorSettings {
        &self.settings
    }

    /// The next record that is due before `until`; `None` if there is none.
    pub fn next_due(&mut self, until: EventTime) -> Option<Generated> {
        loop {
            let since_start = self.since_start();
            let due = self.settings.start + since_start;
            if due >= until {
                return None;
            }
            let silent = self.settings.silence.is_some_and(|silence| silence.contains(since_start));
            if !silent && let Some(held_back) = self.held_back.pop_front() {
                return Some(Generated { due, ..held_back });
            }
            let record = self.record(due);
            self.number += 1;
            if !silent || !self.is_last(record.partition) {
                return Some(record);
            }
            if record.kind == Kind::Ordinary && self.held_back.len() < HELD_BACK {
                self.held_back.push_back(Generated { kind: Kind::Delayed, ..record });
            }
        }
    }

    /// When the record to come is due, counted from the start.
    fn since_start(&self) -> Duration {
        Duration::from_millis(self.number.saturating_mul(1_000) / u64::from(self.settings.rate))
    }

    fn is_last(&self, partition: i32) -> bool {
        u32::try_from(partition).is_ok_and(|partition| partition + 1 == self.settings.partitions)
    }

    fn record(&mut self, due: EventTime) -> Generated {
        let kind = self.kind();
        let behind = match kind {
            Kind::Late => {
                let beyond = self.random.heavy_tail(self.settings.late_by);
                self.settings.disorder + self.settings.late_by + beyond
            }
            Kind::Ordinary | Kind::Delayed | Kind::Broken(_) | Kind::Tombstone => {
                self.random.heavy_tail(self.settings.disorder).min(self.settings.disorder)
            }
        };
        let event_time = due - behind;
        // The lesser of two: the first shops of the list sell more than the last.
        let shops = SHOPS_PER_PARTITION * u64::from(self.settings.partitions);
        let shop = self.random.below(shops).min(self.random.below(shops));
        let partition = i32::try_from(shop % u64::from(self.settings.partitions)).unwrap_or(0);
        let shop = order::shop_name(shop);
        let payload = match kind {
            Kind::Tombstone => None,
            Kind::Broken(flaw) => {
                Some(order::payload(&mut self.random, self.number, &shop, event_time, Some(flaw)))
            }
            Kind::Ordinary | Kind::Delayed | Kind::Late => {
                Some(order::payload(&mut self.random, self.number, &shop, event_time, None))
            }
        };
        let key = (kind != Kind::Broken(Flaw::NoKey)).then_some(shop);
        Generated { due, partition, key, payload, event_time, kind }
    }

    fn kind(&mut self) -> Kind {
        if self.random.chance(self.settings.tombstone_share) {
            Kind::Tombstone
        } else if self.random.chance(self.settings.broken_share) {
            self.random.pick(&Flaw::ALL).map_or(Kind::Ordinary, |flaw| Kind::Broken(*flaw))
        } else if self.random.chance(self.settings.late_share) {
            Kind::Late
        } else {
            Kind::Ordinary
        }
    }
}

/// How many orders of its silence the last partition sends when it is back.
const HELD_BACK: usize = 3;

const SHOPS_PER_PARTITION: u64 = 4;
