//! The loop: poll, gather, write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::batch::Batch;
use super::database::{Database, Offsets, Written};
use super::failure::DatabaseError;
use super::row::{self, Skipped};
use super::table::Layout;
use super::{ExportError, ExportTime};
use crate::config::PostgresExport;
use crate::event_time::{MonotonicTime, PartitionId};
use crate::insight::{ExportProgress, ExportWatch};
use crate::kafka::KafkaSource;
use crate::pipeline::{Ends, InputRecord, Polled, RunUntil, Source, SourceError, Time};

pub(super) struct Exporter<'a> {
    export: &'a PostgresExport,
    layout: Layout,
    source: &'a KafkaSource,
    database: Database,
    time: ExportTime,
    until: RunUntil,
    /// The partitions that are read.
    reading: BTreeSet<PartitionId>,
    /// Those whose offsets have to be asked for first.
    waiting: BTreeSet<PartitionId>,
    /// What the database holds for the partitions that are read.
    stored: Offsets,
    batch: Batch,
    /// When the first record of the batch was read.
    begun: Option<MonotonicTime>,
    /// After a failure nothing is tried before this, and each wait is longer than the one before.
    retry_at: MonotonicTime,
    backoff: Duration,
    /// With `--until-end`: the ends that are read to, once all partitions are here.
    ends: Option<Ends>,
    progress: ExportProgress,
    watch: ExportWatch,
    /// What became of the records of the batch; it counts when the batch is written.
    counts: Counts,
    /// How far the group was told that its partitions are read.
    noted: Offsets,
    looked: MonotonicTime,
    told: MonotonicTime,
    complained: Option<MonotonicTime>,
}

/// What became of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    results: u64,
    tombstones: u64,
    progress: u64,
    unreadable: u64,
}

impl<'a> Exporter<'a> {
    pub(super) fn new(
        export: &'a PostgresExport,
        layout: Layout,
        source: &'a KafkaSource,
        database: Database,
        time: ExportTime,
        watch: ExportWatch,
        until: RunUntil,
    ) -> Self {
        Self {
            export,
            layout,
            source,
            database,
            time,
            until,
            reading: BTreeSet::new(),
            waiting: BTreeSet::new(),
            stored: Offsets::new(),
            batch: Batch::default(),
            begun: None,
            retry_at: MonotonicTime::default(),
            backoff: FIRST_BACKOFF,
            ends: None,
            progress: ExportProgress::default(),
            watch,
            counts: Counts::default(),
            noted: Offsets::new(),
            looked: MonotonicTime::default(),
            told: MonotonicTime::default(),
            complained: None,
        }
    }

    pub(super) fn run(mut self) -> Result<(), ExportError> {
        // Before it joins: a table that does not fit is told at once, also by one that is given no partition.
        while let Err(error) = self.database.connect() {
            self.database_failed(error)?;
            self.time.wait(self.retry_at.since(self.now()));
            if self.time.stopping() {
                return Ok(());
            }
        }
        self.database_answered();
        self.source.join().map_err(|error| ExportError::Source(error.to_string()))?;
        self.progress.joined = true;
        let outcome = self.turn_until_done();
        if outcome.is_ok() {
            // What cannot be written now is read again by the next start.
            self.write()?;
        }
        self.look(self.now());
        self.tell("export ended");
        self.source.close();
        outcome
    }

    fn turn_until_done(&mut self) -> Result<(), ExportError> {
        while !self.time.stopping() {
            if !self.waiting.is_empty() && self.now() >= self.retry_at {
                self.begin()?;
            }
            self.poll()?;
            let now = self.now();
            let is_due =
                self.begun.is_some_and(|begun| now.since(begun) >= self.export.batch_interval);
            if is_due || self.batch.rows() >= self.export.batch_rows {
                self.write()?;
            }
            if self.at_the_end()? {
                return Ok(());
            }
            if now.since(self.looked) >= LOOK_EVERY {
                self.look(now);
            }
            if now.since(self.told) >= TELL_EVERY {
                self.tell("exporting");
            }
        }
        Ok(())
    }

    fn now(&self) -> MonotonicTime {
        self.time.now().monotonic
    }

    fn poll(&mut self) -> Result<(), ExportError> {
        let source = self.source;
        match source.poll(TURN) {
            Ok(Polled::Nothing) => {}
            Ok(Polled::Record(record)) => self.take(&record),
            Ok(Polled::Assigned(partitions)) => {
                tracing::info!(partitions = ?numbers(&partitions), "partitions assigned");
                kafka(source.accept(&partitions))?;
                self.waiting.extend(partitions);
            }
            Ok(Polled::Revoking(partitions)) => {
                self.write()?;
                self.give_up(&partitions)?;
            }
            Ok(Polled::Lost(partitions)) => {
                self.give_up(&partitions)?;
                self.start_over()?;
            }
            Ok(Polled::Missing(missing)) => self.note_missing(&missing),
            Err(error) => {
                kafka(Err(error))?;
                self.time.wait(TURN);
            }
        }
        Ok(())
    }

