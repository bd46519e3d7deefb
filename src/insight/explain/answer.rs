//! The answer, as a person reads it and as JSON has it. Times are milliseconds since the epoch.

use serde::Serialize;

use super::Cause;

/// Why a window has or has not fired.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// All of it in one sentence.
    pub sentence: String,
    /// The window; `None` where none has a record and there is no watermark that one could be next to.
    pub window: Option<Window>,
    /// Whether it has fired.
    pub state: WindowState,
    /// The key that was asked about. Whether it has records in the window is not looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why it has not fired; `None` where it has.
    pub cause: Option<Cause>,
    /// The subtask that is furthest behind, of those that read anything.
    pub subtask: u16,
    /// The partition that holds the watermark.
    pub holder: Option<Partition>,
    /// How many partitions the window waits for.
    pub holders: usize,
    /// The first of them by watermark, the holder included; at most [`Explanation::HOLDERS`].
    pub waiting_for: Vec<Partition>,
    /// The watermark that windows fire by.
    pub watermark: Option<i64>,
    /// The watermark at which the window fires.
    pub needed_watermark: Option<i64>,
    /// What will make it fire.
    pub fires_when: Option<String>,
    /// When at the earliest, on the wall clock, as far as that can be said.
    pub earliest: Option<i64>,
    /// The numbers behind the cause.
    pub numbers: Numbers,
}

impl Explanation {
    /// How many partitions are named.
    pub const HOLDERS: usize = 10;
}

/// A window's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Its first millisecond.
    pub start: i64,
    /// The first one after it.
    pub end: i64,
}

/// What there is to say of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowState {
    /// It has records and has not fired.
    Open,
    /// It has no record here: a window without records never fires.
    Empty,
    /// The watermark has passed its end; records that come for it yet fire it again.
    Fired,
    /// The watermark has passed its end and the allowed lateness; records for it go to the late topic.
    Closed,
}

/// A partition and why the window waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partition {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Its own watermark.
    pub watermark: Option<i64>,
    /// Why.
    pub cause: Cause,
    /// How far it is ahead of the watermark, where it is paused for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_ms: Option<u64>,
    /// The watermark at which it is read on then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumes_at: Option<i64>,
}

/// Numbers of the holder and of the loop; those that do not apply are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Numbers {
    /// The greatest event time accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_event_time: Option<i64>,
    /// The event time that a record needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_event_time: Option<i64>,
    /// The out-of-orderness bound in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_ms: Option<u64>,
    /// The bound when the watermark rose last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_at_rise_ms: Option<u64>,
    /// Since when it has been here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assigned_for_ms: Option<u64>,
    /// How long no record has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_for_ms: Option<u64>,
    /// How much silence is left until it is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_in_ms: Option<u64>,
    /// Records not read yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// Offsets in front of it that belong to an open transaction, or come after its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unstable_offsets: Option<u64>,
    /// Records accepted since it came here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// Records accepted since its watermark rose last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_since_rise: Option<u64>,
    /// Records refused since the last one that was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_in_row: Option<u64>,
    /// Why the last of those was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// For how long the output, or a commit, has been blocked, or the loop has not turned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_for_ms: Option<u64>,
    /// Partitions whose state is being read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restoring_partitions: Option<usize>,
}
