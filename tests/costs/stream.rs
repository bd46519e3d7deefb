//! The whole loop on records that are there at once: a source that hands them out, and a sink that counts.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tidegate::event_time::{EventTime, MonotonicTime, Now, PartitionId};
use tidegate::insight::Watches;
use tidegate::pipeline::{
    Changelog, ChangelogEvent, CommittedOffset, Edges, Ends, InputRecord, Message, NextOffsets,
    OutputTopic, Pipeline, Polled, Progress, RunUntil, SinkError, Source, SourceError, Time,
    TopicLimits, TransactionalSink,
};

use crate::settings::config;

/// What there is to read.
pub(crate) struct Stream {
    /// Partitions that are assigned.
    pub(crate) partitions: i32,
    /// So many of them, evenly, have data; the others are empty and fall idle.
    pub(crate) with_data: i32,
    /// The payload of the nth record.
    pub(crate) payload: fn(u32) -> Vec<u8>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) results: usize,
    pub(crate) dead_letters: usize,
}

/// So many records a second, so a tick after each 4,000 and a commit after each 20,000.
const BETWEEN_RECORDS: Duration = Duration::from_micros(50);

/// Nothing is ever in front of what is read.
const PROGRESS: Progress = Progress {
    position: 0,
    end_offset: None,
    known_end: None,
    last_stable_offset: None,
    caught_up: true,
};

/// 2025-01-01.
pub(crate) const BEGIN_MS: i64 = 1_735_689_600_000;

impl Stream {
    /// Runs the loop over so many records.
    pub(crate) fn run(&self, records: u32) -> Counts {
        let mut config = config();
        for source in &mut config.sources {
            source.idle_timeout = Some(Duration::from_millis(600));
        }
        let shared = Rc::new(Shared {
            payload: self.payload,
            spread: self.partitions / self.with_data,
            with_data: self.with_data,
            partitions: (0..self.partitions)
                .map(|partition| PartitionId { topic: 0, partition })
                .collect(),
            records,
            read: Cell::new(0),
            step: Cell::new(Step::Joining),
            idle: Cell::new(Duration::ZERO),
            counts: Cell::new(Counts::default()),
            ends: RefCell::new(BTreeSet::new()),
        });
        let edge = || Edge(Rc::clone(&shared));
        let edges = Edges { source: edge(), sink: edge(), changelog: edge() };
        let watch = Watches::new(1).of(0).clone();
        let mut pipeline = Pipeline::new(&config, edges, (), edge(), watch, RunUntil::Stopped);
        pipeline.run().unwrap();
        shared.counts.get()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Joining,
    Restoring,
    Reading,
}

struct Shared {
    payload: fn(u32) -> Vec<u8>,
    spread: i32,
    with_data: i32,
    partitions: Vec<PartitionId>,
    records: u32,
    read: Cell<u32>,
    step: Cell<Step>,
    /// Time that passed without records.
    idle: Cell<Duration>,
    counts: Cell<Counts>,
    ends: RefCell<BTreeSet<PartitionId>>,
}

#[derive(Clone)]
struct Edge(Rc<Shared>);

struct Record {
    partition: PartitionId,
    offset: i64,
    payload: Vec<u8>,
}

impl InputRecord for Record {
    fn partition(&self) -> PartitionId {
        self.partition
    }
    fn offset(&self) -> i64 {
        self.offset
    }
    fn key(&self) -> Option<&[u8]> {
        None
    }
    fn payload(&self) -> Option<&[u8]> {
        Some(&self.payload)
    }
    fn timestamp(&self) -> Option<i64> {
        Some(BEGIN_MS)
    }
    fn header(&self, _name: &str) -> Option<&[u8]> {
        None
    }
    fn each_header(&self, _visit: &mut dyn FnMut(&str, Option<&[u8]>)) {}
}

impl Source for Edge {
    type Record<'a> = Record;

    fn poll(&self, _timeout: Duration) -> Result<Polled<Record>, SourceError> {
        let shared = &self.0;
        if shared.step.get() == Step::Joining {
            shared.step.set(Step::Restoring);
            return Ok(Polled::Assigned(shared.partitions.clone()));
        }
        // The first second is for what is empty to fall idle.
        let nth = shared.read.get();
        if shared.step.get() != Step::Reading
            || nth >= shared.records
            || shared.idle.get() < Duration::from_secs(1)
        {
            shared.idle.set(shared.idle.get() + Duration::from_millis(10));
            return Ok(Polled::Nothing);
        }
        shared.read.set(nth + 1);
        let lane = i32::try_from(nth).unwrap() % shared.with_data;
        Ok(Polled::Record(Record {
            partition: PartitionId { topic: 0, partition: lane * shared.spread },
            offset: i64::from(nth / shared.with_data.unsigned_abs()),
            payload: (shared.payload)(nth),
        }))
    }

