//! Whether the service lives and whether it is ready, as the probes ask.

use std::time::Duration;

use super::{Phase, Snapshot};
use crate::event_time::MonotonicTime;

impl Phase {
    /// The word used in answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Restoring => "restoring",
            Self::Standby(_) => "standby",
            Self::Blocked(_) => "blocked",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
        }
    }

    /// What the Kafka client said last, while no broker can be reached.
    pub fn blocked(&self) -> Option<&str> {
        if let Self::Blocked(cause) = self { Some(cause) } else { None }
    }

    /// What stands in the way of readiness.
    ///
    /// A broker that goes away after the first assignment does not: taking the instance out of service would not
    /// bring it back. An instance that joined and was given no partition is ready too, as a standby.
    pub fn not_ready(&self) -> Option<&str> {
        match self {
            Self::Running | Self::Blocked(_) => None,
            Self::Starting => Some("waiting for the first assignment"),
            Self::Restoring => Some("reading back what open windows held"),
            Self::Standby(reason) => Some(reason),
            Self::Draining => Some("firing what is open before the end"),
            Self::Stopping => Some("committing and closing"),
            Self::Stopped => Some("the loop has ended"),
        }
    }
}

impl Snapshot {
    /// What is wrong with the loop, so that only a restart helps: it has not turned for [`Self::STALLED`], or not
    /// begun within [`Self::FIRST_TURN`] of the process.
    ///
    /// The loop also turns while it cannot reach a broker, so an outage is not found here.
    pub fn stalled(&self, now: MonotonicTime) -> Option<String> {
        let (since, allowed, what) = match self.taken {
            Some(taken) => (now.since(taken), Self::STALLED, "turned"),
            None => (now.0, Self::FIRST_TURN, "begun"),
        };
        (since > allowed).then(|| format!("the loop has not {what} for {} s", since.as_secs()))
    }

    /// The longest time between two turns of a loop that lives.
    pub const STALLED: Duration = Duration::from_secs(30);
    /// The longest time before its first turn.
    pub const FIRST_TURN: Duration = Duration::from_mins(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_time::{PartitionId, WatermarkStatus};
    use crate::insight::{PartitionHistory, PartitionSnapshot};

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime(Duration::from_secs(secs))
    }

    #[test]
    fn a_loop_that_turned_lately_lives_and_one_that_has_not_does_not() {
        let snapshot = Snapshot { taken: Some(at(100)), ..Snapshot::default() };
        assert_eq!(snapshot.stalled(at(130)), None);
        assert_eq!(snapshot.stalled(at(131)).as_deref(), Some("the loop has not turned for 31 s"));
    }

    #[test]
    fn the_first_turn_has_a_minute() {
        let snapshot = Snapshot::default();
        assert_eq!(snapshot.stalled(at(60)), None);
        assert_eq!(snapshot.stalled(at(61)).as_deref(), Some("the loop has not begun for 61 s"));
    }

    #[test]
    fn ready_from_the_first_assignment_until_the_end_begins() {
        let ready = |phase: Phase| phase.not_ready().is_none();
        assert!(!ready(Phase::Starting));
        assert!(ready(Phase::Running));
        assert!(ready(Phase::Blocked("brokers are down".into())));
        assert!(!ready(Phase::Restoring) && !ready(Phase::Standby("another reads".into())));
        assert!(!ready(Phase::Draining) && !ready(Phase::Stopping) && !ready(Phase::Stopped));
    }

    #[test]
    fn the_lag_is_never_negative_and_unknown_without_both_ends() {
        let lag = |end_offset, position| {
            PartitionSnapshot {
                id: PartitionId { topic: 0, partition: 0 },
                watermark: None,
                max_event_time: None,
                status: WatermarkStatus::Active,
                bound: None,
                gauges: Vec::new(),
                idle_in: None,
                paused: None,
                caught_up: false,
                position,
                end_offset,
                last_stable_offset: None,
                committed: None,
                history: PartitionHistory::default(),
            }
            .lag()
        };
        assert_eq!(lag(Some(10), Some(12)), Some(0));
        assert_eq!(lag(Some(10), Some(10)), Some(0));
        assert_eq!(lag(Some(10), Some(4)), Some(6));
        assert_eq!(lag(None, Some(4)), None);
        assert_eq!(lag(Some(10), None), None);
    }
}
