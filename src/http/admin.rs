//! Calls that change the running service, on a listener of their own: drain, and which lines the log has.
//!
//! Each has to bring the token along (RFC 6750); what is asked without it is not looked at. No body is larger than
//! [`LARGEST`], and none may take longer than [`BODY_WITHIN`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use openssl::memcmp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::{interval, timeout};

use super::page;
use super::server::Peer;
use crate::clock::ReadNow;
use crate::config::{Secret, duration};
use crate::event_time::PartitionId;
use crate::insight::{Overview, Phase, Watches, words};
use crate::log::{Control, InForce};
use crate::metrics::{AdminCall, AdminOutcome, Metrics};

/// What the calls act on.
#[derive(Clone)]
pub struct AdminState {
    /// What a call has to bring along.
    pub token: Secret,
    /// Where calls are counted.
    pub metrics: Metrics,
    /// The newest snapshots.
    pub watches: Watches,
    /// The time.
    pub clock: ReadNow,
    /// Asks the loops to drain.
    pub drain: Arc<dyn Fn() -> DrainAsked + Send + Sync>,
    /// The filter of the log; `None` where somebody else writes it.
    pub log: Option<Control>,
}

/// What became of the request to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainAsked {
    /// The first.
    Now,
    /// It had been asked for before.
    Before,
    /// The service is about to stop, and leaves windows open.
    Stopping,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").field("log", &self.log).finish_non_exhaustive()
    }
}

pub(super) fn router(state: AdminState) -> Router {
    Router::new()
        .route(DRAIN, post(drain))
        .route(LOG_LEVEL, get(log_level).put(set_log_level))
        .with_state(state.clone())
        .layer(from_fn_with_state(state, watch_over))
        .layer(axum::middleware::map_response(page::secure))
}

/// Goes back to the configured filter when another one's time is over, as long as the listener runs.
pub(super) async fn look_after_the_log(state: AdminState) {
    let Some(control) = state.log else { return };
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        control.look((state.clock)().monotonic);
    }
}

/// Lets those calls through that bring the token, and counts all.
async fn watch_over(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let call = match request.uri().path() {
        DRAIN => AdminCall::Drain,
        LOG_LEVEL => AdminCall::LogLevel,
        _ => AdminCall::Other,
    };
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let peer = peer.map(tracing::field::display);
    if !is_allowed(request.headers(), &state.token) {
        tracing::warn!(
            call = call.name(),
            peer,
            "an admin call without the right token is refused"
        );
        state.metrics.admin_request(call, AdminOutcome::Denied);
        let detail = "bring the token of the configuration along, as `Authorization: Bearer TOKEN`";
        let mut answer = problem(StatusCode::UNAUTHORIZED, "no valid token", detail);
        let scheme = header::HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        return answer;
    }
    let reads = request.method() == Method::GET;
    let answer = next.run(request).await;
    let outcome =
        if answer.status().is_success() { AdminOutcome::Done } else { AdminOutcome::Refused };
    if !reads {
        tracing::info!(call = call.name(), peer, outcome = outcome.name(), "an admin call");
    }
    state.metrics.admin_request(call, outcome);
    answer
}

/// Whether the token is there, by digests of one length compared in constant time: how long it takes tells nothing of
/// what is right in a wrong one.
fn is_allowed(headers: &HeaderMap, token: &Secret) -> bool {
    let given = headers.get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes);
    let given = given.and_then(|given| {
        let (scheme, token) = given.split_at_checked(SCHEME.len())?;
        scheme.eq_ignore_ascii_case(SCHEME).then_some(token)
    });
    let right = Sha256::digest(token.expose());
    let given = Sha256::digest(given.unwrap_or_default());
    memcmp::eq(&right, &given)
}

/// `POST` of this.
const DRAIN: &str = "/api/v1/admin/drain";

/// `GET` and `PUT` of this.
const LOG_LEVEL: &str = "/api/v1/admin/log-level";

const SCHEME: &[u8] = b"Bearer ";

