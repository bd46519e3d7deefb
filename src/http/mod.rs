//! What the service answers over HTTP: metrics, probes, its state, and a page that shows it.
//!
//! Nothing here reaches into the loop. All answers are made from the newest snapshot and the counters, so a slow
//! client costs the loop nothing.

mod admin;
mod advise;
pub mod client;
mod connections;
mod explain;
mod export;
mod live;
mod page;
mod server;
mod status;
mod tls;

use std::fmt;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tracing::error;

pub use admin::{AdminState, DrainAsked};
pub use axum::http::Method;
pub use export::ExportState;
pub use server::{AdminError, BindError, Server};
pub use tls::Trust;

use crate::clock::ReadNow;
use crate::config::Config;
use crate::insight::{Overview, ReadTerms, Watches};
use crate::metrics::{self, Metrics};

/// What the answers are made from.
#[derive(Clone)]
pub struct HttpState {
    /// The series.
    pub metrics: Metrics,
    /// The newest snapshots.
    pub watches: Watches,
    /// The time.
    pub clock: ReadNow,
    /// What of the configuration the answers need.
    pub terms: ReadTerms,
}

impl fmt::Debug for HttpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpState").field("topics", &(self.terms)().topics).finish_non_exhaustive()
    }
}

/// What is wrong with the certificate of the admin listener, if there is one.
pub fn check_admin(config: &Config) -> Option<String> {
    let tls = config.admin.as_ref()?.tls.as_ref()?;
    tls::acceptor(tls).err()
}

fn router(state: HttpState, feed: live::Feed) -> Router {
    Router::new()
        .route("/metrics", get(render))
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/api/v1/status", get(status))
        .route("/api/v1/explain", get(explain::explain))
        .route("/api/v1/advise", get(advise::advise))
        .with_state(state)
        .merge(Router::new().route("/api/v1/live", get(live::live)).with_state(feed))
        .merge(page::router())
        .layer(axum::middleware::map_response(page::secure))
}

async fn render(State(state): State<HttpState>) -> Response {
    match state.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(cause) => {
            error!(error = &cause as &dyn std::error::Error, "metrics could not be written");
            (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n")
                .into_response()
        }
    }
}

/// The answer of a probe. Of several subtasks it tells of the one that is least well.
#[derive(Serialize)]
struct Verdict {
    status: &'static str,
    phase: &'static str,
    /// Why it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// What the Kafka client said last, while no broker can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<String>,
}

fn verdict(overview: &Overview, well: &'static str, reason: Option<String>) -> Response {
    let (code, status) = match reason {
        None => (StatusCode::OK, well),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "failing"),
    };
    let (phase, blocked) = (overview.phase().name(), overview.blocked().map(str::to_owned));
    (code, Json(Verdict { status, phase, reason, blocked })).into_response()
}

async fn livez(State(state): State<HttpState>) -> Response {
    let overview = state.watches.overview();
    verdict(&overview, "alive", overview.stalled((state.clock)().monotonic))
}

async fn readyz(State(state): State<HttpState>) -> Response {
    let overview = state.watches.overview();
    verdict(&overview, "ready", overview.not_ready())
}

async fn status(State(state): State<HttpState>) -> Response {
    let overview = state.watches.overview();
    Json(status::Status::new(&overview, &(state.terms)().topics, (state.clock)())).into_response()
}

#[cfg(test)]
mod tests;
