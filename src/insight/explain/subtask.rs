//! What one subtask has to say of a window.

use std::time::Duration;

use super::answer::{Explanation, Numbers, Partition, Window, WindowState};
use super::holder::Holder;
use super::{Cause, Terms, ms};
use crate::event_time::{AllIdle, EventTime, MonotonicTime, Now, TimeWindow, WatermarkStatus};
use crate::insight::{Phase, Snapshot, words};

/// A subtask that is asked.
pub(super) struct Asked<'a> {
    pub(super) number: u16,
    pub(super) snapshot: &'a Snapshot,
    pub(super) committing_since: Option<MonotonicTime>,
    pub(super) terms: &'a Terms,
    pub(super) window: Option<TimeWindow>,
    pub(super) now: Now,
}

/// Why nothing fires, whatever the partitions are.
struct Standing {
    cause: Cause,
    because: String,
    fires_when: String,
    earliest: Option<EventTime>,
    numbers: Numbers,
}

impl Asked<'_> {
    /// The less, the longer the window waits for this subtask.
    pub(super) fn headway(&self) -> (bool, bool, bool, Option<EventTime>) {
        let holds_it = self.window.is_some_and(|window| self.snapshot.open.contains(&window));
        (self.has_passed(), self.standing().is_none(), !holds_it, self.snapshot.least_clock)
    }

    pub(super) fn explain(&self) -> Explanation {
        let mut explanation = Explanation {
            window: self.window.map(|window| Window { start: window.start.0, end: window.end.0 }),
            state: self.state(),
            subtask: self.number,
            watermark: self.snapshot.least_clock.map(|time| time.0),
            needed_watermark: self.needed().map(|time| time.0),
            ..Explanation::nothing()
        };
        if let (Some(window), true) = (self.window, self.has_passed()) {
            explanation.sentence = self.fired(window, explanation.state);
            return explanation;
        }
        let Standing { cause, because, fires_when, earliest, numbers } =
            self.standing().unwrap_or_else(|| self.held(&mut explanation));
        let what = self.window.map_or_else(
            || "No window has a record yet, and there is no watermark".to_owned(),
            |window| format!("Window {} {}", words::window(window, self.now.wall), self.has_not()),
        );
        let at = match earliest {
            Some(at) if at > self.now.wall => format!(
                ", at the earliest at {} (in {})",
                words::time(at, self.now.wall),
                words::countdown(self.now.wall.behind(at))
            ),
            Some(_) | None => String::new(),
        };
        let verb = if self.window.is_some() { "it fires when" } else { "one begins when" };
        explanation.sentence = format!("{what}: {because}; {verb} {fires_when}{at}");
        explanation.cause = Some(cause);
        explanation.fires_when = Some(fires_when);
        explanation.earliest = earliest.map(|time| time.0);
        explanation.numbers = numbers;
        explanation
    }

    fn has_not(&self) -> &'static str {
        if self.state() == WindowState::Empty {
            "has no record yet, without which it never fires, and the watermark has not passed it"
        } else {
            "has not fired"
        }
    }

    /// The watermark at which the window fires.
    fn needed(&self) -> Option<EventTime> {
        self.window.map(TimeWindow::max_timestamp)
    }

    fn has_passed(&self) -> bool {
        self.needed().is_some_and(|needed| self.snapshot.least_clock >= Some(needed))
    }

    fn state(&self) -> WindowState {
        let Some(window) = self.window else { return WindowState::Empty };
        let snapshot = self.snapshot;
        if self.has_passed() {
            let end = window.max_timestamp() + self.terms.allowed_lateness;
            return if snapshot.least_clock >= Some(end) {
                WindowState::Closed
            } else {
                WindowState::Fired
            };
        }
        // Of very many windows only the first are named.
        let unnamed = snapshot.open.len() == Snapshot::OPEN
            && snapshot.open.last().is_some_and(|last| *last < window);
        if unnamed || snapshot.open.contains(&window) {
            WindowState::Open
        } else {
            WindowState::Empty
        }
    }

    fn fired(&self, window: TimeWindow, state: WindowState) -> String {
        let wall = self.now.wall;
        let what = words::window(window, wall);
        let watermark =
            self.snapshot.least_clock.map_or_else(String::new, |time| words::time(time, wall));
        let how = match self.snapshot.recent.iter().rev().find(|fired| fired.window == window) {
            Some(fired) => format!(
                "has fired with {}, the last pane at {}",
                words::counted(fired.on_time + fired.late, "pane"),
                words::time(fired.fired_at, wall)
            ),
            None => "has fired if it had records (it is none of those that fired last)".to_owned(),
        };
        let end = window.max_timestamp() + self.terms.allowed_lateness;
        let late = if state == WindowState::Closed {
            "records for it are late now and go to the late topic".to_owned()
        } else {
            format!(
                "records for it fire it again until the watermark is {}",
                words::time(end, wall)
            )
        };
        format!("Window {what} {how}: the watermark, {watermark}, has passed its end; {late}")
    }

    /// What keeps the whole subtask from firing.
    fn standing(&self) -> Option<Standing> {
        let snapshot = self.snapshot;
        let age = snapshot.taken.map(|taken| self.now.monotonic.since(taken));
        let blocked = |cause: Cause, since: Duration, because: String, fires_when: &str| Standing {
            cause,
            because,
            fires_when: fires_when.to_owned(),
            earliest: None,
            numbers: Numbers { blocked_for_ms: Some(ms(since)), ..Numbers::default() },
        };
        let committing = self.committing_since.map(|since| self.now.monotonic.since(since));
        let writing = snapshot.write_blocked_since.map(|since| self.now.monotonic.since(since));
        let ends = match snapshot.phase {
            Phase::Draining => Some("it fires what is open before it ends"),
            Phase::Stopping => Some("it commits and leaves windows open"),
            Phase::Stopped => Some("it has ended and left windows open"),
            Phase::Starting
            | Phase::Running
            | Phase::Restoring
            | Phase::Standby(_)
            | Phase::Blocked(_) => None,
        };
        if let Some(ends) = ends {
            let because = format!("the service is stopping ({ends})");
            return Some(Standing {
                numbers: Numbers::default(),
                ..blocked(Cause::Stopping, Duration::ZERO, because, "the service has started again")
            });
        }
        if let (Phase::Blocked(cause), Some(since)) = (&snapshot.phase, writing) {
            let what = if committing.is_some() {
                "a commit has been tried"
            } else {
                "writing has been tried"
            };
            let because =
                format!("the output is blocked: {what} for {} ({cause})", words::span(since));
            let when = "the brokers take what is written";
            return Some(blocked(Cause::OutputBlocked, since, because, when));
        }
        if let Some(since) = committing.filter(|since| *since > LONG_COMMIT) {
            let because = format!(
                "the output is blocked: a commit has been running for {}",
                words::span(since)
            );
            return Some(blocked(Cause::OutputBlocked, since, because, "the commit has ended"));
        }
        if let Some(age) = age.filter(|age| *age > LATE_TURN.max(self.terms.emit_interval * 5)) {
            let because = format!("the loop has not turned for {}", words::span(age));
            return Some(blocked(Cause::LoopNotTicking, age, because, "the loop turns again"));
        }
        if let Phase::Blocked(cause) = &snapshot.phase {
            let because = format!("the brokers cannot be reached ({cause})");
            let standing =
                blocked(Cause::BrokersUnreachable, Duration::ZERO, because, "they answer again");
            return Some(Standing { numbers: Numbers::default(), ..standing });
        }
        if !snapshot.restoring.is_empty() && snapshot.partitions.is_empty() {
            return Some(self.restoring());
        }
        snapshot.partitions.is_empty().then(|| self.not_assigned())
    }

    fn restoring(&self) -> Standing {
        let restoring = &self.snapshot.restoring;
        let read: u64 = restoring.iter().map(|partition| partition.read).sum();
        let end: u64 = restoring.iter().map(|partition| partition.end).sum();
        Standing {
            cause: Cause::Restoring,
            because: format!(
                "what open windows of {} held is being read back ({} of {})",
                words::counted(restoring.len() as u64, "partition"),
                words::count(read),
                words::counted(end, "changelog record")
            ),
            fires_when: "that has been read and the watermark passes its end".to_owned(),
            earliest: None,
            numbers: Numbers { restoring_partitions: Some(restoring.len()), ..Numbers::default() },
        }
    }

    fn not_assigned(&self) -> Standing {
        let phase = &self.snapshot.phase;
        let because = if let Phase::Standby(reason) = phase {
            format!("this instance stands by ({reason})")
        } else if *phase == Phase::Starting {
            "no partition has been assigned yet".to_owned()
        } else {
            "no partition is assigned here".to_owned()
        };
        Standing {
            cause: Cause::NotAssigned,
            because,
            fires_when: "partitions are assigned here and their watermarks pass its end".to_owned(),
            earliest: None,
            numbers: Numbers::default(),
        }
    }

    /// What the partitions keep back.
    fn held(&self, explanation: &mut Explanation) -> Standing {
        let snapshot = self.snapshot;
        let holder = |partition| Holder {
            partition,
            snapshot,
            terms: self.terms,
            now: self.now,
            taken: snapshot.taken.unwrap_or(self.now.monotonic),
            needed: self.needed(),
        };
        let active = snapshot.partitions.iter().filter(|partition| {
            partition.status == WatermarkStatus::Active
                && (partition.watermark.is_none() || partition.watermark < self.needed())
        });
        let mut below: Vec<_> = active.map(holder).collect();
        below.sort_by_key(|holder| {
            let first = Some(holder.partition.id) != snapshot.holder;
            (holder.partition.watermark, first, holder.partition.id)
        });
        let named = |holder: &Holder<'_>| {
            let id = holder.partition.id;
            Partition {
                topic: self.terms.topics.get(usize::from(id.topic)).cloned().unwrap_or_default(),
                partition: id.partition,
                watermark: holder.partition.watermark.map(|time| time.0),
                cause: holder.cause(),
                ahead_ms: holder.partition.paused.map(|paused| ms(paused.ahead)),
                resumes_at: holder.partition.paused.map(|paused| paused.resumes_at.0),
            }
        };
        explanation.holders = below.len();
        explanation.waiting_for = below.iter().take(Explanation::HOLDERS).map(named).collect();
        explanation.holder = explanation.waiting_for.first().cloned();
        let Some(first) = below.first() else { return self.nobody() };
        let holding = first.holding();
        let watermark = snapshot.watermark.map_or_else(
            || "there is no watermark yet, since".to_owned(),
            |time| format!("the watermark is held at {}, since", words::time(time, self.now.wall)),
        );
        let others = match below.len() - 1 {
            0 => String::new(),
            1 => " and 1 more partition holds it too".to_owned(),
            more => format!(" and {more} more partitions hold it too"),
        };
        let all = below.iter().map(|holder| holder.holding().earliest).max().flatten();
        Standing {
            cause: holding.cause,
            because: format!("{watermark} {}{others}", holding.because),
            fires_when: holding.fires_when,
            earliest: holding.earliest.and(all),
            numbers: first.numbers(),
        }
    }

    /// No active partition is below what is needed: all are idle, or the next emission fires it.
    fn nobody(&self) -> Standing {
        let snapshot = self.snapshot;
        let idle = |partition: &&crate::insight::PartitionSnapshot| {
            partition.status == WatermarkStatus::Idle
        };
        let all = snapshot.partitions.len();
        if snapshot.partitions.iter().filter(idle).count() < all {
            return Standing {
                cause: Cause::EventTimeSlow,
                because: "all active partitions have passed its end".to_owned(),
                fires_when: "watermarks are emitted next".to_owned(),
                earliest: Some(self.now.wall),
                numbers: Numbers::default(),
            };
        }
        let bounds = snapshot.partitions.iter().filter_map(|partition| partition.bound);
        let bound = bounds.max().unwrap_or_default();
        let timeouts = self.terms.sources.iter().filter_map(|source| source.idle_timeout);
        let delay = bound + timeouts.max().unwrap_or_default();
        let (policy, alone, earliest) = match self.terms.all_idle {
            AllIdle::Hold => ("hold", String::new(), None),
            AllIdle::Flush => ("flush", String::new(), None),
            AllIdle::WallClock => {
                let at = self.needed().map(|needed| needed + delay);
                ("wall_clock", format!(", or the clock is {} past its end", words::span(delay)), at)
            }
        };
        let who = if all == 1 {
            "its only partition is idle".to_owned()
        } else {
            format!("all {all} partitions are idle")
        };
        Standing {
            cause: Cause::AllIdle,
            because: format!("{who}, and all_idle = \"{policy}\" keeps the watermark where it is"),
            fires_when: format!(
                "a partition brings records that raise the watermark past its end{alone}"
            ),
            earliest,
            numbers: Numbers { bound_ms: Some(ms(bound)), ..Numbers::default() },
        }
    }
}

/// A commit takes some milliseconds; one that runs for longer than this is a cause.
const LONG_COMMIT: Duration = Duration::from_secs(2);

/// A loop that has not turned for this long is a cause; it turns at each emit interval.
const LATE_TURN: Duration = Duration::from_secs(5);
