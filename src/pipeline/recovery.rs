//! The one way back to state: at the start, on assignment, and after an aborted transaction.
//!
//! Partitions wait here, not read and not idle, until it is known what the group has committed for them and the
//! changelog has been read to its end; then they go on where the last commit stood. All of it goes in small steps with
//! polls between them, so that other partitions flow and the group does not lose sight of this member.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::time::Duration;

use super::edge::{Changelog, CommittedOffset, Source, SourceError};
use super::reading::{Log, Reading};
use super::{PipelineError, heirs};
use crate::codec::changelog::{Layout, Restored, Restorer, SavedPartition, ShardWriter, layout};
use crate::config::{Config, Guarantee};
use crate::event_time::{
    MonotonicTime, PartitionId, PartitionState, Shard, ShardId, Sharding, Watermark, WindowSettings,
};

/// Partitions on their way back to state.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) partitions: BTreeSet<PartitionId>,
    pub(super) began: MonotonicTime,
    /// When the log was last told of it.
    told: MonotonicTime,
    /// Since when offsets are missing that the changelog says were committed.
    missing_since: Option<MonotonicTime>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// What the group has committed is to be asked for, not before this time.
    Offsets(MonotonicTime),
    /// The changelog is read.
    Reading(Reading),
    /// All is there; the partitions are to be read on.
    Ready(Box<Ready>),
}

/// What partitions go on from.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Where to read on; `None`: as the configuration says for a partition that is new to the group.
    pub(super) beginnings: BTreeMap<PartitionId, Option<i64>>,
    pub(super) states: BTreeMap<PartitionId, PartitionState>,
    pub(super) writers: BTreeMap<ShardId, ShardWriter>,
    /// The least clock that came back.
    pub(super) clock: Option<Watermark>,
    /// (window, key) entries that came back.
    pub(super) entries: usize,
    /// What of them waited for late records and went with a change of the configuration.
    pub(super) dropped: usize,
}

/// What a recovery needs to know of its surroundings.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) sharding: Sharding,
    pub(super) windows: WindowSettings,
    pub(super) layout: Layout,
    pub(super) guarantee: Guarantee,
    pub(super) topics: Vec<String>,
    /// The changelog partition of the one shard for all.
    pub(super) of_all: PartitionId,
    /// Threads that decode at the same time.
    pub(super) threads: usize,
}

/// How a step went.
#[derive(Debug)]
pub(super) enum Stepped {
    /// There is more to do at once.
    Busy,
    /// The changelog is being fetched.
    Reading,
    /// Nothing to do before the brokers have said more.
    Waiting,
    /// State and beginnings are there.
    Ready(Box<Ready>),
}

impl Recovery {
    pub(super) fn new(partitions: BTreeSet<PartitionId>, now: MonotonicTime) -> Self {
        Self { partitions, began: now, told: now, missing_since: None, step: Step::Offsets(now) }
    }

    /// Whether it takes so long that a word is due.
    pub(super) fn is_to_be_told_of(&mut self, now: MonotonicTime) -> bool {
        let due = now.since(self.told) >= TELL_EVERY;
        if due {
            self.told = now;
        }
        due
    }

    /// Whether the changelog has offsets that the group has not.
    pub(super) fn lacks_offsets(&self) -> bool {
        self.missing_since.is_some()
    }

    /// Something failed on the way.
    pub(super) fn begin_again(&mut self, now: MonotonicTime) {
        self.step = Step::Offsets(now);
    }

    /// These are no longer ours.
    pub(super) fn forget(&mut self, partitions: &[PartitionId]) {
        self.partitions.retain(|id| !partitions.contains(id));
        let stays = |shard: ShardId| shard.partition().is_none_or(|id| !partitions.contains(&id));
        match &mut self.step {
            Step::Offsets(_) => {}
            Step::Reading(reading) => reading.logs.retain(|log| stays(log.shard)),
            Step::Ready(ready) => {
                ready.beginnings.retain(|id, _| !partitions.contains(id));
                ready.states.retain(|id, _| !partitions.contains(id));
                ready.writers.retain(|shard, _| stays(*shard));
            }
        }
    }

