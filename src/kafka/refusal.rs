//! What the client says of its connections, as far as waiting does not mend it.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use openssl::ssl::{SslConnector, SslMethod};
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::{X509, X509VerifyResult};
use rdkafka::types::RDKafkaErrorCode;

use super::admin::ConnectError;
use super::right::MissingRight;
use crate::config::{Kafka, Properties};
use crate::tls::{Flaw, system_certificates};

/// Looks at the errors of one client until it is connected.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// A listener has hung up as one does that is of another kind. A broker that ends does that too.
    hung_up: Option<HungUp>,
    /// How often nothing else was heard since.
    since: u32,
}

#[derive(Debug)]
struct HungUp {
    broker: String,
    cause: String,
    remedy: &'static str,
}

impl Refusals {
    /// Whether something has been heard that would not pass if it stayed so.
    pub(super) fn suspect(&self) -> bool {
        self.hung_up.is_some()
    }

    /// What an error means; `None` where it may pass.
    pub(super) fn judge(
        &mut self,
        code: Option<RDKafkaErrorCode>,
        reason: &str,
        kafka: &Kafka,
    ) -> Option<ConnectError> {
        // The client says it once: who takes it for a broker that does not answer would wait for ever.
        if code == Some(RDKafkaErrorCode::GroupAuthorizationFailed) {
            return Some(ConnectError::Right(MissingRight::group(&kafka.group_id)));
        }
        let brokers = kafka.bootstrap_servers.clone();
        if matches!(
            code,
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed)
        ) {
            let cause = reason.to_owned();
            return Some(ConnectError::Credentials {
                brokers,
                cause,
                remedy: of_credentials(kafka),
            });
        }
        let broker = broker_of(reason).unwrap_or(&brokers).to_owned();
        let has = |part: &str| reason.contains(part);
        if has("certificate verify failed") {
            let found = look_at(&broker, &kafka.properties);
            let (cause, remedy) = found.unwrap_or_else(|| (reason.to_owned(), AUTHORITY));
            return Some(ConnectError::Certificate { broker, cause, remedy });
        }
        if has("alert") && (has("certificate") || has("unknown ca") || has("handshake failure")) {
            let cause = reason.to_owned();
            return Some(ConnectError::ClientCertificate { broker, cause });
        }
        let protocol = kafka.properties.get("security.protocol").unwrap_or("PLAINTEXT");
        if let Some(remedy) = of_another_kind(reason, protocol) {
            let cause = reason.to_owned();
            self.hung_up = Some(HungUp { broker, cause, remedy });
        } else if !matches!(code, None | Some(RDKafkaErrorCode::AllBrokersDown)) {
            *self = Self::default();
        }
        let HungUp { broker, cause, remedy } = self.hung_up.as_ref()?;
        self.since += 1;
        if self.since < HUNG_UP_FOR {
            return None;
        }
        let protocol = protocol.to_owned();
        let (broker, cause) = (broker.clone(), cause.clone());
        Some(ConnectError::Listener { broker, protocol, cause, remedy })
    }
}

/// What the listener may be, where the client speaks as one does not speak to it.
fn of_another_kind(reason: &str, protocol: &str) -> Option<&'static str> {
    let plain = !protocol.to_ascii_lowercase().ends_with("ssl");
    let has = |part: &str| reason.contains(part);
    if has("wrong version number") || has("PLAINTEXT broker listener?") {
        Some(
            "it is not encrypted: write \"PLAINTEXT\" or \"SASL_PLAINTEXT\", or the port of a listener that is",
        )
    } else if has("SSL listener?")
        || (plain && has("closed by peer") && has("in state APIVERSION_QUERY"))
    {
        Some(
            "it may be encrypted: write \"SSL\" or \"SASL_SSL\", or the port of a listener that is not",
        )
    } else if has("SASL authentication") {
        Some(
            "it may ask for credentials: write \"SASL_SSL\" or \"SASL_PLAINTEXT\", and sasl.mechanism",
        )
    } else {
        None
    }
}

