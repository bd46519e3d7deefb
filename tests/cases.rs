//! Runs the cases of `tests/cases`: small inputs, each after a fault that some system showed in the field, with the
//! result that is right.
//!
//! A case is one JSON file; `tests/cases/FORMAT.md` describes it. Those that are a list of steps with a manual clock run
//! here: each record goes through the decoder, the core and the encoder, the state through the changelog where the case
//! stops or crashes, and the result records, the late and refused
//! records, the open windows, the watermark after each step and the metrics are compared. A case whose result does not
//! depend on when watermarks are emitted runs with each emission, and each runs with one shard for all partitions and
//! with one shard per partition. Whatever a case asks for, no record may be lost or counted twice, and the watermark may
//! not go back.
//!
//! To add a case, put a file beside the others, named by its id; our own ids begin with TG. Nothing else is needed but for
//! a scenario, which wants a real broker: it runs in `tests/kafka/scenarios.rs` and needs a line there. What cannot run
//! here is listed with its reason at each run; nothing is left out in silence.
//!
//! `TIDEGATE_CASES=FOLDER cargo test --test cases` runs the files of another folder likewise.

#[path = "support/case_check.rs"]
mod case_check;
#[path = "support/case_config.rs"]
mod case_config;
#[path = "support/case_file.rs"]
mod case_file;
#[path = "support/case_restart.rs"]
mod case_restart;
#[path = "support/case_run.rs"]
mod case_run;
#[path = "support/case_scenario.rs"]
mod case_scenario;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io, panic};

use tidegate::event_time::Sharding;

use case_file::{Emit, Header, Timing, Trace, ValueType};
use case_run::Emission;

/// What became of one file.
#[derive(Debug)]
enum Verdict {
    Passed { runs: usize },
    Failed(String),
    NotApplicable(&'static str),
}

#[test]
fn every_case_gives_what_it_must() {
    let folder = env::var_os("TIDEGATE_CASES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("cases"),
        PathBuf::from,
    );
    let (mut passed, mut runs) = (0, 0);
    let (mut failures, mut not_applicable) = (Vec::new(), Vec::new());
    for file in case_files(&folder).unwrap() {
        let text = fs::read_to_string(&file).unwrap();
        let (name, verdict) = judge(&file, &text);
        match verdict {
            Verdict::Passed { runs: of_this } => {
                passed += 1;
                runs += of_this;
            }
            Verdict::Failed(report) => failures.push(format!("{name}\n{report}")),
            Verdict::NotApplicable(reason) => not_applicable.push(format!("{name}: {reason}")),
        }
    }
    let ran = passed + failures.len();
    let summary = format!(
        "cases of {}\nnot applicable here: {}\n  {}\nran: {ran}, passed: {passed} (in {runs} ways), failed: {}",
        folder.display(),
        not_applicable.len(),
        not_applicable.join("\n  "),
        failures.len()
    );
    // Not captured, unlike what `println!` writes: the figures are shown when all is well, too.
    writeln!(io::stdout().lock(), "\n{summary}").unwrap();
    assert!(ran > 0, "no case ran; is {} the right folder?", folder.display());
    assert!(failures.is_empty(), "\n{}\n{summary}", failures.join("\n"));
}

fn case_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: Result<Vec<_>, _> = fs::read_dir(folder)?.collect();
    let mut files: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

/// The name of a case and what became of it.
fn judge(file: &Path, text: &str) -> (String, Verdict) {
    let header: Header = match serde_json::from_str(text) {
        Ok(header) => header,
        Err(error) => return (file.display().to_string(), Verdict::Failed(format!("  {error}"))),
    };
    let verdict = match header.case_type.as_deref() {
        None => match serde_json::from_str::<Trace>(text) {
            Ok(trace) => run_all_ways(&trace),
            Err(error) => Verdict::Failed(format!("  {error}")),
        },
        Some("scenario") => match serde_json::from_str(text) {
            Ok(scenario) => {
                let reason = case_scenario::not_run(&scenario);
                Verdict::NotApplicable(reason.unwrap_or("runs in the kafka tests"))
            }
            Err(error) => Verdict::Failed(format!("  {error}")),
        },
        Some("function") => Verdict::NotApplicable("a function, tested beside its code"),
        Some(other) => Verdict::Failed(format!("  no type is known as {other}")),
    };
    (format!("{} {}", header.id, header.title), verdict)
}

fn run_all_ways(trace: &Trace) -> Verdict {
    let ways: Vec<_> = emissions(trace)
        .iter()
        .flat_map(|emission| shardings(trace).iter().map(move |sharding| (*emission, *sharding)))
        .collect();
    // Ways that go wrong alike are reported together.
    let mut reports: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for ((emission, watermarks), sharding) in &ways {
        let faults = run_one_way(trace, *emission, *watermarks, *sharding);
        if !faults.is_empty() {
            reports.entry(faults).or_default().push(format!("{emission:?}, {sharding:?}"));
        }
    }
    if reports.is_empty() {
        return Verdict::Passed { runs: ways.len() };
    }
    let reports = reports
        .iter()
        .map(|(faults, ways)| format!("  {}\n    {}", ways.join("; "), faults.join("\n    ")));
    let reports: Vec<_> = reports.collect();
    Verdict::Failed(format!("{}\n  a wrong result would be: {}", reports.join("\n"), trace.trap))
}

/// How watermarks are emitted, and whether the case states the watermarks of that emission. A tick also looks for
/// silence, so ticks without time between them are not free of consequence where partitions may fall idle.
fn emissions(trace: &Trace) -> &'static [(Emission, bool)] {
    match (trace.timing, trace.config.emit) {
        (Timing::Periodic, _) => &[(Emission::ByTheClock, true)],
        (Timing::Any, Emit::Periodic) => {
            &[(Emission::ByTheClock, true), (Emission::ByTheClockAndAtTheEnd, false)]
        }
        (Timing::Any, Emit::EachStep) if trace.config.idle_timeout_ms.is_some() => {
            &[(Emission::AfterEachRecord, true), (Emission::ByTheClockAndAtTheEnd, false)]
        }
        (Timing::Any, Emit::EachStep) => &[
            (Emission::AfterEachRecord, true),
            (Emission::TickAfterEachRecord, true),
            (Emission::ByTheClockAndAtTheEnd, false),
        ],
        (Timing::TickAfterEachRecord, _) => {
            &[(Emission::TickAfterEachRecord, true), (Emission::AfterEachRecord, true)]
        }
    }
}