/// What is wrong with a call (RFC 9457).
#[derive(Serialize)]
struct Problem {
    title: &'static str,
    status: u16,
    detail: String,
}

fn problem(code: StatusCode, title: &'static str, detail: impl Into<String>) -> Response {
    let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
    let problem = Problem { title, status: code.as_u16(), detail: detail.into() };
    (code, content_type, Json(problem)).into_response()
}

/// Reads a body, which is none or a JSON object.
async fn read<T: for<'de> Deserialize<'de>>(body: Body) -> Result<T, Response> {
    let bytes = match timeout(BODY_WITHIN, to_bytes(body, LARGEST)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            let detail = format!("the body is longer than {LARGEST} bytes, or broke off");
            return Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "no body", detail));
        }
        Err(_) => {
            let detail = format!("the body did not come within {} s", BODY_WITHIN.as_secs());
            return Err(problem(StatusCode::REQUEST_TIMEOUT, "no body", detail));
        }
    };
    let text = if bytes.is_empty() { b"{}" } else { bytes.as_ref() };
    serde_json::from_slice(text)
        .map_err(|error| problem(StatusCode::BAD_REQUEST, "not understood", error.to_string()))
}

/// The largest body, in bytes.
pub(super) const LARGEST: usize = 4 * 1024;

pub(super) const BODY_WITHIN: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// What a drain comes to.
#[derive(Serialize)]
struct Draining {
    status: &'static str,
    sentence: String,
    /// Partitions that are read here.
    partitions: usize,
    /// Those of the input; `None` where it is not known yet.
    input_partitions: Option<usize>,
    /// Windows held, of all subtasks.
    windows_open: usize,
    subtasks: Vec<DrainingSubtask>,
}

#[derive(Serialize)]
struct DrainingSubtask {
    subtask: u16,
    phase: &'static str,
    partitions: usize,
    windows_open: usize,
}

async fn drain(State(state): State<AdminState>, body: Body) -> Response {
    if let Err(fault) = read::<Nothing>(body).await {
        return fault;
    }
    let before = state.watches.overview();
    let asked = (state.drain)();
    if asked == DrainAsked::Stopping {
        let detail = "the service is stopping, and leaves its windows open for the next start";
        return problem(StatusCode::CONFLICT, "too late", detail);
    }
    let begun = begun(&state.watches).await;
    (StatusCode::ACCEPTED, Json(Draining::new(&before, &begun, asked))).into_response()
}

/// Where the subtasks stand once all have begun, or after a while.
async fn begun(watches: &Watches) -> Overview {
    let mut turns = interval(TURN);
    let mut overview = watches.overview();
    for _ in 0..BEGUN_WITHIN.as_millis() / TURN.as_millis() {
        if overview
            .subtasks()
            .all(|(_, snapshot)| has_begun(&snapshot.phase, snapshot.input_partitions))
        {
            break;
        }
        turns.tick().await;
        overview = watches.overview();
    }
    overview
}

fn has_begun(phase: &Phase, input_partitions: Option<usize>) -> bool {
    *phase == Phase::Stopped || (*phase == Phase::Draining && input_partitions.is_some())
}

