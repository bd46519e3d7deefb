//! What ends the export, with a word on what would be right, and what does not.

use openssl::asn1::Asn1Time;
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::extension::SubjectAlternativeName;
use openssl::x509::{X509, X509NameBuilder};

use crate::support::cluster::Record;
use crate::support::job::Job;
use crate::support::postgres::{PASSWORD, Postgres};
use crate::support::process::Tidegate;
use crate::support::rights::table;
use crate::support::secured::{Listener, SECRET, Secured, names};

/// A job of which there is only one result.
fn job(name: &'static str) -> Job {
    let job = Job::without_topics(name);
    job.create("out", 1, &[]);
    job.cluster.produce(&job.topic("out"), &[Record::of(0, RESULT)]);
    job
}

const RESULT: &str = r#"{"window_start":0,"window_end":10000,"k":"a","count":1,"sum":2,"pane":{"timing":"on_time","index":0}}"#;

fn start(job: &Job, postgres: &Postgres, arguments: &[&str]) -> Tidegate {
    let config = format!("{}{}", job.config, postgres.config("t"));
    Tidegate::export(&config, &[&["--until-end"], arguments].concat())
}

/// Runs the export, which must end with an error and without its password in the log; the log.
fn fail(job: &Job, postgres: &Postgres, arguments: &[&str]) -> String {
    let mut exporter = start(job, postgres, arguments);
    let status = exporter.wait();
    let log = exporter.log();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(!log.contains(PASSWORD) && !log.contains("battery"), "{log}");
    log
}

fn succeed(job: &Job, postgres: &Postgres, arguments: &[&str]) {
    let mut exporter = start(job, postgres, arguments);
    let status = exporter.wait();
    assert!(status.success(), "{}", exporter.log());
    assert_eq!(postgres.number("SELECT sum(sum)::bigint FROM t"), Some(2));
}

#[test]
fn a_table_that_does_not_fit_ends_it_with_what_would_be_right() {
    let job = job("unfit");
    let postgres = Postgres::start();
    let said = fail(&job, &postgres, &["--set", "export.postgres.create_tables=false"]);
    assert!(said.contains("does not exist") && said.contains("--show-sql"), "{said}");
    postgres.run("CREATE TABLE t (window_start timestamptz, k text, count integer, note text)");
    let said = fail(&job, &postgres, &[]);
    for expected in [
        "is not as the configuration wants it",
        r#"ALTER TABLE \\\"public\\\".\\\"t\\\" ADD COLUMN \\\"sum\\\" numeric;"#,
        r#"column \\\"count\\\" is integer, and must be bigint"#,
        "no primary key or unique index",
    ] {
        assert!(said.contains(&expected.replace("\\\\\\", "\\")), "{expected} expected in {said}");
    }
    assert_eq!(postgres.number("SELECT count(*) FROM t"), Some(0));
    postgres.run("DROP TABLE t");
    // One column more does not matter.
    succeed(&job, &postgres, &[]);
    postgres.run("ALTER TABLE t ADD COLUMN note text");
    succeed(&job, &postgres, &[]);
    // Offsets of another topic that had this name.
    postgres.run("UPDATE t_offsets SET next_offset = 1000");
    let said = fail(&job, &postgres, &[]);
    assert!(said.contains("the database has read up to 1000"), "{said}");
}

#[test]
fn wrong_credentials_and_a_missing_database_end_it_at_once() {
    let job = job("refused");
    let postgres = Postgres::start();
    for (setting, essential) in [
        ("export.postgres.password=wrong battery", "password authentication failed"),
        ("export.postgres.user=nobody", "password authentication failed"),
        ("export.postgres.database=elsewhere", "does not exist"),
        ("export.postgres.schema=elsewhere", "does not exist"),
    ] {
        let said = fail(&job, &postgres, &["--set", setting]);
        assert!(said.contains(essential), "{setting}: {said}");
        assert!(!said.contains("retry_in_ms"), "it does not try again: {said}");
    }
    let said = fail(&job, &postgres, &["--set", "results.topic=refused-none"]);
    assert!(said.contains("`refused-none`"), "{said}");
}

#[test]
fn a_database_that_is_not_there_yet_is_waited_for() {
    let job = job("early");
    let mut postgres = Postgres::start();
    postgres.stop();
    let mut exporter = start(&job, &postgres, &[]);
    exporter.wait_for_line("the database does not answer");
    postgres.start_again();
    assert!(exporter.wait().success(), "{}", exporter.log());
    assert_eq!(postgres.number("SELECT count(*) FROM t"), Some(1));
    // Stopped while it waits, it ends cleanly.
    postgres.stop();
    let config = format!("{}{}", job.config, postgres.config("t"));
    let mut exporter = Tidegate::export(&config, &[]);
    exporter.wait_for_line("the database does not answer");
    exporter.stop();
}

