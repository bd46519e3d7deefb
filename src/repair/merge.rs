//! A published row and the late records that belong to it, put together.

use crate::config::{Aggregate, Missing};
use crate::event_time::{Accumulator, AggregateFunction, AggregateValue, Value};

/// Why a row's aggregates are no help for those with the late records in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotMergeable {
    /// The published sum was rounded, or is beyond what a float can hold.
    #[error("a sum of floats")]
    FloatSum,
    /// Only count and sum of the same values would tell what the average is of.
    #[error("an average without the count and the sum of its values")]
    Average,
    /// A number that no record can have.
    #[error("a number that no record can have")]
    Extreme,
    /// There may have been a row.
    #[error("the published row may have been removed")]
    Removed,
}

/// The accumulators of late records, in the aggregates' configured order.
#[derive(Clone, Debug)]
pub(super) struct Added(Vec<Accumulator>);

impl Added {
    pub(super) fn new(aggregates: &[Aggregate]) -> Self {
        Self(aggregates.iter().map(|aggregate| aggregate.function.accumulator()).collect())
    }

    pub(super) fn add(&mut self, values: &[Option<Value>]) {
        for (accumulator, value) in self.0.iter_mut().zip(values) {
            if let Some(value) = value {
                accumulator.add(*value);
            }
        }
    }

    pub(super) fn values(&self) -> Vec<AggregateValue> {
        self.0.iter().map(Accumulator::value).collect()
    }

    /// The aggregates of the published row's records and these.
    pub(super) fn merge(
        &self,
        aggregates: &[Aggregate],
        published: &[AggregateValue],
    ) -> Result<Vec<AggregateValue>, NotMergeable> {
        let all = || aggregates.iter().zip(published).zip(&self.0);
        let mut merged = Vec::with_capacity(aggregates.len());
        for ((aggregate, before), added) in all() {
            merged.push(match aggregate.function {
                AggregateFunction::Count | AggregateFunction::Sum => plus(*before, added.value())?,
                AggregateFunction::Min | AggregateFunction::Max => extreme(*before, added)?,
                AggregateFunction::Avg => match (*before, added.value()) {
                    (AggregateValue::Missing, one) | (one, AggregateValue::Missing) => one,
                    // Taken from the others once they are there.
                    _ => AggregateValue::Overflow,
                },
            });
        }
        for (nth, ((aggregate, before), added)) in all().enumerate() {
            let both = ![*before, added.value()].contains(&AggregateValue::Missing);
            if aggregate.function == AggregateFunction::Avg && both {
                let average = average(aggregate, aggregates, &merged);
                let average = average.ok_or(NotMergeable::Average)?;
                if let Some(value) = merged.get_mut(nth) {
                    *value = average;
                }
            }
        }
        Ok(merged)
    }
}

/// How many records a row has, where an aggregate counts them all.
pub(super) fn records(aggregates: &[Aggregate], values: &[AggregateValue]) -> Option<i128> {
    let mut all = aggregates.iter().zip(values);
    let (_, count) = all.find(|(aggregate, _)| counts_all(aggregate))?;
    if let AggregateValue::Integer(count) = count { Some(*count) } else { None }
}

fn counts_all(aggregate: &Aggregate) -> bool {
    aggregate.function == AggregateFunction::Count
        && (aggregate.field.is_none() || aggregate.missing == Missing::Refuse)
}

fn plus(before: AggregateValue, added: AggregateValue) -> Result<AggregateValue, NotMergeable> {
    match (before, added) {
        (AggregateValue::Missing, one) | (one, AggregateValue::Missing) => Ok(one),
        (AggregateValue::Integer(before), AggregateValue::Integer(added)) => {
            let sum = before.checked_add(added).map(AggregateValue::Integer);
            sum.ok_or(NotMergeable::FloatSum)
        }
        _ => Err(NotMergeable::FloatSum),
    }
}

