//! What must come of a case, compared with what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::file::text;
use super::names::{label, metric};
use super::outputs::{Pane, Row};
use super::wait::{same, seen};
use super::world::World;
use crate::case_file::{ExpectedPane, Rejected, Sum};
use crate::support::cluster::Record;
use crate::support::process::series;

/// A window and key.
type Place = (i64, i64, String);

/// Compares all that is expected; every fault, each as a line for people.
pub(super) fn check(world: &mut World<'_>) -> Result<Vec<String>, String> {
    let expect = &world.scenario.expect;
    let mut faults = Vec::new();
    let either = expect.get("one_of");
    if let Some(outcomes) = either {
        one_of(world, outcomes)?;
    } else {
        if let Some((nth, status)) = world.ended_by_itself() {
            faults.push(format!("instance {nth} ended by itself: {status}"));
        }
        world.settle()?;
    }
    for (name, expected) in expect {
        let fault = match name.as_str() {
            "one_of" | "note" | "how" | "sum_over_instances" => Ok(None),
            "final_panes" if either.is_some() => Ok(None),
            "final_panes" => final_panes(world, expected),
            "each_pane_once" => each_pane_once(world),
            "late" => late(world, expected),
            "late_max" => {
                let late = read(world, "late").len();
                Ok(differ("late records at most", &expected, &late, |most| {
                    most.as_u64().is_some_and(|most| u64::try_from(late).unwrap() <= most)
                }))
            }
            "late_record" => late_record(world, expected),
            "rejected" => rejected(world, expected),
            "dead_letters" => {
                let letters = read(world, "dead").len();
                Ok(differ("dead letters", expected, &letters, |expected| *expected == letters))
            }
            "output" => output(world, expected),
            "metrics" => {
                let metrics = expected.as_object().ok_or("metrics are no object")?;
                let metrics = metrics.iter().map(|(name, value)| (name.clone(), value.clone()));
                let faults = metric_faults(world, &metrics.collect());
                Ok((!faults.is_empty()).then(|| faults.join("\n  ")))
            }
            "group_evictions" => {
                let expected = BTreeMap::from([(name.clone(), expected.clone())]);
                let faults = metric_faults(world, &expected);
                Ok((!faults.is_empty()).then(|| faults.join("\n  ")))
            }
            "metrics_rule" => metrics_rule(world, &text(expected)),
            other => Err(format!("no expectation is known as {other}")),
        };
        faults.extend(fault?);
    }
    Ok(faults)
}

fn differ<E: std::fmt::Debug + ?Sized, T: std::fmt::Debug>(
    what: &str,
    expected: &E,
    seen: &T,
    holds: impl FnOnce(&E) -> bool,
) -> Option<String> {
    (!holds(expected)).then(|| format!("{what}: expected {expected:?}, seen {seen:?}"))
}

fn read(world: &World<'_>, topic: &str) -> Vec<Record> {
    world.cluster.read(&world.topic(topic))
}

/// The results there are.
pub(super) fn results(world: &World<'_>) -> Result<Vec<Row>, String> {
    read(world, "out").iter().map(Row::read).collect()
}

fn each_pane_once(world: &World<'_>) -> Result<Option<String>, String> {
    let mut panes = BTreeSet::new();
    for row in results(world)? {
        let pane = (row.start, row.end, row.key, row.share, row.pane.index);
        if let Some(twice) = panes.replace(pane) {
            return Ok(Some(format!("a pane is there twice: {twice:?}")));
        }
    }
    Ok(None)
}

/// The last pane of each window and key; of shares, their sum.
fn last_panes(rows: Vec<Row>) -> BTreeMap<Place, Pane> {
    let mut shares: BTreeMap<(Place, Option<i32>), Pane> = BTreeMap::new();
    for row in rows {
        let place = ((row.start, row.end, row.key), row.share);
        match shares.get(&place) {
            Some(before) if before.index > row.pane.index => {}
            Some(_) | None => {
                shares.insert(place, row.pane);
            }
        }
    }
    let mut panes: BTreeMap<Place, Pane> = BTreeMap::new();
    for ((place, share), pane) in shares {
        let added = match panes.get(&place) {
            Some(others) => others.plus(&pane),
            None if share.is_some() => Pane { kind: None, index: None, ..pane },
            None => pane,
        };
        panes.insert(place, added);
    }
    panes
}

