//! Lines that repeat: each place in the code writes so many in an interval, and what is left out is summed up.
//!
//! The first line of an interval is always written, so nothing that happens is without a trace. Lines of the levels `debug`
//! and `trace` are not limited: whoever has asked for them wants all. A line that is written costs a look into a table.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::{Lines, SUPPRESSED};
use crate::clock::ReadNow;
use crate::config::RepeatLimit;
use crate::event_time::MonotonicTime;

/// Leaves out what repeats too often.
pub(super) struct Repeats {
    places: Mutex<Places>,
    now: ReadNow,
    counts: &'static Lines,
    /// Who tells what was left out when an interval ends.
    teller: OnceLock<Thread>,
}

impl Repeats {
    pub(super) fn new(limit: RepeatLimit, now: ReadNow) -> Arc<Self> {
        Self::counting(limit, now, &SUPPRESSED)
    }

    fn counting(limit: RepeatLimit, now: ReadNow, counts: &'static Lines) -> Arc<Self> {
        let places = Mutex::new(Places { limit, held: HashMap::new() });
        Arc::new(Self { places, now, counts, teller: OnceLock::new() })
    }

    /// From now on what was left out is told when its interval has ended.
    pub(super) fn tell_in_a_thread(self: &Arc<Self>) {
        let repeats = Arc::clone(self);
        let body = move || {
            loop {
                // Nothing is locked while it waits.
                let due = repeats.places().next_due();
                match due {
                    None => thread::park(),
                    Some(due) => thread::park_timeout(due.since((repeats.now)().monotonic)),
                }
                repeats.tell_due();
            }
        };
        // Without the thread it is told at the end.
        if let Ok(started) = thread::Builder::new().name("log".to_owned()).spawn(body) {
            self.teller.set(started.thread().clone()).unwrap_or_default();
        }
    }

    /// Tells what was left out in the intervals that have ended.
    pub(super) fn tell_due(&self) {
        let due = self.places().due((self.now)().monotonic);
        tell(&due);
    }

    /// Tells all of it.
    pub(super) fn tell_all(&self) {
        let due = self.places().due(MonotonicTime(Duration::MAX));
        tell(&due);
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_written(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == module_path!() {
            return true;
        }
        let verdict = self.places().on_line(metadata, (self.now)().monotonic);
        match verdict {
            Verdict::Write => return true,
            Verdict::Suppress => {}
            Verdict::SuppressFirst => {
                // What is formatted here may do anything, so nothing is locked meanwhile.
                let mut message = Message(String::new());
                event.record(&mut message);
                self.places().describe(metadata, message.0);
                if let Some(teller) = self.teller.get() {
                    teller.unpark();
                }
            }
        }
        self.counts.add(*metadata.level());
        false
    }
}

/// Has only those events written that are not left out.
#[derive(Clone)]
pub(super) struct Limiting(pub(super) Arc<Repeats>);

impl<S: Subscriber> Layer<S> for Limiting {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        self.0.is_written(event)
    }
}

/// What was written from each place in the code; there are only as many as the code has.
#[derive(Debug)]
struct Places {
    limit: RepeatLimit,
    held: HashMap<Identifier, Place>,
}

#[derive(Debug)]
struct Place {
    metadata: &'static Metadata<'static>,
    /// When the interval began.
    since: MonotonicTime,
    written: u32,
    /// Left out, and not told yet.
    suppressed: u64,
    /// The text of the first line that was left out.
    like: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Write,
    Suppress,
    /// It is the first one that nobody has been told of.
    SuppressFirst,
}

/// Lines that were left out.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    level: Level,
    /// File and line.
    place: String,
    suppressed: u64,
    like: String,
}

impl Places {
    fn on_line(&mut self, metadata: &'static Metadata<'static>, now: MonotonicTime) -> Verdict {
        let place = self.held.entry(metadata.callsite()).or_insert_with(|| Place {
            metadata,
            since: now,
            written: 0,
            suppressed: 0,
            like: String::new(),
        });
        if now.since(place.since) >= self.limit.interval {
            (place.since, place.written) = (now, 0);
        }
        if place.written < self.limit.lines {
            place.written += 1;
            return Verdict::Write;
        }
        place.suppressed += 1;
        if place.suppressed == 1 { Verdict::SuppressFirst } else { Verdict::Suppress }
    }

    fn describe(&mut self, metadata: &Metadata<'_>, like: String) {
        if let Some(place) = self.held.get_mut(&metadata.callsite()) {
            place.like = like;
        }
    }

    /// When the next interval ends of which there is something to tell.
    fn next_due(&self) -> Option<MonotonicTime> {
        let silenced = self.held.values().filter(|place| place.suppressed > 0);
        silenced.map(|place| MonotonicTime(place.since.0 + self.limit.interval)).min()
    }

    fn due(&mut self, now: MonotonicTime) -> Vec<Told> {
        let ended = |place: &&mut Place| now.since(place.since) >= self.limit.interval;
        let silenced = self.held.values_mut().filter(|place| place.suppressed > 0).filter(ended);
        let told = silenced.map(|place| {
            let (file, line) = (place.metadata.file(), place.metadata.line());
            Told {
                level: *place.metadata.level(),
                place: format!("{}:{}", file.unwrap_or("?"), line.unwrap_or(0)),
                suppressed: std::mem::take(&mut place.suppressed),
                like: std::mem::take(&mut place.like),
            }
        });
        told.collect()
    }
}

fn tell(all: &[Told]) {
    for Told { level, place, suppressed, like } in all {
        // The level of a line is part of its place in the code.
        match *level {
            Level::ERROR => tracing::error!(place, like, "suppressed {suppressed} lines like this"),
            Level::WARN => tracing::warn!(place, like, "suppressed {suppressed} lines like this"),
            _ => tracing::info!(place, like, "suppressed {suppressed} lines like this"),
        }
    }
}

