//! Accumulators as they lie side by side in an entry's row, in as few bytes as that takes: a window may have millions.
//!
//! | function | bytes |
//! |---|---|
//! | count | 8: the count |
//! | sum, avg | 4: the count, 8: the sum of integers; where the count is the greatest there is, 8: the place of a sum that does not fit |
//! | min, max | 1: none 0, an integer 1, a float 2; 8: the value |
//!
//! Numbers are of the machine's byte order. Zeros are what there is before the first record.

use std::cmp::Ordering;

use super::bytes::{read_count, read_extreme};
use super::sum::{self, Parts};
use super::{AggregateFunction, AggregateValue, Sum, Value};
use crate::event_time::snapshot::Reader;

/// Sums that do not fit into a row: with floats, or of more than 64 bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct LargeSums(Vec<Sum>);

#[cfg(test)]
impl LargeSums {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The aggregates of a window and key, in their configured order.
///
/// ```
/// use tidegate::event_time::Aggregates;
///
/// assert_eq!(Aggregates::default().values().count(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Aggregates<'a> {
    functions: &'a [AggregateFunction],
    cells: &'a [u8],
    large: &'a [Sum],
}

impl<'a> Aggregates<'a> {
    pub(crate) fn new(
        functions: &'a [AggregateFunction],
        cells: &'a [u8],
        large: &'a LargeSums,
    ) -> Self {
        Self { functions, cells, large: &large.0 }
    }

    /// The aggregates as a pane states them.
    pub fn values(self) -> impl Iterator<Item = AggregateValue> + 'a {
        self.cells().map(Cell::value)
    }

    pub(super) fn cells(self) -> impl Iterator<Item = Cell<'a>> {
        let mut rest = self.cells;
        self.functions.iter().map(move |function| {
            let (cell, others) = rest.split_at_checked(function.width()).unwrap_or_default();
            rest = others;
            Cell::read(*function, cell, self.large)
        })
    }
}

/// What is in an accumulator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Count(u64),
    Sum(Parts<'a>),
    Avg(Parts<'a>),
    /// The least or the greatest value.
    Extreme(Option<Value>),
}

impl<'a> Cell<'a> {
    pub(super) fn of(function: AggregateFunction, cell: &[u8], large: &'a LargeSums) -> Self {
        Self::read(function, cell, &large.0)
    }

    fn read(function: AggregateFunction, cell: &[u8], large: &'a [Sum]) -> Self {
        match function {
            AggregateFunction::Count => Self::Count(count(cell)),
            AggregateFunction::Sum => Self::Sum(parts(cell, large)),
            AggregateFunction::Avg => Self::Avg(parts(cell, large)),
            AggregateFunction::Min | AggregateFunction::Max => Self::Extreme(extreme(cell)),
        }
    }

    /// The aggregate as a pane states it.
    pub(super) fn value(self) -> AggregateValue {
        match self {
            Self::Count(count) => AggregateValue::Integer(i128::from(count)),
            Self::Sum(parts) => sum::value(parts),
            Self::Avg(parts) => sum::average(parts),
            Self::Extreme(None) => AggregateValue::Missing,
            Self::Extreme(Some(Value::Integer(integer))) => {
                AggregateValue::Integer(i128::from(integer))
            }
            Self::Extreme(Some(Value::Float(float))) => AggregateValue::Float(float),
        }
    }
}

impl AggregateFunction {
    /// How many bytes its accumulator has in a row.
    pub(super) const fn width(self) -> usize {
        match self {
            Self::Count => 8,
            Self::Sum | Self::Avg => 12,
            Self::Min | Self::Max => 9,
        }
    }
}

/// How many bytes the accumulators of these functions have in a row.
pub(crate) fn width_of(functions: &[AggregateFunction]) -> usize {
    functions.iter().map(|function| function.width()).sum()
}

/// The accumulators of these functions one by one.
fn cells_mut<'c>(
    mut cells: &'c mut [u8],
    functions: &'c [AggregateFunction],
) -> impl Iterator<Item = (AggregateFunction, &'c mut [u8])> {
    functions.iter().map_while(move |function| {
        let (cell, rest) = std::mem::take(&mut cells).split_at_mut_checked(function.width())?;
        cells = rest;
        Some((*function, cell))
    })
}

/// Takes in the values of one more record.
#[inline]
pub(crate) fn add_to(
    cells: &mut [u8],
    functions: &[AggregateFunction],
    values: &[Option<Value>],
    large: &mut LargeSums,
) {
    for ((function, cell), value) in cells_mut(cells, functions).zip(values) {
        if let Some(value) = value {
            add(function, cell, *value, large);
        }
    }
}

/// Forgets everything; what did not fit keeps its place.
pub(crate) fn clear(cells: &mut [u8], functions: &[AggregateFunction], large: &mut LargeSums) {
    for (function, cell) in cells_mut(cells, functions) {
        match function {
            AggregateFunction::Sum | AggregateFunction::Avg => put_sum(cell, Sum::default(), large),
            AggregateFunction::Count | AggregateFunction::Min | AggregateFunction::Max => {
                cell.fill(0);
            }
        }
    }
}

