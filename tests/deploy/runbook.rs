//! The runbook: an entry for each alert, nothing that is not there, no dead links.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tidegate::codec::Reason;
use tidegate::event_time::LateCause;
use tidegate::insight::explain::Cause;

use crate::documents::{RUNBOOK, path, read, unknown};
use crate::rules::{alerts, recorded};

/// The sections below a chapter: heading and text.
fn sections(chapter: &str) -> Vec<(String, String)> {
    let text = read(RUNBOOK);
    let (_, rest) = text.split_once(&format!("\n## {chapter}\n")).unwrap();
    let text = rest.split("\n## ").next().unwrap();
    let sections = text.split("\n### ").skip(1).map(|section| section.split_once('\n').unwrap());
    sections.map(|(heading, text)| (heading.to_owned(), text.to_owned())).collect()
}

/// How a heading is linked to.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// The words in backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_alert_has_an_entry_and_every_entry_an_alert() {
    let entries = sections("By alert");
    let headings: Vec<_> = entries.iter().map(|(heading, _)| heading.clone()).collect();
    let names: Vec<_> = alerts().into_iter().map(|alert| alert.name).collect();
    assert_eq!(headings, names, "in the same order");
    for (heading, text) in entries {
        for part in ["\n**Means:** ", "\n**Tell:** ", "\n**Do:** "] {
            assert!(format!("\n{text}").contains(part), "{heading} has no {part}");
        }
        assert!(text.contains('`'), "{heading} names no command, address or query that decides it");
    }
}

#[test]
fn every_symptom_has_what_decides_it() {
    let symptoms = sections("By symptom");
    let headings: Vec<_> = symptoms.iter().map(|(heading, _)| heading.as_str()).collect();
    assert_eq!(
        headings,
        [
            "One partition stands still",
            "All partitions stand still",
            "Idleness is on, and nothing fires",
            "Fewer results, and more late records",
            "Stuck for a while after a restart",
            "Saw-tooth and flapping",
        ]
    );
    for (heading, text) in symptoms {
        let decides = ["tidegate explain", "/api/v1/", "/readyz", "```promql", "`tidegate_"];
        assert!(decides.iter().any(|way| text.contains(way)), "{heading}");
    }
}

#[test]
fn causes_and_reasons_are_those_of_the_program() {
    let text = read(RUNBOOK);
    let quoted = quoted(&text);
    for reason in Reason::ALL {
        assert!(quoted.contains(reason.name()), "the reason {} is not there", reason.name());
    }
    for cause in LateCause::ALL {
        assert!(quoted.contains(cause.name()), "the cause of lateness {} is not", cause.name());
    }
    for cause in Cause::ALL {
        let is_there = quoted.contains(cause.name());
        // The loop and the end have an alert and a log line of their own.
        let has_another = [Cause::LoopNotTicking, Cause::Stopping].contains(&cause);
        assert!(is_there || has_another, "the cause {} is not there", cause.name());
    }
}

#[test]
fn series_and_addresses_are_those_of_the_program() {
    let text = read(RUNBOOK);
    assert_eq!(unknown(&text, &recorded()), [] as [&str; 0]);
    let http = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/mod.rs");
    let http = fs::read_to_string(http).unwrap();
    let part = |c: char| !(c.is_ascii_alphanumeric() || c == '/');
    let paths = text.split("8080/").skip(1).map(|rest| rest.split(part).next().unwrap());
    let mut found = 0;
    for path in paths.filter(|path| !path.is_empty()) {
        found += 1;
        assert!(http.contains(&format!("\"/{path}\"")), "nobody answers at /{path}");
    }
    assert!(found > 5);
}

#[test]
fn links_lead_somewhere() {
    let text = read(RUNBOOK);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors: BTreeSet<_> =
        headings.map(|line| anchor(line.trim_start_matches(['#', ' ']))).collect();
    for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        let leads = match link.strip_prefix('#') {
            Some(anchor) => anchors.contains(anchor),
            None => path(link).exists(),
        };
        assert!(leads, "{link} leads nowhere; there are {anchors:?}");
    }
}
