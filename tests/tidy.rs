//! The architecture, checked on the text of the sources: who may know what, and how they are written.
//!
//! Comments and the contents of texts do not count. A rule that stands in the way is changed here, with its reason in
//! the commit.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/rust_code.rs"]
mod rust_code;

use std::fs;
use std::path::{Path, PathBuf};

use rust_code::{code, words};

/// A source file of ours.
#[derive(Debug)]
struct File {
    /// Below the package, with `/`.
    name: String,
    text: String,
    /// Without comments and the contents of texts.
    code: String,
}

impl File {
    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            self.name == *place || (place.ends_with('/') && self.name.starts_with(place))
        })
    }

    fn has_word(&self, word: &str) -> bool {
        words(&self.code).any(|held| held == word)
    }

    fn is_a_test(&self) -> bool {
        self.name.starts_with("tests/")
            || self.name.contains("/tests/")
            || self.name.ends_with("/tests.rs")
    }
}

fn files(folders: &[&str]) -> Vec<File> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = folders.iter().map(|folder| package.join(folder)).collect();
    let mut files = Vec::new();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(package).unwrap().to_str().unwrap().replace('\\', "/");
            let text = fs::read_to_string(&path).unwrap();
            files.push(File { name, code: code(&text), text });
        }
    }
    assert!(files.len() > 5, "where are the sources? {files:?}");
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// Fails with all places at once.
fn none(what: &str, places: &[String]) {
    assert!(places.is_empty(), "{what}:\n  {}", places.join("\n  "));
}

/// The files outside of `places` whose code has one of the words.
fn strays(of: &[File], words: &[&str], places: &[&str]) -> Vec<String> {
    of.iter()
        .filter(|file| !file.is_in(places))
        .flat_map(|file| {
            words
                .iter()
                .filter(|word| file.has_word(word))
                .map(|word| format!("{}: {word}", file.name))
        })
        .collect()
}

/// The names of the crates that the package depends on, as code writes them.
fn dependencies() -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = fs::read_to_string(manifest).unwrap();
    let (_, section) = text.split_once("[dependencies]\n").unwrap();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    names.map(|name| name.replace('-', "_")).collect()
}

#[test]
fn event_time_knows_only_itself_and_std() {
    let allowed = |file: &File, name: &str| {
        file.name == "src/event_time/window_operator/rows.rs"
            && ["hashbrown", "foldhash"].contains(&name)
    };
    let mut places = Vec::new();
    let dependencies = dependencies();
    assert!(dependencies.iter().any(|name| name == "rdkafka"), "{dependencies:?}");
    for file in files(&["src/event_time"]) {
        for name in dependencies.iter().filter(|name| !allowed(&file, name)) {
            if file.code.contains(&format!("{name}::")) && file.has_word(name) {
                places.push(format!("{}: the crate {name}", file.name));
            }
        }
        for rest in file.code.split("crate::").skip(1) {
            if words(rest).next() != Some("event_time") {
                places.push(format!("{}: crate::{}", file.name, words(rest).next().unwrap()));
            }
        }
    }
    none("event time knows more than itself", &places);
}

#[test]
fn event_time_has_no_order_of_chance_and_no_clock() {
    let words = ["HashMap", "HashSet", "Instant", "SystemTime", "Mutex", "println", "async"];
    none("not in the pure core", &strays(&files(&["src/event_time"]), &words, &[]));
}

#[test]
fn each_library_is_known_in_one_place() {
    let sources: Vec<_> = files(&["src"]).into_iter().filter(|file| !file.is_a_test()).collect();
    let rules: [(&[&str], &[&str]); 9] = [
        (&["rdkafka", "rdkafka_sys"], &["src/kafka/"]),
        (&["prometheus"], &["src/metrics/"]),
        (&["regex"], &["src/config/"]),
        (&["axum", "hyper", "hyper_util"], &["src/http/", "src/kafka/oauth/endpoint/"]),
        (&["tokio_postgres", "postgres_openssl"], &["src/export/"]),
        (
            &["openssl"],
            &[
                "src/tls.rs",
                "src/export/",
                "src/http/",
                "src/kafka/oauth/endpoint/",
                "src/kafka/refusal.rs",
            ],
        ),
        (&["openssl_probe"], &["src/tls.rs"]),
        (&["tokio_openssl"], &["src/http/", "src/kafka/oauth/endpoint/"]),
        (
            &["tokio"],
            &[
                "src/service/",
                "src/stop.rs",
                "src/http/",
                "src/kafka/admin.rs",
                "src/kafka/oauth/endpoint/",
                "src/cli/",
                "src/export/",
            ],
        ),
    ];
    for (words, places) in rules {
        none(&format!("only in {places:?}"), &strays(&sources, words, places));
    }
}

