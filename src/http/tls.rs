//! Encryption of admin calls, by the OpenSSL that the Kafka client brings along.

use std::path::{Path, PathBuf};
use std::pin::Pin;

use openssl::pkey::PKey;
use openssl::ssl::{Ssl, SslAcceptor, SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::X509;
use tokio::net::TcpStream;
use tokio_openssl::SslStream;

use crate::config::AdminTls;
use crate::tls::system_certificates;

/// What the listener shows.
///
/// # Errors
/// What is wrong with the files, and the key that names them.
pub(super) fn acceptor(tls: &AdminTls) -> Result<SslAcceptor, String> {
    let AdminTls { certificate_file, key_file } = tls;
    let certificate_fault = |error: &dyn std::fmt::Display| {
        let file = certificate_file.display();
        format!("admin.tls_certificate_file: {file} has no certificate in PEM: {error}")
    };
    let key_fault = |error: &dyn std::fmt::Display| {
        let file = key_file.display();
        format!("admin.tls_key_file: {file} has no key in PEM that needs no password: {error}")
    };
    let internal = |error: openssl::error::ErrorStack| format!("admin: TLS: {error}");
    let mut builder =
        SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).map_err(internal)?;
    builder
        .set_certificate_chain_file(certificate_file)
        .map_err(|error| certificate_fault(&error))?;
    let pem = std::fs::read(key_file).map_err(|error| key_fault(&error))?;
    // Without the callback it would ask for the password on the terminal.
    let key =
        PKey::private_key_from_pem_callback(&pem, |_| Ok(0)).map_err(|error| key_fault(&error))?;
    builder.set_private_key(&key).and_then(|()| builder.check_private_key()).map_err(|_| {
        let (key, certificate) = (key_file.display(), certificate_file.display());
        format!("admin.tls_key_file: {key} is not the key of the certificate in {certificate}")
    })?;
    Ok(builder.build())
}

/// Has the client say what it knows; whoever asks limits the time.
pub(super) async fn accept(
    acceptor: &SslAcceptor,
    stream: TcpStream,
) -> Result<SslStream<TcpStream>, openssl::ssl::Error> {
    let mut stream = SslStream::new(Ssl::new(acceptor.context())?, stream)?;
    Pin::new(&mut stream).accept().await?;
    Ok(stream)
}

/// Whom a client believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The authorities of the system, for the name in the address.
    System,
    /// The authorities in this file, for the name in the address.
    Authorities(PathBuf),
    /// Whoever has the key of the certificate in this file, under whatever name.
    Certificate(PathBuf),
}

/// Says hello to a server, which has to be one that is trusted.
///
/// # Errors
/// Why it is not, in words.
pub(super) async fn connect(
    trust: &Trust,
    host: &str,
    stream: TcpStream,
) -> Result<SslStream<TcpStream>, String> {
    let text = |error: openssl::error::ErrorStack| error.to_string();
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(text)?;
    let expected = match trust {
        Trust::System => {
            let file = system_certificates().ok_or(
                "the system's certificates were not found; give those to trust with --ca-file",
            )?;
            builder.set_ca_file(file).map_err(text)?;
            None
        }
        Trust::Authorities(file) => {
            builder.set_ca_file(file).map_err(|error| format!("{}: {error}", file.display()))?;
            None
        }
        Trust::Certificate(file) => {
            builder.set_verify(SslVerifyMode::NONE);
            Some(certificate(file)?)
        }
    };
    let mut configuration = builder.build().configure().map_err(text)?;
    configuration.set_verify_hostname(expected.is_none());
    let ssl = configuration.into_ssl(host).map_err(text)?;
    let mut stream = SslStream::new(ssl, stream).map_err(text)?;
    let connected = Pin::new(&mut stream).connect().await;
    connected.map_err(|error| {
        let verified = stream.ssl().verify_result();
        if verified == openssl::x509::X509VerifyResult::OK {
            format!("no TLS: {error}")
        } else {
            format!("its certificate is not trusted: {verified}")
        }
    })?;
    if let Some(expected) = expected {
        let shown = stream.ssl().peer_certificate().and_then(|shown| shown.to_der().ok());
        if shown != expected.to_der().ok() || shown.is_none() {
            return Err("it has another certificate than the one in the configuration; has it been renewed? The service \
                        reads it at its start"
                .to_owned());
        }
    }
    Ok(stream)
}

/// The first certificate in a file.
fn certificate(file: &Path) -> Result<X509, String> {
    let pem = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    X509::from_pem(&pem).map_err(|error| format!("{}: {error}", file.display()))
}
