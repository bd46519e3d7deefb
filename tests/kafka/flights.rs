//! A month of real flights, truly out of order, against totals computed elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::{Command, Stdio};

use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record};
use crate::support::process::Tidegate;

const FLIGHTS: &[u8] = include_bytes!("../data/flights-2013-01.jsonl.gz");
pub(crate) const HOURLY: &str = include_str!("../data/flights-2013-01-hourly.csv");

/// Payloads by partition and offset.
pub(crate) type ByPlace = BTreeMap<(i32, i64), Vec<u8>>;

/// What the README's walk-through configures, with other names.
pub(crate) const CONFIG: &str = include_str!("../../config/flights.toml");

/// Runs the service with topics of its own and another bound.
fn run(cluster: &Cluster, prefix: &str, bound: &str, arguments: &[&str]) -> Tidegate {
    let settings = settings(cluster, prefix, bound);
    let settings = settings.iter().map(String::as_str);
    let arguments: Vec<&str> = settings.chain(arguments.iter().copied()).collect();
    Tidegate::run(CONFIG, &arguments)
}

/// What makes of [`CONFIG`] a job with topics of its own and another bound.
pub(crate) fn settings(cluster: &Cluster, prefix: &str, bound: &str) -> Vec<String> {
    let settings = [
        format!("kafka.bootstrap_servers={}", cluster.bootstrap),
        format!("kafka.group_id={prefix}"),
        format!("source[0].topic={prefix}-in"),
        format!("source[0].watermark.max_out_of_orderness={bound}"),
        format!("results.topic={prefix}-hourly"),
        format!("late.topic={prefix}-late"),
        format!("dead_letter.topic={prefix}-dead"),
    ];
    settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
}

/// Partitions 0, 2 and 4 of 6 have one airport each; three stay empty.
fn flights() -> Vec<Record> {
    let mut lines = String::new();
    flate2::read::GzDecoder::new(FLIGHTS).read_to_string(&mut lines).unwrap();
    let partition = |line: &str| {
        let flight: serde_json::Value = serde_json::from_str(line).unwrap();
        match flight["origin"].as_str().unwrap() {
            "EWR" => 0,
            "JFK" => 2,
            _ => 4,
        }
    };
    lines.lines().map(|line| Record::of(partition(line), line)).collect()
}

/// The records by the place they get in their topic.
fn by_place(records: &[Record]) -> ByPlace {
    let mut next = BTreeMap::new();
    let mut place = |partition| {
        let next: &mut i64 = next.entry(partition).or_default();
        *next += 1;
        (partition, *next - 1)
    };
    records
        .iter()
        .map(|record| (place(record.partition), record.payload.clone().unwrap()))
        .collect()
}

/// The last pane of each window and key, as the reference writes it.
pub(crate) fn last_panes(cluster: &Cluster, prefix: &str) -> BTreeMap<(i64, String), [i64; 4]> {
    let mut panes = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for record in cluster.read(&format!("{prefix}-hourly")) {
        let result = record.json();
        let number = |name: &str| result[name].as_i64().unwrap();
        let origin = result["origin"].as_str().unwrap().to_owned();
        let index = result["pane"]["index"].as_i64().unwrap();
        assert!(seen.insert((number("window_start"), origin.clone(), index)), "twice: {result}");
        assert_eq!(number("window_end") - number("window_start"), 3_600_000);
        assert_eq!(record.key.as_deref(), Some(origin.as_bytes()));
        assert_eq!(record.header("tidegate.partition").as_deref(), Some("all"));
        assert!(
            record.header("tidegate.watermark").unwrap().parse::<i64>().unwrap()
                >= number("window_end") - 1
        );
        panes.insert(
            (number("window_start") / 1_000, origin),
            ["count", "sum", "min", "max"].map(number),
        );
    }
    panes
}

/// The rows of a reference: window and key, and four numbers.
pub(crate) fn reference(csv: &str) -> BTreeMap<(i64, String), [i64; 4]> {
    let row = |row: &str| {
        let columns: Vec<&str> = row.split(',').collect();
        let numbers = [2, 3, 4, 5].map(|column: usize| columns[column].parse().unwrap());
        ((columns[0].parse().unwrap(), columns[1].to_owned()), numbers)
    };
    csv.lines().skip(1).map(row).collect()
}

#[test]
fn with_a_bound_of_a_day_the_results_are_the_reference_row_for_row() {
    let cluster = Cluster::new(Broker::shared());
    let prefix = "flights-24h";
    let records = flights();
    cluster.create(&format!("{prefix}-in"), 6, &[]);
    cluster.produce(&format!("{prefix}-in"), &records);
    let input = by_place(&records);
    let mut service = run(&cluster, prefix, "24h", &["--until-end"]);
    let status = service.wait();
    assert!(status.success(), "{}", service.log());

    assert_eq!(last_panes(&cluster, prefix), reference(HOURLY));
    assert!(cluster.read(&format!("{prefix}-late")).is_empty());
    let dead = cluster.read(&format!("{prefix}-dead"));
    assert_eq!(dead.len(), 521);
    for letter in &dead {
        assert_eq!(letter.header("tidegate.reason").as_deref(), Some("value_missing"));
        assert_eq!(origin_of(letter, &input), letter.payload);
    }
    // Everything read is committed, the empty partitions included.
    assert_eq!(
        cluster.committed(prefix, &format!("{prefix}-in"), 6),
        ends(&cluster, &format!("{prefix}-in"))
    );
}

