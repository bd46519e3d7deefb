//! Where the tokens come from that the brokers are shown (SASL OAUTHBEARER).

use std::fmt;
use std::path::PathBuf;

use super::export::Secret;

/// The client credentials of an OAuth 2.0 client (RFC 6749, section 4.4) and who gives tokens for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth {
    /// Who is asked.
    pub token_endpoint: TokenEndpoint,
    /// The name of the client.
    pub client_id: String,
    /// Its password.
    pub client_secret: Secret,
    /// What the token is to be good for, in words of the endpoint, with spaces between them.
    pub scope: Option<String>,
    /// What the brokers are told besides the token (RFC 7628, section 3.1).
    pub extensions: Vec<(String, String)>,
    /// The certificates of the authorities that are trusted; `None`: the system's.
    pub ca_file: Option<PathBuf>,
}

/// The address of a token endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenEndpoint {
    /// Whether the connection is encrypted and the endpoint's certificate verified.
    pub tls: bool,
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What follows, beginning with a slash.
    pub path: String,
}

impl TokenEndpoint {
    /// Host and port as they are written in an address.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for TokenEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}
