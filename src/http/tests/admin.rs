//! The admin listener: who is let in, what the calls do, and what they cost whoever has no token.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use openssl::pkey::PKey;

use super::super::admin::{AdminState, DrainAsked};
use super::super::client::{Call, send};
use super::super::tls::Trust;
use super::*;
use crate::certificates::{self, For};
use crate::config::{Admin, AdminTls, Secret};
use crate::log::tests_of_control::controlled;

const TOKEN: &str = "the-right-token-1234";
const DRAIN: &str = "/api/v1/admin/drain";
const LOG_LEVEL: &str = "/api/v1/admin/log-level";

/// The listener with a service around it that only notes what it is asked for.
struct AdminBench {
    bench: Bench,
    drains: Arc<AtomicU32>,
    stopping: Arc<AtomicU32>,
    control: crate::log::Control,
}

async fn admin(subtasks: u16, tls: Option<AdminTls>) -> AdminBench {
    let now = Now { monotonic: MonotonicTime::default(), wall: EventTime(1_800_000_000_000) };
    let now = Arc::new(Mutex::new(now));
    let HttpState { metrics, watches, clock, .. } = state(Arc::clone(&now), subtasks);
    let (drains, stopping) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (asked, ends) = (Arc::clone(&drains), Arc::clone(&stopping));
    let drain = move || {
        if ends.load(Ordering::Relaxed) > 0 {
            return DrainAsked::Stopping;
        }
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => DrainAsked::Now,
            _ => DrainAsked::Before,
        }
    };
    let (control, log) = controlled();
    // Nothing is logged to it, but it has to be there for its filter to be changed.
    std::mem::forget(log);
    let token = Secret::new(TOKEN.to_owned());
    let state = AdminState {
        token: token.clone(),
        metrics: metrics.clone(),
        watches: watches.clone(),
        clock,
        drain: Arc::new(drain),
        log: Some(control.clone()),
    };
    let settings = Admin { listen: ANY_PORT.parse().unwrap(), token, tls };
    let server = Server::bind_admin(&settings, state).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let address = server.address();
    let running = tokio::spawn(server.run(async { stopped.await.unwrap_or(()) }));
    let bench = Bench { address, watches, now, metrics, stop, running };
    AdminBench { bench, drains, stopping, control }
}

impl AdminBench {
    async fn call(&self, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        let headers =
            format!("authorization: Bearer {TOKEN}\r\ncontent-length: {}\r\n", body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n{headers}\r\n{body}"
        );
        let answer = self.raw(text).await;
        (answer.code, serde_json::from_str(&answer.body).unwrap_or_default())
    }

    async fn raw(&self, text: String) -> Answer {
        let address = self.bench.address;
        let answer = spawn_blocking(move || {
            let mut stream = open(address);
            stream.write_all(text.as_bytes()).unwrap();
            Answer::read(stream)
        });
        answer.await.unwrap()
    }

