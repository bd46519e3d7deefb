//! One run: the brokers, the traffic and the instances, the faults one after the other, and the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::time::Duration;

use tidegate::event_time::MonotonicTime;

use crate::evidence::Evidence;
use crate::fleet::Fleet;
use crate::plan::{BLOCK, Fault, Kind, Plan};
use crate::random::Random;
use crate::support::brokers::Brokers;
use crate::support::cluster::{Cluster, Record};
use crate::support::ledger::read_topics;
use crate::support::oracle::{self, KeyOf, Rules, Topics};
use crate::traffic::Traffic;

pub(crate) struct Run {
    // The instances go first, the brokers last.
    fleet: Fleet,
    traffic: Option<Traffic>,
    cluster: Cluster,
    brokers: Brokers,
    broker: BrokerState,
    partitions: i32,
    allowed_lateness: Duration,
    /// How many faults of each kind there were, and how long it took until the group read on.
    faults: BTreeMap<Kind, Vec<Option<Duration>>>,
    /// As it was when the last run of faults was complete.
    before: Evidence,
    objections: Vec<String>,
    /// Nobody ever sends anything: a wait on it takes as long as it may.
    never: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

/// One at a time is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokerState {
    AllUp,
    Down { node: usize, until: MonotonicTime },
    Starting { node: usize },
    Stalled { node: usize, until: MonotonicTime },
}

impl Run {
    /// Starts everything, and waits until each partition is read and has been committed once.
    pub(crate) fn begin(plan: &Plan) -> Self {
        let brokers = Brokers::start_with(&[(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "1000",
        )]);
        let cluster = Cluster::new(brokers.bootstrap());
        for (suffix, partitions) in [("in", PARTITIONS), ("out", 3), ("late", 1), ("dead", 1)] {
            cluster.create(&format!("{GROUP}-{suffix}"), partitions, &[]);
        }
        let fleet = Fleet::new(config(&cluster.bootstrap, plan.allowed_lateness), plan.seed);
        let mut run = Self {
            fleet,
            traffic: None,
            cluster,
            brokers,
            broker: BrokerState::AllUp,
            partitions: PARTITIONS,
            allowed_lateness: plan.allowed_lateness,
            faults: BTreeMap::new(),
            before: Evidence::default(),
            objections: Vec::new(),
            never: mpsc::channel(),
        };
        for _ in 0..3 {
            run.fleet.join();
        }
        // A partition that nobody has committed yet is new to the group, and begins at whatever clock it finds.
        run.wait_until("the three share the partitions", |run| run.fleet.at_work().len() == 3);
        let topic = format!("{GROUP}-in");
        run.traffic = Some(Traffic::start(&run.cluster, &topic, PARTITIONS, plan.seed));
        run.wait_until("all partitions are committed", |run| {
            let committed = run.fleet.by_partition("tidegate_records_in_total");
            (0..PARTITIONS).all(|partition| committed.get(&partition).is_some_and(|n| *n > 0.0))
        });
        run
    }

    /// Lets something happen, and waits until the group reads on, unless it is not to wait.
    pub(crate) fn inflict(&mut self, nth: usize, fault: &Fault) {
        let mut random = Random::new(fault.choice);
        let victims = self.victims(fault.kind);
        let victim = random.choose(&victims).copied();
        let positions = self.fleet.by_partition(POSITION);
        let began = self.fleet.now();
        let whom = match victim {
            Some(victim) => self.strike(fault, victim),
            None => self.change(fault.kind),
        };
        let (at, kind) = (began.0, fault.kind);
        if fault.overlaps {
            self.tick();
            println!("chaos: {at:.1?} {nth}: {kind:?} {whom}, and at once");
            self.faults.entry(kind).or_default().push(None);
        } else {
            self.wait_until("the group reads on", |run| run.has_passed(&positions));
            let took = self.fleet.now().since(began);
            println!("chaos: {at:.1?} {nth}: {kind:?} {whom}, reads on after {took:.1?}");
            self.faults.entry(kind).or_default().push(Some(took));
        }
        if self.fleet.objections.len() > MOST_UNEXPECTED {
            self.fail("too many instances have ended by themselves");
        }
        if nth.is_multiple_of(BLOCK) {
            self.look_at_evidence(nth);
        }
    }

