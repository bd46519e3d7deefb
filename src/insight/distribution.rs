//! How long things took, or how far they were apart: counted by classes that are fixed beforehand.

use std::time::Duration;

use crate::event_time::EventTime;

/// Counts of durations, as a histogram of Prometheus has them.
///
/// ```
/// use std::time::Duration;
/// use tidegate::insight::Distribution;
///
/// let mut distribution = Distribution::default();
/// distribution.add(Duration::ZERO, 3);
/// distribution.add(Duration::from_millis(7), 1);
/// let counts: Vec<_> = distribution.cumulative().map(|(_, count)| count).collect();
/// assert_eq!(counts[..4], [3, 3, 4, 4]);
/// assert_eq!(distribution.count(), 4);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// By class; the last one has what is greater than all bounds.
    counts: [u64; BOUNDS_MS.len() + 1],
    sum_ms: u128,
}

impl Distribution {
    /// Adds so many of this duration.
    pub fn add(&mut self, duration: Duration, times: u64) {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let class = BOUNDS_MS.partition_point(|bound| *bound < ms);
        if let Some(count) = self.counts.get_mut(class) {
            *count += times;
        }
        self.sum_ms += u128::from(ms) * u128::from(times);
    }

    /// Adds how far `earlier` is behind `later`; nothing, if it is not.
    pub fn add_behind(&mut self, earlier: EventTime, later: EventTime) {
        self.add(if earlier < later { earlier.behind(later) } else { Duration::ZERO }, 1);
    }

    /// Takes in another one.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_ms += other.sum_ms;
    }

    /// The bounds of the classes, each with how many are not above it.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut sum = 0;
        BOUNDS_MS.iter().zip(self.counts).map(move |(bound, count)| {
            sum += count;
            (Duration::from_millis(*bound), sum)
        })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum, to the millisecond.
    pub fn sum(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.sum_ms).unwrap_or(u64::MAX))
    }
}

/// From a millisecond to an hour. The first class has what was in order, or took no time.
const BOUNDS_MS: [u64; 16] = [
    0, 1, 10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000,
    3_600_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_class_and_nothing_is_lost_above_the_last() {
        let mut distribution = Distribution::default();
        for ms in [1_000, 1_001, 3_600_000, 3_600_001, u64::MAX] {
            distribution.add(Duration::from_millis(ms), 1);
        }
        let at = |seconds| {
            let asked = Duration::from_secs(seconds);
            distribution.cumulative().find(|(bound, _)| *bound == asked).map(|(_, count)| count)
        };
        assert_eq!((at(1), at(3_600), distribution.count()), (Some(1), Some(3), 5));
        assert_eq!(distribution.sum(), Duration::from_millis(u64::MAX));
    }

    #[test]
    fn what_is_ahead_is_not_behind() {
        let mut distribution = Distribution::default();
        distribution.add_behind(EventTime(5_000), EventTime(2_000));
        distribution.add_behind(EventTime(2_000), EventTime(5_000));
        assert_eq!(distribution.cumulative().next(), Some((Duration::ZERO, 1)));
        let mut twice = distribution.clone();
        twice.merge(&distribution);
        assert_eq!((twice.count(), twice.sum()), (4, Duration::from_secs(6)));
    }
}