    fn take(&mut self, record: &impl InputRecord) {
        let (id, offset) = (record.partition(), record.offset());
        if !self.reading.contains(&id) {
            return;
        }
        match row::read(&self.layout, record) {
            Ok((identity, pane)) => {
                self.counts.results += 1;
                self.batch.add(identity, pane);
            }
            Err(Skipped::Tombstone) => self.counts.tombstones += 1,
            Err(Skipped::Progress) => self.counts.progress += 1,
            Err(Skipped::Unreadable(reason)) => self.note_unreadable(id, offset, &reason),
        }
        self.batch.read_up_to(id, offset + 1);
        if self.begun.is_none() {
            self.begun = Some(self.now());
        }
    }

    /// Asks the database where reading goes on, and does.
    fn begin(&mut self) -> Result<(), ExportError> {
        let offsets = match self.database.offsets() {
            Ok(offsets) => offsets,
            Err(error) => return self.database_failed(error),
        };
        self.database_answered();
        let ends = match self.source.ends() {
            Ok(ends) => ends,
            Err(error) => return kafka(Err(error)),
        };
        for id in &self.waiting {
            check_end(self.database.topic(), *id, offsets.get(id), &ends)?;
        }
        if self.until == RunUntil::End && self.ends.is_none() {
            let missing = ends.keys().filter(|id| !self.waiting.contains(id)).count();
            if missing > 0 {
                let group = self.export.group_id.clone();
                return Err(ExportError::NotAllPartitions { group, missing, all: ends.len() });
            }
            self.ends = Some(ends);
        }
        let places: BTreeMap<_, _> =
            self.waiting.iter().map(|id| (*id, offsets.get(id).copied())).collect();
        match self.source.start(&places) {
            Ok(missing) => self.note_missing(&missing),
            Err(error) => {
                self.retry_at = later(self.now(), TURN);
                return kafka(Err(error));
            }
        }
        for (id, offset) in places {
            tracing::info!(partition = id.partition, offset, "reading");
            self.stored.remove(&id);
            self.stored.extend(offset.map(|offset| (id, offset)));
        }
        self.reading.append(&mut self.waiting);
        Ok(())
    }