/// Reads the month as it comes in, day by day, with an emission after every record, while the empty partitions are
/// idle. At the end a record far ahead in each partition closes the last windows.
pub(crate) fn read_live(
    cluster: &Cluster,
    prefix: &str,
    bound: &str,
) -> (ByPlace, i64, Vec<Record>) {
    const RECORDS_A_DAY: usize = 871;
    let topic = format!("{prefix}-in");
    cluster.create(&topic, 6, &[]);
    let arguments = ["--set", "source[0].watermark.idle_timeout=2s"];
    let mut service = run(cluster, prefix, bound, &arguments);
    let records = flights();
    let closing = [0, 2, 4].map(|partition| {
        let line =
            format!(r#"{{"scheduled":1360000000,"origin":"closing-{partition}","delay_min":0}}"#);
        Record::of(partition, line)
    });
    let mut read = 0;
    let mut feed = |service: &mut Tidegate, day: &[Record]| {
        cluster.produce(&topic, day);
        read += day.len();
        service.wait_until("a day is read", |service| {
            service.metric_sum("tidegate_consumed_offset", "")
                >= f64::from(u32::try_from(read).unwrap())
        });
    };
    for day in records.chunks(RECORDS_A_DAY).chain([&closing[..]]) {
        feed(&mut service, day);
    }
    let idle = service.metric_sum("tidegate_partition_idle", "");
    assert!((2.9..3.1).contains(&idle), "the empty partitions are idle: {idle}");
    service.stop();
    let input = by_place(&records);
    let in_panes = last_panes(cluster, prefix).values().map(|[count, ..]| count).sum();
    (input, in_panes, cluster.read(&format!("{prefix}-late")))
}

#[test]
fn with_a_bound_of_half_an_hour_every_flight_is_in_exactly_one_place() {
    let cluster = Cluster::new(Broker::shared());
    let prefix = "flights-30m";
    let (input, in_panes, late) = read_live(&cluster, prefix, "30m");
    let dead = cluster.read(&format!("{prefix}-dead"));
    let mut elsewhere = BTreeSet::new();
    for record in late.iter().chain(&dead) {
        assert_eq!(origin_of(record, &input), record.payload, "byte by byte as it came");
        assert!(elsewhere.insert(place_of(record)), "twice: {record:?}");
    }
    for record in &late {
        assert_eq!(record.header("tidegate.reason").as_deref(), Some("late"));
        let number = |name: &str| record.header(name).unwrap().parse::<i64>().unwrap();
        assert!(number("tidegate.watermark") >= number("tidegate.window.end") - 1);
        assert_eq!(
            number("tidegate.watermark") - number("tidegate.lateness.ms"),
            record.json()["scheduled"].as_i64().unwrap() * 1_000
        );
    }
    assert!(!late.is_empty());
    assert_eq!(dead.len(), 521);
    assert_eq!(usize::try_from(in_panes).unwrap() + late.len() + dead.len(), 27_004);
    assert_eq!(input.len(), 27_004);
}

/// The README's walk-through as it stands there: one partition, in the order of departure, judged after every record.
#[test]
fn the_mean_disorder_as_the_bound_costs_far_more_than_its_99th_percentile() {
    let cluster = Cluster::new(Broker::shared());
    let late_with = |bound: &str| {
        let prefix = format!("walk-{bound}");
        let topic = format!("{prefix}-in");
        cluster.create(&topic, 1, &[]);
        let sent = send_lines(&cluster, &topic);
        assert!(sent.contains("27004 delivered") || sent.contains("27,004 delivered"), "{sent}");
        let mut service = run(&cluster, &prefix, bound, &["--until-end"]);
        let status = service.wait();
        assert!(status.success(), "{}", service.log());
        cluster.read(&format!("{prefix}-late")).len()
    };
    // 10.2 %, 0.6 % and none of the 26,483 that were not cancelled.
    assert_eq!((late_with("14m"), late_with("161m"), late_with("24h")), (2_693, 164, 0));
}

/// `zcat flights | tidegate generate --lines -`
fn send_lines(cluster: &Cluster, topic: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["generate", "--bootstrap", &cluster.bootstrap, "--topic", topic, "--lines", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = flate2::read::GzDecoder::new(FLIGHTS);
    std::io::copy(&mut lines, &mut child.stdin.take().unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn place_of(record: &Record) -> (i32, i64) {
    let number = |name: &str| record.header(name).unwrap().parse::<i64>().unwrap();
    (i32::try_from(number("tidegate.partition")).unwrap(), number("tidegate.offset"))
}

fn origin_of(record: &Record, input: &ByPlace) -> Option<Vec<u8>> {
    input.get(&place_of(record)).cloned()
}

fn ends(cluster: &Cluster, topic: &str) -> Vec<Option<i64>> {
    (0..6).map(|partition| Some(cluster.end(topic, partition))).collect()
}
