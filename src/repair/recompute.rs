//! Rows out of the input, where what was published does not tell enough.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::late::{Origin, decode, origin_of};
use super::merge::{Added, records};
use super::{Place, RowId};
use crate::codec::{Decoded, Decoder};
use crate::config::{Config, Guarantee, Start};
use crate::event_time::AggregateValue;
use crate::kafka::repair::{End, Repair, RepairError};
use crate::pipeline::InputRecord as _;

/// How many records a row should have; `None` where no aggregate says so.
pub(super) type Expected = Option<i128>;

/// The aggregates of a row, or why the input does not give them.
pub(super) type Recomputed = Result<Vec<AggregateValue>, String>;

/// Reads all records of these rows from the input, as far as the service has judged them. What became a dead letter does
/// not count, nor what is in the late topic from `dealt_with` on: it is merged when its turn comes.
pub(super) fn recompute(
    repair: &Repair,
    config: &Config,
    wanted: &BTreeMap<RowId, Expected>,
    dealt_with: &BTreeMap<i32, i64>,
) -> Result<BTreeMap<RowId, Recomputed>, RepairError> {
    let mut rows: BTreeMap<RowId, Added> =
        wanted.keys().map(|id| (id.clone(), Added::new(&config.aggregates))).collect();
    if rows.is_empty() {
        return Ok(BTreeMap::new());
    }
    // Before the other two topics, so that what was judged up to here and is not in a row is there.
    let mut judged = BTreeMap::new();
    for source in &config.sources {
        let group = &config.kafka.group_id;
        judged.insert(source.topic.as_str(), repair.committed_by(group, &source.topic)?);
    }
    let mut elsewhere = origins(repair, &config.dead_letter_topic, &BTreeMap::new())?;
    elsewhere.extend(origins(repair, &config.late_topic, dealt_with)?);
    // By place: what is not there to be read.
    let mut gone: BTreeMap<Option<Place>, String> = BTreeMap::new();
    for source in &config.sources {
        let topic = source.topic.as_str();
        let needed = |partition| {
            let place = Place::of(config, topic, partition);
            wanted.keys().any(|id| id.place == place)
        };
        let mut ranges = repair.ranges(topic, End::Written)?;
        ranges.retain(|partition, _| needed(*partition));
        for (partition, (begin, end)) in &mut ranges {
            let judged = judged.get(topic).and_then(|offsets| offsets.get(partition));
            *end = judged.map_or(*end, |judged| (*judged).min(*end));
            let place = Place::of(config, topic, *partition);
            if *begin > 0 {
                let what = format!("{topic}/{partition} begins at offset {begin}");
                gone.entry(place).or_insert(what);
            } else if source.start != Start::Earliest {
                let what = format!("{topic}/{partition} was not read from its beginning");
                gone.entry(place).or_insert(what);
            }
        }
        let mut decoder = Decoder::new(source, &config.key, &config.aggregates);
        repair.read(topic, &ranges, |record| {
            let partition = record.partition().partition;
            let place = Place::of(config, topic, partition);
            let Ok(Decoded::Event(event)) = decode(&mut decoder, record, None) else {
                return Ok(ControlFlow::Continue(()));
            };
            if let Some(window) = config.windows.assign(event.timestamp) {
                let id = RowId { start: window.start.0, key: event.key.to_vec(), place };
                let origin = Origin { topic: topic.to_owned(), partition, offset: record.offset() };
                if let Some(row) = rows.get_mut(&id).filter(|_| !elsewhere.contains(&origin)) {
                    row.add(event.values);
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let whole = |(id, row): (RowId, Added)| {
        let values = row.values();
        let expected = wanted.get(&id).copied().flatten();
        let judged = why_not(config, &values, expected, gone.get(&id.place));
        (id, judged.map_or(Ok(values), Err))
    };
    Ok(rows.into_iter().map(whole).collect())
}

/// Why these are not a row's aggregates, though they are of all its records that were found.
fn why_not(
    config: &Config,
    values: &[AggregateValue],
    expected: Expected,
    gone: Option<&String>,
) -> Option<String> {
    let found = records(&config.aggregates, values);
    let of = expected.unwrap_or_default();
    let found_of = || format!("{} of its {of} records", found.unwrap_or_default());
    match gone {
        _ if expected.is_some() && found == expected => None,
        Some(what) if expected.is_none() => {
            Some(format!("{what}, and no `count` of the row says whether that matters"))
        }
        Some(what) => Some(format!("{what}, and {} are there", found_of())),
        None if expected.is_none() => None,
        // What it has published may count a record twice.
        None if config.delivery.guarantee == Guarantee::AtLeastOnce => None,
        None => Some(format!(
            "{} can be read under this configuration: it is not the one that the service had, or the input has changed",
            found_of()
        )),
    }
}

/// Where the records were read that are in a topic, from these offsets on.
fn origins(
    repair: &Repair,
    topic: &str,
    from: &BTreeMap<i32, i64>,
) -> Result<BTreeSet<Origin>, RepairError> {
    let mut ranges = repair.ranges(topic, End::Written)?;
    for (partition, (begin, _)) in &mut ranges {
        *begin = from.get(partition).map_or(*begin, |from| (*from).max(*begin));
    }
    let mut origins = BTreeSet::new();
    repair.read(topic, &ranges, |record| {
        origins.extend(origin_of(record));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(origins)
}
