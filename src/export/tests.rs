//! The pieces of the export: rows, SQL, and tables that do not fit.

use std::collections::BTreeSet;

use super::batch::Batch;
use super::row::{Identity, Pane, Skipped, read};
use super::schema::{Found, differences};
use super::show_sql;
use super::table::{Layout, names, quoted};
use crate::config::{Config, RESERVED_COLUMNS, Sources, load};
use crate::event_time::PartitionId;
use crate::pipeline::InputRecord;

const SETTINGS: [&str; 16] = [
    "kafka.group_id=flights",
    "source[0].topic=flights",
    "source[0].timestamp.from=record",
    "source[0].watermark.max_out_of_orderness=0s",
    "window.size=1h",
    "aggregate[0].name=count",
    "aggregate[0].function=count",
    "aggregate[1].name=sum",
    "aggregate[1].function=sum",
    "aggregate[1].field=v",
    "aggregate[2].name=mean",
    "aggregate[2].function=avg",
    "aggregate[2].field=v",
    "results.topic=hourly",
    "late.topic=late",
    "dead_letter.topic=dead",
];

fn config(more: &[&str]) -> Config {
    let overrides = SETTINGS.iter().chain(&["export.postgres.table=hourly"]).chain(more);
    let overrides = overrides.map(|text| (*text).to_owned()).collect();
    let sources = Sources { overrides, host_name: Some("host".to_owned()), ..Sources::default() };
    load(&sources).unwrap().config
}

fn layout(more: &[&str]) -> Layout {
    let config = config(more);
    Layout::new(&config, config.postgres_export.as_ref().unwrap())
}

const BY_FIELD: &str = "key.fields=origin";
const BY_MESSAGE: &str = "key.from=message";

/// A record with a payload and the header of the partition.
struct Fake<'a>(Option<&'a str>, Option<&'a str>);

impl InputRecord for Fake<'_> {
    fn partition(&self) -> PartitionId {
        PartitionId { topic: 0, partition: 0 }
    }
    fn offset(&self) -> i64 {
        0
    }
    fn key(&self) -> Option<&[u8]> {
        None
    }
    fn payload(&self) -> Option<&[u8]> {
        self.0.map(str::as_bytes)
    }
    fn timestamp(&self) -> Option<i64> {
        None
    }
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.1.filter(|_| name == "tidegate.partition").map(str::as_bytes)
    }
    fn each_header(&self, _: &mut dyn FnMut(&str, Option<&[u8]>)) {}
}

const RESULT: &str = r#"{"window_start":3600000,"window_end":7200000,"origin":"EWR","count":3,"sum":-7,"mean":1.5,
    "pane":{"timing":"late","index":2}}"#;

fn row(layout: &Layout, payload: &str) -> Result<(Identity, Pane), Skipped> {
    read(layout, &Fake(Some(payload), None))
}

/// The result with one text in it replaced.
fn with(from: &str, to: &str) -> String {
    assert!(RESULT.contains(from), "{from}");
    RESULT.replace(from, to)
}

#[test]
fn a_result_is_a_row() {
    let (identity, pane) = row(&layout(&[BY_FIELD]), RESULT).unwrap();
    let keys = vec!["EWR".to_owned()];
    let key_types = "s".to_owned();
    assert_eq!(identity, Identity { window_start: 3_600_000, keys, key_types, partition: 0 });
    let values = ["3", "-7", "1.5"].map(|text| Some(text.to_owned())).to_vec();
    let timing = "late".to_owned();
    let expected = Pane { window_end: 7_200_000, values, overflow: None, index: 2, timing };
    assert_eq!(pane, expected);
    // The other format of times.
    let dates = with("3600000", "\"1970-01-01T01:00:00Z\"");
    assert_eq!(row(&layout(&[BY_FIELD]), &dates).unwrap().0, identity);
}

#[test]
fn keys_of_other_types_are_other_rows() {
    let layout = layout(&[BY_FIELD]);
    let identity = |key| row(&layout, &with("\"EWR\"", key)).unwrap().0;
    let written = |key| (identity(key).keys.concat(), identity(key).key_types);
    assert_eq!(written("1"), ("1".to_owned(), "i".to_owned()));
    assert_eq!(written("\"1\""), ("1".to_owned(), "s".to_owned()));
    assert_eq!(written("true"), ("true".to_owned(), "b".to_owned()));
    assert_ne!(identity("1"), identity("\"1\""));
}

