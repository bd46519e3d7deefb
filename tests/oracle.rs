//! The oracle that judges the tests against a real broker, judged itself: it finds nothing in what is right, and
//! everything that is put wrong.
//!
//! [`World::right`] makes the topics that a service would leave whose clocks follow every record at once. To add a
//! test: put one thing wrong, and say what the oracle has to say.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

#[path = "support/oracle/mod.rs"]
mod oracle;
#[path = "support/record.rs"]
mod record;
#[path = "oracle/world.rs"]
mod world;

use oracle::{Figures, KeyOf, judge};
use world::{BASE, Pane, World, header, rules, set_header};

/// Each objection has its fragment, and there are no others.
fn check(world: &World, fragments: &[&str]) {
    let verdict = judge(&world.rules, &world.topics());
    let matches = verdict.objections.len() == fragments.len()
        && verdict.objections.iter().zip(fragments).all(|(said, held)| said.contains(held));
    assert!(matches, "to be said: {fragments:#?}\nsaid: {}", verdict.text());
}

/// What is objected to first, where it has consequences.
fn first(world: &World, fragment: &str) {
    let verdict = judge(&world.rules, &world.topics());
    assert!(verdict.objections[0].contains(fragment), "{fragment}\nsaid: {}", verdict.text());
}

/// The place of the last pane of a row with this many records or more, and those that it holds.
fn pane(world: &World, least: usize) -> (usize, Vec<(i32, i64, i64)>) {
    let (at, row) = world
        .panes
        .iter()
        .enumerate()
        .find(|(_, pane)| pane.count >= i64::try_from(least).unwrap() && world.is_last(pane))
        .map(|(at, pane)| (at, (pane.partition, pane.start, pane.key.clone())))
        .unwrap();
    (at, world.accepted[&row].clone())
}

fn place((partition, offset, _): (i32, i64, i64)) -> String {
    format!("{partition}@{offset}")
}

#[test]
fn what_is_right_is_found_right_with_and_without_lateness() {
    for allowed_lateness in [0, 15_000] {
        for key in [KeyOf::Message, KeyOf::Field("k")] {
            let world = World::right(oracle::Rules { allowed_lateness, key, ..rules() });
            let Figures { records, in_panes, open, late, joined, dead, tombstones, .. } =
                judge(&world.rules, &world.topics()).figures();
            assert_eq!(in_panes + open + late + dead + tombstones, records);
            // The two closing records are in windows that stay open.
            assert_eq!((records, open, joined), (802, 2, 0));
            assert!(late > 5 && dead > 10 && tombstones > 10, "{late} {dead} {tombstones}");
            let late_panes = world.panes.iter().filter(|pane| pane.timing == "late").count();
            assert_eq!(late_panes > 0, allowed_lateness > 0);
        }
    }
}

#[test]
fn a_record_that_is_lost_is_named() {
    let mut world = World::right(rules());
    let (at, held) = pane(&world, 5);
    world.panes[at].count -= 1;
    world.panes[at].sum -= i128::from(held[2].2);
    check(&world, &[&format!("lost: {}", place(held[2]))]);
}

#[test]
fn records_that_are_lost_with_a_process_are_named() {
    let mut world = World::right(rules());
    let (at, held) = pane(&world, 6);
    let lost: i128 = held[..4].iter().map(|(_, _, value)| i128::from(*value)).sum();
    world.panes[at].count -= 4;
    world.panes[at].sum -= lost;
    let named: Vec<_> = held[..4].iter().copied().map(place).collect();
    check(&world, &[&format!("lost: {}", named.join(" "))]);
}

#[test]
fn records_of_which_only_some_in_between_are_left_are_named() {
    let mut world = World::right(rules());
    let (at, held) = pane(&world, 6);
    world.panes[at].count = 2;
    world.panes[at].sum = held[3..5].iter().map(|(_, _, value)| i128::from(*value)).sum();
    check(&world, &[&format!("all lost but {} {}", place(held[3]), place(held[4]))]);
}