/// Takes the message out of a line's fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            write!(self.0, "{value:?}").unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::Counting;
    use super::*;
    use crate::event_time::{EventTime, Now};

    /// What is written, to be looked at.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Bench {
        clock: Arc<Mutex<Duration>>,
        repeats: Arc<Repeats>,
        written: Written,
    }

    impl Bench {
        fn new(lines: u32, counts: &'static Lines) -> Self {
            let clock = Arc::new(Mutex::new(Duration::ZERO));
            let read = Arc::clone(&clock);
            let now: ReadNow = Arc::new(move || Now {
                monotonic: MonotonicTime(*read.lock().unwrap()),
                wall: EventTime(0),
            });
            let limit = RepeatLimit { lines, interval: Duration::from_secs(10) };
            let repeats = Repeats::counting(limit, now, counts);
            Self { clock, repeats, written: Written::default() }
        }

        fn run(&self, written: &'static Lines, lines: impl FnOnce()) {
            let writer = self.written.clone();
            let subscriber = tracing_subscriber::registry()
                .with(Limiting(self.repeats.clone()))
                .with(
                    tracing_subscriber::fmt::layer()
                        .with_ansi(false)
                        .without_time()
                        .with_writer(move || writer.clone()),
                )
                .with(Counting(written));
            tracing::subscriber::with_default(subscriber, lines);
        }

        fn at(&self, secs: u64) {
            *self.clock.lock().unwrap() = Duration::from_secs(secs);
        }

        fn text(&self) -> String {
            String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn counted(lines: &Lines) -> Vec<(&'static str, u64)> {
        lines.each().filter(|(_, lines)| *lines > 0).collect()
    }

    #[test]
    fn a_place_writes_so_many_lines_in_an_interval_and_the_rest_is_summed_up() {
        static SUPPRESSED: Lines = Lines::none();
        static WRITTEN: Lines = Lines::none();
        let bench = Bench::new(3, &SUPPRESSED);
        bench.run(&WRITTEN, || {
            let repeat = |times: u32| {
                for number in 0..times {
                    tracing::warn!(number, "the same again");
                }
            };
            repeat(10);
            tracing::error!("another place");
            bench.at(9);
            bench.repeats.tell_due();
            assert!(!bench.text().contains("suppressed"), "the interval has not ended");
            assert_eq!(bench.repeats.places().next_due(), Some(at(10)));
            bench.at(10);
            bench.repeats.tell_due();
            bench.repeats.tell_due();
            assert_eq!(bench.repeats.places().next_due(), None);
            repeat(1);
            bench.at(19);
            repeat(3);
            bench.repeats.tell_all();
        });
        let text = bench.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 9, "{text}");
        for (line, expected) in lines.iter().zip([
            "WARN tidegate::log::repeats::tests: the same again number=0",
            "number=1",
            "number=2",
            "ERROR tidegate::log::repeats::tests: another place",
            "WARN tidegate::log::repeats: suppressed 7 lines like this place=\"src/log/repeats.rs:",
            "number=0",
            "number=0",
            "number=1",
            "suppressed 1 lines like this",
        ]) {
            assert!(line.contains(expected), "no {expected} in {line}:\n{text}");
        }
        assert!(lines[4].contains("like=\"the same again\""), "{text}");
        assert_eq!(counted(&SUPPRESSED), [("warn", 8)]);
        assert_eq!(counted(&WRITTEN), [("error", 1), ("warn", 8)]);
    }

    #[test]
    fn errors_are_limited_too_but_never_the_first_and_details_are_not() {
        static SUPPRESSED: Lines = Lines::none();
        static WRITTEN: Lines = Lines::none();
        let bench = Bench::new(1, &SUPPRESSED);
        bench.run(&WRITTEN, || {
            for second in 0..30 {
                bench.at(second);
                tracing::error!("again");
                tracing::debug!("a detail");
            }
        });
        assert_eq!(counted(&WRITTEN), [("error", 3), ("debug", 30)]);
        assert_eq!(counted(&SUPPRESSED), [("error", 27)]);
    }

    #[test]
    fn what_is_told_is_not_left_out_itself() {
        static SUPPRESSED: Lines = Lines::none();
        static WRITTEN: Lines = Lines::none();
        let bench = Bench::new(1, &SUPPRESSED);
        bench.run(&WRITTEN, || {
            for round in 0..5 {
                bench.at(round * 10);
                tracing::info!("first");
                tracing::info!("second");
                (0..2).for_each(|_| tracing::info!("again"));
                bench.at(round * 10 + 10);
                bench.repeats.tell_due();
            }
        });
        assert_eq!(bench.text().matches("suppressed 1 lines like this").count(), 5);
    }

    #[test]
    fn whoever_waits_for_the_end_of_an_interval_holds_nobody_up() {
        static SUPPRESSED: Lines = Lines::none();
        static WRITTEN: Lines = Lines::none();
        let bench = Bench::new(1, &SUPPRESSED);
        bench.repeats.tell_in_a_thread();
        let (done, ended) = std::sync::mpsc::channel();
        thread::spawn(move || {
            bench.run(&WRITTEN, || (0..1_000).for_each(|_| tracing::warn!("again")));
            done.send(()).unwrap();
        });
        assert_eq!(ended.recv_timeout(Duration::from_mins(1)), Ok(()));
        assert_eq!(counted(&SUPPRESSED), [("warn", 999)]);
    }

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime(Duration::from_secs(secs))
    }
}
