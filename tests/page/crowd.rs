//! A thousand partitions, and names that are markup.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::Clock;
use tidegate::event_time::{
    AllIdle, EventTime, MonotonicTime, PartitionId, TimeWindow, TumblingWindows, WatermarkStatus,
};
use tidegate::http::{HttpState, Server};
use tidegate::insight::JobTerms;
use tidegate::insight::advise::{Observations, Seen, Terms as AdviseTerms};
use tidegate::insight::explain::{SourceTerms, Terms as ExplainTerms};
use tidegate::insight::{PartitionHistory, PartitionSnapshot, Phase, Snapshot, Watches};
use tidegate::metrics::{Metrics, MetricsInfo, SourceInfo};

use crate::browser::Browser;

/// What a topic may not be called and a page must not believe.
const MARKUP: &str = "<img src=x onerror=\"window.hacked = 1\">";

const PARTITIONS: i32 = 1_000;

fn windows() -> TumblingWindows {
    TumblingWindows::new(Duration::from_mins(1), 0).unwrap()
}

fn state(watches: Watches, clock: Clock) -> HttpState {
    let topics = ["orders".to_owned(), MARKUP.to_owned()];
    let source = |topic: &String| SourceInfo {
        topic: topic.clone(),
        strategy: "bounded_out_of_orderness".to_owned(),
        idle_timeout: Some(Duration::from_secs(30)),
        max_out_of_orderness: Some(Duration::from_secs(5)),
    };
    let info = MetricsInfo {
        librdkafka: String::new(),
        config_sha256: "0".repeat(64),
        sources: topics.iter().map(source).collect(),
        window_size: Duration::from_mins(1),
        allowed_lateness: Duration::ZERO,
    };
    let metrics = Metrics::new(&info, watches.clone(), clock.reader()).unwrap();
    let terms = SourceTerms {
        strategy: "bounded_out_of_orderness".to_owned(),
        idle_timeout: Some(Duration::from_secs(30)),
    };
    let advise = |topic: &String| AdviseTerms {
        topic: topic.clone(),
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
        explain: Arc::new(ExplainTerms {
            topics: topics.to_vec(),
            sources: vec![terms; 2],
            windows: windows(),
            allowed_lateness: Duration::ZERO,
            all_idle: AllIdle::Hold,
            emit_interval: Duration::from_millis(200),
        }),
        advise: topics.iter().map(advise).collect(),
        topics: topics.into(),
    };
    HttpState { metrics, watches, clock: clock.reader(), terms: Arc::new(move || terms.clone()) }
}

/// The holder has records to read; the others are some seconds behind, and some are idle.
fn snapshot(holder: PartitionId, clock: Clock) -> Snapshot {
    let (wall, now) = (Clock::wall(), clock.monotonic());
    let held_at = wall - Duration::from_secs(72);
    let orders = (0..PARTITIONS).map(|partition| PartitionId { topic: 0, partition });
    let others = (0..2).map(|partition| PartitionId { topic: 1, partition });
    let partition = |id: PartitionId| {
        let spread =
            Duration::from_millis(5_300 + u64::from(id.partition.unsigned_abs()) * 7 % 1_300);
        let watermark = if id == holder { held_at } else { wall - spread };
        let idle = id.partition % 40 == 17 && id != holder;
        PartitionSnapshot {
            id,
            watermark: Some(watermark),
            max_event_time: Some(watermark + Duration::from_secs(5)),
            status: if idle { WatermarkStatus::Idle } else { WatermarkStatus::Active },
            bound: Some(Duration::from_secs(5)),
            gauges: Vec::new(),
            idle_in: (!idle).then_some(Duration::from_secs(11)),
            paused: None,
            caught_up: id != holder,
            position: Some(100),
            end_offset: Some(if id == holder { 48_100 } else { 100 }),
            last_stable_offset: Some(100),
            committed: None,
            history: PartitionHistory {
                records: 100,
                accepted: 100,
                records_lately: Some(10),
                last_record: Some(now),
                ..PartitionHistory::default()
            },
        }
    };
    let first = windows().assign(held_at).unwrap();
    let open = (0..40).map(|n| TimeWindow {
        start: first.start + Duration::from_mins(n),
        end: first.end + Duration::from_mins(n),
    });
    Snapshot {
        taken: Some(now),
        phase: Phase::Running,
        watermark: Some(held_at),
        holder: Some(holder),
        partitions: orders.chain(others).map(partition).collect(),
        windows_open: 40,
        panes_open: 80_000,
        least_clock: Some(held_at),
        open: open.collect(),
        ..Snapshot::default()
    }
}

