//! The scenarios of `tests/cases`: a broker, instances of the service, what is done to them, and what must come of it.
//!
//! `tests/cases/FORMAT.md` describes the files. Each of them that can be run has a test here, so that a report names it;
//! a scenario that is in the folder and not here fails the last test, which also runs those of another folder:
//! `TIDEGATE_CASES=FOLDER tests/run kafka`.
//!
//! The cases differ from the service in names only, see `names.rs`. `consumed` is what has been read, and may not be
//! committed yet; a scrape waits until it is, since the service counts what is committed. Where a case wants instances to
//! share the work, the key is partial (`key.partial`); where it only allows it, it is run without that, too, and the
//! second instance stands by.

#[path = "scenario/act.rs"]
mod act;
#[path = "scenario/check.rs"]
mod check;
#[path = "scenario/config.rs"]
mod config;
#[path = "scenario/file.rs"]
mod file;
#[path = "scenario/names.rs"]
mod names;
#[path = "scenario/outputs.rs"]
mod outputs;
#[path = "scenario/wait.rs"]
mod wait;
#[path = "scenario/world.rs"]
mod world;
#[path = "scenario/written.rs"]
mod written;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs, io, panic, thread};

use serde_json::Value;
use tidegate::clock::Clock;

use crate::case_scenario::not_run;
use file::Scenario;
use world::World;

/// A test for each of these cases; the name says what it is about.
macro_rules! cases {
    ($($name:ident $id:literal)*) => {
        const CASES: &[&str] = &[$($id),*];
        $(
            #[test]
            fn $name() {
                run_own($id, false);
            }
        )*
    };
}

cases! {
    js17_repeated_headers_keep_their_number_and_order "JS17"
    js18_a_result_too_large_for_its_topic_costs_that_one_result "JS18"
    kc01_transaction_markers_at_the_end_leave_no_lag "KC01"
    kc04_gaps_in_the_offsets_neither_stop_nor_delay_anything "KC04"
    kc06_records_deleted_before_they_were_read_are_counted "KC06"
    kc08_records_of_a_partition_not_discovered_yet_are_counted "KC08"
    kc10_a_topic_that_was_created_again_is_never_passed_over_in_silence "KC10"
    kc12_killed_while_reading_and_every_record_counts_once "KC12"
    kc15_results_of_the_empty_key_are_in_one_partition "KC15"
    mt04_an_instance_that_lost_a_partition_exports_it_no_more "MT04"
    mt08_the_number_of_series_does_not_depend_on_the_number_of_keys "MT08"
    mt11_a_scrape_changes_nothing "MT11"
    mt12_not_ready_before_the_first_assignment_and_alive_all_the_time "MT12"
    op01_terminated_with_open_windows_and_nothing_is_lost "OP01"
    op05_terminated_while_the_broker_is_away_in_bounded_time "OP05"
    op06_fifty_starts_and_stops_and_none_hangs "OP06"
    op09_halted_for_a_minute_and_none_of_what_waited_is_late "OP09"
    rs05_killed_after_a_rebalance_and_every_record_is_in_one_pane "RS05"
    ts04_a_refused_record_at_the_end_is_not_refused_again "TS04"
    ts09_results_of_old_windows_outlive_the_next_sweep "TS09"
    tx01_a_transaction_that_timed_out_in_a_halted_process_needs_nobody "TX01"
    tx04_killed_in_a_long_transaction_and_the_next_start_is_not_held_up "TX04"
    tx05_quiet_for_longer_than_the_broker_keeps_the_transactional_id "TX05"
    tx09_rebalances_in_the_middle_of_transactions "TX09"
    tx11_records_of_an_aborted_transaction_do_not_count "TX11"
    tx12_the_committed_offset_is_the_next_one_to_read "TX12"
}

#[test]
fn rs05_where_the_second_instance_stands_by() {
    run_own("RS05", true);
}

#[test]
fn tx09_where_the_second_instance_stands_by() {
    run_own("TX09", true);
}

