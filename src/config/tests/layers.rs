//! Where settings come from, which of them wins, and what is said of those that fit nowhere.

use std::collections::BTreeMap;

use super::{EXAMPLE, Folder, check_fault, example_with, load_text};
use crate::config::{ConfigFault, KeyFrom, Loaded, Sources, load};

fn load_with(environment: &[(&str, &str)]) -> Result<Loaded, Vec<ConfigFault>> {
    let folder = Folder::new();
    load(&Sources {
        files: vec![folder.write("job.toml", EXAMPLE)],
        environment: variables(environment),
        host_name: Some("host-1".to_owned()),
        ..Sources::default()
    })
}

fn variables(environment: &[(&str, &str)]) -> BTreeMap<String, String> {
    environment.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn later_layers_win() {
    let folder = Folder::new();
    let loaded = load(&Sources {
        files: vec![
            folder.write("job.toml", EXAMPLE),
            folder.write("site.toml", "[topics]\npartitions = 12\n[http]\nlisten = \"0.0.0.0:1\""),
        ],
        environment: variables(&[
            ("TIDEGATE__HTTP__LISTEN", "0.0.0.0:2"),
            ("TIDEGATE__LOG__FORMAT", "json"),
            ("TIDEGATE__SOURCE__0__WATERMARK__IDLE_TIMEOUT", "off"),
            ("TIDEGATE__KEY__FIELDS", "origin, carrier"),
            ("TIDEGATE__KAFKA__GROUP_ID", "0123"),
        ]),
        overrides: vec!["http.listen=0.0.0.0:3".to_owned()],
        host_name: Some("host-1".to_owned()),
        ..Sources::default()
    });
    let config = loaded.unwrap().config;
    assert_eq!(config.topics.partitions, 12);
    assert_eq!(config.http.listen.port(), 3);
    assert_eq!(config.sources[0].idle_timeout, None);
    assert_eq!(config.sources[0].topic, "flights", "the rest of the entry stays");
    assert_eq!(config.key.from, KeyFrom::Fields(vec!["origin".to_owned(), "carrier".to_owned()]));
    assert_eq!(config.kafka.group_id, "0123", "a text stays a text");
}

#[test]
fn a_fault_says_where_it_was_written() {
    let bad = [("TIDEGATE__WINDOW__SIZE", "90")];
    check_fault(load_with(&bad), "window.size", &["the environment (TIDEGATE__WINDOW__SIZE)"]);
    check_fault(load_text(EXAMPLE, &["window.size=90"]), "window.size", &["the command line"]);
    let in_file = load_text(&example_with("size = \"1h\"", "size = 90"), &[]);
    check_fault(in_file, "window.size", &["job.toml: window.size: "]);
}

#[test]
fn all_faults_come_at_once() {
    let text = example_with("size = \"1h\"", "sise = \"1h\"")
        .replace("fields = { origin", "felds = { origin")
        .replace("create = true", "create = { yes = true }\nparts = 6")
        .replace("\"count\"", "\"cuont\"");
    let faults = load_text(&text, &["http.listen=x"]).unwrap_err();
    let keys: Vec<_> = faults.iter().filter_map(ConfigFault::key).collect();
    let expected = [
        "aggregate[0].function",
        "http.listen",
        "source[0].felds",
        "topics.create",
        "topics.parts",
        "window.sise",
    ];
    assert_eq!(keys, expected, "and no fault for window.size, which was meant by window.sise");
}

#[test]
fn an_unknown_key_is_a_fault() {
    for (text, key, essentials) in [
        (example_with("size =", "sise ="), "window.sise", ["job.toml", "did you mean `size`?"]),
        (example_with("[late]", "[lat]"), "lat", ["did you mean `late`?", "dead_letter"]),
        (example_with("[late]", "[zzz]\n[late]"), "zzz", ["not a known key", "known here:"]),
    ] {
        check_fault(load_text(&text, &[]), key, &essentials);
    }
    let unknown = [("TIDEGATE__HTTP__PORT", "80")];
    check_fault(load_with(&unknown), "http.port", &["TIDEGATE__HTTP__PORT", "listen"]);
}

#[test]
fn a_value_of_the_wrong_kind_is_a_fault() {
    for (text, key, essentials) in [
        (example_with("size = \"1h\"", "size = [1]"), "window.size", ["is a list", "single value"]),
        (example_with("[\"origin\"]", "{ a = 1 }"), "key.fields", ["is a table", "list of words"]),
        (
            example_with("[\"origin\"]", "[\"origin\", []]"),
            "key.fields[1]",
            ["is a list", "single"],
        ),
        (
            example_with("{ field = \"scheduled\", unit = \"s\" }", "\"scheduled\""),
            "source[0].timestamp",
            ["is a text", "a table is meant"],
        ),
    ] {
        check_fault(load_text(&text, &[]), key, &essentials);
    }
    check_fault(load_text(EXAMPLE, &["kafka=hush"]), "kafka", &["is a text", "a table is meant"]);
    let no_place = [("TIDEGATE__SOURCE__TOPIC", "x")];
    check_fault(load_with(&no_place), "source", &["a list is meant", "TIDEGATE__SOURCE__0__"]);
    let gap = [("TIDEGATE__AGGREGATE__3__NAME", "x")];
    assert!(load_with(&gap).unwrap_err().iter().any(|fault| fault.key() == Some("aggregate[2]")));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = load(&Sources { files: vec!["/nowhere/job.toml".into()], ..Sources::default() });
    let faults = missing.unwrap_err();
    assert!(faults.iter().any(|fault| {
        fault.key().is_none()
            && fault.origin() == "/nowhere/job.toml"
            && fault.problem().contains("cannot be read")
    }));
    let broken = "[kafka.properties]\n\"sasl.password\" = \"hush\n";
    let said: Vec<String> =
        load_text(broken, &[]).unwrap_err().iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|line| line.contains("job.toml") && line.contains("line 2")),
        "{said:?}"
    );
    assert!(!said.iter().any(|line| line.contains("hush")), "{said:?}");
    assert_eq!(said.len(), 1, "what is missing may be in it: {said:?}");
    let unset = load_text(EXAMPLE, &["window.size"]).unwrap_err();
    assert!(unset[0].to_string().contains("the command line: `window.size` has no `=`"));
}

