//! Where log lines go: text on a terminal, JSON elsewhere, standard error in both cases.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Begins to write the log of this process. A second call changes nothing.
pub fn start(log: &Log) {
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let json = match log.format {
        LogFormat::Auto => !std::io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let started = if json {
        builder.json().flatten_event(true).with_span_list(false).try_init()
    } else {
        builder.try_init()
    };
    // Only a test has a subscriber already.
    started.unwrap_or_default();
}
