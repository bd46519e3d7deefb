//! Where log lines go: text on a terminal, JSON elsewhere, standard error in both cases.
//!
//! Lines that repeat are limited, for each place in the code by itself, and which lines are written can be changed while the
//! process runs ([`Control`]).

mod control;
mod repeats;

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry, reload};

pub use control::{Control, ControlError, InForce};
use repeats::{Limiting, Repeats};

use crate::clock::Clock;
use crate::config::{Log, LogFormat};

/// Begins to write the log of this process. A second call changes nothing.
pub fn start(log: &Log) {
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    let json = match log.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = if json {
        lines.json().flatten_event(true).with_span_list(false).boxed()
    } else {
        lines.boxed()
    };
    let repeats = log.repeats.map(|limit| Repeats::new(limit, Clock::start().reader()));
    let started = registry()
        .with(filter)
        .with(repeats.clone().map(Limiting))
        .with(lines)
        .with(Counting(&WRITTEN))
        .try_init();
    // Only a test has a subscriber already.
    if started.is_err() {
        return;
    }
    CONTROL.set(Control::new(&log.filter, handle)).unwrap_or_default();
    if let Some(repeats) = repeats {
        repeats.tell_in_a_thread();
        REPEATS.set(repeats).unwrap_or_default();
    }
}

/// Where the filter of the running log can be changed; `None` where the log is not written by [`start`].
pub fn control() -> Option<Control> {
    CONTROL.get().cloned()
}

/// Says what was not written so far, at the end of the process.
pub fn finish() {
    if let Some(repeats) = REPEATS.get() {
        repeats.tell_all();
    }
}

/// How many lines the log has so far, by level.
pub fn lines() -> impl Iterator<Item = (&'static str, u64)> {
    WRITTEN.each()
}

/// How many lines were not written since they repeat, by level.
pub fn suppressed() -> impl Iterator<Item = (&'static str, u64)> {
    SUPPRESSED.each()
}

/// Lines by level, in the order of [`LEVELS`].
struct Lines([AtomicU64; LEVELS.len()]);

impl Lines {
    const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; LEVELS.len()])
    }

    fn add(&self, level: Level) {
        for ((counted, _), lines) in LEVELS.iter().zip(&self.0) {
            lines.fetch_add(u64::from(*counted == level), Ordering::Relaxed);
        }
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LEVELS.iter().zip(&self.0).map(|((_, name), lines)| (*name, lines.load(Ordering::Relaxed)))
    }
}

/// Counts the lines that are written.
struct Counting(&'static Lines);

impl<S: Subscriber> Layer<S> for Counting {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        self.0.add(*event.metadata().level());
    }
}

const LEVELS: [(Level, &str); 5] = [
    (Level::ERROR, "error"),
    (Level::WARN, "warn"),
    (Level::INFO, "info"),
    (Level::DEBUG, "debug"),
    (Level::TRACE, "trace"),
];

#[cfg(test)]
pub(crate) use control::tests as tests_of_control;

static WRITTEN: Lines = Lines::none();
static SUPPRESSED: Lines = Lines::none();
static CONTROL: OnceLock<Control> = OnceLock::new();
static REPEATS: OnceLock<std::sync::Arc<Repeats>> = OnceLock::new();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_are_written_are_counted_and_no_others() {
        static LINES: Lines = Lines::none();
        let written = fmt()
            .with_env_filter("warn")
            .with_writer(std::io::sink)
            .finish()
            .with(Counting(&LINES));
        tracing::subscriber::with_default(written, || {
            tracing::error!("one");
            tracing::warn!("one");
            tracing::warn!("two");
            tracing::debug!("not written");
        });
        let counted: Vec<_> = LINES.each().filter(|(_, lines)| *lines > 0).collect();
        assert_eq!(counted, [("error", 1), ("warn", 2)]);
    }
}
