//! What the clients are told while tokens come and go.

use super::*;
use crate::config::{Secret, TokenEndpoint};

/// Client credentials for an endpoint there.
pub(in crate::kafka) fn settings(tls: bool, host: &str, port: u16) -> OAuth {
    OAuth {
        token_endpoint: TokenEndpoint { tls, host: host.to_owned(), port, path: "/token".into() },
        client_id: "tidegate".to_owned(),
        client_secret: Secret::new("hush".to_owned()),
        scope: None,
        extensions: Vec::new(),
        ca_file: None,
    }
}

/// Tokens that nobody gets: the test takes the keeper's place.
fn tokens() -> Tokens {
    let settings = settings(true, "login.example.com", 443);
    Tokens(Arc::new(Shared::new(settings, Clock::start())))
}

/// A token that ends so much later than now, in milliseconds; a negative one has ended.
fn token(left_ms: i64) -> Token {
    let expires = Clock::wall().0 + left_ms;
    Token { value: "token".to_owned(), expires, lifetime: Duration::from_mins(1) }
}

fn failed(tokens: &Tokens, problem: &str, lasting: bool) {
    assert_eq!(tokens.0.take(Err(tokens.0.error(problem.to_owned(), lasting))), None);
}

/// Whether a broker's refusal at this time ends the service, and what is said.
fn refused(tokens: &Tokens, seconds: u64) -> (bool, String) {
    let now = MonotonicTime(Duration::from_secs(seconds));
    match tokens.refused_at(now, "a broker".to_owned()) {
        SourceError::Retry(cause) => (false, cause),
        SourceError::Fatal(cause) => (true, cause),
    }
}

const HOUR_MS: i64 = 3_600_000;

#[test]
fn an_endpoint_that_refuses_ends_the_service_once_the_last_token_has_ended() {
    let tokens = tokens();
    assert!(tokens.0.take(Ok(token(HOUR_MS))).is_some());
    failed(&tokens, "it answers 401 Unauthorized", true);
    // The last token is still good: nobody is told anything, and a refusal by a broker is its own.
    assert_eq!((tokens.failure(), tokens.first()), (None, Ok(())));
    assert_eq!(refused(&tokens, 0), (false, "a broker".to_owned()));

    tokens.0.lock().token = Some(token(-1));
    let failure = tokens.failure().unwrap();
    assert!(failure.lasting);
    assert_eq!(tokens.first(), Err(failure));
    let said = "no token from https://login.example.com:443/token (kafka.oauth): it answers 401 Unauthorized";
    assert_eq!(refused(&tokens, 1), (true, said.to_owned()));
}

#[test]
fn an_endpoint_that_is_away_is_waited_for_after_the_end_of_the_last_token() {
    let tokens = tokens();
    assert!(tokens.0.take(Ok(token(-1))).is_some());
    failed(&tokens, "cannot be reached", false);
    for seconds in [0, 10, 20, 30, 40] {
        let (ends, said) = refused(&tokens, seconds);
        assert!(!ends && said.ends_with(": cannot be reached"), "{said}");
    }
    // A new token makes an end of it.
    assert!(tokens.0.take(Ok(token(HOUR_MS))).is_some());
    assert_eq!(tokens.failure(), None);
}

#[test]
fn brokers_that_refuse_good_tokens_for_long_end_the_service() {
    let tokens = tokens();
    assert!(tokens.0.take(Ok(token(HOUR_MS))).is_some());
    // After a pause they begin anew: in between tokens were taken.
    for seconds in [0, 10, 20, 40, 50, 60, 69] {
        assert!(!refused(&tokens, seconds).0, "after {seconds} s");
    }
    assert_eq!(refused(&tokens, 70), (true, "a broker".to_owned()));
}
