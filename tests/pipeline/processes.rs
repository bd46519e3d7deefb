//! Several processes on one broker, one turn at a time, and one inside another's call where they pass each other.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tidegate::pipeline::{Pipeline, PipelineError, RunUntil, Source, Turn};

use crate::chaos::{Chaos, Disturbance};
use crate::memory::{Broker, Call, Client, Elsewhere};
use crate::plan::Plan;

type Loop = Pipeline<Client, Client, Client, Client, Client>;

/// Everything that runs.
pub(crate) struct Processes {
    plan: Plan,
    pub(crate) broker: Broker,
    chaos: RefCell<Chaos>,
    list: RefCell<Vec<Process>>,
    /// When instances begin that do not run.
    due: RefCell<BTreeMap<usize, Duration>>,
    until: Cell<RunUntil>,
    quiet: Cell<bool>,
    pub(crate) counts: RefCell<BTreeMap<&'static str, u64>>,
}

struct Process {
    client: Client,
    instance: usize,
    /// `None`: in the middle of a turn.
    pipeline: Option<Box<Loop>>,
    /// Its name is another's now.
    replaced: bool,
}

struct Hook(Weak<Processes>);

impl Elsewhere for Hook {
    fn between(&self, client: usize, call: Call) {
        if let Some(processes) = self.0.upgrade() {
            processes.between(client, call);
        }
    }

    fn wait(&self, _client: usize, until: Duration) {
        if let Some(processes) = self.0.upgrade() {
            processes.run_until(until);
        }
    }
}

impl Processes {
    pub(crate) fn new(plan: &Plan, broker: Broker, chaos: Chaos) -> Rc<Self> {
        let processes = Rc::new(Self {
            plan: plan.clone(),
            broker,
            chaos: RefCell::new(chaos),
            list: RefCell::default(),
            due: RefCell::default(),
            until: Cell::new(RunUntil::Stopped),
            quiet: Cell::new(false),
            counts: RefCell::default(),
        });
        let hook = Hook(Rc::downgrade(&processes));
        processes.broker.with(|state| state.elsewhere = Some(Rc::new(hook)));
        processes
    }

    fn clock(&self) -> Duration {
        self.broker.with(|state| state.clock)
    }

    fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        self.broker.with(|state| state.tell(what));
    }

    /// An instance begins at this time.
    pub(crate) fn begin(&self, instance: usize, at: Duration) {
        self.due.borrow_mut().insert(instance, at);
    }

    fn start(&self, instance: usize) {
        let name = format!("instance-{instance}");
        for process in self.list.borrow_mut().iter_mut() {
            process.replaced |= process.instance == instance;
        }
        let client = self.broker.connect(&name);
        self.tell(|| format!("{name} starts as client {}", client.number));
        let watch = client.with(|client| client.watch.clone());
        let pipeline = Pipeline::new(
            &self.plan.config_of(&name),
            client.edges(),
            client.clone(),
            client.clone(),
            watch,
            self.until.get(),
        );
        let pipeline = Some(Box::new(pipeline));
        self.list.borrow_mut().push(Process { client, instance, pipeline, replaced: false });
    }

    fn start_what_is_due(&self) {
        let clock = self.clock();
        let due: Vec<usize> = self
            .due
            .borrow_mut()
            .extract_if(.., |_, at| *at <= clock)
            .map(|(instance, _)| instance)
            .collect();
        for instance in due {
            self.start(instance);
        }
    }

    /// Goes on until this time; those in the middle of a turn stay where they are.
    pub(crate) fn run_until(&self, until: Duration) {
        while self.clock() < until {
            if !self.step_any() {
                let next = self.due.borrow().values().copied().min().unwrap_or(until);
                self.broker.with(|state| state.pass_until(next.min(until)));
            }
        }
    }

    /// One turn of anyone. Whether there was one.
    pub(crate) fn step_any(&self) -> bool {
        self.start_what_is_due();
        let ready: Vec<usize> = {
            let processes = self.list.borrow();
            let ready =
                processes.iter().enumerate().filter(|(_, process)| process.pipeline.is_some());
            ready.map(|(place, _)| place).collect()
        };
        if ready.is_empty() {
            return false;
        }
        let chosen = ready[self.chaos.borrow_mut().one_of(ready.len())];
        let (number, pipeline) = {
            let process = &mut self.list.borrow_mut()[chosen];
            (process.client.number, process.pipeline.take())
        };
        let mut pipeline = pipeline.unwrap();
        let stopping = self.broker.with(|state| state.clients[number].stopping);
        let outcome = if stopping { Some(pipeline.run()) } else { end_of(pipeline.turn()) };
        let (alive, stopping) = self.broker.with(|state| {
            let client = &state.clients[number];
            (client.alive, client.stopping)
        });
        let mut processes = self.list.borrow_mut();
        let place = processes.iter().position(|process| process.client.number == number).unwrap();
        match outcome {
            None if alive => processes[place].pipeline = Some(pipeline),
            outcome => {
                let process = processes.remove(place);
                drop(processes);
                if alive {
                    self.ended(&process, &outcome.unwrap_or(Ok(())), stopping);
                }
            }
        }
        true
    }

    /// A process has come to its end by itself.
    fn ended(&self, process: &Process, outcome: &Result<(), PipelineError>, stopping: bool) {
        self.tell(|| format!("client {} has ended: {outcome:?}", process.client.number));
        process.client.close();
        let (timed_out, failed) = self.broker.with(|state| {
            (state.injected.contains_key("= transactions timed out"), state.failed_at_the_end)
        });
        // Also one that is older: having stood still for longer than its transaction, it takes its name back.
        let has_rival = self.broker.with(|state| {
            let name = &state.clients[process.client.number].name;
            state.clients.iter().filter(|client| client.name == *name).count() > 1
        });
        match outcome {
            Ok(()) => process.client.with(|client| client.ended_well = true),
            Err(PipelineError::Sink(cause)) if cause == "fenced" => {
                assert!(has_rival || timed_out, "fenced, and by nobody");
                self.count("fenced");
            }
            Err(PipelineError::PartitionsElsewhere { .. }) => {
                assert!(self.plan.config.key.needs_all_partitions());
                self.count("ended since partitions were elsewhere");
            }
            Err(PipelineError::StoppedUncommitted) => {
                assert!(stopping && (failed || has_rival || timed_out));
            }
            Err(PipelineError::NotAllPartitions { .. }) => {
                // The group remembers one that is dead.
                assert_eq!((self.until.get(), self.quiet.get()), (RunUntil::End, false));
                self.count("drains that came too early");
            }
            Err(error) => panic!("client {}: {error}", process.client.number),
        }
        let is_over = outcome.is_ok() && self.until.get() == RunUntil::End;
        let stays_away = process.replaced || is_over || (stopping && self.quiet.get());
        if !stays_away && !self.due.borrow().contains_key(&process.instance) {
            self.begin(process.instance, self.clock() + Duration::from_secs(1));
        }
    }

    fn between(&self, client: usize, call: Call) {
        let disturbance = self.chaos.borrow_mut().before(call, self.clock());
        let Some(disturbance) = disturbance else { return };
        if !matches!(disturbance, Disturbance::Others(_)) {
            self.tell(|| format!("client {client}, before {call:?}: {disturbance:?}"));
        }
        let clock = self.clock();
        let instance = {
            let processes = self.list.borrow();
            let process = processes.iter().find(|process| process.client.number == client);
            process.filter(|process| !process.replaced).map(|process| process.instance)
        };
        match disturbance {
            Disturbance::Crash(pause) => {
                self.count("crashes");
                self.kill(client);
                if let Some(instance) = instance {
                    self.begin(instance, clock + pause);
                }
            }
            Disturbance::Suspend(pause) => {
                self.count("suspensions");
                self.suspend(client, clock + pause);
            }
            Disturbance::Replace(pause) => {
                if let Some(instance) = instance {
                    self.count("replacements");
                    self.start(instance);
                }
                self.suspend(client, clock + pause);
            }
            Disturbance::Stop(pause) => {
                self.count("stops");
                self.broker.with(|state| state.clients[client].stopping = true);
                if let Some(instance) = instance {
                    self.begin(instance, clock + pause);
                }
            }
            Disturbance::Others(turns) => {
                for _ in 0..turns {
                    if !self.step_any() {
                        break;
                    }
                }
            }
            Disturbance::Stir => {
                self.count("rebalances for no reason");
                self.broker.with(crate::memory::State::stir);
            }
        }
    }

    fn kill(&self, client: usize) {
        self.broker.with(|state| {
            let clock = state.clock;
            state.clients[client].alive = false;
            state.clients[client].silent_since.get_or_insert(clock);
        });
    }

    /// The group does not hear of a process for a while.
    fn suspend(&self, client: usize, until: Duration) {
        self.broker.with(|state| state.clients[client].silent_since = Some(state.clock));
        self.run_until(until);
        self.broker.with(|state| {
            if state.clients[client].alive {
                state.clients[client].silent_since = None;
            }
        });
    }

    pub(crate) fn chaos_is_over(&self) -> bool {
        self.chaos.borrow().is_over()
    }

    /// From now on nothing fails any more, and no process is there that should not be.
    pub(crate) fn calm_down(&self) {
        self.chaos.borrow_mut().end();
        self.quiet.set(true);
        self.broker.with(|state| {
            state.faults = Box::new(|_, _| None);
            state.mood.slow_markers = 0;
            state.mood.forgotten = 0;
        });
        let mut processes = self.list.borrow_mut();
        for process in processes.extract_if(.., |process| process.replaced) {
            self.kill(process.client.number);
        }
        drop(processes);
        self.tell(|| "calm".to_owned());
    }

    /// Asks all to stop, or kills them; then there is nobody.
    pub(crate) fn end_all(&self, kill: bool) {
        self.tell(|| if kill { "all are killed" } else { "all are stopped" }.to_owned());
        self.due.borrow_mut().clear();
        let numbers: Vec<usize> =
            self.list.borrow().iter().map(|process| process.client.number).collect();
        for number in numbers {
            if kill {
                self.kill(number);
            } else {
                self.broker.with(|state| state.clients[number].stopping = true);
            }
        }
        if kill {
            self.list.borrow_mut().clear();
        }
        while self.step_any() {}
    }

    /// One process alone fires what is open; with this, not undisturbed.
    pub(crate) fn drain(&self, chaos: Option<Chaos>) {
        self.until.set(RunUntil::End);
        if let Some(chaos) = chaos {
            self.quiet.set(false);
            *self.chaos.borrow_mut() = chaos;
        }
        self.tell(|| "the rest is drained".to_owned());
        // The group forgets who is dead.
        let clock = self.clock();
        self.broker.with(|state| state.pass_until(clock + Duration::from_secs(30)));
        self.begin(0, clock);
        loop {
            if self.step_any() {
                continue;
            }
            let Some(next) = self.due.borrow().values().copied().min() else { break };
            self.broker.with(|state| state.pass_until(next));
        }
        // The last markers come, and what a dead one left open is ended.
        self.broker.with(|state| state.pass_until(state.clock + Duration::from_secs(30)));
    }

    /// Whether all are there, and each partition is with one of them.
    pub(crate) fn is_settled(&self) -> bool {
        let held: usize = self.snapshots().iter().map(|snapshot| snapshot.partitions.len()).sum();
        self.due.borrow().is_empty() && held == self.plan.inputs.len()
    }

    /// What those that live hold, by their own account.
    pub(crate) fn snapshots(&self) -> Vec<tidegate::insight::Snapshot> {
        let processes = self.list.borrow();
        let snapshots =
            processes.iter().map(|process| process.client.with(|client| client.watch.snapshot()));
        snapshots.map(|snapshot| (*snapshot).clone()).collect()
    }
}

/// How a turn ended the process, if it did.
fn end_of(turn: Result<Turn, PipelineError>) -> Option<Result<(), PipelineError>> {
    match turn {
        Ok(Turn::Continue) => None,
        Ok(Turn::Ended) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    }
}