#[test]
fn numbers_keep_all_their_digits_and_what_is_none_is_told() {
    let layout = layout(&[BY_FIELD]);
    let sum = |text: &str| {
        let (_, pane) = row(&layout, &with("\"sum\":-7", &format!("\"sum\":{text}"))).unwrap();
        (pane.values[1].clone(), pane.overflow)
    };
    let digits = "170141183460469231731687303715884105727";
    assert_eq!(sum(digits), (Some(digits.to_owned()), None));
    assert_eq!(sum(&format!("\"{digits}\"")), (Some(digits.to_owned()), None));
    assert_eq!(sum("1e300"), (Some("1e300".to_owned()), None));
    assert_eq!(sum("null"), (None, None));
    assert_eq!(sum("\"overflow\""), (None, Some("sum".to_owned())));
    let both = with("\"sum\":-7,\"mean\":1.5", "\"sum\":\"overflow\",\"mean\":\"overflow\"");
    assert_eq!(row(&layout, &both).unwrap().1.overflow.as_deref(), Some("sum,mean"));
}

#[test]
fn rows_of_message_keys_and_of_partial_results_are_told_apart_by_the_partition() {
    let by_message = layout(&[BY_MESSAGE]);
    let result = with("\"origin\"", "\"key\"");
    let read = |header| read(&by_message, &Fake(Some(&result), header));
    assert_eq!(read(Some("5")).unwrap().0.partition, 5);
    assert!(matches!(read(None), Err(Skipped::Unreadable(reason)) if reason.contains("header")));
    let partial = layout(&[BY_FIELD, "key.partial=true"]);
    let result = with("\"origin\"", "\"partition\":7,\"origin\"");
    assert_eq!(row(&partial, &result).unwrap().0.partition, 7);
}

#[test]
fn what_is_no_row_says_why() {
    let layout = layout(&[BY_FIELD]);
    assert_eq!(read(&layout, &Fake(None, None)), Err(Skipped::Tombstone));
    let progress = r#"{"complete_until":1,"watermark":2,"topic":"x","partition":"all"}"#;
    assert_eq!(row(&layout, progress), Err(Skipped::Progress));
    let long = format!("\"{}\"", "x".repeat(2_501));
    for (payload, reason) in [
        ("[]".to_owned(), "no JSON object"),
        ("nothing".to_owned(), "no JSON object"),
        ("{}".to_owned(), "no `origin`"),
        (with("\"EWR\"", "null"), "neither a string nor an integer"),
        (with("\"EWR\"", "\"a\\u0000b\""), "zero byte"),
        (with("\"EWR\"", &long), "2501 bytes"),
        (with("\"count\":3,", ""), "no `count`"),
        (with("\"count\":3", "\"count\":9223372036854775808"), "its column is bigint"),
        (with("\"count\":3", "\"count\":\"many\""), "a text and no number"),
        (with("\"mean\":1.5", "\"mean\":[1]"), "its column is double precision"),
        (with("3600000", "\"noon\""), "`window_start` is no time"),
        (with("3600000", "-210866803200001"), "outside of PostgreSQL's calendar"),
        (with("\"index\":2", "\"index\":\"2\""), "`pane`"),
    ] {
        match row(&layout, &payload) {
            Err(Skipped::Unreadable(said)) => assert!(said.contains(reason), "{said}"),
            other => panic!("{payload}: {other:?}"),
        }
    }
}

#[test]
fn of_several_panes_in_a_batch_the_last_one_stays() {
    let layout = layout(&[BY_FIELD]);
    let mut batch = Batch::default();
    for (index, count) in [(0, 1), (2, 5), (1, 3)] {
        let payload = with("\"index\":2", &format!("\"index\":{index}"));
        let payload = payload.replace("\"count\":3", &format!("\"count\":{count}"));
        let (identity, pane) = row(&layout, &payload).unwrap();
        batch.add(identity, pane);
        batch.read_up_to(PartitionId { topic: 0, partition: 4 }, 10 + index);
    }
    assert_eq!(batch.rows(), 1);
    let arrays = format!("{:?}", batch.arrays(&layout));
    assert!(arrays.contains("pane_index: [2]") && arrays.contains("Some(\"5\")"), "{arrays}");
}

#[test]
fn names_out_of_the_configuration_are_names_and_nothing_else() {
    assert_eq!(quoted("a\"; DROP TABLE x; --"), "\"a\"\"; DROP TABLE x; --\"");
    let layout = layout(&[
        BY_FIELD,
        "export.postgres.schema=My Schema",
        "export.postgres.table=t\"; DROP TABLE x; --",
        "aggregate[0].name=select \"from\" ünit",
    ]);
    assert_eq!(layout.table(), "\"My Schema\".\"t\"\"; DROP TABLE x; --\"");
    assert!(layout.create_table().contains("\"select \"\"from\"\" ünit\" bigint,"));
    assert!(layout.upsert().contains("\"select \"\"from\"\" ünit\" = EXCLUDED.\"select"));
}

