//! Whether this subtask takes part: where a key's records may be in all partitions, one instance has to read them all.

use std::collections::BTreeSet;
use std::time::Duration;

use super::edge::{Changelog, Observer, Source, Time, TransactionalSink};
use super::{Pipeline, PipelineError, RunUntil};
use crate::event_time::{MonotonicTime, PartitionId};
use crate::insight::{Phase, RestoreCause};

/// How this subtask stands to its group.
#[derive(Debug)]
pub(super) struct Membership {
    /// One instance has to read all partitions.
    needs_all: bool,
    /// Outside of the group, not to look at it before this time.
    outside_until: Option<MonotonicTime>,
    /// Why it stays outside.
    reason: String,
    /// All partitions are here.
    complete: bool,
    /// They were, since this instance joined.
    was_complete: bool,
    /// Since when it has been a member without all of them.
    incomplete_since: Option<MonotonicTime>,
    /// A newcomer is not to look at the group before this time.
    look_at: MonotonicTime,
    /// How long it waits for the rest, having had all.
    patience: Duration,
    /// Tells this instance's waits from those of others that began at the same moment.
    jitter: Duration,
    looks: u32,
}

impl Membership {
    pub(super) fn new(needs_all: bool, session: Duration, instance_id: &str) -> Self {
        let jitter = instance_id
            .bytes()
            .fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self {
            needs_all,
            outside_until: Some(MonotonicTime::default()),
            reason: String::new(),
            complete: !needs_all,
            was_complete: false,
            incomplete_since: None,
            look_at: MonotonicTime::default(),
            patience: session + HANDED_OVER_WITHIN,
            jitter: Duration::from_millis(jitter % 1_000),
            looks: 0,
        }
    }

    pub(super) fn may_restore(&self) -> bool {
        self.complete
    }

    /// Why it is outside of the group, if it is.
    pub(super) fn standby(&self) -> Option<&str> {
        self.outside_until.filter(|_| !self.reason.is_empty()).map(|_| self.reason.as_str())
    }

    fn stay_outside(&mut self, now: MonotonicTime, reason: String) {
        if self.reason != reason {
            tracing::info!(reason, "standing by");
        }
        self.reason = reason;
        self.looks += 1;
        // Two that stand by must not go in step for ever.
        let wait = LOOK_EVERY + self.jitter * (1 + self.looks % 3) / 2;
        self.outside_until = Some(MonotonicTime(now.0 + wait));
    }
}

impl<S: Source, K: TransactionalSink, C: Changelog, O: Observer, T: Time> Pipeline<S, K, C, O, T> {
    /// Joins the group when the time has come. Whether this subtask is a member.
    pub(super) fn take_part(&mut self, now: MonotonicTime) -> Result<bool, PipelineError> {
        let Some(not_before) = self.membership.outside_until else {
            self.look_after_the_rest(now)?;
            return Ok(true);
        };
        if now < not_before {
            return Ok(false);
        }
        if self.membership.needs_all && self.until != RunUntil::End {
            let Some(others) = self.ask(S::others)? else { return Ok(false) };
            if !others.is_empty() {
                let reason = format!(
                    "{} reads the input, and one instance has to read all of it",
                    others.join(", ")
                );
                self.membership.stay_outside(now, reason);
                return Ok(false);
            }
        }
        if self.ask(S::join)?.is_none() {
            return Ok(false);
        }
        self.membership.outside_until = None;
        self.membership.reason.clear();
        Ok(true)
    }

    /// Whether it is to leave the group when these partitions are lost: before they are given up, since then the client joins
    /// anew, and a member that is about to join cannot leave. It would be given partitions that nobody reads.
    pub(super) fn needs_all_and_keeps_none(&self, lost: &[PartitionId]) -> bool {
        self.membership.needs_all && !lost.is_empty() && self.here().all(|id| lost.contains(&id))
    }

    /// All partitions that the group has given to this instance.
    fn here(&self) -> impl Iterator<Item = PartitionId> {
        let live = self.engine.subtask.partitions().map(|view| view.id);
        let recovering =
            self.recovery.iter().flat_map(|recovery| recovery.partitions.iter().copied());
        live.chain(recovering).chain(self.arrivals.iter().copied())
    }

    /// Leaves the group, to look at it from outside.
    pub(super) fn step_outside(&mut self) -> Result<(), PipelineError> {
        let had: Vec<_> = std::mem::take(&mut self.arrivals).into_iter().collect();
        self.ask(S::leave)?;
        // What it was waiting for is another's matter now.
        self.blocked_by = None;
        if !had.is_empty() {
            self.observer.revoked(&had);
        }
        let membership = &mut self.membership;
        membership.complete = false;
        membership.was_complete = false;
        membership.incomplete_since = None;
        membership.outside_until = Some(MonotonicTime::default());
        Ok(())
    }

