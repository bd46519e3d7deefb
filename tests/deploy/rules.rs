//! The rules for Prometheus, checked by its own tool and against what they name.

use std::collections::BTreeSet;
use std::process::Command;

use crate::documents::{RULE_TESTS, RULES, path, read, unknown};

/// An alert, as it stands in the file.
pub(crate) struct Alert {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The rules without their comments.
fn text() -> String {
    let text = read(RULES);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.fold(String::new(), |all, line| all + line + "\n")
}

/// All alerts, in their order.
pub(crate) fn alerts() -> Vec<Alert> {
    let text = text();
    let alerts = text.split("- alert: ").skip(1).map(|text| {
        let end = text.find("\n  - name: ").unwrap_or(text.len());
        let name = text.lines().next().unwrap().to_owned();
        Alert { name, text: text[..end].to_owned() }
    });
    alerts.collect()
}

/// What the rules record.
pub(crate) fn recorded() -> BTreeSet<String> {
    let text = text();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("- record: "));
    names.map(str::to_owned).collect()
}

/// Runs `promtool` and returns what it said; it fails the test if it is not content.
pub(crate) fn promtool(arguments: &[&str]) -> String {
    let output = Command::new("promtool").args(arguments).output().unwrap_or_else(|error| {
        panic!(
            "promtool: {error}; it is in Debian's package `prometheus`, and `tests/run` installs it"
        )
    });
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}:\n{said}");
    said
}

#[test]
fn promtool_takes_the_rules() {
    let said = promtool(&["check", "rules", path(RULES).to_str().unwrap()]);
    let rules = alerts().len() + recorded().len();
    assert!(said.contains(&format!("SUCCESS: {rules} rules found")), "{said}");
}

#[test]
fn the_rules_pass_their_unit_tests() {
    let said = promtool(&["test", "rules", path(RULE_TESTS).to_str().unwrap()]);
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
fn every_alert_is_tested_to_fire_and_to_keep_quiet() {
    let tests = read(RULE_TESTS);
    for Alert { name, .. } in alerts() {
        let (mut fires, mut quiet) = (0, 0);
        for (before, after) in tests.match_indices("alertname: ").map(|(at, _)| tests.split_at(at))
        {
            let after = after.strip_prefix("alertname: ").unwrap();
            let end = after.find([',', '\n', '}']).unwrap();
            if after[..end] == name {
                let expected = after[end..].trim_start_matches([',', '\n', ' ']);
                let is_quiet = expected.starts_with("exp_alerts: []");
                *(if is_quiet { &mut quiet } else { &mut fires }) += 1;
                assert!(expected.starts_with("exp_alerts:"), "{name}: {}", before.len());
            }
        }
        assert!(
            fires > 0 && quiet > 0,
            "{name}: {fires} times it fires, {quiet} times it is quiet"
        );
    }
}

#[test]
fn every_alert_says_how_urgent_it_is_what_is_wrong_and_where_to_read_on() {
    let alerts = alerts();
    assert!(alerts.len() >= 15, "where are the alerts?");
    for Alert { name, text } in alerts {
        let url = format!("runbook_url: deploy/RUNBOOK.md#{}\n", name.to_lowercase());
        for part in ["expr:", "summary:", "description:", &url] {
            assert!(text.contains(part), "{name} has no {part}\n{text}");
        }
        let severities = ["critical", "warning"];
        assert!(severities.iter().any(|s| text.contains(&format!("severity: {s}\n"))), "{name}");
        assert!(name.starts_with("Tidegate"), "{name}");
    }
}

#[test]
fn the_rules_name_only_series_that_there_are() {
    assert_eq!(unknown(&text(), &recorded()), [] as [&str; 0]);
    let levels = recorded();
    for name in &levels {
        assert_eq!(name.split(':').count(), 3, "{name} is not level:metric:operations");
    }
    let used = |name: &&String| text().matches(name.as_str()).count() > 1;
    let runbook = read("RUNBOOK.md");
    let idle: Vec<_> =
        levels.iter().filter(|name| !used(name) && !runbook.contains(*name)).collect();
    assert_eq!(idle, ["job:tidegate_watermark_timestamp_seconds:min"], "nobody uses them");
}
