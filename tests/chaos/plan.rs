//! What is going to happen, as the seed has it.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::random::Random;

/// Faults in their order.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) allowed_lateness: Duration,
    pub(crate) faults: Vec<Fault>,
}

/// Something that goes wrong, or changes.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Draws whom it meets, among those that are there by then.
    pub(crate) choice: u64,
    /// How long it lasts.
    pub(crate) lasts: Duration,
    /// The next one does not wait until the group reads on.
    pub(crate) overlaps: bool,
}

/// The kinds of faults. Instances and brokers that go are started again; `Leave` and `Join` change their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// SIGKILL of an instance.
    Kill,
    /// SIGTERM of an instance.
    Stop,
    /// SIGSTOP of an instance, for longer than its session and most transactions.
    Stall,
    /// The same for less.
    Pause,
    /// A second process with the name of one that stands still.
    Rival,
    /// SIGTERM of an instance that does not come back.
    Leave,
    /// One more instance.
    Join,
    /// SIGKILL of a broker.
    BrokerKill,
    /// SIGSTOP of a broker.
    BrokerStall,
    /// The topic gets one more partition.
    Grow,
}

impl Plan {
    /// By `TIDEGATE_SEED` (drawn where it is not set) and `TIDEGATE_CHAOS_FAULTS`.
    pub(crate) fn from_environment() -> Self {
        let number = |name| {
            let text = env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is {text:?}, no number")))
        };
        let seed = number("TIDEGATE_SEED").unwrap_or_else(|| {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
            u64::from(now.subsec_nanos()) ^ u64::from(std::process::id())
        });
        let faults =
            number("TIDEGATE_CHAOS_FAULTS").map_or(SHORT, |faults| faults.try_into().unwrap());
        Self::drawn(seed, faults)
    }

    pub(crate) fn drawn(seed: u64, count: usize) -> Self {
        let mut random = Random::new(seed);
        // Half of all runs free windows as they fire, the other half keep them for late records.
        let allowed_lateness = Duration::from_secs(15 * random.below(2));
        let mut faults = Vec::new();
        for of_block in (0..count).step_by(BLOCK).map(|from| BLOCK.min(count - from)) {
            let mut kinds = OF_EACH_BLOCK.to_vec();
            random.shuffle(&mut kinds);
            while kinds.len() < of_block {
                kinds.push(*random.choose(&BY_CHANCE).unwrap());
            }
            faults.extend(kinds.into_iter().take(of_block).map(|kind| fault(kind, &mut random)));
        }
        Self { seed, allowed_lateness, faults }
    }
}

fn fault(kind: Kind, random: &mut Random) -> Fault {
    let mut between =
        |least: u64, most: u64| Duration::from_millis(least + random.below(most - least));
    let lasts = match kind {
        Kind::Kill | Kind::Stop => between(0, 3_000),
        Kind::Stall => between(12_000, 16_000),
        Kind::Pause => between(500, 4_000),
        Kind::BrokerKill => between(0, 6_000),
        Kind::BrokerStall => between(500, 6_000),
        Kind::Rival | Kind::Leave | Kind::Join | Kind::Grow => Duration::ZERO,
    };
    Fault { kind, choice: random.next(), lasts, overlaps: random.below(4) == 0 }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds = BTreeMap::new();
        for fault in &self.faults {
            *kinds.entry(fault.kind).or_insert(0) += 1;
        }
        write!(
            f,
            "chaos: TIDEGATE_SEED={}, allowed lateness {:?}, {} faults: {kinds:?}",
            self.seed,
            self.allowed_lateness,
            self.faults.len()
        )
    }
}

/// Every run of this many faults has to have seen everything.
pub(crate) const BLOCK: usize = 50;

/// What each such run begins with, in any order.
pub(crate) const OF_EACH_BLOCK: [Kind; 9] = [
    Kind::Kill,
    Kind::Stop,
    Kind::Stall,
    Kind::Rival,
    Kind::Leave,
    Kind::Join,
    Kind::BrokerKill,
    Kind::BrokerStall,
    Kind::Grow,
];

/// How it goes on.
const BY_CHANCE: [Kind; 16] = [
    Kind::Kill,
    Kind::Kill,
    Kind::Kill,
    Kind::Kill,
    Kind::Stop,
    Kind::Stop,
    Kind::Stall,
    Kind::Stall,
    Kind::Pause,
    Kind::Rival,
    Kind::Leave,
    Kind::Join,
    Kind::Join,
    Kind::BrokerKill,
    Kind::BrokerKill,
    Kind::BrokerStall,
];

/// Faults of a run that is part of all tests.
const SHORT: usize = 12;
