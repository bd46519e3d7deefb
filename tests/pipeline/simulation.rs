//! Worlds out of seeds: the whole pipeline on a broker in memory, with faults, against what the input says must come
//! out.
//!
//! `TIDEGATE_SEEDS=5000 cargo test --test pipeline` runs more of them, `TIDEGATE_SEED=17` one alone.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate::pipeline::Pipeline;

use crate::memory::Broker;
use crate::oracle;
use crate::plan::Plan;
use crate::view::View;

#[test]
fn every_record_ends_in_one_place_whatever_fails() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("TIDEGATE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDEGATE_SEEDS").unwrap_or(300),
    };
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds.clone() {
        match catch_unwind(AssertUnwindSafe(|| one_world(seed))) {
            Ok(counts) => {
                for (name, count) in counts {
                    *totals.entry(name).or_default() += count;
                }
            }
            Err(_) => failed.push(seed),
        }
    }
    let mut report = format!("\nsimulation: seeds {seeds:?}, of which failed {failed:?}\n");
    for (name, count) in totals {
        writeln!(report, "  {name}: {count}").unwrap();
    }
    // Not captured, unlike what `println!` writes: the figures are shown when all is well, too.
    std::io::stdout().lock().write_all(report.as_bytes()).unwrap();
    assert!(failed.is_empty(), "TIDEGATE_SEED={} shows the first of {failed:?}", failed[0]);
}

/// Runs a world without faults and with them. What there was to see, counted.
fn one_world(seed: u64) -> BTreeMap<String, u64> {
    let plan = Plan::new(seed);
    let (quiet, _) = run(&plan, false);
    let (faulty, broker) = run(&plan, true);
    let state = broker.0.borrow();
    let all_there = state.phases.len() > 1 && !state.failed_at_the_end;
    let same_input = state.offsets == quiet.1;
    if plan.timeless && all_there && same_input {
        assert_eq!(rows(&quiet.0), rows(&faulty.0), "the faults show");
    }
    let mut counts = state.injected.clone();
    for (name, count) in [
        ("records", plan.sent.len()),
        ("commits", state.commits.len()),
        ("panes", faulty.0.panes.len()),
        ("late panes", faulty.0.panes.iter().filter(|pane| pane.timing == "late").count()),
        ("panes too large", faulty.0.panes.iter().filter(|pane| pane.place.is_none()).count()),
        ("late records", faulty.0.late.len()),
        ("dead letters", faulty.0.dead.len()),
        ("progress records", faulty.0.progress.len()),
        ("worlds compared with their quiet twin", usize::from(plan.timeless && all_there)),
        ("worlds that stopped while something failed", usize::from(state.failed_at_the_end)),
    ] {
        counts.insert(format!("= {name}"), count as u64);
    }
    counts
}

type Seen = (View, BTreeMap<tidegate::event_time::PartitionId, i64>);

fn run(plan: &Plan, with_faults: bool) -> (Seen, Broker) {
    let broker = plan.broker(with_faults);
    let watch = broker.with(|state| state.watch.clone());
    let outcome = Pipeline::new(
        &plan.config,
        broker.clone(),
        broker.clone(),
        broker.clone(),
        broker.clone(),
        watch,
        plan.until,
    )
    .run();
    let state = broker.0.borrow();
    // A stop that could not wait for the brokers may say so.
    assert!(outcome.is_ok() || state.failed_at_the_end, "{outcome:?}");
    let seen = (oracle::check(plan, &state), state.offsets.clone());
    drop(state);
    (seen, broker)
}

/// What must not depend on faults: the panes without their places, and which records were late.
fn rows(view: &View) -> (Vec<crate::view::PaneRow>, Vec<(String, i32, i64)>) {
    let mut panes = view.panes.clone();
    for pane in &mut panes {
        pane.place = None;
    }
    panes.sort();
    let mut late: Vec<_> =
        view.late.iter().map(|late| (late.topic.clone(), late.partition, late.offset)).collect();
    late.sort();
    (panes, late)
}
