//! The configuration: any file and any variables give a configuration or faults in words, and what `tidegate config`
//! shows of a configuration is that configuration again.

use std::collections::BTreeMap;

use tidegate::config::{ConfigFault, Loaded, Sources, load, render_effective};

/// Reads the bytes as a file; after a line of three dashes, as variables of the environment; after a second one, as
/// values of `--set`.
pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.splitn(3, "\n---\n");
    let file = parts.next().unwrap_or_default();
    let pairs = parts.next().unwrap_or_default().lines().filter_map(|line| line.split_once('='));
    let environment: BTreeMap<_, _> =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let overrides = parts.next().unwrap_or_default().lines().map(str::to_owned).collect();
    match load_text(file, Sources { environment, overrides, ..Sources::default() }) {
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason");
            for fault in faults {
                assert!(!fault.to_string().trim().is_empty());
            }
        }
        Ok(loaded) => {
            let shown = render_effective(&loaded);
            if shown.contains(HIDDEN) {
                return;
            }
            let again = load_text(&shown, Sources::default()).unwrap_or_else(|faults| {
                panic!("what is shown is refused: {faults:?}\n{shown}");
            });
            assert_eq!(
                loaded.config.fingerprint, again.config.fingerprint,
                "what is shown is another configuration:\n{shown}"
            );
        }
    }
}

/// What this text gives, as a file of this thread's own, under more sources.
pub(crate) fn load_text(text: &str, more: Sources) -> Result<Loaded, Vec<ConfigFault>> {
    let thread = std::thread::current().id();
    let name = format!("tidegate-fuzz-{}-{thread:?}.toml", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    let host_name = Some("host".to_owned());
    let loaded = load(&Sources { files: vec![path.clone()], host_name, ..more });
    std::fs::remove_file(path).unwrap();
    loaded
}

/// What is shown in the place of a secret.
const HIDDEN: &str = "***";