    /// Writes what was gathered; if that fails, it is read again.
    fn write(&mut self) -> Result<(), ExportError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.database.write(&self.batch, &self.stored) {
            Ok(Written::Committed) => {
                self.stored.extend(self.batch.next());
                self.count_batch();
                self.batch.clear();
                self.begun = None;
                Ok(())
            }
            Ok(Written::MovedOn) => {
                self.progress.moved_on += 1;
                tracing::warn!(
                    partitions = ?self.batch.next().keys().map(|id| id.partition).collect::<Vec<_>>(),
                    "another exporter has written these; reading on from where it stands"
                );
                self.start_over()
            }
            Err(error) => {
                self.database_failed(error)?;
                self.start_over()
            }
        }
    }

    fn count_batch(&mut self) {
        let Counts { results, tombstones, progress, unreadable } = std::mem::take(&mut self.counts);
        let sum = &mut self.progress;
        sum.results += results;
        sum.tombstones += tombstones;
        sum.progress += progress;
        sum.unreadable += unreadable;
        sum.rows += u64::try_from(self.batch.rows()).unwrap_or(u64::MAX);
        sum.written += 1;
        sum.connected = true;
        sum.last_write = Some(self.time.now().wall);
    }

    /// Forgets what is not written, and asks the database again where to go on.
    fn start_over(&mut self) -> Result<(), ExportError> {
        self.batch.clear();
        self.counts = Counts::default();
        self.begun = None;
        kafka(self.source.pause(&self.reading))?;
        self.waiting.append(&mut self.reading);
        Ok(())
    }

    fn give_up(&mut self, partitions: &[PartitionId]) -> Result<(), ExportError> {
        tracing::info!(partitions = ?numbers(partitions), "partitions given up");
        for id in partitions {
            self.reading.remove(id);
            self.waiting.remove(id);
            self.stored.remove(id);
            self.noted.remove(id);
        }
        kafka(self.source.release(partitions))
    }

    /// With `--until-end`: whether everything up to the ends is in the database.
    fn at_the_end(&self) -> Result<bool, ExportError> {
        let Some(ends) = &self.ends else { return Ok(false) };
        if !self.batch.is_empty() || !self.waiting.is_empty() {
            return Ok(false);
        }
        let missing = ends.keys().filter(|id| !self.reading.contains(id)).count();
        if missing > 0 {
            let group = self.export.group_id.clone();
            return Err(ExportError::NotAllPartitions { group, missing, all: ends.len() });
        }
        let progress = self.source.progress(self.now());
        Ok(ends.iter().all(|(id, (oldest, end))| {
            oldest >= end || progress.get(id).is_some_and(|progress| progress.position >= *end)
        }))
    }

    /// Waits longer each time; `Err` if there is nothing to wait for.
    fn database_failed(&mut self, error: DatabaseError) -> Result<(), ExportError> {
        match error {
            DatabaseError::Fatal(cause) => Err(ExportError::Database(cause)),
            DatabaseError::Retry(cause) => {
                let retry_in_ms = self.backoff.as_millis();
                tracing::warn!(cause, retry_in_ms, "the database does not answer");
                self.progress.connected = false;
                self.progress.failures += 1;
                self.publish();
                self.retry_at = later(self.now(), self.backoff);
                self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
                Ok(())
            }
        }
    }

    fn database_answered(&mut self) {
        self.backoff = FIRST_BACKOFF;
        self.progress.connected = true;
    }

    fn note_missing(&mut self, missing: &[(PartitionId, u64)]) {
        self.progress.missing += missing.iter().map(|(_, records)| records).sum::<u64>();
    }

    fn note_unreadable(&mut self, id: PartitionId, offset: i64, reason: &str) {
        self.counts.unreadable += 1;
        let now = self.now();
        if self.complained.is_none_or(|complained| now.since(complained) >= COMPLAIN_EVERY) {
            self.complained = Some(now);
            let so_far = self.progress.unreadable + self.counts.unreadable;
            let partition = id.partition;
            tracing::warn!(
                partition,
                offset,
                reason,
                so_far,
                "a record that is no row was left out"
            );
        }
    }

    /// Sees how far reading is; the source looks after partitions that stall on the way.
    fn look(&mut self, now: MonotonicTime) {
        self.looked = now;
        let progress = self.source.progress(now);
        let lags = progress.values().filter_map(|progress| {
            let end = progress.last_stable_offset.or(progress.end_offset)?;
            Some((end - progress.position).max(0))
        });
        self.progress.lag = lags.reduce(|sum, lag| sum + lag);
        self.progress.partitions = self.reading.len();
        self.publish();
        // The positions have passed the markers of transactions, which are no records; all before them is written.
        if self.batch.is_empty() {
            let positions = progress.iter().map(|(id, progress)| (*id, progress.position));
            let moved: Offsets = positions
                .filter(|(id, position)| {
                    self.reading.contains(id) && self.noted.get(id) != Some(position)
                })
                .collect();
            if !moved.is_empty() {
                self.source.note_offsets(&moved);
                self.noted.extend(moved);
            }
        }
    }

    fn publish(&mut self) {
        self.progress.turned = Some(self.now());
        self.watch.publish(self.progress);
    }

    /// Says where it stands.
    fn tell(&mut self, what: &'static str) {
        self.told = self.now();
        let ExportProgress {
            results,
            rows,
            tombstones,
            progress,
            unreadable,
            missing,
            lag,
            partitions,
            ..
        } = self.progress;
        tracing::info!(
            results, rows, tombstones, progress, unreadable, missing, lag, partitions, "{what}"
        );
    }
}

/// What can be tried again is, at the next turn.
fn kafka(outcome: Result<(), SourceError>) -> Result<(), ExportError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(SourceError::Retry(cause)) => {
            tracing::debug!(cause, "trying again");
            Ok(())
        }
        Err(SourceError::Fatal(cause)) => Err(ExportError::Source(cause)),
    }
}

/// An offset behind the end belongs to another topic of the same name.
fn check_end(
    topic: &str,
    id: PartitionId,
    stored: Option<&i64>,
    ends: &Ends,
) -> Result<(), ExportError> {
    let (Some(stored), Some((_, end))) = (stored, ends.get(&id)) else { return Ok(()) };
    if stored <= end {
        return Ok(());
    }
    Err(ExportError::Source(format!(
        "{topic}/{} ends at offset {end}, but the database has read up to {stored}: the topic was deleted and created \
         again, or cut off; drop both tables to begin anew, or delete the row of this partition from the table of offsets",
        id.partition
    )))
}

fn later(MonotonicTime(now): MonotonicTime, by: Duration) -> MonotonicTime {
    MonotonicTime(now.saturating_add(by))
}

fn numbers(partitions: &[PartitionId]) -> Vec<i32> {
    partitions.iter().map(|id| id.partition).collect()
}

/// The longest wait for a record at a time.
const TURN: Duration = Duration::from_millis(100);

/// How often it is looked how far reading is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often it says where it stands.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Records that are left out are told no more often.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

const FIRST_BACKOFF: Duration = Duration::from_millis(500);

const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
