//! The settings in force, as they are shown.

use super::{EXAMPLE, Folder, example_with, load_text};
use crate::config::{Sources, load, render_effective};

const SECRETS: &str = "[kafka.properties]\n\"sasl.username\" = \"me\"\n\"sasl.password\" = \"hush\"\n\
     [export.postgres]\ntable = \"t\"\npassword = \"hush\"\n";

#[test]
fn what_is_shown_can_be_given_back() {
    let text = example_with("{ origin =", "{ \"a \\\"b\\\"\\n\" = \"/x\", origin =");
    let loaded = load_text(&text, &["topics.partitions=3"]);
    let shown = render_effective(&loaded.unwrap());
    let again = load_text(&shown, &[]).unwrap();
    assert_eq!(again.config.topics.partitions, 3);
    assert_eq!(again.config.sources[0].topic, "flights");
    assert_eq!(again.config.aggregates.len(), 2);
    assert!(again.config.sources[0].fields.contains_key("a \"b\"\n"));
    let without_origins = |text: &str| {
        let lines = text.lines().map(|line| line.split("  # ").next().unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(without_origins(&render_effective(&again)), without_origins(&shown));
}

#[test]
fn what_is_shown_follows_the_reference_and_says_where_it_was_written() {
    let folder = Folder::new();
    let path = folder.write("job.toml", EXAMPLE);
    let loaded = load(&Sources {
        files: vec![path.clone()],
        overrides: vec!["topics.partitions=3".to_owned()],
        host_name: Some("host-1".to_owned()),
        ..Sources::default()
    });
    let shown = render_effective(&loaded.unwrap());
    let places: Vec<_> =
        ["[kafka]", "[[source]]", "[window]", "[key]", "[[aggregate]]", "[service]"]
            .into_iter()
            .map(|head| shown.find(head).expect(head))
            .collect();
    assert!(places.is_sorted(), "{shown}");
    let file = path.display();
    assert!(shown.contains(&format!("size = \"1h\"  # {file}\n")), "{shown}");
    assert!(shown.contains("partitions = \"3\"  # the command line\n"), "{shown}");
    assert!(shown.contains("emit_interval = \"200ms\"\n"), "a default has no comment: {shown}");
    assert!(shown.contains("start = \"earliest\"\n"), "defaults of a list entry too: {shown}");
}

#[test]
fn instances_that_are_told_the_same_have_the_same_fingerprint() {
    let of =
        |text: &str, overrides: &[&str]| load_text(text, overrides).unwrap().config.fingerprint;
    let one = of(EXAMPLE, &["kafka.instance_id=one", "topics.partitions=3"]);
    assert!(one.len() == 64 && one.bytes().all(|b| b.is_ascii_hexdigit()), "{one}");
    // Wherever it is written, and whatever the instance is called.
    let table = example_with("[topics]\n", "[topics]\npartitions = 3\n");
    assert_eq!(of(&table, &["kafka.instance_id=two"]), one);
    assert_ne!(of(EXAMPLE, &["topics.partitions=4"]), one);
    let secret = format!("{EXAMPLE}{SECRETS}");
    assert_eq!(of(&secret, &[]), of(&secret.replace("hush", "hush hush"), &[]));
}

#[test]
fn secrets_are_shown_nowhere() {
    let loaded = load_text(&format!("{EXAMPLE}{SECRETS}"), &[]).unwrap();
    let json = loaded.effective.to_json();
    assert_eq!(json["kafka"]["properties"]["sasl.password"], "***");
    assert_eq!(json["kafka"]["properties"]["sasl.username"], "me");
    assert_eq!(json["export"]["postgres"]["password"], "***");
    let export = loaded.config.postgres_export.clone().unwrap();
    assert_eq!(export.password.unwrap().expose(), "hush");
    assert_eq!(json["topics"]["create"], true);
    let shown = render_effective(&loaded);
    assert!(shown.contains("\"sasl.password\" = \"***\""), "{shown}");
    for text in [shown, json.to_string(), format!("{loaded:?}")] {
        assert!(!text.contains("hush"), "{text}");
    }
    let faulty = load_text(
        &format!("{EXAMPLE}{SECRETS}"),
        &["kafka.properties.group.id=hush", "kafka.properties=hush"],
    );
    let said: String = faulty.unwrap_err().iter().map(ToString::to_string).collect();
    assert!(!said.contains("hush"), "{said}");
}
