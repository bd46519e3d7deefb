//! Asks a running service over HTTP.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Method, Request, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::tls::{self, Trust};
use crate::config::Secret;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Not an address of a service.
    #[error("`{0}` is no address of a service; write one such as http://127.0.0.1:8080")]
    Url(String),
    /// Nobody listens.
    #[error("no service answers at {url}; give the address of one with --url")]
    Connect {
        /// Where.
        url: String,
        /// Why not.
        #[source]
        cause: std::io::Error,
    },
    /// The exchange broke off.
    #[error("the service at {url} gave no answer: {cause}")]
    Exchange {
        /// Where.
        url: String,
        /// Why not.
        cause: String,
    },
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Call {
    /// Such as `PUT`.
    pub method: Method,
    /// It begins with a slash.
    pub path: String,
    /// What has to be brought along to be heard.
    pub token: Option<Secret>,
    /// JSON; `None`: no body.
    pub body: Option<String>,
    /// Who may answer over TLS; `None`: nobody, the address has to begin with `http:`.
    pub trust: Option<Trust>,
}

/// The status code and the body of a GET; `url` has a scheme, a host and a port, `path` begins with a slash.
///
/// # Errors
/// See [`AskError`].
pub async fn get(url: &str, path: &str) -> Result<(u16, String), AskError> {
    let (method, path) = (Method::GET, path.to_owned());
    send(url, Call { method, path, token: None, body: None, trust: None }).await
}

/// The status code and the body that a call is answered with.
///
/// # Errors
/// See [`AskError`].
pub async fn send(url: &str, call: Call) -> Result<(u16, String), AskError> {
    let broken = |cause: String| AskError::Exchange { url: url.to_owned(), cause };
    let asked = timeout(PATIENCE, exchange(url, call)).await;
    asked.unwrap_or_else(|_| Err(broken(format!("not within {} s", PATIENCE.as_secs()))))
}

async fn exchange(url: &str, call: Call) -> Result<(u16, String), AskError> {
    let wrong = || AskError::Url(url.to_owned());
    let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
    let host = uri.host().ok_or_else(wrong)?;
    let (trust, port) = match uri.scheme_str() {
        Some("http") => (None, 80),
        Some("https") => (Some(call.trust.as_ref().ok_or_else(wrong)?), 443),
        _ => return Err(wrong()),
    };
    let (name, port) = (host.trim_matches(['[', ']']), uri.port_u16().unwrap_or(port));
    let stream = TcpStream::connect((name, port))
        .await
        .map_err(|cause| AskError::Connect { url: url.to_owned(), cause })?;
    let base = uri.path().trim_end_matches('/');
    let mut request = Request::builder()
        .method(&call.method)
        .uri(format!("{base}{}", call.path))
        .header(header::HOST, format!("{host}:{port}"));
    if let Some(token) = &call.token {
        let mut value =
            HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| wrong())?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    if call.body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let body = call.body.clone().map_or_else(Body::empty, Body::from);
    let request = request.body(body).map_err(|_| wrong())?;
    let answered = match trust {
        None => answer(stream, request).await,
        Some(trust) => match tls::connect(trust, name, stream).await {
            Ok(stream) => answer(stream, request).await,
            Err(cause) => Err(cause),
        },
    };
    answered.map_err(|cause| AskError::Exchange { url: url.to_owned(), cause })
}

async fn answer<S>(stream: S, request: Request<Body>) -> Result<(u16, String), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let broken = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // It ends with the answer; what goes wrong is told by the request.
    let _connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(broken)?;
    let code = answer.status().as_u16();
    let body = to_bytes(Body::new(answer.into_body()), LARGEST)
        .await
        .map_err(|error| error.to_string())?;
    Ok((code, String::from_utf8_lossy(&body).into_owned()))
}

/// An answer takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// No answer is larger.
const LARGEST: usize = 1024 * 1024;