/// A revoked partition takes its windows along, so these are its own there; the shares of several partitions in a
/// float sum are added by this test, which is less exact than the core.
fn shardings(trace: &Trace) -> &'static [Sharding] {
    match trace.config.value_type {
        _ if trace.revokes() => &[Sharding::PerPartition],
        ValueType::I64 => &[Sharding::OneForAll, Sharding::PerPartition],
        ValueType::F64 => &[Sharding::OneForAll],
    }
}

/// What is wrong with the result, if anything.
fn run_one_way(
    trace: &Trace,
    emission: Emission,
    watermarks: bool,
    sharding: Sharding,
) -> Vec<String> {
    let result = panic::catch_unwind(|| {
        let outcome = case_run::run(&trace.config, &trace.steps, emission, sharding)?;
        case_check::differences(trace, &outcome, watermarks)
    });
    match result {
        Ok(Ok(faults)) => faults,
        Ok(Err(fault)) => vec![fault],
        Err(panicked) => {
            let said = panicked.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panicked.downcast_ref::<&str>().copied());
            vec![format!("panicked: {}", said.unwrap_or("without a message"))]
        }
    }
}

#[test]
fn a_wrong_result_is_reported() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("cases");
    let text = fs::read_to_string(folder.join("LT11.json")).unwrap();
    let verdict = |text: &str| judge(Path::new("LT11.json"), text).1;
    assert!(matches!(verdict(&text), Verdict::Passed { .. }));
    for (right, wrong) in [
        (r#""sum": "15""#, r#""sum": "16""#),
        (r#""kind": "late", "index": 1"#, r#""kind": "late", "index": 2"#),
        (r#""key": "a", "count": 3, "kind""#, r#""key": "b", "count": 3, "kind""#),
        (r#""late": ["r7"]"#, r#""late": []"#),
        (r#""rejected": []"#, r#""rejected": [{"id": "r7", "reason": "ts_past"}]"#),
        (r#""tombstones": []"#, r#""tombstones": ["r7"]"#),
        (r#""ignored": []"#, r#""ignored": ["r7"]"#),
        (r#""count": 3, "fired": false"#, r#""count": 2, "fired": false"#),
        (r#""count": 3, "fired": false"#, r#""count": 3, "fired": true"#),
        ("[999, 10997,", "[null, 10997,"),
        (r#""panes_late": 2"#, r#""panes_late": 1"#),
        (r#""no_panic""#, r#""no_noise""#),
        (r#""counters""#, r#""metrics": {"open_windows": 2}, "counters""#),
        (r#""counters""#, r#""metrics": {"no_such_metric": 0}, "counters""#),
        (r#""counters""#, r#""idle_between_ms": {"0": [0, 1000]}, "counters""#),
    ] {
        assert!(text.contains(right), "{right}");
        let verdict = verdict(&text.replacen(right, wrong, 1));
        assert!(matches!(verdict, Verdict::Failed(_)), "{wrong}: {verdict:?}");
    }
}

#[test]
fn base64_is_read() {
    for (text, expected) in
        [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Pz8/", "???")]
    {
        assert_eq!(case_file::base64(text).unwrap(), expected.as_bytes(), "{text}");
    }
    assert!(case_file::base64("Z g=").is_err());
}
