//! The log stays as short as what is open, and whatever of it is left gives the same shard.

use super::*;

const COUNT: [AggregateFunction; 1] = [AggregateFunction::Count];

fn key(number: usize) -> String {
    format!("key-{number:04}")
}

fn bytes(log: &[(Vec<u8>, Vec<u8>)]) -> usize {
    log.iter().map(|(key, value)| key.len() + value.len()).sum()
}

/// What reading gives, in words.
fn read(log: &[(Vec<u8>, Vec<u8>)], settings: &SubtaskSettings) -> Option<String> {
    restore(log, settings, SHARD).unwrap().as_ref().map(told)
}

#[test]
fn the_first_is_a_snapshot_and_so_is_one_of_nearly_everything() {
    let mut job = Job::new(settings(&COUNT));
    for number in 0..10 {
        job.add(1_000, &key(number), None);
    }
    assert!(job.commit().snapshot);
    job.add(1_000, &key(3), None);
    let written = job.commit();
    assert_eq!((written.sequence, written.snapshot, written.messages.len()), (2, false, 1));
    for number in 0..7 {
        job.add(1_000, &key(number), None);
    }
    assert!(job.commit().snapshot);
    // Only its offset has moved.
    job.add(-5_000, "late", None);
    job.offset += 1;
    assert!(!job.commit().snapshot);
    job.add(60_000, "late", None);
    job.tick();
    let written = job.commit();
    assert!(written.snapshot, "everything else is freed");
    assert!(written.bytes() < 200, "{}", written.bytes());
}

#[test]
fn without_a_commit_nothing_is_written_differently() {
    let mut job = Job::new(settings(&COUNT));
    job.add(1_000, "a", None);
    let (first, second) = (job.write().unwrap(), job.write().unwrap());
    assert_eq!(first.messages, second.messages);
    assert_eq!(job.writer.sequence(), 0);
    job.commit();
    assert_eq!(job.writer.sequence(), 1);
    job.writer.committed();
    assert_eq!(job.writer.sequence(), 1);
}

#[test]
fn parts_are_no_larger_than_the_topic_takes() {
    let mut job = Job::new(settings(&COUNT));
    job.max_bytes = 300;
    let window_of = |number: usize| 1_000 + 10_000 * i64::from(number.is_multiple_of(3));
    for number in 0..100 {
        job.add(window_of(number), &key(number), None);
    }
    let written = job.commit();
    assert!(written.messages.len() > 4);
    for (place, (key, value)) in (0u32..).zip(&written.messages) {
        assert!(value.len() <= 300, "{}", value.len());
        assert_eq!(*key, place.to_be_bytes());
    }
    job.max_bytes = 1;
    for number in 0..20 {
        job.add(window_of(number), &key(number), None);
    }
    assert_eq!(job.commit().messages.len(), 21, "one entry in each, then the state");
    let settings = job.settings.clone();
    let mut job = job.restart(settings);
    assert_eq!(job.subtask.open_panes(), 100);
    job.assert_quiet();
    job.add(60_000, "z", None);
    assert_eq!(job.tick().len(), 100);
}

#[test]
fn with_a_fixed_state_the_log_has_an_end() {
    let mut job = Job::new(settings(&COUNT));
    for number in 0..2_000 {
        job.add(1_000, &key(number), None);
    }
    let snapshot = job.commit().bytes();
    let bound = 3 * snapshot + (256 << 10) + 1_000;
    let (mut longest, mut snapshots, mut begin) = (0, 0, 0);
    for commit in 0..4_000usize {
        for number in 0..40 {
            job.add(1_000, &key((commit * 7 + number * 50) % 2_000), None);
        }
        let before = job.log.len();
        if job.commit().snapshot {
            snapshots += 1;
            // As records before a snapshot are deleted.
            assert_eq!(
                read(&job.log[before..], &job.settings),
                read(&job.log[begin..], &job.settings)
            );
            begin = before;
        }
        longest = longest.max(bytes(&job.log[begin..]));
    }
    assert!(longest <= bound, "{longest} bytes, {bound} are enough");
    assert!((3..20).contains(&snapshots), "{snapshots}");
    assert!(bytes(&compacted(&job.log)) <= 2 * bound);
}