pub(super) fn add(
    function: AggregateFunction,
    cell: &mut [u8],
    value: Value,
    large: &mut LargeSums,
) {
    match function {
        AggregateFunction::Count => put_count(cell, count(cell) + 1),
        AggregateFunction::Sum | AggregateFunction::Avg => add_to_sum(cell, value, large),
        AggregateFunction::Min => take_if(Ordering::Less, cell, value),
        AggregateFunction::Max => take_if(Ordering::Greater, cell, value),
    }
}

/// Takes a value that stands so to the one there is.
fn take_if(wanted: Ordering, cell: &mut [u8], value: Value) {
    if extreme(cell).is_none_or(|so_far| value.compare(so_far) == wanted) {
        put_extreme(cell, Some(value));
    }
}

fn add_to_sum(cell: &mut [u8], value: Value, large: &mut LargeSums) {
    let (count, integers) = small_sum(cell);
    if count == ELSEWHERE {
        if let Some(sum) = large.0.get_mut(place(integers)) {
            sum.add(value);
        }
        return;
    }
    if let Value::Integer(integer) = value
        && let Some(sum) = integers.checked_add(integer)
        && count + 1 < ELSEWHERE
    {
        return put_small_sum(cell, count + 1, sum);
    }
    let mut sum = Sum::of_parts(u64::from(count), i128::from(integers), None);
    sum.add(value);
    put_sum(cell, sum, large);
}

/// Sets the accumulators of these functions to what [`Aggregates::write`] has written.
pub(crate) fn read_all(
    functions: &[AggregateFunction],
    reader: &mut Reader<'_>,
    cells: &mut [u8],
    large: &mut LargeSums,
) -> Option<()> {
    cells_mut(cells, functions).try_for_each(|(function, cell)| read(function, reader, cell, large))
}

/// The same of one.
pub(super) fn read(
    function: AggregateFunction,
    reader: &mut Reader<'_>,
    cell: &mut [u8],
    large: &mut LargeSums,
) -> Option<()> {
    match function {
        AggregateFunction::Count => put_count(cell, read_count(reader)?),
        AggregateFunction::Sum | AggregateFunction::Avg => {
            put_sum(cell, Sum::read(reader)?, large);
        }
        AggregateFunction::Min | AggregateFunction::Max => {
            put_extreme(cell, read_extreme(reader)?);
        }
    }
    Some(())
}

fn count(cell: &[u8]) -> u64 {
    cell.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn put_count(cell: &mut [u8], count: u64) {
    if let Some(bytes) = cell.first_chunk_mut() {
        *bytes = count.to_ne_bytes();
    }
}

/// The count and the sum of integers; where the count is [`ELSEWHERE`], the sum's place instead of it.
fn small_sum(cell: &[u8]) -> (u32, i64) {
    let Some((count, rest)) = cell.split_first_chunk() else { return (0, 0) };
    let integers = rest.first_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes));
    (u32::from_ne_bytes(*count), integers)
}

fn put_small_sum(cell: &mut [u8], count: u32, integers: i64) {
    if let Some((count_bytes, rest)) = cell.split_first_chunk_mut()
        && let Some(bytes) = rest.first_chunk_mut()
    {
        *count_bytes = count.to_ne_bytes();
        *bytes = integers.to_ne_bytes();
    }
}

fn put_sum(cell: &mut [u8], sum: Sum, large: &mut LargeSums) {
    let (count, integers) = small_sum(cell);
    if count == ELSEWHERE {
        if let Some(held) = large.0.get_mut(place(integers)) {
            *held = sum;
        }
    } else if let Some((count, integers)) = sum.as_small().filter(|(count, _)| *count < ELSEWHERE) {
        put_small_sum(cell, count, integers);
    } else {
        put_small_sum(cell, ELSEWHERE, i64::try_from(large.0.len()).unwrap_or(i64::MAX));
        large.0.push(sum);
    }
}

fn place(integers: i64) -> usize {
    usize::try_from(integers).unwrap_or(usize::MAX)
}

fn parts<'a>(cell: &[u8], large: &'a [Sum]) -> Parts<'a> {
    match small_sum(cell) {
        (ELSEWHERE, at) => large.get(place(at)).map_or((0, 0, None), Sum::parts),
        (count, integers) => (u64::from(count), i128::from(integers), None),
    }
}

fn extreme(cell: &[u8]) -> Option<Value> {
    let (kind, rest) = cell.split_first()?;
    let bytes = *rest.first_chunk()?;
    match *kind {
        INTEGER => Some(Value::Integer(i64::from_ne_bytes(bytes))),
        FLOAT => Some(Value::Float(f64::from_ne_bytes(bytes))),
        _ => None,
    }
}

fn put_extreme(cell: &mut [u8], value: Option<Value>) {
    let (kind, bytes) = match value {
        None => (0, [0; 8]),
        Some(Value::Integer(integer)) => (INTEGER, integer.to_ne_bytes()),
        Some(Value::Float(float)) => (FLOAT, float.to_ne_bytes()),
    };
    if let Some((kind_byte, rest)) = cell.split_first_mut()
        && let Some(place) = rest.first_chunk_mut()
    {
        *kind_byte = kind;
        *place = bytes;
    }
}

/// The count of a sum that is not in the row.
const ELSEWHERE: u32 = u32::MAX;

const INTEGER: u8 = 1;
const FLOAT: u8 = 2;
