//! SASL OAUTHBEARER: tokens got with client credentials, and new ones before they end.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidegate::clock::Clock;

use super::encryption::{TRACE, create_all_topics, error, refused, with};
use super::outages::read_on;
use crate::support::endpoint::Endpoint;
use crate::support::ledger::{Feed, Feeding, Order, check_complete, config, finish};
use crate::support::process::Tidegate;
use crate::support::rights::Right;
use crate::support::secured::{Listener, SECRET, Secured, USER};

fn job(secured: &Secured, prefix: &str, url: &str) -> String {
    let example = secured.example("oauth", Listener::Sasl);
    with(&config("", prefix), &example.replace("https://login.example.com/oauth2/token", url))
}

/// The lifetime is short, and the broker ends sessions whose token has: without new tokens in time this would stop.
#[test]
fn tokens_are_renewed_while_it_runs() {
    let secured = Secured::shared();
    let cluster = secured.cluster();
    let prefix = "tokens";
    create_all_topics(&cluster, prefix);
    secured.grant_all(USER, prefix);
    let endpoint = Endpoint::start(Duration::from_secs(8));
    endpoint.breaks(Some("503 Service Unavailable"));
    let clock = Clock::start();
    let mut service = Tidegate::run(&job(secured, prefix, &endpoint.url()), &["--set", TRACE]);
    let line = service.wait_for_line("no new token; asking again");
    assert!(line.contains("503") && line.contains(&endpoint.url()), "{line}");
    endpoint.breaks(None);
    let feeding = Feeding::start(&cluster, &format!("{prefix}-in"), Feed::new(Order::Disorder, 13));
    read_on(&mut service, 300.0);
    println!("first records after {:?}", clock.monotonic().0);
    service.wait_until("tokens have come and gone", |_| endpoint.seen().given >= 4);
    read_on(&mut service, 300.0);
    let log = service.log();
    assert!(
        !log.contains("refuse the credentials") && !log.contains("a transaction is aborted"),
        "{log}"
    );
    println!("4 tokens after {:?}", clock.monotonic().0);

    // No new one until after the end of the last: it waits, and goes on.
    endpoint.breaks(Some("500 Internal Server Error"));
    service.wait_for_line("the_last_is_still_good\":true");
    let before = endpoint.seen();
    let broke = clock.monotonic();
    service.wait_until("the last token has ended", |_| {
        clock.monotonic().since(broke) > before.lifetime
    });
    let asked = endpoint.seen().requests - before.requests;
    endpoint.breaks(None);
    service.wait_until("there is one again", |_| endpoint.seen().given > before.given);
    read_on(&mut service, 600.0);
    feeding.finish();
    let log = finish(&cluster, prefix, service);
    check_complete(&cluster, prefix);
    let seen = endpoint.seen();
    println!("{} tokens for {} requests in {:?}", seen.given, seen.requests, clock.monotonic().0);
    assert!(!log.contains(SECRET) && !log.contains("eyJ"), "a secret is in the log");
    // All clients of the process have the same, and a broken endpoint is asked less and less often.
    assert!(asked <= 4, "asked {asked} times while it was out of order");
    assert!(seen.requests <= 20, "{seen:?}");
}

#[test]
fn an_endpoint_that_refuses_ends_it_and_one_that_is_away_is_waited_for() {
    let secured = Secured::shared();
    let endpoint = Endpoint::start(Duration::from_mins(1));
    let good = job(secured, "no-tokens", &endpoint.url());
    let secret = format!("client_secret_file = \"{}\"", secured.file("oauth-client"));
    assert!(good.contains(&secret), "{good}");
    let guess = good.replace(&secret, "client_secret = \"a guess\"");
    let (log, took) = refused(&guess, &["--set", TRACE]);
    let last = error(&log);
    println!("a wrong secret: {took:?}: {last}");
    for part in [endpoint.url().as_str(), "401", "invalid_client", "client_secret"] {
        assert!(last.contains(part), "no {part} in\n{log}");
    }
    for form in ["a guess", "a%20guess", &openssl::base64::encode_block(b"tidegate:a%20guess")] {
        assert!(!log.contains(form), "the secret is in the log: {log}");
    }
    assert!(endpoint.seen().requests <= 3, "{:?}", endpoint.seen());

    endpoint.breaks(Some("404 Not Found"));
    let (log, _) = refused(&good, &[]);
    assert!(error(&log).contains("token_endpoint must be"), "{log}");

    // Nobody listens there. It waits, says so once, and stops when it is asked to.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut service =
        Tidegate::run(&good.replace(&endpoint.url(), &format!("http://{closed}/token")), &[]);
    let line = service.wait_for_line("no new token; asking again");
    assert!(line.contains(&closed.to_string()) && line.contains("cannot be reached"), "{line}");
    let clock = Clock::start();
    let log = service.stop();
    println!("stopped {:?} after it was asked to", clock.monotonic().0);
    assert_eq!(log.matches("no new token; asking again").count(), 1, "{log}");
}

#[test]
fn the_generator_is_let_in_with_the_tokens_of_the_service() {
    let secured = Secured::shared();
    let cluster = secured.cluster();
    let prefix = "tokens-generated";
    let topic = format!("{prefix}-in");
    cluster.create(&topic, 2, &[]);
    let write = Right {
        resource: "topic".to_owned(),
        name: topic.clone(),
        prefix: false,
        operation: "Write".to_owned(),
    };
    secured.grant(&[(format!("User:{USER}"), write)]);
    let endpoint = Endpoint::start(Duration::from_mins(1));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{prefix}.toml"));
    std::fs::write(&file, job(secured, prefix, &endpoint.url())).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["generate", "--topic", &topic, "--rate", "1000", "--count", "500", "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(cluster.read(&topic).len(), 500);
    assert!(endpoint.seen().given > 0);
}
