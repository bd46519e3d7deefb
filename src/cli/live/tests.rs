//! Screens and lines as text.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::*;
use crate::event_time::{PartitionId, TimeWindow, WatermarkStatus};
use crate::insight::{FiredWindow, PartitionHistory, PartitionSnapshot, Phase};

/// 12:03:46.0.
const NOW: EventTime = EventTime(1_800_014_626_000);

fn view() -> LiveView {
    LiveView {
        title: "tidegate demo".to_owned(),
        topics: vec!["orders".to_owned()],
        link: Some("http://127.0.0.1:8080".to_owned()),
        notes: vec![
            "The broker is a mock: it does not isolate transactions and keeps nothing.".to_owned(),
        ],
        color: false,
    }
}

fn partition(partition: i32, behind: u64) -> PartitionSnapshot {
    let watermark = NOW - Duration::from_millis(behind);
    PartitionSnapshot {
        id: PartitionId { topic: 0, partition },
        watermark: Some(watermark),
        max_event_time: Some(watermark + Duration::from_secs(2)),
        status: WatermarkStatus::Active,
        bound: Some(Duration::from_secs(2)),
        gauges: Vec::new(),
        idle_in: Some(Duration::from_millis(9_400)),
        paused: None,
        caught_up: true,
        position: Some(12_044),
        end_offset: Some(12_044),
        last_stable_offset: None,
        committed: None,
        history: PartitionHistory::default(),
    }
}

fn fired(start_behind: u64, on_time: u64, late: u64) -> FiredWindow {
    let start = NOW - Duration::from_millis(start_behind);
    let end = start + Duration::from_secs(10);
    let window = TimeWindow { start, end };
    FiredWindow { window, on_time, late, fired_at: end + Duration::from_millis(2_345) }
}

/// Partitions of all kinds: holding and silent, idle, without a record, reading a backlog.
fn snapshot() -> Snapshot {
    let idle = PartitionSnapshot { status: WatermarkStatus::Idle, ..partition(1, 70_000) };
    let empty = PartitionSnapshot {
        watermark: None,
        max_event_time: None,
        position: None,
        end_offset: Some(0),
        last_stable_offset: None,
        committed: None,
        history: PartitionHistory::default(),
        idle_in: None,
        ..partition(2, 0)
    };
    let reading =
        PartitionSnapshot { caught_up: false, position: Some(11_000), ..partition(3, 2_600) };
    Snapshot {
        phase: Phase::Running,
        watermark: Some(NOW - Duration::from_millis(4_800)),
        holder: Some(PartitionId { topic: 0, partition: 0 }),
        partitions: vec![partition(0, 4_800), idle, empty, reading],
        windows_open: 2,
        panes_open: 48,
        recent: vec![fired(36_000, 24, 0), fired(26_000, 1_024, 3)],
        ..Snapshot::default()
    }
}

fn many(partitions: i32) -> Snapshot {
    let partitions: Vec<_> = (0..partitions)
        .map(|number| partition(number, 2_000 + u64::from(number.unsigned_abs() * 7 % 30) * 100))
        .collect();
    let holder = partitions.iter().min_by_key(|partition| partition.watermark).unwrap();
    Snapshot {
        watermark: holder.watermark,
        holder: Some(holder.id),
        partitions: partitions.clone(),
        recent: (1..=8).rev().map(|number| fired(number * 10_000 + 16_000, 24, 0)).collect(),
        ..snapshot()
    }
}

fn counts() -> Counts {
    Counts { records: 48_176, late: 12, dead_letters: 7, tombstones: 3 }
}

fn buffer(view: &LiveView, snapshot: &Snapshot, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let scene = Scene { snapshot, counts: Some(counts()), wall: NOW };
    terminal.draw(|frame| draw(frame, view, &scene)).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(snapshot: &Snapshot, width: u16, height: u16) -> Vec<String> {
    let buffer = buffer(&view(), snapshot, width, height);
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| {
        let row: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        row.trim_end().to_owned()
    })
    .collect()
}

#[track_caller]
fn check(screen: &[String], expected: &str) {
    assert_eq!(screen.join("\n"), expected.trim_start_matches('\n'));
}

