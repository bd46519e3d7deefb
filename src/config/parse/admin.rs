//! `[admin]`: the listener for calls that change the running service.

use std::net::SocketAddr;

use super::export::{parse_listener, readable};
use super::kafka;
use crate::config::export::Secret;
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::AdminSettings;
use crate::config::{Admin, AdminTls};

/// Where nothing listens, faults of the other keys are told all the same.
pub(super) fn parse(
    settings: &AdminSettings,
    http: Option<SocketAddr>,
    report: &mut Report<'_>,
) -> Result<Option<Admin>, Noted> {
    let section = KeyPath::of("admin");
    let listen_key = section.key("listen");
    let listen =
        report.value(&listen_key, settings.listen.as_ref(), "write \"off\"", parse_listener);
    let token = parse_token(settings, &section, report);
    let tls = parse_tls(settings, &section, report);
    let Some(listen) = listen? else { return Ok(None) };
    let (token, tls) = (token?, tls?);
    let Some(token) = token else {
        let problem = "is missing: whoever reaches the admin listener could end the service; write token_file, the path of a \
                       file with a long random text, such as `openssl rand -hex 32` makes";
        return Err(report.fault(&section.key("token"), problem));
    };
    if http == Some(listen) && listen.port() != 0 {
        let problem = "is http.listen too; the admin listener has an address of its own, such as \"127.0.0.1:8081\"";
        return Err(report.fault(&listen_key, problem));
    }
    if tls.is_none() && !listen.ip().is_loopback() {
        report.warn(
            &listen_key,
            format_args!(
                "{listen} is reached from other hosts, and the token goes over the network as it is; set \
                 admin.tls_certificate_file and admin.tls_key_file, or listen on 127.0.0.1"
            ),
        );
    }
    Ok(Some(Admin { listen, token, tls }))
}

/// The token itself is in no message.
fn parse_token(
    settings: &AdminSettings,
    section: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Option<Secret>, Noted> {
    let file_key = section.key("token_file");
    match (&settings.token, &settings.token_file) {
        (Some(_), Some(_)) => {
            Err(report.fault(&file_key, "there is also `token`; give one of them"))
        }
        (None, file) => {
            report.optional(&file_key, file.as_ref(), |path| read_token(path).map(Secret::new))
        }
        (token, None) => report.optional(&section.key("token"), token.as_ref(), |token| {
            check_token(token)?;
            Ok(Secret::new(token.to_owned()))
        }),
    }
}

/// The token in a file.
pub(crate) fn read_token(path: &str) -> Result<String, String> {
    let token = kafka::read_secret(path)?;
    check_token(&token).map_err(|problem| format!("the token in {path} {problem}"))?;
    Ok(token)
}

/// Whether it can be sent (`b64token` of RFC 6750) and not be guessed.
fn check_token(token: &str) -> Result<(), String> {
    const LEAST: usize = 16;
    const HINT: &str = "take a long random text, such as `openssl rand -hex 32` makes";
    if token.len() < LEAST {
        return Err(format!(
            "is too short to be a token: it has at least {LEAST} characters; {HINT}"
        ));
    }
    let sent = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if !token.bytes().all(sent) {
        return Err(format!(
            "has characters that a token cannot have: letters, digits and `-._~+/=` are possible; {HINT}"
        ));
    }
    Ok(())
}

fn parse_tls(
    settings: &AdminSettings,
    section: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Option<AdminTls>, Noted> {
    let mut file = |name, text: &Option<String>| {
        let key = section.key(name);
        report.optional(&key, text.as_ref(), readable).map(|file| (key, file))
    };
    let certificate = file("tls_certificate_file", &settings.tls_certificate_file);
    let key = file("tls_key_file", &settings.tls_key_file);
    let ((certificate_key, certificate), (key_key, key)) = (certificate?, key?);
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate_file), Some(key_file)) => {
            Ok(Some(AdminTls { certificate_file, key_file }))
        }
        (Some(_), None) => {
            Err(report.fault(&key_key, "is missing; give the key of the certificate"))
        }
        (None, Some(_)) => {
            Err(report.fault(&certificate_key, "is missing; give the certificate of the key"))
        }
    }
}
