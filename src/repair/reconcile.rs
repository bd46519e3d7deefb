//! Late records merged into what was published.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use super::late::{Late, LateContent, LateReader};
use super::merge::{Added, NotMergeable, records};
use super::published::last_panes;
use super::recompute::{Recomputed, recompute};
use super::{Place, RowId};
use crate::clock::Clock;
use crate::codec::{Encoded, Encoder, ResultRow};
use crate::config::Config;
use crate::event_time::{AggregateValue, Panes, TimeWindow, Watermark};
use crate::kafka::repair::{End, Outgoing, Ranges, Repair, RepairError};
use crate::pipeline::Header;

/// Where corrected rows go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The results topic, with the offsets of the late topic in the same transaction.
    Results,
    /// Nowhere.
    Nothing,
    /// A file of JSON lines, which is replaced; no offset is moved.
    File(PathBuf),
}

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// By the window's start, milliseconds since the epoch.
    pub windows: BTreeMap<i64, WindowSummary>,
    /// Late records that were read and dealt with.
    pub late: u64,
    /// Late records whose windows may still take them, by the clock that is known.
    pub waiting: u64,
    /// What could not be repaired.
    pub unrepaired: Vec<Unrepaired>,
}

/// What was done to the rows of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowSummary {
    /// Late records that are now in its rows.
    pub late: u64,
    /// Corrected rows.
    pub corrected: u64,
    /// Those among them that had not been there.
    pub created: u64,
    /// Those among them that were computed from the input.
    pub recomputed: u64,
    /// Rows that had the late records in them already.
    pub unchanged: u64,
}

/// Late records that are in no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrepaired {
    /// Topic, partition and offset: where the service read it; where that is not known, or it was removed before it
    /// was read, those of the late topic.
    pub what: String,
    /// Why.
    pub why: String,
}

/// A row, as it was published or as it is corrected.
#[derive(Clone, Debug)]
struct Row {
    /// `None`: nothing was published.
    values: Option<Vec<AggregateValue>>,
    next_index: u32,
    /// There may have been one, and it is gone.
    removed: bool,
}

/// The late records of a row.
#[derive(Debug)]
struct Arrived<'l> {
    window: TimeWindow,
    watermark: Watermark,
    added: Added,
    records: Vec<&'l Late>,
}

struct Job<'c> {
    config: &'c Config,
    repair: Repair,
    encoder: Encoder,
    rows: BTreeMap<RowId, Row>,
    /// Up to where each partition of the late topic is dealt with, or is about to be.
    dealt_with: BTreeMap<i32, i64>,
    written: BTreeMap<RowId, Vec<u8>>,
    done: Reconciled,
}

/// Merges the late records that are not in the results yet, at most `batch` of them in one transaction.
///
/// # Errors
/// See [`RepairError`]. What was committed before stays, and the next run goes on from there.
pub fn reconcile(
    config: &Config,
    target: &Target,
    batch: usize,
    clock: Clock,
) -> Result<Reconciled, RepairError> {
    if config.panes == Panes::Discarding && matches!(target, Target::File(_)) {
        return Err(RepairError::Foreign(
            "with window.panes = \"discarding\" rows are added up, and a file holds all of them again each time; \
             reconcile into the results topic"
                .to_owned(),
        ));
    }
    let mut repair = Repair::open(config, "reconcile", clock)?;
    let config = &repair.with_all_topics(config)?;
    if *target == Target::Results {
        repair.begin(std::slice::from_ref(&config.results.topic))?;
    }
    let mut job = Job {
        config,
        repair,
        encoder: Encoder::new(&config.key, &config.aggregates, &config.results),
        rows: BTreeMap::new(),
        dealt_with: BTreeMap::new(),
        written: BTreeMap::new(),
        done: Reconciled::default(),
    };
    let mut left = job.late_ranges()?;
    loop {
        let (records, whole) = job.read_late(&left, batch)?;
        let (next, waits) = job.positions(&left, &records, whole);
        let usable: Vec<_> =
            records.iter().filter(|late| next.get(&late.at.0) > Some(&late.at.1)).collect();
        job.done.waiting += u64::try_from(records.len() - usable.len()).unwrap_or(0);
        job.dealt_with.extend(&next);
        let corrections = job.correct(&usable)?;
        if *target == Target::Results
            && next.iter().any(|(p, at)| left.get(p).map(|r| r.0) < Some(*at))
        {
            job.repair.write(&corrections, &config.late_topic, &next)?;
        }
        for (partition, at) in next {
            if let Some(range) = left.get_mut(&partition) {
                range.0 = at;
            }
        }
        left.retain(|partition, _| !waits.contains(partition));
        if whole {
            break;
        }
    }
    if let Target::File(path) = target {
        replace(path, &job.written)?;
    }
    Ok(job.done)
}

