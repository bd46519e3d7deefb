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
use super::{Accumulator, AggregateFunction, Sum, Value};
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

    /// Reads back what an accumulator of this function has written.
    pub(crate) fn read(self, reader: &mut Reader<'_>) -> Option<Accumulator> {
        Some(match self {
            Self::Count => {
                Accumulator::Count(reader.varint().filter(|count| *count <= MOST_RECORDS)?)
            }
            Self::Sum => Accumulator::Sum(Sum::read(reader)?),
            Self::Min => read_value(reader, Accumulator::Min)?,
            Self::Max => read_value(reader, Accumulator::Max)?,
            Self::Avg => Accumulator::Avg(Sum::read(reader)?),
        })
    }
}

impl Accumulator {
    /// Appends what [`AggregateFunction::read`] needs.
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Count(count) => put_varint(bytes, *count),
            Self::Sum(sum) | Self::Avg(sum) => sum.write(bytes),
            Self::Min(value) | Self::Max(value) => write_value(*value, bytes),
        }
    }
}

impl Sum {
    fn write(&self, bytes: &mut Vec<u8>) {
        put_varint(bytes, self.count << 1 | u64::from(self.floats.is_some()));
        put_wide_signed(bytes, self.integers);
        if let Some(floats) = &self.floats {
            floats.write(bytes);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let head = reader.varint()?;
        let (count, has_floats) = (head >> 1, head & 1 == 1);
        let integers = reader.wide_signed()?;
        // So that no further record can lead out of range.
        if integers.unsigned_abs() > u128::from(count) << 63 {
            return None;
        }
        let floats = if has_floats { Some(Box::new(ExactSum::read(reader)?)) } else { None };
        Some(Self { count, integers, floats })
    }
}

fn write_value(value: Option<Value>, bytes: &mut Vec<u8>) {
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

fn read_value(
    reader: &mut Reader<'_>,
    of: fn(Option<Value>) -> Accumulator,
) -> Option<Accumulator> {
    Some(of(match reader.u8()? {
        0 => None,
        1 => Some(Value::Integer(reader.signed()?)),
        2 => Some(Value::Float(reader.float()?)),
        _ => return None,
    }))
}

/// What a count that was read may be, so that no further record can lead out of range.
const MOST_RECORDS: u64 = u64::MAX >> 1;
