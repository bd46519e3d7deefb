//! Every rule: what is refused, and that the message says what would be right.

use super::{EXAMPLE, Folder, check_fault, example_with, load_text};
use crate::config::{Sources, load};

/// Each line: what the example is changed into, the key at fault, what the message must say.
fn check_all(cases: &[(&str, &str, &str, &[&str])]) {
    for (from, to, key, essentials) in cases {
        check_fault(load_text(&example_with(from, to), &[]), key, essentials);
    }
}

/// Each line: a setting of the command line, the key at fault, what the message must say.
fn check_overrides(cases: &[(&str, &str, &[&str])]) {
    for (text, key, essentials) in cases {
        check_fault(load_text(EXAMPLE, &[text]), key, essentials);
    }
}

const BOUNDED: &str = r#"strategy = "bounded_out_of_orderness", max_out_of_orderness = "3h""#;

#[test]
fn a_duration_is_written_with_its_unit() {
    check_overrides(&[
        ("window.size=90", "window.size", &["\"90\" has no unit", "\"90s\" or \"90ms\""]),
        ("window.size=1d", "window.size", &["no fixed length", "\"24h\""]),
        ("window.size=2w", "window.size", &["\"336h\""]),
        ("window.size=-1m", "window.size", &["negative"]),
        ("window.size=0s", "window.size", &["longer than zero"]),
        ("alignment.max_drift=0s", "alignment.max_drift", &["longer than zero", "\"off\""]),
        ("window.size=soon", "window.size", &["\"soon\" is no duration", "\"1h30m\""]),
        ("window.size=1500us", "window.size", &["finer than a millisecond"]),
        ("window.allowed_lateness=5", "window.allowed_lateness", &["\"5s\""]),
        ("watermark.emit_interval=1d", "watermark.emit_interval", &["\"24h\""]),
        ("service.shutdown_timeout=0s", "service.shutdown_timeout", &["longer than zero"]),
    ]);
}

#[test]
fn windows_are_shifted_by_less_than_their_size() {
    check_overrides(&[
        ("window.offset=1h", "window.offset", &["not smaller than window.size", "take off"]),
        ("window.offset=-61m", "window.offset", &["not smaller"]),
        ("window.offset=8", "window.offset", &["\"8s\""]),
    ]);
}

#[test]
fn a_word_must_be_one_of_those_known() {
    check_overrides(&[
        ("window.panes=accumulate", "window.panes", &["\"accumulating\", \"discarding\""]),
        ("watermark.all_idle=holt", "watermark.all_idle", &["did you mean \"hold\"?"]),
        ("results.key=window", "results.key", &["\"key_window\""]),
        ("results.timestamps=iso", "results.timestamps", &["\"epoch_ms\", \"rfc3339\""]),
        ("results.integers=string", "results.integers", &["\"number\", \"text\""]),
        ("results.progress=yes", "results.progress", &["\"true\", \"false\""]),
        ("delivery.guarantee=exactly-once", "delivery.guarantee", &["mean \"exactly_once\"?"]),
        ("log.format=xml", "log.format", &["\"auto\", \"text\", \"json\""]),
        ("log.filter=info,=x=y", "log.filter", &["write a level such as \"info\""]),
        ("source[0].on_missing=skip", "source[0].on_missing", &["\"stop\", \"continue\""]),
        ("source[0].timestamp.unit=sec", "source[0].timestamp.unit", &["\"ms\", \"s\""]),
        ("aggregate[1].function=mean", "aggregate[1].function", &["\"avg\""]),
        ("aggregate[1].type=int", "aggregate[1].type", &["\"number\", \"integer\""]),
        ("aggregate[1].missing=null", "aggregate[1].missing", &["\"refuse\", \"skip\""]),
        ("key.partial=maybe", "key.partial", &["\"true\", \"false\""]),
        ("topics.create=1", "topics.create", &["\"true\", \"false\""]),
    ]);
}

