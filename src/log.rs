//! Where log lines go: text on a terminal, JSON elsewhere, standard error in both cases.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Log, LogFormat};

/// Begins to write the log of this process. A second call changes nothing.
pub fn start(log: &Log) {
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = match log.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let started = if json {
        let lines = builder.json().flatten_event(true).with_span_list(false).finish();
        lines.with(Counting(&WRITTEN)).try_init()
    } else {
        builder.finish().with(Counting(&WRITTEN)).try_init()
    };
    // Only a test has a subscriber already.
    started.unwrap_or_default();
}

/// How many lines the log has so far, by level.
pub fn lines() -> impl Iterator<Item = (&'static str, u64)> {
    WRITTEN.each()
}

/// Lines by level, in the order of [`LEVELS`].
struct Lines([AtomicU64; LEVELS.len()]);

impl Lines {
    const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; LEVELS.len()])
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        LEVELS.iter().zip(&self.0).map(|((_, name), lines)| (*name, lines.load(Ordering::Relaxed)))
    }
}

/// Counts the lines that are written.
struct Counting(&'static Lines);

impl<S: Subscriber> Layer<S> for Counting {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = event.metadata().level();
        for ((counted, _), lines) in LEVELS.iter().zip(&self.0.0) {
            lines.fetch_add(u64::from(counted == level), Ordering::Relaxed);
        }
    }
}

const LEVELS: [(Level, &str); 5] = [
    (Level::ERROR, "error"),
    (Level::WARN, "warn"),
    (Level::INFO, "info"),
    (Level::DEBUG, "debug"),
    (Level::TRACE, "trace"),
];

static WRITTEN: Lines = Lines::none();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_are_written_are_counted_and_no_others() {
        static LINES: Lines = Lines::none();
        let written = tracing_subscriber::fmt()
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
