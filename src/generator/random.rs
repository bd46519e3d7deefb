//! Pseudo-random numbers from a seed: the same on every machine, good enough for a demo, not for secrets.

use std::time::Duration;

/// `SplitMix64`: one 64-bit state, advanced by a constant and mixed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero if that is zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is spread evenly, but for one part in 2^64 / bound.
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// One of these; `None` if there are none.
    pub(super) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let index = self.below(u64::try_from(choices.len()).unwrap_or(0));
        choices.get(usize::try_from(index).unwrap_or(0))
    }

    /// A number in (0, 1].
    pub(super) fn unit(&mut self) -> f64 {
        let high = u32::try_from(self.next() >> 32).unwrap_or(u32::MAX);
        (f64::from(high) + 1.0) / (f64::from(u32::MAX) + 1.0)
    }

    /// True with this probability: never at zero, always at one.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() <= probability
    }

    /// A delay with a heavy tail: half of them are within a fourteenth of `scale`, one in fifty is beyond it, none
    /// beyond four times as much. A root and no other power, since that is the same to the last bit everywhere.
    pub(super) fn heavy_tail(&mut self, scale: Duration) -> Duration {
        const MOST: f64 = 4.0;
        let pareto = (1.0 / self.unit().sqrt() - 1.0) / 6.0;
        scale.mul_f64(pareto.min(MOST))
    }
}