/// A log of several generations, and the sequence of the last.
fn generations() -> Job {
    let mut job = Job::new(settings(&COUNT));
    job.max_bytes = 90;
    for round in 0..7 {
        for number in 0..7 {
            job.add(1_000 + round * 7_000, &key(number), None);
        }
        job.tick();
        job.commit();
        for number in 0..2 {
            job.add(1_000 + round * 7_000, &key(number), None);
            job.commit();
        }
    }
    job
}

#[test]
fn whatever_compaction_leaves_gives_the_same() {
    let job = generations();
    let whole = read(&job.log, &job.settings);
    for cut in 0..=job.log.len() {
        let (head, tail) = job.log.split_at(cut);
        let mut left = compacted(&head.to_vec());
        left.extend_from_slice(tail);
        assert_eq!(read(&left, &job.settings), whole, "compacted up to {cut}");
        // It goes on from there, and is compacted again.
        let again = compacted(&left);
        assert_eq!(read(&again, &job.settings), whole, "and once more");
    }
}

#[test]
fn what_is_incomplete_does_not_count() {
    let job = generations();
    let mut restorer = Restorer::new(&job.settings.window, &layout_of(&job.settings));
    let mut counted = Vec::new();
    for (key, value) in &job.log {
        restorer.take(Some(key), value).unwrap();
        counted.push(restorer.sequence());
    }
    assert_eq!(counted[0], None, "the first part of several");
    assert!(counted.is_sorted());
    let last = counted.iter().position(|sequence| *sequence == Some(20)).unwrap();
    let end = counted.iter().position(|sequence| *sequence == Some(21)).unwrap();
    let at_20 = read(&job.log[..=last], &job.settings);
    for cut in last + 1..end {
        assert_eq!(read(&job.log[..cut], &job.settings), at_20);
    }
}

/// Without transactions a crash may leave the first messages of a commit behind.
#[test]
fn a_commit_that_was_cut_off_is_made_again() {
    for changes in [1, 7] {
        for kept in 1..8 {
            let mut job = Job::new(settings(&COUNT));
            job.max_bytes = 60;
            for number in 0..7 {
                job.add(1_000, &key(number), None);
            }
            job.commit();
            job.add(1_000, &key(1), None);
            job.commit();
            let before = read(&job.log, &job.settings);
            for number in 0..changes {
                job.add(1_000, &key(number), None);
            }
            let written = job.write().unwrap();
            assert_eq!(written.snapshot, changes == 7);
            let messages = written.messages.len();
            if kept >= messages {
                break;
            }
            job.log.extend(written.messages.into_iter().take(kept));
            assert_eq!(read(&job.log, &job.settings), before);
            // Also where compaction comes before the restart.
            assert_eq!(read(&compacted(&job.log), &job.settings), before, "{changes} {kept}");
            let settings = job.settings.clone();
            let mut job = job.restart(settings);
            assert_eq!(job.writer.sequence(), 2);
            job.assert_quiet();
            for number in 2..7 {
                job.add(1_000, &key(number), None);
            }
            assert_eq!(job.commit().sequence, 3);
            let whole = read(&job.log, &job.settings);
            assert_eq!(read(&compacted(&job.log), &job.settings), whole);
            let settings = job.settings.clone();
            let mut job = job.restart(settings);
            job.assert_quiet();
            job.add(60_000, "z", None);
            assert_eq!(job.tick().len(), 7);
        }
    }
}

#[test]
fn a_log_whose_beginning_is_missing_is_an_error() {
    let mut job = Job::new(settings(&COUNT));
    for number in 0..9 {
        job.add(1_000, &key(number), None);
    }
    job.commit();
    for number in 0..3 {
        job.add(1_000, &key(number), None);
        job.commit();
    }
    let missing = |log: &[_]| restore(log, &job.settings, SHARD).unwrap_err();
    assert_eq!(missing(&job.log[1..]), ChangelogFault::NoSnapshot);
    let gap = [&job.log[..2], &job.log[3..]].concat();
    assert_eq!(missing(&gap), ChangelogFault::Gap { after: 2, found: 4 });
    assert!(restore(&[], &job.settings, SHARD).unwrap().is_none());
}
