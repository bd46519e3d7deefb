//! The case files as data. The format is described in `tests/cases/FORMAT.md`.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// What every case file has, whatever its type.
#[derive(Debug, Deserialize)]
pub(crate) struct Header {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) title: String,
    /// Absent for a trace.
    #[serde(rename = "type")]
    pub(crate) case_type: Option<String>,
}

/// A list of steps with a manual clock, and what must come of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Trace {
    #[serde(default)]
    pub(crate) timing: Timing,
    pub(crate) config: Config,
    #[serde(default)]
    pub(crate) compare: Compare,
    sum_tol: Option<Box<RawValue>>,
    pub(crate) steps: Vec<Step>,
    pub(crate) expect: Expect,
    #[serde(default)]
    pub(crate) trap: String,
}

impl Trace {
    /// The largest difference allowed between float sums.
    pub(crate) fn sum_tolerance(&self) -> Result<f64, String> {
        self.sum_tol.as_deref().map_or(Ok(0.0), float)
    }

    /// The partitions ever given up in the course of the steps.
    pub(crate) fn revokes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Revoke(_)))
    }
}

/// When watermarks are emitted.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Timing {
    #[default]
    Any,
    TickAfterEachRecord,
    Periodic,
}

/// Which panes are compared.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compare {
    #[default]
    AllPanes,
    FinalPanes,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    /// Those assigned at the start; none where a group assigns them.
    #[serde(deserialize_with = "partitions")]
    pub(crate) partitions: Vec<i32>,
    pub(crate) window_ms: u64,
    #[serde(default)]
    pub(crate) window_offset_ms: i64,
    #[serde(default)]
    pub(crate) out_of_orderness_ms: u64,
    pub(crate) idle_timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) allowed_lateness_ms: u64,
    #[serde(default)]
    pub(crate) emit: Emit,
    #[serde(default = "default_emit_interval_ms")]
    pub(crate) emit_interval_ms: u64,
    #[serde(default)]
    pub(crate) all_idle: AllIdle,
    #[serde(default)]
    pub(crate) timestamp_source: FieldOrKafka,
    pub(crate) timestamp_field: Option<String>,
    #[serde(default)]
    pub(crate) timestamp_unit: TimestampUnit,
    #[serde(default)]
    pub(crate) naive_policy: NaivePolicy,
    #[serde(default)]
    pub(crate) key_source: FieldOrKafka,
    pub(crate) key_field: Option<String>,
    pub(crate) value_field: String,
    pub(crate) value_type: ValueType,
    #[serde(default)]
    pub(crate) wall_start_ms: i64,
    pub(crate) max_future_ms: Option<u64>,
    pub(crate) min_timestamp_ms: Option<i64>,
}

fn default_emit_interval_ms() -> u64 {
    200
}

