//! Accumulators as bytes and back, exact to the last bit.
//!
//! | kind | bytes |
//! |---|---|
//! | count | the count |
//! | sum, avg | twice the count, plus one where there are floats; the sum of the integers, signed; the floats' parts |
//! | min, max | 0: none; 1 and a signed integer; 2 and a float of eight bytes |
//!
//! The floats' parts are two lists, each with its length: the ordinary ones, then the scaled ones.

use super::exact_sum::ExactSum;
use super::row::Cell;
use super::sum::Parts;
use super::{AggregateFunction, Aggregates, Sum, Value};
use crate::event_time::snapshot::{Reader, put_float, put_signed, put_varint, put_wide_signed};

impl AggregateFunction {
    /// The number by which stored state calls it; never given to another function.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Count => 0,
            Self::Sum => 1,
            Self::Min => 2,
            Self::Max => 3,
            Self::Avg => 4,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Count, Self::Sum, Self::Min, Self::Max, Self::Avg]
            .into_iter()
            .find(|function| function.code() == code)
    }
}

impl Aggregates<'_> {
    /// Appends what the accumulators are read back from.
    pub(crate) fn write(self, bytes: &mut Vec<u8>) {
        self.cells().for_each(|cell| cell.write(bytes));
    }
}

impl Cell<'_> {
    pub(super) fn write(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Count(count) => put_varint(bytes, count),
            Self::Sum(parts) | Self::Avg(parts) => write_sum(parts, bytes),
            Self::Extreme(value) => write_extreme(value, bytes),
        }
    }
}

pub(super) fn read_count(reader: &mut Reader<'_>) -> Option<u64> {
    reader.varint().filter(|count| *count <= MOST_RECORDS)
}

fn write_sum((count, integers, floats): Parts<'_>, bytes: &mut Vec<u8>) {
    put_varint(bytes, count << 1 | u64::from(floats.is_some()));
    put_wide_signed(bytes, integers);
    if let Some(floats) = floats {
        floats.write(bytes);
    }
}

impl Sum {
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let head = reader.varint()?;
        let (count, has_floats) = (head >> 1, head & 1 == 1);
        let integers = reader.wide_signed()?;
        if !has_floats && let Some(small) = Self::small(count, integers) {
            return Some(small);
        }
        // So that no further record can lead out of range.
        if integers.unsigned_abs() > u128::from(count) << 63 {
            return None;
        }
        let floats = if has_floats { Some(ExactSum::read(reader)?) } else { None };
        Some(Self::of_parts(count, integers, floats))
    }
}

fn write_extreme(value: Option<Value>, bytes: &mut Vec<u8>) {
    match value {
        None => bytes.push(0),
        Some(Value::Integer(integer)) => {
            bytes.push(1);
            put_signed(bytes, integer);
        }
        Some(Value::Float(float)) => {
            bytes.push(2);
            put_float(bytes, float);
        }
    }
}

#[expect(clippy::option_option, reason = "no value, and nothing that was written")]
pub(super) fn read_extreme(reader: &mut Reader<'_>) -> Option<Option<Value>> {
    Some(match reader.u8()? {
        0 => None,
        1 => Some(Value::Integer(reader.signed()?)),
        2 => Some(Value::Float(reader.float()?)),
        _ => return None,
    })
}

/// What a count that was read may be, so that no further record can lead out of range.
const MOST_RECORDS: u64 = u64::MAX >> 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event_time::aggregate::Accumulator;

    const ALL: [AggregateFunction; 5] = [
        AggregateFunction::Count,
        AggregateFunction::Sum,
        AggregateFunction::Min,
        AggregateFunction::Max,
        AggregateFunction::Avg,
    ];

    fn numbers() -> impl Strategy<Value = Value> {
        let float = any::<u64>().prop_map(|bits| Value::float(f64::from_bits(bits)));
        prop_oneof![
            any::<i64>().prop_map(Value::Integer),
            (-3..3i64).prop_map(Value::Integer),
            float.prop_map(|float| float.unwrap_or(Value::Float(f64::MIN))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn accumulators_come_back_as_they_were(
            values in prop::collection::vec(numbers(), 0..20),
            more in prop::collection::vec(numbers(), 0..20),
        ) {
            for function in ALL {
                let mut accumulator = function.accumulator();
                for value in &values {
                    accumulator.add(*value);
                }
                let mut bytes = Vec::new();
                accumulator.content().write(&mut bytes);
                let mut reader = Reader::whole(&bytes);
                let mut back = Accumulator::read(function, &mut reader).unwrap();
                prop_assert_eq!((&back, reader.left()), (&accumulator, 0));
                for value in &more {
                    accumulator.add(*value);
                    back.add(*value);
                }
                prop_assert_eq!(back.value(), accumulator.value());
            }
        }

        #[test]
        fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for function in ALL {
                let read = Accumulator::read(function, &mut Reader::whole(&bytes));
                if let Some(mut accumulator) = read {
                    accumulator.add(Value::Integer(i64::MAX));
                    accumulator.add(Value::Float(f64::MAX));
                    accumulator.value();
                }
            }
        }
    }

    #[test]
    fn a_function_keeps_its_code() {
        assert_eq!(ALL.map(AggregateFunction::code), [0, 1, 2, 3, 4]);
        for function in ALL {
            assert_eq!(AggregateFunction::from_code(function.code()), Some(function));
        }
        assert_eq!(AggregateFunction::from_code(5), None);
    }

    #[test]
    fn small_numbers_take_few_bytes() {
        for (function, expected) in [(AggregateFunction::Count, 1), (AggregateFunction::Sum, 3)] {
            let mut accumulator = function.accumulator();
            accumulator.add(Value::Integer(100));
            let mut bytes = Vec::new();
            accumulator.content().write(&mut bytes);
            assert_eq!(bytes.len(), expected);
        }
    }

    #[test]
    fn a_list_longer_than_the_bytes_is_refused() {
        let mut bytes = vec![3, 2];
        put_varint(&mut bytes, u64::MAX);
        bytes.extend([0; 16]);
        assert_eq!(Accumulator::read(AggregateFunction::Sum, &mut Reader::whole(&bytes)), None);
    }
}
