//! What an exporter answers: metrics and probes.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use crate::clock::ReadNow;
use crate::insight::ExportWatch;
use crate::metrics::{self, ExportMetrics};

/// What the answers are made from.
#[derive(Clone)]
pub struct ExportState {
    /// The series.
    pub metrics: ExportMetrics,
    /// Where the loop stands.
    pub watch: ExportWatch,
    /// The time.
    pub clock: ReadNow,
}

impl std::fmt::Debug for ExportState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExportState").field("watch", &self.watch).finish_non_exhaustive()
    }
}

pub(super) fn router(state: ExportState) -> Router {
    Router::new()
        .route("/metrics", get(render))
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .with_state(state)
}

async fn render(State(state): State<ExportState>) -> Response {
    match state.metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(cause) => {
            tracing::error!(
                error = &cause as &dyn std::error::Error,
                "metrics could not be written"
            );
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

async fn livez(State(state): State<ExportState>) -> Response {
    verdict("alive", state.watch.newest().stalled((state.clock)().monotonic))
}

async fn readyz(State(state): State<ExportState>) -> Response {
    verdict("ready", state.watch.newest().not_ready())
}

fn verdict(well: &str, reason: Option<String>) -> Response {
    match reason {
        None => Json(serde_json::json!({ "status": well })).into_response(),
        Some(reason) => {
            let failing = serde_json::json!({ "status": "failing", "reason": reason });
            (StatusCode::SERVICE_UNAVAILABLE, Json(failing)).into_response()
        }
    }
}
