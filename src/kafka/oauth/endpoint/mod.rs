//! One request for a token (RFC 6749, section 4.4.2).

#[cfg(test)]
mod tests;

use std::fs::File;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use futures_util::StreamExt as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use openssl::base64;
use openssl::ssl::{ErrorCode, SslConnector, SslMethod};
use openssl::x509::X509VerifyResult;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use super::Token;
use crate::config::OAuth;
use crate::event_time::EventTime;
use crate::tls::{Flaw, system_certificates};

/// Why there is no token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) text: String,
    /// Waiting does not mend it.
    pub(super) lasting: bool,
}

fn lasting(text: impl Into<String>) -> Problem {
    Problem { text: text.into(), lasting: true }
}

fn passing(text: impl Into<String>) -> Problem {
    Problem { text: text.into(), lasting: false }
}

/// Asks for a token, with a limit on the time and the size of the answer. `now` is when the token's life begins.
pub(super) fn ask(settings: &OAuth, now: EventTime, patience: Duration) -> Result<Token, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| passing(format!("no runtime: {error}")))?;
    let asked = runtime.block_on(async { timeout(patience, exchange(settings)).await });
    let (status, body) =
        asked.unwrap_or_else(|_| Err(passing(format!("no answer within {patience:?}"))))?;
    if status.is_success() { token(&body, now) } else { Err(refusal(status, &body, settings)) }
}

async fn exchange(settings: &OAuth) -> Result<(StatusCode, Vec<u8>), Problem> {
    let endpoint = &settings.token_endpoint;
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port))
        .await
        .map_err(|error| passing(format!("cannot be reached: {error}")))?;
    if !endpoint.tls {
        return send(stream, settings).await;
    }
    let fault = |error: openssl::error::ErrorStack| lasting(format!("TLS: {error}"));
    let ssl = connector(settings)?.configure().and_then(|it| it.into_ssl(&endpoint.host));
    let mut stream = SslStream::new(ssl.map_err(fault)?, stream).map_err(fault)?;
    if let Err(error) = Pin::new(&mut stream).connect().await {
        let verified = stream.ssl().verify_result();
        return Err(match verified {
            X509VerifyResult::OK if error.code() == ErrorCode::SSL => {
                lasting(format!("no TLS there: {error}; is it an http address?"))
            }
            X509VerifyResult::OK => passing(format!("the TLS handshake broke off: {error}")),
            refused => lasting(certificate_problem(refused)),
        });
    }
    send(stream, settings).await
}

fn certificate_problem(refused: X509VerifyResult) -> String {
    let remedy = match Flaw::of(refused) {
        Flaw::OtherHost => "write the name in token_endpoint that the certificate is for",
        Flaw::Expired => "it has to be renewed there",
        Flaw::NotYetValid => "the clock here, or the one there, is wrong",
        Flaw::Untrusted => "name the certificate of its authority in kafka.oauth.ca_file",
    };
    let said = refused.error_string();
    format!("its certificate is not accepted: {said}; {remedy}")
}

fn connector(settings: &OAuth) -> Result<SslConnector, Problem> {
    let fault = |error: openssl::error::ErrorStack| lasting(format!("TLS: {error}"));
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(fault)?;
    let file = settings.ca_file.clone().or_else(system_certificates);
    let file = file.ok_or_else(|| {
        lasting("the system's certificates were not found; name those that are trusted in kafka.oauth.ca_file")
    })?;
    builder.set_ca_file(&file).map_err(|_| {
        let problem = match File::open(&file) {
            Err(error) => format!("it cannot be read ({error})"),
            Ok(_) => "no certificates are in it".to_owned(),
        };
        let file = file.display();
        lasting(format!(
            "kafka.oauth.ca_file, {file}: {problem}; it must have the certificate of the endpoint's authority, PEM"
        ))
    })?;
    Ok(builder.build())
}

async fn send<S>(stream: S, settings: &OAuth) -> Result<(StatusCode, Vec<u8>), Problem>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let broken = |error: hyper::Error| {
        let other = if settings.token_endpoint.tls { "" } else { "; is it an https address?" };
        if error.is_parse() {
            lasting(format!("no HTTP there: {error}{other}"))
        } else {
            passing(format!("the exchange broke off: {error}{other}"))
        }
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends with the answer; what goes wrong is told by the request.
    let _connection = tokio::spawn(connection);
    let mut form = "grant_type=client_credentials".to_owned();
    if let Some(scope) = &settings.scope {
        form.push_str("&scope=");
        form.push_str(&encoded(scope));
    }
    let request = Request::post(&settings.token_endpoint.path)
        .header(header::HOST, settings.token_endpoint.authority())
        .header(header::AUTHORIZATION, format!("Basic {}", credentials(settings)))
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .map_err(|error| lasting(format!("no such request can be made: {error}")))?;
    let answer = sender.send_request(request).await.map_err(broken)?;
    let status = answer.status();
    let mut parts = Body::new(answer.into_body()).into_data_stream();
    let mut body = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| passing(format!("the answer broke off: {error}")))?;
        if body.len() + part.len() > LARGEST {
            if !status.is_success() {
                // A page for people; the status says enough.
                return Ok((status, Vec::new()));
            }
            let kib = LARGEST / 1024;
            return Err(lasting(format!("the answer has more than {kib} KiB; {WHERE_TOKENS_ARE}")));
        }
        body.extend_from_slice(&part);
    }
    Ok((status, body))
}

