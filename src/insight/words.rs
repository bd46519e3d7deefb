//! Times, durations and counts as people read them. Times of day are UTC.

use std::time::Duration;

use crate::event_time::{EventTime, PartitionId, TimeWindow};

/// The time of day to a tenth of a second, cut and not rounded; with its date unless it is within half a day of `wall`.
pub fn time(time: EventTime, wall: EventTime) -> String {
    let format = if is_near(time, wall) { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(timestamp) => {
            format!("{}.{}", timestamp.strftime(format), time.0.rem_euclid(1_000) / 100)
        }
        Err(_) => format!("{time} ms"),
    }
}

/// As [`time`], but a time without its date or a date without its time: ten columns for any year of four digits.
pub fn short_time(time: EventTime, wall: EventTime) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(timestamp) if !is_near(time, wall) => timestamp.strftime("%Y-%m-%d").to_string(),
        Ok(_) | Err(_) => self::time(time, wall),
    }
}

/// A window's bounds, to the second, or to the millisecond if they are not whole seconds.
pub fn window(window: TimeWindow, wall: EventTime) -> String {
    let bound = |time: EventTime, with_date: bool| {
        let format = match (with_date, time.0.rem_euclid(1_000) == 0) {
            (false, true) => "%H:%M:%S",
            (false, false) => "%H:%M:%S%.3f",
            (true, true) => "%Y-%m-%d %H:%M:%S",
            (true, false) => "%Y-%m-%d %H:%M:%S%.3f",
        };
        match jiff::Timestamp::from_millisecond(time.0) {
            Ok(timestamp) => timestamp.strftime(format).to_string(),
            Err(_) => format!("{time} ms"),
        }
    };
    let far = !is_near(window.start, wall);
    let days = window.start.behind(window.end) > DAY;
    format!("{} - {}", bound(window.start, far), bound(window.end, far && days))
}

/// A duration in one or two units: `0.3 s`, `59.9 s`, `2 min 5 s`, `3 h 0 min`, `2 d 5 h`; cut and not rounded.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    if minutes == 0 {
        format!("{seconds}.{} s", duration.subsec_millis() / 100)
    } else if hours == 0 {
        format!("{minutes} min {} s", seconds % 60)
    } else if days == 0 {
        format!("{hours} h {} min", minutes % 60)
    } else {
        format!("{days} d {} h", hours % 24)
    }
}

/// What is left of a duration, in whole seconds and rounded up, so that `0 s` means now.
pub fn countdown(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    if seconds < 60 { format!("{seconds} s") } else { span(Duration::from_secs(seconds)) }
}

/// Where a time is as seen from now: `4.8 s behind`, `1.2 s ahead of`.
pub fn distance(time: EventTime, wall: EventTime) -> String {
    if time > wall {
        format!("{} ahead of", span(wall.behind(time)))
    } else {
        format!("{} behind", span(time.behind(wall)))
    }
}

/// A count with its thousands set apart.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 partition`, `2 partitions`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `orders/7`: the topic by its name, the partition by its number.
pub fn partition(id: PartitionId, topics: &[String]) -> String {
    match topics.get(usize::from(id.topic)) {
        Some(topic) => format!("{topic}/{}", id.partition),
        None => format!("topic {}/{}", id.topic, id.partition),
    }
}

fn is_near(time: EventTime, wall: EventTime) -> bool {
    time.behind(wall).max(wall.behind(time)) < DAY / 2
}

const DAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: EventTime = EventTime(1_800_014_400_000);

    #[test]
    fn times_near_the_present_have_no_date_and_others_do() {
        assert_eq!(time(NOON, NOON), "12:00:00.0");
        assert_eq!(time(EventTime(NOON.0 - 51), NOON), "11:59:59.9");
        assert_eq!(time(EventTime(0), NOON), "1970-01-01 00:00:00.0");
        assert_eq!(time(EventTime(-1), NOON), "1969-12-31 23:59:59.9");
        assert_eq!(time(EventTime::MAX, NOON), "9223372036854775807 ms");
        assert_eq!(short_time(NOON, NOON), "12:00:00.0");
        assert_eq!(short_time(EventTime(0), NOON), "1970-01-01");
    }

    #[test]
    fn windows_are_shown_as_finely_as_they_are_cut() {
        let of = |start: i64, end: i64| {
            window(TimeWindow { start: EventTime(start), end: EventTime(end) }, NOON)
        };
        assert_eq!(of(NOON.0, NOON.0 + 10_000), "12:00:00 - 12:00:10");
        assert_eq!(of(NOON.0, NOON.0 + 250), "12:00:00 - 12:00:00.250");
        assert_eq!(of(0, 3_600_000), "1970-01-01 00:00:00 - 01:00:00");
        assert_eq!(of(0, 172_800_000), "1970-01-01 00:00:00 - 1970-01-03 00:00:00");
    }

    #[test]
    fn durations_have_one_or_two_units() {
        let of = |ms| span(Duration::from_millis(ms));
        assert_eq!(of(349), "0.3 s");
        assert_eq!(of(59_999), "59.9 s");
        assert_eq!(of(125_000), "2 min 5 s");
        assert_eq!(of(10_800_000), "3 h 0 min");
        assert_eq!(of(190_800_000), "2 d 5 h");
        assert_eq!(countdown(Duration::from_millis(28_001)), "29 s");
        assert_eq!(countdown(Duration::from_millis(59_001)), "1 min 0 s");
        assert_eq!(countdown(Duration::ZERO), "0 s");
    }

    #[test]
    fn counts_have_their_thousands_set_apart() {
        let counts = [0, 999, 1_000, 12_345, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn a_partition_without_a_name_is_told_by_numbers() {
        let id = PartitionId { topic: 1, partition: 7 };
        assert_eq!(partition(id, &["a".to_owned(), "orders".to_owned()]), "orders/7");
        assert_eq!(partition(id, &[]), "topic 1/7");
    }
}
