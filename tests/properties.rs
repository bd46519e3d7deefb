//! What holds for every input: random settings and scripts, checked for rules and against a slow and simple model.
//!
//! A property is a sentence about all worlds of `properties/world.rs`; to add one, write a test over [`worlds`] or over
//! values of your own. A failing input is printed and kept in `proptest-regressions/properties.txt`, which is committed, and
//! comes first ever after. `PROPTEST_CASES=5000 cargo test --test properties` looks longer.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use naive::Rules;
use world::{Emission, Reading, World, play, rules, worlds};

#[path = "properties/ends_of_time.rs"]
mod ends_of_time;
#[path = "support/facts.rs"]
mod facts;
#[path = "properties/found.rs"]
mod found;
#[path = "properties/multiplexer.rs"]
mod multiplexer;
#[path = "support/naive.rs"]
mod naive;
#[path = "properties/sums.rs"]
mod sums;
#[path = "properties/world.rs"]
mod world;

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "proptest-regressions/properties.txt",
        ))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_subtask_does_what_the_model_does(world in worlds(rules())) {
        play(&world, true);
    }

    #[test]
    fn the_same_input_in_the_same_order_gives_the_same_output(world in worlds(rules())) {
        assert_eq!(play(&world, false), play(&world, false));
    }

    #[test]
    fn a_window_fires_on_time_once_for_a_key_and_its_panes_count_up(world in worlds(rules())) {
        let mut next = BTreeMap::new();
        for pane in play(&world, false).panes {
            let next = next.entry((pane.shard, pane.start, pane.key.clone())).or_insert(0);
            assert_eq!(pane.index, *next, "{pane:?}");
            assert!(pane.timing == "late" || pane.index == 0, "on time again: {pane:?}");
            *next += 1;
        }
    }

    #[test]
    fn every_record_is_in_its_last_pane_or_late_or_refused(
        world in worlds(rules().prop_map(|rules| Rules { discarding: false, ..rules }))
    ) {
        let transcript = play(&world, false);
        let mut last = BTreeMap::new();
        for pane in &transcript.panes {
            last.insert((pane.shard, pane.start, pane.key.clone()), &pane.aggregates);
        }
        assert_eq!(transcript.judged.values().sum::<usize>(), transcript.records);
        assert_eq!(last.len(), transcript.windowed.len(), "no window is left, none is invented");
        for (window, values) in &transcript.windowed {
            assert_eq!(last[window], &aggregates(values), "{window:?}");
        }
    }

    #[test]
    fn every_record_is_in_exactly_one_discarding_pane_or_late_or_refused(
        world in worlds(rules().prop_map(|rules| Rules { discarding: true, ..rules }))
    ) {
        let transcript = play(&world, false);
        let mut totals = BTreeMap::new();
        for pane in &transcript.panes {
            let total = totals.entry((pane.shard, pane.start, pane.key.clone())).or_insert((0, 0));
            total.0 += pane.aggregates[0].unwrap_or(0);
            total.1 += pane.aggregates[1].unwrap_or(0);
        }
        assert_eq!(totals.len(), transcript.windowed.len());
        for (window, values) in &transcript.windowed {
            let counted = aggregates(values);
            assert_eq!(totals[window], (counted[0].unwrap_or(0), counted[1].unwrap_or(0)));
        }
    }

    #[test]
    fn without_idleness_emitting_for_the_records_partition_alone_fires_the_same_panes(
        world in worlds(rules().prop_map(|mut rules| {
            rules.topics.iter_mut().for_each(|topic| topic.1 = None);
            rules
        }))
    ) {
        let with = |emission| play(&World { emission, ..world.clone() }, false).panes;
        assert_eq!(with(Emission::OfTheRecordsPartition), with(Emission::OfAllAfterEachRecord));
    }

    #[test]
    fn outputs_that_wait_or_are_read_in_part_are_not_lost(world in worlds(rules())) {
        let world = world.keeping_states();
        let at_once = world.contents(Reading::AtOnce);
        assert_eq!(at_once, world.contents(Reading::BeforeTheNextRecord));
        assert_eq!(at_once, world.contents(Reading::InPart));
    }
}

/// Count, sum, least and greatest.
fn aggregates(values: &[Option<i64>]) -> Vec<Option<i128>> {
    let values: Vec<i128> = values.iter().flatten().copied().map(i128::from).collect();
    let sum = (!values.is_empty()).then(|| values.iter().sum());
    vec![
        i128::try_from(values.len()).ok(),
        sum,
        values.iter().min().copied(),
        values.iter().max().copied(),
    ]
}