/// A certificate that signs itself, for this host.
fn certificate(host: &str) -> (Vec<u8>, Vec<u8>) {
    let key = PKey::from_rsa(Rsa::generate(2_048).unwrap()).unwrap();
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", host).unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(2).unwrap()).unwrap();
    let names = SubjectAlternativeName::new().dns(host).build(&builder.x509v3_context(None, None));
    builder.append_extension(names.unwrap()).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    (builder.build().to_pem().unwrap(), key.private_key_to_pem_pkcs8().unwrap())
}

#[test]
fn the_connection_is_as_encrypted_and_as_verified_as_it_is_asked_for() {
    let job = job("encrypted");
    let mut postgres = Postgres::start();
    let tls = |mode: &str| format!("export.postgres.tls={mode}");
    let said = fail(&job, &postgres, &["--set", &tls("require")]);
    assert!(said.contains("server does not support TLS"), "{said}");
    succeed(&job, &postgres, &["--set", &tls("prefer")]);

    postgres.stop();
    let (certificate, key) = certificate("localhost");
    let certificate = postgres.put("server.crt", &certificate);
    let key = postgres.put("server.key", &key);
    postgres.set("ssl", "on");
    postgres.set("ssl_cert_file", certificate.to_str().unwrap());
    postgres.set("ssl_key_file", key.to_str().unwrap());
    postgres.set("log_connections", "on");
    postgres.start_again();
    let encrypted = |postgres: &Postgres| {
        let log = postgres.log();
        let mut mine = log.lines().filter(|line| line.contains("application_name=tidegate export"));
        mine.next_back().unwrap().contains("SSL enabled")
    };
    for (mode, is_encrypted) in [("disable", false), ("prefer", true), ("require", true)] {
        succeed(&job, &postgres, &["--set", &tls(mode)]);
        assert_eq!(encrypted(&postgres), is_encrypted, "{mode}\n{}", postgres.log());
    }
    let verified = tls("verify-full");
    let said = fail(&job, &postgres, &["--set", &verified]);
    assert!(said.contains("certificate verify failed"), "{said}");
    let trusted = format!("export.postgres.tls_ca_file={}", certificate.display());
    let said = fail(&job, &postgres, &["--set", &verified, "--set", &trusted]);
    assert!(said.contains("mismatch"), "127.0.0.1 is not localhost: {said}");
    let right = ["--set", &verified, "--set", &trusted, "--set", "export.postgres.host=localhost"];
    succeed(&job, &postgres, &right);
}

/// With the rights that `deploy/README.md` lists it reads; without any one of them it says which one it lacks.
#[test]
fn rights_on_kafka_that_are_missing_are_named() {
    let secured = Secured::shared();
    let cluster = secured.cluster();
    let postgres = Postgres::start();
    cluster.create("er-out", 1, &[]);
    cluster.produce("er-out", &[Record::of(0, RESULT)]);
    let prefixed = names("er");
    let rows: Vec<_> =
        table(&prefixed.each()).into_iter().filter(|row| row.command == "export").collect();
    assert!(rows.len() >= 2, "{rows:?}");
    // One user for each right, who has all the others; and one who has all.
    for user in 0..=rows.len() {
        let others = rows.iter().enumerate().filter(|(nth, _)| *nth != user);
        let grants = others.map(|(_, row)| (format!("User:right{user}"), row.right.clone()));
        secured.grant(&grants.collect::<Vec<_>>());
    }
    for user in 0..=rows.len() {
        let job = Job::without_topics("er");
        let (_, rest) = job.config.split_once("[[source]]").unwrap();
        let example = secured.example("plain", Listener::Sasl);
        let example = example.replace("\"tidegate\"", &format!("\"right{user}\""));
        let group = "[kafka]\ngroup_id = \"er\"\n";
        let config = format!(
            "{}\n[[source]]{rest}{}",
            example.replacen("[kafka]\n", group, 1),
            postgres.config("t")
        );
        let set = ["--until-end", "--set", "export.postgres.group_id=er-export"];
        let mut exporter = Tidegate::export(&config, &set);
        let status = exporter.wait();
        let log = exporter.log();
        assert!(!log.contains(SECRET), "{log}");
        let Some(row) = rows.get(user) else {
            assert!(status.success(), "{log}");
            continue;
        };
        assert_eq!(status.code(), Some(1), "without {:?}: {log}", row.right);
        let right = &row.right;
        let named = format!("operation {} on {} `{}`", right.operation, right.resource, right.name);
        assert!(log.contains(&named), "no {named} in {log}");
    }
    assert_eq!(postgres.number("SELECT sum(sum)::bigint FROM t"), Some(2));
}
