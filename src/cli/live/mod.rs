//! The live view: what the loop publishes, on a terminal as it changes, or as lines for a pipe.

mod lines;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;

pub use self::lines::Lines;

pub use self::screen::draw;

use crate::clock::Clock;
use crate::event_time::EventTime;
use crate::insight::{Snapshot, Watch};

/// What stays the same on a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveView {
    /// The first line.
    pub title: String,
    /// The names of the sources in the order of the configuration.
    pub topics: Vec<String>,
    /// Where the page is.
    pub link: Option<String>,
    /// What has to be said plainly, at the bottom, a line each.
    pub notes: Vec<String>,
    /// Whether colours may be used: not if the environment has a `NO_COLOR` that is not empty. Nothing is told by
    /// colour alone.
    pub color: bool,
}

/// What became of the records since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records read.
    pub records: u64,
    /// Records that went to the late topic.
    pub late: u64,
    /// Records that could not be used.
    pub dead_letters: u64,
    /// Records without a payload.
    pub tombstones: u64,
}

/// What is drawn at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Where the subtask stands.
    pub snapshot: &'a Snapshot,
    /// What became of the records, where that is known.
    pub counts: Option<Counts>,
    /// The present.
    pub wall: EventTime,
}

/// Why a view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// The person watching pressed `q` or Ctrl-C, or the reader of the lines went away.
    Quit,
}

impl LiveView {
    /// Draws on the terminal until `stopped` says so, somebody presses `q` or Ctrl-C, or a thread panics.
    /// `stopped` may wait as long as it is told for being asked to end, and says whether it was.
    ///
    /// Meanwhile nothing else may write to the terminal, logs neither. It is put back as it was at the end, also after
    /// an error or a panic.
    pub fn run(
        &self,
        watch: &Watch,
        counts: impl Fn() -> Option<Counts>,
        stopped: impl Fn(Duration) -> bool,
    ) -> io::Result<Ended> {
        // Also sets a panic hook that puts the terminal back, but for its cursor.
        let mut terminal = match ratatui::try_init() {
            Ok(terminal) => Restored(terminal),
            Err(error) => {
                ratatui::restore();
                return Err(error);
            }
        };
        let panicked = show_cursor_on_panic();
        loop {
            if panicked.load(Ordering::Relaxed) || stopped(Duration::ZERO) {
                return Ok(Ended::Stopped);
            }
            let snapshot = watch.snapshot();
            let scene = Scene { snapshot: &snapshot, counts: counts(), wall: Clock::wall() };
            terminal.0.draw(|frame| draw(frame, self, &scene))?;
            if event::poll(REFRESH)? && is_quit(&event::read()?) {
                return Ok(Ended::Quit);
            }
        }
    }

    /// Writes a line for each window that fires and for each change of status, and the sentence every few seconds, until
    /// `stopped` says so, as in [`LiveView::run`], or the reader is gone.
    pub fn run_plain(
        &self,
        out: impl Write,
        watch: &Watch,
        counts: impl Fn() -> Option<Counts>,
        stopped: impl Fn(Duration) -> bool,
    ) -> io::Result<Ended> {
        match self.write_lines(out, watch, counts, stopped) {
            Ok(()) => Ok(Ended::Stopped),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Ended::Quit),
            Err(error) => Err(error),
        }
    }

    fn write_lines(
        &self,
        out: impl Write,
        watch: &Watch,
        counts: impl Fn() -> Option<Counts>,
        stopped: impl Fn(Duration) -> bool,
    ) -> io::Result<()> {
        let mut lines = Lines::new(self, out);
        lines.start()?;
        loop {
            let snapshot = watch.snapshot();
            lines.observe(&Scene { snapshot: &snapshot, counts: counts(), wall: Clock::wall() })?;
            if stopped(REFRESH) {
                return Ok(());
            }
        }
    }
}

/// A terminal that is put back when this is dropped.
struct Restored(DefaultTerminal);

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Where a panic ends the process nothing is dropped, so what shows the cursor again is a hook too. The flag tells the
/// view not to draw over the message, which takes its time to be written.
fn show_cursor_on_panic() -> Arc<AtomicBool> {
    let panicked = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&panicked);
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        flag.store(true, Ordering::Relaxed);
        // If that fails, the panic is still worth being told.
        execute!(io::stdout(), Show).unwrap_or_default();
        hook(info);
    }));
    panicked
}

/// In raw mode Ctrl-C is a key like any other.
fn is_quit(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
        return false;
    };
    let control = modifiers.contains(KeyModifiers::CONTROL);
    matches!(code, KeyCode::Char('q' | 'Q')) || (control && matches!(code, KeyCode::Char('c')))
}

/// How often the view looks; as often as the loop publishes by default.
const REFRESH: Duration = Duration::from_millis(200);
