//! Small worlds for single sentences.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tidegate::config::Config;
use tidegate::event_time::PartitionId;
use tidegate::pipeline::{Message, OutputTopic, Pipeline, PipelineError, RunUntil};

use crate::memory::{
    Broker, Call, Client, ClientState, Commit, Fault, Input, Partition, Slot, Stop,
};
use crate::view::header;

/// A configuration and a broker with partitions of the one topic, numbered from 0.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) broker: Broker,
    pub(crate) client: Client,
}

/// The loop of a process.
pub(crate) type Loop = Pipeline<Client, Client, Client, Client, Client>;

impl World {
    pub(crate) fn new(partitions: impl IntoIterator<Item = Vec<Slot>>) -> Self {
        let partition = |slots| Partition { slots, ..Partition::default() };
        let inputs: BTreeMap<_, _> =
            (0..).map(id).zip(partitions.into_iter().map(partition)).collect();
        let broker = Broker::new(inputs);
        let client = broker.connect("host");
        Self { config: crate::settings::config(), broker, client }
    }

    /// The same, with each call failing as this says.
    pub(crate) fn failing(
        self,
        faults: impl FnMut(Call, Duration) -> Option<Fault> + 'static,
    ) -> Self {
        self.broker.with(|state| state.faults = Box::new(faults));
        self
    }

    /// Runs until the end of the input.
    pub(crate) fn run_to_the_end(&self) -> Result<(), PipelineError> {
        self.run(RunUntil::End)
    }

    /// Runs until it is asked to stop at this time.
    pub(crate) fn run_until(&self, stop: Duration) -> Result<(), PipelineError> {
        self.broker.with(|state| state.stop = Stop::At(stop));
        self.run(RunUntil::Stopped)
    }

    /// Runs until it has fired what is open, which it is asked for at this time.
    pub(crate) fn drain_at(&self, at: Duration) -> Result<(), PipelineError> {
        self.broker.with(|state| state.drain = Stop::At(at));
        self.run(RunUntil::Stopped)
    }

    /// The same where the brokers do not take the last commit: it may be called an error, not more.
    pub(crate) fn stop_without_commit(&self, stop: Duration) {
        let outcome = self.run_until(stop);
        let broken = matches!(outcome, Err(PipelineError::Sink(_) | PipelineError::Source(_)));
        assert!(!broken, "{outcome:?}");
        self.broker.with(|state| assert!(state.clients[0].closed && state.clock >= stop));
    }

    fn run(&self, until: RunUntil) -> Result<(), PipelineError> {
        self.pipeline(&self.client, until).run()
    }

    fn pipeline(&self, client: &Client, until: RunUntil) -> Loop {
        let watch = client.with(|client| client.watch.clone());
        let (observer, time) = (client.clone(), client.clone());
        Pipeline::new(&self.config, client.edges(), observer, time, watch, until)
    }

    /// Another process, to be driven by hand.
    pub(crate) fn another(&self, name: &str) -> Loop {
        self.pipeline(&self.broker.connect(name), RunUntil::Stopped)
    }

    /// So many turns as go until this time.
    pub(crate) fn turns(&self, pipeline: &mut Loop, until: Duration) {
        while self.broker.with(|state| state.clock) < until {
            pipeline.turn().unwrap();
        }
    }

    /// What there is to see of the service.
    pub(crate) fn service<R>(&self, look: impl FnOnce(&mut ClientState) -> R) -> R {
        self.client.with(look)
    }

    pub(crate) fn commits(&self) -> Vec<Commit> {
        self.broker.with(|state| state.commits.clone())
    }

    /// When transactions were committed, in milliseconds, and how many messages each had.
    pub(crate) fn commit_times(&self) -> Vec<(u128, usize)> {
        self.commits().iter().map(|commit| (commit.at.as_millis(), commit.messages)).collect()
    }

    pub(crate) fn topic(&self, topic: OutputTopic) -> Vec<Message> {
        let messages = self.broker.with(|state| state.topic(topic));
        messages.iter().map(|message| (**message).clone()).collect()
    }

    /// The results as texts.
    pub(crate) fn results(&self) -> Vec<String> {
        self.topic(OutputTopic::Results).iter().map(payload).collect()
    }

    pub(crate) fn committed_offset(&self, partition: i32) -> Option<i64> {
        self.broker.with(|state| Some(state.offsets.get(&id(partition))?.offset))
    }
}

pub(crate) fn id(partition: i32) -> PartitionId {
    PartitionId { topic: 0, partition }
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A record of key `k` at event time `ts`, with value 1, that arrives `at` this many milliseconds.
pub(crate) fn record(at: u64, ts: i64, k: &str) -> Slot {
    let payload = format!(r#"{{"ts":{ts},"k":"{k}","v":1}}"#);
    slot(at, Input { payload: Some(payload.into_bytes()), ..Input::default() })
}

pub(crate) fn slot(at: u64, input: Input) -> Slot {
    Slot { arrives: ms(at), stable: ms(at), content: Some(Rc::new(input)) }
}

/// What a transaction of a producer leaves at its end.
pub(crate) fn marker(at: u64) -> Slot {
    Slot { arrives: ms(at), stable: ms(at), content: None }
}

pub(crate) fn payload(message: &Message) -> String {
    String::from_utf8(message.payload.clone().unwrap()).unwrap()
}

/// All headers as text, in their order.
pub(crate) fn headers(message: &Message) -> Vec<(String, String)> {
    let text = |value: &Option<Vec<u8>>| match value {
        Some(value) => String::from_utf8(value.clone()).unwrap(),
        None => "null".to_owned(),
    };
    message.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

pub(crate) fn reason(message: &Message) -> String {
    header(message, "tidegate.reason").unwrap()
}
