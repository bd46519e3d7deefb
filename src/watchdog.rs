//! Ends a process whose loop stands still.
//!
//! A loop that hangs in a call of the client library turns no more, and the group waits for its member. The probe
//! `/livez` tells of it after [`STALLED`](crate::insight::Snapshot::STALLED); where nobody asks there, the process ends itself, so that it is started
//! anew. Nothing is lost by that: what was not committed is read again.

use std::time::Duration;

use crate::event_time::MonotonicTime;
use crate::insight::{Phase, Watches};

/// Looks again and again whether the loops turn.
#[derive(Debug)]
pub struct Watchdog {
    watches: Watches,
    pace: Pace,
    /// What each of them showed last, and in how many looks since.
    seen: Vec<(Sign, u32)>,
}

/// How often is looked, and how many looks in a row that see nothing new are one too many.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time from one look to the next.
    pub every: Duration,
    /// So many.
    pub looks: u32,
}

impl Default for Pace {
    /// Two minutes of looks: calls of the client library are given up after seconds, and several may come together.
    fn default() -> Self {
        Self { every: Duration::from_secs(1), looks: 120 }
    }
}

/// What a loop that lives changes.
type Sign = (Option<MonotonicTime>, Option<MonotonicTime>);

/// A loop that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whose it is.
    pub subtask: u16,
    /// For how long at least.
    pub standing: Duration,
}

impl Watchdog {
    /// A watchdog that has seen nothing yet.
    pub fn new(watches: Watches, pace: Pace) -> Self {
        let seen = watches.each().map(|_| Default::default()).collect();
        Self { watches, pace, seen }
    }

    /// Looks once. The looks are counted and not the time, which also passes while the whole process is stopped.
    pub fn look(&mut self) -> Option<Standing> {
        for ((subtask, watch), (before, looks)) in
            (0..).zip(self.watches.each()).zip(&mut self.seen)
        {
            let snapshot = watch.snapshot();
            let sign = (snapshot.taken, watch.committing_since());
            if sign != *before || snapshot.phase == Phase::Stopped {
                (*before, *looks) = (sign, 0);
                continue;
            }
            *looks += 1;
            if *looks >= self.pace.looks {
                return Some(Standing { subtask, standing: self.pace.every * *looks });
            }
        }
        None
    }

    /// Looks until a loop stands still, and ends the process then.
    ///
    /// # Errors
    /// If there can be no thread for it.
    pub fn spawn(mut self) -> std::io::Result<()> {
        let body = move || {
            loop {
                std::thread::park_timeout(self.pace.every);
                if let Some(Standing { subtask, standing }) = self.look() {
                    let for_secs = standing.as_secs();
                    tracing::error!(
                        subtask,
                        for_secs,
                        "the loop stands still, most likely in a call of the Kafka client that does not come back: \
                         ending the process, to be started anew; what was not committed is read again"
                    );
                    std::process::exit(STANDS_STILL);
                }
            }
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(body).map(drop)
    }
}

/// The exit code of a process whose loop stood still (`EX_SOFTWARE` of sysexits.h).
pub const STANDS_STILL: i32 = 70;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::insight::Snapshot;

    const THREE: Pace = Pace { every: Duration::from_millis(1), looks: 3 };

    fn taken(secs: u64) -> Snapshot {
        let taken = Some(MonotonicTime(Duration::from_secs(secs)));
        Snapshot { taken, phase: Phase::Running, ..Snapshot::default() }
    }

    #[test]
    fn the_loop_that_turns_no_more_is_found_among_those_that_do() {
        let watches = Watches::new(2);
        let mut watchdog = Watchdog::new(watches.clone(), THREE);
        for turn in 1..=3 {
            watches.of(0).publish(taken(turn));
            assert_eq!(watchdog.look(), None, "the second has not begun for {turn} looks");
            watches.of(1).publish(taken(turn));
        }
        for turn in 4..=6 {
            watches.of(0).publish(taken(turn));
            assert_eq!(watchdog.look(), None);
        }
        watches.of(0).publish(taken(7));
        let standing = THREE.every * 3;
        assert_eq!(watchdog.look(), Some(Standing { subtask: 1, standing }));
    }

    #[test]
    fn a_commit_that_goes_on_is_a_sign_and_one_that_does_not_end_is_none() {
        let watches = Watches::new(1);
        let mut watchdog = Watchdog::new(watches.clone(), THREE);
        for commit in 1..=5 {
            watches.of(0).set_committing(Some(MonotonicTime(Duration::from_secs(commit))));
            assert_eq!(watchdog.look(), None);
        }
        let looks = [(); 3].map(|()| watchdog.look().is_some());
        assert_eq!(looks, [false, false, true]);
    }

    #[test]
    fn a_loop_that_has_ended_stands_still_by_right() {
        let watches = Watches::new(1);
        watches.of(0).publish(Snapshot { phase: Phase::Stopped, ..taken(1) });
        let mut watchdog = Watchdog::new(watches, THREE);
        assert!([(); 9].iter().all(|()| watchdog.look().is_none()));
    }

    /// Runs this very test in a process of its own, which the watchdog ends.
    #[test]
    fn the_process_ends_with_its_own_code() {
        if std::env::var_os(CHILD).is_some() {
            Watchdog::new(Watches::new(1), THREE).spawn().unwrap();
            std::thread::park_timeout(Duration::from_mins(1));
            panic!("nobody has ended this process");
        }
        let name = "watchdog::tests::the_process_ends_with_its_own_code";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let ended = child.args([name, "--exact"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(STANDS_STILL), "{ended:?}");
    }

    const CHILD: &str = "TIDEGATE_TEST_OF_THE_WATCHDOG";
}