    /// One step. What it made ready stays here, to be taken by [`Self::ready`], until the source has begun to read.
    pub(super) fn step<S: Source, C: Changelog>(
        &mut self,
        source: &S,
        changelog: &mut C,
        terms: &Terms,
        shared_is_live: bool,
        now: MonotonicTime,
    ) -> Result<Stepped, Failure> {
        match &mut self.step {
            Step::Offsets(not_before) if now < *not_before => Ok(Stepped::Waiting),
            Step::Offsets(_) => {
                let committed = source.committed(&self.partitions)?;
                let logs = if shared_is_live {
                    // The one shard is at work; what joins it is new to the group.
                    Vec::new()
                } else {
                    terms.logs(&self.partitions, &committed)?
                };
                let at: BTreeSet<_> = logs.iter().map(|log| log.at).collect();
                changelog.ensure(&terms.changelog_partitions(&self.partitions))?;
                if !at.is_empty() {
                    changelog.open(&at)?;
                }
                self.step = Step::Reading(Reading { committed, logs, last: now });
                Ok(Stepped::Busy)
            }
            Step::Reading(reading) => {
                let mut left = MESSAGES_PER_STEP;
                while left > 0 {
                    if reading.logs.iter().all(|log| log.done) {
                        return self.finish(source, changelog, terms, now);
                    }
                    let mut outcome = Ok(());
                    let came = changelog.poll(Duration::ZERO, left, &mut |events| {
                        outcome = reading.take(events, terms);
                    })?;
                    outcome?;
                    if came == 0 {
                        reading.nothing_came(now, terms);
                        return Ok(Stepped::Reading);
                    }
                    left = left.saturating_sub(came);
                    reading.last = now;
                }
                Ok(Stepped::Busy)
            }
            Step::Ready(ready) => Ok(Stepped::Ready(std::mem::take(ready))),
        }
    }

    /// Puts back what could not be begun yet.
    pub(super) fn not_begun(&mut self, ready: Box<Ready>) {
        self.step = Step::Ready(ready);
    }

    fn finish<S: Source, C: Changelog>(
        &mut self,
        source: &S,
        changelog: &mut C,
        terms: &Terms,
        now: MonotonicTime,
    ) -> Result<Stepped, Failure> {
        changelog.close();
        let step = std::mem::replace(&mut self.step, Step::Offsets(now));
        let Step::Reading(reading) = step else { return Ok(Stepped::Busy) };
        match terms.assemble(&self.partitions, reading)? {
            Assembled::Ready(mut ready) => {
                heirs::look_for(terms, source, &self.partitions, &mut ready)?;
                self.step = Step::Ready(ready);
                Ok(Stepped::Busy)
            }
            Assembled::WithoutOffsets(id, mut ready) => {
                // The group may only not have found it yet.
                let since = *self.missing_since.get_or_insert(now);
                if now.since(since) < ASK_AGAIN_FOR {
                    self.step = Step::Offsets(MonotonicTime(now.0 + ASK_AGAIN_AFTER));
                    return Ok(Stepped::Waiting);
                }
                tracing::warn!(
                    topic = terms.topic(id),
                    partition = id.partition,
                    "the group has no offset where the changelog has one; taking the changelog's"
                );
                heirs::look_for(terms, source, &self.partitions, &mut ready)?;
                // So that the group has it again, also where nothing changes any more.
                ready.writers.values_mut().for_each(ShardWriter::write_again);
                self.step = Step::Ready(ready);
                Ok(Stepped::Busy)
            }
        }
    }
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// Try the same again after a while.
    Retry(String),
    /// End with this error.
    Fatal(PipelineError),
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Retry(cause) => Self::Retry(cause),
            SourceError::Fatal(cause) => Self::Fatal(PipelineError::Source(cause)),
        }
    }
}

pub(super) fn state_error(text: String) -> Failure {
    Failure::Fatal(PipelineError::State(text))
}

enum Assembled {
    Ready(Box<Ready>),
    /// The changelog has an offset for this partition, and the group none.
    WithoutOffsets(PartitionId, Box<Ready>),
}

impl Terms {
    pub(super) fn new(config: &Config, windows: WindowSettings) -> Self {
        Self {
            sharding: if config.key.needs_all_partitions() {
                Sharding::OneForAll
            } else {
                Sharding::PerPartition
            },
            windows,
            layout: layout(config),
            guarantee: config.delivery.guarantee,
            topics: config.sources.iter().map(|source| source.topic.clone()).collect(),
            of_all: changelog_of_all(config),
            threads: std::thread::available_parallelism().map_or(1, NonZero::get),
        }
    }

