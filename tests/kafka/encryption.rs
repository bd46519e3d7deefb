//! Encryption and credentials: each way in the documentation does the main job, and each way in which it can be wrong has an
//! error of its own, without a secret in it and without a storm of connections.

use std::time::Duration;

use tidegate::clock::Clock;

use crate::support::cluster::Cluster;
use crate::support::ledger::{Feed, Order, check_complete, config, create_topics, finish};
use crate::support::process::{Tidegate, tidegate};
use crate::support::secured::{Counted, Listener, SECRET, Secured, USER};

#[test]
fn each_documented_way_does_the_main_job() {
    let secured = Secured::shared();
    let cluster = secured.cluster();
    for (name, listener, principal) in [
        ("tls", Listener::Tls, None),
        ("mutual-tls", Listener::Mutual, Some(format!("CN={USER}"))),
        ("plain", Listener::Sasl, Some(USER.to_owned())),
        ("scram", Listener::Sasl, Some(USER.to_owned())),
        ("scram-256", Listener::Sasl, Some(USER.to_owned())),
    ] {
        let clock = Clock::start();
        let prefix = format!("way-{name}");
        create_all_topics(&cluster, &prefix);
        if let Some(principal) = principal {
            secured.grant_all(&principal, &prefix);
        }
        let example = secured.example(name.trim_end_matches("-256"), listener);
        let example = match name {
            "scram-256" => example.replace("SCRAM-SHA-512", "SCRAM-SHA-256"),
            _ => example,
        };
        let job = with(&config("", &prefix), &example);
        let shown = tidegate("config", &job, &[]);
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains("security.protocol") && !shown.contains(SECRET), "{shown}");
        let mut service = Tidegate::run(&job, &["--set", TRACE]);
        cluster.produce(&format!("{prefix}-in"), &Feed::new(Order::Disorder, 11).take(1_000));
        let (_, status) = service.get("/api/v1/status");
        assert!(!status.contains(SECRET), "{status}");
        let log = finish(&cluster, &prefix, service);
        assert!(!log.contains(SECRET), "the secret is in the log of {name}");
        check_complete(&cluster, &prefix);
        println!("{name}: {:?}", clock.monotonic().0);
    }
}

/// A way to be wrong: what is different from an example, and what must be said of it.
struct Wrong {
    what: &'static str,
    example: &'static str,
    listener: Listener,
    /// The name of the broker's host.
    host: &'static str,
    /// What stands in the example, and what stands there instead.
    instead: &'static [(&'static str, &'static str)],
    said: &'static [&'static str],
}

const HOST: &str = "127.0.0.1";

const WRONG: [Wrong; 12] = [
    Wrong {
        what: "a wrong password, PLAIN",
        example: "plain",
        listener: Listener::Sasl,
        host: HOST,
        instead: &[(
            "sasl.password_file\" = \"/run/secrets/kafka-password",
            "sasl.password\" = \"a guess",
        )],
        said: &["refuse the credentials", "sasl.password"],
    },
    Wrong {
        what: "a wrong password, SCRAM",
        example: "scram",
        listener: Listener::Sasl,
        host: HOST,
        instead: &[(
            "sasl.password_file\" = \"/run/secrets/kafka-password",
            "sasl.password\" = \"a guess",
        )],
        said: &["refuse the credentials", "sasl.password"],
    },
    Wrong {
        what: "a mechanism that the brokers do not have",
        example: "plain",
        listener: Listener::Plaintext,
        host: HOST,
        instead: &[("SASL_SSL", "SASL_PLAINTEXT")],
        said: &["refuse the credentials", "sasl.mechanism"],
    },
    Wrong {
        what: "an authority that is not trusted",
        example: "plain",
        listener: Listener::Sasl,
        host: HOST,
        instead: &[("ca-certificates.crt", "stranger.crt")],
        said: &["certificate of the broker", "local issuer", "ssl.ca.location"],
    },
    Wrong {
        what: "a broker's certificate that has expired",
        example: "tls",
        listener: Listener::Expired,
        host: HOST,
        instead: &[],
        said: &["certificate of the broker", "has expired", "renewed"],
    },
    Wrong {
        what: "a certificate for another host",
        example: "tls",
        listener: Listener::Tls,
        host: "localhost",
        instead: &[],
        said: &["certificate of the broker at localhost", "mismatch", "kafka.bootstrap_servers"],
    },
    Wrong {
        what: "no encryption where there is",
        example: "tls",
        listener: Listener::Tls,
        host: HOST,
        instead: &[("\"SSL\"", "\"PLAINTEXT\"")],
        said: &["of another kind", "\"PLAINTEXT\"", "SASL_SSL"],
    },
    Wrong {
        what: "encryption where there is none",
        example: "tls",
        listener: Listener::Plaintext,
        host: HOST,
        instead: &[],
        said: &["of another kind", "\"SSL\"", "SASL_PLAINTEXT"],
    },
    Wrong {
        what: "no certificate of the client",
        example: "tls",
        listener: Listener::Mutual,
        host: HOST,
        instead: &[],
        said: &["this client's certificate", "ssl.certificate.location"],
    },
    Wrong {
        what: "a client's certificate that has expired",
        example: "mutual-tls",
        listener: Listener::Mutual,
        host: HOST,
        instead: &[("tidegate.crt", "old.crt"), ("tidegate.key\"", "old.key\"")],
        said: &["this client's certificate", "ssl.certificate.location"],
    },
    Wrong {
        what: "a client's certificate by a stranger",
        example: "mutual-tls",
        listener: Listener::Mutual,
        host: HOST,
        instead: &[("tidegate.crt", "strange.crt"), ("tidegate.key\"", "strange.key\"")],
        said: &["this client's certificate", "ssl.certificate.location"],
    },
    Wrong {
        what: "a key for another certificate",
        example: "mutual-tls",
        listener: Listener::Mutual,
        host: HOST,
        instead: &[("tidegate.crt", "old.crt")],
        said: &["Kafka client cannot be made", "key"],
    },
];