#[test]
fn the_sql_has_a_typed_column_for_each_key_and_aggregate() {
    let config = config(&[BY_FIELD]);
    let sql = show_sql(&config, config.postgres_export.as_ref().unwrap());
    let expected = r#"CREATE TABLE "public"."hourly" (
  "window_start" timestamp with time zone NOT NULL,
  "origin" text NOT NULL,
  "key_types" text NOT NULL,
  "window_end" timestamp with time zone NOT NULL,
  "count" bigint,
  "sum" numeric,
  "mean" double precision,
  "overflow" text,
  "pane_index" bigint NOT NULL,
  "pane_timing" text NOT NULL,
  "updated_at" timestamp with time zone NOT NULL,
  PRIMARY KEY ("window_start", "origin", "key_types")
);
CREATE TABLE "public"."hourly_offsets" (
  "topic" text NOT NULL,
  "partition" integer NOT NULL,
  "next_offset" bigint NOT NULL,
  "updated_at" timestamp with time zone NOT NULL,
  PRIMARY KEY ("topic", "partition")
);"#;
    assert_eq!(sql, expected);
    let types = |value_type: &str| {
        let setting = format!("aggregate[1].type={value_type}");
        let least = ["aggregate[2].name=least", "aggregate[2].function=min"];
        let typed = format!("aggregate[2].type={value_type}");
        let layout = layout(&[BY_FIELD, &setting, least[0], least[1], &typed]);
        layout.aggregates.iter().map(|(_, kind)| kind.name()).collect::<Vec<_>>()
    };
    assert_eq!(types("integer"), ["bigint", "numeric", "bigint"]);
    assert_eq!(types("number"), ["bigint", "numeric", "numeric"]);
    assert_eq!(types("float"), ["bigint", "double precision", "double precision"]);
}

#[test]
fn the_configuration_keeps_the_names_of_our_columns_free() {
    for more in [[BY_MESSAGE, "key.partial=false"], [BY_FIELD, "key.partial=true"]] {
        let layout = layout(&more);
        let configured: BTreeSet<_> = layout
            .keys
            .iter()
            .chain(layout.aggregates.iter().map(|(name, _)| name))
            .cloned()
            .collect();
        for column in layout.columns() {
            let name = column.name;
            assert!(
                configured.contains(&name) || RESERVED_COLUMNS.contains(&name.as_str()),
                "{name}"
            );
        }
    }
}

/// The table as it should be.
fn found(layout: &Layout) -> Vec<Found> {
    let column = |column: super::table::Column| Found {
        kind: column.kind.name().to_owned(),
        name: column.name,
        required: column.required,
        filled: false,
    };
    layout.columns().into_iter().map(column).collect()
}

#[test]
fn a_table_that_does_not_fit_is_told_with_what_would_be_right() {
    let layout = layout(&[BY_FIELD]);
    let key: BTreeSet<String> = layout.identity().into_iter().map(|column| column.name).collect();
    let check = |found: &[Found], unique: &[BTreeSet<String>]| {
        let identity = layout.identity();
        differences("t", &layout.columns(), &names(&identity), found, unique)
    };
    assert_eq!(check(&found(&layout), std::slice::from_ref(&key)), [] as [&str; 0]);
    let mut wrong = found(&layout);
    wrong.retain(|column| column.name != "sum" && column.name != "key_types");
    for column in &mut wrong {
        if column.name == "count" {
            column.kind = "text".to_owned();
        } else if column.name == "mean" {
            column.required = true;
        }
    }
    let extra = |name: &str, required, filled| Found {
        name: name.to_owned(),
        kind: "text".to_owned(),
        required,
        filled,
    };
    wrong.extend([extra("note", false, false), extra("id", true, true), extra("who", true, false)]);
    let said = check(&wrong, &[["window_start".to_owned()].into()]);
    let essentials = [
        "column \"key_types\" (text) is missing, and rows that are there would need a value",
        "column \"count\" is text, and must be bigint: ALTER TABLE t ALTER COLUMN \"count\" TYPE bigint",
        "column \"sum\" is missing: ALTER TABLE t ADD COLUMN \"sum\" numeric;",
        "column \"mean\" is NOT NULL, and some results have no value for it",
        "column \"who\" is NOT NULL without a default",
        "no primary key or unique index is on exactly (\"window_start\", \"origin\", \"key_types\")",
    ];
    assert_eq!(said.len(), essentials.len(), "{said:#?}");
    for (said, essential) in said.iter().zip(essentials) {
        assert!(said.contains(essential), "{essential} expected in {said}");
    }
}