    fn topic(&self, id: PartitionId) -> &str {
        self.topics.get(usize::from(id.topic)).map_or("", String::as_str)
    }

    pub(super) fn changelog(&self, at: PartitionId) -> String {
        if at.topic == u16::MAX {
            return "the changelog of the group".to_owned();
        }
        format!("partition {} of the changelog of `{}`", at.partition, self.topic(at))
    }

    /// The changelog partitions that these partitions' shards write to.
    fn changelog_partitions(&self, partitions: &BTreeSet<PartitionId>) -> BTreeSet<PartitionId> {
        match self.sharding {
            Sharding::OneForAll => [self.of_all].into(),
            Sharding::PerPartition => partitions.clone(),
        }
    }

    /// Which changelog partitions to read, and which commits must be there.
    fn logs(
        &self,
        partitions: &BTreeSet<PartitionId>,
        committed: &BTreeMap<PartitionId, CommittedOffset>,
    ) -> Result<Vec<Log>, Failure> {
        let mut logs: Vec<Log> = Vec::new();
        let none_marked = committed.values().all(|committed| committed.mark.is_none());
        for id in partitions {
            let mark = committed.get(id).and_then(|committed| committed.mark);
            let sharding = mark.map_or(self.sharding, |mark| mark.sharding);
            if mark.is_none() && self.sharding == Sharding::OneForAll && !none_marked {
                // New to the group: the state of the others does not speak of it.
                continue;
            }
            let (at, shard) = self.log_of(*id, sharding);
            let wanted = mark.map(|mark| mark.sequence);
            match logs.iter().find(|log| log.shard == shard) {
                Some(log) if log.wanted == wanted => {}
                Some(log) => {
                    return Err(state_error(format!(
                        "the group's offsets of `{}` belong to different commits ({:?} and {wanted:?}): somebody has \
                         moved them; `tidegate reset` begins anew where you say",
                        self.topic(*id),
                        log.wanted
                    )));
                }
                None => logs.push(Log {
                    at,
                    shard,
                    wanted,
                    ends_there: sharding != self.sharding,
                    restorer: Restorer::new(&self.windows, &self.layout),
                    done: false,
                }),
            }
        }
        // Without transactions the changelog may be ahead of the group's offsets: its last state counts.
        if self.guarantee == Guarantee::AtLeastOnce {
            for log in &mut logs {
                (log.wanted, log.ends_there) = (None, false);
            }
        }
        Ok(logs)
    }

    fn assemble(
        &self,
        partitions: &BTreeSet<PartitionId>,
        reading: Reading,
    ) -> Result<Assembled, Failure> {
        let mut ready = Box::<Ready>::default();
        let mut without_offset = None;
        let mut all = None;
        for log in reading.logs {
            let at = log.at;
            let restored = log
                .restorer
                .finish(log.shard)
                .map_err(|fault| state_error(format!("{}: {fault}", self.changelog(at))))?;
            let Some(restored) = restored else { continue };
            ready.entries += restored.shard.entry_count();
            ready.dropped += restored.dropped;
            let clock = restored.shard.clock_brought().unwrap_or(Watermark::NONE);
            ready.clock = Some(ready.clock.map_or(clock, |least| least.min(clock)));
            let Restored { shard, partitions: saved, mut writer, .. } = restored;
            let is_ahead = log.wanted.is_some_and(|wanted| wanted < writer.sequence());
            if is_ahead {
                tracing::warn!(
                    changelog = self.changelog(at),
                    group = log.wanted,
                    found = writer.sequence(),
                    "the group has lost the offsets of a commit; taking the changelog's"
                );
                // So that the group has them again, also where nothing changes any more.
                writer.write_again();
            }
            let saved = saved.into_iter().filter_map(|saved| {
                let topic = self.topics.iter().position(|topic| *topic == saved.topic)?;
                let id =
                    PartitionId { topic: u16::try_from(topic).ok()?, partition: saved.partition };
                // After a change of the key it may have state of its own, and this is what it was before.
                let mark = reading.committed.get(&id).and_then(|committed| committed.mark);
                let is_newer =
                    mark.is_some_and(|mark| self.log_of(id, mark.sharding).1 != log.shard);
                (partitions.contains(&id) && !is_newer).then_some((id, saved))
            });
            for (id, saved) in saved {
                let committed = reading.committed.get(&id);
                self.check_offset(id, committed, &saved, is_ahead)?;
                if committed.is_none() && !is_ahead {
                    without_offset = Some(id);
                }
                ready.beginnings.insert(id, Some(saved.offset));
                ready.states.insert(id, saved.state);
            }
            self.place(log.shard, shard, writer, &mut ready, &mut all);
        }
        for id in partitions {
            // Where there is no state, the group's offset is where somebody wants it to begin.
            ready
                .beginnings
                .entry(*id)
                .or_insert_with(|| reading.committed.get(id).map(|committed| committed.offset));
            if self.sharding == Sharding::PerPartition {
                ready.writers.entry(ShardId::Partition(*id)).or_default();
            }
        }
        if self.sharding == Sharding::OneForAll {
            let (shard, writer) = all.unzip();
            ready.writers.insert(ShardId::All, writer.unwrap_or_default());
            if let (Some(shard), Some(first)) = (shard, partitions.first()) {
                ready.states.entry(*first).or_default().shard = Some(shard);
            }
        }
        Ok(match without_offset {
            Some(id) => Assembled::WithoutOffsets(id, ready),
            None => Assembled::Ready(ready),
        })
    }

