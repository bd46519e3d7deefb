//! Worlds out of seeds: several processes on a broker in memory, with faults, against what the input says must come out.
//!
//! `TIDEGATE_SEEDS=5000 cargo test --test pipeline simulation` runs more of them; `TIDEGATE_SEED=17` runs one alone and
//! tells its story.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::chaos::Chaos;
use crate::memory::{Plant, State};
use crate::oracle::{self, Stage};
use crate::plan::Plan;
use crate::processes::Processes;
use crate::random::Random;
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
        match one_world(seed, None) {
            Ok(counts) => {
                for (name, count) in counts {
                    *totals.entry(name).or_default() += count;
                }
            }
            Err(cause) => failed.push((seed, cause)),
        }
    }
    let mut report =
        format!("\nsimulation: {} worlds from seeds {seeds:?}\n", seeds.end - seeds.start);
    for (name, count) in totals {
        writeln!(report, "  {name}: {count}").unwrap();
    }
    for (seed, cause) in failed.iter().take(40) {
        let cause: String = cause.chars().take(300).collect();
        writeln!(report, "  TIDEGATE_SEED={seed} fails: {cause}").unwrap();
    }
    // Not captured, unlike what `println!` writes: the figures are shown when all is well, too.
    std::io::stdout().lock().write_all(report.as_bytes()).unwrap();
    assert!(failed.is_empty(), "{} worlds failed", failed.len());
}

/// Each of these mistakes has to be found within so many worlds.
const WORLDS_PER_MISTAKE: u64 = 300;

#[test]
fn planted_mistakes_are_found() {
    let mut report = String::from("\nplanted mistakes\n");
    let mut missed = Vec::new();
    for plant in [
        Plant::EndIsLastStable,
        Plant::OnlyOffsetsThatMoved,
        Plant::ClockStays,
        Plant::LastPlusOne,
        Plant::CommitAfterRelease,
        Plant::StateKeptAfterAbort,
        Plant::AbortedStateTaken,
        Plant::PositionKeptAfterAbort,
        Plant::EndIsTheGroups,
    ] {
        let found = (0..WORLDS_PER_MISTAKE)
            .find_map(|seed| Some((seed, one_world(seed, Some(plant)).err()?)));
        match found {
            Some((seed, cause)) => {
                let cause: String = cause.chars().take(120).collect();
                writeln!(report, "  {plant:?}: found by seed {seed}: {cause}").unwrap();
            }
            None => missed.push(plant),
        }
    }
    std::io::stdout().lock().write_all(report.as_bytes()).unwrap();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Runs a world. What there was to see, counted, or what was wrong.
fn one_world(seed: u64, plant: Option<Plant>) -> Result<BTreeMap<String, u64>, String> {
    let plan = Plan::new(seed);
    let mut random = Random(seed ^ 0xC4A0_5000);
    let chaos = if plan.has_faults {
        Chaos::new(random.branch(), plan.is_restless)
    } else {
        Chaos::none(random.branch())
    };
    let processes = Processes::new(&plan, plan.broker(plant), chaos);
    let tells = env::var_os("TIDEGATE_SEED").is_some();
    processes.broker.with(|state| state.story = tells.then(Vec::new));
    let outcome = catch_unwind(AssertUnwindSafe(|| live(&plan, &processes, &mut random)));
    let story = processes.broker.with(|state| state.story.take());
    if let Some(story) = story {
        let story = story.join("\n");
        let world = format!("\n{:#?}\n{} instances\n{story}\n", plan.config, plan.instances);
        std::io::stdout().lock().write_all(world.as_bytes()).unwrap();
    }
    let view = outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned())).unwrap_or_default()
    })?;
    let state = processes.broker.0.borrow();
    let mut counts = state.injected.clone();
    for (name, count) in &*processes.counts.borrow() {
        counts.insert(format!("= {name}"), *count);
    }
    for (name, count) in figures(&plan, &state, &view) {
        counts.insert(format!("= {name}"), count as u64);
    }
    Ok(counts)
}

fn figures(plan: &Plan, state: &State, view: &View) -> [(&'static str, usize); 11] {
    let restores = || state.clients.iter().flat_map(|client| &client.restores);
    [
        ("records", plan.sent.len()),
        ("commits", state.commits.len()),
        ("aborts", state.clients.iter().map(|client| client.aborts).sum()),
        ("restores", restores().count()),
        ("entries restored", restores().map(|(_, entries)| entries).sum()),
        ("panes", view.panes.len()),
        ("late panes", view.panes.iter().filter(|pane| pane.timing == "late").count()),
        ("panes too large", view.panes.iter().filter(|pane| pane.place.is_none()).count()),
        ("late records", view.late.len()),
        ("dead letters", view.dead.len()),
        ("progress records", view.progress.len()),
    ]
}

/// The life of a world: disturbed, then calm until everything is read, then drained.
fn live(plan: &Plan, processes: &Processes, random: &mut Random) -> View {
    let broker = &processes.broker;
    let clock = || broker.with(|state| state.clock);
    for instance in 0..plan.instances {
        let at = if instance == 0 { 0 } else { random.below(20_000) };
        processes.begin(instance, Duration::from_millis(at));
    }
    processes.run_until(plan.last_arrival.max(Duration::from_secs(10)));
    let patience = clock() + Duration::from_mins(1);
    while !processes.chaos_is_over() && clock() < patience {
        processes.run_until(clock() + Duration::from_millis(500));
    }

    processes.calm_down();
    let patience = clock() + Duration::from_mins(5);
    let mut quiet = 0;
    while quiet < 10 {
        processes.run_until(clock() + Duration::from_secs(1));
        let all_is_well = everything_is_committed(plan, broker) && processes.is_settled();
        quiet = if all_is_well { quiet + 1 } else { 0 };
        assert!(
            clock() < patience,
            "not everything is read: {:?}",
            broker.with(|state| state.acknowledged.clone())
        );
    }
    let snapshots = processes.snapshots();
    oracle::check(plan, &broker.0.borrow(), Stage::Quiet(&snapshots));

    let kill = random.chance(30);
    processes.end_all(kill);
    if plan.has_faults && random.chance(8) {
        broker.with(State::forget_offsets);
    }
    let chaos = Chaos::new(random.branch(), false);
    processes.drain((plan.has_faults && random.chance(30)).then_some(chaos));
    let state = broker.0.borrow();
    let view = oracle::check(plan, &state, Stage::Drained);
    let lost = state.injected.contains_key("Commit AbortAfterCommit") || state.failed_at_the_end;
    let all_told =
        !kill && !lost && state.clients.iter().all(|client| client.alive && client.ended_well);
    oracle::check_tallies(plan, &state, &view, all_told);
    view
}

fn everything_is_committed(plan: &Plan, broker: &crate::memory::Broker) -> bool {
    let state = broker.0.borrow();
    plan.inputs.iter().all(|(id, held)| {
        let end = held.first + i64::try_from(held.slots.len()).unwrap();
        state.acknowledged.get(id).is_some_and(|committed| committed.offset == end)
    })
}
