//! Encryption of the connection, by the OpenSSL that the Kafka client brings along.

use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use postgres_openssl::MakeTlsConnector;
use tokio_postgres::config::SslMode;

use super::failure::DatabaseError;
use crate::config::{DatabaseTls, PostgresExport};
use crate::tls::system_certificates;

/// What the client asks of the server.
pub(super) fn mode(tls: DatabaseTls) -> SslMode {
    match tls {
        DatabaseTls::Disable => SslMode::Disable,
        DatabaseTls::Prefer => SslMode::Prefer,
        DatabaseTls::Require | DatabaseTls::VerifyFull => SslMode::Require,
    }
}

/// What it makes of the server's certificate.
pub(super) fn connector(export: &PostgresExport) -> Result<MakeTlsConnector, DatabaseError> {
    let fault = |error: openssl::error::ErrorStack| DatabaseError::Fatal(format!("TLS: {error}"));
    let mut builder = SslConnector::builder(SslMethod::tls_client()).map_err(fault)?;
    let verifies = export.tls == DatabaseTls::VerifyFull;
    if !verifies {
        builder.set_verify(SslVerifyMode::NONE);
    } else if let Some(file) = &export.tls_ca_file {
        builder.set_ca_file(file).map_err(|error| {
            DatabaseError::Fatal(format!(
                "export.postgres.tls_ca_file: {}: {error}",
                file.display()
            ))
        })?;
    } else {
        let file = system_certificates().ok_or_else(|| {
            DatabaseError::Fatal(
                "the system's certificates were not found; name those that are trusted in export.postgres.tls_ca_file"
                    .to_owned(),
            )
        })?;
        builder.set_ca_file(file).map_err(fault)?;
    }
    let mut connector = MakeTlsConnector::new(builder.build());
    connector.set_callback(move |configuration, _| {
        configuration.set_verify_hostname(verifies);
        Ok(())
    });
    Ok(connector)
}
