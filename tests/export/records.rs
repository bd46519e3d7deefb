//! What is in a results topic besides ordinary results, and numbers that are not ordinary.

use crate::support::cluster::Record;
use crate::support::job::{Job, keyed, wait_for_offset};
use crate::support::postgres::Postgres;
use crate::support::process::Tidegate;
use crate::table::{last_panes, rows};

/// Exports to the end; the log.
fn export(job: &Job, postgres: &Postgres, arguments: &[&str]) -> String {
    let config = format!("{}{}", job.config, postgres.config("t"));
    let mut exporter = Tidegate::export(&config, &[&["--until-end"], arguments].concat());
    let status = exporter.wait();
    assert!(status.success(), "{}", exporter.log());
    exporter.log()
}

/// The values of the last line that says where it stands.
fn told(log: &str) -> serde_json::Value {
    let line = log.lines().rev().find(|line| line.contains("export ended"));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{log}"))).unwrap()
}

#[test]
fn what_is_no_result_is_counted_and_told_and_left_out() {
    let job = Job::new("odd", 1)
        .replace("[results]", "[results]\nprogress = true")
        .replace("fields = [\"k\"]", "from = \"message\"");
    let mut service = job.run(&[]);
    job.produce(&[keyed(0, "a", 1_000, 5), keyed(0, "b", 12_000, 6), keyed(0, "a", 31_000, 1)]);
    wait_for_offset(&mut service, 3);
    service.wait_until("two windows have fired", |service| {
        service.metric_sum("tidegate_window_fires_total", "") >= 2.0
    });
    service.stop();
    let expected = last_panes(&job.cluster, "odd-out", "key", &["count", "sum"]);
    assert_eq!(expected.len(), 2);

    let tombstone = Record { key: Some(b"a".to_vec()), ..Record::default() };
    let without_header = Record::of(0, r#"{"window_start":0,"window_end":10000,"key":"c"}"#);
    job.cluster.produce("odd-out", &[tombstone, Record::of(0, "no result"), without_header]);
    let postgres = Postgres::start();
    let log = export(&job, &postgres, &[]);
    assert!(log.contains("a record that is no row was left out"), "{log}");
    assert!(log.contains("it is no JSON object"), "{log}");
    let told = told(&log);
    assert_eq!((told["results"].as_u64(), told["rows"].as_u64()), (Some(2), Some(2)), "{told}");
    assert_eq!((told["tombstones"].as_u64(), told["unreadable"].as_u64()), (Some(1), Some(2)));
    assert!(told["progress"].as_u64() >= Some(1), "{told}");
    assert_eq!(rows(&postgres, "t", "key", &["count", "sum"]), expected);

    // Nothing is read twice.
    let again = self::told(&export(&job, &postgres, &[]));
    assert_eq!(again["results"], 0, "{again}");
    // A table that was dropped is filled anew, whatever the offsets say.
    postgres.run("DROP TABLE t");
    let anew = export(&job, &postgres, &[]);
    assert!(anew.contains("offsets of a table that is gone"), "{anew}");
    assert_eq!(rows(&postgres, "t", "key", &["count", "sum"]), expected);
}

#[test]
fn numbers_and_names_of_any_kind_come_through() {
    let name = "a \"b\" 'c' ünit; --";
    let job = Job::without_topics("kinds")
        .replace("name = \"sum\"", "name = 'a \"b\" ''c'' ünit; --'")
        .replace(
            "field = \"v\"",
            "field = \"v\"\n[[aggregate]]\nname = \"mean\"\nfunction = \"avg\"\nfield = \"v\"",
        );
    let job = job
        .replace("''c''", "\\u0027c\\u0027")
        .replace("'a \"b\"", "\"a \\\"b\\\"")
        .replace("; --'", "; --\"");
    job.create("out", 1, &[]);
    let result = |start: i64, key: &str, sum: &str, mean: &str| {
        let name = serde_json::Value::from(name);
        Record::of(
            0,
            format!(
                r#"{{"window_start":{start},"window_end":{},"k":{key},"count":1,{name}:{sum},"mean":{mean},
                "pane":{{"timing":"on_time","index":0}}}}"#,
                start + 10_000
            ),
        )
    };
    let huge = "170141183460469231731687303715884105727";
    job.cluster.produce(
        "kinds-out",
        &[
            result(-10_000, "\"1\"", huge, "0.1"),
            result(-10_000, "1", &format!("\"-{huge}\""), "1e300"),
            result(-10_000, "true", "0.1", "null"),
            result(0, "\"it's \\\\ \\\"x\\\"\"", "\"overflow\"", "\"overflow\""),
            result(4_102_444_800_000, "\"\"", "5e-324", "-0.5"),
        ],
    );
    let postgres = Postgres::start();
    export(&job, &postgres, &[]);
    let sql = format!(
        "SELECT k, key_types, window_start AT TIME ZONE 'UTC', {}::text, mean::text, overflow FROM t ORDER BY 3, 1, 2",
        "\"a \"\"b\"\" 'c' ünit; --\""
    );
    let text = |text: &str| (text != "-").then(|| text.to_owned());
    let row = |values: [&str; 6]| values.map(text).to_vec();
    let least = format!("-{huge}");
    let tiny = format!("0.{}5", "0".repeat(323));
    let both = format!("{name},mean");
    let expected = [
        row(["1", "i", "1969-12-31 23:59:50", &least, "1e+300", "-"]),
        row(["1", "s", "1969-12-31 23:59:50", huge, "0.1", "-"]),
        row(["true", "b", "1969-12-31 23:59:50", "0.1", "-", "-"]),
        row(["it's \\ \"x\"", "s", "1970-01-01 00:00:00", "-", "-", &both]),
        row(["", "s", "2100-01-01 00:00:00", &tiny, "-0.5", "-"]),
    ];
    assert_eq!(postgres.query(&sql), expected);
}