    /// Slots of instances, or brokers, that this can meet, once there are some. None: it meets nobody.
    fn victims(&mut self, kind: Kind) -> Vec<usize> {
        let mut victims = Vec::new();
        match kind {
            Kind::Kill => self.wait_until("somebody runs", |run| {
                victims = run.fleet.running();
                !victims.is_empty()
            }),
            // Somebody else is to take over.
            Kind::Stop | Kind::Leave | Kind::Stall | Kind::Pause => {
                self.wait_until("two are at work", |run| {
                    if run.fleet.running().len() < 2 {
                        run.fleet.join();
                    }
                    victims = run.fleet.at_work();
                    victims.len() >= 2
                });
            }
            Kind::Rival => self.wait_until("one is there that can be replaced", |run| {
                victims = run.fleet.replaceable();
                !victims.is_empty()
            }),
            Kind::BrokerKill | Kind::BrokerStall | Kind::Grow => {
                self.wait_until("all brokers are up", |run| run.broker == BrokerState::AllUp);
                if kind != Kind::Grow {
                    victims = (0..self.brokers.count()).collect();
                }
            }
            Kind::Join => {}
        }
        victims
    }

    /// What it came to, for people.
    fn strike(&mut self, fault: &Fault, victim: usize) -> String {
        let (name, lasts) = (self.fleet.name(victim), fault.lasts);
        let until = MonotonicTime(self.fleet.now().0 + lasts);
        match fault.kind {
            Kind::Kill => self.fleet.kill(victim, lasts),
            Kind::Stop => self.fleet.stop(victim, Some(lasts)),
            Kind::Leave => self.fleet.stop(victim, None),
            Kind::Stall | Kind::Pause => {
                self.fleet.stall(victim, Some(lasts));
                return format!("{name} for {lasts:.1?}");
            }
            Kind::Rival => {
                self.replace(victim);
                return format!("{} for {name}", self.fleet.name(victim));
            }
            Kind::BrokerKill => {
                self.brokers.node(victim).kill();
                self.broker = BrokerState::Down { node: victim, until };
                return format!("{victim} for {lasts:.1?}");
            }
            Kind::BrokerStall => {
                self.brokers.node(victim).pause();
                self.broker = BrokerState::Stalled { node: victim, until };
                return format!("{victim} for {lasts:.1?}");
            }
            Kind::Join | Kind::Grow => {}
        }
        name
    }

    /// What meets nobody.
    fn change(&mut self, kind: Kind) -> String {
        if kind == Kind::Grow {
            let partition = self.partitions;
            self.partitions += 1;
            self.cluster.grow(&format!("{GROUP}-in"), self.partitions);
            self.traffic.as_ref().unwrap().add(partition);
            return format!("to {}", self.partitions);
        }
        self.fleet.join().unwrap_or_else(|| "of nobody, for want of room".to_owned())
    }

    /// Lets a second process take the name of one that stands still, which then finds that out and ends.
    fn replace(&mut self, slot: usize) {
        self.fleet.stall(slot, None);
        self.fleet.replace(slot);
        self.wait_until("the second of one name has partitions", |run| {
            run.fleet.has_partitions(slot)
        });
        self.fleet.wake_the_replaced(slot);
        self.wait_until("the first of one name has ended", |run| run.fleet.is_alone(slot));
    }

    fn tick(&mut self) {
        self.fleet.tick();
        let now = self.fleet.now();
        match self.broker {
            BrokerState::Down { node, until } if until <= now => {
                self.brokers.node(node).launch();
                self.broker = BrokerState::Starting { node };
            }
            BrokerState::Starting { node } if self.brokers.node(node).has_started() => {
                self.broker = BrokerState::AllUp;
            }
            BrokerState::Stalled { node, until } if until <= now => {
                self.brokers.node(node).resume();
                self.broker = BrokerState::AllUp;
            }
            BrokerState::AllUp
            | BrokerState::Down { .. }
            | BrokerState::Starting { .. }
            | BrokerState::Stalled { .. } => {}
        }
    }

    fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let began = self.fleet.now();
        loop {
            self.tick();
            if condition(self) {
                if self.fleet.now().since(began) > TELLS_AFTER {
                    let took = self.fleet.now().since(began);
                    println!("chaos: waited {took:.1?} until {what}");
                }
                return;
            }
            if self.fleet.now().since(began) > PATIENCE {
                self.fail(&format!("not within {PATIENCE:?}: {what}"));
            }
            self.never.1.recv_timeout(POLL).unwrap_or_default();
        }
    }

    /// Whether every partition is read further than that.
    fn has_passed(&self, before: &BTreeMap<i32, f64>) -> bool {
        let now = self.fleet.by_partition(POSITION);
        (0..self.partitions).all(|partition| {
            now.get(&partition).copied().unwrap_or(0.0)
                > before.get(&partition).copied().unwrap_or(0.0)
        })
    }

    fn look_at_evidence(&mut self, nth: usize) {
        let evidence = self.fleet.evidence();
        let missing = (evidence - self.before).missing();
        if !missing.is_empty() {
            self.objections.push(format!(
                "in the faults up to {nth} there was not even {}",
                missing.join(" and ")
            ));
        }
        self.before = evidence;
    }

    /// Waits until everything has fired and is committed, stops everybody, and asks the oracle.
    pub(crate) fn finish(mut self) {
        self.wait_until("everybody is back", |run| {
            run.fleet.is_settled() && run.broker == BrokerState::AllUp
        });
        let faults = self.faults.values().map(Vec::len).sum::<usize>();
        let written = self.traffic.take().unwrap().close();
        let (topic, partitions) = (format!("{GROUP}-in"), self.partitions);
        let ends: Vec<_> =
            (0..partitions).map(|partition| Some(self.cluster.end(&topic, partition))).collect();
        let closing: f64 = (written.closing / 1_000 - 60).to_string().parse().unwrap();
        self.wait_until_all_is_done(&ends, closing);
        self.wait_until("everything is committed", |run| {
            run.cluster.committed(GROUP, &topic, partitions) == ends
        });
        if !faults.is_multiple_of(BLOCK) {
            self.look_at_evidence(faults);
        }
        self.fleet.close();
        self.wait_until("everybody has ended", |run| run.fleet.is_empty());
        // They all left at once, maybe while one took over windows that were open, or in the middle of a last commit that
        // the group then refused. The changelog has what is missing, and whoever comes next fires it.
        self.fleet.open();
        self.wait_until_all_is_done(&ends, closing);
        self.fleet.close();
        self.wait_until("the last one has ended", |run| run.fleet.is_empty());

        let rules = Rules {
            partitions,
            bound: BOUND_MS,
            window: WINDOW_MS,
            allowed_lateness: i64::try_from(self.allowed_lateness.as_millis()).unwrap(),
            time: "t",
            value: "v",
            key: KeyOf::Message,
            added: (PARTITIONS..partitions).collect::<BTreeSet<_>>(),
        };
        let topics = read_topics(&self.cluster, GROUP);
        self.keep(&topics);
        let verdict = oracle::judge(&rules, &topics);
        println!("chaos: {} records written, {:?}", written.records, verdict.figures);
        self.print_figures();
        if !verdict.objections.is_empty() {
            self.keep_the_uncommitted();
            self.objections.push(format!("the oracle has {}", verdict.text()));
        }
        let all = [&self.objections[..], &self.fleet.objections].concat();
        assert!(
            all.is_empty(),
            "{}\nlogs and records are in {}",
            all.join("\n"),
            self.fleet.logs.display()
        );
        drop(std::fs::remove_dir_all(&self.fleet.logs));
    }

    /// Waits until everything is read, and every window but those of the closing records has fired.
    fn wait_until_all_is_done(&mut self, ends: &[Option<i64>], closing: f64) {
        self.wait_until("everything is read", |run| {
            let read = run.fleet.by_partition(POSITION);
            let at_end = |(partition, end): (i32, &Option<i64>)| {
                let end: f64 = end.unwrap().to_string().parse().unwrap();
                read.get(&partition).is_some_and(|read| *read >= end)
            };
            (0..).zip(ends).all(at_end)
        });
        self.wait_until("everything has fired", |run| run.fleet.has_fired_all(closing));
    }

    /// Writes down what the oracle judges, for people to look at beside the logs.
    fn keep(&self, topics: &Topics) {
        let Topics { input, results, late, dead } = topics;
        for (name, records) in [("in", input), ("out", results), ("late", late), ("dead", dead)] {
            let lines: Vec<_> = records.iter().map(Record::to_string).collect();
            std::fs::write(self.fleet.logs.join(name), lines.join("\n")).unwrap();
        }
    }

    /// Writes down what nobody sees who reads what is committed: whether something that is missing was ever written.
    fn keep_the_uncommitted(&self) {
        for (name, topic) in [
            ("out-uncommitted", format!("{GROUP}-out")),
            ("changelog", format!("{GROUP}-{GROUP}-in-changelog")),
        ] {
            let records = self.cluster.read_with(&topic, "read_uncommitted");
            let lines: Vec<_> = records.iter().map(Record::to_string).collect();
            std::fs::write(self.fleet.logs.join(name), lines.join("\n")).unwrap();
        }
    }

    fn print_figures(&self) {
        for (kind, took) in &self.faults {
            let mut known: Vec<_> = took.iter().flatten().copied().collect();
            known.sort();
            let recovery = match (known.get(known.len() / 2), known.last()) {
                (Some(middle), Some(most)) => {
                    format!("the group reads on after {middle:.1?}, {most:.1?} at most")
                }
                _ => "not waited for".to_owned(),
            };
            println!("chaos: {} x {kind:?}: {recovery}", took.len());
        }
        println!(
            "chaos: {:?}, {} stops that could not commit, {} that did not follow their group any more",
            self.fleet.evidence(),
            self.fleet.unfinished,
            self.fleet.strayed
        );
    }

    fn fail(&mut self, why: &str) -> ! {
        let tails = self.fleet.tails();
        let brokers: String =
            (0..self.brokers.count()).map(|nth| self.brokers.node(nth).tail()).collect();
        panic!(
            "{why}; the broker: {:?}, {:?}\n{}\n{tails}\n{brokers}\nthe logs will be in {}",
            self.broker,
            self.fleet.evidence(),
            self.fleet.objections.join("\n"),
            self.fleet.logs.display()
        );
    }
}

