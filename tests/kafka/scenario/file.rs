//! The scenario files as data; `tests/cases/FORMAT.md`, section 2. What records and `config` look like is the same for
//! all types of cases. Members that are not known are comments, but no action is.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::case_file::{Config, Record, Step};

#[derive(Debug, Deserialize)]
pub(super) struct Scenario {
    pub(super) id: String,
    #[serde(default)]
    pub(super) title: String,
    pub(super) topics: Vec<Topic>,
    #[serde(default)]
    pub(super) broker: BTreeMap<String, Value>,
    pub(super) service: Service,
    pub(super) actions: Vec<Action>,
    pub(super) expect: Map<String, Value>,
    #[serde(default)]
    pub(super) trap: String,
}

impl Scenario {
    /// The topic that the service reads: the first that is none of its outputs.
    pub(super) fn input(&self) -> &str {
        let input = self.topics.iter().find(|topic| !OUTPUTS.contains(&topic.name.as_str()));
        input.map_or("in", |topic| &topic.name)
    }

    /// Whether instances may each publish what their partitions give.
    pub(super) fn allows_shares(&self) -> bool {
        self.expect.get("sum_over_instances").is_some_and(|sum| *sum == true)
    }

    /// Whether instances are to share the work.
    pub(super) fn wants_shares(&self) -> bool {
        let rule = self.expect.get("metrics_rule").and_then(Value::as_str);
        rule.is_some_and(|rule| rule.contains("exactly one instance"))
    }

    /// Whether the case does something to the broker, or sets it up in its own way.
    pub(super) fn needs_a_broker_of_its_own(&self) -> bool {
        fn touches(actions: &[Action]) -> bool {
            let touch = |action: &Action| {
                let repeats = matches!(&action.kind, Kind::Repeat(_, more) if touches(more));
                repeats || matches!(action.kind, Kind::Broker(_))
            };
            actions.iter().any(touch)
        }
        !self.broker.is_empty() || touches(&self.actions)
    }
}

/// The topics that the service writes, as the cases call them.
pub(super) const OUTPUTS: [&str; 3] = ["out", "late", "dead"];

#[derive(Debug, Deserialize)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) partitions: i32,
    #[serde(default)]
    pub(super) config: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Service {
    pub(super) instances: usize,
    pub(super) config: Config,
    #[serde(default)]
    pub(super) kafka: BTreeMap<String, Value>,
}

/// Something that is done, and how it is written.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Action {
    pub(super) written: String,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Produce(Produce),
    ProduceGen(ProduceGen),
    Transaction(TransactionStep, String),
    PauseTransaction,
    WaitUntil(Box<Until>, Duration),
    Sleep(Duration),
    Signal(String, usize),
    Start(usize),
    Restart(usize),
    Broker(String),
    Admin(Box<Admin>),
    Assert(Box<Assert>),
    Scrape(String),
    KeepAlive,
    Repeat(usize, Vec<Action>),
}

#[derive(Debug, Deserialize)]
pub(super) struct Produce {
    pub(super) topic: String,
    #[serde(deserialize_with = "records")]
    pub(super) records: Vec<Record>,
}

fn records<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Record>, D::Error> {
    let steps = Vec::<Step>::deserialize(deserializer)?;
    let record = |step| {
        if let Step::Record(record) = step {
            return Ok(record);
        }
        Err(serde::de::Error::custom(format!("{} among the records", step.name())))
    };
    steps.into_iter().map(record).collect()
}

/// Record `i`: partition `partitions[i % n]`, key `<prefix>k<i % keys>`, time `start + step * i`, value 1.
#[derive(Debug, Deserialize)]
pub(super) struct ProduceGen {
    pub(super) topic: String,
    pub(super) partitions: Vec<i32>,
    pub(super) count: usize,
    pub(super) keys: usize,
    pub(super) start: i64,
    pub(super) step: i64,
    #[serde(default)]
    pub(super) prefix: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TransactionStep {
    Begin,
    Commit,
    Abort,
}

/// What has to hold for a wait to end; all that is given.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Until {
    pub(super) panes: Option<usize>,
    pub(super) consumed: Option<i64>,
    pub(super) ready: Option<bool>,
    pub(super) metric: BTreeMap<String, Value>,
    pub(super) broker: Option<Value>,
    pub(super) exited: Option<Value>,
    pub(super) quiet_s: Option<u64>,
    pub(super) restart_on_exit: bool,
    pub(super) or_exit_nonzero: bool,
    pub(super) or_not_ready: bool,
}

