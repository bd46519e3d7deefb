//! Aggregates depend on which values were added, not on their order nor on where the state was copied in between.

use proptest::prelude::*;
use tidegate::event_time::{AggregateFunction, AggregateValue, Value};

use crate::config;

const FUNCTIONS: [AggregateFunction; 5] = [
    AggregateFunction::Count,
    AggregateFunction::Sum,
    AggregateFunction::Min,
    AggregateFunction::Max,
    AggregateFunction::Avg,
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_aggregate_depends_on_the_order((values, shuffled) in values().prop_flat_map(|values| {
        (Just(values.clone()), Just(values).prop_shuffle())
    })) {
        for function in FUNCTIONS {
            let (value, other) = (added(function, &values), added(function, &shuffled));
            prop_assert_eq!(exactly(value), exactly(other), "{:?}", function);
        }
    }

    #[test]
    fn no_aggregate_depends_on_where_its_state_was_copied(
        values in values(),
        cuts in prop::collection::vec(0..40usize, 0..4),
    ) {
        for function in FUNCTIONS {
            let mut accumulator = function.accumulator();
            for (place, value) in values.iter().enumerate() {
                if cuts.contains(&place) {
                    accumulator = accumulator.clone();
                }
                accumulator.add(*value);
            }
            prop_assert_eq!(exactly(accumulator.value()), exactly(added(function, &values)));
        }
    }

    #[test]
    fn a_sum_of_integers_is_exact(values in prop::collection::vec(any::<i64>(), 1..60)) {
        let sum = values.iter().copied().map(i128::from).sum();
        let values: Vec<Value> = values.into_iter().map(Value::Integer).collect();
        prop_assert_eq!(added(AggregateFunction::Sum, &values), AggregateValue::Integer(sum));
    }

    #[test]
    fn a_sum_with_floats_is_the_exact_sum_rounded_once(values in values(), float in float()) {
        let values: Vec<Value> = values.into_iter().chain([float]).collect();
        let sum = FixedPoint::sum(&values).rounded();
        let expected = sum.map_or(AggregateValue::Overflow, AggregateValue::Float);
        prop_assert_eq!(exactly(added(AggregateFunction::Sum, &values)), exactly(expected));
    }
}

fn values() -> impl Strategy<Value = Vec<Value>> {
    let integer = prop_oneof![any::<i64>(), -5..5i64].prop_map(Value::Integer);
    prop::collection::vec(prop_oneof![1 => integer, 2 => float()], 0..40)
}

/// Floats of all sizes, and such as cancel and such as tie.
fn float() -> impl Strategy<Value = Value> {
    let exponent = prop_oneof![-1_074..1_024i32, (0..24i32).prop_map(|step| 1_023 - 53 * step)];
    let power = (exponent, any::<bool>()).prop_map(
        |(exponent, negative)| if negative { -1.0 } else { 1.0 } * power_of_two(exponent),
    );
    let number = prop_oneof![
        any::<f64>(),
        power,
        -4.0..4.0f64,
        Just(0.0),
        Just(-0.0),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(1.0),
        Just(f64::from_bits(1)),
    ];
    number.prop_filter_map("finite", Value::float)
}

/// Also where it is subnormal.
fn power_of_two(exponent: i32) -> f64 {
    scale(1, exponent)
}

fn added(function: AggregateFunction, values: &[Value]) -> AggregateValue {
    let mut accumulator = function.accumulator();
    for value in values {
        accumulator.add(*value);
    }
    accumulator.value()
}

/// To compare bit by bit.
fn exactly(value: AggregateValue) -> (Option<i128>, Option<u64>, String) {
    match value {
        AggregateValue::Integer(integer) => (Some(integer), None, String::new()),
        AggregateValue::Float(float) => (None, Some(float.to_bits()), String::new()),
        other @ (AggregateValue::Overflow | AggregateValue::Missing) => {
            (None, None, format!("{other:?}"))
        }
    }
}

/// A number in units of 2^-1074, the least of f64, as digits to the base 2^32, least first.
struct FixedPoint {
    digits: Vec<i64>,
}

impl FixedPoint {
    fn sum(values: &[Value]) -> Self {
        let mut sum = Self { digits: vec![0; 70] };
        for value in values {
            match value {
                Value::Integer(integer) => {
                    sum.add(integer.unsigned_abs(), 1_074, *integer < 0);
                }
                Value::Float(float) => {
                    let bits = float.to_bits();
                    let (exponent, fraction) = ((bits >> 52) & 0x7FF, bits & ((1 << 52) - 1));
                    let normal = u64::from(exponent > 0);
                    sum.add(fraction | (normal << 52), exponent.saturating_sub(1), *float < 0.0);
                }
            }
        }
        sum
    }

    /// Adds magnitude x 2^shift units.
    fn add(&mut self, magnitude: u64, shift: u64, negative: bool) {
        let first = usize::try_from(shift / 32).unwrap();
        let mut rest = u128::from(magnitude) << (shift % 32);
        for digit in self.digits.iter_mut().skip(first) {
            let part = i64::from(u32::try_from(rest & 0xFFFF_FFFF).unwrap());
            *digit += if negative { -part } else { part };
            rest >>= 32;
        }
    }

    /// To nearest, ties to even; `None` if that is out of range.
    fn rounded(mut self) -> Option<f64> {
        let negative = self.carry();
        if negative {
            self.digits.iter_mut().for_each(|digit| *digit = -*digit);
            self.carry();
        }
        let bit = |place: usize| self.digits[place / 32] >> (place % 32) & 1 == 1;
        let Some(top) = (0..self.digits.len() * 32).rev().find(|place| bit(*place)) else {
            return Some(0.0);
        };
        let lowest = top.saturating_sub(52);
        let mut mantissa =
            (lowest..=top).rev().fold(0u64, |m, place| m << 1 | u64::from(bit(place)));
        let half = lowest > 0 && bit(lowest - 1);
        let below = (0..lowest.saturating_sub(1)).any(bit);
        if half && (below || mantissa % 2 == 1) {
            mantissa += 1;
        }
        // In two steps, since 2^-1074 times a large power would not be exact in one.
        let scaled = scale(mantissa, i32::try_from(lowest).unwrap() - 1_074);
        scaled.is_finite().then_some(if negative { -scaled } else { scaled })
    }

    /// Brings all digits into 0..2^32 but for the sign of the last; whether it is negative.
    fn carry(&mut self) -> bool {
        let last = self.digits.len() - 1;
        for place in 0..last {
            let carried = self.digits[place] >> 32;
            self.digits[place] -= carried << 32;
            self.digits[place + 1] += carried;
        }
        self.digits[last] < 0
    }
}

/// mantissa x 2^exponent, which is exact unless it is out of range; in steps, since no power may be so itself.
#[expect(clippy::cast_precision_loss, reason = "at most 53 bits")]
fn scale(mantissa: u64, mut exponent: i32) -> f64 {
    let mut scaled = mantissa as f64;
    while exponent != 0 {
        let step = exponent.clamp(-1_000, 900);
        scaled *= 2f64.powi(step);
        exponent -= step;
    }
    scaled
}
