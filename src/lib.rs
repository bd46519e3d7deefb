//! tidegate turns Kafka topics into per-window results by event time, exactly once.
//!
//! ```text
//! topic(s) --> decode --> window operator --> results topic      a pane fired
//!                |             |       \---> late topic          its window is past its allowed lateness
//!                |             v
//!                |     watermark generators, idleness --> multiplexer --> subtask watermark
//!                \--------------------------> dead-letter topic  not usable
//! ```
//!
//! Results, late records, dead letters and the consumed offsets are written in one Kafka transaction.
//!
//! The program `tidegate` is [`cli`]. A program of one's own can do the same with a watermark strategy of its own, which
//! the configuration calls by its name (`strategy = "ours"`):
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate::config::{Sources, load};
//! use tidegate::event_time::{BoundedOutOfOrderness, NamedStrategy};
//! use tidegate::pipeline::RunUntil;
//!
//! let ours = NamedStrategy::new("ours", || Box::new(BoundedOutOfOrderness::new(Duration::from_secs(1))));
//! let sources = Sources { files: vec!["orders.toml".into()], strategies: vec![ours], ..Sources::default() };
//! match load(&sources) {
//!     Ok(loaded) => tidegate::service::run(&loaded.config, RunUntil::Stopped)?,
//!     Err(faults) => faults.iter().for_each(|fault| eprintln!("{fault}")),
//! }
//! # Ok::<(), tidegate::service::ServiceError>(())
//! ```
//!
//! Without the feature `client` it is the core alone: no brokers, no HTTP, no command line, no C library.
//!
//! The modules, in the order in which they are best read:

#![cfg_attr(
    not(feature = "client"),
    allow(dead_code, unused_imports, reason = "much of the core is there for the ways in and out")
)]

// What event time is here: the pure core.
pub mod event_time;

// Bytes to core types and back.
pub mod codec;

// The loop: poll, judge, send, commit.
pub mod pipeline;

// The ways in and out on Kafka.
#[cfg(feature = "client")]
pub mod kafka;

// What the loop tells people.
pub mod insight;

// The metrics.
pub mod metrics;

// Probes and metrics over HTTP.
#[cfg(feature = "client")]
pub mod http;

// What encrypted connections have in common.
#[cfg(feature = "client")]
mod tls;

// All of it in one process.
#[cfg(feature = "client")]
pub mod service;

// How it is asked to end.
#[cfg(feature = "client")]
mod stop;

// The end of a process whose loop stands still.
pub mod watchdog;

// The results as a table of a database.
#[cfg(feature = "client")]
pub mod export;

// What mends topics: dead letters sent back, late records merged into what was published.
#[cfg(feature = "client")]
pub mod repair;

// What the service is told.
pub mod config;

// Records that look like a real topic's, faults included.
pub mod generator;

// The log.
pub mod log;

// The command line.
#[cfg(feature = "client")]
pub mod cli;

// The clocks.
pub mod clock;

// Certificates for tests, also for those beside the program, which know it by its name.
#[cfg(test)]
extern crate self as tidegate;
#[cfg(test)]
#[path = "../tests/support/certificates.rs"]
mod certificates;
