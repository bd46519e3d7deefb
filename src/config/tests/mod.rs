//! What is written, what it means, and what is said when it is wrong. New rules get a line in `rules.rs`.

mod admin;
mod effective;
mod layers;
mod meaning;
mod reference;
mod rules;
mod sources;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{ConfigFault, Loaded, Sources, load};

/// The least that is needed for the jobs of the README, and a little more.
const EXAMPLE: &str = r#"
[kafka]
bootstrap_servers = "localhost:9092"
group_id = "flights"

[[source]]
topic = "flights"
timestamp = { field = "scheduled", unit = "s" }
watermark = { strategy = "bounded_out_of_orderness", max_out_of_orderness = "3h", idle_timeout = "30s" }
fields = { origin = "/airport/from" }

[window]
size = "1h"
allowed_lateness = "0s"

[key]
fields = ["origin"]

[[aggregate]]
name = "flights"
function = "count"

[[aggregate]]
name = "delay_sum"
function = "sum"
field = "delay_min"

[results]
topic = "flights-hourly"
[late]
topic = "flights-late"
[dead_letter]
topic = "flights-dead"

[topics]
create = true
"#;

/// A folder of its own for a test's files, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-config-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap_or_default();
    }
}

/// Loads one file named `job.toml`, with these settings of the command line.
fn load_text(text: &str, overrides: &[&str]) -> Result<Loaded, Vec<ConfigFault>> {
    let folder = Folder::new();
    load(&Sources {
        files: vec![folder.write("job.toml", text)],
        overrides: overrides.iter().map(|text| (*text).to_owned()).collect(),
        host_name: Some("host-1".to_owned()),
        ..Sources::default()
    })
}

/// The example with one text in it replaced.
fn example_with(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "the example has no {from:?}");
    EXAMPLE.replacen(from, to, 1)
}

/// Checks that there is one fault, at this key, which says all of this.
fn check_fault(loaded: Result<Loaded, Vec<ConfigFault>>, key: &str, essentials: &[&str]) {
    let faults = loaded.expect_err(key);
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 1, "one fault expected at {key}: {said:#?}");
    assert_eq!(faults[0].key(), Some(key), "{said:?}");
    for essential in essentials {
        assert!(said[0].contains(essential), "{essential:?} expected in {:?}", said[0]);
    }
}
