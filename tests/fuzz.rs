//! The committed corpus of each target of fuzz/, without a fuzzer: what once took an odd way, or was a finding, does not
//! come back. `tests/run fuzz` looks for more, and `tests/run fuzz-long` for ten million inputs to each target.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "a test may panic, says where, and looks at some kinds only"
)]

use std::path::Path;

#[path = "../fuzz/src/changelog.rs"]
mod changelog;
#[path = "../fuzz/src/configuration.rs"]
mod configuration;
#[path = "../fuzz/src/decode.rs"]
mod decode;
#[path = "support/facts.rs"]
mod facts;
#[path = "support/layout.rs"]
mod layout;
#[path = "support/naive.rs"]
mod naive;
#[path = "../fuzz/src/subtask.rs"]
mod subtask;
#[expect(dead_code, reason = "proptest draws its worlds in another way")]
#[path = "properties/world.rs"]
mod world;

#[test]
fn decode_holds_for_its_corpus() {
    replay("decode", decode::check);
}

#[test]
fn configuration_holds_for_its_corpus() {
    replay("configuration", configuration::check);
}

#[test]
fn changelog_holds_for_its_corpus() {
    replay("changelog", changelog::check);
}

#[test]
fn core_holds_for_its_corpus() {
    replay("core", subtask::check);
}

fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        println!("{}", path.display());
        check(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 10, "{count} inputs of {target}");
}