#[test]
fn only_the_clock_reads_the_clock() {
    let mut places = Vec::new();
    for file in files(&["src"]).iter().filter(|file| !file.is_in(&["src/clock.rs"])) {
        for call in ["Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now"] {
            if file.code.contains(call) {
                places.push(format!("{}: {call}", file.name));
            }
        }
    }
    none("time is an input", &places);
}

#[test]
fn the_layers_look_inwards_only() {
    // What a part must not know, by the names of our own modules.
    let edges = ["kafka", "metrics", "http", "service", "cli", "generator", "export", "repair"];
    let rules: [(&str, &[&str]); 5] = [
        ("src/codec/", &["pipeline", "insight"]),
        ("src/insight/", &["pipeline"]),
        ("src/pipeline/", &[]),
        ("src/config/", &["pipeline", "insight"]),
        ("src/event_time/", &["pipeline", "insight", "codec", "config"]),
    ];
    let mut places = Vec::new();
    for (part, more) in rules {
        let of_part = files(&["src"]);
        let of_part: Vec<_> = of_part.iter().filter(|file| file.is_in(&[part])).collect();
        assert!(!of_part.is_empty(), "no files of {part}");
        for file in of_part {
            for module in edges.iter().chain(more) {
                if file.code.contains(&format!("crate::{module}")) {
                    places.push(format!("{}: crate::{module}", file.name));
                }
            }
        }
    }
    none("this way round it is a circle", &places);
}

/// The longest file, without its tests.
const MOST_LINES: usize = 500;

#[test]
fn no_file_is_too_long() {
    let mut places = Vec::new();
    for file in files(&["src"]) {
        let own = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let lines = own.lines().count();
        if lines > MOST_LINES {
            places.push(format!("{}: {lines} lines, {MOST_LINES} are enough", file.name));
        }
    }
    none("too long", &places);
}

#[test]
fn no_file_of_the_page_is_too_long() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    // Below it, `vendor` holds what others wrote.
    let of_ours: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    assert!(of_ours.len() > 5, "{of_ours:?}");
    let lines = |path: &PathBuf| fs::read_to_string(path).unwrap().lines().count();
    let places = of_ours.iter().filter(|path| lines(path) > MOST_LINES);
    none("too long", &places.map(|path| path.display().to_string()).collect::<Vec<_>>());
}

#[test]
fn tests_neither_sleep_nor_look_away() {
    let mut places = Vec::new();
    for file in files(&["src", "tests"]) {
        for held in ["#[ignore", "#[should_panic", "thread::sleep", "time::sleep"] {
            if file.code.contains(held) {
                places.push(format!("{}: {held}", file.name));
            }
        }
    }
    none("not here", &places);
}

#[test]
fn every_type_of_event_time_shows_its_use() {
    let mut places = Vec::new();
    for file in files(&["src/event_time"]) {
        let lines: Vec<_> = file.text.lines().collect();
        for (place, line) in lines.iter().enumerate() {
            let named = ["pub struct ", "pub enum ", "pub trait "];
            if !named.iter().any(|word| line.starts_with(word)) {
                continue;
            }
            let above = lines[..place].iter().rev();
            let documented = above
                .take_while(|above| above.starts_with("///") || above.starts_with("#["))
                .any(|above| above.starts_with("/// ```"));
            if !documented {
                places.push(format!("{}: {line}", file.name));
            }
        }
    }
    none("no example in its documentation", &places);
}
