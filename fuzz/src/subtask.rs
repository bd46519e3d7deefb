//! The core: what happens to one or two subtasks is read from the bytes, and goes the same way in the slow model.

use std::ops::Range;

use crate::naive::{AdaptiveRules, Follow, Rules, WhenAllIdle};
use crate::world::{Emission, Mark, Op, PARTITIONS, Reading, World, play};

/// Plays the script that the bytes are, beside the model; and some of them once more with outputs that wait, which loses
/// none.
pub(crate) fn check(data: &[u8]) {
    let world = world(&mut Bytes(data));
    play(&world, true);
    let later = match data.len() % 8 {
        0 => Reading::BeforeTheNextRecord,
        4 => Reading::InPart,
        _ => return,
    };
    let world = world.keeping_states();
    assert_eq!(world.contents(Reading::AtOnce), world.contents(later), "read {later:?}");
}

/// Bytes as choices; where they end, each is the first.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// One of fewer than 256.
    fn choice(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// A number of a range of at most 65,536; of a larger one only multiples of as many as it takes.
    fn within(&mut self, range: Range<i64>) -> i64 {
        let drawn = i64::from(u16::from_le_bytes([self.byte(), self.byte()]));
        let length = range.end - range.start;
        let step = length / 65_536 + 1;
        range.start + drawn * step % length
    }

    fn natural(&mut self, below: i64) -> u64 {
        self.within(0..below).unsigned_abs()
    }
}

fn world(bytes: &mut Bytes<'_>) -> World {
    let rules = rules(bytes);
    let emission = match bytes.choice(4) {
        0 | 1 => Emission::Periodic,
        2 => Emission::OfTheRecordsPartition,
        _ => Emission::OfAllAfterEachRecord,
    };
    let subtasks = if rules.one_for_all { 1 } else { 2 };
    let mut script = Vec::new();
    while !bytes.0.is_empty() && script.len() < MOST_OPS {
        script.push(op(bytes));
    }
    World { rules, subtasks, emission, reading: Reading::AtOnce, script }
}

fn rules(bytes: &mut Bytes<'_>) -> Rules {
    let mut topic = || (follow(bytes), bytes.flag().then(|| bytes.natural(2_000) + 1));
    let topics = vec![topic(), topic()];
    let size_ms = bytes.within(1..3_000);
    Rules {
        topics,
        size_ms,
        offset_ms: if bytes.flag() { bytes.within(1 - size_ms..size_ms) } else { 0 },
        lateness_ms: if bytes.flag() { bytes.within(0..4_000) } else { 0 },
        discarding: bytes.flag(),
        one_for_all: bytes.flag(),
        all_idle: match bytes.choice(3) {
            0 => WhenAllIdle::Hold,
            1 => WhenAllIdle::Flush,
            _ => WhenAllIdle::WallClock,
        },
    }
}

fn follow(bytes: &mut Bytes<'_>) -> Follow {
    match bytes.choice(6) {
        0..3 => Follow::Bounded { bound_ms: bytes.within(0..3_000) },
        3 => Follow::Punctuated,
        4 => Follow::Marks,
        _ => {
            let floor_ms = bytes.within(0..500);
            let ceiling_ms = floor_ms + bytes.within(0..4_000);
            Follow::Adaptive(AdaptiveRules {
                margin: bytes.within(1..4),
                buckets: bytes.within(1..5),
                width_ms: bytes.within(1..2_000),
                floor_ms,
                ceiling_ms,
                initial_ms: bytes.within(0..5_000).clamp(floor_ms, ceiling_ms),
            })
        }
    }
}

fn op(bytes: &mut Bytes<'_>) -> Op {
    match bytes.choice(32) {
        0..14 => Op::Event {
            partition: bytes.choice(PARTITIONS.len()),
            behind_ms: bytes.within(-1_000..6_000),
            key: bytes.byte() % 3,
            value: bytes.flag().then(|| bytes.within(-50..100)),
            marker: match bytes.choice(8) {
                0..3 => Mark::None,
                3 | 4 => Mark::Behind(bytes.within(-4_000..3_000)),
                5 => Mark::Flag(bytes.flag()),
                6 => Mark::Idle,
                _ => Mark::Active,
            },
        },
        14..17 => Op::Ahead { ms: bytes.within(0..2_000) },
        17..24 => Op::Pass {
            ms: if bytes.flag() { 200 } else { bytes.natural(2_500) },
            emit: bytes.choice(5) > 0,
        },
        24 => Op::StepWall { ms: bytes.within(-100_000..100_000) },
        25 => Op::Hold { partition: bytes.choice(PARTITIONS.len()), hold: bytes.flag() },
        26..29 => Op::Move {
            partition: bytes.choice(PARTITIONS.len()),
            to: bytes.choice(2),
            with_state: bytes.choice(5) > 0,
        },
        29 => Op::Renew { partition: bytes.choice(PARTITIONS.len()) },
        _ => Op::Drain { subtask: bytes.choice(2) },
    }
}

/// A longer script shows no more.
const MOST_OPS: usize = 120;
