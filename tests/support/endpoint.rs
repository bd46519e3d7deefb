//! A token endpoint: OAuth 2.0 client credentials, with tokens that nobody signs.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openssl::base64;
use tidegate::clock::Clock;

use super::secured::{SECRET, USER};

/// What it does, and what it has done.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// How long a token is good for.
    pub(crate) lifetime: Duration,
    /// Answers this status instead of a token.
    pub(crate) broken: Option<&'static str>,
    pub(crate) requests: usize,
    pub(crate) given: usize,
}

pub(crate) struct Endpoint {
    port: u16,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Endpoint {
    pub(crate) fn start(lifetime: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let behaviour = Behaviour { lifetime, broken: None, requests: 0, given: 0 };
        let behaviour = Arc::new(Mutex::new(behaviour));
        let shared = Arc::clone(&behaviour);
        // It ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut request = BufReader::new(&stream);
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    if request.read_line(&mut line).unwrap_or(0) <= 2 {
                        break;
                    }
                    if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let mut form = vec![0; length];
                request.read_exact(&mut form).unwrap();
                let form = String::from_utf8(form).unwrap();
                let (status, body) = answer(&head, &form, &mut shared.lock().unwrap());
                let length = body.len();
                drop(write!(
                    &stream,
                    "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
                     Connection: close\r\n\r\n{body}"
                ));
            }
        });
        Self { port, behaviour }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/token", self.port)
    }

    /// What it has done so far.
    pub(crate) fn seen(&self) -> Behaviour {
        self.behaviour.lock().unwrap().clone()
    }

    /// From now on it answers with this, or with tokens again.
    pub(crate) fn breaks(&self, status: Option<&'static str>) {
        self.behaviour.lock().unwrap().broken = status;
    }
}

fn answer(head: &str, form: &str, behaviour: &mut Behaviour) -> (&'static str, String) {
    behaviour.requests += 1;
    if let Some(status) = behaviour.broken {
        return (status, "out of order".to_owned());
    }
    assert!(head.starts_with("POST /token HTTP/1.1\r\n"), "{head}");
    assert!(form.contains("grant_type=client_credentials"), "{form}");
    let good = base64::encode_block(format!("{USER}:{SECRET}").as_bytes());
    let credentials = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then_some(value)
    });
    if credentials != Some(format!("Basic {good}").as_str()) {
        // One that says more than it should.
        let said = format!(
            r#"{{"error":"invalid_client","error_description":"no client with {}"}}"#,
            credentials.unwrap_or_default()
        );
        return ("401 Unauthorized", said);
    }
    behaviour.given += 1;
    let now = Clock::wall().0 / 1_000;
    let lifetime = i64::try_from(behaviour.lifetime.as_secs()).unwrap();
    let part = |text: &str| {
        let text = base64::encode_block(text.as_bytes()).replace('\n', "");
        text.replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned()
    };
    let claims = format!(r#"{{"sub":"{USER}","iat":{now},"exp":{}}}"#, now + lifetime);
    let token = format!("{}.{}.", part(r#"{"alg":"none"}"#), part(&claims));
    let body =
        format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{lifetime}}}"#);
    ("200 OK", body)
}
