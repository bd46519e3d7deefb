//! What differs within a source: single partitions, and records that are signs of life.

use std::collections::BTreeMap;
use std::time::Duration;

use super::values;
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::{GuardSettings, HeartbeatSettings, PartitionSettings};
use crate::config::{Guard, Heartbeat, PartitionTerms};
use crate::event_time::WatermarkStrategy;

/// `[[source.partitions]]`. What one of them does not say is as in the rest of its source.
pub(super) fn parse_partitions(
    settings: &[PartitionSettings],
    at: &KeyPath,
    strategy: Result<&WatermarkStrategy, Noted>,
    idle_timeout: Result<Option<Duration>, Noted>,
    report: &mut Report<'_>,
) -> Result<BTreeMap<i32, PartitionTerms>, Noted> {
    let mut partitions = BTreeMap::new();
    let mut seen = BTreeMap::new();
    for (place, settings) in settings.iter().enumerate() {
        let at = at.place(place);
        let ids = parse_ids(settings, &at, &mut seen, report);
        let terms = parse_terms(settings, &at, strategy, idle_timeout, report);
        if let (Ok(ids), Ok(terms)) = (ids, terms) {
            partitions.extend(ids.into_iter().map(|id| (id, terms.clone())));
        }
    }
    report.sound(at, partitions)
}

/// `seen` has where each partition was named before.
fn parse_ids(
    settings: &PartitionSettings,
    at: &KeyPath,
    seen: &mut BTreeMap<i32, KeyPath>,
    report: &mut Report<'_>,
) -> Result<Vec<i32>, Noted> {
    let key = at.key("ids");
    let Some(words) = settings.ids.as_ref().filter(|words| !words.0.is_empty()) else {
        return Err(report.missing(&key, "write the numbers of the partitions, such as [3, 7]"));
    };
    let mut ids = Vec::new();
    for (place, text) in words.0.iter().enumerate() {
        let place = key.place(place);
        match values::whole(text, &(0..=i32::MAX)) {
            Err(problem) => {
                report.fault(&place, problem);
            }
            Ok(id) => {
                if let Some(other) = seen.get(&id) {
                    let problem = format!("partition {id} is also in {other}; name it once");
                    report.fault(&place, problem);
                } else {
                    seen.insert(id, place);
                    ids.push(id);
                }
            }
        }
    }
    report.sound(&key, ids)
}

fn parse_terms(
    settings: &PartitionSettings,
    at: &KeyPath,
    strategy: Result<&WatermarkStrategy, Noted>,
    idle_timeout: Result<Option<Duration>, Noted>,
    report: &mut Report<'_>,
) -> Result<PartitionTerms, Noted> {
    let PartitionSettings { max_out_of_orderness, idle_timeout: own_timeout, .. } = settings;
    if max_out_of_orderness.is_none() && own_timeout.is_none() {
        let problem =
            "says nothing of its partitions; give `max_out_of_orderness`, `idle_timeout` or both";
        return Err(report.fault(at, problem));
    }
    let bound_key = at.key("max_out_of_orderness");
    let bound = report.optional(&bound_key, max_out_of_orderness.as_ref(), values::duration);
    let own_timeout =
        report.optional(&at.key("idle_timeout"), own_timeout.as_ref(), values::positive_or_off);
    let (strategy, idle_timeout) = (strategy?, idle_timeout?);
    let strategy = match (bound?, strategy) {
        (None, strategy) => strategy.clone(),
        (Some(bound), WatermarkStrategy::BoundedOutOfOrderness { .. }) => {
            WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness: bound }
        }
        (Some(_), other) => {
            let problem = format!(
                "goes only with strategy = \"bounded_out_of_orderness\", and the source's is \"{}\"; leave it out",
                other.name()
            );
            return Err(report.fault(&bound_key, problem));
        }
    };
    Ok(PartitionTerms { strategy, idle_timeout: own_timeout?.unwrap_or(idle_timeout) })
}

/// `[source.guard]`. What it does not say is as in `[guard]`.
pub(super) fn parse_guard(
    settings: &GuardSettings,
    at: &KeyPath,
    all: Result<Guard, Noted>,
    report: &mut Report<'_>,
) -> Result<Guard, Noted> {
    let max_future = report.optional(
        &at.key("max_future"),
        settings.max_future.as_ref(),
        values::duration_or_off,
    );
    let min_timestamp = report.optional(
        &at.key("min_timestamp"),
        settings.min_timestamp.as_ref(),
        values::time_or_off,
    );
    let all = all?;
    Ok(Guard {
        max_future: max_future?.unwrap_or(all.max_future),
        min_timestamp: min_timestamp?.unwrap_or(all.min_timestamp),
    })
}

/// `[source.heartbeat]`, if there is one.
pub(super) fn parse_heartbeat(
    settings: &HeartbeatSettings,
    at: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Option<Heartbeat>, Noted> {
    let HeartbeatSettings { field, equals, counts_as, watermark } = settings;
    if field.is_none() && equals.is_none() && counts_as.is_none() && watermark.is_none() {
        return Ok(None);
    }
    let field = report.value(
        &at.key("field"),
        field.as_ref(),
        "name the field that tells a heartbeat from other records",
        values::path,
    );
    let equals = report.value(
        &at.key("equals"),
        equals.as_ref(),
        "write what that field has in a heartbeat, such as \"heartbeat\"",
        |text| Ok(text.to_owned()),
    );
    let is_activity = report
        .optional(&at.key("counts_as"), counts_as.as_ref(), |text| values::word(text, &COUNTS_AS));
    let carries_watermark = report.optional(&at.key("watermark"), watermark.as_ref(), values::flag);
    Ok(Some(Heartbeat {
        field: field?,
        equals: equals?,
        is_activity: is_activity?.unwrap_or(true),
        carries_watermark: carries_watermark?.unwrap_or(false),
    }))
}

const COUNTS_AS: [(&str, bool); 2] = [("activity", true), ("silence", false)];
