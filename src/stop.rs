//! How the service is asked to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Asks the service to stop; clones are one and the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    requested: Mutex<bool>,
    draining: AtomicBool,
    thread: Condvar,
    task: tokio::sync::Notify,
}

impl Stop {
    /// Asks.
    pub fn request(&self) {
        *self.0.requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.thread.notify_all();
        self.0.task.notify_one();
    }

    /// Whether somebody has asked.
    pub fn requested(&self) -> bool {
        *self.0.requested.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to fire what is open, commit and end. Whether nobody had asked before.
    pub fn drain(&self) -> bool {
        !self.0.draining.swap(true, Ordering::Relaxed)
    }

    /// Whether somebody has asked for that.
    pub fn draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Waits this long, or until somebody asks.
    pub fn wait(&self, duration: Duration) {
        let requested = self.0.requested.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.thread.wait_timeout_while(requested, duration, |requested| !*requested));
    }

    pub(crate) async fn asked(&self) {
        self.0.task.notified().await;
    }
}
