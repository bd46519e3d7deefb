//! Clients that mean harm, at both listeners of a running service at once: its pipeline goes on, its probes and scrapes are
//! answered meanwhile and afterwards, and its memory stays within a bound.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, park_timeout};
use std::time::Duration;

use openssl::asn1::Asn1Time;
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use openssl::x509::{X509, X509NameBuilder};
use tidegate::clock::Clock;

use super::admin::admin_address;
use crate::support::broker::Broker;
use crate::support::cluster::Cluster;
use crate::support::job::total;
use crate::support::ledger::{Feed, Feeding, Order, config, create_topics};
use crate::support::process::Tidegate;

/// How long all of it lasts.
const ATTACK: Duration = Duration::from_secs(12);

/// How much the service may grow by it: the buffers of 80 connections, 16 of them with TLS, and what the allocator keeps.
const GROWTH_KIB: u64 = 16 * 1024;

/// The longest that a scrape may take meanwhile, as Prometheus has it by default. Those who attack take the same cores.
const SCRAPE: Duration = Duration::from_secs(10);

/// What one of them does to a port, once.
type Attack = fn(SocketAddr, &Told);

/// Whether it is over, and what came of it.
#[derive(Clone, Default)]
struct Told {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
}

impl Told {
    /// Waits a moment. Whether to go on.
    fn go_on(&self, moment: Duration) -> bool {
        park_timeout(moment);
        !self.over.load(Ordering::Relaxed)
    }
}

const ATTACKS: [(&str, Attack); 10] = [
    ("slowloris", slowloris),
    ("hundreds held open", held_open),
    ("a header of 1 MB", long_header),
    ("endless headers", endless_headers),
    ("a body of 100 MB", large_body),
    ("malformed requests", malformed),
    ("random bytes", random_bytes),
    ("the beginning of TLS", hello),
    ("half-closed", half_closed),
    ("answers that nobody reads", unread),
];

fn open(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&stream, Some(Duration::from_secs(2))).unwrap();
    }
    Some(stream)
}

/// Sends all of it, or as much as is taken.
fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

/// Reads what there is to the end, but not for long.
fn drain(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}

/// A hundred connections with a byte now and then; who is cut off comes back.
fn slowloris(address: SocketAddr, told: &Told) {
    let mut streams: Vec<Option<TcpStream>> = (0..100).map(|_| None).collect();
    while told.go_on(Duration::from_millis(100)) {
        for stream in &mut streams {
            let sent = stream.as_mut().is_some_and(|stream| send(stream, b"x"));
            if !sent {
                *stream = open(address);
                if let Some(stream) = stream {
                    send(stream, b"GET / HTTP/1.1\r\nhost: here\r\nx-slow: ");
                }
            }
        }
    }
}

fn held_open(address: SocketAddr, told: &Told) {
    let held: Vec<_> = (0..200).map(|_| open(address)).collect();
    while told.go_on(Duration::from_millis(200)) {}
    drop(held);
}

fn long_header(address: SocketAddr, _told: &Told) {
    let Some(mut stream) = open(address) else { return };
    send(&mut stream, b"GET / HTTP/1.1\r\nhost: here\r\nx-long: ");
    send(&mut stream, &vec![b'a'; 1024 * 1024]);
    drain(stream);
}

fn endless_headers(address: SocketAddr, _told: &Told) {
    let Some(mut stream) = open(address) else { return };
    send(&mut stream, b"GET / HTTP/1.1\r\nhost: here\r\n");
    for number in 0..20_000 {
        if !send(&mut stream, format!("x-{number}: {number}\r\n").as_bytes()) {
            return;
        }
    }
}

fn large_body(address: SocketAddr, _told: &Told) {
    let Some(mut stream) = open(address) else { return };
    let head =
        "PUT /api/v1/admin/log-level HTTP/1.1\r\nhost: here\r\ncontent-length: 104857600\r\n\r\n";
    send(&mut stream, head.as_bytes());
    let piece = vec![b' '; 256 * 1024];
    for _ in 0..400 {
        if !send(&mut stream, &piece) {
            return;
        }
    }
}