fn extreme(before: AggregateValue, added: &Accumulator) -> Result<AggregateValue, NotMergeable> {
    let mut both = added.clone();
    match before {
        AggregateValue::Missing => {}
        AggregateValue::Integer(integer) => {
            both.add(Value::Integer(i64::try_from(integer).map_err(|_| NotMergeable::Extreme)?));
        }
        AggregateValue::Float(float) => {
            both.add(Value::float(float).ok_or(NotMergeable::Extreme)?);
        }
        AggregateValue::Overflow => return Err(NotMergeable::Extreme),
    }
    Ok(both.value())
}

/// The average out of the count and the sum of the same values, where the row has both and the sum is exact.
fn average(
    of: &Aggregate,
    aggregates: &[Aggregate],
    values: &[AggregateValue],
) -> Option<AggregateValue> {
    let integer = |wanted: &dyn Fn(&Aggregate) -> bool| {
        let (_, value) = aggregates.iter().zip(values).find(|(aggregate, _)| wanted(aggregate))?;
        if let AggregateValue::Integer(integer) = value { Some(*integer) } else { None }
    };
    let same = |aggregate: &Aggregate| {
        (&aggregate.field, aggregate.value_type, aggregate.missing)
            == (&of.field, of.value_type, of.missing)
    };
    let sum = integer(&|other| other.function == AggregateFunction::Sum && same(other))?;
    let count = integer(&|other| {
        other.function == AggregateFunction::Count
            && (same(other) || (of.missing == Missing::Refuse && counts_all(other)))
    })?;
    Some(AggregateValue::average(u64::try_from(count).ok()?, sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ValueType;

    fn aggregate(function: AggregateFunction) -> Aggregate {
        Aggregate {
            name: function.name().to_owned(),
            function,
            field: Some("v".to_owned()),
            value_type: ValueType::Number,
            missing: Missing::Refuse,
        }
    }

    fn merge(
        functions: &[AggregateFunction],
        before: &[Value],
        added: &[Value],
    ) -> Result<Vec<AggregateValue>, NotMergeable> {
        let aggregates: Vec<_> = functions.iter().map(|function| aggregate(*function)).collect();
        let of = |values: &[Value]| {
            let mut all = Added::new(&aggregates);
            for value in values {
                all.add(&vec![Some(*value); aggregates.len()]);
            }
            all
        };
        let merged = of(added).merge(&aggregates, &of(before).values())?;
        assert_eq!(merged, of(&[before, added].concat()).values(), "as if read together");
        Ok(merged)
    }

    #[test]
    fn integers_are_merged_exactly() {
        use AggregateFunction::{Avg, Count, Max, Min, Sum};
        let most = Value::Integer(i64::MAX);
        let merged =
            merge(&[Avg, Count, Sum, Min, Max], &[most, Value::Integer(-3)], &[most, most]);
        let sum = i128::from(i64::MAX) * 3 - 3;
        assert_eq!(merged.unwrap()[1..3], [4, sum].map(AggregateValue::Integer));
    }

    #[test]
    fn the_least_and_the_greatest_may_be_floats() {
        use AggregateFunction::{Count, Max, Min};
        let float = |float| Value::float(float).unwrap();
        for (before, added) in [(0.1, 0.2), (0.2, 0.1)] {
            merge(&[Count, Min, Max], &[float(before), Value::Integer(7)], &[float(added)])
                .unwrap();
        }
    }

    #[test]
    fn what_was_rounded_is_not_merged() {
        use AggregateFunction::{Avg, Count, Sum};
        let (float, integer) = (Value::Float(0.1), Value::Integer(1));
        assert_eq!(merge(&[Sum], &[float], &[integer]), Err(NotMergeable::FloatSum));
        assert_eq!(merge(&[Sum], &[integer], &[float]), Err(NotMergeable::FloatSum));
        assert_eq!(merge(&[Avg], &[integer], &[integer]), Err(NotMergeable::Average));
        assert_eq!(merge(&[Count, Avg], &[integer], &[integer]), Err(NotMergeable::Average));
        // Nothing was rounded where there was nothing.
        assert!(merge(&[Sum, Avg], &[], &[float]).is_ok());
    }
}
