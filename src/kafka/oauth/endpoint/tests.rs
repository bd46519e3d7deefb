//! Endpoints as they should be, and as they should not.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use openssl::pkey::PKey;
use openssl::ssl::SslAcceptor;
use openssl::x509::X509;

use super::*;
use crate::certificates::{Certificate, For};

fn acceptor(certificate: &Certificate) -> SslAcceptor {
    let (chain, key) = (certificate.pem(), certificate.key_pem());
    let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    builder.set_certificate(&X509::from_pem(chain.as_bytes()).unwrap()).unwrap();
    builder.set_private_key(&PKey::private_key_from_pem(key.as_bytes()).unwrap()).unwrap();
    builder.build()
}

/// For a server of this name or address, good from the one day to the other, counted from now.
fn server(by: &Certificate, host: &str, from: i64, to: i64) -> Certificate {
    by.sign(host, &For::Server(host), from, to)
}

/// A file for one test; it goes with it.
struct Trusted(PathBuf);

impl Trusted {
    fn file(name: &str, text: &[u8]) -> Self {
        let name = format!("tidegate-oauth-{name}-{}.crt", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn authority(name: &str, authority: &Certificate) -> Self {
        Self::file(name, authority.pem().as_bytes())
    }
}

impl Drop for Trusted {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

const GOOD: &str = r#"{"access_token":"the-token","token_type":"Bearer","expires_in":60}"#;

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Gives one answer to one connection; its port.
fn serve(tls: Option<SslAcceptor>, answer: String) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        match tls {
            None => give(stream, &answer),
            // Who does not accept the certificate, or comes without TLS, gets nothing.
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream) {
                    give(stream, &answer);
                }
            }
        }
    });
    (port, serving)
}

/// Reads to the end of a request, or of what comes instead of one.
fn give(mut stream: impl Read + Write, answer: &str) {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    while !request.ends_with(b"grant_type=client_credentials") {
        match stream.read(&mut part) {
            Ok(count) if count > 0 => request.extend_from_slice(&part[..count]),
            _ => break,
        }
        // The beginning of a handshake is no request.
        if !request.starts_with(b"POST /token HTTP/1.1\r\n") {
            break;
        }
    }
    // Who has read enough hangs up.
    drop(stream.write_all(answer.as_bytes()));
}

fn settings(tls: bool, host: &str, port: u16, trusted: Option<&Trusted>) -> OAuth {
    OAuth {
        ca_file: trusted.map(|file| file.0.clone()),
        ..super::super::tests::settings(tls, host, port)
    }
}

const NOW: EventTime = EventTime(1_800_000_000_000);

fn asked(settings: &OAuth) -> Result<Token, Problem> {
    ask(settings, NOW, PATIENCE)
}

/// Asks for a token that is not given; all of these are in what is said.
fn refused(settings: &OAuth, lasting: bool, said: &[&str]) {
    let problem = asked(settings).err().unwrap();
    for part in said {
        assert!(problem.text.contains(part), "no {part:?} in {problem:?}");
    }
    assert_eq!(problem.lasting, lasting, "{problem:?}");
}

#[test]
fn a_token_comes_over_https_from_whom_the_authority_has_signed() {
    let authority = Certificate::authority("authority");
    let trusted = Trusted::authority("good", &authority);
    for host in ["localhost", "127.0.0.1"] {
        let tls = acceptor(&server(&authority, host, 0, 1));
        let (port, serving) = serve(Some(tls), ok(GOOD));
        let token = asked(&settings(true, host, port, Some(&trusted))).ok().unwrap();
        assert_eq!((token.value.as_str(), token.expires), ("the-token", NOW.0 + 60_000));
        assert_eq!(token.lifetime, Duration::from_mins(1));
        serving.join().unwrap();
    }
}

#[test]
fn a_certificate_that_is_not_accepted_is_told_with_its_remedy() {
    let (authority, stranger) =
        (Certificate::authority("authority"), Certificate::authority("stranger"));
    let trusted = Trusted::authority("refused", &authority);
    let by_name = "write the name in token_endpoint that the certificate is for";
    for (certificate, host, said, remedy) in [
        (
            server(&stranger, "localhost", 0, 1),
            "localhost",
            "unable to get local issuer certificate",
            "name the certificate of its authority in kafka.oauth.ca_file",
        ),
        (
            Certificate::authority("alone"),
            "localhost",
            "self-signed certificate",
            "name the certificate of its authority in kafka.oauth.ca_file",
        ),
        (
            server(&authority, "localhost", -10, -1),
            "localhost",
            "certificate has expired",
            "it has to be renewed there",
        ),
        (
            server(&authority, "localhost", 1, 2),
            "localhost",
            "certificate is not yet valid",
            "the clock here, or the one there, is wrong",
        ),
        (server(&authority, "login.example.com", 0, 1), "localhost", "hostname mismatch", by_name),
        (server(&authority, "localhost", 0, 1), "127.0.0.1", "IP address mismatch", by_name),
    ] {
        let (port, serving) = serve(Some(acceptor(&certificate)), ok(GOOD));
        let settings = settings(true, host, port, Some(&trusted));
        refused(&settings, true, &["its certificate is not accepted: ", said, remedy]);
        serving.join().unwrap();
    }
}

