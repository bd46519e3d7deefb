//! Clients that end in threads of their own.
//!
//! librdkafka waits at a client's end for everything that is still under way in it, without a limit. A loop that made the
//! client may not wait for that: it would turn no more, and with it the group that waits for this member.

use std::ops::Deref;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A client that nobody waits for once it is not needed any more.
pub(super) struct EndsAside<C: Send + 'static>(Option<C>);

impl<C: Send + 'static> EndsAside<C> {
    pub(super) fn new(client: C) -> Self {
        Self(Some(client))
    }
}

impl<C: Send + 'static> Deref for EndsAside<C> {
    type Target = C;

    fn deref(&self) -> &C {
        match &self.0 {
            Some(client) => client,
            None => unreachable!("only the drop takes it"),
        }
    }
}

impl<C: Send + 'static> Drop for EndsAside<C> {
    fn drop(&mut self) {
        let Some(client) = self.0.take() else { return };
        let ending = Ending::begin();
        let end = move || {
            drop(client);
            drop(ending);
        };
        // Where there can be no thread, the client has ended once this returns.
        drop(thread::Builder::new().name("client-end".to_owned()).spawn(end));
    }
}

/// A client whose end has begun and is counted until it is over.
struct Ending;

impl Ending {
    fn begin() -> Self {
        *ENDING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        *ENDING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_all();
    }
}

/// Waits until the clients have ended that are about to, but not for longer than `limit`: what the process's own end takes
/// away under their hands may make them fail on the way. How many are left.
pub fn wait_for_clients(limit: Duration) -> usize {
    let ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = ENDED.wait_timeout_while(ending, limit, |ending| *ending > 0);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

/// How many clients are about to end.
static ENDING: Mutex<usize> = Mutex::new(0);

static ENDED: Condvar = Condvar::new();

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Something whose end takes until it is allowed.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().unwrap();
        }
    }

    #[test]
    fn nobody_waits_for_the_end_of_a_client_but_the_end_of_the_process() {
        let (allow, allowed) = mpsc::channel();
        drop(EndsAside::new(Slow(allowed)));
        assert!(wait_for_clients(Duration::from_millis(1)) > 0);
        allow.send(()).unwrap();
        // Those of other tests end as well.
        assert_eq!(wait_for_clients(Duration::from_mins(1)), 0);
    }
}