/// What is in an answer, of a token or of an error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    access_token: Option<String>,
    token_type: Option<String>,
    expires_in: Option<serde_json::Value>,
    error: Option<String>,
    error_description: Option<String>,
}

fn token(body: &[u8], now: EventTime) -> Result<Token, Problem> {
    let wrong = |what: &str| lasting(format!("{what}; {WHERE_TOKENS_ARE}"));
    let answer: Answer =
        serde_json::from_slice(body).map_err(|_| wrong("the answer is not the JSON of a token"))?;
    let value = answer.access_token.filter(|token| !token.is_empty());
    let value = value.ok_or_else(|| wrong("the answer has no access_token"))?;
    if let Some(kind) = answer.token_type
        && !kind.eq_ignore_ascii_case("bearer")
    {
        return Err(wrong("the answer's token_type is not Bearer"));
    }
    let seconds = answer.expires_in.as_ref().and_then(|seconds| {
        seconds.as_f64().or_else(|| seconds.as_str().and_then(|text| text.parse().ok()))
    });
    let lifetime = seconds.map(|seconds| seconds * 1_000.0);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of our days are exact")]
    let lifetime = lifetime.or_else(|| Some(expiry(&value)? * 1_000.0 - now.0 as f64));
    let lifetime = lifetime.ok_or_else(|| {
        wrong("neither expires_in nor the token itself (claim exp) says how long it is good for")
    })?;
    if !lifetime.is_finite() || lifetime < 1.0 {
        return Err(passing(
            "the token has expired already; the clock here, or the one there, is wrong",
        ));
    }
    let lifetime = Duration::from_secs_f64((lifetime / 1_000.0).min(LONGEST_SECONDS));
    let expires = now.0.saturating_add(i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX));
    Ok(Token { value, expires, lifetime })
}

/// When a JSON Web Token says that it expires, in seconds since the epoch (RFC 7519, section 4.1.4).
fn expiry(token: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let claims = token.split('.').nth(1)?.replace('-', "+").replace('_', "/");
    let padding = "=".repeat(claims.len().wrapping_neg() % 4);
    let claims = base64::decode_block(&(claims + &padding)).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok().map(|claims| claims.exp)
}

/// What an answer without a token means (RFC 6749, section 5.2).
fn refusal(status: StatusCode, body: &[u8], settings: &OAuth) -> Problem {
    let answer: Answer = serde_json::from_slice(body).unwrap_or_default();
    let code = answer.error.unwrap_or_default();
    let remedy = match (code.as_str(), status.as_u16()) {
        ("invalid_scope", _) => "; kafka.oauth.scope must be one that this client may have",
        ("unauthorized_client" | "unsupported_grant_type", _) => {
            "; this client must be allowed to use client credentials (grant_type)"
        }
        ("invalid_client", _) | (_, 401 | 403) => {
            "; client_id and client_secret in [kafka.oauth] must be those that it knows"
        }
        // Who knows OAuth says with 400 what is wrong; many say it to those who come without TLS.
        ("", 400) | (_, 300..=399 | 404 | 405) => {
            "; token_endpoint must be the address where tokens are given"
        }
        _ => "",
    };
    let said = [code, answer.error_description.unwrap_or_default()];
    let said: Vec<_> = said.into_iter().filter(|text| !text.is_empty()).collect();
    let said = shown(&said.join(": "), settings);
    let said = if said.is_empty() { said } else { format!(" ({said})") };
    let text = format!("it answers {status}{said}{remedy}");
    let waits = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
    Problem { text, lasting: !waits }
}

/// What an endpoint says, as far as it may be shown: it may say the secret back, in any of the forms that it was sent in.
fn shown(said: &str, settings: &OAuth) -> String {
    let secret = settings.client_secret.expose();
    let forms = [credentials(settings), encoded(secret), secret.to_owned()];
    let said = forms.iter().fold(said.to_owned(), |said, form| said.replace(form, "***"));
    said.chars().filter(|character| !character.is_control()).take(MOST_SHOWN).collect()
}

/// Name and secret as the header has them: encoded as in a form first (RFC 6749, section 2.3.1).
fn credentials(settings: &OAuth) -> String {
    let secret = settings.client_secret.expose();
    let credentials = format!("{}:{}", encoded(&settings.client_id), encoded(secret));
    base64::encode_block(credentials.as_bytes())
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, &UNRESERVED_NOT).to_string()
}

/// What is not kept as it is in a form.
const UNRESERVED_NOT: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const WHERE_TOKENS_ARE: &str = "is token_endpoint the address where tokens are given?";

/// An answer takes milliseconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// No answer is larger, in bytes.
const LARGEST: usize = 64 * 1024;

/// A hundred years; times beyond are for ever.
const LONGEST_SECONDS: f64 = 3.15e9;

const MOST_SHOWN: usize = 200;
