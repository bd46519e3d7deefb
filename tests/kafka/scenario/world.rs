//! What a case takes place in: a broker, topics, instances of the service.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpStream;
use std::process::ExitStatus;
use std::time::Duration;

use tidegate::clock::Clock;

use super::config::config;
use super::file::{OUTPUTS, Scenario, Topic, text};
use super::outputs::Follower;
use super::wait::seen;
use super::written::Written;
use crate::support::broker::Broker;
use crate::support::cluster::Cluster;
use crate::support::process::Tidegate;

pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    /// Begins the names of its topics, and is that of its group.
    pub(super) prefix: String,
    pub(super) cluster: Cluster,
    pub(super) broker_answers: bool,
    config: String,
    /// The partitions of its topics, by their names in the case.
    pub(super) partitions: BTreeMap<String, i32>,
    pub(super) instances: BTreeMap<usize, Instance>,
    pub(super) last_signalled: usize,
    pub(super) written: Written,
    pub(super) outputs: Follower,
    /// What each instance said at a scrape, by the name of the scrape.
    pub(super) scrapes: BTreeMap<String, Vec<String>>,
    pub(super) kept_alive: Vec<TcpStream>,
    /// A broker of its own, if it needs one; the last to be dropped, after all that talks to it.
    pub(super) broker: Option<Broker>,
}

/// An instance, also when it has ended.
pub(super) struct Instance {
    pub(super) service: Tidegate,
    /// The last signal, and the time since then.
    pub(super) signalled: Option<(String, Clock)>,
    /// Whether a signal was to end it.
    was_asked_to_end: bool,
}

impl Instance {
    fn answers(&mut self) -> bool {
        let halted = self.signalled.as_ref().is_some_and(|(signal, _)| signal == "SIGSTOP");
        !halted && self.service.try_wait().is_none()
    }
}

impl<'a> World<'a> {
    /// Makes the topics.
    pub(super) fn new(scenario: &'a Scenario, prefix: &str, partial: bool) -> Result<Self, String> {
        let settings: Vec<_> =
            scenario.broker.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
        let settings: Vec<_> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let broker = scenario.needs_a_broker_of_its_own().then(|| Broker::start_with(&settings));
        let bootstrap = broker.as_ref().map_or_else(Broker::shared, Broker::bootstrap);
        let cluster = Cluster::new(&bootstrap);
        let mut partitions = BTreeMap::new();
        for topic in &scenario.topics {
            create(&cluster, prefix, topic);
            partitions.insert(topic.name.clone(), topic.partitions);
        }
        for output in OUTPUTS {
            partitions.entry(output.to_owned()).or_insert_with(|| {
                cluster.create(&format!("{prefix}-{output}"), 1, &[]);
                1
            });
        }
        let followed = OUTPUTS.map(|output| (format!("{prefix}-{output}"), partitions[output]));
        Ok(Self {
            scenario,
            prefix: prefix.to_owned(),
            config: config(scenario, &bootstrap, prefix, partial)?,
            outputs: Follower::new(&bootstrap, &followed),
            cluster,
            broker,
            broker_answers: true,
            partitions,
            instances: BTreeMap::new(),
            last_signalled: 0,
            written: Written::default(),
            scrapes: BTreeMap::new(),
            kept_alive: Vec::new(),
        })
    }

