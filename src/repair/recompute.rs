//! Rows out of the input, where what was published does not tell enough.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::late::{Origin, decode, origin_of};
use super::merge::{Added, records};
use super::{Place, RowId};
use crate::codec::{Decoded, Decoder};
use crate::config::{Config, Start};
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
    let judged = rows.into_iter().map(|(id, row)| {
        let values = row.values();
        let expected = wanted.get(&id).copied().flatten();
        let found = records(&config.aggregates, &values);
        let whole = match gone.get(&id.place) {
            None => Ok(values),
            Some(_) if expected.is_some() && found == expected => Ok(values),
            Some(what) if expected.is_none() => {
                Err(format!("{what}, and no `count` of the row says whether that matters"))
            }
            Some(what) => Err(format!(
                "{what}, and {} of its {} records are there",
                found.unwrap_or_default(),
                expected.unwrap_or_default()
            )),
        };
        (id, whole)
    });
    Ok(judged.collect())
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