    fn counted(&self, call: &str, outcome: &str) -> String {
        let text = self.bench.metrics.render().unwrap();
        let series =
            format!("tidegate_admin_requests_total{{call=\"{call}\",outcome=\"{outcome}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_token_nothing_is_done_whatever_is_brought_instead() {
    let admin = admin(1, None).await;
    let almost = &TOKEN[..TOKEN.len() - 1];
    let wrong = [
        String::new(),
        "authorization: Bearer\r\n".to_owned(),
        "authorization: Bearer \r\n".to_owned(),
        format!("authorization: Basic {TOKEN}\r\n"),
        format!("authorization: {TOKEN}\r\n"),
        format!("authorization: Bearer {almost}\r\n"),
        format!("authorization: Bearer {TOKEN}5\r\n"),
        format!("authorization: Bearer {}\r\n", TOKEN.to_uppercase()),
        format!("x-token: {TOKEN}\r\n"),
    ];
    for headers in &wrong {
        let answer = admin.bench.request("POST", DRAIN, headers).await;
        assert_eq!(answer.code, 401, "{headers}");
        assert_eq!(answer.header("www-authenticate"), Some("bearer"));
        assert!(!answer.body.contains(TOKEN), "{}", answer.body);
    }
    assert_eq!(admin.bench.request("GET", LOG_LEVEL, "").await.code, 401);
    // What there is and what not is told to nobody else.
    for path in ["/", "/metrics", "/api/v1/status", "/api/v1/admin/elsewhere"] {
        assert_eq!(admin.bench.get(path).await.code, 401, "{path}");
    }
    assert_eq!(admin.drains.load(Ordering::Relaxed), 0);
    assert_eq!(admin.counted("drain", "denied"), wrong.len().to_string());
    assert_eq!(admin.counted("log_level", "denied"), "1");
    assert_eq!(admin.counted("other", "denied"), "4");
    assert_eq!(admin.call("GET", "/api/v1/admin/elsewhere", "").await.0, 404);
    assert_eq!(admin.call("GET", DRAIN, "").await.0, 405);
    assert_eq!(admin.counted("other", "refused"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_says_what_will_happen_and_may_be_asked_for_again() {
    let admin = admin(2, None).await;
    let reading = |partitions: &[i32], windows_open| Snapshot {
        windows_open,
        partitions: partitions
            .iter()
            .map(|partition| PartitionSnapshot {
                id: PartitionId { topic: 0, partition: *partition },
                ..a_snapshot().partitions.remove(0)
            })
            .collect(),
        phase: Phase::Draining,
        input_partitions: Some(4),
        ..Snapshot::default()
    };
    admin.bench.watches.of(0).publish(reading(&[0, 1], 5));
    admin.bench.watches.of(1).publish(reading(&[2], 1));
    let (code, body) = admin.call("POST", DRAIN, "{}").await;
    assert_eq!((code, &body["status"]), (202, &"draining".into()), "{body}");
    assert_eq!((&body["partitions"], &body["input_partitions"]), (&3.into(), &4.into()));
    assert_eq!(
        (&body["windows_open"], &body["subtasks"][1]["windows_open"]),
        (&6.into(), &1.into())
    );
    let sentence = body["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("Draining: what is open in 3 partitions fires (6 windows held)"),
        "{sentence}"
    );
    assert!(sentence.contains("1 of 4 partitions are read by other members"), "{sentence}");

    // One that cannot begin is named, and does not hold the answer up.
    let blocked = Phase::Blocked("all brokers are down".to_owned());
    admin.bench.publish_of(1, blocked);
    let (code, body) = admin.call("POST", DRAIN, "").await;
    let sentence = body["sentence"].as_str().unwrap();
    assert_eq!(code, 202);
    assert!(sentence.starts_with("Draining already: "), "{sentence}");
    assert!(sentence.contains("Subtask 1 is blocked (all brokers are down)"), "{sentence}");
    assert_eq!(admin.drains.load(Ordering::Relaxed), 2);

    admin.stopping.store(1, Ordering::Relaxed);
    let (code, body) = admin.call("POST", DRAIN, "").await;
    assert_eq!(code, 409, "{body}");
    assert_eq!(admin.counted("drain", "done"), "2");
    assert_eq!(admin.counted("drain", "refused"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_of_the_log_is_shown_changed_and_falls_back() {
    let admin = admin(1, None).await;
    let (code, body) = admin.call("GET", LOG_LEVEL, "").await;
    assert_eq!((code, &body["filter"], &body["until"]), (200, &"info".into(), &().into()));
    let wanted = r#"{"filter": "info,tidegate::pipeline=debug", "for": "10m"}"#;
    let (code, body) = admin.call("PUT", LOG_LEVEL, wanted).await;
    assert_eq!((code, &body["configured"]), (200, &"info".into()), "{body}");
    assert_eq!(body["until"], 1_800_000_600_000_i64);
    let sentence = body["sentence"].as_str().unwrap();
    assert_eq!(
        sentence,
        "The log's filter is info,tidegate::pipeline=debug, for 600 s; then info."
    );
    for (wanted, said) in [
        (r#"{"filter": "debgu"}"#, "did you mean \"debug\"?"),
        (r#"{"filter": "info", "for": "10"}"#, "for: \"10\" has no unit"),
        (r#"{"filter": "info", "for": "0s"}"#, "for: is zero"),
        (r#"{"fliter": "info"}"#, "unknown field `fliter`"),
        ("{", "EOF"),
        ("", "missing field `filter`"),
    ] {
        let (code, body) = admin.call("PUT", LOG_LEVEL, wanted).await;
        let detail = body["detail"].as_str().unwrap();
        assert!(code == 400 && detail.contains(said), "{code}: {detail}");
    }
    assert_eq!(
        admin.control.in_force(MonotonicTime::default()).filter,
        "info,tidegate::pipeline=debug"
    );
    // The listener looks at the clock each second.
    admin.bench.pass(601);
    let mut turns = tokio::time::interval(Duration::from_millis(20));
    for _ in 0..500 {
        turns.tick().await;
        if admin.control.in_force(MonotonicTime::default()).filter == "info" {
            break;
        }
    }
    assert_eq!(admin.control.in_force(MonotonicTime::default()).filter, "info");
    assert_eq!(admin.counted("log_level", "refused"), "6");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_small_and_comes_soon() {
    let admin = admin(1, None).await;
    let (code, body) = admin.call("PUT", LOG_LEVEL, &"x".repeat(5_000)).await;
    assert_eq!(code, 413, "{body}");
    let slow = format!(
        "PUT {LOG_LEVEL} HTTP/1.1\r\nhost: here\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\ncontent-length: 9\r\n\r\n{{"
    );
    assert_eq!(admin.raw(slow).await.code, 408);
}

/// A certificate and its key in files of the test's own.
struct Certificate {
    folder: PathBuf,
    chain: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tidegate-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let made = certificates::Certificate::alone("tidegate", &For::Server("127.0.0.1"));
        let (certificate_file, key_file) = (folder.join("tls.crt"), folder.join("tls.key"));
        std::fs::write(&certificate_file, made.pem()).unwrap();
        std::fs::write(&key_file, made.key_pem()).unwrap();
        Self { folder, chain: certificate_file, key: key_file }
    }

    fn tls(&self) -> AdminTls {
        AdminTls { certificate_file: self.chain.clone(), key_file: self.key.clone() }
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn show(trust: Trust) -> Call {
    let token = Some(Secret::new(TOKEN.to_owned()));
    let path = LOG_LEVEL.to_owned();
    Call { method: Method::GET, path, token, body: None, trust: Some(trust) }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_certificate_calls_are_encrypted_and_the_client_knows_whom_it_asks() {
    let (own, other) = (Certificate::new("own"), Certificate::new("other"));
    let admin = admin(1, Some(own.tls())).await;
    let url = format!("https://{}", admin.bench.address);
    for trust in [Trust::Certificate(own.chain.clone()), Trust::Authorities(own.chain.clone())] {
        let (code, body) = send(&url, show(trust)).await.unwrap();
        assert!(code == 200 && body.contains("as configured"), "{code} {body}");
    }
    for (trust, said) in [
        (Trust::Certificate(other.chain.clone()), "another certificate"),
        (Trust::Authorities(other.chain.clone()), "not trusted: self-signed certificate"),
        (Trust::System, "not trusted"),
    ] {
        let error = send(&url, show(trust)).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    // The name counts where an authority is trusted.
    let elsewhere = format!("https://localhost:{}", admin.bench.address.port());
    let error = send(&elsewhere, show(Trust::Authorities(own.chain.clone()))).await;
    assert!(error.unwrap_err().to_string().contains("not trusted"));
    // Plain text gets no answer, and the next one does.
    let address = admin.bench.address;
    let plain = spawn_blocking(move || {
        let mut stream = open(address);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).map(|_| rest)
    });
    let plain = plain.await.unwrap().unwrap_or_default();
    assert!(!String::from_utf8_lossy(&plain).contains("HTTP/1.1"), "{plain:?}");
    let (code, _) = send(&url, show(Trust::Certificate(own.chain.clone()))).await.unwrap();
    assert_eq!(code, 200);
}

#[test]
fn what_is_wrong_with_the_files_is_said_with_their_names() {
    let (own, other) = (Certificate::new("files"), Certificate::new("files-other"));
    let encrypted = own.folder.join("encrypted.key");
    let cipher = openssl::symm::Cipher::aes_128_cbc();
    let key = PKey::private_key_from_pem(&std::fs::read(&own.key).unwrap()).unwrap();
    let pem = key.private_key_to_pem_pkcs8_passphrase(cipher, b"hush").unwrap();
    std::fs::write(&encrypted, pem).unwrap();
    let none = own.folder.join("none");
    std::fs::write(&none, "no PEM").unwrap();
    let tls = |certificate_file: &PathBuf, key_file: &PathBuf| AdminTls {
        certificate_file: certificate_file.clone(),
        key_file: key_file.clone(),
    };
    for (tls, said) in [
        (tls(&none, &own.key), "admin.tls_certificate_file"),
        (tls(&own.chain, &none), "admin.tls_key_file"),
        (tls(&own.chain, &encrypted), "that needs no password"),
        (tls(&own.chain, &other.key), "is not the key of the certificate in"),
    ] {
        let fault = tls::acceptor(&tls).err().unwrap();
        assert!(fault.contains(said) && !fault.contains("hush"), "{fault}");
    }
}

#[test]
fn the_limits_are_those_that_are_documented() {
    use super::super::admin::{BODY_WITHIN, LARGEST};
    let (all, admin) = (Limits::DEFAULT, Limits::ADMIN);
    let said = format!(
        "Connections are limited at both listeners ({}, and {} for admin calls), headers to {} KiB and {} s ({} s), bodies \
         of admin calls to {} KiB and {} s.",
        all.connections,
        admin.connections,
        Limits::BUFFER / 1024,
        all.header.as_secs(),
        admin.header.as_secs(),
        LARGEST / 1024,
        BODY_WITHIN.as_secs()
    );
    assert!(include_str!("../../../deploy/README.md").contains(&said), "{said}");
}
