//! What each target does with its bytes, and what has to hold whatever they are. `tests/fuzz.rs` does the same with the
//! committed corpus and without a fuzzer.
//!
//! To add a target: a module here, a file in `fuzz_targets`, its name in `Cargo.toml`, a folder in `corpus`, and its name
//! in `tests/fuzz.rs`. A finding is fixed with its bytes added to the corpus.
#![allow(clippy::unwrap_used, reason = "a panic is a finding")]

mod changelog;
mod configuration;
mod decode;
mod subtask;

// Random worlds and their model, as tests/properties.rs has them.
#[path = "../../tests/support/facts.rs"]
mod facts;
#[path = "../../tests/support/layout.rs"]
mod layout;
#[path = "../../tests/support/naive.rs"]
mod naive;
#[expect(dead_code, reason = "proptest draws its worlds in another way")]
#[path = "../../tests/properties/world.rs"]
mod world;

/// The target `changelog`.
pub fn changelog(data: &[u8]) {
    changelog::check(data);
}

/// The target `configuration`.
pub fn configuration(data: &[u8]) {
    configuration::check(data);
}

/// The target `core`.
pub fn core(data: &[u8]) {
    subtask::check(data);
}

/// The target `decode`.
pub fn decode(data: &[u8]) {
    decode::check(data);
}
