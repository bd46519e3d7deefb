//! Whether a producer sends in batches, and how often.

/// Gaps between records by their size, in classes that double; finds the pause that comes again and again.
///
/// ```
/// use tidegate::insight::advise::Pauses;
///
/// let mut pauses = Pauses::default();
/// for _ in 0..12 {
///     (0..200).for_each(|_| pauses.add(2));
///     pauses.add(299_600);
/// }
/// (0..200).for_each(|_| pauses.add(2));
/// assert_eq!(pauses.batches().map(|batches| batches.period_ms), Some(300_000));
/// ```
#[derive(Clone, Debug)]
pub struct Pauses {
    /// Class n has the gaps from 2^(n-1) up to but not including 2^n ms, class 0 those of no length.
    classes: [Class; CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    count: u64,
    total_ms: u64,
}

/// To a full second, or below a minute to a tenth of one.
fn round_near(ms: u64) -> u64 {
    let step = if ms < 60_000 { 100 } else { 1_000 };
    (ms + step / 2) / step * step
}

/// Records that come in batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches {
    /// From the beginning of one to that of the next, in milliseconds.
    pub period_ms: u64,
    /// How many pauses between batches were seen.
    pub pauses: u64,
    /// The gaps within batches.
    pub within: u64,
}

impl Pauses {
    /// Takes in the gap between two records.
    pub fn add(&mut self, gap_ms: u64) {
        let class = (u64::BITS - gap_ms.leading_zeros()) as usize;
        if let Some(class) = self.classes.get_mut(class.min(CLASSES - 1)) {
            class.count += 1;
            class.total_ms = class.total_ms.saturating_add(gap_ms);
        }
    }

    /// Takes in all of another.
    pub fn merge(&mut self, other: &Self) {
        for (class, more) in self.classes.iter_mut().zip(&other.classes) {
            class.count += more.count;
            class.total_ms = class.total_ms.saturating_add(more.total_ms);
        }
    }

    /// The batches, where there are any: pauses of about one length take up most of the time, come again at least
    /// [`LEAST_PAUSES`] times and no less often than every other record, and nearly all other gaps are much shorter.
    ///
    /// Gaps by chance do not pass: of those that are exponentially distributed, only one in eight is shorter than an
    /// eighth of the mean. A single long outage does not hide batches: it is in a class of its own.
    pub fn batches(&self) -> Option<Batches> {
        let pair = |first: usize| self.sum(first..(first + 2).min(CLASSES));
        let again =
            (SHORTEST_PAUSE_CLASS..CLASSES).filter(|first| pair(*first).count >= LEAST_PAUSES);
        let first = again.max_by_key(|first| pair(*first).total_ms)?;
        let pauses = pair(first);
        let (shorter, near) = (self.sum(0..first), self.sum(first.saturating_sub(3)..first));
        let time = pauses.total_ms.saturating_add(shorter.total_ms);
        let are_batches = pauses.total_ms / 10 * 10 >= time / 10 * 7
            && shorter.count >= pauses.count
            && near.count <= shorter.count / 20;
        are_batches.then(|| Batches {
            // One batch more than pauses, as in most stretches; a hundredth more or less is nothing.
            period_ms: round_near(
                pauses.total_ms / pauses.count + shorter.total_ms / (pauses.count + 1),
            ),
            pauses: pauses.count,
            within: shorter.count,
        })
    }

    fn sum(&self, classes: std::ops::Range<usize>) -> Class {
        let classes = self.classes.get(classes).unwrap_or_default();
        classes.iter().fold(Class::default(), |sum, class| Class {
            count: sum.count + class.count,
            total_ms: sum.total_ms.saturating_add(class.total_ms),
        })
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self { classes: [Class::default(); CLASSES] }
    }
}

/// Up to 2^39 ms, 17 years.
const CLASSES: usize = 40;

/// Pauses from half a second on.
const SHORTEST_PAUSE_CLASS: usize = 10;

/// Fewer pauses are no pattern.
const LEAST_PAUSES: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::advise::tests::shares;

    fn of(gaps: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut pauses = Pauses::default();
        gaps.into_iter().for_each(|gap| pauses.add(gap));
        pauses.batches().map(|batches| batches.period_ms)
    }

    #[test]
    fn batches_are_found_whatever_their_size() {
        let every_five_minutes = |records: u64| {
            let within = records - 1;
            let batch = move || {
                let pause = 300_000 - within * 10;
                (0..within).map(|_| 10).chain([pause])
            };
            of((0..12).flat_map(move |_| batch()).chain((0..within).map(|_| 10)))
        };
        for records in [2, 20, 2_000] {
            assert_eq!(every_five_minutes(records), Some(300_000), "{records} records");
        }
    }

    #[test]
    fn a_wavering_period_and_an_outage_change_little() {
        let mut random = shares(3);
        let mut gaps = Vec::new();
        for batch in 0..24_u32 {
            gaps.extend([3; 50]);
            let waver = if random() < 0.5 { 280_000 } else { 320_000 };
            gaps.push(if batch == 11 { 7_200_000 } else { waver });
        }
        let period = of(gaps).unwrap();
        assert!((280_000..=335_000).contains(&period), "{period}");
    }

    #[test]
    fn gaps_by_chance_and_steady_ones_are_no_batches() {
        let mut random = shares(5);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a test")]
        let exponential = |mean: f64, u: f64| (-mean * u.ln()) as u64;
        for mean in [800.0, 5_000.0, 26_000.0, 61_000.0] {
            let gaps: Vec<_> = (0..5_000).map(|_| exponential(mean, random())).collect();
            assert_eq!(of(gaps), None, "mean {mean}");
        }
        assert_eq!(of([1_000; 500]), None, "a heartbeat");
        assert_eq!(of([0; 500]), None);
        assert_eq!(of([3, 3, 3, 3, 3_600_000]), None, "one pause");
    }
}
