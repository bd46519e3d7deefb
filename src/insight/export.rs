//! How far an export has come: what its loop tells metrics and probes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::event_time::{EventTime, MonotonicTime};

/// What an export has done since it began, and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportProgress {
    /// Results read.
    pub results: u64,
    /// Rows written; of several panes in one batch the last one counts.
    pub rows: u64,
    /// Records without a payload.
    pub tombstones: u64,
    /// Records that tell how far the results are complete.
    pub progress: u64,
    /// Records that are no row.
    pub unreadable: u64,
    /// Results that had been deleted before they were read.
    pub missing: u64,
    /// Batches in the database.
    pub written: u64,
    /// Batches that another exporter had written.
    pub moved_on: u64,
    /// Times the database did not answer.
    pub failures: u64,
    /// Offsets in front of the positions; `None` before that was looked at.
    pub lag: Option<i64>,
    /// Partitions that are read.
    pub partitions: usize,
    /// Whether the database answered when it was last asked.
    pub connected: bool,
    /// Whether the group was joined.
    pub joined: bool,
    /// When a batch was last written.
    pub last_write: Option<EventTime>,
    /// When the loop last turned; `None`: not yet.
    pub turned: Option<MonotonicTime>,
}

impl ExportProgress {
    /// Why only a restart helps, if that is so.
    ///
    /// A turn may wait 10 s for a connection and 30 s for a batch.
    pub fn stalled(&self, now: MonotonicTime) -> Option<String> {
        let stood = now.since(self.turned?);
        (stood > STALLED).then(|| format!("the loop has not turned for {} s", stood.as_secs()))
    }

    /// Why it does not do its work yet, or not at the moment.
    pub fn not_ready(&self) -> Option<String> {
        match self {
            Self { connected: false, .. } => Some("the database does not answer".to_owned()),
            Self { joined: false, .. } => Some("the group is not joined yet".to_owned()),
            _ => None,
        }
    }
}

/// Where the loop leaves its progress, and others find it; clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct ExportWatch(Arc<Mutex<ExportProgress>>);

impl ExportWatch {
    /// Replaces what is there.
    pub fn publish(&self, progress: ExportProgress) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// What was published last.
    pub fn newest(&self) -> ExportProgress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const STALLED: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_tells_a_loop_that_hangs_from_a_database_that_is_away() {
        let at = |seconds| MonotonicTime(Duration::from_secs(seconds));
        let watch = ExportWatch::default();
        assert_eq!(watch.newest().stalled(at(1_000)), None, "it waits for the brokers");
        assert!(watch.newest().not_ready().is_some());
        let well = ExportProgress {
            connected: true,
            joined: true,
            turned: Some(at(10)),
            ..ExportProgress::default()
        };
        watch.publish(well);
        assert_eq!((watch.newest().stalled(at(100)), watch.newest().not_ready()), (None, None));
        assert!(watch.newest().stalled(at(101)).unwrap().contains("91 s"));
        let away = ExportProgress { connected: false, ..well };
        assert!(away.not_ready().unwrap().contains("database"));
        assert_eq!(away.stalled(at(20)), None);
    }
}
