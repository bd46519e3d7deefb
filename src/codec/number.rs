//! Numbers and times out of the raw text of a JSON value, exactly.

use jiff::civil::{Date, DateTime};

use crate::config::TimestampUnit;
use crate::event_time::EventTime;

/// A JSON number, as far as its text tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    /// An integer with more digits than 128 bits hold.
    Huge,
    /// With a fraction or an exponent; may be infinite where the text is beyond the range of f64.
    Float(f64),
}

/// Reads the text of a JSON number; `None` for anything else.
pub(super) fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    if text.contains(['.', 'e', 'E']) {
        return text.parse().ok().map(Number::Float);
    }
    Some(text.parse().map_or(Number::Huge, Number::Integer))
}

/// Why a text is no timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimestampFault {
    /// Not a number, or not a date.
    Invalid(&'static str),
    /// Beyond 64 bits of milliseconds.
    OutOfRange,
}

/// A number in its unit as milliseconds: seconds are multiplied, finer units are cut towards the past.
pub(super) fn numeric_timestamp(
    text: &str,
    unit: TimestampUnit,
) -> Result<EventTime, TimestampFault> {
    let number = match (number(text), unit) {
        (Some(Number::Integer(integer)), _) => integer,
        (Some(Number::Float(_)), TimestampUnit::Seconds) => return decimal_seconds(text),
        (Some(Number::Float(_)), _) => return Err(TimestampFault::Invalid("is no whole number")),
        (Some(Number::Huge), _) => return Err(TimestampFault::OutOfRange),
        (None, _) => return Err(TimestampFault::Invalid("is no number")),
    };
    let millis = match unit {
        TimestampUnit::Seconds => number.checked_mul(1_000),
        TimestampUnit::Milliseconds | TimestampUnit::Rfc3339 => Some(number),
        TimestampUnit::Microseconds => Some(number.div_euclid(1_000)),
        TimestampUnit::Nanoseconds => Some(number.div_euclid(1_000_000)),
    };
    millis
        .and_then(|millis| i64::try_from(millis).ok())
        .map(EventTime)
        .ok_or(TimestampFault::OutOfRange)
}

/// Seconds with a decimal fraction, without going through a float.
fn decimal_seconds(text: &str) -> Result<EventTime, TimestampFault> {
    const EXPONENT: TimestampFault = TimestampFault::Invalid("has an exponent");
    let (whole, fraction) = text.split_once('.').ok_or(EXPONENT)?;
    if fraction.contains(['e', 'E']) {
        return Err(EXPONENT);
    }
    let negative = whole.starts_with('-');
    let whole: i128 = whole.parse().map_err(|_| TimestampFault::OutOfRange)?;
    let digit =
        |place: usize| fraction.as_bytes().get(place).map_or(0, |digit| i128::from(digit - b'0'));
    let mut millis = digit(0) * 100 + digit(1) * 10 + digit(2);
    if negative {
        // Towards the past, like the finer units.
        let finer = fraction.bytes().skip(3).any(|digit| digit != b'0');
        millis = -millis - i128::from(finer);
    }
    let total = whole.checked_mul(1_000).and_then(|ms| ms.checked_add(millis));
    total
        .and_then(|total| i64::try_from(total).ok())
        .map(EventTime)
        .ok_or(TimestampFault::OutOfRange)
}

/// An RFC 3339 date and time as milliseconds; fractions are cut towards the past, an offset is applied.
pub(super) fn rfc3339_timestamp(
    text: &str,
    naive_is_utc: bool,
) -> Result<EventTime, TimestampFault> {
    let Ok(pieces) = jiff::fmt::temporal::Pieces::parse(text) else {
        return Err(TimestampFault::Invalid("is no RFC 3339 date and time"));
    };
    let Some(time) = pieces.time() else {
        return Err(TimestampFault::Invalid("has a date but no time"));
    };
    let offset_seconds = match pieces.to_numeric_offset() {
        // jiff reads hours up to 25.
        Some(offset) if offset.seconds().abs() < 24 * 3_600 => i128::from(offset.seconds()),
        Some(_) => return Err(TimestampFault::Invalid("has a UTC offset of a day or more")),
        None if naive_is_utc => 0,
        None => {
            return Err(TimestampFault::Invalid(
                "has no UTC offset (`naive = \"utc\"` would take it as UTC)",
            ));
        }
    };
    // Civil arithmetic in 128 bits, since jiff's instants end a day before the year 9999 does.
    let epoch = DateTime::from_parts(Date::constant(1970, 1, 1), jiff::civil::Time::midnight());
    let nanos = DateTime::from_parts(pieces.date(), time).duration_since(epoch).as_nanos();
    let millis = (nanos - offset_seconds * 1_000_000_000).div_euclid(1_000_000);
    i64::try_from(millis).map(EventTime).map_err(|_| TimestampFault::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_becomes_milliseconds() {
        use TimestampUnit::{Microseconds, Milliseconds, Nanoseconds, Seconds};
        for (text, unit, expected) in [
            ("1800000000", Seconds, Ok(1_800_000_000_000)),
            ("1800000000.1239", Seconds, Ok(1_800_000_000_123)),
            ("-0.0001", Seconds, Ok(-1)),
            ("-1.5", Seconds, Ok(-1_500)),
            ("1800000000123", Milliseconds, Ok(1_800_000_000_123)),
            ("1800000000123999", Microseconds, Ok(1_800_000_000_123)),
            ("-1", Microseconds, Ok(-1)),
            ("1800000000123999999", Nanoseconds, Ok(1_800_000_000_123)),
            ("9223372036854775808", Milliseconds, Err(TimestampFault::OutOfRange)),
            ("9223372036854776", Seconds, Err(TimestampFault::OutOfRange)),
            (
                "99999999999999999999999999999999999999999999",
                Nanoseconds,
                Err(TimestampFault::OutOfRange),
            ),
            ("1.5", Milliseconds, Err(TimestampFault::Invalid("is no whole number"))),
            ("1e3", Seconds, Err(TimestampFault::Invalid("has an exponent"))),
            ("\"1\"", Milliseconds, Err(TimestampFault::Invalid("is no number"))),
        ] {
            assert_eq!(numeric_timestamp(text, unit), expected.map(EventTime), "{text} {unit:?}");
        }
    }

    #[test]
    fn dates_at_the_edges_of_the_calendar_are_read() {
        let ms = |text| rfc3339_timestamp(text, false).map(|time| time.0);
        assert_eq!(ms("9999-12-31T23:59:59.999Z"), Ok(253_402_300_799_999));
        assert_eq!(ms("0001-01-01T00:00:00Z"), Ok(-62_135_596_800_000));
        assert_eq!(ms("1969-12-31T23:59:59.9999Z"), Ok(-1));
        assert_eq!(ms("2026-03-01T17:45:00+02:00"), Ok(1_772_379_900_000));
        for refused in [
            "10000-01-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-03-01",
            "2026-03-01T15:45:59",
            "2026-03-01T15:45:59+24:00",
            "now",
        ] {
            assert!(ms(refused).is_err(), "{refused}");
        }
        assert_eq!(
            rfc3339_timestamp("2026-03-01T15:45:59.999999999", true),
            Ok(EventTime(1_772_379_959_999))
        );
    }
}
