//! A month of real flights on its way into the table, while exporters and the database are killed.

use std::io::Read as _;

use crate::dashboard;
use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record};
use crate::support::postgres::Postgres;
use crate::support::process::Tidegate;
use crate::table::{last_panes, rows, watch_effects};

const FLIGHTS: &[u8] = include_bytes!("../data/flights-2013-01.jsonl.gz");
const CONFIG: &str = include_str!("../../config/flights.toml");
const AGGREGATES: [&str; 4] = ["count", "sum", "min", "max"];

/// The README's job with a bound of 30 min and an allowed lateness of 3 h, on topics of its own.
fn settings(cluster: &Cluster) -> Vec<String> {
    let settings = [
        format!("kafka.bootstrap_servers={}", cluster.bootstrap),
        "kafka.group_id=exported".to_owned(),
        "kafka.instance_id=exported".to_owned(),
        "kafka.consumer.properties.session.timeout.ms=2000".to_owned(),
        "source[0].topic=exported-in".to_owned(),
        "source[0].watermark.max_out_of_orderness=30m".to_owned(),
        "window.allowed_lateness=3h".to_owned(),
        "results.topic=exported-hourly".to_owned(),
        "late.topic=exported-late".to_owned(),
        "dead_letter.topic=exported-dead".to_owned(),
        // Small batches, so that one is under way at any moment.
        "export.postgres.batch_rows=20".to_owned(),
        "export.postgres.batch_interval=20ms".to_owned(),
    ];
    settings.into_iter().flat_map(|setting| ["--set".to_owned(), setting]).collect()
}

fn flights() -> Vec<Record> {
    let mut lines = String::new();
    flate2::read::GzDecoder::new(FLIGHTS).read_to_string(&mut lines).unwrap();
    lines.lines().map(|line| Record::of(0, line)).collect()
}

#[test]
fn the_table_is_the_topic_whatever_is_killed_and_the_dashboard_shows_it() {
    let cluster = Cluster::new(Broker::shared());
    cluster.create("exported-in", 1, &[]);
    cluster.create("exported-hourly", 3, &[]);
    let settings = settings(&cluster);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut postgres = Postgres::start();
    let config = format!("{CONFIG}{}", postgres.config("flights_hourly"));
    let export = || Tidegate::export(&config, &settings);

    let mut service = Tidegate::run(CONFIG, &settings);
    let mut exporter = export();
    exporter.wait_for_line("partitions assigned");
    watch_effects(&postgres, "flights_hourly", "origin");
    let in_table = "SELECT count(*) FROM effects";
    let (mut seen, mut read) = (0, 0);
    for (day, records) in flights().chunks(1_500).enumerate() {
        cluster.produce("exported-in", records);
        read += records.len();
        if day % 3 == 0 {
            // A day is in the topic before the next fault, and some of it in the table.
            service.wait_until("a day is read", |service| {
                service.metric_sum("tidegate_consumed_offset", "")
                    >= f64::from(u32::try_from(read).unwrap())
            });
            exporter.wait_until("more is in the table", |_| {
                postgres.number(in_table).is_some_and(|now| now > seen)
            });
            seen = postgres.number(in_table).unwrap();
        }
        match day % 6 {
            // A killed exporter, in the midst of its batches.
            0 => {
                exporter.signal("KILL");
                exporter.wait();
                exporter = export();
            }
            // A killed database, under an exporter that goes on.
            3 => {
                postgres.kill();
                exporter.wait_for_line("the database does not answer");
                postgres.start_again();
            }
            // Both, and the exporter comes back first.
            5 => {
                exporter.signal("KILL");
                postgres.kill();
                exporter.wait();
                exporter = export();
                exporter.wait_for_line("the database does not answer");
                postgres.start_again();
            }
            _ => {}
        }
    }
    // The last windows too, and then everything there is.
    service.stop();
    let mut service = Tidegate::run(CONFIG, &[&settings[..], &["--until-end"]].concat());
    assert!(service.wait().success(), "{}", service.log());
    let said = exporter.stop();
    assert!(said.contains("export ended"), "{said}");
    let mut rest = Tidegate::export(&config, &[&settings[..], &["--until-end"]].concat());
    assert!(rest.wait().success(), "{}", rest.log());

    let expected = last_panes(&cluster, "exported-hourly", "origin", &AGGREGATES);
    assert!(expected.len() > 1_600, "{} rows", expected.len());
    assert_eq!(rows(&postgres, "flights_hourly", "origin", &AGGREGATES), expected);
    let corrected = postgres.number("SELECT count(*) FROM flights_hourly WHERE pane_index > 0");
    assert!(corrected > Some(100), "{corrected:?} rows were corrected");
    let effects = postgres.number(in_table).unwrap();
    println!("{} rows, {corrected:?} of them corrected, {effects} effects", expected.len());
    for row in postgres.query("SELECT partition, next_offset FROM flights_hourly_offsets") {
        let number = |place: usize| row[place].as_ref().unwrap().parse::<i64>().unwrap();
        let end = cluster.end("exported-hourly", i32::try_from(number(0)).unwrap());
        assert!(number(1) <= end, "{row:?} of {end}");
    }
    dashboard::every_panel_has_rows(&postgres, "2013-01-01T00:00:00Z", "2013-02-02T00:00:00Z");
}