fn final_panes(world: &World<'_>, expected: &Value) -> Result<Option<String>, String> {
    let got = last_panes(results(world)?);
    let list = |written: &Value| -> Result<BTreeMap<Place, Pane>, String> {
        // By way of the text: sums are read as they are written.
        let panes: Vec<ExpectedPane> =
            serde_json::from_str(&written.to_string()).map_err(|fault| fault.to_string())?;
        let rows: Result<Vec<_>, _> = panes.iter().map(Row::expected).collect();
        Ok(last_panes(rows?))
    };
    if expected.is_array() {
        return Ok(different_panes(&list(expected)?, &got));
    }
    let mut faults = Vec::from_iter(different_panes(&computed(world)?, &got));
    let records: u64 = got.values().map(|pane| pane.count).sum();
    let number = |name: &str| expected.get(name).and_then(Value::as_u64);
    for (name, got) in [("panes", u64::try_from(got.len()).unwrap()), ("records_in_panes", records)]
    {
        if let Some(expected) = number(name).filter(|expected| *expected != got) {
            faults.push(format!("{name}: expected {expected}, seen {got}"));
        }
    }
    if let Some(sample) = expected.get("sample") {
        let sample = list(sample)?;
        let of_sample = got.into_iter().filter(|(place, _)| sample.contains_key(place)).collect();
        faults.extend(different_panes(&sample, &of_sample));
    }
    Ok((!faults.is_empty()).then(|| faults.join("\n  ")))
}

fn different_panes(
    expected: &BTreeMap<Place, Pane>,
    got: &BTreeMap<Place, Pane>,
) -> Option<String> {
    let places: BTreeSet<_> = expected.keys().chain(got.keys()).collect();
    let differ = |place: &&&Place| match (expected.get(**place), got.get(**place)) {
        (Some(expected), Some(got)) => !got.is(expected),
        _ => true,
    };
    let mut lines: Vec<_> = places
        .iter()
        .filter(differ)
        .map(|place| {
            let (expected, got) = (expected.get(*place), got.get(*place));
            format!("last pane of {place:?}: expected {expected:?}, seen {got:?}")
        })
        .collect();
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    (!lines.is_empty()).then(|| lines.join("\n  "))
}

/// Every window and key of the records written whose end is at or before the smallest last timestamp of a partition.
fn computed(world: &World<'_>) -> Result<BTreeMap<Place, Pane>, String> {
    let config = &world.scenario.service.config;
    let (time_field, key_field) = (&config.timestamp_field, &config.key_field);
    let (Some(time_field), Some(key_field)) = (time_field, key_field) else {
        return Err("panes are computed only where time and key are fields".to_owned());
    };
    let size = i64::try_from(config.window_ms).unwrap();
    let (mut last, mut panes) = (BTreeMap::new(), BTreeMap::<Place, Pane>::new());
    for record in world.written.visible(&world.input()) {
        let payload = record.json();
        let time = payload[time_field].as_i64().ok_or_else(|| format!("no time in {record}"))?;
        let value = payload[&config.value_field].as_i64();
        let start = time - (time - config.window_offset_ms).rem_euclid(size);
        let sum = Some(Sum::Integer(value.ok_or_else(|| format!("no value in {record}"))?.into()));
        let pane = Pane { count: 1, sum, kind: None, index: None };
        let place = (start, start + size, text(&payload[key_field]));
        let pane = panes.get(&place).map_or(pane.clone(), |before| before.plus(&pane));
        panes.insert(place, pane);
        let last: &mut i64 = last.entry(record.partition).or_insert(time);
        *last = (*last).max(time);
    }
    let bound = i64::try_from(config.out_of_orderness_ms).unwrap();
    let reached = last.values().min().map_or(i64::MIN, |last| last - bound);
    panes.retain(|(_, end, _), _| *end <= reached);
    Ok(panes)
}

/// The place in the input that a late record or dead letter came from.
fn origin(world: &World<'_>, record: &Record) -> Option<String> {
    let number = |name: &str| record.header(name)?.parse::<i64>().ok();
    let topic = record.header("tidegate.topic")?;
    let partition = i32::try_from(number("tidegate.partition")?).ok()?;
    Some(world.written.id(&topic, partition, number("tidegate.offset")?))
}

fn late(world: &World<'_>, expected: &Value) -> Result<Option<String>, String> {
    let mut expected: Vec<String> = deserialize(expected)?;
    let records = read(world, "late");
    let mut late: Vec<_> = records.iter().filter_map(|record| origin(world, record)).collect();
    expected.sort();
    late.sort();
    Ok(differ("late", &expected, &late, |expected| *expected == late))
}

