//! What happens to processes, out of a seed: they are killed between any two calls, suspended, replaced while they live,
//! stopped, and pass each other at any moment.

use std::time::Duration;

use crate::memory::Call;
use crate::random::Random;

/// What happens between two calls of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// It is dead, and comes back after this time.
    Crash(Duration),
    /// It stands still for so long, and the others go on.
    Suspend(Duration),
    /// Another one begins under its name, and it is not dead: it stands still for so long, and then it goes on.
    Replace(Duration),
    /// It is asked to stop, and comes back so long after.
    Stop(Duration),
    /// Others go so many turns.
    Others(u64),
    /// Partitions are wanted elsewhere.
    Stir,
}

/// When something happens, and what.
#[derive(Clone, Debug)]
pub(crate) struct Chaos {
    random: Random,
    /// How many disturbances are left.
    left: u64,
    /// So many calls are left until the next one,
    until_next: u64,
    /// counted from this time on.
    not_before: Duration,
    /// Whether only those calls count that change something.
    only_weighty: bool,
    /// Of a thousand weighty calls so many let others pass.
    passing: u64,
    /// Whether partitions go round all the time.
    restless: bool,
}

impl Chaos {
    pub(crate) fn new(mut random: Random, restless: bool) -> Self {
        let (left, passing) = if restless {
            (20 + random.below(60), 10)
        } else {
            (random.below(9), random.pick(&[0, 10, 100]))
        };
        let mut chaos = Self {
            random,
            left,
            until_next: 0,
            not_before: Duration::ZERO,
            only_weighty: false,
            passing,
            restless,
        };
        chaos.look_ahead(Duration::ZERO);
        chaos
    }

    fn look_ahead(&mut self, clock: Duration) {
        self.only_weighty = self.random.chance(75);
        let calls = if self.only_weighty { 100 } else { 1_500 };
        self.until_next = self.random.of_any_size(calls);
        let most = if self.restless { 1_500 } else { 4_000 };
        let pause = if self.random.chance(50) { self.random.below(most) } else { 0 };
        self.not_before = clock + Duration::from_millis(pause);
    }

    /// Nothing ever happens, but that processes pass each other.
    pub(crate) fn none(random: Random) -> Self {
        Self { left: 0, passing: 10, ..Self::new(random, false) }
    }

    /// Nothing happens any more.
    pub(crate) fn end(&mut self) {
        self.left = 0;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// What happens before this call.
    pub(crate) fn before(&mut self, call: Call, clock: Duration) -> Option<Disturbance> {
        let weighty = !matches!(call, Call::Poll | Call::Progress | Call::Others);
        if weighty && self.random.below(1_000) < self.passing {
            return Some(Disturbance::Others(1 + self.random.of_any_size(8)));
        }
        if self.left == 0 || clock < self.not_before || (self.only_weighty && !weighty) {
            return None;
        }
        // Most calls send something.
        if self.only_weighty && matches!(call, Call::Send(_)) && self.random.chance(80) {
            return None;
        }
        if self.until_next > 0 {
            self.until_next -= 1;
            return None;
        }
        self.left -= 1;
        self.look_ahead(clock);
        let a_while =
            |random: &mut Random, most: u64| Duration::from_millis(random.of_any_size(most));
        let random = &mut self.random;
        if self.restless && random.chance(95) {
            return Some(Disturbance::Stir);
        }
        Some(match random.below(12) {
            0..=4 => Disturbance::Crash(a_while(random, 16_000)),
            5 | 6 => Disturbance::Suspend(a_while(random, 30_000)),
            7 => Disturbance::Replace(a_while(random, 30_000)),
            8 => Disturbance::Stop(a_while(random, 8_000)),
            9 | 10 => Disturbance::Others(1 + random.below(50)),
            _ => Disturbance::Stir,
        })
    }

    /// One of so many.
    pub(crate) fn one_of(&mut self, length: usize) -> usize {
        self.random.place(length)
    }
}
