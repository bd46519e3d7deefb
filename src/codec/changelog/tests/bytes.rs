//! Bytes that an earlier version wrote are read for ever; damaged ones do no harm.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const ALL: [AggregateFunction; 5] = [
    AggregateFunction::Count,
    AggregateFunction::Sum,
    AggregateFunction::Min,
    AggregateFunction::Max,
    AggregateFunction::Avg,
];

/// Written once, by the first version. Never written again: another version gets a file of its own.
const VERSION_1: &str = include_str!("version-1.txt");

fn version_1_settings() -> SubtaskSettings {
    let settings = settings(&ALL);
    SubtaskSettings {
        topics: vec![TopicSettings {
            strategy: WatermarkStrategy::Adaptive(AdaptiveSettings {
                buckets: 2,
                ..AdaptiveSettings::default()
            }),
            idle_timeout: None,
        }],
        window: WindowSettings {
            allowed_lateness: Duration::from_mins(1),
            panes: Panes::Discarding,
            ..settings.window
        },
        ..settings
    }
}

/// A snapshot of several parts, a change, a window past its lateness that has fired for one key of two, and then others
/// that have fired in part.
fn version_1() -> Job {
    let mut job = Job::new(version_1_settings());
    job.max_bytes = 120;
    let float = |number| Some(Value::Float(number));
    for (ms, key, value) in [
        (-1_000, "", Some(Value::Integer(i64::MIN))),
        (-2_000, "!", None),
        (1_000, "a", Some(Value::Integer(7))),
        (2_000, "a", Some(Value::Integer(-300))),
        (3_000, "b", float(0.1)),
        (4_000, "b", float(1e300)),
        (5_000, "c", None),
        (20_000, "a key that is longer than the others", float(-2.5)),
    ] {
        job.add(ms, key, value);
    }
    job.commit();
    job.add(3_000, "b", Some(Value::Integer(1)));
    job.commit();
    job.add(70_000, "z", None);
    job.subtask.on_periodic_emit(NOW);
    let watermark = job.subtask.poll_output().map(|output| format!("{output:?}"));
    assert_eq!(watermark.unwrap(), "WatermarkAdvanced(Watermark(EventTime(68999)))");
    for keys in [&["", "!"][..1], &["!", "a"]] {
        for key in keys {
            let pane = job.subtask.poll_output();
            assert!(matches!(pane, Some(Output::Fired(pane)) if pane.key == key.as_bytes()));
        }
        job.commit();
    }
    job
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |place: usize| u8::from_str_radix(&text[place..place + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

fn version_1_log() -> Log {
    let lines = VERSION_1.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(key, value)| (unhex(key), unhex(value))).collect()
}

#[test]
fn what_is_written_has_not_changed() {
    let written = version_1().log.iter().fold(String::new(), |mut text, (key, value)| {
        writeln!(text, "{} {}", hex(key), hex(value)).unwrap();
        text
    });
    assert_eq!(
        written, VERSION_1,
        "other bytes need another version: raise it, keep reading this one, add a file for the new one"
    );
}

#[test]
fn what_the_first_version_wrote_is_read() {
    let settings = version_1_settings();
    let restored = restore(&version_1_log(), &settings, SHARD).unwrap().unwrap();
    assert_eq!(told(&restored), told(&version_1().restore(&settings).unwrap().unwrap()));
    assert_eq!(restored.writer.sequence(), 4);
    assert_eq!(restored.shard.clock_brought(), Some(Watermark(EventTime(68_999))));
    let partition = &restored.partitions[0];
    assert_eq!(
        (partition.topic.as_str(), partition.partition, partition.offset),
        ("flights", 0, 10)
    );
    assert_eq!(partition.state.max_event_time, Some(EventTime(70_000)));
    let before_the_last = version_1_log().split_last().unwrap().1.to_vec();
    let restart = |log| Job { log, ..version_1() }.restart(version_1_settings());
    let owed = panes(&mut restart(before_the_last).subtask);
    assert_eq!(owed[0], "! -10000 on_time 0: [Integer(0), Missing, Missing, Missing, Missing]");
    assert_eq!(owed.len(), 5);
    let mut job = restart(version_1_log());
    let owed = panes(&mut job.subtask);
    assert_eq!(
        owed[0],
        "b 0 on_time 0: [Integer(3), Float(1e300), Float(0.1), Float(1e300), Float(3.3333333333333335e299)]"
    );
    assert_eq!(owed.len(), 3);
    assert_eq!(job.add(1_000, "a", Some(Value::Integer(1))), Disposition::Refired);
    assert_eq!(
        panes(&mut job.subtask),
        ["a 0 late 1: [Integer(1), Integer(1), Integer(1), Integer(1), Float(1.0)]"],
        "a discarding pane began anew"
    );
}

#[test]
fn a_newer_version_is_named() {
    let mut log = version_1_log();
    log[0].1[0] = 2;
    let fault = restore(&log, &version_1_settings(), SHARD).unwrap_err();
    assert_eq!(fault, ChangelogFault::Version { found: 2 });
    assert!(fault.to_string().contains("a newer tidegate wrote it"), "{fault}");
}

#[test]
fn a_key_that_is_no_slot_is_an_error() {
    let settings = version_1_settings();
    let mut restorer = Restorer::new(&settings.window, &layout_of(&settings));
    assert_eq!(restorer.take(None, &[1]), Err(ChangelogFault::Key { length: 0 }));
    assert_eq!(restorer.take(Some(b"12345"), &[1]), Err(ChangelogFault::Key { length: 5 }));
}

/// Whatever comes of it must not panic: an error, or a shard that goes on.
fn survives(log: &Log) {
    let settings = version_1_settings();
    let Ok(Some(restored)) = restore(log, &settings, SHARD) else { return };
    let mut subtask = Subtask::new(settings);
    if let Some(clock) = restored.shard.clock_brought() {
        subtask.restore_watermark(clock);
    }
    let state = restored.partitions.into_iter().next().map(|partition| partition.state);
    let state = PartitionState { shard: Some(restored.shard), ..state.unwrap_or_default() };
    subtask.assign(P0, Some(state));
    panes(&mut subtask);
    let mut job =
        Job { subtask, writer: restored.writer, log: Log::new(), ..Job::new(version_1_settings()) };
    for ms in [4_000, 200_000] {
        job.add(ms, "a", Some(Value::Integer(i64::MAX)));
        panes(&mut job.subtask);
        job.add(ms, "b", Some(Value::Float(f64::MAX)));
        panes(&mut job.subtask);
        job.tick();
        job.commit();
    }
    job.subtask.drain();
    panes(&mut job.subtask);
}

#[test]
fn every_truncation_and_every_byte_can_be_wrong() {
    let log = version_1_log();
    for place in 0..log.len() {
        for length in 0..log[place].1.len() {
            let mut damaged = log.clone();
            damaged[place].1.truncate(length);
            survives(&damaged);
        }
        for byte in 0..log[place].1.len() {
            let mut damaged = log.clone();
            // Any bit of it: the lowest most often, which makes lengths wrong by one.
            damaged[place].1[byte] ^= 1 << (byte % 11 % 8);
            survives(&damaged);
        }
    }
}

#[test]
fn where_it_is_damaged_is_said() {
    let mut log = version_1_log();
    let last = log.len() - 1;
    let length = log[last].1.len();
    log[last].1.push(0);
    let fault = restore(&log, &version_1_settings(), SHARD).unwrap_err();
    let ChangelogFault::Malformed { at, slot, .. } = fault else { panic!("{fault}") };
    assert!(at < length);
    assert_eq!(slot.to_be_bytes().as_slice(), log[last].0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_do_no_harm(
        messages in prop::collection::vec((0..3u8, prop::collection::vec(any::<u8>(), 0..60)), 1..5),
    ) {
        let message = |(part, rest): (u8, Vec<u8>)| {
            let mut value = vec![1, 2 | u8::from(part == 2), 1, part, 5, 0, 1, 2, 3, 4];
            value.extend(rest);
            (vec![0, 0, 0, part], value)
        };
        survives(&messages.into_iter().map(message).collect());
    }

    #[test]
    fn damage_in_several_places_does_no_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut log = version_1_log();
        for (message, place, byte) in damage {
            let length = log.len();
            let value = &mut log[message.index(length)].1;
            let length = value.len();
            value[place.index(length)] = byte;
        }
        survives(&log);
    }
}
