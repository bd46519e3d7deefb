//! The page's files, and what it is sent.

use std::io::{BufRead, BufReader, ErrorKind};

use serde_json::Value;

use super::*;
use crate::http::live::ViewLimits;

const PARTS: [&str; 9] = [
    "/page/page.css",
    "/page/icon.svg",
    "/page/page.js",
    "/page/words.js",
    "/page/lanes.js",
    "/page/tables.js",
    "/page/charts.js",
    "/page/disorder.js",
    "/page/connection.js",
];

#[tokio::test]
async fn the_page_comes_with_its_parts_and_nothing_from_elsewhere() {
    let bench = bench().await;
    let page = bench.get("/").await;
    assert_eq!((page.code, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    for rule in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"]
    {
        assert!(policy.contains(rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"));
    // What a policy without exceptions would refuse.
    for inline in ["<style", "style=", "onclick=", "<script>", "javascript:"] {
        assert!(!page.body.contains(inline), "{inline}");
    }
    let named = page.body.split(['"', '\'']).filter(|text| text.starts_with("page/"));
    let named: Vec<_> = named.map(|path| format!("/{path}")).collect();
    assert_eq!(named.len(), 5, "{named:?}");
    for path in named.iter().map(String::as_str).chain(PARTS) {
        let part = bench.get(path).await;
        assert_eq!(part.code, 200, "{path}");
        assert_eq!(part.header("x-content-type-options"), Some("nosniff"), "{path}");
        if std::path::Path::new(path).extension().is_some_and(|of| of == "js") {
            assert_eq!(part.header("content-type"), Some("text/javascript; charset=utf-8"));
        }
    }
    for path in ["/"].into_iter().chain(PARTS) {
        let text = bench.get(path).await.body.replace("http://www.w3.org/2000/svg", "");
        for sink in [
            "http://",
            "https://",
            "//cdn",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!text.contains(sink), "{path}: {sink}");
        }
    }
}

#[tokio::test]
async fn a_part_that_the_browser_has_is_not_sent_again() {
    let bench = bench().await;
    let first = bench.get("/page/uPlot.js").await;
    // The heads of answers are in lower case here.
    let tag = first.header("etag").unwrap().replacen("w/", "W/", 1);
    assert_eq!(first.header("cache-control"), Some("no-cache"));
    let again = bench.request("GET", "/page/uPlot.js", &format!("if-none-match: {tag}\r\n")).await;
    assert_eq!((again.code, again.body.as_str()), (304, ""));
    let other = bench.request("GET", "/page/uPlot.js", "if-none-match: \"other\"\r\n").await;
    assert_eq!((other.code, other.body.len()), (200, first.body.len()));
}

#[tokio::test]
async fn a_part_is_compressed_for_who_takes_that() {
    let bench = bench().await;
    let length = async |headers: &str| -> (usize, Option<String>) {
        let answer = bench.request("HEAD", "/page/uPlot.js", headers).await;
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
        let length = answer.header("content-length").unwrap().parse().unwrap();
        (length, answer.header("content-encoding").map(str::to_owned))
    };
    let (whole, plain) = length("").await;
    let (short, coding) = length("accept-encoding: br, gzip, deflate\r\n").await;
    assert_eq!((plain, coding.as_deref()), (None, Some("gzip")));
    assert!(short * 2 < whole, "{short} of {whole}");
}

/// One who watches.
struct View(BufReader<TcpStream>);

impl View {
    /// The code of the answer, and what follows.
    async fn open(address: SocketAddr) -> (u16, Self) {
        let opened = spawn_blocking(move || {
            let mut stream = open(address);
            stream.write_all(b"GET /api/v1/live HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
            let mut view = Self(BufReader::new(stream));
            let status = view.line().unwrap();
            (status.split(' ').nth(1).unwrap().parse().unwrap(), view)
        });
        opened.await.unwrap()
    }

    /// `None` at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next part of this name, and how long it is.
    async fn part(mut self, name: &'static str) -> (Self, Value, usize) {
        let read = spawn_blocking(move || {
            let event = format!("event: {name}");
            while self.line().unwrap() != event {}
            let data = self.line().unwrap();
            let data = data.strip_prefix("data: ").unwrap();
            (serde_json::from_str(data).unwrap(), data.len(), self)
        });
        let (value, length, view) = read.await.unwrap();
        (view, value, length)
    }

    /// Everything up to the chunk that ends the stream; a browser takes it for a failure if that is missing.
    async fn until_its_end(mut self) -> Vec<String> {
        let lines = move || {
            let mut lines = Vec::new();
            while lines.last().is_none_or(|last| last != "0") {
                lines.push(self.line().unwrap());
            }
            lines
        };
        spawn_blocking(lines).await.unwrap()
    }
}

fn limited(views: ViewLimits) -> impl FnOnce(Server) -> Server {
    move |server| server.limited(Limits { views, ..Limits::DEFAULT })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_gets_everything_at_once_and_then_what_is_new() {
    let bench = bench().await;
    bench.pass(10);
    bench.watches.of(0).publish(a_snapshot());
    let (code, view) = View::open(bench.address).await;
    assert_eq!(code, 200);
    let (view, state, _) = view.part("state").await;
    assert_eq!(state["lanes"]["shown"][0]["name"], "orders/3");
    assert_eq!(state["lanes"]["shown"][0]["holds"], true);
    assert_eq!(state["windows"]["fired"][0]["on_time"], 4);
    assert_eq!(state["explanation"]["holder"]["partition"], 3);
    let (view, events, _) = view.part("events").await;
    let kinds: Vec<_> = events.as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["start", "phase", "assigned"]);

    let mut next = a_snapshot();
    next.partitions[0].status = WatermarkStatus::Idle;
    next.holder = None;
    bench.watches.of(0).publish(next);
    let (mut view, mut state) = (view, Value::Null);
    while state["lanes"]["idle"] != 1 {
        (view, state, _) = view.part("state").await;
    }
    let (_, events, _) = view.part("events").await;
    let last = events.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["kind"], &last["text"]),
        (&"idle".into(), &"orders/3 is idle: no longer waited for".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_viewers_get_the_same_frame() {
    let bench = bench().await;
    let mut states = Vec::new();
    for _ in 0..3 {
        let (_, view) = View::open(bench.address).await;
        bench.pass(1);
        // The clock goes on, and what is shown of it was made for the first of them.
        let (_, state, _) = view.part("state").await;
        states.push(state["now"].clone());
    }
    states.dedup();
    assert!(states.len() < 3, "{states:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_does_not_grow_with_the_partitions() {
    let bench = bench().await;
    let one = a_snapshot().partitions.remove(0);
    let partitions = (0..1_000).map(|partition| PartitionSnapshot {
        id: PartitionId { topic: 0, partition },
        ..one.clone()
    });
    let open = (0..256_i64).map(|n| TimeWindow {
        start: EventTime(1_799_999_940_000 + n * 60_000),
        end: EventTime(1_800_000_000_000 + n * 60_000),
    });
    bench.watches.of(0).publish(Snapshot {
        partitions: partitions.collect(),
        open: open.collect(),
        windows_open: 256,
        ..a_snapshot()
    });
    let (_, view) = View::open(bench.address).await;
    let (view, state, length) = view.part("state").await;
    assert!(length < 16 * 1024, "{length}");
    assert_eq!(
        (&state["lanes"]["partitions"], &state["lanes"]["rest"]["partitions"]),
        (&1_000.into(), &980.into())
    );
    let shown: Vec<_> = state["lanes"]["shown"].as_array().unwrap().iter().collect();
    assert_eq!((shown.len(), shown.iter().filter(|lane| lane["holds"] == true).count()), (20, 1));
    let (_, _, length) = view.part("events").await;
    assert!(length < 1024, "{length}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_only_so_many_viewers_and_a_place_is_free_again() {
    let views = ViewLimits { viewers: 1, ..ViewLimits::DEFAULT };
    let bench = bench_with(1, limited(views)).await;
    let (code, first) = View::open(bench.address).await;
    assert_eq!(code, 200);
    let refused = bench.get("/api/v1/live").await;
    assert_eq!((refused.code, refused.header("retry-after")), (503, Some("5")));
    // Others are not in the way of probes.
    assert_eq!(bench.get("/livez").await.code, 200);
    drop(first);
    while View::open(bench.address).await.0 != 200 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_ends_by_itself_and_with_the_server() {
    let views = ViewLimits { view: Duration::from_millis(50), ..ViewLimits::DEFAULT };
    let bench = bench_with(1, limited(views)).await;
    let (_, view) = View::open(bench.address).await;
    let lines = view.until_its_end().await;
    assert!(lines.iter().any(|line| line == "retry: 1000"), "{lines:?}");

    let bench = super::bench().await;
    let (_, view) = View::open(bench.address).await;
    bench.stop.send(()).unwrap();
    bench.running.await.unwrap();
    view.until_its_end().await;
}