/// What a system trusts does not count where a file is named, and nothing of these tests is trusted without one.
#[test]
fn without_a_file_the_systems_certificates_count() {
    let certificate = server(&Certificate::authority("authority"), "localhost", 0, 1);
    let (port, serving) = serve(Some(acceptor(&certificate)), ok(GOOD));
    let problem = asked(&settings(true, "localhost", port, None)).err().unwrap();
    assert!(problem.text.contains("kafka.oauth.ca_file") && problem.lasting, "{problem:?}");
    // Where the system has no certificates nobody came.
    drop(TcpStream::connect(("127.0.0.1", port)));
    serving.join().unwrap();
}

#[test]
fn an_address_of_the_other_kind_is_told() {
    let authority = Certificate::authority("authority");
    let trusted = Trusted::authority("kinds", &authority);
    let plain = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_owned();
    let (port, serving) = serve(None, plain.clone());
    let at_https = settings(true, "localhost", port, Some(&trusted));
    refused(&at_https, true, &["no TLS there", "is it an http address?"]);
    serving.join().unwrap();

    // OpenSSL's server hangs up without a word, as a server that has just been ended does.
    let (port, serving) = serve(Some(acceptor(&server(&authority, "localhost", 0, 1))), ok(GOOD));
    let at_http = settings(false, "localhost", port, None);
    refused(&at_http, false, &["the exchange broke off", "is it an https address?"]);
    serving.join().unwrap();

    // Others send an alert of TLS, here that the message is unexpected, or answer in plain.
    let (port, serving) = serve(None, "\u{15}\u{3}\u{3}\u{0}\u{2}\u{2}\u{a}".to_owned());
    let at_http = settings(false, "localhost", port, None);
    refused(&at_http, true, &["no HTTP there", "is it an https address?"]);
    serving.join().unwrap();
    let (port, serving) = serve(None, plain);
    let at_http = settings(false, "localhost", port, None);
    let where_tokens_are = "token_endpoint must be the address where tokens are given";
    refused(&at_http, true, &["it answers 400 Bad Request", where_tokens_are]);
    serving.join().unwrap();
}

#[test]
fn an_answer_that_is_too_large_is_not_read() {
    let room = LARGEST - GOOD.len();
    let largest = format!("{GOOD}{}", " ".repeat(room));
    let (port, serving) = serve(None, ok(&largest));
    assert!(asked(&settings(false, "localhost", port, None)).is_ok());
    serving.join().unwrap();

    let larger = format!("{largest} ");
    let unknown = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{larger}");
    for answer in [ok(&larger), unknown] {
        let (port, serving) = serve(None, answer);
        let settings = settings(false, "localhost", port, None);
        refused(&settings, true, &["the answer has more than 64 KiB", WHERE_TOKENS_ARE]);
        serving.join().unwrap();
    }
    // A page of an endpoint that is out of order.
    let page = ok(&larger).replace("200 OK", "503 Service Unavailable");
    let (port, serving) = serve(None, page);
    refused(&settings(false, "localhost", port, None), false, &["it answers 503"]);
    serving.join().unwrap();
}

#[test]
fn an_endpoint_that_says_nothing_is_given_up() {
    let trusted = Trusted::authority("silent", &Certificate::authority("authority"));
    // The system accepts connections that nobody asks it for.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    for tls in [true, false] {
        let settings = settings(tls, "127.0.0.1", port, Some(&trusted));
        let problem = ask(&settings, NOW, Duration::from_millis(100)).err().unwrap();
        assert_eq!(problem, passing("no answer within 100ms"));
    }
}

#[test]
fn an_endpoint_that_hangs_up_is_asked_again() {
    let trusted = Trusted::authority("gone", &Certificate::authority("authority"));
    for (tls, said) in [(true, "the TLS handshake broke off"), (false, "the exchange broke off")] {
        let (port, serving) = serve(None, String::new());
        refused(&settings(tls, "127.0.0.1", port, Some(&trusted)), false, &[said]);
        serving.join().unwrap();
    }
    let (port, serving) = serve(None, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{".to_owned());
    refused(&settings(false, "127.0.0.1", port, None), false, &["the answer broke off"]);
    serving.join().unwrap();
}

#[test]
fn a_file_without_certificates_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let empty = Trusted::file("empty", b"");
    let text = Trusted::file("text", b"no certificate");
    let remedy = "it must have the certificate of the endpoint's authority, PEM";
    for file in [&empty, &text] {
        let path = file.0.display().to_string();
        let settings = settings(true, "127.0.0.1", port, Some(file));
        let problem = "no certificates are in it";
        refused(&settings, true, &["kafka.oauth.ca_file, ", &path, problem, remedy]);
    }
    let mut settings = settings(true, "127.0.0.1", port, None);
    let gone = std::env::temp_dir().join("tidegate-oauth-there-is-none.crt");
    settings.ca_file = Some(gone.clone());
    let path = gone.display().to_string();
    refused(&settings, true, &[&path, "it cannot be read (No such file", remedy]);
}
