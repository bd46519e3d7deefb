//! Why a window has not fired, asked of the program as people ask it: over HTTP and by the command. The classics, each
//! brought about on a real broker, and what came late.

use std::process::Command;

use serde_json::Value;
use tidegate::clock::Clock;

use crate::support::broker::Broker;
use crate::support::cluster::{Cluster, Record, send};
use crate::support::job::{Job, event, keyed, total, wait_for_offset, wait_for_total};
use crate::support::process::Tidegate;

/// What the service answers, and what the command prints.
fn ask(service: &mut Tidegate, query: &str, arguments: &[&str]) -> (Value, String) {
    let (code, body) = service.get(&format!("/api/v1/explain{query}"));
    assert_eq!(code, 200, "{body}");
    let url = format!("http://{}", service.address());
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["explain", "--url", &url])
        .args(arguments)
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{err}");
    (serde_json::from_str(&body).unwrap(), out)
}

/// Waits until the next window waits for this, and checks both answers.
fn wait_for_cause(service: &mut Tidegate, cause: &str, said: &[&str]) -> Value {
    service.wait_until(&format!("the cause is {cause}"), |service| {
        service.get("/api/v1/explain").1.contains(&format!("\"cause\":\"{cause}\",\"subtask\""))
    });
    let (json, printed) = ask(service, "", &[]);
    println!("{cause}: {printed}");
    assert_eq!(json["cause"], cause, "{json:#}");
    let sentence = json["sentence"].as_str().unwrap();
    for said in said {
        assert!(sentence.contains(said), "no {said:?} in {sentence}");
        assert!(printed.contains(said), "no {said:?} in {printed}");
    }
    assert_eq!(printed.lines().count(), 1, "{printed}");
    let (_, printed) = ask(service, "", &["--json"]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&printed["cause"], &printed["window"]), (&json["cause"], &json["window"]));
    json
}

/// Now, in ms, at the beginning of a window of 10 s.
fn window_now() -> i64 {
    let now = Clock::start().now().wall.0;
    now - now % 10_000
}

#[test]
fn a_partition_without_data_holds_the_window_until_it_is_idle() {
    let job =
        Job::new("explain-empty", 2).replace("idle_timeout = \"off\"", "idle_timeout = \"20s\"");
    let mut service = job.run(&[]);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    let start = window_now();
    // The other one goes on.
    let mut newest = start + 25_000;
    job.produce(&[event(0, "a", start, 1), event(0, "a", newest, 1)]);
    let producer = job.cluster.producer();
    service.wait_until("its silence counts, and the other one goes on", |service| {
        newest += 1;
        send(&producer, &job.topic("in"), &event(0, "a", newest, 1));
        service.get("/api/v1/explain").1.contains(", or when the partition falls idle in")
    });
    let said = ["explain-empty-in/1 has brought no record since it was assigned", "falls idle in"];
    let json = wait_for_cause(&mut service, "no_data", &said);
    assert_eq!((&json["state"], &json["window"]["start"]), (&"open".into(), &start.into()));
    assert_eq!((&json["holders"], &json["holder"]["partition"]), (&1.into(), &1.into()));
    assert_eq!((&json["holder"]["watermark"], &json["watermark"]), (&Value::Null, &Value::Null));
    assert_eq!(json["needed_watermark"], start + 9_999);
    assert_eq!(json["numbers"]["accepted"], 0);
    let left = json["numbers"]["idle_in_ms"].as_i64().unwrap();
    assert!((0..=20_000).contains(&left), "{json:#}");

    // What it said comes true, at the time it said or some ticks later.
    let earliest = json["earliest"].as_i64().unwrap();
    let by_start = format!("?window_start={start}");
    service.wait_until("it has fired", |service| {
        newest += 1;
        send(&producer, &job.topic("in"), &event(0, "a", newest, 1));
        service.get(&format!("/api/v1/explain{by_start}")).1.contains("has fired with 1 pane")
    });
    let fired = Clock::start().now().wall.0;
    // Evidence may be missing for a while on a busy machine, and it is never earlier.
    println!("fired {} ms after the earliest time", fired - earliest);
    assert!((earliest - 500..earliest + 40_000).contains(&fired), "{fired} for {earliest}");
    let at = (start + 3_000).to_string();
    let of_key = format!("?key=a&time={at}");
    let (json, printed) = ask(&mut service, &of_key, &["--key", "a", "--time", &at]);
    assert_eq!(
        (&json["state"], &json["cause"], &json["key"]),
        (&"closed".into(), &Value::Null, &"a".into())
    );
    assert!(printed.contains("has fired with 1 pane"), "{printed}");
    service.stop();
}

