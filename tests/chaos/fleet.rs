//! The instances: starts them, looks at them, starts them again, and judges how they end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::event_time::MonotonicTime;
use tidegate::watchdog::STANDS_STILL;

use crate::evidence::Evidence;
use crate::instance::{Instance, State};

/// Up to four instances, each with a name of its own.
pub(crate) struct Fleet {
    config: String,
    clock: Clock,
    slots: Vec<Slot>,
    started: usize,
    looked: MonotonicTime,
    /// Nobody is to be started any more.
    closing: bool,
    /// Of the instances that have ended.
    past: Evidence,
    /// How instances have ended that should not have.
    pub(crate) objections: Vec<String>,
    /// Stops that could not commit, because a broker was away.
    pub(crate) unfinished: usize,
    /// Processes that ended themselves, since their loop stood still in a call of the client library.
    stood_still: usize,
    /// Processes that ended, since their client had ceased to follow the group when the topic grew.
    pub(crate) strayed: usize,
    /// Where the logs are.
    pub(crate) logs: PathBuf,
}

#[derive(Default)]
struct Slot {
    process: Option<Instance>,
    /// The first of two processes of this name, until it has found that it was replaced.
    replaced: Option<Instance>,
    /// When it is to be started again.
    start_at: Option<MonotonicTime>,
    /// When it is to go on.
    resume_at: Option<MonotonicTime>,
}

impl Slot {
    fn resume(&mut self) {
        self.resume_at = None;
        if let Some(instance) = &mut self.process
            && instance.state == State::Stalled
        {
            instance.signal("CONT", State::Running);
        }
    }

    fn is_free(&self) -> bool {
        self.process.is_none() && self.replaced.is_none() && self.start_at.is_none()
    }
}

impl Fleet {
    pub(crate) fn new(config: String, seed: u64) -> Self {
        let logs = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{seed}"));
        std::fs::create_dir_all(&logs).unwrap();
        Self {
            config,
            clock: Clock::start(),
            slots: SETTINGS.iter().map(|_| Slot::default()).collect(),
            started: 0,
            looked: MonotonicTime::default(),
            closing: false,
            past: Evidence::default(),
            objections: Vec::new(),
            unfinished: 0,
            stood_still: 0,
            strayed: 0,
            logs,
        }
    }

    pub(crate) fn now(&self) -> MonotonicTime {
        self.clock.monotonic()
    }

    /// Does what is due, and looks at everybody.
    pub(crate) fn tick(&mut self) {
        let now = self.now();
        let look = now.since(self.looked) > LOOK_EVERY;
        if look {
            self.looked = now;
        }
        for slot in 0..self.slots.len() {
            self.reap(slot);
            let held = &mut self.slots[slot];
            if held.resume_at.is_some_and(|at| at <= now) {
                held.resume();
            }
            if held.process.is_none() && held.start_at.is_some_and(|at| at <= now) {
                self.start(slot);
            }
            if look && let Some(instance) = &mut self.slots[slot].process {
                instance.look();
            }
        }
        let nobody = |slot: &Slot| slot.start_at.is_none() && slot.process.is_none();
        if !self.closing && self.slots.iter().all(nobody) {
            self.join();
        }
    }

    fn reap(&mut self, slot: usize) {
        let held = &mut self.slots[slot];
        for place in [&mut held.process, &mut held.replaced] {
            let Some(instance) = place else { continue };
            let Some(status) = instance.ended() else { continue };
            let mut seen = instance.evidence();
            match how_it_ended(instance, status) {
                End::AsAsked => {}
                End::Unfinished => self.unfinished += 1,
                End::Fenced => seen.fenced += 1,
                End::Strayed => self.strayed += 1,
                End::StoodStill if self.stood_still == 0 => {
                    self.stood_still += 1;
                    println!("chaos: a loop stood still: {}", instance.tail());
                }
                End::StoodStill | End::Unexpected => self
                    .objections
                    .push(format!("an instance ended by itself ({status}): {}", instance.tail())),
            }
            self.past = self.past + seen;
            if matches!(instance.state, State::Running | State::Stalled) {
                held.start_at.get_or_insert(self.clock.monotonic());
            }
            *place = None;
        }
        if self.is_running(slot) {
            // The first of two has ended.
            self.slots[slot].start_at = None;
        }
    }