    /// Starts the instances that are there before the first action, and waits until one is ready.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        for nth in 0..self.scenario.service.instances {
            self.start(nth)?;
        }
        if self.scenario.service.instances == 0 {
            return Ok(());
        }
        self.patiently(START, |world| {
            if let Some((nth, status)) = world.ended_by_itself() {
                return Err(format!("instance {nth} ended at its start: {status}"));
            }
            let codes = world.codes("/readyz");
            Ok(seen(codes.contains(&Some(200)), || format!("no instance is ready: {codes:?}")))
        })
    }

    /// The name of a topic of the case.
    pub(super) fn topic(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// The name of the topic that is read.
    pub(super) fn input(&self) -> String {
        self.topic(self.scenario.input())
    }

    pub(super) fn create_topic(&mut self, topic: &Topic) {
        create(&self.cluster, &self.prefix, topic);
        self.partitions.insert(topic.name.clone(), topic.partitions);
    }

    /// Starts an instance, once the one before it of this name has ended.
    pub(super) fn start(&mut self, nth: usize) -> Result<(), String> {
        if let Some(before) = self.instances.get_mut(&nth) {
            if before.service.try_wait().is_none() && !before.was_asked_to_end {
                return Err(format!("instance {nth} is running"));
            }
            self.wait_for_end(nth, START)?;
        }
        let name = format!("kafka.instance_id=instance-{nth}");
        let service = Tidegate::run(&self.config, &["--set", &name]);
        let instance = Instance { service, signalled: None, was_asked_to_end: false };
        self.instances.insert(nth, instance);
        Ok(())
    }

    pub(super) fn signal(&mut self, nth: usize, signal: &str) -> Result<(), String> {
        let instance = self.instances.get_mut(&nth).ok_or_else(|| format!("no instance {nth}"))?;
        if let Some(status) = instance.service.try_wait() {
            return Err(format!("instance {nth} had ended before {signal}: {status}"));
        }
        let name = signal.strip_prefix("SIG").unwrap_or(signal);
        instance.signalled = Some((signal.to_owned(), Clock::start()));
        instance.was_asked_to_end |= !["STOP", "CONT", "USR1", "USR2", "HUP"].contains(&name);
        instance.service.signal(name);
        self.last_signalled = nth;
        Ok(())
    }

    pub(super) fn wait_for_end(
        &mut self,
        nth: usize,
        limit: Duration,
    ) -> Result<ExitStatus, String> {
        let mut ended = None;
        self.patiently(limit, |world| {
            let instance =
                world.instances.get_mut(&nth).ok_or_else(|| format!("no instance {nth}"))?;
            ended = instance.service.try_wait();
            Ok(seen(ended.is_some(), || format!("instance {nth} has not ended")))
        })?;
        ended.ok_or_else(|| format!("instance {nth} has not ended"))
    }

    /// Waits for those that were asked to end.
    pub(super) fn wait_for_the_ending(&mut self) -> Result<(), String> {
        let asked = self.instances.iter().filter(|(_, held)| held.was_asked_to_end);
        let asked: Vec<_> = asked.map(|(nth, _)| *nth).collect();
        asked.into_iter().try_for_each(|nth| self.wait_for_end(nth, START).map(drop))
    }

    /// An instance that has ended without having been asked to.
    pub(super) fn ended_by_itself(&mut self) -> Option<(usize, ExitStatus)> {
        let mut instances = self.instances.iter_mut().filter(|(_, held)| !held.was_asked_to_end);
        instances.find_map(|(nth, held)| Some((*nth, held.service.try_wait()?)))
    }

    /// The instances that are there to answer.
    pub(super) fn running(&mut self) -> Vec<&mut Tidegate> {
        let running = self.instances.values_mut().filter_map(|instance| {
            if instance.answers() { Some(&mut instance.service) } else { None }
        });
        running.collect()
    }

    /// The codes that they answer with.
    pub(super) fn codes(&mut self, path: &str) -> Vec<Option<u16>> {
        let answers = self.running().into_iter().map(|service| service.try_request(path, ANSWER));
        answers.map(|answer| answer.map(|(code, _)| code)).collect()
    }

    /// What they say of themselves.
    pub(super) fn scrape(&mut self) -> Vec<String> {
        let answers = self.running().into_iter();
        answers
            .filter_map(|service| service.try_request("/metrics", ANSWER))
            .filter(|(code, _)| *code == 200)
            .map(|(_, body)| body)
            .collect()
    }

    /// The ends of the logs of all instances.
    pub(super) fn logs(&mut self) -> String {
        let mut logs = String::new();
        for (nth, instance) in &mut self.instances {
            let status = instance.service.try_wait();
            let status = status.map_or_else(|| "running".to_owned(), |status| status.to_string());
            let log = instance.service.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n    ");
            let who = format_args!("the end of the log of instance {nth} ({status})");
            write!(logs, "\n  {who}:\n    {tail}").unwrap();
        }
        logs
    }
}

fn create(cluster: &Cluster, prefix: &str, topic: &Topic) {
    let settings: Vec<_> =
        topic.config.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    cluster.create(&format!("{prefix}-{}", topic.name), topic.partitions, &settings);
}

/// For the start or the end of a process on a busy machine.
const START: Duration = Duration::from_mins(2);
const ANSWER: Duration = Duration::from_secs(2);
const TAIL: usize = 40;