impl Draining {
    fn new(before: &Overview, begun: &Overview, asked: DrainAsked) -> Self {
        let subtasks: Vec<_> = before
            .subtasks()
            .map(|(subtask, snapshot)| DrainingSubtask {
                subtask,
                phase: snapshot.phase.name(),
                partitions: snapshot.partitions.len(),
                windows_open: snapshot.windows_open,
            })
            .collect();
        // While the first have ended the others may have been given theirs.
        let here: BTreeSet<PartitionId> = before
            .subtasks()
            .chain(begun.subtasks())
            .flat_map(|(_, snapshot)| snapshot.partitions.iter().map(|partition| partition.id))
            .collect();
        let partitions = here.len();
        let input_partitions =
            begun.subtasks().filter_map(|(_, snapshot)| snapshot.input_partitions).max();
        let windows_open = subtasks.iter().map(|subtask| subtask.windows_open).sum();
        let already = match asked {
            DrainAsked::Before => " already",
            DrainAsked::Now | DrainAsked::Stopping => "",
        };
        let mut sentences = vec![format!(
            "Draining{already}: what is open in {} fires ({} held), all is committed, and the service ends with exit code \
             0. The next start goes on from there; records of windows that are closed by this are late.",
            words::counted(partitions as u64, "partition"),
            words::counted(windows_open as u64, "window")
        )];
        let elsewhere = input_partitions.map_or(0, |all| all.saturating_sub(partitions));
        if let Some(all) = input_partitions.filter(|_| elsewhere > 0) {
            sentences.push(format!(
                "{elsewhere} of {all} partitions are read by other members of the group: their windows stay open, and \
                 they go on with the partitions from here. Drain them too, or stop them."
            ));
        }
        let waiting = begun
            .subtasks()
            .filter(|(_, snapshot)| !has_begun(&snapshot.phase, snapshot.input_partitions));
        for (subtask, snapshot) in waiting {
            let why = snapshot.phase.blocked().map(|cause| format!(" ({cause})"));
            sentences.push(format!(
                "Subtask {subtask} is {}{}, and drains as soon as it has what it read.",
                snapshot.phase.name(),
                why.unwrap_or_default()
            ));
        }
        let sentence = sentences.join(" ");
        Self { status: "draining", sentence, partitions, input_partitions, windows_open, subtasks }
    }
}

/// How often it is looked whether all have begun.
const TURN: Duration = Duration::from_millis(20);

/// A loop sees it at its next tick, unless it has to wait for brokers.
const BEGUN_WITHIN: Duration = Duration::from_secs(2);

/// A filter that is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    filter: String,
    /// Such as `10m`.
    #[serde(rename = "for")]
    lasting: Option<String>,
}

/// The filter in force.
#[derive(Serialize)]
struct LogFilter {
    filter: String,
    configured: String,
    /// When the configured one comes back, in milliseconds since the epoch.
    until: Option<i64>,
    sentence: String,
}

async fn log_level(State(state): State<AdminState>) -> Response {
    match &state.log {
        Some(control) => filter(&state, control.in_force((state.clock)().monotonic)),
        None => no_log(),
    }
}

async fn set_log_level(State(state): State<AdminState>, body: Body) -> Response {
    let wanted: Wanted = match read(body).await {
        Ok(wanted) => wanted,
        Err(fault) => return fault,
    };
    let Some(control) = &state.log else { return no_log() };
    let refused = |detail: String| problem(StatusCode::BAD_REQUEST, "no filter", detail);
    let lasting = match wanted.lasting.as_deref().map(duration).transpose() {
        Ok(Some(Duration::ZERO)) => {
            return refused("for: is zero; leave it out, or write \"10m\"".to_owned());
        }
        Ok(lasting) => lasting,
        Err(fault) => return refused(format!("for: {fault}")),
    };
    match control.set(&wanted.filter, lasting, (state.clock)().monotonic) {
        Ok(in_force) => filter(&state, in_force),
        Err(error) => refused(error.to_string()),
    }
}

fn filter(state: &AdminState, in_force: InForce) -> Response {
    let InForce { filter, configured, remaining } = in_force;
    let until = remaining.map(|remaining| ((state.clock)().wall + remaining).0);
    let sentence = match remaining {
        Some(remaining) => {
            format!(
                "The log's filter is {filter}, for {} s; then {configured}.",
                remaining.as_secs()
            )
        }
        None if filter == configured => format!("The log's filter is {filter}, as configured."),
        None => format!(
            "The log's filter is {filter}, until it is changed or the service starts anew; configured is {configured}."
        ),
    };
    Json(LogFilter { filter, configured, until, sentence }).into_response()
}

fn no_log() -> Response {
    let detail = "the log is written by the program around the service, which decides what it has";
    problem(StatusCode::CONFLICT, "not here", detail)
}
