//! The only reader of the clocks.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::event_time::{EventTime, MonotonicTime, Now};

/// Reads both clocks; the monotonic one counts from here.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic time begins now.
    #[expect(clippy::disallowed_methods, reason = "the one place where the clock is read")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Both clocks at this moment.
    pub fn now(&self) -> Now {
        Now { monotonic: self.monotonic(), wall: Self::wall() }
    }

    /// This clock for those who only ask for the time.
    pub fn reader(self) -> ReadNow {
        Arc::new(move || self.now())
    }

    /// Time since this clock was started.
    pub fn monotonic(&self) -> MonotonicTime {
        MonotonicTime(self.start.elapsed())
    }

    /// The wall clock; times before 1970 are negative.
    #[expect(clippy::disallowed_methods, reason = "the one place where the clock is read")]
    pub fn wall() -> EventTime {
        let signed = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => EventTime(signed(since)),
            Err(before) => EventTime(-signed(before.duration())),
        }
    }
}

/// Tells the time when asked: a [`Clock`], or in a test whatever the test says.
pub type ReadNow = Arc<dyn Fn() -> Now + Send + Sync>;
