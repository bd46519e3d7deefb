//! The files of `deploy/`, and the names in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// The path of a file of `deploy/`.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

/// Its text.
pub(crate) fn read(name: &str) -> String {
    let path = path(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) const RULES: &str = "prometheus/tidegate.rules.yml";
pub(crate) const RULE_TESTS: &str = "prometheus/tidegate.rules.test.yml";
pub(crate) const RUNBOOK: &str = "RUNBOOK.md";

/// The series in the table of `deploy/README.md` with their types; a unit test of `metrics` holds it against the program.
pub(crate) fn series() -> BTreeMap<String, String> {
    let mut series = BTreeMap::new();
    for line in read("README.md").lines() {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [_, name, kind, _, ..] = cells.as_slice() else { continue };
        if ["gauge", "counter", "histogram"].contains(&kind.as_str()) {
            series.insert(name.clone(), kind.clone());
        }
    }
    assert!(series.len() > 50, "where is the table? {series:?}");
    series
}

/// The series as a query may name it: those of a histogram have endings.
pub(crate) fn kind<'a>(series: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    let histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .filter_map(|ending| series.get(name.strip_suffix(ending)?))
        .find(|kind| *kind == "histogram");
    series.get(name).filter(|kind| *kind != "histogram").or(histogram).map(String::as_str)
}

/// The words of a text that are names of series of ours, or of what rules record.
pub(crate) fn names(text: &str) -> BTreeSet<String> {
    let part = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let words = text.split(part).map(|word| word.trim_matches(':'));
    let named = words.filter(|word| {
        ["tidegate_", "process_"].iter().any(|start| word.starts_with(start))
            || word.contains(":tidegate_")
    });
    named.map(str::to_owned).collect()
}

/// Those that are neither series nor recorded; the series of histograms may be named as a whole in a text.
pub(crate) fn unknown(text: &str, recorded: &BTreeSet<String>) -> Vec<String> {
    let series = series();
    let is_known = |name: &String| {
        recorded.contains(name) || series.contains_key(name) || kind(&series, name).is_some()
    };
    names(text).into_iter().filter(|name| !is_known(name)).collect()
}
