//! `GET /api/v1/explain`: why a window has or has not fired.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::HttpState;
use crate::insight::explain::{Question, QuestionError, explain as answer};

/// What is wrong with a request (RFC 9457).
#[derive(Serialize)]
struct Problem {
    title: &'static str,
    status: u16,
    detail: String,
}

pub(super) async fn explain(State(state): State<HttpState>, RawQuery(query): RawQuery) -> Response {
    let asked = Question::read(values(query.as_deref().unwrap_or_default()));
    let (overview, terms) = (state.watches.overview(), (state.terms)().explain);
    match asked.and_then(|asked| answer(&overview, &terms, &asked, (state.clock)())) {
        Ok(explanation) => Json(explanation).into_response(),
        Err(error) => problem(&error),
    }
}

fn problem(error: &QuestionError) -> Response {
    let code = StatusCode::BAD_REQUEST;
    let (title, status, detail) = ("not a question", code.as_u16(), error.to_string());
    let content_type = [(header::CONTENT_TYPE, "application/problem+json")];
    (code, content_type, Json(Problem { title, status, detail })).into_response()
}

/// The named values of a query.
fn values(query: &str) -> impl Iterator<Item = (String, String)> {
    let text = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (text(name), text(value))
    })
}