#[test]
fn what_has_no_default_must_be_given() {
    check_all(&[
        (
            "group_id = \"flights\"",
            "",
            "kafka.group_id",
            &["job.toml", "is missing", "the same for all"],
        ),
        ("topic = \"flights\"\n", "", "source[0].topic", &["is missing", "input topic"]),
        ("size = \"1h\"", "", "window.size", &["is missing", "\"1m\""]),
        ("fields = [\"origin\"]", "", "key", &["fields = [", "from = \"message\""]),
        ("name = \"flights\"\n", "", "aggregate[0].name", &["is missing"]),
        ("function = \"count\"", "", "aggregate[0].function", &["is missing", "\"count\""]),
        ("topic = \"flights-hourly\"", "", "results.topic", &["is missing"]),
        ("topic = \"flights-late\"", "", "late.topic", &["is missing"]),
        ("topic = \"flights-dead\"", "", "dead_letter.topic", &["is missing"]),
        (
            ", max_out_of_orderness = \"3h\"",
            "",
            "source[0].watermark.max_out_of_orderness",
            &["is missing", "\"5s\"", "tidegate advise"],
        ),
    ]);
    let without_lists = EXAMPLE.replace("[[aggregate]]", "[[source]]");
    let faults = load_text(&without_lists, &[]).unwrap_err();
    assert!(faults.iter().any(|fault| fault.key() == Some("aggregate")));
}

#[test]
fn a_timestamp_is_in_one_place() {
    let at = "field = \"scheduled\", unit = \"s\"";
    check_all(&[
        (at, "", "source[0].timestamp", &["is missing", "`header = ", "`from = \"record\"`"]),
        (at, "field = \"a\", header = \"b\"", "source[0].timestamp", &["more than one of"]),
        (
            at,
            "from = \"record\", unit = \"s\"",
            "source[0].timestamp.unit",
            &["always milliseconds"],
        ),
        (at, "from = \"recrod\"", "source[0].timestamp.from", &["did you mean \"record\"?"]),
        (at, "field = \"a..b\"", "source[0].timestamp.field", &["JSON Pointer"]),
        (at, "header = \"\"", "source[0].timestamp.header", &["is empty"]),
        (
            at,
            "field = \"a\", naive = \"utc\"",
            "source[0].timestamp.naive",
            &["unit = \"rfc3339\""],
        ),
        (at, "from = \"record\", naive = \"utc\"", "source[0].timestamp.naive", &["leave it out"]),
    ]);
}

#[test]
fn a_strategy_takes_its_own_settings_alone() {
    let at = "source[0].watermark";
    let key = |name: &str| format!("{at}.{name}");
    let adaptive = |rest: &str| example_with(BOUNDED, &format!("strategy = \"adaptive\"{rest}"));
    let other = |rest: &str| example_with(BOUNDED, rest);
    for (text, name, essentials) in [
        (other("strategy = \"boundde\""), "strategy", ["\"ascending\", \"punctuated\"", ""]),
        (other("strategy = \"adaptiv\""), "strategy", ["did you mean \"adaptive\"?", ""]),
        (
            other("strategy = \"ascending\", max_out_of_orderness = \"1s\""),
            "max_out_of_orderness",
            ["goes only with", "\"ascending\""],
        ),
        (
            other("strategy = \"ascending\", marker = \"m\""),
            "marker",
            ["\"punctuated\"", "leave it"],
        ),
        (other("strategy = \"punctuated\""), "marker", ["is missing", "name the field"]),
        (adaptive(", margin = 0"), "margin", ["above zero", "1.5"]),
        (adaptive(", margin = \"nan\""), "margin", ["above zero", ""]),
        (adaptive(", buckets = 0"), "buckets", ["from 1 to", ""]),
        (adaptive(", buckets = 2.5"), "buckets", ["whole number", ""]),
        (adaptive(", bucket_width = \"0s\""), "bucket_width", ["longer than zero", ""]),
        (adaptive(", floor = \"2m\""), "floor", ["above the ceiling", "raise the ceiling"]),
        (adaptive(", initial = \"2m\""), "initial", ["not between the floor", ""]),
        (other(&format!("{BOUNDED}, margin = 2")), "margin", ["\"adaptive\"", "leave it out"]),
    ] {
        check_fault(load_text(&text, &[]), &key(name), &essentials);
    }
}

#[test]
fn idleness_is_switched_off_in_so_many_words() {
    let key = "source[0].watermark.idle_timeout";
    check_overrides(&[
        ("source[0].watermark.idle_timeout=0s", key, &["\"off\" to disable it"]),
        ("source[0].watermark.idle_timeout=-5s", key, &["\"off\" to disable it"]),
        ("source[0].watermark.idle_timeout=30", key, &["\"30s\"", "\"off\""]),
        ("source[0].watermark.idle_timeout=never", key, &["\"off\""]),
    ]);
}

