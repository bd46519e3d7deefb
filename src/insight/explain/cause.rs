//! The closed list of causes.

use serde::Serialize;

/// Why a window has not fired; `deploy/README.md` says of each what it means and what to do.
///
/// ```
/// use tidegate::insight::explain::Cause;
///
/// assert_eq!(Cause::SilentWithoutEvidence.name(), "silent_without_evidence");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// No record has come since the assignment or the restart.
    NoData,
    /// Caught up and silent.
    Silent,
    /// Silent, but an open transaction of a producer or records may be in front of it.
    SilentWithoutEvidence,
    /// Records are there that have not been read.
    Behind,
    /// Not read for now, since it is too far ahead of the watermark; another partition holds that.
    PausedByAlignment,
    /// Records come, and their event time has not reached what is needed.
    EventTimeSlow,
    /// Back from idle, or come in, below the subtask watermark.
    BackFromIdle,
    /// Records are accepted, and the generator does not raise the watermark.
    GeneratorNotAdvanced,
    /// The last records became dead letters.
    AllRefused,
    /// What is to be written or committed is not taken.
    OutputBlocked,
    /// Reading waits for the brokers.
    BrokersUnreachable,
    /// The loop does not turn.
    LoopNotTicking,
    /// All partitions are idle.
    AllIdle,
    /// State is being read back.
    Restoring,
    /// Nothing is assigned: before the first assignment, between two, or standing by.
    NotAssigned,
    /// The service is ending; windows stay open for the next start.
    Stopping,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::NoData,
        Self::Silent,
        Self::SilentWithoutEvidence,
        Self::Behind,
        Self::PausedByAlignment,
        Self::EventTimeSlow,
        Self::BackFromIdle,
        Self::GeneratorNotAdvanced,
        Self::AllRefused,
        Self::OutputBlocked,
        Self::BrokersUnreachable,
        Self::LoopNotTicking,
        Self::AllIdle,
        Self::Restoring,
        Self::NotAssigned,
        Self::Stopping,
    ];

    /// The word used in answers and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoData => "no_data",
            Self::Silent => "silent",
            Self::SilentWithoutEvidence => "silent_without_evidence",
            Self::Behind => "behind",
            Self::PausedByAlignment => "paused_by_alignment",
            Self::EventTimeSlow => "event_time_slow",
            Self::BackFromIdle => "back_from_idle",
            Self::GeneratorNotAdvanced => "generator_not_advanced",
            Self::AllRefused => "all_refused",
            Self::OutputBlocked => "output_blocked",
            Self::BrokersUnreachable => "brokers_unreachable",
            Self::LoopNotTicking => "loop_not_ticking",
            Self::AllIdle => "all_idle",
            Self::Restoring => "restoring",
            Self::NotAssigned => "not_assigned",
            Self::Stopping => "stopping",
        }
    }
}
