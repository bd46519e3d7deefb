//! What is read back is what was written: in random worlds, from shortened logs, under other configurations, out of
//! damaged bytes, and out of bytes that an earlier version wrote.

mod bytes;
#[path = "../../../../tests/support/layout.rs"]
mod layout;
mod layouts;
mod length;
mod worlds;

use std::collections::BTreeMap;
use std::time::Duration;

use layout::layout_of;

use super::*;
use crate::event_time::*;

/// The messages of one partition of the topic.
type Log = Vec<(Vec<u8>, Vec<u8>)>;

const P0: PartitionId = PartitionId { topic: 0, partition: 0 };

/// One partition, with a shard of its own.
const SHARD: ShardId = ShardId::Partition(P0);

fn settings(aggregates: &[AggregateFunction]) -> SubtaskSettings {
    SubtaskSettings {
        topics: vec![TopicSettings {
            strategy: WatermarkStrategy::AscendingTimestamps,
            idle_timeout: None,
        }],
        window: WindowSettings {
            windows: TumblingWindows::new(Duration::from_secs(10), 0).unwrap(),
            allowed_lateness: Duration::ZERO,
            panes: Panes::Accumulating,
            aggregates: aggregates.to_vec(),
            limits: StateLimits::default(),
        },
        sharding: Sharding::PerPartition,
        all_idle: AllIdle::Hold,
    }
}

/// A subtask with one partition, its writer, and what was committed.
struct Job {
    settings: SubtaskSettings,
    subtask: Subtask,
    writer: ShardWriter,
    log: Log,
    offset: i64,
    max_bytes: usize,
}

impl Job {
    fn new(settings: SubtaskSettings) -> Self {
        let mut subtask = Subtask::new(settings.clone());
        subtask.assign(P0, None);
        let (writer, log) = (ShardWriter::new(), Log::new());
        Self { settings, subtask, writer, log, offset: 0, max_bytes: 1 << 20 }
    }

    /// Takes in a record with this value for every aggregate.
    fn add(&mut self, ms: i64, key: &str, value: Option<Value>) -> Disposition {
        self.offset += 1;
        let values = vec![value; self.settings.window.aggregates.len()];
        self.subtask.on_event(P0, &Event::new(EventTime(ms), key.as_bytes(), &values))
    }

    /// Emits, and gives the panes.
    fn tick(&mut self) -> Vec<String> {
        self.subtask.on_periodic_emit(NOW);
        panes(&mut self.subtask)
    }

    /// There is nothing to be fired.
    fn assert_quiet(&mut self) {
        assert_eq!(panes(&mut self.subtask), Vec::<String>::new());
    }

    /// The messages of a commit.
    fn write(&mut self) -> Option<Written> {
        let state = self.subtask.partition_state(P0).unwrap();
        let topic = "flights".to_owned();
        let saved = [SavedPartition { topic, partition: 0, offset: self.offset, state }];
        let layout = layout_of(&self.settings);
        self.writer.write(&self.subtask, SHARD, &saved, &layout, self.max_bytes)
    }

    /// Commits.
    fn commit(&mut self) -> Written {
        let written = self.write().unwrap();
        self.writer.committed();
        self.subtask.mark_saved(SHARD);
        self.log.extend(written.messages.iter().cloned());
        written
    }

    /// What is read back, under these settings.
    fn restore(&self, settings: &SubtaskSettings) -> Result<Option<Restored>, ChangelogFault> {
        restore(&self.log, settings, SHARD)
    }

    /// Goes on with what was read back.
    fn restart(self, settings: SubtaskSettings) -> Self {
        let restored = self.restore(&settings).unwrap().unwrap();
        let mut subtask = Subtask::new(settings.clone());
        subtask.restore_watermark(restored.shard.clock_brought().unwrap());
        let [saved] = <[_; 1]>::try_from(restored.partitions).unwrap();
        let state = PartitionState { shard: Some(restored.shard), ..saved.state };
        assert_eq!(subtask.assign(P0, Some(state)), Assigned::AsItWas);
        Self { settings, subtask, writer: restored.writer, offset: saved.offset, ..self }
    }
}

const NOW: Now = Now { monotonic: MonotonicTime(Duration::ZERO), wall: EventTime(0) };

/// Takes all outputs and gives the panes among them, as `key window-start timing index: values`.
fn panes(subtask: &mut Subtask) -> Vec<String> {
    let mut panes = Vec::new();
    while let Some(output) = subtask.poll_output() {
        if let Output::Fired(pane) = output {
            panes.push(pane_text(&pane));
        }
    }
    panes
}

