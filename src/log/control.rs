//! Which lines are written, changed while the process runs.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

use crate::config::log_filter;
use crate::event_time::MonotonicTime;

/// The filter of the running log; clones are one and the same.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    reload: Box<dyn Fn(EnvFilter) -> bool + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What was configured, which it falls back to.
    configured: String,
    filter: String,
    until: Option<MonotonicTime>,
}

/// The filter that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Itself.
    pub filter: String,
    /// The one of the configuration.
    pub configured: String,
    /// After how long the one of the configuration is in force again; `None`: not by itself.
    pub remaining: Option<Duration>,
}

/// Why the filter stays what it is.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It is none.
    #[error("filter: {0}")]
    Filter(String),
    /// The log is gone, as at the end of the process.
    #[error("the log takes no other filter")]
    Gone,
}

impl Control {
    /// The control of a log with this filter.
    pub(super) fn new<S: 'static>(configured: &str, handle: Handle<EnvFilter, S>) -> Self {
        let reload = Box::new(move |filter| handle.reload(filter).is_ok());
        let configured = configured.to_owned();
        let state = State { filter: configured.clone(), configured, until: None };
        Self(Arc::new(Inner { reload, state: Mutex::new(state) }))
    }

    /// What is in force.
    pub fn in_force(&self, now: MonotonicTime) -> InForce {
        self.state().in_force(now)
    }

    /// Puts another filter in force, for a while or until the next one.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn set(
        &self,
        filter: &str,
        lasting: Option<Duration>,
        now: MonotonicTime,
    ) -> Result<InForce, ControlError> {
        self.put(self.state(), filter, lasting, now)
    }

    /// Goes back to the filter of the configuration when the other one's time is over.
    pub fn look(&self, now: MonotonicTime) {
        let state = self.state();
        if state.until.is_some_and(|until| now >= until) {
            let configured = state.configured.clone();
            // It was good at the start.
            self.put(state, &configured, None, now).map(drop).unwrap_or_default();
        }
    }

    /// Nobody else puts one in force meanwhile.
    fn put(
        &self,
        mut state: MutexGuard<'_, State>,
        filter: &str,
        lasting: Option<Duration>,
        now: MonotonicTime,
    ) -> Result<InForce, ControlError> {
        let parsed = log_filter(filter).map_err(ControlError::Filter)?;
        if !(self.0.reload)(parsed) {
            return Err(ControlError::Gone);
        }
        filter.clone_into(&mut state.filter);
        state.until = lasting.map(|lasting| MonotonicTime(now.0.saturating_add(lasting)));
        let in_force = state.in_force(now);
        // Who writes the log may ask for its filter.
        drop(state);
        let for_secs = lasting.map(|lasting| lasting.as_secs());
        tracing::info!(filter, for_secs, "the log has another filter");
        Ok(in_force)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn in_force(&self, now: MonotonicTime) -> InForce {
        InForce {
            filter: self.filter.clone(),
            configured: self.configured.clone(),
            remaining: self.until.map(|until| until.since(now)),
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Control").field(&*self.state()).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::{registry, reload};

    use super::*;

    /// A control, and the log that it controls.
    pub(crate) fn controlled() -> (Control, impl tracing::Subscriber + Send + Sync) {
        let (filter, handle) = reload::Layer::new(EnvFilter::new("info"));
        (Control::new("info", handle), registry().with(filter))
    }

    fn at(secs: u64) -> MonotonicTime {
        MonotonicTime(Duration::from_secs(secs))
    }

    #[test]
    fn a_filter_is_in_force_for_its_time_and_then_the_configured_one() {
        let (control, log) = controlled();
        tracing::subscriber::with_default(log, || {
            let details = || tracing::enabled!(tracing::Level::DEBUG);
            assert!(!details());
            let ten = Duration::from_secs(10);
            let set = control.set("info,tidegate::log=debug", Some(ten), at(5)).unwrap();
            assert_eq!(set.remaining, Some(ten));
            assert!(details());
            control.look(at(14));
            assert_eq!(control.in_force(at(14)).remaining, Some(Duration::from_secs(1)));
            assert!(details());
            control.look(at(15));
            assert!(!details());
            let configured = "info".to_owned();
            let expected = InForce { filter: configured.clone(), configured, remaining: None };
            assert_eq!(control.in_force(at(15)), expected);
            control.set("debug", None, at(20)).unwrap();
            control.look(at(100_000));
            assert!(details());
        });
    }

    #[test]
    fn what_is_no_filter_changes_nothing() {
        let (control, log) = controlled();
        tracing::subscriber::with_default(log, || {
            for (text, said) in
                [("debgu", "did you mean \"debug\""), ("info,a=loud", "loud"), ("", "empty")]
            {
                let error = control.set(text, None, at(0)).unwrap_err().to_string();
                assert!(error.contains(said), "{error}");
            }
            assert_eq!(control.in_force(at(0)).filter, "info");
        });
    }
}
