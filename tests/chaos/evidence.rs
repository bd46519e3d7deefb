//! What a run has seen: without these it would have proved nothing.

use std::ops::{Add, Sub};

/// Counted over all instances, those that have ended too: what their metrics said last, and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Transactions aborted.
    pub(crate) aborted: u64,
    /// Instances that ended because another one had taken their name.
    pub(crate) fenced: u64,
    /// Times an instance found that its partitions had been taken away.
    pub(crate) lost: u64,
    /// Restores that brought open windows back, and the entries in these.
    pub(crate) restores: u64,
    pub(crate) entries: u64,
    /// Records written to the late topic.
    pub(crate) late: u64,
}

impl Evidence {
    /// What is not there.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let needed = [
            (self.aborted, "an aborted transaction"),
            (self.fenced, "a fenced instance"),
            (self.lost, "a lost assignment"),
            (self.restores, "a restore with open windows"),
            (self.late, "a late record"),
        ];
        needed.into_iter().filter(|(count, _)| *count == 0).map(|(_, what)| what).collect()
    }
}

impl Add for Evidence {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            aborted: self.aborted + other.aborted,
            fenced: self.fenced + other.fenced,
            lost: self.lost + other.lost,
            restores: self.restores + other.restores,
            entries: self.entries + other.entries,
            late: self.late + other.late,
        }
    }
}

impl Sub for Evidence {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            aborted: self.aborted - other.aborted,
            fenced: self.fenced - other.fenced,
            lost: self.lost - other.lost,
            restores: self.restores - other.restores,
            entries: self.entries - other.entries,
            late: self.late - other.late,
        }
    }
}