fn observations() -> Observations {
    let mut observations = Observations::new(windows(), Duration::ZERO);
    for offset in 0..2_000_i64 {
        let arrival = EventTime(1_800_000_000_000 + offset * 100);
        let behind = if offset % 5 == 4 { 2_000 } else { 0 };
        let seen = Seen {
            offset,
            event_time: EventTime(arrival.0 - behind),
            arrival: Some(arrival),
            late: None,
        };
        for topic in 0..2 {
            let id = PartitionId { topic, partition: 0 };
            observations.on_event(id, seen, MonotonicTime::default());
        }
    }
    observations
}

/// Publishes the snapshot at each tick, as a loop does, and hands over what was observed.
async fn publish(
    watches: Watches,
    clock: Clock,
    holder: tokio::sync::watch::Receiver<PartitionId>,
) {
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        let watch = watches.of(0);
        let holder = *holder.borrow();
        watch.publish(snapshot(holder, clock));
        if watch.desk().is_asked(clock.monotonic()) {
            watch.desk().answer(observations(), clock.monotonic());
        }
    }
}

/// One more viewer, once it is served: the page that was open before may be leaving yet.
fn watch(address: SocketAddr) -> TcpStream {
    loop {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /api/v1/live HTTP/1.1\r\nhost: here\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        if answer.ends_with(b"200") {
            return stream;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_partitions_it_shows_those_that_matter_and_no_name_is_markup() {
    let browser = Browser::start().await;
    let (clock, watches) = (Clock::start(), Watches::new(1));
    let silent = PartitionId { topic: 0, partition: 417 };
    let (holds, held) = tokio::sync::watch::channel(silent);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), state(watches.clone(), clock));
    let server = server.await.unwrap();
    let address = server.address();
    let publishing = tokio::spawn(publish(watches, clock, held));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async { drop(stopped.await) }));

    browser.open(&format!("http://{address}/")).await;
    let shown = "document.getElementById('sentence').textContent.includes('orders/417') \
                 && document.querySelector('[data-name=\"orders/417\"] .name').textContent === '◆ orders/417' \
                 && document.getElementById('lanes-summary').textContent.startsWith('1,002 partitions: ') \
                 && document.querySelector('.lane.rest .name').textContent === '982 more'";
    browser.wait_until("the holder is shown, and how many more there are", shown).await;
    let rows: u32 = browser.eval("document.querySelectorAll('.lane').length").await;
    assert_eq!(rows, 1 + 20 + 1);
    let windows: u32 = browser.eval("document.getElementById('open').rows.length").await;
    assert_eq!(windows, 9);
    for (width, height) in [(1160, 800), (360, 740)] {
        browser.width(width, height).await;
        browser.wait_until("the width is right", &format!("innerWidth === {width}")).await;
        let fits = "document.documentElement.scrollWidth <= innerWidth";
        browser.wait_until("nothing is wider than the screen", fits).await;
    }
    browser.width(1160, 800).await;
    browser.picture("page-1000-partitions.png").await;

    // Whatever it is called, it is a text.
    holds.send(PartitionId { topic: 1, partition: 1 }).unwrap();
    let name = format!("{MARKUP}/1");
    let named = format!(
        "document.getElementById('sentence').textContent.includes({name:?}) \
         && [...document.querySelectorAll('.lane.holds .name')].map((name) => name.textContent).join() === '◆ ' + {name:?} \
         && document.querySelector('#topic option:nth-child(2)')?.textContent === {MARKUP:?}"
    );
    browser.wait_until("the name is shown as it is written", &named).await;
    let images: u32 = browser.eval("document.images.length").await;
    assert_eq!(images, 0);
    assert!(browser.eval::<bool>("window.hacked === undefined").await);
    assert_eq!(browser.faults().await, [] as [String; 0]);

    // What must not happen would have been seen: here it does.
    let inline = "void document.head.append(\
                  Object.assign(document.createElement('style'), { textContent: 'p {}' }))";
    let _: Option<()> = browser.eval(inline).await;
    let seen = "window.faults.some((fault) => fault.startsWith('style-src'))";
    browser.wait_until("an inline style is refused", seen).await;

    // As many as may watch are there: the page says so, and comes in when one of them leaves.
    browser.open("about:blank").await;
    let views: Vec<_> = (0..16).map(|_| watch(address)).collect();
    browser.open(&format!("http://{address}/")).await;
    let refused = "document.getElementById('alarm').textContent.includes('no further viewer')";
    browser.wait_until("a further viewer is told", refused).await;
    drop(views);
    let live = "document.getElementById('connection').textContent.includes('live')";
    browser.wait_until("there is room again", live).await;

    publishing.abort();
    stop.send(()).unwrap();
    serving.await.unwrap();
    browser
        .wait_until("the view ends with the service", "document.title.includes('disconnected')")
        .await;
    browser.end().await;
}
