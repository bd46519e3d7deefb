//! `/api/v1/advise`: what fits the topics by the records of the last hour, worked out beside the loop.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::HttpState;
use crate::config::duration;
use crate::insight::advise::{Advice, Observations, Terms};

/// What was asked for.
#[derive(Clone, Debug, Default)]
struct Asked {
    topic: Option<String>,
    bound: Option<Duration>,
    max_delay: Option<Duration>,
    batch_period: Option<Duration>,
}

#[derive(Serialize)]
struct Answer {
    now: i64,
    /// For each topic.
    advice: Vec<Advice>,
    /// The same as text.
    text: Vec<String>,
}

#[derive(Serialize)]
struct Fault {
    error: String,
}

pub(super) async fn advise(State(state): State<HttpState>, RawQuery(query): RawQuery) -> Response {
    let asked = match read(query.as_deref().unwrap_or_default()) {
        Ok(asked) => asked,
        Err(error) => return fault(StatusCode::BAD_REQUEST, error),
    };
    let (topic, terms) = (asked.topic.as_deref(), (state.terms)());
    if let Some(topic) = topic.filter(|topic| !terms.topics.iter().any(|known| known == topic)) {
        return fault(StatusCode::BAD_REQUEST, format!("no source reads topic `{topic}`"));
    }
    let Some(observed) = observations(&state).await else {
        let said = "the loop is busy and has not answered; ask again".to_owned();
        return fault(StatusCode::SERVICE_UNAVAILABLE, said);
    };
    let now = (state.clock)().wall.0;
    // With a thousand partitions it takes some tens of milliseconds: other requests go on meanwhile.
    let worked_out = tokio::task::spawn_blocking(move || {
        let advice = work_out(&observed, &terms.advise, &asked);
        let text = advice.iter().map(Advice::text).collect();
        Answer { now, advice, text }
    });
    match worked_out.await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => fault(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

fn fault(code: StatusCode, error: String) -> Response {
    (code, Json(Fault { error })).into_response()
}

/// What all loops have observed, as soon as they have said so.
pub(super) async fn observations(state: &HttpState) -> Option<Vec<Arc<Observations>>> {
    let tickets: Vec<_> = state.watches.each().map(|watch| (watch, watch.desk().ask())).collect();
    let mut turns = tokio::time::interval(TURN);
    for _ in 0..PATIENCE.as_millis() / TURN.as_millis() {
        turns.tick().await;
        let answers: Option<Vec<_>> =
            tickets.iter().map(|(watch, ticket)| watch.desk().answer_to(*ticket)).collect();
        if answers.is_some() {
            return answers;
        }
    }
    None
}

fn work_out(observed: &[Arc<Observations>], terms: &[Terms], asked: &Asked) -> Vec<Advice> {
    let wanted = |terms: &&Terms| asked.topic.as_ref().is_none_or(|topic| *topic == terms.topic);
    let topics = (0..).zip(terms).filter(|(_, terms)| wanted(terms));
    topics
        .map(|(number, terms)| {
            let partitions = observed.iter().flat_map(|seen| seen.of_topic(number)).collect();
            let terms = Terms {
                bound: asked.bound,
                max_delay: asked.max_delay,
                batch_period: asked.batch_period,
                is_live: true,
                ..terms.clone()
            };
            Advice::new(&partitions, &terms)
        })
        .collect()
}

fn read(query: &str) -> Result<Asked, String> {
    let mut asked = Asked::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let span = || duration(value).map(Some).map_err(|problem| format!("{name}: {problem}"));
        match name {
            "bound" => asked.bound = span()?,
            "max_delay" => asked.max_delay = span()?,
            "batch_period" => asked.batch_period = span()?,
            "topic" => asked.topic = Some(value.to_owned()),
            _ => {
                return Err(format!(
                    "`{name}` cannot be asked for; known here: bound, max_delay, batch_period, topic"
                ));
            }
        }
    }
    Ok(asked)
}

/// How often it is looked for answers.
const TURN: Duration = Duration::from_millis(20);

/// A loop answers at its next tick, but no more than once a second.
const PATIENCE: Duration = Duration::from_secs(3);