/// A result that is too large is a dead letter without a place, since it was no record.
fn rejected(world: &World<'_>, expected: &Value) -> Result<Option<String>, String> {
    let expected: Vec<Rejected> = deserialize(expected)?;
    let mut expected: Vec<_> =
        expected.into_iter().map(|rejected| (rejected.id, rejected.reason)).collect();
    let letters = read(world, "dead");
    let rejected = letters.iter().filter_map(|letter| {
        Some((origin(world, letter)?, letter.header("tidegate.reason").unwrap_or_default()))
    });
    let mut rejected: Vec<_> = rejected.collect();
    expected.sort();
    rejected.sort();
    Ok(differ("rejected", &expected, &rejected, |expected| *expected == rejected))
}

/// The one late record: its key, and of the headers that are named all, in their order.
fn late_record(world: &World<'_>, expected: &Value) -> Result<Option<String>, String> {
    let records = read(world, "late");
    let [record] = &records[..] else {
        return Ok(Some(format!("late records: expected one, seen {}", records.len())));
    };
    let key = record.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned());
    let expected_key = expected.get("key").map(text);
    let wanted: Vec<(String, String)> = deserialize(&expected["headers_include"])?;
    let named: BTreeSet<_> = wanted.iter().map(|(name, _)| name.clone()).collect();
    let headers = record.headers.iter().filter(|(name, _)| named.contains(name));
    let headers: Vec<_> = headers
        .map(|(name, value)| {
            let value = value.as_deref().unwrap_or_default();
            (name.clone(), String::from_utf8_lossy(value).into_owned())
        })
        .collect();
    let key_fault = (expected_key.is_some() && key != expected_key)
        .then(|| format!("key of the late record: expected {expected_key:?}, seen {key:?}"));
    Ok(key_fault.or(differ("headers of the late record", &wanted, &headers, |w| *w == headers)))
}

fn output(world: &World<'_>, expected: &Value) -> Result<Option<String>, String> {
    let wanted: BTreeMap<String, usize> = deserialize(&expected["distinct_partitions_for_key"])?;
    let records = read(world, "out");
    for (key, count) in wanted {
        let of_key = records.iter().filter(|record| record.key.as_deref() == Some(key.as_bytes()));
        let partitions: BTreeSet<_> = of_key.map(|record| record.partition).collect();
        if partitions.len() != count {
            let what = format!("partitions of the results of {key:?}");
            return Ok(Some(format!("{what}: expected {count}, seen {partitions:?}")));
        }
    }
    Ok(None)
}

/// What is wrong with the metrics of all instances together. They follow what they tell of, so they are given a moment.
pub(super) fn metric_faults(
    world: &mut World<'_>,
    expected: &BTreeMap<String, Value>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, expected) in expected {
        let as_expected = world.patiently(FOLLOWED, |world| {
            let scrapes = world.scrape();
            let values: Result<Vec<_>, _> = scrapes.iter().map(|s| metric(name, s)).collect();
            let got = values?.into_iter().flatten().reduce(|sum, value| sum + value);
            Ok(seen(same(expected, got), || format!("expected {expected}, seen {got:?}")))
        });
        faults.extend(as_expected.err().map(|fault| format!("metric {name} {fault}")));
    }
    faults
}