/// A list, or `all`.
fn partitions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i32>, D::Error> {
    let written = Value::deserialize(deserializer)?;
    if written == "all" {
        return Ok(Vec::new());
    }
    Vec::deserialize(written).map_err(serde::de::Error::custom)
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Emit {
    #[default]
    EachStep,
    Periodic,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AllIdle {
    #[default]
    Hold,
    FlushMax,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FieldOrKafka {
    #[default]
    Field,
    Kafka,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimestampUnit {
    #[default]
    Ms,
    S,
    Us,
    Ns,
    Iso8601,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NaivePolicy {
    #[default]
    Reject,
    Utc,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ValueType {
    I64,
    F64,
}

/// One thing that happens.
#[derive(Debug, Deserialize)]
#[serde(try_from = "AnyStep")]
pub(crate) enum Step {
    Record(Record),
    Advance(u64),
    Blocked(u64),
    WallJump(i64),
    Assign(Vec<i32>),
    Revoke(Vec<i32>),
    Commit,
    Stop,
    Crash,
}

impl Step {
    /// How a report calls it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Record(record) => {
                format!("record {} of partition {}", record.id, record.partition)
            }
            Self::Advance(ms) => format!("advance_ms {ms}"),
            Self::Blocked(ms) => format!("blocked_ms {ms}"),
            Self::WallJump(ms) => format!("wall_jump_ms {ms}"),
            Self::Assign(partitions) => format!("assign {partitions:?}"),
            Self::Revoke(partitions) => format!("revoke {partitions:?}"),
            Self::Commit => "commit".to_owned(),
            Self::Stop => "stop".to_owned(),
            Self::Crash => "crash".to_owned(),
        }
    }
}

/// A Kafka record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) partition: i32,
    pub(crate) key: Option<String>,
    pub(crate) payload: Option<Vec<u8>>,
    pub(crate) kafka_timestamp_ms: Option<i64>,
    pub(crate) headers: Vec<(String, Option<String>)>,
}

/// A step as it is written: which members are there says what it is.
#[derive(Debug, Deserialize)]
struct AnyStep {
    id: Option<String>,
    partition: Option<i32>,
    key: Option<String>,
    #[serde(default, deserialize_with = "present")]
    payload: Option<Value>,
    payload_b64: Option<String>,
    payload_gen: Option<PayloadGen>,
    kafka_timestamp_ms: Option<i64>,
    #[serde(default)]
    headers: Vec<(String, Option<String>)>,
    advance_ms: Option<u64>,
    blocked_ms: Option<u64>,
    wall_jump_ms: Option<i64>,
    assign: Option<Vec<i32>>,
    revoke: Option<Vec<i32>>,
    commit: Option<bool>,
    stop: Option<bool>,
    crash: Option<bool>,
}

/// Tells a member that is null from one that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Debug, Deserialize)]
struct PayloadGen {
    #[serde(default)]
    prefix: String,
    unit: String,
    times: usize,
    #[serde(default)]
    unit_close: String,
    #[serde(default)]
    suffix: String,
}

impl TryFrom<AnyStep> for Step {
    type Error = String;

    fn try_from(step: AnyStep) -> Result<Self, String> {
        let AnyStep { advance_ms, blocked_ms, wall_jump_ms, commit, stop, crash, .. } = step;
        let (assign, revoke) = (step.assign.clone(), step.revoke.clone());
        let flag = |flag: Option<bool>, step| flag.filter(|set| *set).map(|_| step);
        let record = match step.partition {
            Some(partition) => Some(Self::Record(record(step, partition)?)),
            None => None,
        };
        let mut kinds = [
            record,
            advance_ms.map(Self::Advance),
            blocked_ms.map(Self::Blocked),
            wall_jump_ms.map(Self::WallJump),
            assign.map(Self::Assign),
            revoke.map(Self::Revoke),
            flag(commit, Self::Commit),
            flag(stop, Self::Stop),
            flag(crash, Self::Crash),
        ]
        .into_iter()
        .flatten();
        match (kinds.next(), kinds.next()) {
            (Some(step), None) => Ok(step),
            (None, _) => Err("a step of no known kind".to_owned()),
            (Some(one), Some(other)) => {
                Err(format!("a step of two kinds: {} and {}", one.name(), other.name()))
            }
        }
    }
}

fn record(step: AnyStep, partition: i32) -> Result<Record, String> {
    let id = step.id.ok_or("a record without an id")?;
    let payload = match (step.payload, step.payload_b64, step.payload_gen) {
        (Some(Value::Null), None, None) => None,
        (Some(Value::String(text)), None, None) => Some(text.into_bytes()),
        (None, Some(text), None) => Some(base64(&text)?),
        (None, None, Some(recipe)) => {
            let (open, close) =
                (recipe.unit.repeat(recipe.times), recipe.unit_close.repeat(recipe.times));
            Some([recipe.prefix, open, close, recipe.suffix].concat().into_bytes())
        }
        _ => {
            return Err(format!(
                "record {id} needs a payload (text or null) or payload_b64 or payload_gen"
            ));
        }
    };
    let AnyStep { key, kafka_timestamp_ms, headers, .. } = step;
    Ok(Record { id, partition, key, payload, kafka_timestamp_ms, headers })
}

/// Standard base64; padding may be missing.
pub(crate) fn base64(text: &str) -> Result<Vec<u8>, String> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = (0u32..).zip(ALPHABET).find(|(_, letter)| **letter == byte);
        let (digit, _) = digit.ok_or_else(|| format!("byte {byte} is no base64"))?;
        held = (held << 6 | digit) & 0xFFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.extend(u8::try_from(held >> bits & 0xFF));
        }
    }
    Ok(bytes)
}

/// What must come of the steps; what is absent is not compared.
#[derive(Debug, Deserialize)]
pub(crate) struct Expect {
    pub(crate) panes: Option<Vec<ExpectedPane>>,
    pub(crate) late: Option<Vec<String>>,
    pub(crate) rejected: Option<Vec<Rejected>>,
    pub(crate) tombstones: Option<Vec<String>>,
    pub(crate) ignored: Option<Vec<String>>,
    pub(crate) open: Option<Vec<ExpectedPane>>,
    pub(crate) watermark_after: Option<Vec<Option<i64>>>,
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) metrics: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) idle_between_ms: BTreeMap<i32, (u64, u64)>,
    #[serde(default)]
    pub(crate) invariants: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) id: String,
    pub(crate) reason: String,
}

/// A pane, or with `fired` a window that is still held.
#[derive(Debug, Deserialize)]
pub(crate) struct ExpectedPane {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) key: Value,
    pub(crate) count: u64,
    sum: Option<Box<RawValue>>,
    pub(crate) kind: Option<String>,
    pub(crate) index: Option<u32>,
    #[serde(default)]
    pub(crate) fired: bool,
}

impl ExpectedPane {
    /// The sum, read without a detour through inexact numbers.
    pub(crate) fn sum(&self) -> Result<Option<Sum>, String> {
        self.sum.as_deref().map(Sum::read).transpose()
    }
}

/// A sum as a result states it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sum {
    Integer(i128),
    Float(f64),
    Overflow,
}

impl Sum {
    /// An integer as a number or as text, a float, or the word for a float that has left its range.
    pub(crate) fn read(raw: &RawValue) -> Result<Self, String> {
        let text = raw.get().trim_matches('"');
        if text == "overflow" {
            return Ok(Self::Overflow);
        }
        text.parse().map(Self::Integer).or_else(|_| float(raw).map(Self::Float))
    }

    /// The sum of the shares of two partitions.
    pub(crate) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Self::Integer(a + b),
            (Self::Overflow, _) | (_, Self::Overflow) => Self::Overflow,
            (a, b) => Self::Float(a.as_float() + b.as_float()),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "only for the comparison of float sums")]
    pub(crate) fn as_float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
            Self::Overflow => f64::INFINITY,
        }
    }
}

fn float(raw: &RawValue) -> Result<f64, String> {
    let number = raw.get().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("{} is no number", raw.get()))
}
