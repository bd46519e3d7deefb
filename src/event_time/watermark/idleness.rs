//! When a silent partition stops holding the others back.

use std::time::Duration;

/// A clock that runs only while silence means something; one for the subtask, read by each partition's timer.
///
/// The owner moves it by the time that passed in its loop. A partition's own reading stands still while it is held
/// (Flink: `PausableRelativeClock`). Holding and releasing cost nothing per turn: the partition remembers how long
/// it was held.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdleClock {
    /// How long the subtask's clock had stood still for this partition, over all finished holds.
    held_for: Duration,
    /// The subtask's clock when the running hold began.
    held_since: Option<Duration>,
}

impl IdleClock {
    /// Stops the clock at this reading of the subtask's.
    pub(crate) fn hold(&mut self, subtask_clock: Duration) {
        self.held_since.get_or_insert(subtask_clock);
    }

    /// Lets the clock run again.
    pub(crate) fn release(&mut self, subtask_clock: Duration) {
        if let Some(since) = self.held_since.take() {
            self.held_for += subtask_clock.saturating_sub(since);
        }
    }

    /// Whether it stands still now.
    pub(crate) fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    fn read(&self, subtask_clock: Duration) -> Duration {
        self.held_since.unwrap_or(subtask_clock).saturating_sub(self.held_for)
    }
}

/// Finds out that a partition is silent (Flink: `WatermarksWithIdleness.IdlenessTimer`).
///
/// Silence is looked for at the periodic emission only: the first one after an event sees the activity, the next
/// starts the countdown, and the first with strictly more than the timeout on it says idle. So idleness is found
/// later than `timeout` and earlier than `timeout` plus three emit intervals of silence. The countdown of a partition
/// without any event starts at its first emission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdlenessTimer {
    timeout: Duration,
    active_since_last_look: bool,
    countdown_from: Option<Duration>,
}

impl IdlenessTimer {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, active_since_last_look: false, countdown_from: None }
    }

    /// An accepted record came.
    pub(crate) fn activity(&mut self) {
        self.active_since_last_look = true;
    }

    /// Looks, at a periodic emission, whether the partition has been silent for longer than the timeout.
    pub(crate) fn look(&mut self, clock: IdleClock, subtask_clock: Duration) -> bool {
        let now = clock.read(subtask_clock);
        if self.active_since_last_look {
            self.active_since_last_look = false;
            self.countdown_from = None;
            return false;
        }
        let from = *self.countdown_from.get_or_insert(now);
        now.saturating_sub(from) > self.timeout
    }

    /// How much of the timeout is left at this reading.
    pub(crate) fn remaining(&self, clock: IdleClock, subtask_clock: Duration) -> Duration {
        let silent = match self.countdown_from {
            Some(from) if !self.active_since_last_look => {
                clock.read(subtask_clock).saturating_sub(from)
            }
            _ => Duration::ZERO,
        };
        self.timeout.saturating_sub(silent)
    }
}
