//! Payloads that mean harm, or come of a fault: the corpus of the search for them, and what the cases have of them.

use std::fs;
use std::path::Path;

/// All of them, in the order of their names; none is the payload of a good record of the tests that mix them in.
pub(crate) fn payloads() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/decode");
    let mut files: Vec<_> =
        fs::read_dir(corpus).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut payloads: Vec<Vec<u8>> =
        files.into_iter().map(|file| fs::read(file).unwrap()).collect();
    payloads.extend(OF_CASES.map(|text| text.as_bytes().to_vec()));
    // Nested deeper than any stack, never closed, and long without an end.
    payloads.push(br#"{"a":"#.repeat(10_000));
    payloads.push([br#"{"ts":"#.as_slice(), &b"1".repeat(20_000)].concat());
    payloads.push([br#"{"k":""#.as_slice(), &b"\\".repeat(20_000)].concat());
    payloads
}

/// After the faults of the cases: nothing, the wrong kind of JSON, times in other units, far away or twice, numbers that
/// nobody can hold.
const OF_CASES: [&str; 14] = [
    "",
    "null",
    "[]",
    "\"text\"",
    "{",
    "{\"k\":\"a\",\"v\":1}",
    "{\"ts\":null,\"k\":\"a\",\"v\":1}",
    "{\"ts\":\"yesterday\",\"k\":\"a\",\"v\":1}",
    "{\"ts\":1735689600,\"k\":\"a\",\"v\":1}",
    "{\"ts\":1735689600000000,\"k\":\"a\",\"v\":1}",
    "{\"ts\":9223372036854775807,\"k\":\"a\",\"v\":1}",
    "{\"ts\":1e308,\"k\":{},\"v\":1}",
    "{\"ts\":1735689600000,\"ts\":1735689600001,\"k\":\"a\",\"v\":1}",
    "{\"ts\":1735689600000,\"k\":\"a\",\"v\":NaN}",
];
