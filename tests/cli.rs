//! The program as people start it, without a broker of their own: `demo`, `check`, `config`, `generate`, `explain`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read, Write};
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

#[test]
fn the_health_of_a_service_is_its_exit_code() {
    let check = |url: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("healthcheck").args(arguments).env_clear();
        let address = url.strip_prefix("http://").unwrap();
        command.env("TIDEGATE__HTTP__LISTEN", address).output().unwrap()
    };
    let (url, serving) = answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    assert!(check(&url, &[]).status.success());
    assert!(serving.join().unwrap().starts_with("GET /livez "));

    let stalled =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 20\r\n\r\nnot turned for 31 s\n";
    let (url, serving) = answering(stalled);
    let sick = check(&url, &["--ready"]);
    assert!(serving.join().unwrap().starts_with("GET /readyz "));
    let said = text(&sick.stderr);
    assert_eq!(sick.status.code(), Some(1), "{said}");
    assert!(said.contains("503") && said.contains("not turned for 31 s"), "{said}");

    // Nobody is there any more.
    let gone = check(&url, &[]);
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

/// With the files that they name, which are empty but for the secrets.
#[test]
fn each_example_of_security_is_good_and_hides_its_secrets() {
    const SECRET: &str = "hush";
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("security");
    std::fs::create_dir_all(&folder).unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/config/security");
    let documented =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/README.md")).unwrap();
    let mut count = 0;
    for example in std::fs::read_dir(examples).unwrap() {
        let path = example.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(documented.contains(&format!("(../config/security/{name})")), "{name}");
        let example = std::fs::read_to_string(&path).unwrap();
        // Also what is there to be taken in.
        let example = example.replace("\n#\"", "\n\"");
        for file in example.split("\"/run/secrets/").skip(1) {
            std::fs::write(folder.join(file.split('"').next().unwrap()), SECRET).unwrap();
        }
        let local = folder.join(name);
        let here = format!("{}/", folder.display());
        std::fs::write(&local, example.replace("/run/secrets/", &here)).unwrap();
        let local = local.to_str().unwrap();
        let sets = SETTINGS.iter().flat_map(|setting| ["--set", setting]);
        let arguments: Vec<_> = ["check", "--config", local].into_iter().chain(sets).collect();
        let checked = tidegate(&arguments);
        assert!(checked.status.success(), "{name}: {}", text(&checked.stderr));
        assert!(text(&checked.stdout).contains("(0 warnings)"), "{}", text(&checked.stdout));
        let shown = tidegate(&[&["config"], &arguments[1..]].concat());
        assert!(!text(&shown.stdout).contains(SECRET), "{}", text(&shown.stdout));
        count += 1;
    }
    assert!(count >= 5);
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
fn generating_shows_the_tokens_of_the_configuration() {
    let mechanism = "sasl.mechanism=OAUTHBEARER";
    let without = ["generate", "--topic", "orders", "--property", mechanism];
    let output = tidegate(&without);
    assert_eq!(output.status.code(), Some(78));
    let said = text(&output.stderr);
    assert!(said.contains("give --config with a configuration that has [kafka.oauth]"), "{said}");

    let (url, serving) = answering("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    let endpoint = format!("kafka.oauth.token_endpoint={url}/token");
    let mut arguments = vec!["generate", "--topic", "orders", "--set", &endpoint];
    let oauth = [
        "kafka.oauth.client_id=me",
        "kafka.oauth.client_secret=hunter2",
        "kafka.properties.\"security.protocol\"=SASL_PLAINTEXT",
    ];
    arguments.extend(SETTINGS.iter().chain(&oauth).flat_map(|setting| ["--set", setting]));
    let output = tidegate(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let request = serving.join().unwrap();
    assert!(said.contains(&format!("no token from {url}/token (kafka.oauth)")), "{said}");
    assert!(said.contains("client_id and client_secret") && !said.contains("hunter2"), "{said}");
    assert!(request.starts_with("POST /token "), "{request}");
}

/// Answers the first request with this, whatever it is; where, and the request.
fn answering(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.extend(byte);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        text(&request)
    });
    (url, serving)
}

#[test]
fn explain_asks_as_it_is_asked_and_prints_the_sentence_or_all() {
    const ANSWER: &str =
        "HTTP/1.1 200 OK\r\ncontent-length: 33\r\n\r\n{\"sentence\":\"So it is.\",\"more\":1}";
    let asked = |arguments: &[&str]| {
        let (url, serving) = answering(ANSWER);
        let output = tidegate(&[&["explain", "--url", &url], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let request = serving.join().unwrap();
        (request.lines().next().unwrap().to_owned(), text(&output.stdout))
    };
    let (request, said) = asked(&[]);
    assert_eq!((request.as_str(), said.as_str()), ("GET /api/v1/explain? HTTP/1.1", "So it is.\n"));
    let (request, said) = asked(&["--window-start", "-60000", "--json"]);
    assert_eq!(request, "GET /api/v1/explain?window_start=%2D60000 HTTP/1.1");
    assert_eq!(said, "{\"sentence\":\"So it is.\",\"more\":1}\n");
    let (request, _) = asked(&["--key", "a b&c", "--time", "2026-01-31T12:03:46Z"]);
    let query = "key=a%20b%26c&time=2026%2D01%2D31T12%3A03%3A46Z";
    assert_eq!(request, format!("GET /api/v1/explain?{query} HTTP/1.1"));
}

#[test]
fn explain_says_what_is_wrong_with_the_question_or_the_service() {
    let fails = |arguments: &[&str], code: i32, expected: &str| {
        let output = tidegate(&[&["explain"], arguments].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected), "no {expected:?} in {said}");
        assert_eq!(text(&output.stdout), "");
    };
    fails(
        &["--url", "http://127.0.0.1:1"],
        1,
        "no service answers at http://127.0.0.1:1; give the address",
    );
    fails(&["--url", "127.0.0.1"], 1, "`127.0.0.1` is no address of a service");
    fails(&["--url", "https://here"], 1, "`https://here` is no address of a service");
    fails(&["--key", "a"], 2, "--time");
    fails(&["--time", "0"], 2, "--key");
    fails(&["--window-start", "0", "--key", "a", "--time", "0"], 2, "cannot be used with");

    let refused = "HTTP/1.1 400 Bad Request\r\ncontent-length: 48\r\n\r\n{\"title\":\"no\",\"status\":400,\"detail\":\"no window\"}";
    let elsewhere = "HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nhello";
    let other = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\nhel";
    for (answer, said) in [
        (refused, "no window"),
        (elsewhere, "answers 404; is it a tidegate of this version?"),
        (other, "is no service that explains"),
        (broken, "gave no answer"),
    ] {
        let (url, serving) = answering(answer);
        fails(&["--url", &url], 1, said);
        serving.join().unwrap();
    }
}

#[test]
fn help_teaches() {
    for command in [
        "run",
        "check",
        "config",
        "demo",
        "generate",
        "explain",
        "advise",
        "export",
        "healthcheck",
        "drain",
        "log-level",
    ] {
        let output = tidegate(&[command, "--help"]);
        assert!(output.status.success() && output.stdout.len() > 200, "{command}");
    }
}

#[test]
fn admin_calls_bring_the_token_of_the_configuration_or_of_a_file() {
    const ANSWER: &str =
        "HTTP/1.1 202 Accepted\r\ncontent-length: 25\r\n\r\n{\"sentence\":\"So be it.\"} ";
    let settings: Vec<_> = SETTINGS.iter().flat_map(|setting| ["--set", *setting]).collect();
    let (url, serving) = answering(ANSWER);
    let listen = format!("admin.listen={}", url.strip_prefix("http://").unwrap());
    let admin = ["--set", &listen, "--set", "admin.token=0123456789abcdef"];
    let output = tidegate(&[&["drain"], &settings[..], &admin].concat());
    assert_eq!(text(&output.stdout), "So be it.\n", "{}", text(&output.stderr));
    let request = serving.join().unwrap();
    assert!(request.starts_with("POST /api/v1/admin/drain HTTP/1.1"), "{request}");
    assert!(request.contains("authorization: Bearer 0123456789abcdef\r\n"), "{request}");

    let off = tidegate(&[&["log-level", "debug"], &settings[..]].concat());
    let said = text(&off.stderr);
    assert!(off.status.code() == Some(78) && said.contains("admin.listen: is off"), "{said}");
    let short = std::env::temp_dir().join(format!("tidegate-short-{}", std::process::id()));
    std::fs::write(&short, "hush").unwrap();
    let file = short.to_str().unwrap();
    let said = tidegate(&["drain", "--url", "http://127.0.0.1:1", "--token-file", file]);
    std::fs::remove_file(&short).unwrap();
    let said = text(&said.stderr);
    assert!(said.contains("too short to be a token") && !said.contains("hush"), "{said}");
}

#[test]
fn a_certificate_that_is_none_is_found_by_the_check() {
    let file = std::env::temp_dir().join(format!("tidegate-no-pem-{}", std::process::id()));
    std::fs::write(&file, "no PEM").unwrap();
    let files =
        ["certificate", "key"].map(|which| format!("admin.tls_{which}_file={}", file.display()));
    let admin = ["admin.listen=127.0.0.1:8082", "admin.token=0123456789abcdef"];
    let settings = SETTINGS.iter().chain(&admin).copied().chain(files.iter().map(String::as_str));
    let arguments: Vec<_> = settings.flat_map(|setting| ["--set", setting]).collect();
    let output = tidegate(&[&["check"], &arguments[..]].concat());
    std::fs::remove_file(&file).unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(
        said.contains("admin.tls_certificate_file: ") && said.contains("no certificate"),
        "{said}"
    );
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