#[test]
fn seconds_read_as_milliseconds_are_all_refused_with_a_hint_on_the_unit() {
    let job = Job::new("explain-unit", 1)
        .replace("min_timestamp = \"off\"", "min_timestamp = \"2000-01-01T00:00:00Z\"");
    let mut service = job.run(&[]);
    let seconds = window_now() / 1_000;
    job.produce(&(0..40).map(|n| event(0, "a", seconds + n, 1)).collect::<Vec<_>>());
    wait_for_offset(&mut service, 40);
    let said = [
        "explain-unit-in/0 has had its last 40 records refused as dead letters (ts_past:",
        "unit = \"s\"",
        "one begins when a record that brings a watermark is accepted from explain-unit-in/0",
    ];
    let json = wait_for_cause(&mut service, "all_refused", &said);
    assert_eq!((&json["window"], &json["state"]), (&Value::Null, &"empty".into()));
    assert_eq!(json["numbers"]["reason"], "ts_past");
    assert_eq!(
        (&json["numbers"]["refused_in_row"], &json["numbers"]["accepted"]),
        (&40.into(), &0.into())
    );
    assert_eq!(json["earliest"], Value::Null);

    // With the hint taken, they are results.
    service.stop();
    assert_eq!(job.read("dead").len(), 40);
    let job = job.replace("field = \"ts\"", "field = \"ts\", unit = \"s\"");
    let mut service = job.run(&[]);
    job.produce(&[event(0, "a", seconds, 1), event(0, "a", seconds + 20, 1)]);
    service.wait_until("it has fired", |_| job.read("out").len() == 1);
    service.stop();
}

