//! How disordered the records of the last hour were, and what other bounds would have lost.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::insight::advise::{Advice, Observations, Observed, Percentiles, Terms};
use crate::insight::explain::ms;
use crate::insight::{Distribution, Overview};

/// Of each topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Disorder {
    /// By topic.
    pub topics: Vec<OfTopic>,
}

/// One topic. Durations are milliseconds, shares go from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfTopic {
    /// Its name.
    pub topic: String,
    /// Records looked at.
    pub records: u64,
    /// How far they were behind the greatest event time before them.
    pub percentiles: Option<Percentiles>,
    /// The greatest bound in force in any of its partitions.
    pub bound_ms: Option<u64>,
    /// The bound that advise recommends.
    pub recommended_ms: Option<u64>,
    /// Classes of how far records were behind, in order; the last one has no upper end.
    pub classes: Vec<Class>,
    /// Bounds, in order, and what each would have lost.
    pub bounds: Vec<Bound>,
}

/// Records that were behind by about as much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Class {
    /// At most so far behind, and more than the class before.
    pub up_to_ms: Option<u64>,
    /// Their share.
    pub share: f64,
}

/// A bound and what it would have lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// The bound.
    pub bound_ms: u64,
    /// The share of the records that would have been late.
    pub late_share: f64,
}

impl Disorder {
    /// Works it out; with a thousand partitions it takes some tens of milliseconds.
    pub fn new(observed: &[Arc<Observations>], terms: &[Terms], overview: &Overview) -> Self {
        let topics = (0..).zip(terms).map(|(number, terms)| {
            let partitions = observed.iter().flat_map(|seen| seen.of_topic(number)).collect();
            let terms = Terms { is_live: true, ..terms.clone() };
            let advice = Advice::new(&partitions, &terms);
            let mut all = Observed::default();
            for partition in partitions.values() {
                all.merge(partition);
            }
            let partitions = overview.subtasks().flat_map(|(_, snapshot)| &snapshot.partitions);
            let of_topic = partitions.filter(|partition| partition.id.topic == number);
            let bound = of_topic.filter_map(|partition| partition.bound).max();
            OfTopic::new(&advice, &all, bound)
        });
        Self { topics: topics.collect() }
    }
}

impl OfTopic {
    fn new(advice: &Advice, all: &Observed, bound: Option<Duration>) -> Self {
        let recommended = advice.recommendation.as_ref();
        let (bound_ms, recommended_ms) =
            (bound.map(ms), recommended.map(|fit| fit.max_out_of_orderness_ms));
        let mut steps: Vec<_> =
            BOUNDS_MS.into_iter().chain(bound_ms).chain(recommended_ms).collect();
        steps.sort_unstable();
        steps.dedup();
        let late_share =
            |bound_ms| Bound { bound_ms, late_share: all.needed_bound.share_above(bound_ms) };
        Self {
            topic: advice.topic.clone(),
            records: advice.records,
            percentiles: advice.out_of_orderness_ms,
            bound_ms,
            recommended_ms,
            classes: if all.records == 0 { Vec::new() } else { classes(all) },
            bounds: if all.records == 0 {
                Vec::new()
            } else {
                steps.into_iter().map(late_share).collect()
            },
        }
    }
}

fn classes(all: &Observed) -> Vec<Class> {
    let mut more = 1.0;
    let mut classes: Vec<_> = Distribution::default()
        .cumulative()
        .map(|(up_to, _)| {
            let above = all.out_of_orderness.share_above(ms(up_to)).min(more);
            let share = more - above;
            more = above;
            Class { up_to_ms: Some(ms(up_to)), share }
        })
        .collect();
    classes.push(Class { up_to_ms: None, share: more });
    classes
}

/// The bounds that are tried besides the one in force and the recommended one: from none to a day.
const BOUNDS_MS: [u64; 22] = [
    0, 100, 250, 500, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 30_000,
    60_000, 120_000, 300_000, 900_000, 1_800_000, 3_600_000, 10_800_000, 86_400_000,
];
