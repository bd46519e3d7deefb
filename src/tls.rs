//! What the TLS connections of this program have in common; those to the brokers are librdkafka's own.

use std::path::PathBuf;

use openssl::x509::X509VerifyResult;

/// The file with the certificates that the system trusts. This OpenSSL was not installed by the system, so it does not know
/// where that is.
pub(crate) fn system_certificates() -> Option<PathBuf> {
    openssl_probe::probe().cert_file
}

/// What is wrong with a certificate that is not accepted, as far as the remedies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It is for another host.
    OtherHost,
    /// It was good until some time ago.
    Expired,
    /// It will be good.
    NotYetValid,
    /// No authority that is trusted has signed it.
    Untrusted,
}

impl Flaw {
    pub(crate) fn of(refused: X509VerifyResult) -> Self {
        let said = refused.error_string();
        if said.contains("mismatch") {
            Self::OtherHost
        } else if said.contains("expired") {
            Self::Expired
        } else if said.contains("not yet valid") {
            Self::NotYetValid
        } else {
            Self::Untrusted
        }
    }
}
