//! Objections as they are shown: some of each kind, since one fault may be the cause of thousands.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Each kind with its number and its first objections; the kind whose first one came first is the first.
pub(super) fn report(objections: &[String]) -> String {
    let mut kinds = BTreeMap::<String, Vec<usize>>::new();
    for (place, objection) in objections.iter().enumerate() {
        kinds.entry(kind(objection)).or_default().push(place);
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort();
    let mut text = String::new();
    for places in &kinds {
        for place in places.iter().take(OF_EACH_KIND) {
            writeln!(text, "  {}", objections[*place]).unwrap();
        }
        if places.len() > OF_EACH_KIND {
            let more = places.len() - OF_EACH_KIND;
            writeln!(text, "    and {more} more like these").unwrap();
        }
    }
    text
}

/// The text without its numbers, however many there are in a row.
fn kind(objection: &str) -> String {
    let mut kind = String::new();
    let words = objection.split(|c: char| c.is_ascii_digit() || "@-+. ".contains(c));
    for word in words.filter(|word| !word.is_empty()) {
        kind += word;
        kind.push(' ');
    }
    kind
}

const OF_EACH_KIND: usize = 6;