#[test]
fn a_generator_that_is_not_advanced_is_told_on_request_and_in_the_log() {
    let job = Job::new("explain-marker", 1)
        .replace("max_out_of_orderness = \"0s\"", "strategy = \"punctuated\", marker = \"closes\"");
    let mut service = job.run(&[]);
    let start = window_now();
    let mut produced = 0;
    let mut more = || {
        job.produce(&[event(0, "a", start + produced, 1)]);
        produced += 1;
    };
    more();
    wait_for_offset(&mut service, 1);
    let said = [
        "explain-marker-in/0 has brought",
        "since its watermark was to begin, and none carried a marker",
    ];
    let json = wait_for_cause(&mut service, "generator_not_advanced", &said);
    assert_eq!((&json["state"], &json["window"]["start"]), (&"open".into(), &start.into()));
    assert_eq!(json["numbers"]["accepted_since_rise"], 1);
    assert_eq!(json["numbers"]["bound_ms"], Value::Null);

    // While records flow, the log says so by itself.
    service.wait_until("the log has it", |service| {
        more();
        service.log().contains("the watermark stands still")
    });
    let line: Value =
        serde_json::from_str(&service.wait_for_line("the watermark stands still")).unwrap();
    assert_eq!(
        (&line["level"], &line["cause"]),
        (&"WARN".into(), &"generator_not_advanced".into())
    );
    assert!(line["message"].as_str().unwrap().contains("none carried a marker"), "{line}");

    // A marker opens it.
    let marker = format!(r#"{{"k":"a","ts":{},"v":1,"closes":true}}"#, start + 20_000);
    job.produce(&[Record::of(0, marker)]);
    service.wait_until("it has fired", |_| job.read("out").len() == 1);
    assert_eq!(service.log().matches("the watermark stands still").count(), 1);
    service.stop();
}

#[test]
fn a_broker_that_takes_nothing_blocks_the_output() {
    let mut broker = Broker::start();
    let job = Job::at("explain-blocked", 1, Cluster::new(broker.bootstrap()));
    // More than a transaction holds, so that the loop is at it for a while.
    let start = window_now() - 1_000_000;
    let records = (0..20_000).map(|n| event(0, &format!("k{}", n % 500), start + n * 50, 1));
    job.produce(&records.collect::<Vec<_>>());
    let mut service = job.run(&[]);
    service.wait_until("it has begun", |service| {
        service.metric_sum("tidegate_records_in_total", "") > 0.0
    });
    job.produce(&[event(0, "last", start + 1_000_001, 1)]);
    broker.pause();
    let said = ["has not fired: the output is blocked:", "; it fires when"];
    let json = wait_for_cause(&mut service, "output_blocked", &said);
    assert_eq!((&json["state"], &json["holder"]), (&"open".into(), &Value::Null));
    assert!(json["numbers"]["blocked_for_ms"].as_i64().unwrap() > 2_000, "{json:#}");
    // Blocked is not dead.
    assert_eq!(service.get("/livez").0, 200);
    broker.resume();
    let end = format!("/api/v1/explain?window_start={}", start + 990_000);
    service.wait_until("what was open has fired", |service| {
        service.get(&end).1.contains("has fired with")
    });
    job.wait_until_committed(1, &mut service);
    service.stop();
    assert_eq!(job.panes().values().map(|pane| pane.count).sum::<i64>(), 20_000);
}

#[test]
fn of_two_subtasks_the_one_with_the_empty_partition_is_told() {
    let job = Job::new("explain-two", 2).replace("fields = [\"k\"]", "from = \"message\"");
    let mut service = job.run(&["--set", "service.subtasks=2"]);
    service.wait_until("each has a partition", |service| {
        let held = ["subtask=\"0\"", "subtask=\"1\""];
        held.map(|of| total(service, "tidegate_partitions", of)) == [1, 1]
    });
    let start = window_now();
    job.produce(&[keyed(0, "a", start, 1), keyed(0, "a", start + 25_000, 1)]);
    wait_for_offset(&mut service, 2);
    let (_, status) = service.get("/api/v1/status");
    let status: Value = serde_json::from_str(&status).unwrap();
    let subtasks = status["subtasks"].as_array().unwrap();
    let with = |partition: i64| {
        let has = |of: &&Value| of["partitions"][0]["partition"] == partition;
        subtasks.iter().find(has).unwrap()["subtask"].clone()
    };
    let (full, empty) = (with(0), with(1));
    // They do not wait for each other: the next window is that of the one with records.
    let said = [format!("Subtask {full} of 2: Window "), "short of what is needed".to_owned()];
    let json =
        wait_for_cause(&mut service, "event_time_slow", &said.each_ref().map(String::as_str));
    assert_eq!((&json["subtask"], &json["window"]["start"]), (&full, &(start + 20_000).into()));
    // The first one has fired there, and may come yet in the other.
    let (at, query) = (start.to_string(), format!("?window_start={start}"));
    service.wait_until("it is known that nothing is in front of the empty one", |service| {
        service.get(&format!("/api/v1/explain{query}")).1.contains("\"cause\":\"no_data\"")
    });
    let (json, printed) = ask(&mut service, &query, &["--window-start", &at]);
    assert_eq!((&json["subtask"], &json["cause"]), (&empty, &"no_data".into()), "{json:#}");
    assert_eq!(json["holder"]["partition"], 1);
    assert!(printed.starts_with(&format!("Subtask {empty} of 2: Window ")), "{printed}");
    assert!(
        printed.contains("explain-two-in/1 has brought no record since it was assigned"),
        "{printed}"
    );
    // It has no idle timeout here, so only a record helps.
    assert!(json["fires_when"].as_str().unwrap().starts_with("a record"), "{json:#}");
    service.stop();
}

#[test]
fn each_cause_of_lateness_is_in_the_header_the_metrics_and_the_advice() {
    let job = Job::new("explain-late", 2)
        .replace("idle_timeout = \"off\"", "idle_timeout = \"4s\"")
        .consumer("topic.metadata.refresh.interval.ms", "500");
    let mut service = job.run(&[]);
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    // The second partition falls silent, and the first one goes on without it.
    let start = window_now();
    job.produce(&[
        event(0, "a", start, 1),
        event(0, "a", start + 25_000, 1),
        event(1, "b", start, 1),
    ]);
    let mut newest = start + 25_000;
    let producer = job.cluster.producer();
    service.wait_until("the window has fired without it", |service| {
        newest += 1;
        send(&producer, &job.topic("in"), &event(0, "a", newest, 1));
        total(service, "tidegate_window_fires_total", "on_time") == 2
    });
    let counted = |service: &mut Tidegate, cause: &str, count: i64| {
        let labels = format!("cause=\"{cause}\",disposition=\"late_topic\"");
        wait_for_total(service, "tidegate_late_records_total", &labels, count);
    };
    job.produce(&[event(0, "out_of_order", start + 1_000, 1)]);
    counted(&mut service, "out_of_order", 1);
    job.produce(&[
        event(1, "after_idle", start + 2_000, 1),
        event(1, "after_idle", start + 3_000, 1),
    ]);
    counted(&mut service, "after_idle", 2);
    // A third one comes in behind.
    job.cluster.grow(&job.topic("in"), 3);
    service.wait_until("it has three partitions", |service| {
        total(service, "tidegate_partitions", "") == 3 && service.get("/readyz").0 == 200
    });
    job.produce(&[event(2, "joined", start + 4_000, 1)]);
    counted(&mut service, "joined", 1);

    // While it is there, it holds the next window.
    let (json, printed) = ask(&mut service, "", &[]);
    if json["cause"] == "back_from_idle" {
        assert!(
            printed.contains("is back from idle, or came in, below the watermark"),
            "{printed}"
        );
    }
    let (json, printed) = ask(
        &mut service,
        &format!("?window_start={start}"),
        &["--window-start", &start.to_string()],
    );
    assert_eq!(json["state"], "closed");
    assert!(printed.contains("records for it are late now and go to the late topic"), "{printed}");

    // The key is the cause that is expected.
    let late = job.read("late");
    assert_eq!(late.len(), 4);
    for record in &late {
        assert_eq!(
            record.header("tidegate.cause").as_deref(),
            record.json()["k"].as_str(),
            "{record}"
        );
        assert_eq!(record.header("tidegate.reason").as_deref(), Some("late"), "{record}");
    }
    let (code, body) = service.get("/api/v1/advise");
    assert_eq!(code, 200, "{body}");
    let advice: Value = serde_json::from_str(&body).unwrap();
    let expected = serde_json::json!({ "out_of_order": 1, "after_idle": 2, "joined": 1 });
    assert_eq!(advice["advice"][0]["late"], expected);
    let text = advice["text"][0].as_str().unwrap();
    assert!(text.contains("late in this time: 2 after_idle, 1 joined, 1 out_of_order"), "{text}");
    // Records after an idle time ask for an allowed lateness.
    let lateness = advice["advice"][0]["recommendation"]["allowed_lateness_ms"].as_u64().unwrap();
    assert!(lateness >= 4_600, "{text}");
    service.stop();
}

#[test]
fn a_service_that_has_ended_is_named() {
    let job = Job::new("explain-gone", 1);
    let mut service = job.run(&[]);
    let url = format!("http://{}", service.address());
    service.wait_until("it is ready", |service| service.get("/readyz").0 == 200);
    service.stop();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["explain", "--url", &url])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains(&format!("no service answers at {url}")),
        "{said}"
    );
}