/// Rules about metrics, as sentences.
fn metrics_rule(world: &mut World<'_>, rule: &str) -> Result<Option<String>, String> {
    let unknown = || format!("no rule is known as {rule:?}");
    if rule == "each partition label is exported by exactly one instance" {
        let partitions = world.partitions[world.scenario.input()];
        let once = world.patiently(FOLLOWED, |world| {
            let fault = owners(&world.scrape(), partitions);
            Ok(seen(fault.is_none(), || fault.unwrap_or_default()))
        });
        return Ok(once.err());
    }
    let scraped = |name: &str| {
        let scraped = world.scrapes.get(name.trim()).ok_or_else(|| format!("no scrape {name}"))?;
        Ok::<_, String>(scraped.join("\n"))
    };
    if let Some((left, right)) = rule.split_once("<=") {
        let count = |of: &str| {
            let name = of.trim().strip_prefix("series(").and_then(|of| of.strip_suffix(')'));
            let lines = scraped(name.ok_or_else(unknown)?)?;
            let series = lines.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            Ok::<_, String>(series.count())
        };
        let (right, more) = right.split_once('+').unwrap_or((right, "0"));
        let more: usize = more.trim().parse().map_err(|_| unknown())?;
        let (left, right) = (count(left)?, count(right)?);
        return Ok((left > right + more).then(|| format!("{rule}: seen {left} and {right}")));
    }
    // `NAME is NUMBER in SCRAPE and in SCRAPE`
    let (name, rest) = rule.split_once(" is ").ok_or_else(unknown)?;
    let (number, places) = rest.split_once(" in ").ok_or_else(unknown)?;
    let expected: f64 = number.parse().map_err(|_| unknown())?;
    for scrape in places.split(" and in ") {
        let got = metric(name, &scraped(scrape)?)?;
        if !same(&expected.into(), got) {
            return Ok(Some(format!("{rule}: seen {got:?} in {scrape}")));
        }
    }
    Ok(None)
}

/// Every partition has to be named by one instance, and by no more.
fn owners(scrapes: &[String], partitions: i32) -> Option<String> {
    let mut owners: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (nth, scrape) in scrapes.iter().enumerate() {
        let named = scrape.lines().filter(|line| PER_PARTITION.iter().any(|f| line.starts_with(f)));
        let named: BTreeSet<_> = named.filter_map(|line| label("partition", line)).collect();
        for partition in named {
            owners.entry(partition.to_owned()).or_default().push(nth);
        }
    }
    let once = owners.values().all(|instances| instances.len() == 1);
    let all = i32::try_from(owners.len()).unwrap() == partitions;
    let watermarks = scrapes.iter().flat_map(|scrape| series(scrape, PER_PARTITION[0])).count();
    let all_told = i32::try_from(watermarks).unwrap() == partitions;
    (!once || !all || !all_told).then(|| {
        format!("instances that export each of {partitions} partitions: {owners:?}, watermarks: {watermarks}")
    })
}

/// What is there now, unlike the counters of what has been.
const PER_PARTITION: [&str; 5] = [
    "tidegate_partition_watermark_timestamp_seconds",
    "tidegate_partition_watermark_lag_seconds",
    "tidegate_partition_idle{",
    "tidegate_consumer_lag_records",
    "tidegate_consumed_offset",
];

/// Waits until one of the outcomes is there.
fn one_of(world: &mut World<'_>, outcomes: &Value) -> Result<(), String> {
    let outcomes: Vec<String> = deserialize(outcomes)?;
    let expected = world.scenario.expect.get("final_panes").cloned().unwrap_or_default();
    world.patiently(OUTCOME, |world| {
        let mut instead = Vec::new();
        for outcome in &outcomes {
            let fault = if outcome.contains("final_panes") {
                final_panes(world, &expected)?
            } else if outcome.contains("exit") {
                exit_with_name(world)
            } else if outcome.contains("not ready") {
                let codes = world.codes("/readyz");
                (!codes.contains(&Some(503))).then(|| format!("readiness: {codes:?}"))
            } else {
                return Err(format!("no outcome is known as {outcome:?}"));
            };
            match fault {
                None => {
                    println!("{}: {outcome}", world.scenario.id);
                    return Ok(seen(true, String::new));
                }
                Some(fault) => instead.push(fault),
            }
        }
        Ok(seen(false, || format!("none of {outcomes:?}: {}", instead.join("; "))))
    })
}

/// Whether an instance ended with an error that names the topic.
fn exit_with_name(world: &mut World<'_>) -> Option<String> {
    let topic = world.input();
    let Some((nth, status)) = world.ended_by_itself() else { return Some("no exit".to_owned()) };
    let log = world.instances.get_mut(&nth).map(|instance| instance.service.log());
    let named = log.is_some_and(|log| {
        log.lines().any(|line| line.to_lowercase().contains("error") && line.contains(&topic))
    });
    (status.success() || !named).then(|| format!("{status}, the topic is named: {named}"))
}

fn deserialize<'de, T: serde::Deserialize<'de>>(value: &'de Value) -> Result<T, String> {
    T::deserialize(value).map_err(|fault| fault.to_string())
}

const MOST: usize = 10;
/// How long metrics may take to follow what they tell of.
const FOLLOWED: Duration = Duration::from_secs(10);
const OUTCOME: Duration = Duration::from_secs(20);