#[test]
fn a_record_that_is_counted_twice_is_named() {
    let mut world = World::right(rules());
    let (at, held) = pane(&world, 5);
    world.panes[at].count += 1;
    world.panes[at].sum += i128::from(held[1].2);
    check(&world, &[&format!("twice: {}", place(held[1]))]);
}

#[test]
fn one_lost_and_another_twice_do_not_make_up_for_each_other() {
    let mut world = World::right(rules());
    let (at, held) = pane(&world, 5);
    world.panes[at].sum += i128::from(held[1].2) - i128::from(held[4].2);
    check(&world, &[&format!("lost: {}, twice: {}", place(held[4]), place(held[1]))]);
}

#[test]
fn a_sum_that_nothing_explains_is_still_wrong() {
    let mut world = World::right(rules());
    let (at, _) = pane(&world, 5);
    world.panes[at].sum += 1;
    check(&world, &["no simple set"]);
}

#[test]
fn a_late_record_that_is_in_its_pane_too_is_named() {
    let mut world = World::right(rules());
    let row_of = |late: &record::Record| {
        (header(late, "window.start"), String::from_utf8(late.key.clone().unwrap()).unwrap())
    };
    let has_row =
        |late: &&record::Record, pane: &Pane| row_of(late) == (pane.start, pane.key.clone());
    let late = world.late.iter().find(|late| world.panes.iter().any(|pane| has_row(late, pane)));
    let late = late.unwrap().clone();
    let pane = world.panes.iter_mut().find(|pane| has_row(&&late, pane)).unwrap();
    pane.count += 1;
    pane.sum += i128::from(late.json()["v"].as_i64().unwrap());
    let at = format!("{}@{}", header(&late, "partition"), header(&late, "offset"));
    check(&world, &[&format!("taken in although late: {at}")]);
}

#[test]
fn a_pane_that_is_missing_twice_or_of_nothing_is_found() {
    let mut world = World::right(rules());
    let removed = world.panes.remove(10);
    let doubled = world.panes[20].clone();
    world.panes.insert(21, doubled.clone());
    world.panes.push(Pane { start: BASE - 60_000, ..removed.clone() });
    let named = |pane: &Pane| format!("window {} of key {}", pane.start, pane.key);
    let mut expected = [
        format!("{} in partition {}: no pane", named(&removed), removed.partition),
        format!("{} in partition {}: panes [0, 0]", named(&doubled), doubled.partition),
    ];
    expected.sort_by_key(|text| text.split_once("partition ").unwrap().1.to_owned());
    let went_back = "the clock went back";
    check(&world, &[went_back, &expected[0], &expected[1], "no record belongs there"]);
}

#[test]
fn panes_within_the_lateness_follow_each_other_one_record_at_a_time() {
    let right = || World::right(oracle::Rules { allowed_lateness: 15_000, ..rules() });
    // A row with three panes or more.
    let third = right().panes.iter().position(|pane| pane.index == 2).unwrap();
    let row = |world: &World, index: usize| {
        let Pane { start, key, .. } = world.panes[third].clone();
        let of_row = |pane: &Pane| pane.start == start && pane.key == key && pane.index == index;
        world.panes.iter().position(of_row).unwrap()
    };

    let mut world = right();
    let second = row(&world, 1);
    world.panes.remove(second);
    check(&world, &["panes [0, 2"]);

    let mut world = right();
    let first = row(&world, 0);
    world.panes[first].sum += 7;
    check(&world, &["have the sum"]);

    let mut world = right();
    let second = row(&world, 1);
    world.panes[second].timing = "on_time";
    check(&world, &["pane 1 is on_time"]);

    let mut world = right();
    let second = row(&world, 1);
    world.panes[second].clock = world.panes[second].start + 10_000 + 15_000;
    check(&world, &["the clock went back", "past its lateness"]);
}

#[test]
fn a_clock_is_not_ahead_of_its_partition() {
    let mut world = World::right(rules());
    let last = world.panes.iter().rposition(|pane| pane.partition == 1).unwrap();
    world.panes[last].clock = BASE + 90_000_000;
    check(&world, &["its partition had come to"]);
    // An added partition begins at the clock it finds, once.
    world.rules.added.insert(1);
    check(&world, &[]);
    let before = world.panes[..last].iter().rposition(|pane| pane.partition == 1).unwrap();
    world.panes[before].clock = BASE + 80_000_000;
    check(&world, &["began at several clocks"]);
}

