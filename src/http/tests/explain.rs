//! `/api/v1/explain`: what it answers, and what it says of a question that is none.

use super::*;

/// A service whose only partition has fallen silent 5 s ago.
async fn waiting(subtasks: u16) -> Bench {
    let bench = bench_with(subtasks, |server| server).await;
    bench.pass(10);
    let mut held = a_snapshot();
    (held.restoring, held.least_clock) = (Vec::new(), held.watermark);
    held.partitions[0].caught_up = false;
    bench.watches.of(subtasks - 1).publish(held);
    bench
}

#[tokio::test]
async fn the_answer_has_the_sentence_and_its_numbers() {
    let bench = waiting(1).await;
    let (code, body) = bench.probe("/api/v1/explain").await;
    assert_eq!(code, 200);
    assert_eq!((&body["cause"], &body["state"]), (&"behind".into(), &"empty".into()));
    assert_eq!(body["window"]["start"], 1_799_999_940_000_i64);
    assert_eq!(body["holder"]["partition"], 3);
    assert_eq!(body["holder"], body["waiting_for"][0]);
    assert_eq!(body["watermark"], 1_799_999_995_000_i64);
    assert_eq!(body["numbers"]["lag"], 2);
    let sentence = body["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Window 07:59:00 - 08:00:00 has no record yet"), "{sentence}");
    assert!(sentence.contains("orders/3 is behind by 2 records not read yet"), "{sentence}");

    // The same window by a record of its, and by its start.
    let query = "key=berlin-3&time=2027-01-15T07:59:46%2E5Z";
    let (code, of_key) = bench.probe(&format!("/api/v1/explain?{query}")).await;
    assert_eq!((code, &of_key["key"]), (200, &"berlin-3".into()));
    assert_eq!(of_key["window"], body["window"]);
    let (_, of_start) = bench.probe("/api/v1/explain?window_start=1799999940000").await;
    assert_eq!(of_start["sentence"], body["sentence"]);
}

#[tokio::test]
async fn a_key_is_read_as_it_was_meant_and_not_looked_up() {
    let bench = waiting(1).await;
    for (written, meant) in [
        ("no-such-key", "no-such-key"),
        ("a+b%2Bc%26d", "a b+c&d"),
        ("%C3%BC", "\u{fc}"),
        ("%FF", "\u{fffd}"),
        ("", ""),
    ] {
        let query = format!("/api/v1/explain?time=1799999946000&key={written}");
        let (code, body) = bench.probe(&query).await;
        assert_eq!((code, &body["key"]), (200, &meant.into()), "{written}");
    }
}

#[tokio::test]
async fn past_and_future_windows_are_told_by_the_watermark() {
    let bench = waiting(1).await;
    let ask =
        async |start: &str| bench.probe(&format!("/api/v1/explain?window_start={start}")).await.1;
    let past = ask("2026-01-31T12:03:00Z").await;
    assert_eq!((&past["state"], &past["cause"]), (&"closed".into(), &().into()));
    assert_eq!((&past["fires_when"], &past["earliest"]), (&().into(), &().into()));
    let future = ask("2030-01-31T12:03:00Z").await;
    assert_eq!((&future["state"], &future["cause"]), (&"empty".into(), &"behind".into()));
    let before_1970 = ask("-60000").await;
    assert_eq!(before_1970["state"], "closed");
}

#[tokio::test]
async fn with_no_window_at_all_it_says_what_is_missing() {
    let bench = bench().await;
    let (code, body) = bench.probe("/api/v1/explain").await;
    assert_eq!((code, &body["cause"], &body["window"]), (200, &"not_assigned".into(), &().into()));
    let sentence = "No window has a record yet, and there is no watermark: no partition has been assigned yet; one \
                    begins when partitions are assigned here and their watermarks pass its end";
    assert_eq!(body["sentence"], sentence);
}

#[tokio::test]
async fn of_two_subtasks_the_answer_says_which_one_it_is_about() {
    let bench = waiting(2).await;
    bench.publish_of(0, Phase::Running); // with no partition at all: a standby
    let (code, body) = bench.probe("/api/v1/explain").await;
    assert_eq!((code, &body["subtask"], &body["cause"]), (200, &1.into(), &"behind".into()));
    let sentence = body["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("Subtask 1 of 2: Window 07:59:00 - 08:00:00"), "{sentence}");
}

#[tokio::test]
async fn what_is_no_question_is_refused_with_what_would_be_one() {
    let bench = waiting(1).await;
    for (query, said) in [
        ("window_start=yesterday", "window_start: `yesterday` is no time; write milliseconds"),
        ("window_start=", "window_start: `` is no time"),
        ("window_start=99999999999999999999", "is no time"),
        ("key=a&time=12:03", "time: `12:03` is no time"),
        ("key=a", "`key` needs `time` beside it"),
        ("time=0", "`time` needs `key` beside it"),
        ("window_start=0&key=a&time=0", "two questions"),
        ("window_start=0&window_start=60000", "`window_start` is given twice"),
        ("window=0", "`window` is no parameter; ask with window_start"),
        ("window_start=1799999941000", "windows near it begin at 2027-01-15T07:59:00Z"),
        ("key=a&time=9223372036854775807", "is out of range"),
    ] {
        let answer = bench.get(&format!("/api/v1/explain?{query}")).await;
        assert_eq!(answer.code, 400, "{query}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{query}");
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            (&problem["status"], &problem["title"]),
            (&400.into(), &"not a question".into())
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(said), "{query}: {detail}");
    }
    assert_eq!(bench.request("POST", "/api/v1/explain", "content-length: 0\r\n").await.code, 405);
}