    fn start(&mut self, slot: usize) {
        self.started += 1;
        let (name, settings) = SETTINGS[slot];
        let id = format!("kafka.instance_id={name}");
        let settings = settings.iter().copied().chain([id.as_str()]);
        let arguments: Vec<_> = settings.flat_map(|setting| ["--set", setting]).collect();
        let name = format!("{name}-{}", self.started);
        let instance = Instance::start(name, &self.config, &arguments, &self.logs);
        self.slots[slot].start_at = None;
        self.slots[slot].process = Some(instance);
    }

    /// Starts one more, if there is room. Its name.
    pub(crate) fn join(&mut self) -> Option<String> {
        let slot = self.slots.iter().position(Slot::is_free)?;
        self.start(slot);
        Some(self.name(slot))
    }

    pub(crate) fn name(&self, slot: usize) -> String {
        self.slots[slot].process.as_ref().map_or(String::new(), |instance| instance.name.clone())
    }

    /// Those that were not told to do anything else.
    pub(crate) fn running(&self) -> Vec<usize> {
        self.slots_with(|instance| instance.state == State::Running)
    }

    fn is_running(&self, slot: usize) -> bool {
        self.running().contains(&slot)
    }

    /// Those of them that have partitions.
    pub(crate) fn at_work(&self) -> Vec<usize> {
        self.slots_with(|instance| {
            instance.state == State::Running
                && instance.metrics().sum("tidegate_partitions", "") > 0.0
        })
    }

    /// Those at work whose transactions last long enough for another one to take their name and partitions meanwhile,
    /// and that did not stand still before; sees to it that one of them comes, if there is none.
    pub(crate) fn replaceable(&mut self) -> Vec<usize> {
        let long = |slot: &usize| SETTINGS[*slot].1.contains(&LONG);
        let fresh = self.slots_with(|instance| !instance.may_be_replaced);
        let fresh: Vec<_> = fresh.into_iter().filter(long).collect();
        if fresh.is_empty() && self.join().is_none() {
            let running: Vec<_> = self.running().into_iter().filter(long).collect();
            for slot in running {
                self.kill(slot, Duration::ZERO);
            }
        }
        fresh.into_iter().filter(|slot| self.at_work().contains(slot)).collect()
    }

    fn slots_with(&self, condition: impl Fn(&Instance) -> bool) -> Vec<usize> {
        let fits = |slot: &usize| self.slots[*slot].process.as_ref().is_some_and(&condition);
        (0..self.slots.len()).filter(fits).collect()
    }

    /// From now on somebody is there again.
    pub(crate) fn open(&mut self) {
        self.closing = false;
    }

