//! Tokens for brokers that ask for SASL OAUTHBEARER, got with client credentials.
//!
//! librdkafka asks for a token by an event, which a client sees when it polls. Clients here that look, administer or wait in
//! a transaction do not poll, and those that do must not stand still while an endpoint does not answer. So one thread for
//! all clients of the process gets the tokens, and hands each of them to every client as soon as it is there. Until its
//! first token a client makes no connection.

mod endpoint;
mod held;
#[cfg(test)]
pub(super) mod tests;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use held::Slot;
pub(super) use held::{Held, Native};

use crate::clock::Clock;
use crate::config::OAuth;
use crate::event_time::MonotonicTime;
use crate::pipeline::SourceError;

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no token from {endpoint} (kafka.oauth): {problem}")]
pub struct TokenError {
    /// Who was asked.
    pub endpoint: String,
    /// What is wrong, and what would be right.
    pub problem: String,
    /// Waiting does not mend it.
    pub lasting: bool,
}

/// A token and what librdkafka wants to know of it.
#[derive(Clone)]
struct Token {
    value: String,
    /// Milliseconds since the epoch.
    expires: i64,
    lifetime: Duration,
}

/// Keeps the clients of this process in tokens, as long as somebody holds it.
pub(super) struct Tokens(Arc<Shared>);

struct Shared {
    settings: OAuth,
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// Why the last try brought none.
    failure: Option<TokenError>,
    clients: Vec<Weak<Slot>>,
    /// When the brokers refused a token for the first time, and for the last, without a pause in between.
    refused: Option<(MonotonicTime, MonotonicTime)>,
    ended: bool,
}

impl State {
    /// Whether there is a token that is still good.
    fn has_token(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.expires > Clock::wall().0)
    }
}

impl Tokens {
    /// Those of these settings: all subtasks of a process share them.
    pub(super) fn of(settings: &OAuth, clock: Clock) -> Arc<Self> {
        static ALL: Mutex<Vec<Weak<Tokens>>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|tokens| tokens.strong_count() > 0);
        let mut there = all.iter().filter_map(Weak::upgrade);
        if let Some(tokens) = there.find(|tokens| tokens.0.settings == *settings) {
            return tokens;
        }
        let tokens = Arc::new(Self::start(settings.clone(), clock));
        all.push(Arc::downgrade(&tokens));
        tokens
    }

    fn start(settings: OAuth, clock: Clock) -> Self {
        let shared = Arc::new(Shared::new(settings, clock));
        let keeper = Arc::clone(&shared);
        let started = thread::Builder::new().name("oauth".to_owned()).spawn(move || keeper.keep());
        if let Err(error) = started {
            let problem = format!("starting a thread: {error}");
            shared.lock().failure = Some(shared.error(problem, true));
        }
        Self(shared)
    }

    /// Why there is no token; `None` where there is one that is still good, and while the first try is under way.
    pub(super) fn failure(&self) -> Option<TokenError> {
        let state = self.0.lock();
        if state.has_token() { None } else { state.failure.clone() }
    }

    /// Waits for the first token, or the first failure.
    pub(super) fn first(&self) -> Result<(), TokenError> {
        let state = self.0.lock();
        let none_yet = |state: &mut State| state.token.is_none() && state.failure.is_none();
        let waited = self.0.changed.wait_timeout_while(state, FIRST_WITHIN, none_yet);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match &state.failure {
            Some(failure) if !state.has_token() => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// What it means that the brokers refuse a token after they have taken others: where no new one could be got in time
    /// it has expired, and while it expires a client signs in anew more often than a broker allows.
    pub(super) fn refused(&self, cause: String) -> SourceError {
        self.refused_at(self.0.clock.monotonic(), cause)
    }

    fn refused_at(&self, now: MonotonicTime, cause: String) -> SourceError {
        if let Some(failure) = self.failure() {
            let cause = failure.to_string();
            return if failure.lasting {
                SourceError::Fatal(cause)
            } else {
                SourceError::Retry(cause)
            };
        }
        let mut state = self.0.lock();
        let first = state.refused.filter(|(_, last)| now.since(*last) < PAUSE);
        let first = first.map_or(now, |(first, _)| first);
        state.refused = Some((first, now));
        if now.since(first) < REFUSED_FOR {
            SourceError::Retry(cause)
        } else {
            SourceError::Fatal(cause)
        }
    }

    fn register(&self, slot: &Arc<Slot>) {
        let mut state = self.0.lock();
        if let Some(token) = &state.token {
            // What a client has against a token was found when the token came.
            drop(slot.hand_over(token, &self.0.settings));
        }
        state.clients.push(Arc::downgrade(slot));
    }
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn new(settings: OAuth, clock: Clock) -> Self {
        Self { settings, clock, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, problem: String, lasting: bool) -> TokenError {
        TokenError { endpoint: self.settings.token_endpoint.to_string(), problem, lasting }
    }

    /// Gets one token after the other until nobody needs them any more.
    fn keep(&self) {
        let mut wait = FIRST_RETRY;
        loop {
            let got = endpoint::ask(&self.settings, Clock::wall(), endpoint::PATIENCE);
            let got = got.map_err(|problem| self.error(problem.text, problem.lasting));
            let pause = if let Some(lifetime) = self.take(got) {
                wait = FIRST_RETRY;
                // librdkafka would ask after 80 %, and signs in anew after 90 %.
                lifetime.mul_f64(0.7).max(FIRST_RETRY)
            } else {
                let pause = wait;
                wait = (wait * 2).min(LONGEST_RETRY);
                pause
            };
            if self.ended_within(pause) {
                return;
            }
        }
    }

    /// Takes what came, and hands a token on. How long it is good for.
    fn take(&self, got: Result<Token, TokenError>) -> Option<Duration> {
        let mut state = self.lock();
        let got = got.and_then(|token| {
            state.clients.retain(|slot| slot.strong_count() > 0);
            let clients = state.clients.iter().filter_map(Weak::upgrade);
            for slot in clients {
                slot.hand_over(&token, &self.settings)
                    .map_err(|problem| self.error(problem, true))?;
            }
            Ok(token)
        });
        let lifetime = match got {
            Ok(token) => {
                if state.failure.take().is_some() {
                    tracing::info!("the token endpoint gives tokens again");
                }
                let lifetime = token.lifetime;
                tracing::debug!(lifetime_ms = lifetime.as_millis(), "a new token");
                state.token = Some(token);
                Some(lifetime)
            }
            Err(failure) => {
                if state.failure.as_ref() == Some(&failure) {
                    tracing::debug!(error = %failure, "still no token");
                } else {
                    let good = state.has_token();
                    tracing::warn!(error = %failure, the_last_is_still_good = good, "no new token; asking again");
                }
                state.failure = Some(failure);
                None
            }
        };
        self.changed.notify_all();
        lifetime
    }

    fn ended_within(&self, pause: Duration) -> bool {
        let until = MonotonicTime(self.clock.monotonic().0 + pause);
        let mut state = self.lock();
        loop {
            let left = until.since(self.clock.monotonic());
            if state.ended || left.is_zero() {
                return state.ended;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The first pause after a try that brought nothing, and the shortest between two tokens.
const FIRST_RETRY: Duration = Duration::from_secs(1);

const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// So long must brokers refuse good tokens until no other will be taken either.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// A client that is refused tries again at least every 5 s; after this much silence it was not refused.
const PAUSE: Duration = Duration::from_secs(15);

/// The endpoint is given up before that.
const FIRST_WITHIN: Duration = Duration::from_secs(15);