    fn join(&self) -> Result<(), SourceError> {
        Ok(())
    }
    fn leave(&self) -> Result<(), SourceError> {
        Ok(())
    }
    fn name(&self) -> String {
        "alone".to_owned()
    }
    fn others(&self) -> Result<Vec<String>, SourceError> {
        Ok(Vec::new())
    }
    fn partitions(&self) -> Result<BTreeSet<PartitionId>, SourceError> {
        Ok(self.0.partitions.iter().copied().collect())
    }
    fn accept(&self, _partitions: &[PartitionId]) -> Result<(), SourceError> {
        Ok(())
    }
    fn committed(
        &self,
        _partitions: &BTreeSet<PartitionId>,
    ) -> Result<BTreeMap<PartitionId, CommittedOffset>, SourceError> {
        Ok(BTreeMap::new())
    }
    fn start(
        &self,
        _beginnings: &BTreeMap<PartitionId, Option<i64>>,
    ) -> Result<Vec<(PartitionId, u64)>, SourceError> {
        self.0.step.set(Step::Reading);
        Ok(Vec::new())
    }
    fn pause(&self, _partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        Ok(())
    }
    fn hold_back(&self, _partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        Ok(())
    }
    fn read_on(&self, _partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        Ok(())
    }
    fn release(&self, _partitions: &[PartitionId]) -> Result<(), SourceError> {
        Ok(())
    }
    fn progress(&self, _now: MonotonicTime) -> BTreeMap<PartitionId, Progress> {
        let read = i64::from(self.0.read.get() / self.0.with_data.unsigned_abs());
        let of = |id: &PartitionId| {
            let position = if id.partition % self.0.spread == 0 { read } else { 0 };
            let end = Some(position);
            let progress = Progress { position, end_offset: end, known_end: end, ..PROGRESS };
            (*id, Progress { last_stable_offset: end, ..progress })
        };
        self.0.partitions.iter().map(of).collect()
    }
    fn ends(&self) -> Result<Ends, SourceError> {
        Ok(Ends::new())
    }
    fn close(&self) {}
}

impl TransactionalSink for Edge {
    fn send(&mut self, message: &Message) -> Result<(), SinkError> {
        let mut counts = self.0.counts.get();
        match message.to {
            OutputTopic::Results => counts.results += 1,
            OutputTopic::DeadLetter => counts.dead_letters += 1,
            OutputTopic::Late | OutputTopic::Changelog(_) => {}
        }
        self.0.counts.set(counts);
        Ok(())
    }
    fn commit(&mut self, _next: &NextOffsets) -> Result<(), SinkError> {
        Ok(())
    }
    fn abort(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
    fn limits(&self, _topic: OutputTopic) -> TopicLimits {
        TopicLimits::default()
    }
    fn refresh_limits(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Changelog for Edge {
    fn ensure(&mut self, _partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        Ok(())
    }
    fn open(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        self.0.ends.replace(partitions.clone());
        Ok(())
    }
    fn poll(
        &mut self,
        _timeout: Duration,
        _most: usize,
        take: &mut dyn FnMut(&[ChangelogEvent<'_>]),
    ) -> Result<usize, SourceError> {
        let Some(at) = self.0.ends.borrow_mut().pop_first() else { return Ok(0) };
        take(&[ChangelogEvent::End(at)]);
        Ok(1)
    }
    fn progress(&self) -> BTreeMap<PartitionId, (u64, u64)> {
        BTreeMap::new()
    }
    fn close(&mut self) {}
}

impl Time for Edge {
    fn now(&self) -> Now {
        let passed = self.0.idle.get() + BETWEEN_RECORDS * self.0.read.get();
        let wall = BEGIN_MS + i64::from(self.0.records) + 60_000;
        Now { monotonic: MonotonicTime(passed), wall: EventTime(wall) }
    }
    fn wait(&self, duration: Duration) {
        self.0.idle.set(self.0.idle.get() + duration);
    }
    fn stopping(&self) -> bool {
        self.0.read.get() >= self.0.records && self.0.step.get() == Step::Reading
    }
}