    /// After each change of the assignment: whether all partitions are here. If some are missing, the others are held
    /// back; what was made of them is committed.
    pub(super) fn look_whether_complete(&mut self) -> Result<(), PipelineError> {
        if !self.membership.needs_all {
            return Ok(());
        }
        let Some(all) = self.ask(S::partitions)? else { return Ok(()) };
        let live: Vec<PartitionId> = self.engine.subtask.partitions().map(|view| view.id).collect();
        let here: BTreeSet<_> = self.here().collect();
        let missing = all.len().saturating_sub(here.len());
        let none = here.is_empty();
        let now = self.time.now().monotonic;
        let membership = &mut self.membership;
        let had_all = membership.was_complete;
        membership.complete = missing == 0;
        membership.was_complete |= membership.complete;
        membership.look_at = now;
        let held_back = !membership.complete && membership.incomplete_since.is_none();
        membership.incomplete_since = if membership.complete {
            None
        } else {
            Some(membership.incomplete_since.unwrap_or(now))
        };
        if membership.complete {
            return Ok(());
        }
        if none && had_all {
            // Who came back as a member would take them away again from whoever has them now.
            tracing::warn!("all partitions are elsewhere; leaving the group to look who is there");
            return self.step_outside();
        }
        // Also where none is at work, since a transaction was aborted a moment ago.
        if had_all && held_back {
            tracing::warn!(
                missing,
                "partitions are elsewhere; holding results back until they return"
            );
        }
        self.drop_recovery();
        if !live.is_empty() {
            self.engine.abandon();
            self.wait_for_state(live.into_iter().collect(), RestoreCause::Assigned)?;
        }
        Ok(())
    }

    /// Some partitions are elsewhere: a newcomer leaves, and one that had all waits for them as long as it takes to see
    /// that they do not return.
    fn look_after_the_rest(&mut self, now: MonotonicTime) -> Result<(), PipelineError> {
        let Some(since) = self.membership.incomplete_since else { return Ok(()) };
        let waited = now.since(since);
        if self.membership.was_complete {
            if waited > self.membership.patience {
                return Err(PipelineError::PartitionsElsewhere { waited });
            }
            return Ok(());
        }
        if now < self.membership.look_at {
            return Ok(());
        }
        self.membership.look_at = MonotonicTime(now.0 + LOOK_EVERY);
        let Some(others) = self.ask(S::others)? else { return Ok(()) };
        // Of several newcomers with a share the first by name waits, and the others leave. So do all of them after a
        // while: one of the others may have been at work before, and waits too. Who has none can only be in the way,
        // unless the group waits for a member that is no more.
        let name = self.source.name();
        let stays = if self.arrivals.is_empty() {
            others.is_empty()
        } else {
            waited < NEWCOMER_PATIENCE && others.iter().all(|other| name < *other)
        };
        if stays {
            return Ok(());
        }
        let others =
            if others.is_empty() { "another member".to_owned() } else { others.join(", ") };
        self.step_outside()?;
        let reason = format!("{others} reads the input, and one instance has to read all of it");
        self.membership.stay_outside(now, reason);
        Ok(())
    }

    /// What the loop is doing, as far as it is not simply running.
    pub(super) fn phase(&self) -> Phase {
        if let Some(cause) = &self.blocked_by {
            Phase::Blocked(cause.clone())
        } else if self.time.draining() {
            Phase::Draining
        } else if let Some(reason) = self.membership.standby() {
            Phase::Standby(reason.to_owned())
        } else if let Some(since) = self.membership.incomplete_since {
            let waited = self.time.now().monotonic.since(since).as_secs();
            Phase::Standby(format!("some partitions have been elsewhere for {waited} s"))
        } else if !self.joined {
            Phase::Starting
        } else if !self.has_run && (self.recovery.is_some() || !self.arrivals.is_empty()) {
            Phase::Restoring
        } else {
            Phase::Running
        }
    }
}

/// How often one that stands by looks at the group.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a newcomer waits for the rest that it may yet get. The group tells its members of a change when they ask, which
/// they do every 3 s, and every 5 s with the newer protocol.
const NEWCOMER_PATIENCE: Duration = Duration::from_secs(8);

/// A member that was killed keeps its partitions for as long as a session lasts, and the others get them at their next
/// words with the group.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(10);
