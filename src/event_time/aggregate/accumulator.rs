//! One accumulator by itself.

use super::row::{self, Cell, LargeSums};
use super::{AggregateFunction, AggregateValue, Value};

/// One aggregate's memory of a window and key. Its value depends on which records were added, not on their order.
///
/// ```
/// use tidegate::event_time::{AggregateFunction, AggregateValue, Value};
///
/// let mut avg = AggregateFunction::Avg.accumulator();
/// assert_eq!(avg.value(), AggregateValue::Missing);
/// avg.add(Value::Integer(1));
/// avg.add(Value::Integer(2));
/// assert_eq!(avg.value(), AggregateValue::Float(1.5));
/// ```
#[derive(Clone, Debug)]
pub struct Accumulator {
    function: AggregateFunction,
    cell: Vec<u8>,
    large: LargeSums,
}

impl Accumulator {
    pub(super) fn new(function: AggregateFunction) -> Self {
        Self { function, cell: vec![0; function.width()], large: LargeSums::default() }
    }

    /// Takes in the value of one more record.
    pub fn add(&mut self, value: Value) {
        row::add(self.function, &mut self.cell, value, &mut self.large);
    }

    /// The aggregate as a pane states it.
    pub fn value(&self) -> AggregateValue {
        self.content().value()
    }

    pub(super) fn content(&self) -> Cell<'_> {
        Cell::of(self.function, &self.cell, &self.large)
    }

    #[cfg(test)]
    pub(super) fn read(
        function: AggregateFunction,
        reader: &mut crate::event_time::snapshot::Reader<'_>,
    ) -> Option<Self> {
        let mut accumulator = Self::new(function);
        row::read(function, reader, &mut accumulator.cell, &mut accumulator.large)?;
        Some(accumulator)
    }
}

impl PartialEq for Accumulator {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function && self.content() == other.content()
    }
}