impl Job<'_> {
    /// What is left to be read of the late topic.
    fn late_ranges(&mut self) -> Result<Ranges, RepairError> {
        let topic = &self.config.late_topic;
        let committed = self.repair.committed(topic)?;
        let mut ranges = self.repair.ranges(topic, End::Stable)?;
        for (partition, (begin, _)) in &mut ranges {
            let from = committed.get(partition).copied().unwrap_or(0);
            if from < *begin {
                self.done.unrepaired.push(Unrepaired {
                    what: format!("{topic}/{partition} offsets {from} to {}", *begin - 1),
                    why: "the late topic has removed them before they were reconciled".to_owned(),
                });
            }
            *begin = from.max(*begin);
        }
        Ok(ranges)
    }

    fn read_late(&self, left: &Ranges, batch: usize) -> Result<(Vec<Late>, bool), RepairError> {
        let mut reader = LateReader::new(self.config);
        let mut records = Vec::new();
        let whole = self.repair.read(&self.config.late_topic, left, |record| {
            records.push(reader.read(record));
            let full = records.len() >= batch;
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok((records, whole))
    }

    /// Up to where each partition is dealt with, and the partitions that wait there: at a record whose window is not past
    /// its allowed lateness by any clock of its shard.
    fn positions(
        &self,
        left: &Ranges,
        records: &[Late],
        whole: bool,
    ) -> (BTreeMap<i32, i64>, BTreeSet<i32>) {
        let mut clocks: BTreeMap<&Option<Place>, Watermark> = BTreeMap::new();
        for content in records.iter().filter_map(|late| late.content.as_ref().ok()) {
            let clock = clocks.entry(&content.row.place).or_insert(content.watermark);
            *clock = (*clock).max(content.watermark);
        }
        let is_freed = |content: &LateContent| {
            let clock = clocks.get(&content.row.place).copied().unwrap_or(Watermark::NONE);
            content.window.is_freed(clock, self.config.allowed_lateness)
        };
        let end = |(partition, (begin, end)): (&i32, &(i64, i64))| {
            (*partition, if whole { *end.max(begin) } else { *begin })
        };
        let mut next: BTreeMap<i32, i64> = left.iter().map(end).collect();
        let mut waits = BTreeSet::new();
        for late in records {
            let (partition, offset) = late.at;
            if waits.contains(&partition) {
                continue;
            }
            if late.content.as_ref().is_ok_and(|content| !is_freed(content)) {
                waits.insert(partition);
                next.insert(partition, offset);
            } else if !whole {
                next.insert(partition, offset + 1);
            }
        }
        (next, waits)
    }

    /// The corrected rows.
    fn correct(&mut self, records: &[&Late]) -> Result<Vec<Outgoing>, RepairError> {
        self.done.late += u64::try_from(records.len()).unwrap_or(0);
        let mut arrived: BTreeMap<RowId, Arrived<'_>> = BTreeMap::new();
        for late in records {
            match &late.content {
                Ok(content) => {
                    let row = arrived.entry(content.row.clone()).or_insert_with(|| Arrived {
                        window: content.window,
                        watermark: content.watermark,
                        added: Added::new(&self.config.aggregates),
                        records: Vec::new(),
                    });
                    row.watermark = row.watermark.max(content.watermark);
                    row.added.add(&content.values);
                    row.records.push(late);
                }
                Err(why) => self.unrepaired(late, why),
            }
        }
        self.look_up(&arrived)?;
        let mut merged = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        for (id, arrived) in &arrived {
            match self.merge(id, arrived) {
                Ok(values) => {
                    merged.insert(id.clone(), Ok(values));
                }
                Err(why) => {
                    tracing::debug!(%why, window = %arrived.window.start, "computing a row anew");
                    wanted.insert(id.clone(), self.expected(id, arrived));
                }
            }
        }
        let recomputed: BTreeSet<_> = wanted.keys().cloned().collect();
        merged.extend(recompute(&self.repair, self.config, &wanted, &self.dealt_with)?);
        let mut corrections = Vec::new();
        for (id, arrived) in &arrived {
            let Some(values) = merged.remove(id) else { continue };
            corrections.extend(self.take(id, arrived, values, recomputed.contains(id)));
        }
        Ok(corrections)
    }

    /// Finds the published rows that are not known yet.
    fn look_up(&mut self, arrived: &BTreeMap<RowId, Arrived<'_>>) -> Result<(), RepairError> {
        let unknown: BTreeSet<_> =
            arrived.keys().filter(|id| !self.rows.contains_key(*id)).cloned().collect();
        let mut found = last_panes(&self.repair, self.config, &unknown)?;
        for id in unknown {
            let row = match found.rows.remove(&id) {
                Some(row) => Row {
                    values: Some(row.values),
                    next_index: row.index.saturating_add(1),
                    removed: false,
                },
                // One that may have been there had a pane at least.
                None => Row {
                    values: None,
                    next_index: u32::from(found.trimmed),
                    removed: found.trimmed,
                },
            };
            self.rows.insert(id, row);
        }
        Ok(())
    }

    fn merge(&self, id: &RowId, arrived: &Arrived<'_>) -> Recomputable {
        let row = self.rows.get(id);
        if self.config.panes == Panes::Discarding {
            return Ok(arrived.added.values());
        }
        match row.and_then(|row| row.values.as_ref()) {
            Some(published) => arrived.added.merge(&self.config.aggregates, published),
            None if row.is_some_and(|row| row.removed) => Err(NotMergeable::Removed),
            None => Ok(arrived.added.values()),
        }
    }

    /// How many records the row has with the late ones, where that is known.
    fn expected(&self, id: &RowId, arrived: &Arrived<'_>) -> Option<i128> {
        let published = self.rows.get(id)?.values.as_ref()?;
        let late = i128::try_from(arrived.records.len()).ok()?;
        Some(records(&self.config.aggregates, published)? + late)
    }

    /// Takes a row's new aggregates; the record to be written, if it differs from the one before.
    fn take(
        &mut self,
        id: &RowId,
        arrived: &Arrived<'_>,
        values: Recomputed,
        recomputed: bool,
    ) -> Option<Outgoing> {
        let values = match values {
            Ok(values) => values,
            Err(why) => {
                for late in &arrived.records {
                    self.unrepaired(late, &why);
                }
                return None;
            }
        };
        let row = self.rows.get_mut(id)?;
        let summary = self.done.windows.entry(id.start).or_default();
        summary.late += u64::try_from(arrived.records.len()).unwrap_or(0);
        if self.config.panes != Panes::Discarding && row.values.as_ref() == Some(&values) {
            summary.unchanged += 1;
            return None;
        }
        summary.corrected += 1;
        summary.created += u64::from(row.values.is_none());
        summary.recomputed += u64::from(recomputed);
        let index = row.next_index;
        row.next_index = index.saturating_add(1);
        row.values = Some(values.clone());
        row.removed = false;
        let mut encoded = Encoded::default();
        let place = id.place.as_ref();
        let topic = place.and_then(|place| place.topic.as_deref());
        let result = ResultRow {
            window: arrived.window,
            key: &id.key,
            partition: place.map(|place| place.partition),
            topic: topic.unwrap_or_default(),
            timing: "correction",
            index,
        };
        self.encoder.row(&result, values.into_iter(), &mut encoded);
        let partition = place.map_or_else(|| "all".to_owned(), |place| place.partition.to_string());
        let mut headers = vec![
            header("tidegate.watermark", &arrived.watermark.0),
            header("tidegate.partition", &partition),
        ];
        headers.extend(topic.map(|topic| header("tidegate.topic", &topic)));
        self.written.insert(id.clone(), encoded.value.clone());
        Some(Outgoing {
            topic: self.config.results.topic.clone(),
            partition: None,
            key: Some(encoded.key),
            payload: Some(encoded.value),
            headers,
            timestamp: None,
        })
    }

    fn unrepaired(&mut self, late: &Late, why: &str) {
        let (partition, offset) = late.at;
        let in_late = || format!("{}/{partition} offset {offset}", self.config.late_topic);
        let what = late.origin.as_ref().map_or_else(in_late, ToString::to_string);
        self.done.unrepaired.push(Unrepaired { what, why: why.to_owned() });
    }
}

/// Merged aggregates, or why they have to be computed from the input.
type Recomputable = Result<Vec<AggregateValue>, NotMergeable>;

fn header(name: &'static str, value: &impl ToString) -> Header {
    (Cow::Borrowed(name), Some(value.to_string().into_bytes()))
}

/// Writes the rows beside the file and puts them in its place, so that it is whole at any time.
fn replace(path: &Path, rows: &BTreeMap<RowId, Vec<u8>>) -> Result<(), RepairError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let written = || -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(&beside)?);
        for row in rows.values() {
            file.write_all(row)?;
            file.write_all(b"\n")?;
        }
        file.into_inner()?.sync_all()?;
        std::fs::rename(&beside, path)
    };
    written().map_err(|error| RepairError::Request {
        what: format!("writing {}", path.display()),
        cause: error.to_string(),
    })
}
