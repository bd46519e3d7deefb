//! What is odd about the records.

use std::time::Duration;

use super::Observed;
use super::advice::Finding;
use super::rules::{Looked, Terms, millis, share_of};
use super::text::{share, span};
use crate::codec::Reason;
use crate::insight::words::count;

/// Everything odd, the topic's own first.
pub(super) fn findings(
    looked: &[Looked<'_>],
    all: &Observed,
    terms: &Terms,
    bound_ms: u64,
    timeout_ms: u64,
    replayed: bool,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |kind, partition, text| found.push(Finding { kind, partition, text });
    if (1..ENOUGH).contains(&all.records) {
        say(
            "few_records",
            None,
            format!("{} records are few: percentiles beyond P90 are by chance", all.records),
        );
    }
    if replayed {
        let text = "the records were written more than a day after they happened: delays are without transport, and gaps \
                    are those of the writing"
            .to_owned();
        say("replay", None, text);
    }
    for one in looked {
        let (partition, observed) = (Some(one.partition), one.observed);
        refusals(partition, observed, &mut say);
        if observed.records == 0 {
            if observed.refused.is_empty() {
                say("no_records", partition, "no record: it is idle after the timeout".to_owned());
            }
            continue;
        }
        if observed.ahead > 0 {
            let text = format!(
                "{} records are ahead of their arrival, by up to {}: a clock is wrong, and what comes after such a record \
                 is late",
                count(observed.ahead),
                span(millis(observed.ahead_most))
            );
            say("clock_ahead", partition, text);
        }
        let silent = observed.last_arrival.zip(all.last_arrival);
        let silent = silent.map(|(own, newest)| millis(own.behind(newest)));
        if let Some(silent) = silent.filter(|silent| *silent > timeout_ms && !replayed) {
            let text =
                format!("silent since {} before the newest record of the topic", span(silent));
            say("silent", partition, text);
        } else if let Some(behind) = skew(observed, all, bound_ms) {
            let text = format!(
                "its event time is {} behind the furthest partition's: results wait for it",
                span(behind)
            );
            say("skewed", partition, text);
        }
        let own = share_of(observed.records, all.records);
        if terms.is_live && own > 4.0 * share_of(1, looked.len() as u64) {
            say("skewed", partition, format!("it has {} of all records", share(own)));
        }
        let late = observed.needed_bound.share_above(bound_ms);
        if late > 0.02 && late > 3.0 * all.needed_bound.share_above(bound_ms) {
            let p99 = observed.out_of_orderness.quantile(0.99).unwrap_or(0);
            let text = format!(
                "with the recommended bound {} of its records would be late: its own P99 is {}",
                share(late),
                span(p99)
            );
            say("disordered", partition, text);
        }
    }
    found
}

fn refusals(
    partition: Option<i32>,
    observed: &Observed,
    say: &mut impl FnMut(&'static str, Option<i32>, String),
) {
    for (reason, (refused, detail)) in &observed.refused {
        let is_unit = matches!(reason, Reason::TsPast | Reason::TsFuture | Reason::TsOutOfRange);
        let kind = if is_unit { "unit" } else { "refused" };
        let text = format!(
            "{} records cannot be used ({}), the first: {detail}",
            count(*refused),
            reason.name()
        );
        say(kind, partition, text);
    }
}

/// How far a partition's event time is behind the furthest, where that is more than bound and a minute.
fn skew(observed: &Observed, all: &Observed, bound_ms: u64) -> Option<u64> {
    let (own, furthest) = observed.max_event_time.zip(all.max_event_time)?;
    let behind = millis(own.behind(furthest));
    (behind > bound_ms.saturating_add(millis(SKEWED))).then_some(behind)
}

/// Below this P99 is one record in a hundred that there are not.
const ENOUGH: u64 = 1_000;

/// Event times of partitions that are read at the same pace differ by less.
const SKEWED: Duration = Duration::from_mins(1);