    /// Asks everybody to stop.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        for slot in self.running() {
            self.stop(slot, None);
        }
    }

    pub(crate) fn kill(&mut self, slot: usize, start_after: Duration) {
        self.end(slot, "KILL", State::Killed, Some(start_after));
    }

    pub(crate) fn stop(&mut self, slot: usize, start_after: Option<Duration>) {
        self.end(slot, "TERM", State::Stopping, start_after);
    }

    fn end(&mut self, slot: usize, signal: &str, state: State, start_after: Option<Duration>) {
        let now = self.now();
        let held = &mut self.slots[slot];
        if let Some(instance) = &mut held.process {
            instance.signal(signal, state);
        }
        held.start_at = start_after.map(|after| MonotonicTime(now.0 + after));
    }

    /// Lets it stand still; with a time, until then.
    pub(crate) fn stall(&mut self, slot: usize, lasts: Option<Duration>) {
        let now = self.now();
        let held = &mut self.slots[slot];
        if let Some(instance) = &mut held.process {
            instance.signal("STOP", State::Stalled);
            instance.may_be_replaced |= lasts.is_none_or(|lasts| lasts > SESSION);
        }
        held.resume_at = lasts.map(|lasts| MonotonicTime(now.0 + lasts));
    }

    /// Starts a second process under the name of one that stands still.
    pub(crate) fn replace(&mut self, slot: usize) {
        self.slots[slot].replaced = self.slots[slot].process.take();
        self.start(slot);
    }

    /// Lets the first of the two go on.
    pub(crate) fn wake_the_replaced(&mut self, slot: usize) {
        if let Some(first) = &mut self.slots[slot].replaced {
            first.signal("CONT", State::Running);
        }
    }

    /// Whether the first of two has found that it was replaced.
    pub(crate) fn is_alone(&self, slot: usize) -> bool {
        self.slots[slot].replaced.is_none()
    }

    pub(crate) fn has_partitions(&self, slot: usize) -> bool {
        self.at_work().contains(&slot)
    }

    /// Whether nobody stands still, is on the way out, or is to be started.
    pub(crate) fn is_settled(&self) -> bool {
        self.slots.iter().all(|slot| {
            slot.start_at.is_none()
                && slot.replaced.is_none()
                && slot.process.as_ref().is_none_or(|instance| instance.state == State::Running)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.process.is_none() && slot.replaced.is_none())
    }

    /// A number of each partition, as those say who are running; the greatest where more than one says it.
    pub(crate) fn by_partition(&self, family: &str) -> BTreeMap<i32, f64> {
        let mut all = BTreeMap::new();
        for slot in self.running() {
            let instance = self.slots[slot].process.as_ref().unwrap();
            for (partition, value) in instance.metrics().by_partition(family) {
                let greatest = all.entry(partition).or_insert(value);
                *greatest = value.max(*greatest);
            }
        }
        all
    }

    /// Whether everybody who has partitions has only the windows open that begin the closing records' time.
    pub(crate) fn has_fired_all(&self, closing_seconds: f64) -> bool {
        self.at_work().iter().all(|slot| {
            let metrics = self.slots[*slot].process.as_ref().unwrap().metrics();
            metrics.sum("tidegate_windows_open", "") < 1.5
                && metrics.sum("tidegate_watermark_timestamp_seconds", "") > closing_seconds
        })
    }

    pub(crate) fn evidence(&self) -> Evidence {
        let present = self.slots.iter().flat_map(|slot| [&slot.process, &slot.replaced]);
        let present = present.flatten().map(Instance::evidence);
        present.fold(self.past, |all, one| all + one)
    }

    /// The ends of the logs of those that are there.
    pub(crate) fn tails(&mut self) -> String {
        let present =
            self.slots.iter_mut().flat_map(|slot| [&mut slot.process, &mut slot.replaced]);
        let tails: Vec<_> = present.flatten().map(Instance::tail).collect();
        tails.join("\n")
    }
}

enum End {
    AsAsked,
    /// It was asked to stop, and could not commit what it had read; the next one reads it again.
    Unfinished,
    /// Another one has its name, and it said so.
    Fenced,
    /// Its client ignored the group, and it said so.
    Strayed,
    /// It said so itself. Once in a run is bad luck with the client library.
    StoodStill,
    Unexpected,
}

fn how_it_ended(instance: &mut Instance, status: ExitStatus) -> End {
    let log = instance.log();
    let failed = status.code() == Some(1);
    match instance.state {
        State::Killed => End::AsAsked,
        State::Stopping if status.success() => End::AsAsked,
        _ if failed && instance.may_be_replaced && log.contains("transactional id") => End::Fenced,
        State::Stopping if failed && log.contains("read again") => End::Unfinished,
        _ if status.code() == Some(STANDS_STILL) => End::StoodStill,
        _ if failed && log.contains("does not follow its group any more") => End::Strayed,
        State::Running | State::Stalled | State::Stopping => End::Unexpected,
    }
}

/// Names, and how the instances differ: in how often they commit, and in how long their transactions may last. A process
/// that stood still for longer than that takes it for an outage and goes on; within it, one that was replaced ends.
const SETTINGS: [(&str, &[&str]); 4] = [
    ("one", &["delivery.commit_interval=200ms", SHORT]),
    ("two", &["delivery.commit_interval=1s", LONG]),
    ("three", &["delivery.commit_interval=500ms", SHORT]),
    ("four", &["delivery.commit_interval=300ms", LONG]),
];
const SHORT: &str = "delivery.transaction_timeout=5s";
const LONG: &str = "delivery.transaction_timeout=60s";

const LOOK_EVERY: Duration = Duration::from_millis(150);

/// As [`crate::run`] configures it.
pub(crate) const SESSION: Duration = Duration::from_secs(6);
