//! The reference is complete, says how each key is set from the environment, and works as it stands.

use serde::Deserialize;

use super::load_text;
use crate::config::default_toml;
use crate::config::settings::Settings;

/// A key of the reference with the comment above it.
struct Entry {
    key: String,
    comment: String,
}

fn entries() -> Vec<Entry> {
    let (mut entries, mut section, mut comment) = (Vec::new(), String::new(), String::new());
    for line in default_toml().lines() {
        let written = line.trim_start_matches("#:").trim_start_matches("#|").trim();
        if let Some(head) = written.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            head.trim_matches(['[', ']']).clone_into(&mut section);
            entries.push(Entry { key: section.clone(), comment: std::mem::take(&mut comment) });
        } else if let Some(text) = line.strip_prefix("# ") {
            comment.push_str(text);
            comment.push('\n');
        } else if let Some((name, _)) = written.split_once(" = ")
            && !line.starts_with("#  ")
        {
            let key = format!("{section}.{name}");
            entries.push(Entry { key, comment: std::mem::take(&mut comment) });
        } else if line.is_empty() {
            comment.clear();
        }
    }
    entries
}

/// The names that the table at this path may have, as the settings' own types tell; `None` if it is no such table.
fn known_names(path: &[&str]) -> Option<Vec<String>> {
    let mut probe = serde_json::json!({ "?": 1 });
    for name in path.iter().rev() {
        let is_list = matches!(*name, "source" | "aggregate" | "partitions");
        let inner = if is_list { serde_json::json!([probe]) } else { probe };
        probe = serde_json::json!({ *name: inner });
    }
    let message = Settings::deserialize(probe).err()?.to_string();
    let (_, known) =
        message.strip_prefix("unknown field").and_then(|rest| rest.split_once(" expected "))?;
    Some(known.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

fn collect_keys(path: &[&str], keys: &mut Vec<String>) {
    for name in known_names(path).unwrap_or_default() {
        let path: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
        keys.push(path.join("."));
        collect_keys(&path, keys);
    }
}

#[test]
fn every_key_is_in_the_reference_with_a_comment() {
    let mut keys = Vec::new();
    collect_keys(&[], &mut keys);
    assert!(keys.len() > 60 && keys.contains(&"source.watermark.bucket_width".to_owned()));
    let entries = entries();
    for key in keys {
        // The tables around [kafka.consumer.properties], its twin and [export.postgres] have no head of their own.
        if ["kafka.consumer", "kafka.producer", "export"].contains(&key.as_str()) {
            continue;
        }
        let entry = entries.iter().find(|entry| entry.key == key);
        let entry = entry.unwrap_or_else(|| panic!("{key} is not in the reference"));
        assert!(!entry.comment.trim().is_empty(), "{key} has no comment");
    }
}

#[test]
fn every_key_of_the_reference_names_its_variable() {
    for entry in entries() {
        let Some((section, name)) = entry.key.rsplit_once('.') else { continue };
        if entry.comment.is_empty()
            || ["properties", "oauth"].contains(&name)
            || section == "source.fields"
        {
            continue;
        }
        let is_table = matches!(
            name,
            "timestamp" | "watermark" | "fields" | "partitions" | "heartbeat" | "guard"
        ) && section == "source";
        let variable = entry.key.replace("source", "source.0").replace("aggregate", "aggregate.0");
        let variable = variable.replace("source.0.partitions", "source.0.partitions.0");
        let variable = format!("TIDEGATE__{}", variable.replace('.', "__").to_uppercase());
        assert!(
            is_table || entry.comment.contains(&variable),
            "{} does not name {variable}",
            entry.key
        );
    }
}

#[test]
fn the_reference_with_its_examples_loads() {
    let uncommented: String = default_toml()
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n")
        .collect();
    let loaded = load_text(&uncommented, &[]).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(loaded.config.results.topic, "flights-hourly");
}

#[test]
fn examples_of_list_entries_state_the_true_defaults() {
    let written = load_text(super::EXAMPLE, &[]).unwrap().effective.to_json();
    for (key, value) in [("start", "earliest"), ("on_missing", "stop")] {
        assert_eq!(written["source"][0][key], value);
        assert!(default_toml().contains(&format!("#: {key} = \"{value}\"")));
    }
    assert!(default_toml().contains("#: idle_timeout = \"30s\""));
}
