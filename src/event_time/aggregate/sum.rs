//! Sums that are exact.

use super::exact_sum::ExactSum;
use super::{AggregateValue, Value};

/// A sum that stays an exact integer until it meets a float, and is the correctly rounded sum after that.
///
/// ```
/// use tidegate::event_time::{AggregateValue, Sum, Value};
///
/// let mut sum = Sum::default();
/// for value in [1e16, 1.0, -1e16] {
///     sum.add(Value::Float(value));
/// }
/// assert_eq!(sum.value(), AggregateValue::Float(1.0)); // plain addition gives 0
/// ```
#[derive(Clone, Debug)]
pub struct Sum(Held);

/// Nearly every sum is small. It has an allocation of its own only where it is not, so that a window with many keys
/// takes less memory; how it is held cannot be seen from outside.
#[derive(Clone, Debug)]
enum Held {
    Small { count: u32, integers: i64 },
    Large(Box<Large>),
}

#[derive(Clone, Debug)]
struct Large {
    count: u64,
    /// 2^64 records of 2^63 each stay in range.
    integers: i128,
    floats: Option<ExactSum>,
}

impl Sum {
    /// Adds a value.
    pub fn add(&mut self, value: Value) {
        match &mut self.0 {
            Held::Small { count, integers } => {
                if let Value::Integer(integer) = value
                    && let Some(more) = count.checked_add(1)
                    && let Some(sum) = integers.checked_add(integer)
                {
                    (*count, *integers) = (more, sum);
                    return;
                }
                let (count, integers) = (u64::from(*count), i128::from(*integers));
                let mut large = Large { count, integers, floats: None };
                large.add(value);
                self.0 = Held::Large(Box::new(large));
            }
            Held::Large(large) => large.add(value),
        }
    }

    /// The sum of everything added.
    pub fn value(&self) -> AggregateValue {
        value(self.parts())
    }

    /// The count and the sum of integers, where it needs no allocation.
    pub(super) fn as_small(&self) -> Option<(u32, i64)> {
        match self.0 {
            Held::Small { count, integers } => Some((count, integers)),
            Held::Large(_) => None,
        }
    }

    /// A sum of integers, where it is one that needs no allocation: nearly every one.
    pub(super) fn small(count: u64, integers: i128) -> Option<Self> {
        let (count, integers) = (u32::try_from(count).ok()?, i64::try_from(integers).ok()?);
        (count > 0 || integers == 0).then_some(Self(Held::Small { count, integers }))
    }

    pub(super) fn of_parts(count: u64, integers: i128, floats: Option<ExactSum>) -> Self {
        Self(match (u32::try_from(count), i64::try_from(integers), floats) {
            (Ok(count), Ok(integers), None) => Held::Small { count, integers },
            (.., floats) => Held::Large(Box::new(Large { count, integers, floats })),
        })
    }

    /// How many values were added, what the integers among them add up to, and what the floats.
    pub(super) fn parts(&self) -> Parts<'_> {
        match &self.0 {
            Held::Small { count, integers } => (u64::from(*count), i128::from(*integers), None),
            Held::Large(large) => (large.count, large.integers, large.floats.as_ref()),
        }
    }
}

/// How many values were added, what the integers among them add up to, and what the floats.
pub(super) type Parts<'a> = (u64, i128, Option<&'a ExactSum>);

/// The sum of everything added.
pub(super) fn value(parts: Parts<'_>) -> AggregateValue {
    match parts {
        (0, ..) => AggregateValue::Missing,
        (_, integers, None) => AggregateValue::Integer(integers),
        (_, integers, Some(floats)) => AggregateValue::float(floats.plus_integer(integers)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average is a float")]
pub(super) fn average(parts: Parts<'_>) -> AggregateValue {
    let (count, ..) = parts;
    match value(parts) {
        AggregateValue::Integer(integer) => AggregateValue::Float(integer as f64 / count as f64),
        AggregateValue::Float(float) => AggregateValue::Float(float / count as f64),
        other @ (AggregateValue::Overflow | AggregateValue::Missing) => other,
    }
}

impl Default for Sum {
    fn default() -> Self {
        Self(Held::Small { count: 0, integers: 0 })
    }
}

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Large {
    fn add(&mut self, value: Value) {
        self.count += 1;
        match value {
            Value::Integer(integer) => self.integers += i128::from(integer),
            Value::Float(float) => self.floats.get_or_insert_default().add(float),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum_of(values: &[Value]) -> Sum {
        let mut sum = Sum::default();
        for value in values {
            sum.add(*value);
        }
        sum
    }

    #[test]
    fn integers_and_floats_add_up_exactly() {
        let sum = sum_of(&[
            Value::Integer(9_007_199_254_740_993),
            Value::Float(-9_007_199_254_740_992.0),
            Value::Float(0.5),
        ]);
        assert_eq!(sum.value(), AggregateValue::Float(1.5));
    }

    #[test]
    fn a_sum_leaves_64_bits_and_comes_back() {
        let most = i128::from(i64::MAX);
        let least = i128::from(i64::MIN);
        let mut sum = sum_of(&[Value::Integer(i64::MAX)]);
        assert!(matches!(sum.0, Held::Small { .. }));
        sum.add(Value::Integer(1));
        assert_eq!(sum.value(), AggregateValue::Integer(most + 1));
        sum.add(Value::Integer(-1));
        assert_eq!(sum.value(), AggregateValue::Integer(most));
        let same = Sum::of_parts(3, most, None);
        assert!(matches!((&sum.0, &same.0), (Held::Large(_), Held::Small { .. })));
        assert_eq!(sum, same, "how it is held makes no difference");
        let sum = sum_of(&[Value::Integer(i64::MIN), Value::Integer(i64::MIN)]);
        assert_eq!(sum.value(), AggregateValue::Integer(2 * least));
    }

    #[test]
    fn a_count_leaves_32_bits() {
        let mut sum = Sum::of_parts(u64::from(u32::MAX), 3, None);
        assert!(matches!(sum.0, Held::Small { .. }));
        sum.add(Value::Integer(2));
        assert_eq!(sum, Sum::of_parts(1 << 32, 5, None));
        assert_eq!(average(sum.parts()), AggregateValue::Float(5.0 / 4_294_967_296.0));
    }

    #[test]
    fn it_is_as_small_as_it_is_meant_to_be() {
        assert_eq!(size_of::<Sum>(), 16);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn integers_add_up_as_wide_ones_do(
            integers in prop::collection::vec(
                prop_oneof![any::<i64>(), -9..9i64, Just(i64::MAX), Just(i64::MIN)],
                1..40,
            ),
        ) {
            let mut sum = Sum::default();
            let mut expected = 0;
            for integer in integers {
                sum.add(Value::Integer(integer));
                expected += i128::from(integer);
                prop_assert_eq!(sum.value(), AggregateValue::Integer(expected));
            }
        }
    }
}
