//! What the loops publish and others read.

use std::sync::{Arc, Mutex, PoisonError};

use super::advise::Desk;
use super::{Overview, Snapshot};
use crate::event_time::MonotonicTime;

/// The newest snapshot of one subtask, shared between the loop that writes it and the readers; and where readers ask for
/// what the loop has observed.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Published>, Desk);

#[derive(Debug, Default)]
struct Published {
    snapshot: Mutex<Arc<Snapshot>>,
    /// Since when a commit has been under way: meanwhile the loop publishes nothing.
    committing_since: Mutex<Option<MonotonicTime>>,
}

impl Watch {
    /// The newest snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.0.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the snapshot.
    pub fn publish(&self, snapshot: Snapshot) {
        *self.0.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }

    /// Says since when a commit has been under way, or that none is.
    pub fn set_committing(&self, since: Option<MonotonicTime>) {
        *self.0.committing_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Since when a commit has been under way.
    pub fn committing_since(&self) -> Option<MonotonicTime> {
        *self.0.committing_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where what the loop has observed is asked for.
    pub fn desk(&self) -> &Desk {
        &self.1
    }
}

/// The watches of all subtasks of a process.
///
/// ```
/// use tidegate::insight::{Phase, Snapshot, Watches};
///
/// let watches = Watches::new(2);
/// watches.of(1).publish(Snapshot { phase: Phase::Running, ..Snapshot::default() });
/// let overview = watches.overview();
/// let phases: Vec<_> = overview.subtasks().map(|(_, snapshot)| snapshot.phase.name()).collect();
/// assert_eq!(phases, ["starting", "running"]);
/// ```
#[derive(Clone, Debug)]
pub struct Watches(Arc<[Watch]>);

impl Watches {
    /// Watches of so many subtasks, at least one.
    pub fn new(subtasks: u16) -> Self {
        Self((0..subtasks.max(1)).map(|_| Watch::default()).collect())
    }

    /// How many subtasks there are.
    pub fn count(&self) -> u16 {
        u16::try_from(self.0.len()).unwrap_or(u16::MAX)
    }

    /// The watch of a subtask; of one that is not there, a watch that nobody reads.
    pub fn of(&self, subtask: u16) -> Watch {
        self.0.get(usize::from(subtask)).cloned().unwrap_or_default()
    }

    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = &Watch> {
        self.0.iter()
    }

    /// The newest snapshots of all of them.
    pub fn overview(&self) -> Overview {
        Overview::new(
            self.0.iter().map(|watch| (watch.snapshot(), watch.committing_since())).collect(),
        )
    }
}
