mod admin;
mod connections;
mod explain;
mod page;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use super::server::Limits;
use super::*;
use crate::event_time::{AllIdle, TumblingWindows};
use crate::event_time::{
    EventTime, MonotonicTime, Now, PartitionId, Paused, TimeWindow, WatermarkStatus,
};
use crate::insight::advise::Terms as AdviseTerms;
use crate::insight::explain::Terms as ExplainTerms;
use crate::insight::{
    FiredWindow, JobTerms, PartitionHistory, PartitionSnapshot, Phase, RestoringPartition, Snapshot,
};
use crate::metrics::{MetricsInfo, SourceInfo};

const ANY_PORT: &str = "127.0.0.1:0";

/// A server on a port of its own, with a clock and snapshots set by hand.
struct Bench {
    address: SocketAddr,
    watches: Watches,
    now: Arc<Mutex<Now>>,
    metrics: Metrics,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

fn state(now: Arc<Mutex<Now>>, subtasks: u16) -> HttpState {
    let info = MetricsInfo {
        librdkafka: "2.12.1".to_owned(),
        config_sha256: "0".repeat(64),
        sources: vec![SourceInfo {
            topic: "orders".to_owned(),
            strategy: "ascending".to_owned(),
            idle_timeout: None,
            max_out_of_orderness: None,
        }],
        window_size: Duration::from_mins(1),
        allowed_lateness: Duration::ZERO,
    };
    let watches = Watches::new(subtasks);
    let clock: ReadNow = Arc::new(move || *now.lock().unwrap());
    let metrics = Metrics::new(&info, watches.clone(), Arc::clone(&clock)).unwrap();
    let explain_terms = ExplainTerms {
        topics: vec!["orders".to_owned()],
        sources: Vec::new(),
        windows: TumblingWindows::new(Duration::from_mins(1), 0).unwrap(),
        allowed_lateness: Duration::ZERO,
        all_idle: AllIdle::Hold,
        emit_interval: Duration::from_millis(200),
    };
    let advise_terms = AdviseTerms {
        topic: "orders".to_owned(),
        source: Vec::new(),
        window_size: Duration::from_mins(1),
        emit_interval: Duration::from_millis(200),
        idle_timeout: Some(Duration::from_secs(30)),
        batch_period: None,
        max_delay: None,
        bound: None,
        is_live: false,
    };
    let terms = JobTerms {
        topics: ["orders".to_owned()].into(),
        explain: Arc::new(explain_terms),
        advise: [advise_terms].into(),
    };
    HttpState { metrics, watches, clock, terms: Arc::new(move || terms.clone()) }
}

async fn bench() -> Bench {
    bench_with(1, |server| server).await
}

async fn bench_with(subtasks: u16, adjust: impl FnOnce(Server) -> Server) -> Bench {
    let now = Now { monotonic: MonotonicTime::default(), wall: EventTime(1_800_000_000_000) };
    let now = Arc::new(Mutex::new(now));
    let state = state(Arc::clone(&now), subtasks);
    let (watches, metrics) = (state.watches.clone(), state.metrics.clone());
    let server = adjust(Server::bind(ANY_PORT.parse().unwrap(), state).await.unwrap());
    let (stop, stopped) = oneshot::channel();
    let address = server.address();
    let running = tokio::spawn(server.run(async { stopped.await.unwrap_or(()) }));
    Bench { address, watches, now, metrics, stop, running }
}

struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn read(mut stream: TcpStream) -> Self {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { code, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/json"));
        serde_json::from_str(&self.body).unwrap()
    }
}

fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

impl Bench {
    async fn request(&self, method: &str, path: &str, headers: &str) -> Answer {
        let address = self.address;
        let text =
            format!("{method} {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n{headers}\r\n");
        let answer = spawn_blocking(move || {
            let mut stream = open(address);
            stream.write_all(text.as_bytes()).unwrap();
            Answer::read(stream)
        });
        answer.await.unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "").await
    }

    /// The code and the JSON of a probe.
    async fn probe(&self, path: &str) -> (u16, serde_json::Value) {
        let answer = self.get(path).await;
        (answer.code, answer.json())
    }

    fn publish(&self, phase: Phase) {
        self.publish_of(0, phase);
    }

