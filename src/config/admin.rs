//! The listener for calls that change the running service.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::Secret;

/// Where it is, and who may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where to listen.
    pub listen: SocketAddr,
    /// What a call has to bring along.
    pub token: Secret,
    /// The certificate that is shown; `None`: calls are not encrypted.
    pub tls: Option<AdminTls>,
}

/// Both files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminTls {
    /// The certificate, with those that lead to its authority.
    pub certificate_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
}