impl Until {
    fn is_empty(&self) -> bool {
        let numbers = self.panes.is_none() && self.consumed.is_none() && self.quiet_s.is_none();
        let states = self.ready.is_none() && self.broker.is_none() && self.exited.is_none();
        numbers && states && self.metric.is_empty()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Admin {
    pub(super) delete_records: Option<DeleteRecords>,
    pub(super) add_partitions: Option<AddPartitions>,
    pub(super) delete_topic: Option<String>,
    pub(super) create_topic: Option<Topic>,
    pub(super) delete_group_offsets: Option<Value>,
    pub(super) wait_compacted: Option<WaitCompacted>,
}

#[derive(Debug, Deserialize)]
pub(super) struct DeleteRecords {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) before_offset: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct AddPartitions {
    pub(super) topic: String,
    pub(super) to: i32,
}

#[derive(Debug, Deserialize)]
pub(super) struct WaitCompacted {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) remaining_offsets: Vec<i64>,
}

/// What has to hold at this moment.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Assert {
    pub(super) exit: Option<Exit>,
    pub(super) panes: Option<usize>,
    pub(super) http: BTreeMap<String, u16>,
    pub(super) metrics: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Exit {
    pub(super) instance: Option<usize>,
    pub(super) code: Option<i32>,
    pub(super) within_ms: Option<u64>,
}

impl TryFrom<Value> for Action {
    type Error = String;

    fn try_from(action: Value) -> Result<Self, String> {
        let text = action.to_string();
        let mut written: String = text.chars().take(WRITTEN).collect();
        if written.len() < text.len() {
            written.push('…');
        }
        let kind = kind(&action).map_err(|fault| format!("{fault}: {written}"))?;
        Ok(Self { written, kind })
    }
}

fn kind(action: &Value) -> Result<Kind, String> {
    let named: Vec<_> = VERBS.iter().filter(|(verb, _)| action.get(*verb).is_some()).collect();
    let [(verb, read)] = named[..] else {
        return Err(format!("{} known actions in one", named.len()));
    };
    read(&action[*verb], action)
}

type Read = fn(&Value, &Value) -> Result<Kind, String>;

/// How an action is read, out of what it is given and the whole of it.
const VERBS: [(&str, Read); 15] = [
    ("produce", |of, _| Ok(Kind::Produce(read(of)?))),
    ("produce_gen", |of, _| Ok(Kind::ProduceGen(read(of)?))),
    ("txn", |step, all| Ok(Kind::Transaction(read(step)?, read(&all["id"])?))),
    ("txn_pause", |_, _| Ok(Kind::PauseTransaction)),
    ("wait_until", |of, all| {
        let until: Until = read(of)?;
        if until.is_empty() {
            return Err("a wait for nothing that is known".to_owned());
        }
        let limit = all["timeout_s"].as_u64().map_or(WAIT, Duration::from_secs);
        Ok(Kind::WaitUntil(Box::new(until), limit))
    }),
    ("sleep_ms", |ms, _| Ok(Kind::Sleep(Duration::from_millis(read(ms)?)))),
    ("signal", |name, all| Ok(Kind::Signal(read(name)?, instance(all)?))),
    ("start_instance", |nth, _| Ok(Kind::Start(read(nth)?))),
    ("restart_instance", |nth, _| Ok(Kind::Restart(read(nth)?))),
    ("broker", |order, _| Ok(Kind::Broker(read(order)?))),
    ("admin", |of, _| Ok(Kind::Admin(read(of)?))),
    ("assert", |of, _| Ok(Kind::Assert(read(of)?))),
    ("scrape", |name, _| Ok(Kind::Scrape(read(name)?))),
    ("http_keep_alive", |_, _| Ok(Kind::KeepAlive)),
    ("repeat", |times, all| Ok(Kind::Repeat(read(times)?, read(&all["actions"])?))),
];

fn instance(action: &Value) -> Result<usize, String> {
    action.get("instance").map_or(Ok(0), read)
}

fn read<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, String> {
    T::deserialize(value).map_err(|fault| fault.to_string())
}

/// A setting as the broker and the client library are told it.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

const WRITTEN: usize = 200;
const WAIT: Duration = Duration::from_secs(30);