#[test]
fn a_terminal_of_80_by_24() {
    check(
        &screen(&snapshot(), 80, 24),
        "
tidegate demo                                                     12:03:46.0 UTC
Watermark 12:03:41.2, 4.8 s behind now, held back by orders/0 (newest event 2.8
s ago, bound 2.0 s, idle in 10 s if nothing comes); 1 of 4 partitions is idle

  PARTITION    NEWEST     WATERMARK  BEHIND      POSITION/END  STATUS
> orders/0     12:03:43.2 12:03:41.2 4.8 s       12044/12044   idle in 10 s
  orders/1     12:02:38.0 12:02:36.0 1 min 10 s  12044/12044   idle
  orders/2     -          -          -           ?/0           no record yet
  orders/3     12:03:45.4 12:03:43.4 2.6 s       11000/12044   active

  WINDOW (UTC)             ON TIME   LATE UPDATES  LAST FIRED
  12:03:20 - 12:03:30      1,024     3             2.3 s after its end
  12:03:10 - 12:03:20      24        0             2.3 s after its end








48,176 records, 12 late, 7 dead letters, 3 tombstones; 2 windows open (48 panes)
The broker is a mock: it does not isolate transactions and keeps nothing.
http://127.0.0.1:8080   > holds the watermark   q quits",
    );
}

#[test]
fn of_30_partitions_the_worst_are_shown_and_the_rest_counted() {
    check(
        &screen(&many(30), 80, 24),
        "
tidegate demo                                                     12:03:46.0 UTC
Watermark 12:03:41.1, 4.9 s behind now, held back by orders/17 (newest event 2.9
s ago, bound 2.0 s, idle in 10 s if nothing comes)

  PARTITION    NEWEST     WATERMARK  BEHIND      POSITION/END  STATUS
> orders/17    12:03:43.1 12:03:41.1 4.9 s       12044/12044   idle in 10 s
  orders/4     12:03:43.2 12:03:41.2 4.8 s       12044/12044   idle in 10 s
  orders/21    12:03:43.3 12:03:41.3 4.7 s       12044/12044   idle in 10 s
  orders/8     12:03:43.4 12:03:41.4 4.6 s       12044/12044   idle in 10 s
  orders/25    12:03:43.5 12:03:41.5 4.5 s       12044/12044   idle in 10 s
  orders/12    12:03:43.6 12:03:41.6 4.4 s       12044/12044   idle in 10 s
  orders/29    12:03:43.7 12:03:41.7 4.3 s       12044/12044   idle in 10 s
  and 23 more: 23 active, 0 idle

  WINDOW (UTC)             ON TIME   LATE UPDATES  LAST FIRED
  12:03:20 - 12:03:30      24        0             2.3 s after its end
  12:03:10 - 12:03:20      24        0             2.3 s after its end
  12:03:00 - 12:03:10      24        0             2.3 s after its end
  12:02:50 - 12:03:00      24        0             2.3 s after its end
  12:02:40 - 12:02:50      24        0             2.3 s after its end

48,176 records, 12 late, 7 dead letters, 3 tombstones; 2 windows open (48 panes)
The broker is a mock: it does not isolate transactions and keeps nothing.
http://127.0.0.1:8080   > holds the watermark   q quits",
    );
}

#[test]
fn one_partition_leaves_its_room_to_the_windows() {
    check(
        &screen(&many(1), 100, 18),
        "
tidegate demo                                                                         12:03:46.0 UTC
Watermark 12:03:44.0, 2.0 s behind now, held back by orders/0 (newest event 0.0 s ago, bound 2.0 s)


  PARTITION                        NEWEST     WATERMARK  BEHIND      POSITION/END  STATUS
> orders/0                         12:03:46.0 12:03:44.0 2.0 s       12044/12044   active

  WINDOW (UTC)                                 ON TIME   LATE UPDATES  LAST FIRED
  12:03:20 - 12:03:30                          24        0             2.3 s after its end
  12:03:10 - 12:03:20                          24        0             2.3 s after its end
  12:03:00 - 12:03:10                          24        0             2.3 s after its end
  12:02:50 - 12:03:00                          24        0             2.3 s after its end
  12:02:40 - 12:02:50                          24        0             2.3 s after its end
  12:02:30 - 12:02:40                          24        0             2.3 s after its end

48,176 records, 12 late, 7 dead letters, 3 tombstones; 2 windows open (48 panes)
The broker is a mock: it does not isolate transactions and keeps nothing.
http://127.0.0.1:8080   > holds the watermark   q quits",
    );
}