#[test]
fn a_pane_fires_when_its_clock_has_passed_the_window() {
    let mut world = World::right(rules());
    world.panes[0].clock = world.panes[0].start + 9_998;
    check(&world, &["fired before its clock had come to"]);
}

#[test]
fn a_record_that_was_in_time_is_not_late() {
    let mut world = World::right(rules());
    // An accepted one, said to be late by a clock that its partition had not come to yet.
    let (at, held) = pane(&world, 5);
    let (partition, offset, value) = held[2];
    let start = world.panes[at].start;
    world.panes[at].count -= 1;
    world.panes[at].sum -= i128::from(value);
    world.be_late(partition, offset, start + 9_999);
    first(&world, &format!("{partition}@{offset} was judged by the clock {}", start + 9_999));
    // And by one that has not even passed its window.
    let wrong = world.late.last_mut().unwrap();
    let behind = header(wrong, "lateness.ms") - 1;
    set_header(wrong, "watermark", &(start + 9_998));
    set_header(wrong, "lateness.ms", &behind);
    first(&world, &format!("{partition}@{offset} was in time"));
}

#[test]
fn what_was_closed_for_one_record_is_closed_for_the_next() {
    let mut world = World::right(rules());
    // Of two that were late the second one is taken in after all, as if the clock had gone back.
    let place = |record: &record::Record| (header(record, "partition"), header(record, "offset"));
    let taken = world.late.iter().position(|late| {
        let (partition, offset) = place(late);
        world.late.iter().any(|before| {
            let (of, at) = place(before);
            of == partition
                && at < offset
                && header(before, "watermark") >= header(late, "window.end") - 1
        })
    });
    let taken = world.late.remove(taken.expect("two such late records"));
    first(&world, &format!("{}@{} is not late", place(&taken).0, place(&taken).1));
}

#[test]
fn headers_of_late_records_say_what_is_so() {
    let broken = |change: &dyn Fn(&mut record::Record), said: &str| {
        let mut world = World::right(rules());
        change(&mut world.late[1]);
        check(&world, &[said]);
    };
    broken(&|late| set_header(late, "window.start", &5), "is in the window");
    broken(&|late| set_header(late, "lateness.ms", &5), "behind the clock");
    broken(&|late| set_header(late, "cause", &"joined"), "said to be joined, which it cannot be");
    broken(&|late| late.payload = Some(b"{}".to_vec()), "had another payload");
    broken(&|late| late.key = None, "had another key");
    broken(&|late| late.timestamp = Some(7), "had another timestamp");
}

#[test]
fn dead_letters_are_the_broken_records_and_no_others() {
    let mut world = World::right(rules());
    let gone = world.dead.remove(3);
    let at = format!("{}@{}", header(&gone, "partition"), header(&gone, "offset"));
    check(&world, &[&format!("{at} is no dead letter (bad_json)")]);
    set_header(&mut world.dead[5], "reason", &"ts_missing");
    check(&world, &["ts_missing, and it is bad_json", "is no dead letter"]);

    let mut world = World::right(rules());
    let twice = world.dead[2].clone();
    world.dead.push(twice);
    check(&world, &["is there a second time"]);

    // A tombstone is nowhere.
    let mut world = World::right(rules());
    let tombstone = world.input.iter().position(|record| record.payload.is_none()).unwrap();
    world.be_dead(tombstone);
    check(&world, &["does not belong here"]);
}

#[test]
fn of_many_objections_of_one_kind_some_are_shown() {
    let mut world = World::right(rules());
    for pane in &mut world.panes {
        pane.sum += 1;
    }
    let gone = world.dead.remove(3);
    let text = judge(&world.rules, &world.topics()).text();
    let at = format!("{}@{}", header(&gone, "partition"), header(&gone, "offset"));
    assert!(text.contains(&format!("{at} is no dead letter")), "{text}");
    assert!(text.contains("more like these") && text.lines().count() < 100, "{text}");
}
