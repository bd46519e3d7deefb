//! Whether the client still follows its group.
//!
//! librdkafka (2.12.1, classic protocol, cooperative assignment) joins anew when the partitions of a topic change, also in the
//! middle of a rebalance that takes partitions away. What it had kept for the assignment that follows a revocation then
//! stays for good, and with it the belief that a rebalance is under way: it goes on sending heartbeats and ignores that
//! they are answered with a rebalance (`rd_kafka_cgrp_metadata_update_check`, `RD_KAFKA_CGRP_REBALANCING`). The whole group
//! waits for it, and neither a new subscription nor a close gets through to it. So it is found out, and the process ends.

use super::rebalance::RebalanceEvent;

/// What has come of the last revocation. After one the client announces an assignment, joins once more, and announces
/// what came of that. If it is steady after the first announcement, it has not joined once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Following {
    /// Assignments since the last revocation; `None` before one.
    assigned: Option<u32>,
    /// Statistics in a row that have found the client steady after the first of them.
    steady: u32,
}

impl Following {
    /// The client has announced this.
    pub(super) fn event(&mut self, event: &RebalanceEvent) {
        self.steady = 0;
        self.assigned = match event {
            RebalanceEvent::Revoking(_) => Some(0),
            // What was lost is joined for at once.
            RebalanceEvent::Lost(_) => None,
            RebalanceEvent::Assigned(_) => self.assigned.map(|assigned| assigned + 1),
        };
    }

    /// The statistics of a second have found the client in this join state.
    pub(super) fn seen(&mut self, join_state: &str) {
        let stands = self.assigned == Some(1) && join_state == "steady";
        self.steady = if stands { self.steady + 1 } else { 0 };
    }

    /// Whether it follows no more.
    pub(super) fn is_lost(self) -> bool {
        self.steady >= LOST_AFTER
    }
}

/// A client that joins once more does so at once; the partitions that it gives up may take a moment to stop.
const LOST_AFTER: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(events: &[RebalanceEvent], join_state: &str, seconds: u32) -> bool {
        let mut following = Following::default();
        for event in events {
            following.event(event);
        }
        for _ in 0..seconds {
            following.seen(join_state);
        }
        following.is_lost()
    }

    const ASSIGNED: fn() -> RebalanceEvent = || RebalanceEvent::Assigned(Vec::new());
    const REVOKING: fn() -> RebalanceEvent = || RebalanceEvent::Revoking(Vec::new());

    #[test]
    fn a_client_that_does_not_join_again_after_a_revocation_is_lost() {
        assert!(after(&[ASSIGNED(), REVOKING(), ASSIGNED()], "steady", 10));
        assert!(!after(&[ASSIGNED(), REVOKING(), ASSIGNED()], "steady", 9));
    }

    #[test]
    fn one_that_does_is_not() {
        assert!(!after(&[ASSIGNED()], "steady", 99));
        assert!(!after(&[ASSIGNED(), REVOKING(), ASSIGNED()], "wait-join", 99));
        assert!(!after(&[ASSIGNED(), REVOKING(), ASSIGNED(), ASSIGNED()], "steady", 99));
        assert!(!after(&[REVOKING(), RebalanceEvent::Lost(Vec::new()), ASSIGNED()], "steady", 99));
        assert!(!after(&[ASSIGNED(), REVOKING()], "wait-unassign-call", 99));
    }

    #[test]
    fn a_moment_in_between_begins_the_count_anew() {
        let mut following = Following::default();
        following.event(&REVOKING());
        following.event(&ASSIGNED());
        for _ in 0..9 {
            following.seen("steady");
        }
        following.seen("wait-join");
        following.seen("steady");
        assert!(!following.is_lost());
    }
}