/// With `TIDEGATE_CASES`, the scenarios of that folder are run here.
#[test]
fn every_scenario_is_run_or_says_why_not() {
    let ours = folder();
    let folder = env::var_os("TIDEGATE_CASES").map_or_else(|| ours.clone(), PathBuf::from);
    let is_ours = fs::canonicalize(&folder).unwrap() == fs::canonicalize(&ours).unwrap();
    let (mut waiting, mut not_run_here, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for (file, case) in scenarios(&folder) {
        let id = case["id"].as_str().unwrap_or_default().to_owned();
        match not_run(&case) {
            Some(reason) if is_ours && CASES.contains(&id.as_str()) => {
                faults.push(format!("{id} has a test, but {reason}"));
            }
            Some(reason) => not_run_here.push(format!("{id}: {reason}")),
            None if is_ours && !CASES.contains(&id.as_str()) => {
                faults.push(format!("{id} has no test"));
            }
            None if is_ours => {}
            None => waiting.push(file),
        }
    }
    let ran = waiting.len();
    faults.extend(run_all(waiting));
    let summary = format!(
        "scenarios of {}\nnot run: {}\n  {}\nrun by this test: {ran}, failed: {}",
        folder.display(),
        not_run_here.len(),
        not_run_here.join("\n  "),
        faults.len()
    );
    // Not captured, unlike what `println!` writes.
    writeln!(io::stdout().lock(), "\n{summary}").unwrap();
    assert!(faults.is_empty(), "\n{}\n{summary}", faults.join("\n"));
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("cases")
}

fn scenarios(folder: &Path) -> Vec<(PathBuf, Value)> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "json"));
    let mut cases: Vec<_> = files
        .map(|file| {
            let case: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            (file, case)
        })
        .filter(|(_, case)| case["type"] == "scenario")
        .collect();
    cases.sort_by(|(file, _), (other, _)| file.cmp(other));
    cases
}

/// Runs them, some at a time, and tells what went wrong.
fn run_all(waiting: Vec<PathBuf>) -> Vec<String> {
    let (waiting, faults) = (Mutex::new(waiting), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let Some(file) = waiting.lock().unwrap().pop() else { return };
            let both = load(&file).is_ok_and(|scenario| scenario.allows_shares());
            for standby in [false, true].into_iter().take(if both { 2 } else { 1 }) {
                let result = panic::catch_unwind(|| run(&file, standby));
                let result = result.unwrap_or_else(|_| Err("panicked".to_owned()));
                if let Err(fault) = result {
                    faults.lock().unwrap().push(format!("{}: {fault}", file.display()));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(work);
        }
    });
    faults.into_inner().unwrap()
}

fn run_own(id: &str, standby: bool) {
    if let Err(fault) = run(&folder().join(format!("{id}.json")), standby) {
        panic!("{fault}");
    }
}

fn load(file: &Path) -> Result<Scenario, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|fault| fault.to_string())
}

/// Runs a case; `standby`: without shares, although it allows them.
fn run(file: &Path, standby: bool) -> Result<(), String> {
    let scenario = load(file)?;
    let way = if standby { "-standby" } else { "" };
    let prefix = format!("case-{}{way}", scenario.id.to_lowercase());
    let clock = Clock::start();
    let partial = scenario.wants_shares() || (scenario.allows_shares() && !standby);
    let result = World::new(&scenario, &prefix, partial).and_then(|mut world| {
        let acted = world.begin().and_then(|()| world.act(&scenario.actions));
        let faults = acted.and_then(|()| check::check(&mut world));
        let fault = match faults {
            Ok(faults) if faults.is_empty() => return Ok(()),
            Ok(faults) => faults.join("\n  "),
            Err(fault) => fault,
        };
        Err(format!("{fault}{}", world.logs()))
    });
    println!("{}{way}: {:.1} s", scenario.id, clock.monotonic().0.as_secs_f64());
    result.map_err(|fault| {
        let Scenario { id, title, trap, .. } = &scenario;
        format!("{id} {title}\n  {fault}\n  a wrong result would come of: {trap}")
    })
}

const AT_A_TIME: usize = 4;
