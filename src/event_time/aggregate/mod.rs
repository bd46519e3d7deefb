//! What a window remembers of its events.

mod accumulator;
mod bytes;
mod exact_sum;
mod row;
mod sum;

use std::cmp::Ordering;

pub use accumulator::Accumulator;
pub use row::Aggregates;
pub(crate) use row::{LargeSums, add_to, clear, read_all, width_of};
pub use sum::Sum;

/// A number out of a record.
///
/// ```
/// use tidegate::event_time::Value;
///
/// assert_eq!(Value::float(1.5), Some(Value::Float(1.5)));
/// assert_eq!(Value::float(f64::NAN), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer, kept as it is.
    Integer(i64),
    /// A finite number; never NaN, never infinite, never negative zero.
    Float(f64),
}

impl Value {
    /// A finite number as a value; `None` for NaN and infinities.
    pub fn float(number: f64) -> Option<Self> {
        // Adding zero turns -0.0 into 0.0, so that equal numbers are equal in every order.
        number.is_finite().then_some(Self::Float(number + 0.0))
    }

    /// Exact, also between an integer and a float. Of equal numbers of both kinds the integer is the lesser, so
    /// that the least and the greatest do not depend on the order of arrival.
    fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(&b),
            (Self::Integer(a), Self::Float(b)) => compare_mixed(a, b),
            (Self::Float(a), Self::Integer(b)) => compare_mixed(b, a).reverse(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "guarded by the range checks above it")]
fn compare_mixed(integer: i64, float: f64) -> Ordering {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if float >= TWO_TO_63 {
        return Ordering::Less;
    }
    if float < -TWO_TO_63 {
        return Ordering::Greater;
    }
    integer.cmp(&(float.floor() as i64)).then(Ordering::Less)
}

/// What an aggregate computes over the records of a window and key.
///
/// ```
/// use tidegate::event_time::{AggregateFunction, AggregateValue, Value};
///
/// let mut sum = AggregateFunction::Sum.accumulator();
/// sum.add(Value::Integer(i64::MAX));
/// sum.add(Value::Integer(i64::MAX));
/// assert_eq!(sum.value(), AggregateValue::Integer(2 * i128::from(i64::MAX)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateFunction {
    /// How many records (that have the field, where one is configured).
    Count,
    /// Their sum.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// Sum divided by count.
    Avg,
}

impl AggregateFunction {
    /// The function's accumulator before the first record.
    pub fn accumulator(self) -> Accumulator {
        Accumulator::new(self)
    }

    /// The name by which the configuration calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }
}

/// An aggregate of a pane.
///
/// ```
/// use tidegate::event_time::{AggregateFunction, AggregateValue, Value};
///
/// let mut sum = AggregateFunction::Sum.accumulator();
/// sum.add(Value::Float(f64::MAX));
/// sum.add(Value::Float(f64::MAX));
/// assert_eq!(sum.value(), AggregateValue::Overflow);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AggregateValue {
    /// Exact.
    Integer(i128),
    /// Finite.
    Float(f64),
    /// The true value is beyond what a float can hold.
    Overflow,
    /// No record had a value for it (SQL: null).
    Missing,
}

impl AggregateValue {
    /// The average of integers, as [`AggregateFunction::Avg`] states it; none of no integers.
    pub fn average(count: u64, sum: i128) -> Self {
        sum::average((count, sum, None))
    }

    fn float(number: f64) -> Self {
        if number.is_finite() { Self::Float(number) } else { Self::Overflow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_numbers_compare_exactly() {
        let integer = |i| Value::Integer(i);
        let float = |f| Value::float(f).unwrap();
        assert_eq!(integer(i64::MAX).compare(float(9_223_372_036_854_775_807.0)), Ordering::Less);
        assert_eq!(
            integer(9_007_199_254_740_993).compare(float(9_007_199_254_740_992.0)),
            Ordering::Greater
        );
        assert_eq!(integer(-3).compare(float(-2.5)), Ordering::Less);
        assert_eq!(integer(-2).compare(float(-2.5)), Ordering::Greater);
        assert_eq!(float(2.5).compare(integer(2)), Ordering::Greater);
        assert_eq!(integer(0).compare(float(-0.0)), Ordering::Less);
        assert_eq!(float(0.0).compare(integer(0)), Ordering::Greater);
    }

    #[test]
    fn least_and_greatest_do_not_depend_on_order() {
        let values = [Value::Float(3.0), Value::Integer(3), Value::Float(-7.0), Value::Integer(-7)];
        for (function, expected) in [
            (AggregateFunction::Min, AggregateValue::Integer(-7)),
            (AggregateFunction::Max, AggregateValue::Float(3.0)),
        ] {
            for rotation in 0..values.len() {
                let mut accumulator = function.accumulator();
                for value in values.iter().cycle().skip(rotation).take(values.len()) {
                    accumulator.add(*value);
                }
                assert_eq!(accumulator.value(), expected);
            }
        }
    }
}
