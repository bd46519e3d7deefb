//! Waits, all of them for something and none without an end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tidegate::clock::Clock;

use super::file::{Exit, OUTPUTS, Until};
use super::names::{label, metric};
use super::world::World;
use crate::support::process::series;

/// Whether a wait is over; if not, what stands in the way.
pub(super) enum Seen {
    Enough,
    NotYet(String),
}

/// `Enough`, or what is seen instead.
pub(super) fn seen(enough: bool, instead: impl FnOnce() -> String) -> Seen {
    if enough { Seen::Enough } else { Seen::NotYet(instead()) }
}

/// How everything that moves stood when it last moved.
type Standing = (BTreeMap<String, usize>, Vec<Option<i64>>);

impl World<'_> {
    /// Asks until it is enough; `Err` with what was seen last if it never is.
    pub(super) fn patiently(
        &mut self,
        limit: Duration,
        mut ask: impl FnMut(&mut Self) -> Result<Seen, String>,
    ) -> Result<(), String> {
        let clock = Clock::start();
        loop {
            let passed = clock.monotonic().0;
            match ask(self)? {
                Seen::Enough => return Ok(()),
                Seen::NotYet(seen) if passed > limit => {
                    return Err(format!("not within {limit:?}: {seen}"));
                }
                Seen::NotYet(_) => pause(POLL),
            }
        }
    }

    pub(super) fn wait_until(&mut self, until: &Until, limit: Duration) -> Result<(), String> {
        let mut quiet = Quiet::default();
        self.patiently(limit, |world| world.holds(until, &mut quiet))
    }

    fn holds(&mut self, until: &Until, quiet: &mut Quiet) -> Result<Seen, String> {
        if let Some((nth, status)) = self.ended_by_itself().filter(|_| until.exited.is_none()) {
            if until.or_exit_nonzero && !status.success() {
                return Ok(Seen::Enough);
            }
            if !until.restart_on_exit {
                return Err(format!("instance {nth} ended by itself: {status}"));
            }
            self.restart_ended(nth)?;
        }
        if until.or_not_ready && self.codes("/readyz").contains(&Some(503)) {
            return Ok(Seen::Enough);
        }
        let mut lacking = Vec::new();
        let mut expect = |what: &str, holds: bool, expected: String, seen: String| {
            if !holds {
                lacking.push(format!("{what}: expected {expected}, seen {seen}"));
            }
        };
        if let Some(panes) = until.panes {
            let results = self.topic("out");
            let got = self.outputs.counts().get(&results).copied().unwrap_or(0);
            expect("panes", got >= panes, panes.to_string(), got.to_string());
        }
        if let Some(consumed) = until.consumed {
            let got = self.consumed();
            expect("consumed", got >= consumed, consumed.to_string(), got.to_string());
        }
        if let Some(ready) = until.ready {
            let codes = self.codes("/readyz");
            let code = if ready { 200 } else { 503 };
            expect("ready", codes.contains(&Some(code)), code.to_string(), format!("{codes:?}"));
        }
        for (name, expected) in &until.metric {
            // Of one instance: none has a claim to what another one has.
            let scrapes = self.scrape();
            let got: Result<Vec<_>, _> =
                scrapes.iter().map(|scrape| metric(name, scrape)).collect();
            let got = got?;
            let holds = got.iter().any(|got| same(expected, *got));
            expect(name, holds, expected.to_string(), format!("{got:?}"));
        }
        if let Some(wanted) = &until.broker {
            let up = *wanted != "down" && *wanted != "stopped";
            let got = self.broker_answers;
            expect("broker", got == up, wanted.to_string(), format!("answers: {got}"));
        }
        if let Some(exited) = &until.exited {
            let nth = exited.as_u64().or_else(|| exited["instance"].as_u64());
            let nth = nth.and_then(|nth| usize::try_from(nth).ok()).unwrap_or(self.last_signalled);
            let instance =
                self.instances.get_mut(&nth).ok_or_else(|| format!("no instance {nth}"))?;
            let status = instance.service.try_wait();
            let code = status.and_then(|status| status.code()).map(i64::from);
            let holds = exited["code"].as_i64().map_or(status.is_some(), |c| Some(c) == code);
            expect("exited", holds, exited.to_string(), format!("{status:?}"));
        }
        if let Some(seconds) = until.quiet_s {
            let still = quiet.lasts(self.standing());
            expect(
                "quiet",
                still.as_secs() >= seconds,
                format!("{seconds} s"),
                format!("{still:?}"),
            );
        }
        Ok(seen(lacking.is_empty(), || lacking.join("; ")))
    }

    fn restart_ended(&mut self, nth: usize) -> Result<(), String> {
        self.instances.remove(&nth);
        self.start(nth)
    }

    /// How many of the records that were written have been read, by all that any instance says of its partitions.
    pub(super) fn consumed(&mut self) -> i64 {
        let positions = self.positions();
        let input = self.input();
        let is_behind = |record: &&crate::support::record::Record| {
            positions.get(&record.partition).is_some_and(|position| record.offset < *position)
        };
        let consumed = self.written.visible(&input).filter(is_behind).count();
        i64::try_from(consumed).unwrap()
    }

    /// The offsets to read next, by partition.
    #[expect(clippy::cast_possible_truncation, reason = "offsets are whole, and small here")]
    fn positions(&mut self) -> BTreeMap<i32, i64> {
        let mut positions = BTreeMap::new();
        for scrape in self.scrape() {
            for (labels, value) in series(&scrape, "tidegate_consumed_offset") {
                let partition = label("partition", labels).and_then(|text| text.parse().ok());
                let position: &mut i64 = positions.entry(partition.unwrap()).or_default();
                *position = (*position).max(value as i64);
            }
        }
        positions
    }

    fn standing(&mut self) -> Standing {
        let committed = if self.broker_answers { self.committed() } else { Vec::new() };
        (self.outputs.counts().clone(), committed)
    }

    fn committed(&self) -> Vec<Option<i64>> {
        let partitions = self.partitions[self.scenario.input()];
        self.cluster.committed(&self.prefix, &self.input(), partitions)
    }

    /// The records before these offsets, or all, that are not committed yet.
    fn uncommitted(&self, positions: Option<&BTreeMap<i32, i64>>) -> usize {
        let committed = self.committed();
        let committed = |partition: i32| {
            let place = usize::try_from(partition).unwrap();
            committed.get(place).copied().flatten().unwrap_or(0)
        };
        let input = self.input();
        let is_left = |record: &&crate::support::record::Record| {
            let read = positions.is_none_or(|positions| {
                positions.get(&record.partition).is_some_and(|next| record.offset < *next)
            });
            read && record.offset >= committed(record.partition)
        };
        self.written.visible(&input).filter(is_left).count()
    }

    /// Waits until what has been read is committed, too: what the service counts, it counts with the commit.
    pub(super) fn wait_until_counted(&mut self) -> Result<(), String> {
        let positions = self.positions();
        self.patiently(SETTLED, |world| {
            let left = world.uncommitted(Some(&positions));
            Ok(seen(left == 0, || format!("{left} records that were read are not committed")))
        })?;
        pause(TICK);
        Ok(())
    }

    /// Waits until all that was written is committed, where an instance is there to do so, and nothing moves any more.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        if !self.broker_answers {
            return Err("the broker is away at the end of the case".to_owned());
        }
        let idle_timeout = self.scenario.service.config.idle_timeout_ms.unwrap_or(0);
        let still = TICK * 5 + Duration::from_millis(idle_timeout.min(10_000));
        let mut quiet = Quiet::default();
        self.patiently(SETTLED, |world| {
            let left = if world.running().is_empty() { 0 } else { world.uncommitted(None) };
            let lasts = quiet.lasts(world.standing());
            Ok(seen(left == 0 && lasts >= still, || {
                format!("{left} records are not committed, and nothing has moved for {lasts:?}")
            }))
        })?;
        for output in OUTPUTS {
            self.cluster.wait_for_transactions(&self.topic(output));
        }
        Ok(())
    }

    /// Waits for the end of an instance, by the time since it was asked to.
    pub(super) fn wait_for_exit(&mut self, exit: &Exit) -> Result<(), String> {
        let nth = exit.instance.unwrap_or(self.last_signalled);
        let limit = exit.within_ms.map_or(SETTLED, Duration::from_millis);
        let signalled = self.instances.get(&nth).and_then(|held| held.signalled.as_ref());
        let passed = signalled.map_or(Duration::ZERO, |(_, clock)| clock.monotonic().0);
        let status = self.wait_for_end(nth, limit.saturating_sub(passed))?;
        match exit.code {
            Some(code) if status.code() != Some(code) => {
                Err(format!("exit of instance {nth}: expected {code}, seen {status}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// For how long nothing has moved.
#[derive(Default)]
struct Quiet(Option<(Standing, Clock)>);

impl Quiet {
    fn lasts(&mut self, standing: Standing) -> Duration {
        match &self.0 {
            Some((before, clock)) if *before == standing => clock.monotonic().0,
            Some(_) | None => {
                self.0 = Some((standing, Clock::start()));
                Duration::ZERO
            }
        }
    }
}

/// Whether a metric is as expected: a number, or absent.
pub(super) fn same(expected: &Value, got: Option<f64>) -> bool {
    match (expected.as_f64(), got) {
        (Some(expected), Some(got)) => (expected - got).abs() < 1e-6,
        (None, None) => expected.is_null() || *expected == "absent",
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Lets time pass.
pub(super) fn pause(time: Duration) {
    let clock = Clock::start();
    while let Some(left) = time.checked_sub(clock.monotonic().0).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

const POLL: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_mins(1);
/// Longer than from one emission of the watermark to the next.
const TICK: Duration = Duration::from_millis(300);
