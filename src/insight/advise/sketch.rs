//! Percentiles in little memory.

use std::fmt;

use serde::Serialize;
use sketches_ddsketch::{Config, DDSketch};

/// Durations in milliseconds, of which any percentile can be asked; each is right to within
/// [`Sketch::RELATIVE_ERROR`], the greatest is exact.
///
/// At most 8 KiB whatever comes: beyond a span of nine days between the least and the greatest duration, the least ones
/// are taken for one.
///
/// ```
/// use tidegate::insight::advise::Sketch;
///
/// let mut sketch = Sketch::default();
/// (1..=1_000).for_each(|ms| sketch.add(ms));
/// assert!(sketch.quantile(0.99).unwrap().abs_diff(990) <= 10);
/// assert!((sketch.share_above(900) - 0.1).abs() < 0.01);
/// assert_eq!(sketch.max(), Some(1_000));
/// ```
#[derive(Clone)]
pub struct Sketch(DDSketch);

/// What is shown of a [`Sketch`], in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half are at most this.
    pub p50: u64,
    /// 90 % are at most this.
    pub p90: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// 99.9 % are at most this.
    #[serde(rename = "p99.9")]
    pub p99_9: u64,
    /// The greatest, exactly.
    pub max: u64,
}

impl Sketch {
    /// A percentile is off by at most this share of itself.
    pub const RELATIVE_ERROR: f64 = 0.01;

    /// Takes in a duration.
    pub fn add(&mut self, ms: u64) {
        self.0.add(as_float(ms));
    }

    /// Takes in all of another sketch.
    pub fn merge(&mut self, other: &Self) {
        // All have one configuration, which is all that could be wrong.
        self.0.merge(&other.0).unwrap_or_default();
    }

    /// How many durations were taken in.
    pub fn count(&self) -> u64 {
        self.0.count() as u64
    }

    /// The duration that this share of all does not exceed, in milliseconds; `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        self.value(share).map(as_millis)
    }

    /// The greatest, exactly, in milliseconds.
    pub fn max(&self) -> Option<u64> {
        self.0.max().map(as_millis)
    }

    /// The share of durations greater than this, 0 if there are none.
    pub fn share_above(&self, ms: u64) -> f64 {
        let count = self.count();
        if count == 0 || self.0.max().is_none_or(|max| max <= as_float(ms)) {
            return 0.0;
        }
        // The sketch tells the value at a rank: the first rank above is looked for.
        let is_above = |rank: u64| {
            let share = (as_float(rank) + 0.5) / as_float(count.saturating_sub(1).max(1));
            self.value(share.min(1.0)).is_some_and(|value| value > as_float(ms))
        };
        let (mut low, mut high) = (0, count - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_above(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        as_float(count - low) / as_float(count)
    }

    /// The mean: no guide to disorder, only ever used to say what it would have lost.
    pub(super) fn mean(&self) -> Option<u64> {
        let count = self.count();
        (count > 0).then(|| as_millis(self.0.sum().unwrap_or_default() / as_float(count)))
    }

    /// The percentiles that are shown; `None` if there are none.
    pub fn percentiles(&self) -> Option<Percentiles> {
        Some(Percentiles {
            p50: self.quantile(0.5)?,
            p90: self.quantile(0.9)?,
            p99: self.quantile(0.99)?,
            p99_9: self.quantile(0.999)?,
            max: self.max()?,
        })
    }

    /// About how much memory it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.length() * size_of::<u64>()
    }

    fn value(&self, share: f64) -> Option<f64> {
        let value = self.0.quantile(share.clamp(0.0, 1.0)).ok().flatten()?;
        // The middle of the last class may lie beyond the greatest.
        Some(value.min(self.0.max().unwrap_or(value)))
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self(DDSketch::new(Config::new(Self::RELATIVE_ERROR, MOST_BINS, LEAST_MS)))
    }
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sketch").field("count", &self.count()).field("max", &self.max()).finish()
    }
}

/// Classes of 2 % each, 8 bytes a class.
const MOST_BINS: u32 = 1_024;

/// Below this it is zero.
const LEAST_MS: f64 = 0.5;

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 ms the sketch is coarser by far")]
fn as_float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what went in is not negative, and what is too large becomes the greatest"
)]
fn as_millis(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The percentiles of these durations as they are, beside those of their sketch.
    fn compare(mut durations: Vec<u64>) {
        let mut sketch = Sketch::default();
        for ms in &durations {
            sketch.add(*ms);
        }
        durations.sort_unstable();
        for share in [0.5, 0.9, 0.99, 0.999] {
            let rank = as_millis((share * as_float(durations.len() as u64 - 1)).floor());
            let exact = as_float(durations[usize::try_from(rank).unwrap()]);
            let told = as_float(sketch.quantile(share).unwrap());
            // What is shown is in whole milliseconds.
            let allowed = exact * Sketch::RELATIVE_ERROR + 0.5;
            assert!((told - exact).abs() <= allowed, "{share}: {told} for {exact}");
            let above = durations.iter().filter(|ms| as_float(**ms) > exact).count();
            let near = durations.iter().filter(|ms| {
                (as_float(**ms) - exact).abs() <= 3.0 * Sketch::RELATIVE_ERROR * exact + 1.0
            });
            let off = sketch.share_above(as_millis(exact)) * as_float(durations.len() as u64)
                - as_float(above as u64);
            assert!(off.abs() <= as_float(near.count() as u64), "{share}: {off} records off");
        }
        assert_eq!(sketch.max(), durations.last().copied());
    }

    #[test]
    fn percentiles_of_known_distributions_are_within_the_error() {
        let mut random = crate::insight::advise::tests::shares(7);
        let mut shares = || random().max(1e-9);
        let uniform = |u: f64| as_millis(u * 60_000.0);
        let exponential = |u: f64| as_millis(-1_300.0 * u.ln());
        // Heavy tails: one in a thousand beyond an hour.
        let pareto = |u: f64| as_millis(100.0 * u.powf(-1.5)).min(3_600_000_000);
        for of in [uniform, exponential, pareto] {
            compare((0..50_000).map(|_| of(shares())).collect());
        }
        compare(vec![0; 1_000]);
        compare((0..1_000).map(|i| if i % 10 == 0 { 86_400_000 } else { 0 }).collect());
        compare(vec![17]);
    }

    #[test]
    fn merged_sketches_are_the_sketch_of_all() {
        let (mut one, mut other, mut all) =
            (Sketch::default(), Sketch::default(), Sketch::default());
        for ms in 0..10_000_u64 {
            if ms % 3 == 0 { &mut one } else { &mut other }.add(ms * ms);
            all.add(ms * ms);
        }
        one.merge(&other);
        assert_eq!(one.percentiles(), all.percentiles());
        assert_eq!(one.count(), 10_000);
    }

    #[test]
    fn the_memory_is_bounded_and_the_high_percentiles_stay() {
        let mut sketch = Sketch::default();
        for exponent in 0..63 {
            sketch.add(1 << exponent);
        }
        assert!(sketch.bytes() < 9_000, "{} bytes", sketch.bytes());
        let told = as_float(sketch.quantile(0.9).unwrap());
        assert!((told / as_float(1 << 55) - 1.0).abs() < Sketch::RELATIVE_ERROR, "{told}");
    }

    #[test]
    fn nothing_has_no_percentiles() {
        let sketch = Sketch::default();
        assert_eq!((sketch.percentiles(), sketch.mean(), sketch.max()), (None, None, None));
        assert!(sketch.share_above(0).abs() < f64::EPSILON);
    }
}
