//! The service against a real Kafka broker, as its users run it: a process, a configuration file, topics.
//!
//! Each test makes topics of its own on the broker that the whole target shares (`KAFKA_BOOTSTRAP`, or one that is
//! started here), and ends what it starts. To add one: topics, a configuration, [`Tidegate::run`], and then read what
//! is in the topics.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may panic, and says what it has measured"
)]

#[path = "support/case_file.rs"]
mod case_file;
#[path = "support/case_scenario.rs"]
mod case_scenario;

#[path = "kafka/admin.rs"]
mod admin;
#[path = "kafka/advise.rs"]
mod advise;
#[path = "kafka/alignment.rs"]
mod alignment;
#[path = "kafka/bad_input.rs"]
mod bad_input;
#[path = "kafka/changelog.rs"]
mod changelog;
#[path = "kafka/check.rs"]
mod check;
#[path = "kafka/drift.rs"]
mod drift;
#[path = "kafka/encryption.rs"]
mod encryption;
#[path = "kafka/explain.rs"]
mod explain;
#[path = "kafka/flights.rs"]
mod flights;
#[path = "kafka/growth.rs"]
mod growth;
#[path = "kafka/hostile.rs"]
mod hostile;
#[path = "kafka/limits.rs"]
mod limits;
#[path = "kafka/missing_rights.rs"]
mod missing_rights;
#[path = "kafka/moves.rs"]
mod moves;
#[path = "kafka/outages.rs"]
mod outages;
#[path = "kafka/patterns.rs"]
mod patterns;
#[path = "kafka/reconcile.rs"]
mod reconcile;
#[path = "kafka/refusals.rs"]
mod refusals;
#[path = "kafka/replay.rs"]
mod replay;
#[path = "kafka/reset.rs"]
mod reset;
#[path = "kafka/scenarios.rs"]
mod scenarios;
#[path = "kafka/sources.rs"]
mod sources;
#[path = "kafka/standby.rs"]
mod standby;
#[path = "kafka/state.rs"]
mod state;
#[path = "kafka/stops.rs"]
mod stops;
#[path = "kafka/subtasks.rs"]
mod subtasks;
#[path = "kafka/tokens.rs"]
mod tokens;
#[path = "kafka/topics.rs"]
mod topics;
#[path = "kafka/until_end.rs"]
mod until_end;
#[path = "kafka/zombies.rs"]
mod zombies;

mod support;
