//! The dashboards: what Grafana needs to take them from files, and what a reader needs of each panel.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::{env, fs, process};

use serde_json::Value;

use crate::documents::{kind, path, read, series, unknown};
use crate::rules::promtool;

/// All dashboards by their names.
pub(crate) fn dashboards() -> Vec<(String, Value)> {
    let folder = "grafana/dashboards/tidegate";
    let names = fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert!(!names.is_empty(), "no dashboards");
    names
        .into_iter()
        .map(|name| {
            let text = read(&format!("{folder}/{name}"));
            let dashboard = serde_json::from_str(&text);
            let dashboard = dashboard.unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, dashboard)
        })
        .collect()
}

/// Those that ask Prometheus; what the others ask is tested on the database that has the answers.
pub(crate) fn prometheus_dashboards() -> Vec<(String, Value)> {
    let mut dashboards = dashboards();
    dashboards.retain(|(_, dashboard)| source_of(dashboard) == "prometheus");
    assert!(!dashboards.is_empty(), "no dashboards that ask Prometheus");
    dashboards
}

/// What kind of data source a dashboard asks.
fn source_of(dashboard: &Value) -> &str {
    dashboard["templating"]["list"][0]["query"].as_str().unwrap()
}

/// A panel with a query, rows left out.
pub(crate) fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
}

/// The queries of a panel.
pub(crate) fn queries(panel: &Value) -> impl Iterator<Item = &str> {
    panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap())
}

/// A query as Grafana sends it with everything chosen.
pub(crate) fn filled(query: &str, rate_interval: &str) -> String {
    let query = query.replace("[$__rate_interval]", &format!("[{rate_interval}]"));
    let filled = VARIABLES
        .iter()
        .fold(query, |query, name| query.replace(&format!("=~\"${name}\""), "=~\".*\""));
    assert!(!filled.contains('$'), "a variable that nobody fills: {filled}");
    filled
}

/// Those that a query may have, always as a pattern.
const VARIABLES: [&str; 3] = ["job", "instance", "topic"];

#[test]
fn grafana_can_take_them_from_files() {
    let mut uids = BTreeSet::new();
    for (name, dashboard) in dashboards() {
        assert!(dashboard["id"].is_null() && dashboard.get("id").is_some(), "{name}: id");
        let uid = dashboard["uid"].as_str().unwrap();
        assert!(uid.starts_with("tidegate-") && uids.insert(uid.to_owned()), "{name}: {uid}");
        assert!(dashboard["schemaVersion"].as_u64() >= Some(36), "{name}");
        assert_eq!(dashboard["editable"], false, "{name}");
        assert_eq!(dashboard["graphTooltip"], 1, "{name}");
        assert_eq!(dashboard["tags"][0], "tidegate", "{name}");
        for part in ["title", "description"] {
            assert!(
                dashboard[part].as_str().is_some_and(|text| !text.is_empty()),
                "{name}: {part}"
            );
        }
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let names: Vec<_> = variables.iter().map(|v| v["name"].as_str().unwrap()).collect();
        let expected: &[&str] = match source_of(&dashboard) {
            "prometheus" => &["datasource", "job", "instance", "topic"],
            "postgres" => &["datasource", "table", "offsets", "key", "value", "combine"],
            other => panic!("{name}: {other}"),
        };
        assert_eq!(names, expected, "{name}");
        assert_eq!(variables[0]["type"], "datasource", "{name}");
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            assert_eq!(variable["datasource"]["uid"], "${datasource}", "{name}");
            assert_eq!(variable["datasource"]["type"], source_of(&dashboard), "{name}");
        }
    }
    let provider = read("grafana/provisioning/dashboards/tidegate.yml");
    for line in ["type: file", "allowUiUpdates: false", "foldersFromFilesStructure: true"] {
        assert!(provider.contains(line), "{line}");
    }
    for (file, uid) in [("prometheus", "prometheus"), ("postgres", "tidegate-results")] {
        let source = read(&format!("grafana/provisioning/datasources/{file}.yml"));
        for line in [&format!("type: {file}"), &format!("uid: {uid}"), "access: proxy"] {
            assert!(source.contains(line), "{file}: {line}");
        }
    }
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    for (name, dashboard) in dashboards() {
        let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
        for panel in dashboard["panels"].as_array().unwrap() {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: an id twice");
        }
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap();
            assert!(!title.is_empty() && titles.insert(title), "{name}: {title}");
            let description = panel["description"].as_str().unwrap();
            assert!(description.len() > 20 && description.ends_with('.'), "{name}: {title}");
            let unit = panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap();
            assert!(!unit.is_empty(), "{name}: {title}");
            let source = serde_json::json!({"type": source_of(&dashboard), "uid": "${datasource}"});
            assert_eq!(panel["datasource"], source, "{name}: {title}");
            let strange: Vec<_> = panel
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| !KEYS.contains(&key.as_str()))
                .collect();
            assert_eq!(strange, [] as [&str; 0], "{name}: {title}: Grafana would leave it out");
            let mut targets = BTreeSet::new();
            for target in panel["targets"].as_array().unwrap() {
                assert_eq!(target["datasource"], source, "{name}: {title}");
                assert!(targets.insert(target["refId"].as_str().unwrap()), "{name}: {title}");
            }
            assert!(!targets.is_empty(), "{name}: {title} asks nothing");
        }
    }
}

/// What a panel of ours may say; Grafana passes over a name that it does not know without a word.
const KEYS: [&str; 11] = [
    "id",
    "type",
    "title",
    "description",
    "datasource",
    "gridPos",
    "fieldConfig",
    "options",
    "targets",
    "transformations",
    "interval",
];

#[test]
fn panels_do_not_overlap() {
    for (name, dashboard) in dashboards() {
        let mut taken = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let at = |of: &str| panel["gridPos"][of].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{name}: {}", panel["title"]);
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{name}: {} covers another", panel["title"]);
                }
            }
        }
    }
}

#[test]
fn queries_name_only_series_that_there_are_and_counters_only_as_rates() {
    let series = series();
    for (name, dashboard) in prometheus_dashboards() {
        assert_eq!(unknown(&dashboard.to_string(), &BTreeSet::new()), [] as [&str; 0], "{name}");
        for (panel, query) in panels(&dashboard).flat_map(|panel| {
            queries(panel).map(move |query| (panel["title"].as_str().unwrap(), query))
        }) {
            for word in crate::documents::names(query) {
                if kind(&series, &word) == Some("gauge") {
                    continue;
                }
                for (at, _) in query.match_indices(&word) {
                    let (before, after) = query.split_at(at);
                    let selected = after[word.len()..].split_once('}').map_or("", |(_, rest)| rest);
                    let is_rate =
                        before.ends_with("rate(") && selected.starts_with("[$__rate_interval])");
                    assert!(
                        is_rate,
                        "{name}, {panel}: {word} is a counter, and no rate in {query}"
                    );
                }
            }
        }
    }
}

#[test]
fn promtool_takes_all_queries() {
    let mut rules = String::from("groups:\n  - name: panels\n    rules:\n");
    let dashboards = prometheus_dashboards();
    let queries = dashboards.iter().flat_map(|(_, dashboard)| panels(dashboard).flat_map(queries));
    for (number, query) in queries.enumerate() {
        let query = Value::from(filled(query, "1m"));
        writeln!(rules, "      - record: panel:number_{number}:query\n        expr: {query}")
            .unwrap();
    }
    let file = env::temp_dir().join(format!("tidegate-panels-{}.yml", process::id()));
    fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()]);
    fs::remove_file(file).unwrap();
}
