//! Certificates for a broker and its clients, made for one run of the tests.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name};

/// A certificate with its key.
pub(crate) struct Certificate {
    certificate: X509,
    key: PKey<Private>,
}

/// For whom a certificate is.
pub(crate) enum For<'a> {
    /// An authority.
    Authority,
    /// A server that is reached under this name or address.
    Server(&'a str),
    /// A user.
    Client,
}

impl Certificate {
    /// One that signs itself, and others.
    pub(crate) fn authority(name: &str) -> Self {
        Self::alone(name, &For::Authority)
    }

    /// One that signs itself; it is good for ten days.
    pub(crate) fn alone(name: &str, of: &For<'_>) -> Self {
        Self::make(name, of, None, 0, 10)
    }

    /// One that this one signs; it is good from the one day to the other, counted from now.
    pub(crate) fn sign(&self, name: &str, of: &For<'_>, from: i64, to: i64) -> Self {
        Self::make(name, of, Some(self), from, to)
    }

    fn make(name: &str, of: &For<'_>, by: Option<&Self>, from: i64, to: i64) -> Self {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut subject = X509Name::builder().unwrap();
        subject.append_entry_by_text("CN", name).unwrap();
        let subject = subject.build();
        let mut builder = X509Builder::new().unwrap();
        builder.set_version(2).unwrap();
        let mut serial = BigNum::new().unwrap();
        serial.rand(127, openssl::bn::MsbOption::MAYBE_ZERO, false).unwrap();
        builder.set_serial_number(&Asn1Integer::from_bn(&serial).unwrap()).unwrap();
        builder.set_subject_name(&subject).unwrap();
        builder.set_issuer_name(by.map_or(&subject, |by| by.certificate.subject_name())).unwrap();
        builder.set_pubkey(&key).unwrap();
        let now = tidegate::clock::Clock::wall().0 / 1_000;
        let day = |day: i64| Asn1Time::from_unix(now + day * 86_400 - 60).unwrap();
        builder.set_not_before(&day(from)).unwrap();
        builder.set_not_after(&day(to)).unwrap();
        match of {
            For::Authority => {
                let basic = BasicConstraints::new().critical().ca().build().unwrap();
                let usage = KeyUsage::new().critical().key_cert_sign().crl_sign().build().unwrap();
                builder.append_extension(basic).unwrap();
                builder.append_extension(usage).unwrap();
            }
            For::Server(host) => {
                let mut names = SubjectAlternativeName::new();
                if host.parse::<std::net::IpAddr>().is_ok() {
                    names.ip(host)
                } else {
                    names.dns(host)
                };
                let by = by.map(|by| &*by.certificate);
                let names = names.build(&builder.x509v3_context(by, None)).unwrap();
                builder.append_extension(names).unwrap();
            }
            For::Client => {}
        }
        builder.sign(by.map_or(&key, |by| &by.key), MessageDigest::sha256()).unwrap();
        Self { certificate: builder.build(), key }
    }

    /// The certificate alone, PEM.
    pub(crate) fn pem(&self) -> String {
        String::from_utf8(self.certificate.to_pem().unwrap()).unwrap()
    }

    /// The key alone, PEM, PKCS #8.
    pub(crate) fn key_pem(&self) -> String {
        String::from_utf8(self.key.private_key_to_pem_pkcs8().unwrap()).unwrap()
    }

    /// Both in one text, as Kafka takes them.
    pub(crate) fn keystore(&self) -> String {
        self.key_pem() + &self.pem()
    }
}