#[test]
fn each_way_to_be_wrong_ends_it_with_an_error_of_its_own() {
    let secured = Secured::shared();
    let mut objections = Vec::new();
    for wrong in WRONG {
        let counted = Counted::to(secured.at(wrong.listener));
        let mut text = secured.example(wrong.example, wrong.listener);
        text = text.replace(&secured.at(wrong.listener), &counted.at(wrong.host));
        for (from, to) in wrong.instead {
            let from = from.replace("/run/secrets/", &secured.file(""));
            assert!(text.contains(&from), "no {from} in {text}");
            text = text.replace(&from, to);
        }
        let mut service = Tidegate::run(&with(&config("", "refused"), &text), &["--set", TRACE]);
        let clock = Clock::start();
        let ended = loop {
            match service.try_wait() {
                Some(status) => break Some(status),
                None if clock.monotonic().0 > Duration::from_secs(10) => break None,
                None => std::thread::park_timeout(Duration::from_millis(20)),
            }
        };
        let (took, attempts) = (clock.monotonic().0, counted.count());
        if ended.is_some() {
            service.wait();
        }
        let log = service.log();
        let said = log.lines().rfind(|line| line.starts_with("tidegate: ")).unwrap_or_default();
        println!("{}: {took:?}, {attempts} connections: {said}", wrong.what);
        let missing: Vec<_> = wrong.said.iter().filter(|part| !said.contains(**part)).collect();
        let tells = log.contains(SECRET) || log.contains("a guess");
        let failed = ended.and_then(|status| status.code()) == Some(1);
        let most = ATTEMPTS_AT_ONCE + ATTEMPTS_A_SECOND * took.as_secs_f64();
        let storm = f64::from(u32::try_from(attempts).unwrap()) > most;
        if !missing.is_empty() || tells || !failed || storm {
            objections
                .push(format!("{}: no {missing:?}, {attempts} connections in\n{log}", wrong.what));
        }
    }
    assert!(objections.is_empty(), "{}", objections.join("\n\n"));
}

/// Until the service ends, in a second or two by what the machine does beside. Its clients wait 50 ms between two, and at
/// the start there are several of them.
const ATTEMPTS_AT_ONCE: f64 = 6.0;
const ATTEMPTS_A_SECOND: f64 = 20.0;

/// A job and how it reaches its brokers, in one text.
pub(crate) fn with(job: &str, security: &str) -> String {
    let (kafka, rest) = job.split_once("[kafka.consumer.properties]").unwrap();
    // Of the job, what its table `[kafka]` has besides the address of the brokers.
    let kafka = kafka.lines().filter(|line| !line.contains("bootstrap_servers"));
    let kafka = kafka.collect::<Vec<_>>().join("\n").replace("[kafka]", "");
    let security = security.replacen("[kafka]\n", &format!("[kafka]\n{kafka}\n"), 1);
    format!("{security}\n[kafka.consumer.properties]{rest}")
}

/// Runs a service that must end by itself with an error: its log, and how long that took.
pub(crate) fn refused(config: &str, arguments: &[&str]) -> (String, Duration) {
    let clock = Clock::start();
    let mut service = Tidegate::run(config, arguments);
    let status = service.wait();
    let (log, took) = (service.log(), clock.monotonic().0);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(took < Duration::from_secs(30), "{took:?}: {log}");
    (log, took)
}

/// The error that a service has ended with.
pub(crate) fn error(log: &str) -> &str {
    let said = log.lines().rfind(|line| line.starts_with("tidegate: "));
    said.unwrap_or_else(|| panic!("no error in\n{log}"))
}

/// Everything but what the runtime and the answers to the test's own questions would say.
pub(crate) const TRACE: &str = "log.filter=trace,mio=off,rdkafka::util=off";

/// All topics of a job, the changelog among them, so that nobody needs the right to create one.
pub(crate) fn create_all_topics(cluster: &Cluster, prefix: &str) {
    create_topics(cluster, prefix);
    cluster.create(&format!("{prefix}-{prefix}-in-changelog"), 1, CHANGELOG);
}

/// The settings of the changelog that it is made with beforehand.
const CHANGELOG: &[(&str, &str)] =
    &[("cleanup.policy", "compact,delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")];