#[test]
fn a_time_has_its_offset() {
    check_overrides(&[
        ("source[0].start=earlyest", "source[0].start", &["did you mean \"earliest\"?"]),
        ("source[0].start=2025-01-01T00:00:00", "source[0].start", &["\"2025-01-01T00:00:00Z\""]),
        ("source[0].start=2025-01-01", "source[0].start", &["\"2025-01-01T00:00:00Z\""]),
        ("guard.min_timestamp=1970", "guard.min_timestamp", &["is no time", "\"off\""]),
        ("guard.max_future=60", "guard.max_future", &["\"60s\"", "\"off\""]),
    ]);
}

#[test]
fn names_in_a_result_are_told_apart() {
    check_overrides(&[
        ("aggregate[1].name=flights", "aggregate[1].name", &["there twice", "its own name"]),
        ("aggregate[1].name=origin", "aggregate[1].name", &["is a key field", "another name"]),
        (
            "aggregate[1].name=window_end",
            "aggregate[1].name",
            &["every result has", "another name"],
        ),
        ("aggregate[1].name=key", "aggregate[1].name", &["every result has"]),
        ("aggregate[1].name=", "aggregate[1].name", &["is empty"]),
        ("key.fields=origin,pane", "key.fields[1]", &["every result has", "source.fields"]),
        ("key.fields=origin,origin", "key.fields[1]", &["there twice"]),
        ("key.fields=origin,a..b", "key.fields[1]", &["JSON Pointer"]),
    ]);
    check_all(&[("fields = [\"origin\"]", "fields = []", "key.fields", &["at least one"])]);
}

#[test]
fn an_aggregate_has_the_field_it_needs() {
    check_all(&[
        ("field = \"delay_min\"", "", "aggregate[1].field", &["\"sum\" takes", "only \"count\""]),
        ("\"count\"", "\"count\"\ntype = \"integer\"", "aggregate[0].type", &["leave it out"]),
        ("\"count\"", "\"count\"\nmissing = \"skip\"", "aggregate[0].missing", &["leave it out"]),
        ("\"delay_min\"", "\"delay.\"", "aggregate[1].field", &["JSON Pointer"]),
    ]);
}

#[test]
fn the_key_comes_from_one_place() {
    check_overrides(&[("key.from=message", "key", &["both `fields` and `from`"])]);
    check_all(&[
        ("fields = [\"origin\"]", "from = \"mesage\"", "key.from", &["did you mean \"message\"?"]),
        (
            "fields = [\"origin\"]",
            "from = \"message\"\npartial = true",
            "key.partial",
            &["only with `key.fields`", "leave it out"],
        ),
    ]);
}

#[test]
fn subtasks_share_partitions_and_so_need_a_key_that_keeps_to_one() {
    check_overrides(&[
        ("service.subtasks=0", "service.subtasks", &["from 1 to 64"]),
        ("service.subtasks=65", "service.subtasks", &["from 1 to 64"]),
        ("service.subtasks=2.5", "service.subtasks", &["whole number"]),
        (
            "service.subtasks=2",
            "service.subtasks",
            &["is 2", "in all partitions", "write 1", "key.from = \"message\"", "key.partial"],
        ),
    ]);
    let partial = load_text(EXAMPLE, &["service.subtasks=2", "key.partial=true"]).unwrap();
    assert_eq!(partial.config.subtasks, 2);
    let message = example_with("fields = [\"origin\"]", "from = \"message\"");
    assert_eq!(load_text(&message, &["service.subtasks=64"]).unwrap().config.subtasks, 64);
    let faults = load_text(EXAMPLE, &["service.subtasks=2", "window.size=90"]).unwrap_err();
    assert_eq!(faults.len(), 2, "also where other things are wrong: {faults:?}");
}

#[test]
fn topics_have_legal_names_and_one_use_each() {
    let long = format!("results.topic={}", "x".repeat(250));
    check_overrides(&[
        ("results.topic=a b", "results.topic", &["' '", "letters, digits"]),
        ("results.topic=..", "results.topic", &["no topic name"]),
        ("results.topic=", "results.topic", &["is empty"]),
        (&long, "results.topic", &["250", "249"]),
        ("results.topic=flights", "results.topic", &["the input topic", "read what it writes"]),
        ("late.topic=flights", "late.topic", &["the input topic", "topic of its own"]),
        ("late.topic=flights-hourly", "late.topic", &["the topic of results"]),
        ("dead_letter.topic=flights", "dead_letter.topic", &["the input topic"]),
        ("dead_letter.topic=flights-hourly", "dead_letter.topic", &["the topic of results"]),
        ("dead_letter.topic=flights-late", "dead_letter.topic", &["late records", "apart"]),
        ("late.topic=flights-flights-changelog", "late.topic", &["the changelog topic"]),
        ("topics.partitions=0", "topics.partitions", &["from 1 to"]),
        ("topics.partitions=6.5", "topics.partitions", &["whole number"]),
        ("topics.replication_factor=0", "topics.replication_factor", &["nor \"default\""]),
    ]);
}