fn config(bootstrap: &str, allowed_lateness: Duration) -> String {
    let (session, lateness) = (crate::fleet::SESSION.as_millis(), allowed_lateness.as_secs());
    format!(
        r#"
        [kafka]
        bootstrap_servers = "{bootstrap}"
        group_id = "{GROUP}"
        [kafka.consumer.properties]
        "session.timeout.ms" = "{session}"
        "heartbeat.interval.ms" = "1000"
        "topic.metadata.refresh.interval.ms" = "2000"
        [[source]]
        topic = "{GROUP}-in"
        timestamp = {{ field = "t" }}
        watermark = {{ max_out_of_orderness = "{BOUND_MS}ms", idle_timeout = "off" }}
        [window]
        size = "{WINDOW_MS}ms"
        allowed_lateness = "{lateness}s"
        [key]
        from = "message"
        [[aggregate]]
        name = "count"
        function = "count"
        [[aggregate]]
        name = "sum"
        function = "sum"
        field = "v"
        [results]
        topic = "{GROUP}-out"
        [late]
        topic = "{GROUP}-late"
        [dead_letter]
        topic = "{GROUP}-dead"
        [service]
        shutdown_timeout = "10s"
        "#
    )
}

const POSITION: &str = "tidegate_consumed_offset";
const GROUP: &str = "chaos";
const PARTITIONS: i32 = 8;
const WINDOW_MS: i64 = 10_000;
const BOUND_MS: i64 = 2_000;
const POLL: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_mins(3);
const TELLS_AFTER: Duration = Duration::from_secs(2);
/// A service that ends by itself again and again is not to take the whole run.
const MOST_UNEXPECTED: usize = 10;
