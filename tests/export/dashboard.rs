//! The dashboard of the results, asked as Grafana asks it: variables and macros filled in as Grafana documents them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::postgres::Postgres;

const DASHBOARD: &str = include_str!("../../deploy/grafana/dashboards/tidegate/results.json");

/// What is chosen on the dashboard, and the time that it shows.
struct Chosen {
    variables: BTreeMap<String, String>,
    from: String,
    to: String,
}

impl Chosen {
    /// A query as the database gets it.
    fn fill(&self, query: &str) -> String {
        let Self { variables, from, to } = self;
        let mut filled = query.replace("$__interval", INTERVAL.0);
        filled = expand(&filled, "$__timeFilter", |arguments| {
            format!("{} BETWEEN '{from}' AND '{to}'", arguments[0])
        });
        filled = expand(&filled, "$__timeGroupAlias", |arguments| {
            assert_eq!(arguments[1], INTERVAL.0);
            format!("floor(extract(epoch from {})/{1})*{1} AS \"time\"", arguments[0], INTERVAL.1)
        });
        for (name, value) in variables {
            filled = filled.replace(&format!("${name}"), value);
        }
        assert!(!filled.contains('$'), "nobody fills this: {filled}");
        filled
    }
}

/// Puts something in the place of each call of a macro.
fn expand(query: &str, name: &str, with: impl Fn(&[&str]) -> String) -> String {
    let call = format!("{name}(");
    let mut parts = query.split(&call);
    let mut expanded = parts.next().unwrap().to_owned();
    for part in parts {
        let (arguments, rest) = part.split_once(')').unwrap();
        let arguments: Vec<_> =
            arguments.split(',').map(|text| text.trim().trim_matches('\'')).collect();
        expanded.push_str(&with(&arguments));
        expanded.push_str(rest);
    }
    expanded
}

/// What Grafana takes for a month on a chart of some hundred points, and its seconds.
const INTERVAL: (&str, u32) = ("1h", 3_600);

/// Fills in the variables one after the other, each by its own query, and asks what every panel asks.
pub(crate) fn every_panel_has_rows(postgres: &Postgres, from: &str, to: &str) {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut chosen =
        Chosen { variables: BTreeMap::new(), from: from.to_owned(), to: to.to_owned() };
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap().to_owned();
        let values: Vec<String> = match variable["type"].as_str().unwrap() {
            "datasource" => continue,
            "custom" => variable["query"].as_str().unwrap().split(',').map(str::to_owned).collect(),
            _ => {
                let rows = postgres.query(&chosen.fill(variable["query"].as_str().unwrap()));
                rows.into_iter().map(|row| row[0].clone().unwrap()).collect()
            }
        };
        let expected: &[&str] = match name.as_str() {
            "table" => &["public.flights_hourly"],
            "offsets" => &["public.flights_hourly_offsets"],
            "key" => &["origin"],
            "value" => &["count", "sum", "min", "max"],
            _ => &["sum", "avg", "min", "max"],
        };
        assert_eq!(values, expected, "{name}");
        chosen.variables.insert(name, values[0].clone());
    }
    let mut asked = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let sql = chosen.fill(target["rawSql"].as_str().unwrap());
            let rows = postgres.query(&sql);
            let what = format!("{}: {sql}\n{rows:?}", panel["title"]);
            assert!(!rows.is_empty() && rows[0].iter().any(Option::is_some), "{what}");
            if target["format"] == "time_series" {
                let times = rows.iter().map(|row| row[0].as_ref().unwrap().parse::<f64>().unwrap());
                assert!(times.is_sorted() && rows.len() > 100, "{what}");
            }
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
    // A chart shows what the table has.
    let per_window = "SELECT $__timeGroupAlias(window_start, $__interval), $combine($value) AS \"value\" FROM $table \
                      WHERE $__timeFilter(window_start) GROUP BY 1 ORDER BY 1";
    assert!(DASHBOARD.contains(&per_window.replace('"', "\\\"")), "the chart asks otherwise");
    let charted: i64 = postgres
        .query(&chosen.fill(per_window))
        .iter()
        .map(|row| row[1].as_ref().unwrap().parse::<i64>().unwrap())
        .sum();
    assert_eq!(Some(charted), postgres.number("SELECT sum(count) FROM flights_hourly"));
}