fn malformed(address: SocketAddr, _told: &Told) {
    for text in [
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\ncontent-length: 99999999999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\nabc",
        "GET /\0/ HTTP/1.1\r\nhost: \0\r\n\r\n",
        "GET http://[::1 HTTP/1.1\r\n\r\n",
        "CONNECT elsewhere:443 HTTP/1.1\r\nhost: elsewhere\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        if let Some(mut stream) = open(address) {
            send(&mut stream, text.as_bytes());
            stream.shutdown(Shutdown::Write).unwrap_or_default();
            drain(stream);
        }
    }
}

fn random_bytes(address: SocketAddr, told: &Told) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ told.rounds.load(Ordering::Relaxed) as u64;
    let Some(mut stream) = open(address) else { return };
    for _ in 0..64 {
        let mut bytes = Vec::with_capacity(1024);
        for _ in 0..128 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        if !send(&mut stream, &bytes) {
            return;
        }
    }
}

/// TLS to whichever port it is, and then a request without end.
fn hello(address: SocketAddr, told: &Told) {
    let mut builder = SslConnector::builder(SslMethod::tls_client()).unwrap();
    builder.set_verify(SslVerifyMode::NONE);
    let connector = builder.build();
    let Some(stream) = open(address) else { return };
    if let Ok(mut stream) = connector.connect("here", stream) {
        stream.write_all(b"GET / HTTP/1.1\r\nx: ").unwrap_or_default();
        while stream.write_all(&[b'a'; 1024]).is_ok() && told.go_on(Duration::from_millis(5)) {}
    }
}

fn half_closed(address: SocketAddr, told: &Told) {
    let streams: Vec<_> = (0..20)
        .filter_map(|_| {
            let mut stream = open(address)?;
            send(&mut stream, b"GET /metrics HTTP/1.1\r\nhost: here\r\nx-half: ");
            stream.shutdown(Shutdown::Write).ok()?;
            Some(stream)
        })
        .collect();
    told.go_on(Duration::from_millis(300));
    drop(streams);
}

fn unread(address: SocketAddr, told: &Told) {
    let streams: Vec<_> = (0..30)
        .filter_map(|_| {
            let mut stream = open(address)?;
            for _ in 0..100 {
                send(&mut stream, b"GET /metrics HTTP/1.1\r\nhost: here\r\n\r\n").then_some(())?;
            }
            Some(stream)
        })
        .collect();
    told.go_on(Duration::from_secs(1));
    drop(streams);
}

