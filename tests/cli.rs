//! The program as people start it, without a broker of their own: `demo`, `check`, `config`, `generate`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

/// All that must be given.
const SETTINGS: [&str; 12] = [
    "kafka.group_id=g",
    "kafka.instance_id=i",
    "source[0].topic=in",
    "source[0].timestamp.field=ts",
    "source[0].watermark.max_out_of_orderness=2s",
    "window.size=1m",
    "key.from=message",
    "aggregate[0].name=n",
    "aggregate[0].function=count",
    "results.topic=out",
    "late.topic=late",
    "dead_letter.topic=dead",
];

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).env_clear().output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_demo_shows_the_main_job_and_ends_by_itself() {
    let output = tidegate(&["demo", "--plain", "--for", "30s"]);
    let lines = text(&output.stdout);
    assert!(output.status.success(), "{lines}\n{}", text(&output.stderr));
    for expected in [
        "does not isolate transactions and keeps nothing",
        " fired: ",
        "late updates",
        "held back by orders/",
        "orders/5 is idle",
        "orders/5 is active",
        "dead letters",
    ] {
        assert!(lines.contains(expected), "no {expected:?} in:\n{lines}");
    }
    // Everything that is promised did happen.
    let last = lines.lines().last().unwrap();
    for count in ["late", "dead letters", "tombstones"] {
        assert!(!last.contains(&format!(" 0 {count}")), "{last}");
    }
}

/// Answers one request like this, and says what was asked.
fn answering(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let (status, body) = answer.split_once('|').unwrap();
        let length = body.len();
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        line
    });
    (address, asked)
}

#[test]
fn the_health_of_a_service_is_its_exit_code() {
    let check = |address: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("healthcheck").args(arguments).env_clear();
        command.env("TIDEGATE__HTTP__LISTEN", address).output().unwrap()
    };
    let (address, asked) = answering("200 OK|{}");
    assert!(check(&address, &[]).status.success());
    assert!(asked.join().unwrap().starts_with("GET /livez "));

    let (address, asked) = answering("503 Service Unavailable|the loop has not turned for 31 s");
    let sick = check(&address, &["--ready"]);
    assert!(asked.join().unwrap().starts_with("GET /readyz "));
    let said = text(&sick.stderr);
    assert_eq!(sick.status.code(), Some(1), "{said}");
    assert!(said.contains("503") && said.contains("has not turned for 31 s"), "{said}");

    // Nobody is there any more.
    let gone = check(&address, &[]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("no service answers"), "{}", text(&gone.stderr));
}

#[test]
fn several_subtasks_cannot_run_to_the_end() {
    let settings = SETTINGS.iter().chain(&["service.subtasks=2"]);
    let arguments: Vec<_> = settings.flat_map(|setting| ["--set", *setting]).collect();
    let output = tidegate(&[&["run", "--until-end"], &arguments[..]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("service.subtasks: is 2") && said.contains("write 1"), "{said}");
}

#[test]
fn a_wrong_configuration_is_told_all_at_once_and_ends_with_78() {
    let output = tidegate(&["check", "--set", "window.size=90", "--set", "topics.partition=3"]);
    let faults = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{faults}");
    for expected in ["window.size", "topics.partition", "kafka.group_id", "results.topic"] {
        assert!(faults.contains(expected), "no {expected:?} in:\n{faults}");
    }
    // Nothing is connected to: `run` ends in the same way.
    let run = tidegate(&["run", "--set", "window.size=90"]);
    assert_eq!(run.status.code(), Some(78));
}

#[test]
fn a_property_that_the_client_does_not_know_is_a_fault() {
    let mut arguments = vec!["check"];
    let wrong =
        ["kafka.properties.\"sasl.pasword\"=x", "kafka.producer.properties.\"linger.ms\"=soon"];
    arguments.extend(SETTINGS.iter().chain(&wrong).flat_map(|setting| ["--set", setting]));
    let output = tidegate(&arguments);
    let faults = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{faults}");
    assert!(faults.contains("sasl.pasword") && faults.contains("linger.ms"), "{faults}");
}

#[test]
fn the_reference_is_printed_whole() {
    let output = tidegate(&["config", "--default"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout).trim_end(), include_str!("../config/default.toml").trim_end());
}

#[test]
fn the_configuration_in_effect_hides_secrets() {
    let mut arguments = vec!["config"];
    let secret = ["kafka.properties.\"sasl.password\"=hunter2"];
    arguments.extend(SETTINGS.iter().chain(&secret).flat_map(|setting| ["--set", setting]));
    let output = tidegate(&arguments);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    assert!(shown.contains("size = \"1m\""), "{shown}");
}

#[test]
fn generating_for_a_broker_that_is_away_says_so() {
    let output = tidegate(&["generate", "--bootstrap", "127.0.0.1:1", "--topic", "orders"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no broker answers at 127.0.0.1:1"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn help_teaches() {
    for command in ["run", "check", "config", "demo", "generate", "export"] {
        let output = tidegate(&[command, "--help"]);
        assert!(output.status.success() && output.stdout.len() > 200, "{command}");
    }
}

#[test]
fn the_configurations_in_the_readme_are_good() {
    let readme = include_str!("../README.md");
    let blocks: Vec<&str> =
        readme.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty());
    let folder = std::env::temp_dir().join(format!("tidegate-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("example.toml");
    for block in blocks.into_iter().chain([include_str!("../config/flights.toml")]) {
        std::fs::write(&file, block).unwrap();
        let output = tidegate(&[
            "check",
            "--config",
            file.to_str().unwrap(),
            "--set",
            "kafka.instance_id=i",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("0 warnings"), "{}", text(&output.stdout));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_export_shows_its_sql_and_asks_for_its_table() {
    let settings: Vec<_> = SETTINGS.iter().flat_map(|setting| ["--set", *setting]).collect();
    let export = |more: &[&str]| tidegate(&[&["export", "postgres"], &settings[..], more].concat());
    let without = export(&["--show-sql"]);
    let said = text(&without.stderr);
    assert_eq!(without.status.code(), Some(78), "{said}");
    assert!(said.contains("export.postgres.table: is missing"), "{said}");
    let shown = export(&["--show-sql", "--set", "export.postgres.table=per minute"]);
    let sql = text(&shown.stdout);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    for line in
        ["CREATE TABLE \"public\".\"per minute\" (", "  \"key\" text NOT NULL,", "  \"n\" bigint,"]
    {
        assert!(sql.contains(line), "{sql}");
    }
    assert!(sql.contains("PRIMARY KEY (\"window_start\", \"key\", \"partition\")"), "{sql}");
    let help = text(&tidegate(&["export", "postgres", "--help"]).stdout);
    assert!(help.contains("--until-end") && help.contains("password_file"), "{help}");
}
