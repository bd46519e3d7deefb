//! The table, and what it is to be by what is in the topic.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::cluster::Cluster;
use crate::support::postgres::Postgres;

/// By window, key and partition: the end of the window, the aggregates, index and timing of the pane.
pub(crate) type Rows = BTreeMap<(i64, String, Option<String>), Vec<Option<String>>>;

/// The last panes of a topic whose results have the key in one field. Fails if the panes of a row are not in their order.
pub(crate) fn last_panes(cluster: &Cluster, topic: &str, key: &str, aggregates: &[&str]) -> Rows {
    let mut rows = Rows::new();
    for record in cluster.read(topic) {
        let result = record.json();
        if result.get("complete_until").is_some() {
            continue;
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let partition = record.header("tidegate.partition").filter(|name| name != "all");
        let identity = (result["window_start"].as_i64().unwrap(), text(&result[key]), partition);
        let mut row = vec![Some(result["window_end"].to_string())];
        row.extend(aggregates.iter().map(|name| Some(text(&result[name]))));
        row.push(Some(result["pane"]["index"].to_string()));
        row.push(Some(text(&result["pane"]["timing"])));
        if let Some(before) = rows.insert(identity, row.clone()) {
            let index = |row: &[Option<String>]| -> i64 {
                row[row.len() - 2].as_ref().unwrap().parse().unwrap()
            };
            assert!(index(&before) < index(&row), "not in their order: {before:?}, {row:?}");
        }
    }
    rows
}

/// The rows of the table, in the same shape.
pub(crate) fn rows(postgres: &Postgres, table: &str, key: &str, aggregates: &[&str]) -> Rows {
    let has_partition = postgres.number(&format!(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attname = 'partition'"
    ));
    let partition = if has_partition == Some(1) { "\"partition\"" } else { "NULL" };
    let columns: Vec<_> = aggregates.iter().map(|name| format!("\"{name}\"")).collect();
    let sql = format!(
        "SELECT (extract(epoch FROM window_start) * 1000)::bigint, \"{key}\", {partition}, \
         (extract(epoch FROM window_end) * 1000)::bigint, {}, pane_index, pane_timing FROM {table}",
        columns.join(", ")
    );
    let rows = postgres.query(&sql).into_iter().map(|mut row| {
        let rest = row.split_off(3);
        let mut identity = row.into_iter();
        let start = identity.next().unwrap().unwrap().parse().unwrap();
        ((start, identity.next().unwrap().unwrap(), identity.next().unwrap()), rest)
    });
    rows.collect()
}

/// From now on every effect on a row is written down, and one that is there twice is an error.
pub(crate) fn watch_effects(postgres: &Postgres, table: &str, key: &str) {
    postgres.run(&format!(
        "CREATE TABLE effects (window_start timestamptz, key text, pane_index bigint,
                               PRIMARY KEY (window_start, key, pane_index));
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
           IF TG_OP = 'UPDATE' AND NEW.pane_index <= OLD.pane_index THEN
             RAISE EXCEPTION 'pane % after pane %', NEW.pane_index, OLD.pane_index;
           END IF;
           INSERT INTO effects VALUES (NEW.window_start, NEW.\"{key}\", NEW.pane_index);
           RETURN NULL;
         END $$;
         CREATE TRIGGER note AFTER INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION note();"
    ));
}