fn of_credentials(kafka: &Kafka) -> &'static str {
    if kafka.oauth.is_some() {
        "client, scope and extensions in [kafka.oauth] must be such that the brokers take the token"
    } else {
        "sasl.mechanism, sasl.username and sasl.password in [kafka.properties] must be those of a user that they know"
    }
}

/// The address in `sasl_ssl://127.0.0.1:9093/bootstrap: SSL handshake failed: ...`; one that is not encrypted has no scheme.
fn broker_of(reason: &str) -> Option<&str> {
    let rest = reason.split_once("://").map_or(reason, |(_, rest)| rest);
    let (address, _) = rest.split_once('/')?;
    (address.contains(':') && !address.contains(' ')).then_some(address)
}

/// Why a certificate is not accepted, which the client does not tell: asks the broker for it once more. Nothing is sent on
/// the connection. `None` where it has become good, or cannot be seen.
fn look_at(broker: &str, properties: &Properties) -> Option<(String, &'static str)> {
    let (host, _) = broker.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    let mut connector = SslConnector::builder(SslMethod::tls_client()).ok()?;
    if let Some(pem) = properties.get("ssl.ca.pem") {
        let mut store = X509StoreBuilder::new().ok()?;
        for certificate in X509::stack_from_pem(pem.as_bytes()).ok()? {
            store.add_cert(certificate).ok()?;
        }
        connector.set_cert_store(store.build());
    } else if let Some(file) = properties.get("ssl.ca.location") {
        connector.set_ca_file(file).ok()?;
    } else {
        connector.set_ca_file(system_certificates()?).ok()?;
    }
    let mut configuration = connector.build().configure().ok()?;
    let identified = properties.get("ssl.endpoint.identification.algorithm") != Some("none");
    configuration.set_verify_hostname(identified);
    let address = broker.to_socket_addrs().ok()?.next()?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let openssl::ssl::HandshakeError::Failure(failed) =
        configuration.connect(host, stream).err()?
    else {
        return None;
    };
    let refused = failed.ssl().verify_result();
    if refused == X509VerifyResult::OK {
        return None;
    }
    let remedy = match Flaw::of(refused) {
        Flaw::OtherHost => {
            "write the name in kafka.bootstrap_servers that the certificate is for, and see advertised.listeners of the brokers"
        }
        Flaw::Expired => "it has to be renewed on the broker",
        Flaw::NotYetValid => "the clock here, or that of its authority, is wrong",
        Flaw::Untrusted => AUTHORITY,
    };
    Some((refused.error_string().to_owned(), remedy))
}

const AUTHORITY: &str =
    "name the certificate of its authority in [kafka.properties], \"ssl.ca.location\"";

/// So often must nothing else be heard after that, the first time included: the client does not repeat itself.
const HUNG_UP_FOR: u32 = 3;

const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::inspect::tests::config;

    #[test]
    fn a_right_to_the_group_that_is_missing_is_not_waited_for() {
        let kafka = config(&[]).kafka;
        let code = Some(RDKafkaErrorCode::GroupAuthorizationFailed);
        let said = "FindCoordinator response error: Group authorization failed.";
        let refusal = Refusals::default().judge(code, said, &kafka).unwrap();
        assert!(refusal.to_string().contains("operation Read on group `g`"), "{refusal}");
    }

    #[test]
    fn the_broker_is_taken_from_what_the_client_says() {
        let reason = "sasl_ssl://[::1]:9093/bootstrap: SSL handshake failed: error";
        assert_eq!(broker_of(reason), Some("[::1]:9093"));
        let reason = "a:1/bootstrap: Disconnected: connection closed by peer";
        assert_eq!(broker_of(reason), Some("a:1"));
        assert_eq!(broker_of("2/2 brokers are down"), None);
    }
}