    fn publish_of(&self, subtask: u16, phase: Phase) {
        let taken = Some(self.now.lock().unwrap().monotonic);
        self.watches.of(subtask).publish(Snapshot { taken, phase, ..Snapshot::default() });
    }

    fn pass(&self, secs: u64) {
        self.now.lock().unwrap().monotonic.0 += Duration::from_secs(secs);
    }
}

#[tokio::test]
async fn metrics_have_the_content_type_that_prometheus_asks_for() {
    let bench = bench().await;
    let got = bench.get("/metrics").await;
    assert_eq!(got.code, 200);
    let content_type = Some("text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(got.header("content-type"), content_type);
    assert!(got.body.contains("tidegate_build_info{"));

    let head = bench.request("HEAD", "/metrics", "").await;
    assert_eq!((head.code, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-type"), content_type);
    assert!(head.header("content-length").is_some());
}

#[tokio::test]
async fn a_long_answer_arrives_whole() {
    let bench = bench().await;
    for partition in 0..1_000 {
        bench.metrics.of(0).assigned(PartitionId { topic: 0, partition });
    }
    let got = bench.get("/metrics").await;
    assert_eq!(got.body.matches("tidegate_records_in_total{").count(), 1_000);
    assert_eq!(got.header("content-length"), Some(got.body.len().to_string().as_str()));
}

#[tokio::test]
async fn a_stalled_loop_is_not_alive_and_a_lost_broker_is_no_reason() {
    let bench = bench().await;
    bench.pass(60);
    assert_eq!(
        bench.probe("/livez").await,
        (200, serde_json::json!({ "status": "alive", "phase": "starting" }))
    );
    bench.pass(1);
    assert_eq!(bench.probe("/livez").await.0, 503);

    bench.publish(Phase::Blocked("all brokers are down".to_owned()));
    bench.pass(30);
    let (code, body) = bench.probe("/healthz").await;
    assert_eq!((code, &body["blocked"]), (200, &"all brokers are down".into()));
    bench.pass(1);
    let (code, body) = bench.probe("/livez").await;
    assert_eq!((code, &body["status"]), (503, &"failing".into()));
    assert_eq!(body["reason"], "the loop has not turned for 31 s");
}

#[tokio::test]
async fn ready_from_the_first_assignment_until_the_end_begins() {
    let bench = bench().await;
    let (code, body) = bench.probe("/readyz").await;
    assert_eq!((code, &body["reason"]), (503, &"waiting for the first assignment".into()));
    bench.publish(Phase::Running); // with no partition at all: a standby
    assert_eq!(
        bench.probe("/readyz").await,
        (200, serde_json::json!({ "status": "ready", "phase": "running" }))
    );
    for (phase, code) in [
        (Phase::Blocked("all brokers are down".to_owned()), 200),
        (Phase::Restoring, 503),
        (Phase::Standby("another instance reads all partitions".to_owned()), 503),
        (Phase::Draining, 503),
        (Phase::Stopping, 503),
        (Phase::Stopped, 503),
    ] {
        bench.publish(phase);
        assert_eq!(bench.probe("/readyz").await.0, code);
    }
}

const SENTENCE: &str = "Reading back what open windows held (1 partition, 2 of 5 changelog records). Watermark \
                    07:59:55.0, 5.0 s behind now, held back by orders/3 (2 records not read yet, no record yet, \
                    never idle, since it has no idle timeout)";

fn a_snapshot() -> Snapshot {
    let id = PartitionId { topic: 0, partition: 3 };
    Snapshot {
        taken: Some(MonotonicTime(Duration::from_millis(9_800))),
        phase: Phase::Running,
        watermark: Some(EventTime(1_799_999_995_000)),
        holder: Some(id),
        partitions: vec![PartitionSnapshot {
            id,
            watermark: Some(EventTime(1_799_999_995_000)),
            max_event_time: None,
            status: WatermarkStatus::Active,
            bound: Some(Duration::from_secs(2)),
            gauges: vec![("own", 0.5)],
            idle_in: None,
            paused: None,
            caught_up: true,
            position: Some(7),
            end_offset: Some(9),
            last_stable_offset: None,
            committed: None,
            history: PartitionHistory::default(),
        }],
        recent: vec![FiredWindow {
            window: TimeWindow { start: EventTime(0), end: EventTime(60_000) },
            on_time: 4,
            late: 1,
            fired_at: EventTime(61_000),
        }],
        state_bytes: 640,
        restoring: vec![RestoringPartition {
            id: PartitionId { topic: 0, partition: 4 },
            read: 2,
            end: 5,
        }],
        last_commit: Some(MonotonicTime(Duration::from_secs(9))),
        ..Snapshot::default()
    }
}

#[tokio::test]
async fn the_status_is_the_snapshot_in_milliseconds() {
    let bench = bench().await;
    bench.pass(10);
    let mut snapshot = a_snapshot();
    let paused = Paused { ahead: Duration::from_mins(2), resumes_at: EventTime(7) };
    snapshot.partitions[0].paused = Some(paused);
    bench.watches.of(0).publish(snapshot);
    let subtask = serde_json::json!({
        "subtask": 0,
        "phase": "running",
        "blocked": null,
        "sentence": SENTENCE,
        "age_ms": 200,
        "watermark": 1_799_999_995_000_i64,
        "watermark_lag_ms": 5_000,
        "holder": { "topic": "orders", "partition": 3 },
        "partitions": [{
            "topic": "orders", "partition": 3, "status": "active",
            "watermark": 1_799_999_995_000_i64, "watermark_lag_ms": 5_000,
            "max_event_time": null, "bound_ms": 2_000, "idle_in_ms": null,
            "paused": true, "ahead_ms": 120_000, "resumes_at": 7,
            "caught_up": true, "position": 7, "end_offset": 9, "lag": 2,
            "gauges": { "own": 0.5 },
        }],
        "windows_open": 0,
        "panes_open": 0,
        "oldest_open_window": null,
        "state_bytes": 640,
        "restoring": [{ "topic": "orders", "partition": 4, "read": 2, "end": 5 }],
        "recent": [{
            "window_start": 0, "window_end": 60_000, "on_time": 4, "late": 1, "fired_at": 61_000,
        }],
        "last_commit": 1_799_999_999_000_i64,
    });
    let expected = serde_json::json!({
        "now": 1_800_000_000_000_i64,
        "phase": "running",
        "sentence": SENTENCE,
        "watermark": 1_799_999_995_000_i64,
        "watermark_lag_ms": 5_000,
        "subtasks": [subtask],
    });
    assert_eq!(bench.probe("/api/v1/status").await, (200, expected));
}

#[tokio::test]
async fn of_several_subtasks_the_one_that_is_least_well_is_told() {
    let bench = bench_with(2, |server| server).await;
    bench.publish_of(0, Phase::Running);
    let (code, body) = bench.probe("/readyz").await;
    assert_eq!((code, &body["phase"]), (503, &"starting".into()));
    assert_eq!(body["reason"], "subtask 1: waiting for the first assignment");
    bench.publish_of(1, Phase::Running); // with no partition at all: a standby
    assert_eq!(bench.probe("/readyz").await.0, 200);

    bench.publish_of(1, Phase::Blocked("all brokers are down".to_owned()));
    let (code, body) = bench.probe("/readyz").await;
    assert_eq!((code, &body["blocked"]), (200, &"all brokers are down".into()));
    bench.pass(31);
    bench.publish_of(0, Phase::Running);
    let (code, body) = bench.probe("/livez").await;
    assert_eq!(
        (code, &body["reason"]),
        (503, &"subtask 1: the loop has not turned for 31 s".into())
    );

    let (code, body) = bench.probe("/api/v1/status").await;
    assert_eq!((code, &body["phase"], &body["watermark"]), (200, &"blocked".into(), &().into()));
    let sentence = "Subtask 1, the furthest behind of 2: Brokers out of reach (all brokers are down). No watermark \
                    yet: no partition is assigned here";
    assert_eq!(body["sentence"], sentence);
    let numbers: Vec<_> =
        body["subtasks"].as_array().unwrap().iter().map(|s| &s["subtask"]).collect();
    assert_eq!(numbers, [0, 1]);
}

#[tokio::test]
async fn other_requests_are_refused() {
    let bench = bench().await;
    assert!(bench.get("/").await.body.contains("/metrics"));
    assert_eq!(bench.get("/elsewhere").await.code, 404);
    assert_eq!(bench.request("POST", "/readyz", "content-length: 0\r\n").await.code, 405);
}

#[tokio::test]
async fn a_header_without_end_is_refused() {
    let bench = bench().await;
    let mut stream = open(bench.address);
    let text = format!("{:x<1$}", "GET / HTTP/1.1\r\nx-long: ", Limits::BUFFER);
    let answer = spawn_blocking(move || {
        stream.write_all(text.as_bytes()).unwrap();
        Answer::read(stream)
    });
    assert_eq!(answer.await.unwrap().code, 431);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_the_setting() {
    let bench = bench().await;
    let fault = Server::bind(bench.address, state(Arc::clone(&bench.now), 1)).await.unwrap_err();
    let text = fault.to_string();
    assert!(text.contains(&bench.address.to_string()) && text.contains("http.listen"), "{text}");
    assert_eq!(fault.cause.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn the_server_ends_when_told_and_closes_idle_connections() {
    let bench = bench().await;
    let mut idle = open(bench.address);
    assert_eq!(bench.get("/livez").await.code, 200);
    bench.stop.send(()).unwrap();
    bench.running.await.unwrap();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    assert!(TcpStream::connect(bench.address).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_is_worked_out_from_what_the_loop_hands_over() {
    use crate::event_time::TumblingWindows;
    use crate::insight::advise::{Observations, Seen};

    let bench = bench().await;
    let windows = TumblingWindows::new(Duration::from_mins(1), 0).unwrap();
    let mut observations = Observations::new(windows, Duration::ZERO);
    let id = PartitionId { topic: 0, partition: 3 };
    // Every fifth record is a minute and a half behind.
    for offset in 0..2_000_i64 {
        let arrival = 1_800_000_000_000 + offset * 1_000;
        let event_time = EventTime(if offset % 5 == 4 { arrival - 90_000 } else { arrival });
        let seen = Seen { offset, event_time, arrival: Some(EventTime(arrival)), late: None };
        observations.on_event(id, seen, MonotonicTime::default());
    }
    let desk = bench.watches.of(0).desk().clone();
    let answering = tokio::spawn(async move {
        while !desk.is_asked(MonotonicTime::default()) {
            tokio::task::yield_now().await;
        }
        desk.answer(observations, MonotonicTime::default());
    });
    let answer = bench.get("/api/v1/advise?bound=40s&max_delay=3m").await;
    answering.await.unwrap();
    let json = answer.json();
    assert_eq!(answer.code, 200, "{json}");
    let advice = &json["advice"][0];
    assert_eq!((&advice["topic"], &advice["records"]), (&"orders".into(), &2_000.into()));
    let partition = &advice["partitions"][0];
    assert_eq!(partition["partition"], 3);
    let p99 = partition["out_of_orderness_ms"]["p99"].as_u64().unwrap();
    assert!(p99.abs_diff(90_000) < 900 + 1_000, "{p99}");
    // By 40 s, those lose whose window ended 30 s to 90 s before: 1 s to 50 s into their minute.
    let late = advice["what_if"]["late_share"].as_f64().unwrap();
    assert!((0.1..0.2).contains(&late), "{late}");
    assert_eq!(advice["max_delay"]["asked_ms"], 180_000);
    assert_eq!(advice["late"]["after_idle"], 0);
    assert!(advice["recommendation"]["max_out_of_orderness_ms"].as_u64().unwrap() >= p99);
    assert!(json["text"][0].as_str().unwrap().contains("recommended:"), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_asked_of_advice_is_said() {
    let bench = bench().await;
    for (query, said) in [
        ("bound=8", "has no unit"),
        ("bounds=8s", "known here: bound, max_delay, batch_period, topic"),
        ("topic=other", "no source reads topic `other`"),
    ] {
        let answer = bench.get(&format!("/api/v1/advise?{query}")).await;
        assert_eq!(answer.code, 400, "{query}");
        let text = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(text.contains(said), "{query}: {text}");
    }
    // No loop runs here that could answer.
    let answer = bench.get("/api/v1/advise").await;
    assert_eq!(answer.code, 503);
}
