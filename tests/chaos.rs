//! Instances and brokers fail again and again, in an order drawn from a seed, while records flow: nothing is lost and
//! nothing doubled, by the word of an oracle that knows only the topics.
//!
//! Three brokers of its own, each with a copy of everything; up to four instances over eight partitions, and more that
//! are added on the way. The run is short as it is; `TIDEGATE_CHAOS_FAULTS=200` makes it long (`tests/run chaos-long`).
//! `TIDEGATE_SEED` draws the same faults and the same records again; when exactly things happen is not drawn. A run that
//! did not see what it is there for fails too: see `evidence`. To add a kind of fault: `plan` draws it, `run` inflicts it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may panic, and says what it has measured"
)]

#[path = "chaos/evidence.rs"]
mod evidence;
#[path = "chaos/fleet.rs"]
mod fleet;
#[path = "chaos/instance.rs"]
mod instance;
#[path = "chaos/plan.rs"]
mod plan;
#[path = "chaos/random.rs"]
mod random;
#[path = "chaos/run.rs"]
mod run;
#[path = "chaos/traffic.rs"]
mod traffic;

mod support;

use plan::Plan;
use run::Run;

#[test]
fn whatever_fails_each_record_is_in_exactly_one_place() {
    let plan = Plan::from_environment();
    println!("{plan}");
    let mut run = Run::begin(&plan);
    for (nth, fault) in (1..).zip(&plan.faults) {
        run.inflict(nth, fault);
    }
    run.finish();
}

#[test]
fn a_seed_draws_the_same_again_and_something_of_everything() {
    for seed in 0..50 {
        let plan = Plan::drawn(seed, 120);
        assert_eq!(format!("{:?}", Plan::drawn(seed, 120)), format!("{plan:?}"));
        assert_eq!(plan.faults.len(), 120);
        for of_block in plan.faults.chunks(plan::BLOCK) {
            for kind in plan::OF_EACH_BLOCK {
                assert!(of_block.iter().any(|fault| fault.kind == kind), "{seed}: no {kind:?}");
            }
        }
    }
}