/// All of them at a port, each in a thread of its own.
fn attack(
    address: SocketAddr,
    over: &Arc<AtomicBool>,
) -> Vec<(&'static str, Told, JoinHandle<()>)> {
    let begin = |(name, attack): (&'static str, Attack)| {
        let told = Told { over: Arc::clone(over), ..Told::default() };
        let its = told.clone();
        let thread = std::thread::spawn(move || {
            while its.go_on(Duration::from_millis(20)) {
                attack(address, &its);
                its.rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        (name, told, thread)
    };
    ATTACKS.map(begin).into_iter().collect()
}

/// A scrape by a client with another address than theirs; how long it took.
fn scrape(address: SocketAddr) -> (usize, Duration) {
    let clock = Clock::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket.connect(address).await.unwrap()
    });
    let mut stream = connected.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(SCRAPE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("tidegate_build_info"), "{text}");
    (text.len(), clock.monotonic().0)
}

/// A line of what the system knows of the process, in KiB.
fn memory(service: &Tidegate, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().unwrap()
}

/// A certificate and its key in a file of their own.
struct Certificate(PathBuf);

impl Certificate {
    fn new() -> Self {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
        let mut name = X509NameBuilder::new().unwrap();
        name.append_entry_by_text("CN", "tidegate").unwrap();
        let name = name.build();
        let mut builder = X509::builder().unwrap();
        builder
            .set_serial_number(&BigNum::from_u32(1).unwrap().to_asn1_integer().unwrap())
            .unwrap();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        let pem = [builder.build().to_pem().unwrap(), key.private_key_to_pem_pkcs8().unwrap()];
        let path =
            std::env::temp_dir().join(format!("tidegate-hostile-{}.pem", std::process::id()));
        std::fs::write(&path, pem.concat()).unwrap();
        Self(path)
    }

    fn set(&self, key: &dyn fmt::Display) -> String {
        format!("{key}={}", self.0.display())
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn hostile_clients_cost_the_pipeline_nothing_and_little_memory() {
    let prefix = "hostile";
    let cluster = Cluster::new(Broker::shared());
    create_topics(&cluster, prefix);
    let pem = Certificate::new();
    let (certificate, key) =
        (pem.set(&"admin.tls_certificate_file"), pem.set(&"admin.tls_key_file"));
    let settings =
        ["admin.listen=127.0.0.1:0", "admin.token=a-token-of-the-test-7f3a", &certificate, &key];
    let arguments: Vec<_> = settings.iter().flat_map(|setting| ["--set", *setting]).collect();
    let mut service = Tidegate::run(&config(&cluster.bootstrap, prefix), &arguments);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    let feeding = Feeding::start(&cluster, &format!("{prefix}-in"), Feed::new(Order::Disorder, 31));
    let read = |service: &mut Tidegate| total(service, "tidegate_records_in_total", "");
    let ticks = |service: &mut Tidegate| total(service, "tidegate_watermark_ticks_total", "");
    service.wait_until("it has warmed up", |service| read(service) > 1_000);
    let (http, admin): (SocketAddr, SocketAddr) =
        (service.address().parse().unwrap(), admin_address(&mut service).parse().unwrap());
    // The peak is to be that of the attack.
    std::fs::write(format!("/proc/{}/clear_refs", service.id()), "5").unwrap();
    let before = memory(&service, "VmHWM");
    let (read_before, ticks_before) = (read(&mut service), ticks(&mut service));

    let over = Arc::new(AtomicBool::new(false));
    let attacks = [attack(http, &over), attack(admin, &over)];
    let clock = Clock::start();
    let (mut scrapes, mut longest) = (0, Duration::ZERO);
    while clock.monotonic().0 < ATTACK {
        park_timeout(Duration::from_millis(200));
        let (_, took) = scrape(http);
        longest = longest.max(took);
        scrapes += 1;
    }
    let lasted = clock.monotonic().0;
    over.store(true, Ordering::Relaxed);
    for (address, attacks) in [http, admin].into_iter().zip(attacks) {
        for (name, told, thread) in attacks {
            thread.join().unwrap();
            println!("hostile: {address}: {name}: {} rounds", told.rounds.load(Ordering::Relaxed));
        }
    }
    let peak = memory(&service, "VmHWM");
    let (read_after, ticks_after) = (read(&mut service), ticks(&mut service));
    println!(
        "hostile: {scrapes} scrapes meanwhile, the longest took {longest:?}; {} records read, {} ticks in {lasted:?}; \
         {before} KiB before, {peak} KiB at most",
        read_after - read_before,
        ticks_after - ticks_before
    );
    assert!(longest < SCRAPE, "{longest:?}");
    assert!(peak < before + GROWTH_KIB, "{before} KiB before, {peak} KiB at most");
    // Every 200 ms, on cores that twenty threads of theirs want for themselves.
    let expected = i64::try_from(lasted.as_millis() / 200).unwrap();
    assert!(ticks_after - ticks_before > expected / 4, "{ticks_before} {ticks_after}");
    assert!(read_after - read_before > 500, "{read_before} {read_after}");

    assert_eq!(service.get("/livez").0, 200);
    feeding.finish();
    let log = service.stop();
    assert!(!log.contains("panicked"), "{log}");
    // Whatever they sent is no reason to fill the log.
    let lines = log.lines().count();
    println!("hostile: {lines} lines of log");
    assert!(lines < 500, "{lines} lines");
}
