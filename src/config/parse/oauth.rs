//! `[kafka.oauth]`: client credentials, and who gives tokens for them.

use super::export::readable;
use super::{kafka, values};
use crate::config::export::Secret;
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::oauth::{OAuth, TokenEndpoint};
use crate::config::properties::Properties;
use crate::config::settings::OAuthSettings;

/// Where nothing is written there is none; what is half written is a fault.
pub(super) fn parse(
    settings: &OAuthSettings,
    properties: Option<&Properties>,
    report: &mut Report<'_>,
) -> Result<Option<OAuth>, Noted> {
    let section = KeyPath::of("kafka.oauth");
    let OAuthSettings { token_endpoint, client_id, client_secret, client_secret_file, .. } =
        settings;
    let OAuthSettings { scope, extensions, ca_file, .. } = settings;
    let all = [token_endpoint, client_id, client_secret, client_secret_file, scope];
    if all.into_iter().chain([extensions, ca_file]).all(Option::is_none) {
        check_without(properties, report);
        return Ok(None);
    }
    let endpoint = report.value(
        &section.key("token_endpoint"),
        token_endpoint.as_ref(),
        "write where tokens are given, such as \"https://login.example.com/oauth2/token\"",
        parse_endpoint,
    );
    let client_id = report.value(
        &section.key("client_id"),
        client_id.as_ref(),
        "write the client's name at the token endpoint",
        values::filled,
    );
    let secret = parse_secret(settings, &section, report);
    let scope = report.optional(&section.key("scope"), scope.as_ref(), values::filled);
    let extensions =
        report.optional(&section.key("extensions"), extensions.as_ref(), parse_extensions);
    let ca_file = report.optional(&section.key("ca_file"), ca_file.as_ref(), readable);
    check_with(properties, report);
    let token_endpoint = endpoint?;
    if !token_endpoint.tls && !is_this_machine(&token_endpoint.host) {
        report.warn(
            &section.key("token_endpoint"),
            "the client's secret and its tokens are not encrypted on their way; write https://",
        );
    }
    Ok(Some(OAuth {
        token_endpoint,
        client_id: client_id?,
        client_secret: secret?,
        scope: scope?,
        extensions: extensions?.unwrap_or_default(),
        ca_file: ca_file?,
    }))
}

fn is_this_machine(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn parse_secret(
    settings: &OAuthSettings,
    section: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Secret, Noted> {
    let file_key = section.key("client_secret_file");
    if settings.client_secret.is_some() && settings.client_secret_file.is_some() {
        return Err(report.fault(&file_key, "there is also `client_secret`; give one of them"));
    }
    if settings.client_secret_file.is_some() {
        let read = |path: &str| {
            let secret = kafka::read_secret(path)?;
            if secret.is_empty() { Err(format!("{path} is empty")) } else { Ok(secret) }
        };
        let secret = report.value(&file_key, settings.client_secret_file.as_ref(), "", read);
        return secret.map(Secret::new);
    }
    let hint = "write client_secret_file = \"/run/secrets/...\", or the secret itself";
    let secret = settings.client_secret.as_ref();
    report.value(&section.key("client_secret"), secret, hint, values::filled).map(Secret::new)
}

/// A user and a password in front of the host would be a secret in a text that is shown, so there may be none.
fn parse_endpoint(text: &str) -> Result<TokenEndpoint, String> {
    const HINT: &str = "write an address such as \"https://login.example.com/oauth2/token\", without user and password";
    let wrong = || HINT.to_owned();
    let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(wrong()),
    };
    let (authority, path) = match rest.find(['/', '?']) {
        Some(end) => rest.split_at(end),
        None => (rest, "/"),
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if authority.contains('@') || !is_plain(text) || text.contains('#') {
        return Err(wrong());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) => port.parse().map_err(|_| wrong())?,
        None if tls => 443,
        None => 80,
    };
    if host.is_empty() || port == 0 {
        return Err(wrong());
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(TokenEndpoint { tls, host: host.to_owned(), port, path })
}

/// The rules of RFC 7628, section 3.1, by which librdkafka refuses others.
fn parse_extensions(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let letters = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
        let good = letters && name != "auth" && !value.is_empty();
        let plain = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        (good && plain).then(|| (name.to_owned(), value.to_owned()))
    };
    let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
    pairs.ok_or_else(|| {
        "write names, of letters alone and not \"auth\", with their values: \"name=value,other=value\"".to_owned()
    })
}

/// What the properties must say for tokens to be used.
fn check_with(properties: Option<&Properties>, report: &mut Report<'_>) {
    let Some(properties) = properties else { return };
    let table = KeyPath::of("kafka.properties");
    for name in MECHANISM {
        if properties.get(name).is_some_and(|mechanism| mechanism != "OAUTHBEARER") {
            report.fault(
                &table.key(name),
                "with [kafka.oauth] it is \"OAUTHBEARER\"; leave it out, or leave [kafka.oauth] out",
            );
        }
    }
    let protocol = properties.get("security.protocol").unwrap_or_default().to_lowercase();
    if !["sasl_ssl", "sasl_plaintext"].contains(&protocol.as_str()) {
        report.fault(
            &table.key("security.protocol"),
            "must be \"SASL_SSL\" with [kafka.oauth], or tokens are not used",
        );
    }
}

fn check_without(properties: Option<&Properties>, report: &mut Report<'_>) {
    let Some(properties) = properties else { return };
    // librdkafka then makes tokens of its own that nobody has signed.
    let unsecured = properties.get("enable.sasl.oauthbearer.unsecure.jwt");
    if unsecured.is_some_and(|value| ["true", "t", "1"].contains(&value)) {
        return;
    }
    for name in MECHANISM {
        if properties.get(name) == Some("OAUTHBEARER") {
            report.fault(
                &KeyPath::of("kafka.properties").key(name),
                "needs to know where tokens come from; write [kafka.oauth] with token_endpoint, client_id and \
                 client_secret_file",
            );
        }
    }
}

/// Both names of the same property.
const MECHANISM: [&str; 2] = ["sasl.mechanism", "sasl.mechanisms"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let read = |text| parse_endpoint(text).map(|endpoint| endpoint.to_string());
        for (written, meant) in [
            ("https://a.example/t", "https://a.example:443/t"),
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081/"),
            ("HTTPS://[::1]:8443/t?x=y", "https://[::1]:8443/t?x=y"),
            ("https://a?x=y", "https://a:443/?x=y"),
        ] {
            assert_eq!(read(written).as_deref(), Ok(meant));
        }
        for wrong in
            ["a.example/t", "ftp://a/", "https://u:p@a/", "https://", "http://a:x/", "https://a/ b"]
        {
            let fault = read(wrong).unwrap_err();
            assert!(fault.contains("https://login.example.com"), "{fault}");
        }
    }

    #[test]
    fn extensions_are_pairs() {
        let read = parse_extensions("logicalCluster=lkc-1, poolId = a=b").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [pair("logicalCluster", "lkc-1"), pair("poolId", "a=b")]);
        for wrong in ["a", "a=", "auth=x", "a-b=c", "a=b,"] {
            assert!(parse_extensions(wrong).is_err(), "{wrong}");
        }
    }
}