#[test]
fn the_cluster_and_the_group_are_named() {
    let long = format!("kafka.group_id={}", "g".repeat(240));
    check_overrides(&[
        ("kafka.group_id=", "kafka.group_id", &["is empty"]),
        ("kafka.group_id=a/b", "kafka.group_id", &["'/'", "changelog"]),
        (&long, "kafka.group_id", &["too long", "249"]),
        ("kafka.bootstrap_servers=a:9092,", "kafka.bootstrap_servers", &["empty server"]),
        ("kafka.instance_id= ", "kafka.instance_id", &["is empty", "stays the same"]),
        ("kafka.static_membership=yes", "kafka.static_membership", &["\"true\", \"false\""]),
        ("http.listen=8080", "http.listen", &["\"0.0.0.0:8080\""]),
        ("http.listen=localhost:9000", "http.listen", &["\"127.0.0.1:9000\""]),
    ]);
    let folder = Folder::new();
    let files = vec![folder.write("job.toml", EXAMPLE)];
    let unknown_host = load(&Sources { files, ..Sources::default() });
    check_fault(unknown_host, "kafka.instance_id", &["not known", "only this instance"]);
}

#[test]
fn a_static_member_has_a_name_that_the_group_takes() {
    for (instance, essential) in
        [("a b", "' ' in it"), ("i".repeat(247).as_str(), "has 247 characters")]
    {
        let instance = format!("kafka.instance_id={instance}");
        assert!(load_text(EXAMPLE, &[&instance]).is_ok());
        let loaded = load_text(EXAMPLE, &[&instance, "kafka.static_membership=true"]);
        check_fault(loaded, "kafka.instance_id", &[essential, "at most 246 letters"]);
    }
    let loaded = load_text(EXAMPLE, &["kafka.static_membership=true"]).unwrap();
    assert!(loaded.config.kafka.static_membership && loaded.warnings.is_empty());
    let newer = "[kafka.properties]\n\"group.protocol\" = \"consumer\"\n";
    let loaded =
        load_text(&format!("{EXAMPLE}{newer}"), &["kafka.static_membership=true"]).unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    assert!(
        loaded.warnings[0].contains("group.consumer.session.timeout.ms"),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn commits_fit_into_transactions() {
    check_overrides(&[
        ("delivery.commit_interval=0s", "delivery.commit_interval", &["longer than zero"]),
        ("delivery.commit_interval=15s", "delivery.commit_interval", &["transaction_timeout"]),
        ("delivery.transaction_timeout=500ms", "delivery.transaction_timeout", &["\"1s\""]),
        ("delivery.transaction_timeout=600h", "delivery.transaction_timeout", &["\"596h\""]),
    ]);
}

#[test]
fn properties_the_guarantees_depend_on_are_refused() {
    for (name, instead) in [
        ("client.id", "kafka.instance_id"),
        ("group.id", "kafka.group_id"),
        ("bootstrap.servers", "kafka.bootstrap_servers"),
        ("metadata.broker.list", "kafka.bootstrap_servers"),
        ("enable.auto.commit", "delivery.commit_interval"),
        ("auto.commit.interval.ms", "delivery.commit_interval"),
        ("enable.auto.offset.store", "delivery.commit_interval"),
        ("auto.offset.reset", "source.start"),
        ("isolation.level", "aborted transactions"),
        ("transactional.id", "kafka.instance_id"),
        ("enable.idempotence", "delivery.guarantee"),
        ("transaction.timeout.ms", "delivery.transaction_timeout"),
        ("group.instance.id", "kafka.static_membership"),
        ("statistics.interval.ms", "silence"),
        ("enable.partition.eof", "read everything"),
        ("acks", "replicas in sync"),
        ("request.required.acks", "replicas in sync"),
        ("partitioner", "Java"),
    ] {
        for table in ["kafka.properties", "kafka.consumer.properties", "kafka.producer.properties"]
        {
            let key = format!("{table}.\"{name}\"");
            let key = if name.contains('.') { key } else { format!("{table}.{name}") };
            let loaded = load_text(EXAMPLE, &[&format!("{table}.{name}=x")]);
            check_fault(loaded, &key, &["may not be set", instead]);
        }
    }
}

#[test]
fn the_newer_group_protocol_decides_for_itself() {
    let text = format!(
        "{EXAMPLE}[kafka.properties]\n\"group.protocol\" = \"consumer\"\n[kafka.consumer.properties]\n\
         \"session.timeout.ms\" = 10000\n"
    );
    let key = "kafka.consumer.properties.\"session.timeout.ms\"";
    check_fault(load_text(&text, &[]), key, &["job.toml", "group.protocol", "leave it out"]);
    assert!(load_text(&text.replace("\"consumer\"", "\"classic\""), &[]).is_ok());
}

#[test]
fn secrets_in_files_are_found_or_named() {
    let missing = "kafka.properties.sasl.password_file=/nowhere/password";
    let key = "kafka.properties.\"sasl.password_file\"";
    check_fault(load_text(EXAMPLE, &[missing]), key, &["cannot read /nowhere/password"]);
    let both = format!(
        "{EXAMPLE}[kafka.properties]\n\"sasl.password\" = \"hush\"\n\"sasl.password_file\" = \"/x\"\n"
    );
    check_fault(load_text(&both, &[]), key, &["also `sasl.password`", "one of them"]);
}

#[test]
fn a_limit_is_a_number_above_zero_or_off() {
    check_overrides(&[
        ("limits.open_windows=0", "limits.open_windows", &["from 1 to", "or \"off\""]),
        ("limits.open_windows=none", "limits.open_windows", &["or \"off\""]),
        ("limits.keys_per_window=-1", "limits.keys_per_window", &["no whole number"]),
        ("limits.state_bytes=0", "limits.state_bytes", &["above zero", "\"512MiB\"", "\"off\""]),
        ("limits.state_bytes=1GB", "limits.state_bytes", &["\"1GB\" is no size"]),
        ("limits.state_bytes=99999999999GiB", "limits.state_bytes", &["no size"]),
    ]);
}

#[test]
fn what_is_exported_fits_into_a_table() {
    let table = "[export.postgres]\ntable = \"t\"\n";
    let long = format!("name = \"{}\"", "x".repeat(64));
    let cases: [(&str, &str, &str, &[&str]); 4] = [
        ("name = \"flights\"", "name = \"ctid\"", "aggregate[0].name", &["\"ctid\" is a column"]),
        ("\"delay_sum\"", "\"updated_at\"", "aggregate[1].name", &["give it another name"]),
        ("name = \"delay_sum\"", &long, "aggregate[1].name", &["64 bytes", "at most 63"]),
        (
            "[window]",
            "[window]\npanes = \"discarding\"",
            "export.postgres.table",
            &["write window.panes = \"accumulating\""],
        ),
    ];
    for (from, to, key, essentials) in cases {
        let text = example_with(from, to);
        check_fault(load_text(&format!("{text}{table}"), &[]), key, essentials);
        let loaded = load_text(&text, &[]);
        assert!(loaded.is_ok(), "without a table nobody minds: {to}");
    }
}

#[test]
fn the_export_is_told_how_to_reach_its_database() {
    check_overrides(&[
        ("export.postgres.tls=verify", "export.postgres.tls", &["\"verify-full\""]),
        ("export.postgres.port=0", "export.postgres.port", &["from 1 to 65535"]),
        ("export.postgres.batch_rows=0", "export.postgres.batch_rows", &["from 1 to 100000"]),
        ("export.postgres.group_id=flights", "export.postgres.group_id", &["another group"]),
        ("export.postgres.tls_ca_file=/no/such", "export.postgres.tls_ca_file", &["cannot read"]),
        ("export.postgres.password_file=/no/such", "export.postgres.password_file", &["read"]),
        ("export.postgres.listen=8081", "export.postgres.listen", &["127.0.0.1:8081", "\"off\""]),
        ("export.postgres.tabel=t", "export.postgres.tabel", &["did you mean `table`?"]),
    ]);
    let long = format!("export.postgres.table={}", "x".repeat(56));
    check_fault(load_text(EXAMPLE, &[&long]), "export.postgres.table", &["56 bytes", "55"]);
}