#[test]
fn variables_that_are_not_read_are_warned_of() {
    let warned = |name: &str| load_with(&[(name, "x")]).unwrap().warnings;
    let warnings = warned("TIDEGATE_HTTP__LISTEN");
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("TIDEGATE_HTTP__LISTEN") && warnings[0].contains("two underscores")
    );
    for harmless in ["TIDEGATE_SERVICE_HOST", "TIDEGATE_PORT_8080_TCP", "TIDEGATEKEEPER", "HOME"] {
        assert_eq!(warned(harmless), Vec::<String>::new(), "{harmless}");
    }
    let environment = variables(&[("TIDEGATE_KAFKA__GROUP_ID", "x")]);
    let faults = load(&Sources { environment, ..Sources::default() }).unwrap_err();
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(
        said[0].contains("TIDEGATE_KAFKA__GROUP_ID") && said[0].contains("is not read"),
        "{said:?}"
    );
    assert!(said.iter().any(|line| line.contains("kafka.group_id: is missing")), "{said:?}");
}

#[test]
fn properties_come_from_everywhere() {
    let folder = Folder::new();
    let secret = folder.write("password", "hush\n");
    let text = format!(
        "{EXAMPLE}[kafka.properties]\n\"socket.keepalive.enable\" = true\n\"sasl.password\" = \"old\"\n\
         [kafka.consumer.properties]\n\"fetch.min.bytes\" = 10\n"
    );
    let config = load(&Sources {
        files: vec![folder.write("job.toml", &text)],
        environment: variables(&[
            ("TIDEGATE_RDKAFKA_LOG__LEVEL", "3"),
            ("TIDEGATE_RDKAFKA_SASL_PASSWORD_FILE", secret.to_str().unwrap()),
            ("TIDEGATE__KAFKA__PRODUCER__PROPERTIES__COMPRESSION_TYPE", "zstd"),
        ]),
        overrides: vec!["kafka.consumer.properties.fetch.min.bytes=20".to_owned()],
        host_name: Some("host-1".to_owned()),
        ..Sources::default()
    });
    let kafka = config.unwrap().config.kafka;
    let all: Vec<_> = kafka.properties.iter().collect();
    let expected =
        [("log_level", "3"), ("sasl.password", "hush"), ("socket.keepalive.enable", "true")];
    assert_eq!(all, expected, "the file of the environment replaces the password of the file");
    assert_eq!(kafka.consumer_properties.get("fetch.min.bytes"), Some("20"));
    assert_eq!(kafka.producer_properties.get("compression.type"), Some("zstd"));
    assert!(!format!("{kafka:?}").contains("hush"));
}

#[test]
fn sources_do_not_show_secrets() {
    let sources = Sources {
        environment: variables(&[("TIDEGATE_RDKAFKA_SASL_PASSWORD", "hush")]),
        overrides: vec!["kafka.properties.sasl.password=hush".to_owned()],
        ..Sources::default()
    };
    let shown = format!("{sources:?}");
    assert!(shown.contains("SASL_PASSWORD") && shown.contains("sasl.password"));
    assert!(!shown.contains("hush"));
}