    /// Puts a restored shard where this configuration's records will look for it.
    fn place(
        &self,
        from: ShardId,
        shard: Shard,
        writer: ShardWriter,
        ready: &mut Ready,
        all: &mut Option<(Shard, ShardWriter)>,
    ) {
        match (self.sharding, from) {
            (Sharding::PerPartition, ShardId::Partition(id)) => {
                ready.writers.insert(from, writer);
                if let Some(state) = ready.states.get_mut(&id) {
                    state.shard = Some(shard);
                }
            }
            (Sharding::OneForAll, ShardId::All) => *all = Some((shard, writer)),
            // What the other kind of shard held has fired; its clock goes on in each of the new ones.
            (Sharding::PerPartition, ShardId::All) => {
                for (id, state) in
                    ready.states.iter_mut().filter(|(_, state)| state.shard.is_none())
                {
                    let own = ShardId::Partition(*id);
                    state.shard = Some(shard.successor(own));
                    ready.writers.insert(own, writer.successor());
                }
            }
            (Sharding::OneForAll, ShardId::Partition(_)) => {
                let (mut shard, mut writer) = (shard.successor(ShardId::All), writer.successor());
                if let Some((before, of_before)) = all {
                    shard.succeed(before);
                    writer.succeed(of_before);
                }
                *all = Some((shard, writer));
            }
        }
    }

    /// The changelog partition with the state of a partition, and the shard whose it is.
    fn log_of(&self, id: PartitionId, sharding: Sharding) -> (PartitionId, ShardId) {
        match sharding {
            Sharding::OneForAll => (self.of_all, ShardId::All),
            Sharding::PerPartition => (id, ShardId::Partition(id)),
        }
    }

    /// The changelog's offset is the truth, and the group's must be the same, or that of a commit before.
    fn check_offset(
        &self,
        id: PartitionId,
        committed: Option<&CommittedOffset>,
        saved: &SavedPartition,
        is_ahead: bool,
    ) -> Result<(), Failure> {
        let Some(committed) = committed else { return Ok(()) };
        // What somebody moves by hand has no mark.
        let behind_is_fine =
            self.guarantee == Guarantee::AtLeastOnce || (is_ahead && committed.mark.is_some());
        if committed.offset == saved.offset || (behind_is_fine && committed.offset < saved.offset) {
            return Ok(());
        }
        Err(state_error(format!(
            "the group's offset of {}/{} is {}, but the state in the changelog belongs to {}: somebody has moved it; \
             `tidegate reset` begins anew where you say",
            self.topic(id),
            id.partition,
            committed.offset,
            saved.offset
        )))
    }
}

/// The changelog partition of the one shard for all: the first of the topic that is named first, or, where only patterns
/// are, of a topic that belongs to no input.
pub(crate) fn changelog_of_all(config: &Config) -> PartitionId {
    let topic = if config.first_named().is_some() { 0 } else { u16::MAX };
    PartitionId { topic, partition: 0 }
}

/// How often a restore that takes long is told of in the log.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Messages taken in before the source is polled again.
const MESSAGES_PER_STEP: usize = 32;

/// How long a group is asked for an offset that the changelog says it had, and how often.
const ASK_AGAIN_FOR: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
