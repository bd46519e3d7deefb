//! The configuration of a job that is deployed, read as the program reads it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidegate::config::{Config, Sources, load};

use crate::image::listen;
use crate::tools::package;

/// Reads these files and variables, and fails the test if the program would object to anything or warn of it.
pub(crate) fn job(files: &[&str], variables: BTreeMap<String, String>, host_name: &str) -> Config {
    let files: Vec<PathBuf> = files.iter().map(|file| package().join(file)).collect();
    let mut environment = variables;
    // The image's own.
    environment.entry("TIDEGATE__HTTP__LISTEN".to_owned()).or_insert(listen().to_string());
    let sources =
        Sources { files, environment, host_name: Some(host_name.to_owned()), ..Sources::default() };
    let loaded = load(&sources).unwrap_or_else(|faults| panic!("{sources:?}: {faults:#?}"));
    assert!(loaded.warnings.is_empty(), "{sources:?}: {:#?}", loaded.warnings);
    loaded.config
}

/// How long a stop may take, in seconds, with a margin for what comes before the signal and after the end.
pub(crate) fn least_grace(config: &Config) -> u64 {
    config.shutdown_timeout.as_secs() + 10
}