#[test]
fn before_anything_is_assigned() {
    check(
        &screen(&Snapshot::default(), 60, 15),
        "
tidegate demo                                 12:03:46.0 UTC
No watermark yet: no partition has been assigned yet


  PARTITION    NEWEST     WATERMARK  BEHIND      POSITION/E…
  none assigned

  WINDOW (UTC)             ON TIME   LATE UPDATES  LAST FIR…
  none has fired yet


48,176 records, 12 late, 7 dead letters, 3 tombstones; 0 wi…
The broker is a mock: it does not isolate transactions and
keeps nothing.
http://127.0.0.1:8080   > holds the watermark   q quits",
    );
}

#[test]
fn no_size_is_too_small_and_every_size_has_the_note_if_it_has_room() {
    for width in [1, 2, 15, 40, 79, 80, 90] {
        for height in 1..=30 {
            let screen = screen(&many(30), width, height);
            if width >= 80 && height >= 3 {
                assert!(screen.iter().any(|line| line.contains("keeps nothing")), "{height}");
            }
        }
    }
}

#[test]
fn without_colors_there_are_none() {
    let colors = |view: &LiveView| {
        let buffer = buffer(view, &snapshot(), 80, 24);
        buffer.content().iter().filter(|cell| cell.fg != Color::Reset).count()
    };
    assert_eq!(colors(&view()), 0);
    assert!(colors(&LiveView { color: true, ..view() }) > 0);
}

#[test]
fn keys_that_quit() {
    let press = |code, modifiers| is_quit(&Event::Key(KeyEvent::new(code, modifiers)));
    assert!(press(KeyCode::Char('q'), KeyModifiers::NONE));
    assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(!press(KeyCode::Char('c'), KeyModifiers::NONE));
    assert!(!press(KeyCode::Enter, KeyModifiers::NONE));
}

fn lines(scenes: &[(Snapshot, EventTime)]) -> String {
    let view = view();
    let mut out = Vec::new();
    let mut lines = Lines::new(&view, &mut out);
    lines.start().unwrap();
    for (snapshot, wall) in scenes {
        lines.observe(&Scene { snapshot, counts: None, wall: *wall }).unwrap();
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn lines_tell_what_changed_and_now_and_then_the_sentence() {
    let before = Snapshot { recent: vec![fired(36_000, 24, 0)], ..many(2) };
    let mut after =
        Snapshot { recent: vec![fired(36_000, 24, 2), fired(26_000, 1_024, 0)], ..before.clone() };
    after.partitions[1].status = WatermarkStatus::Idle;
    let mut at_last = after.clone();
    at_last.partitions.pop();
    let at = |ms| NOW + Duration::from_millis(ms);
    let scenes = [
        (before.clone(), at(0)),
        (before, at(200)),
        (after.clone(), at(400)),
        (after, at(4_900)),
        (at_last, at(5_000)),
    ];
    assert_eq!(
        lines(&scenes),
        "\
tidegate demo
http://127.0.0.1:8080
The broker is a mock: it does not isolate transactions and keeps nothing.
12:03:46.0 orders/0 was assigned
12:03:46.0 orders/1 was assigned
12:03:46.0 window 12:03:10 - 12:03:20 fired: 24 panes, 2.3 s after its end
12:03:46.0 Watermark 12:03:43.3, 2.7 s behind now, held back by orders/1 (newest event 0.7 s ago, \
bound 2.0 s)
12:03:46.4 orders/1 is idle and holds nobody back
12:03:46.4 window 12:03:10 - 12:03:20 fired again: 24 panes, 2 late updates, 2.3 s after its end
12:03:46.4 window 12:03:20 - 12:03:30 fired: 1,024 panes, 2.3 s after its end
12:03:51.0 orders/1 was given away
12:03:51.0 Watermark 12:03:43.3, 7.7 s behind now
"
    );
}

#[test]
fn lines_say_at_once_that_the_brokers_are_away() {
    let blocked = Phase::Blocked("connection refused".to_owned());
    let scenes = [(many(1), NOW), (Snapshot { phase: blocked, ..many(1) }, NOW)];
    assert!(
        lines(&scenes).contains("\n12:03:46.0 Brokers out of reach (connection refused). Water")
    );
}

#[test]
fn lines_end_when_asked_to_and_when_their_reader_is_gone() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let ended = |out: &mut dyn Write| {
        view().run_plain(out, &Watch::default(), || Some(counts()), |_| true).unwrap()
    };
    let mut out = Vec::new();
    assert_eq!(ended(&mut out), Ended::Stopped);
    let said = String::from_utf8(out).unwrap();
    assert!(said.ends_with("assigned yet [48,176 records, 12 late, 7 dead letters]\n"), "{said}");
    assert_eq!(ended(&mut Gone), Ended::Quit);
}
