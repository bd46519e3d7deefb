//! The pipeline on a broker in memory: sentences of what it does, and a simulation with faults out of seeds.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test fails the calls that it names")]

#[path = "pipeline/alignment.rs"]
mod alignment;
#[path = "pipeline/chaos.rs"]
mod chaos;
#[path = "pipeline/commits.rs"]
mod commits;
#[path = "pipeline/ends.rs"]
mod ends;
#[path = "pipeline/explain.rs"]
mod explain;
#[path = "pipeline/forgotten.rs"]
mod forgotten;
#[path = "pipeline/guards.rs"]
mod guards;
#[path = "support/memory/mod.rs"]
mod memory;
#[path = "pipeline/naive.rs"]
mod naive;
#[path = "pipeline/oracle.rs"]
mod oracle;
#[path = "pipeline/plan.rs"]
mod plan;
#[path = "pipeline/processes.rs"]
mod processes;
#[path = "pipeline/random.rs"]
mod random;
#[path = "pipeline/rebalances.rs"]
mod rebalances;
#[path = "pipeline/records.rs"]
mod records;
#[path = "support/settings.rs"]
mod settings;
#[path = "pipeline/silence.rs"]
mod silence;
#[path = "pipeline/simulation.rs"]
mod simulation;
#[path = "pipeline/sizes.rs"]
mod sizes;
#[path = "pipeline/sources.rs"]
mod sources;
#[path = "pipeline/view.rs"]
mod view;
#[path = "pipeline/world.rs"]
mod world;
