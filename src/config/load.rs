//! Reading the settings: all layers merged, all faults found, the configuration as meant.

use ::config::{ConfigError, Value};

use super::Config;
use super::effective::Effective;
use super::fault::{ConfigFault, Report, did_you_mean};
use super::key_path::KeyPath;
use super::layers::{Merged, Sources, merge};
use super::parse::{Surroundings, parse};
use super::settings::Settings;
use super::tree;

/// The settings as read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What they mean.
    pub config: Config,
    /// What is odd but can be lived with, each in a line.
    pub warnings: Vec<String>,
    /// The layers merged, secrets hidden, to be shown.
    pub effective: Effective,
}

/// Reads the settings of all sources; on failure says everything that is wrong with them.
///
/// ```
/// use tidegate::config::{Sources, load};
///
/// let overrides = ["window.size=90", "topics.partition=3"].map(str::to_owned).into();
/// let faults = load(&Sources { overrides, ..Sources::default() }).unwrap_err();
/// let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
/// assert!(lines.contains(&r#"the command line: window.size: "90" has no unit; write "90s" or "90ms""#.to_owned()));
/// assert!(lines.iter().any(|line| line.contains("did you mean `partitions`?")));
/// assert!(lines.iter().any(|line| line.contains("results.topic: is missing")));
/// ```
pub fn load(sources: &Sources) -> Result<Loaded, Vec<ConfigFault>> {
    let Merged { root, read, mut faults, unread } = merge(sources);
    let mut report = Report::new(&root, &read, faults.is_empty());
    let settings = settings(&root, &mut report);
    let surroundings =
        Surroundings { host_name: sources.host_name.as_deref(), strategies: &sources.strategies };
    let config = parse(&settings, &surroundings, &mut report);
    faults.extend(report.faults);
    match config {
        Ok(mut config) if faults.is_empty() => {
            let warnings = unread.iter().map(ToString::to_string).chain(report.warnings).collect();
            let effective = Effective::new(root);
            config.fingerprint = effective.fingerprint();
            Ok(Loaded { config, warnings, effective })
        }
        _ => {
            // A variable that is not read may be why a key is missing.
            faults.extend(unread);
            // Tables are hash maps: without an order of its own each run would show another.
            faults.sort_by(|a, b| (a.key(), a.origin()).cmp(&(b.key(), b.origin())));
            faults.dedup();
            Err(faults)
        }
    }
}

/// The reference: every key with its meaning and default, as a file to begin with.
pub fn default_toml() -> &'static str {
    include_str!("../../config/default.toml")
}

/// The name of the host: the kernel's, or else the variable `HOSTNAME`.
pub fn host_name(environment: &std::collections::BTreeMap<String, String>) -> Option<String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel.or_else(|| environment.get("HOSTNAME").cloned())?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Puts the merged layers into their shape. What does not fit is noted and left out, until the rest fits.
fn settings(root: &Value, report: &mut Report<'_>) -> Settings {
    let mut rest = root.clone();
    loop {
        let error = match serde_path_to_error::deserialize(rest.clone()) {
            Ok(settings) => return settings,
            Err(error) => error,
        };
        let key = KeyPath::from(error.path());
        // A place of a list is emptied at first, and may then be wrong as an empty table.
        if !report.has(&key) {
            note(&key, &rest, error.inner(), report);
        }
        // Each turn leaves out at least one value, so this ends.
        let mut left_out = Some(key);
        while let Some(key) = left_out {
            if key.take_out(&mut rest) {
                break;
            }
            left_out = key.parent();
            if left_out.is_none() {
                return Settings::default();
            }
        }
    }
}

/// Puts into our words what the deserialiser says of a key. The value is not repeated: it may be a secret.
fn note(key: &KeyPath, root: &Value, error: &ConfigError, report: &mut Report<'_>) {
    let mut cause = error;
    while let ConfigError::At { error, .. } = cause {
        cause = error;
    }
    let message = if let ConfigError::Type { expected, .. } = cause {
        format!("expected {expected}")
    } else {
        cause.to_string()
    };
    if message.starts_with("unknown field") {
        note_unknown(key, &message, report);
        return;
    }
    let found = tree::kind_in_words(key.find(root));
    let list = key.to_string();
    let meant = match message.rsplit("expected ").next().unwrap_or_default() {
        "a string" => "a single value is meant".to_owned(),
        "a sequence" => format!(
            "a list is meant: write [[{list}]], or in the environment TIDEGATE__{}__0__...",
            list.to_uppercase()
        ),
        "a map" => "a table is meant".to_owned(),
        meant => format!("{meant} is meant"),
    };
    report.fault(key, format!("{found}, {meant}"));
}

fn note_unknown(key: &KeyPath, message: &str, report: &mut Report<'_>) {
    // The message is: unknown field `x`, expected one of `a`, `b`.
    let known: Vec<&str> = message
        .rsplit("expected ")
        .next()
        .unwrap_or_default()
        .split('`')
        .skip(1)
        .step_by(2)
        .collect();
    let guess = key.name().and_then(|name| did_you_mean(name, known.iter().copied()));
    let hint = guess.map_or_else(String::new, |guess| format!("did you mean `{guess}`? "));
    report.fault(key, format!("is not a known key; {hint}known here: {}", known.join(", ")));
    if let (Some(guess), Some(table)) = (guess, key.parent()) {
        report.excuse(table.key(guess));
    }
}