fn pane_text(pane: &Pane<'_>) -> String {
    let values: Vec<_> = pane.aggregates.values().collect();
    format!(
        "{} {} {} {}: {values:?}",
        String::from_utf8_lossy(pane.key),
        pane.window.start,
        pane.timing.name(),
        pane.index
    )
}

fn restore(
    log: &[(Vec<u8>, Vec<u8>)],
    settings: &SubtaskSettings,
    shard: ShardId,
) -> Result<Option<Restored>, ChangelogFault> {
    let mut restorer = Restorer::new(&settings.window, &layout_of(settings));
    for (key, value) in log {
        restorer.take(Some(key), value)?;
    }
    restorer.finish(shard)
}

/// Everything of a shard that was read back, in words, whatever its order in memory.
fn told(restored: &Restored) -> String {
    let shard = &restored.shard;
    let mut entries: Vec<_> = shard
        .operator
        .entries(Watermark::NONE, Duration::ZERO)
        .map(|entry| format!("{entry:?}"))
        .collect();
    entries.sort_unstable();
    format!(
        "{:?} {:?} {} {:?} {entries:#?}",
        shard.own_clock,
        shard.closed,
        restored.writer.sequence(),
        restored.partitions
    )
}

/// What compaction leaves of a log: the last message of each key.
fn compacted(log: &Log) -> Log {
    let last: BTreeMap<_, _> =
        log.iter().enumerate().map(|(place, (key, _))| (key.clone(), place)).collect();
    let is_last = |place: usize, key: &Vec<u8>| last[key] == place;
    let kept = log.iter().enumerate().filter(|(place, (key, _))| is_last(*place, key));
    kept.map(|(_, message)| message.clone()).collect()
}

#[test]
fn a_shard_goes_on_where_it_was() {
    let settings = SubtaskSettings {
        window: WindowSettings {
            allowed_lateness: Duration::from_secs(5),
            ..settings(&[AggregateFunction::Count, AggregateFunction::Sum]).window
        },
        ..settings(&[])
    };
    let one = Some(Value::Integer(1));
    let mut job = Job::new(settings.clone());
    for (ms, key) in [(1_000, "a"), (2_000, "b"), (11_000, "a")] {
        job.add(ms, key, one);
        job.tick();
        job.commit();
    }
    assert_eq!(job.add(3_000, "a", one), Disposition::Refired);
    assert_eq!(
        panes(&mut job.subtask),
        ["a 0 late 1: [Integer(2), Integer(2)]"],
        "the window had fired"
    );
    job.commit();
    assert!(job.write().is_none(), "nothing has changed");
    let (held, bytes) = (job.subtask.open_panes(), job.subtask.state_bytes());
    let mut job = job.restart(settings);
    assert_eq!((job.writer.sequence(), job.offset), (4, 4));
    assert_eq!((job.subtask.open_panes(), job.subtask.state_bytes()), (held, bytes));
    assert_eq!(job.tick(), Vec::<String>::new(), "nothing fires twice");
    assert!(job.write().is_none(), "nothing has changed");
    assert_eq!(job.add(4_000, "b", one), Disposition::Refired);
    assert_eq!(panes(&mut job.subtask), ["b 0 late 1: [Integer(2), Integer(2)]"]);
    job.add(40_000, "c", one);
    assert_eq!(job.tick(), ["a 10000 on_time 0: [Integer(1), Integer(1)]"]);
    assert!(matches!(job.add(4_000, "b", one), Disposition::Late(_)));
}

#[test]
fn windows_due_and_not_yet_fired_fire_after_a_restart() {
    let mut job = Job::new(settings(&[AggregateFunction::Count]));
    for key in ["a", "b", "c"] {
        job.add(1_000, key, None);
    }
    job.commit();
    job.add(30_000, "a", None);
    job.subtask.on_periodic_emit(NOW);
    // The watermark, and the first pane: then a commit.
    assert!(matches!(job.subtask.poll_output(), Some(Output::WatermarkAdvanced(_))));
    assert!(matches!(job.subtask.poll_output(), Some(Output::Fired(pane)) if pane.key == b"a"));
    job.commit();
    let settings = job.settings.clone();
    let mut job = job.restart(settings);
    let due = ["b 0 on_time 0: [Integer(0)]", "c 0 on_time 0: [Integer(0)]"];
    assert_eq!(panes(&mut job.subtask), due);
    job.commit();
    let settings = job.settings.clone();
    let mut job = job.restart(settings);
    job.assert_quiet();
    assert_eq!(job.subtask.open_panes(), 1);
}
