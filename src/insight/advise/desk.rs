//! Where what a loop has observed is asked for, and handed over: the loop copies it only when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Observations;
use crate::event_time::MonotonicTime;

/// Readers ask, the loop answers at its next tick; clones are one and the same.
///
/// ```
/// use std::time::Duration;
/// use tidegate::event_time::{MonotonicTime, TumblingWindows};
/// use tidegate::insight::advise::{Desk, Observations};
///
/// let (desk, now) = (Desk::default(), MonotonicTime::default());
/// assert!(!desk.is_asked(now));
/// let ticket = desk.ask();
/// assert!(desk.is_asked(now) && desk.answer_to(ticket).is_none());
/// let windows = TumblingWindows::new(Duration::from_mins(1), 0).unwrap();
/// desk.answer(Observations::new(windows, Duration::ZERO), now);
/// assert!(!desk.is_asked(now) && desk.answer_to(ticket).is_some());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Desk(Arc<State>);

#[derive(Debug, Default)]
struct State {
    asked: AtomicU64,
    answer: Mutex<Answer>,
}

#[derive(Debug, Default)]
struct Answer {
    /// The last question that this answers.
    ticket: u64,
    at: Option<MonotonicTime>,
    observations: Option<Arc<Observations>>,
}

impl Desk {
    /// However many ask, a loop copies what it has observed no more often than this.
    pub const AT_MOST_EVERY: Duration = Duration::from_secs(1);

    /// Asks; with the ticket the answer is found.
    pub fn ask(&self) -> u64 {
        self.0.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the loop is to answer.
    pub fn is_asked(&self, now: MonotonicTime) -> bool {
        let asked = self.0.asked.load(Ordering::Relaxed);
        // Nobody has ever asked: what most loops pay.
        if asked == 0 {
            return false;
        }
        let answer = self.0.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.ticket < asked && answer.at.is_none_or(|at| now.since(at) >= Self::AT_MOST_EVERY)
    }

    /// Answers all that have asked.
    pub fn answer(&self, observations: Observations, now: MonotonicTime) {
        let ticket = self.0.asked.load(Ordering::Relaxed);
        let answer = Answer { ticket, at: Some(now), observations: Some(Arc::new(observations)) };
        *self.0.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// The answer to a question, once it is there.
    pub fn answer_to(&self, ticket: u64) -> Option<Arc<Observations>> {
        let answer = self.0.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.observations.clone().filter(|_| answer.ticket >= ticket)
    }
}
