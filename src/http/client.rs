//! Asks a running service over HTTP.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

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

/// The status code and the body of a GET; `url` has a scheme, a host and a port, `path` begins with a slash.
///
/// # Errors
/// See [`AskError`].
pub async fn get(url: &str, path: &str) -> Result<(u16, String), AskError> {
    let broken = |cause: String| AskError::Exchange { url: url.to_owned(), cause };
    let asked = timeout(PATIENCE, exchange(url, path)).await;
    asked.unwrap_or_else(|_| Err(broken(format!("not within {} s", PATIENCE.as_secs()))))
}

async fn exchange(url: &str, path: &str) -> Result<(u16, String), AskError> {
    let wrong = || AskError::Url(url.to_owned());
    let broken = |cause: String| AskError::Exchange { url: url.to_owned(), cause };
    let uri: Uri = url.trim_end_matches('/').parse().map_err(|_| wrong())?;
    let host = uri.host().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(wrong)?;
    let port = uri.port_u16().unwrap_or(80);
    let address = (host.trim_matches(['[', ']']), port);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|cause| AskError::Connect { url: url.to_owned(), cause })?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(error.to_string()))?;
    // It ends with the answer; what goes wrong is told by the request.
    let _connection = tokio::spawn(connection);
    let base = uri.path().trim_end_matches('/');
    let request = Request::get(format!("{base}{path}"))
        .header(header::HOST, format!("{host}:{port}"))
        .body(Body::empty())
        .map_err(|_| wrong())?;
    let answer = sender.send_request(request).await.map_err(|error| broken(error.to_string()))?;
    let code = answer.status().as_u16();
    let body = to_bytes(Body::new(answer.into_body()), LARGEST)
        .await
        .map_err(|error| broken(error.to_string()))?;
    Ok((code, String::from_utf8_lossy(&body).into_owned()))
}

/// An answer takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// No answer is larger.
const LARGEST: usize = 1024 * 1024;
