//! How commands reach the admin listener of a running service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;

use super::{Configuration, Failure};
use crate::config::{Admin, Secret, read_token};
use crate::http::client::{Call, send};
use crate::http::{Method, Trust};

/// Where it listens, and what it asks for.
#[derive(Debug, Args)]
pub(super) struct Target {
    #[command(flatten)]
    configuration: Configuration,
    /// Where the service listens for admin calls, such as `http://127.0.0.1:8082`. Otherwise that of the configuration.
    #[arg(long)]
    url: Option<String>,
    /// A file with the token. Otherwise that of the configuration.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// For an address with https: the certificates of the authorities to trust, PEM. Otherwise the certificate of the
    /// configuration, or the system's authorities.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Problem {
    detail: String,
}

impl Target {
    /// Makes the call; the body of the answer.
    pub(super) fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<String, Failure> {
        let other = |error: String| Failure::Other(error.into());
        let given = self.token_file.as_deref().map(read_token).transpose().map_err(other)?;
        let (url, token, configured) = match (&self.url, given) {
            (Some(url), Some(token)) => (url.clone(), Secret::new(token), None),
            (url, given) => {
                let admin = self.configured()?;
                let token = given.map_or_else(|| admin.token.clone(), Secret::new);
                (url.clone().unwrap_or_else(|| own_address(&admin)), token, Some(admin))
            }
        };
        let certificate = configured.and_then(|admin| admin.tls).map(|tls| tls.certificate_file);
        let trust = match (&self.ca_file, certificate) {
            (Some(file), _) => Trust::Authorities(file.clone()),
            (None, Some(certificate)) => Trust::Certificate(certificate),
            (None, None) => Trust::System,
        };
        let path = path.to_owned();
        let call = Call { method, path, token: Some(token), body, trust: Some(trust) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let asked = runtime.block_on(send(&url, call));
        let (code, body) = asked.map_err(|error| Failure::Other(Box::new(error)))?;
        if (200..300).contains(&code) {
            return Ok(body);
        }
        let problem = serde_json::from_str::<Problem>(&body).map(|problem| problem.detail);
        Err(other(problem.unwrap_or_else(|_| {
            format!("{url} answers {code}; is it the admin listener of a tidegate of this version?")
        })))
    }

    fn configured(&self) -> Result<Admin, Failure> {
        let loaded = self.configuration.load()?;
        loaded.config.admin.ok_or_else(|| {
            let fault = "admin.listen: is off, so the service takes no admin calls; give the configuration of one that does, \
                         or --url and --token-file";
            Failure::Configuration(vec![fault.to_owned()])
        })
    }
}

/// Where it listens, as one asks on its own machine.
fn own_address(admin: &Admin) -> String {
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    let ip = match admin.listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, admin.listen.port()))
}

/// The sentence of an answer.
pub(super) fn sentence(body: &str) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct Answer {
        sentence: String,
    }
    let answer: Answer = serde_json::from_str(body)
        .map_err(|_| Failure::Other(format!("no answer of a tidegate: {body}").into()))?;
    Ok(answer.sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asks_where_it_listens() {
        let address = |listen: &str| {
            let token = Secret::new("x".repeat(16));
            own_address(&Admin { listen: listen.parse().unwrap(), token, tls: None })
        };
        assert_eq!(address("127.0.0.1:8082"), "http://127.0.0.1:8082");
        assert_eq!(address("0.0.0.0:8082"), "http://127.0.0.1:8082");
        assert_eq!(address("[::]:8082"), "http://[::1]:8082");
    }
}
