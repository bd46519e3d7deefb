//! The admin listener of a running service: drain, and which lines the log has, as `tidegate drain` and `tidegate log-level`
//! ask for them.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use crate::support::certificates::{Certificate, For};
use crate::support::job::{Job, event, keyed, panes, row, total, wait_for_offset};
use crate::support::process::Tidegate;

const TOKEN: &str = "a-token-of-the-test-7f3a";

/// What makes it listen, on any port.
const ADMIN: [&str; 4] =
    ["--set", "admin.listen=127.0.0.1:0", "--set", "admin.token=a-token-of-the-test-7f3a"];

/// A file with the token, or with a certificate, removed at the end.
struct TokenFile(PathBuf);

impl TokenFile {
    fn new(name: &str, token: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::write(&path, format!("{token}\n")).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// Where it listens for admin calls.
pub(crate) fn admin_address(service: &mut Tidegate) -> String {
    let line = service.wait_for_line("listening for admin calls");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    line["address"].as_str().unwrap().to_owned()
}

/// Calls a running service with the token in a file: the exit code, and all that was said.
fn call(service: &mut Tidegate, token: &TokenFile, arguments: &[&str]) -> (Option<i32>, String) {
    let url = format!("http://{}", admin_address(service));
    call_at(&url, token, arguments)
}

fn call_at(url: &str, token: &TokenFile, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .args(["--url", url, "--token-file"])
        .arg(&token.0)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn a_drain_fires_what_is_open_and_the_next_start_goes_on_from_there() {
    let token = TokenFile::new("drained", TOKEN);
    let job = Job::new("drained", 2);
    job.produce(&[event(0, "a", 1_000, 1), event(1, "b", 2_000, 2), event(0, "a", 12_000, 4)]);
    let mut service = job.run(&ADMIN);
    wait_for_offset(&mut service, 3);
    assert_eq!(job.panes(), panes(&[]));
    let (code, said) = call(&mut service, &token, &["drain"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("what is open in 2 partitions fires (2 windows held)"), "{said}");
    assert!(!said.contains("other members"), "{said}");
    let status = service.wait();
    assert_eq!(status.code(), Some(0), "{}", service.log());
    assert_eq!(
        job.panes(),
        panes(&[(0, "a", 1, 1), (0, "b", 1, 2), (10_000, "a", 1, 4)]),
        "{}",
        service.log()
    );
    assert_eq!(job.committed(2), job.ends(2));

    job.produce(&[event(0, "a", 13_000, 8), event(1, "b", 31_000, 16)]);
    job.run_to_end(&[]);
    let rows = job.rows();
    assert_eq!(rows.last(), Some(&row(30_000, "b", "0 on_time", 1, 16)));
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(job.late().into_values().collect::<Vec<_>>(), [19_999]);
}

#[test]
fn all_subtasks_drain_and_what_other_members_read_stays_open() {
    let token = TokenFile::new("drained-by-subtasks", TOKEN);
    let job = Job::new("drained-by-subtasks", 6).replace("fields = [\"k\"]", "from = \"message\"");
    let name = |name: &str| format!("kafka.instance_id={name}");
    let [one, two] = ["one", "two"].map(name);
    let mut first =
        job.run(&[&ADMIN[..], &["--set", &one, "--set", "service.subtasks=2"]].concat());
    let mut second = job.run(&[&ADMIN[..], &["--set", &two]].concat());
    let partitions = |service: &mut Tidegate| total(service, "tidegate_partitions", "");
    first.wait_until("each has a share", |first| {
        let ready = first.get("/readyz").0 == 200 && second.get("/readyz").0 == 200;
        ready && partitions(first) == 4 && partitions(&mut second) == 2
    });
    let records: Vec<_> =
        (0..6).map(|partition| keyed(partition, &format!("k{partition}"), 1_000, 1)).collect();
    job.produce(&records);
    first.wait_until("both have read theirs", |first| {
        let windows = |service: &mut Tidegate| total(service, "tidegate_window_panes_open", "");
        windows(first) == 4 && windows(&mut second) == 2
    });
    let (code, said) = call(&mut first, &token, &["drain"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 of 6 partitions are read by other members of the group"), "{said}");
    assert_eq!(first.wait().code(), Some(0), "{}", first.log());
    assert_eq!(job.rows().len(), 4, "{}", first.log());

    second.wait_until("it has taken over", |second| partitions(second) == 6);
    second.wait_until("with their state", |second| second.get("/readyz").0 == 200);
    assert_eq!(job.rows().len(), 4, "nothing is fired by the move");
    let (code, said) = call(&mut second, &token, &["drain", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (code, &answer["partitions"], &answer["input_partitions"]),
        (Some(0), &6.into(), &6.into())
    );
    assert_eq!(second.wait().code(), Some(0), "{}", second.log());
    let expected: Vec<_> =
        (0..6).map(|partition| row(0, &format!("k{partition}"), "0 on_time", 1, 1)).collect();
    assert_eq!(job.rows(), expected);
}

#[test]
fn a_standby_ends_with_nothing_to_fire_and_the_other_one_goes_on() {
    let token = TokenFile::new("drained-standby", TOKEN);
    let job = Job::new("drained-standby", 2);
    let name = |name: &str| format!("kafka.instance_id={name}");
    let [one, two] = ["one", "two"].map(name);
    let mut reader = job.run(&["--set", &one]);
    reader.wait_until("it reads", |reader| reader.get("/readyz").0 == 200);
    job.produce(&[event(0, "a", 1_000, 1)]);
    wait_for_offset(&mut reader, 1);
    let mut standby = job.run(&[&ADMIN[..], &["--set", &two]].concat());
    standby.wait_for_line("standing by");
    let (code, said) = call(&mut standby, &token, &["drain"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 of 2 partitions are read by other members"), "{said}");
    assert_eq!(standby.wait().code(), Some(0), "{}", standby.log());
    assert_eq!(reader.get("/readyz").0, 200);
    assert_eq!(job.panes(), panes(&[]));
    reader.stop();
}

#[test]
fn the_log_of_a_running_service_can_be_changed_by_who_has_the_token() {
    let (token, wrong) = (
        TokenFile::new("levels", TOKEN),
        TokenFile::new("levels-wrong", "another-token-of-the-test"),
    );
    let job = Job::new("levels", 1);
    let mut service = job.run(&ADMIN);
    let (code, said) = call(&mut service, &token, &["log-level"]);
    assert_eq!((code, said.as_str()), (Some(0), "The log's filter is info, as configured.\n"));
    for arguments in [&["log-level", "off"][..], &["drain"]] {
        let (code, said) = call(&mut service, &wrong, arguments);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("bring the token"), "{said}");
    }
    let (code, said) = call(&mut service, &token, &["log-level", "debgu"]);
    assert!(code == Some(1) && said.contains("did you mean \"debug\"?"), "{said}");
    let (code, said) =
        call(&mut service, &token, &["log-level", "info,tidegate::http=debug", "--for", "5s"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("info,tidegate::http=debug, for 5 s; then info"), "{said}");
    service.wait_for_line("\"filter\":\"info,tidegate::http=debug\"");
    service.wait_until("the details are there", |service| {
        // What is no request is worth a detail.
        let mut stream = TcpStream::connect(service.address()).unwrap();
        stream.write_all(b"nonsense\r\n\r\n").unwrap();
        service.log().contains("connection ended early")
    });
    // It falls back by itself.
    service.wait_for_line("\"filter\":\"info\"");
    assert_eq!(total(&mut service, "tidegate_admin_requests_total", "outcome=\"denied\""), 2);
    let log = service.stop();
    assert!(log.contains("an admin call without the right token is refused"), "{log}");
    for token in [TOKEN, "another-token-of-the-test"] {
        assert!(!log.contains(token), "a token is in the log:\n{log}");
    }
}

#[test]
fn over_tls_an_authority_is_trusted_and_guesses_of_the_token_are_told_in_few_lines() {
    let [authority, stranger] = ["authority", "stranger"].map(Certificate::authority);
    let own = authority.sign("tidegate", &For::Server("127.0.0.1"), 0, 1);
    let file = |name: &str, text: String| TokenFile::new(&format!("admin-tls-{name}"), &text);
    let (chain, key) = (file("chain", own.pem()), file("key", own.key_pem()));
    let (trusted, other) = (file("ca", authority.pem()), file("other", stranger.pem()));
    let (token, guess) = (file("token", TOKEN.to_owned()), file("guess", "a-guess".repeat(3)));
    let tls = [
        format!("admin.tls_certificate_file={}", chain.path()),
        format!("admin.tls_key_file={}", key.path()),
    ];
    let repeats = ["--set", "log.repeats=1", "--set", "log.repeat_interval=10m"];
    let job = Job::new("admin-tls", 1);
    let mut service =
        job.run(&[&ADMIN[..], &["--set", &tls[0], "--set", &tls[1]], &repeats].concat());
    let url = format!("https://{}", admin_address(&mut service));
    let (code, said) = call_at(&url, &token, &["log-level", "--ca-file", trusted.path()]);
    assert_eq!((code, said.as_str()), (Some(0), "The log's filter is info, as configured.\n"));
    let (code, said) = call_at(&url, &token, &["log-level", "--ca-file", other.path()]);
    assert!(code == Some(1) && said.contains("not trusted"), "{said}");

    for _ in 0..3 {
        let (code, said) = call_at(&url, &guess, &["drain", "--ca-file", trusted.path()]);
        assert!(code == Some(1) && said.contains("bring the token"), "{said}");
    }
    assert_eq!(total(&mut service, "tidegate_admin_requests_total", "outcome=\"denied\""), 3);
    assert_eq!(total(&mut service, "tidegate_log_events_suppressed_total", "level=\"warn\""), 2);
    // What was left out is told at the end at the latest.
    let log = service.stop();
    let refused = "\"message\":\"an admin call without the right token is refused\"";
    assert_eq!(log.matches(refused).count(), 1, "{log}");
    assert!(log.contains("suppressed 2 lines like this"), "{log}");
}
