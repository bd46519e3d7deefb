//! Which records a wrong sum is about: random values of 60 bits make the answer as good as certain.

use std::cmp::Ordering;

use super::history::Event;
use super::show;

/// What would explain that a pane of the `due` records has this count and sum; `late` are those of its window and key
/// that are in the late topic.
pub(super) fn explain(due: &[&Event], late: &[&Event], count: i64, sum: i128) -> String {
    let all: i128 = due.iter().map(|event| i128::from(event.value)).sum();
    let missing = i64::try_from(due.len()).unwrap() - count;
    let length = usize::try_from(missing.unsigned_abs()).unwrap();
    let difference = all - sum;
    let found = match missing.cmp(&0) {
        Ordering::Greater => set(due, length, difference)
            .map(|lost| format!("lost: {}", list(&lost)))
            .or_else(|| {
                let kept = run(due, usize::try_from(count).unwrap_or(0), sum)?;
                Some(format!("all lost but {}", list(&kept)))
            }),
        Ordering::Less => set(due, length, -difference)
            .map(|twice| format!("twice: {}", list(&twice)))
            .or_else(|| {
                let taken = set(late, length, -difference)?;
                Some(format!("taken in although late: {}", list(&taken)))
            }),
        Ordering::Equal => exchanged(due, difference),
    };
    found.unwrap_or_else(|| format!("no simple set of the records {} explains it", list(due)))
}

/// Records of this number and sum: such that follow each other, or any two.
fn set<'a>(events: &[&'a Event], length: usize, sum: i128) -> Option<Vec<&'a Event>> {
    run(events, length, sum).or_else(|| {
        let pair = |first: &&'a Event, second: &&'a Event| {
            length == 2 && value(first) + value(second) == sum
        };
        events.iter().enumerate().find_map(|(place, first)| {
            let second = events[place + 1..].iter().find(|second| pair(first, second))?;
            Some(vec![*first, *second])
        })
    })
}

/// Records of this number and sum that follow each other.
fn run<'a>(events: &[&'a Event], length: usize, sum: i128) -> Option<Vec<&'a Event>> {
    if length == 0 {
        return None;
    }
    let mut runs = events.windows(length);
    let run = runs.find(|run| run.iter().map(|event| i128::from(event.value)).sum::<i128>() == sum);
    run.map(<[_]>::to_vec)
}

/// One is missing and another one twice.
fn exchanged(events: &[&Event], difference: i128) -> Option<String> {
    events.iter().find_map(|lost| {
        let twice = events.iter().find(|twice| value(lost) - value(twice) == difference)?;
        Some(format!("lost: {}, twice: {}", show(lost.place), show(twice.place)))
    })
}

fn value(event: &Event) -> i128 {
    i128::from(event.value)
}

/// The places of records, shortened where there are many.
pub(super) fn list(events: &[&Event]) -> String {
    let places = |events: &[&Event]| {
        let places: Vec<_> = events.iter().map(|event| show(event.place)).collect();
        places.join(" ")
    };
    match events {
        [first @ .., last] if events.len() > MOST => {
            format!("{} ... {} ({})", places(&first[..MOST - 2]), show(last.place), events.len())
        }
        events => places(events),
    }
}

const MOST: usize = 12;
