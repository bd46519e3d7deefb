//! The exact sum of floats, rounded once when it is read.

use crate::event_time::snapshot::{Reader, put_float, put_varint};

/// Adds floats without any rounding (J. R. Shewchuk, "Adaptive precision floating-point arithmetic", 1997).
///
/// Compensated addition would still depend on the order in which partitions were polled; the exact sum does not, so a
/// window's value is the same in every run. Values near the end of the range are added on a smaller scale, so that a
/// running total may leave the range and come back.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ExactSum {
    ordinary: Expansion,
    /// Values from [`HUGE`] on, multiplied by [`SCALE`].
    huge: Expansion,
}

impl ExactSum {
    pub(super) fn add(&mut self, value: f64) {
        if value.abs() < HUGE {
            self.ordinary.add(value);
        } else {
            self.huge.add(value * SCALE);
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        self.ordinary.write(bytes);
        self.huge.write(bytes);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { ordinary: Expansion::read(reader)?, huge: Expansion::read(reader)? })
    }

    /// The sum with an integer added, rounded to nearest, ties to even; not finite if it is out of range.
    #[expect(clippy::cast_precision_loss, reason = "each piece has at most 48 bits")]
    #[expect(clippy::float_cmp, reason = "the question is whether a product was exact")]
    pub(super) fn plus_integer(&self, integer: i128) -> f64 {
        let mut total = self.ordinary.clone();
        let magnitude = integer.unsigned_abs();
        for shift in [0, 48, 96] {
            let piece = ((magnitude >> shift) & 0xFFFF_FFFF_FFFF) as f64 * 2f64.powi(shift);
            total.add(if integer < 0 { -piece } else { piece });
        }
        if self.huge.rounded().abs() < SCALED_HALF_OF_THE_RANGE {
            for part in &self.huge.parts {
                total.add(part / SCALE);
            }
            return total.rounded();
        }
        let mut scaled = self.huge.clone();
        for part in total.parts.iter().rev() {
            if part * SCALE / SCALE != *part {
                // Too small for the scale: of this and all below it only the sign can matter, where there is a tie.
                scaled.add(f64::from_bits(1).copysign(*part));
                break;
            }
            scaled.add(part * SCALE);
        }
        scaled.rounded() / SCALE
    }
}

/// 2^960: 2^63 values below it still add up within the range.
const HUGE: f64 = f64::from_bits((960 + 1023) << 52);

/// 2^-128.
const SCALE: f64 = f64::from_bits((1023 - 128) << 52);

/// 2^1022 x [`SCALE`]: below it the huge values fit beside the ordinary ones.
const SCALED_HALF_OF_THE_RANGE: f64 = f64::from_bits((1022 - 128 + 1023) << 52);

/// A sum as a list of parts that do not overlap, least first; seldom more than four.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expansion {
    parts: Vec<f64>,
}

impl Expansion {
    fn add(&mut self, value: f64) {
        let mut carried = value;
        let mut kept = 0;
        for i in 0..self.parts.len() {
            let Some(part) = self.parts.get(i).copied() else { break };
            let (sum, error) = two_sum(carried, part);
            carried = sum;
            if error != 0.0 {
                if let Some(slot) = self.parts.get_mut(kept) {
                    *slot = error;
                }
                kept += 1;
            }
        }
        self.parts.truncate(kept);
        self.parts.push(carried);
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        put_varint(bytes, self.parts.len() as u64);
        for part in &self.parts {
            put_float(bytes, *part);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let count = usize::try_from(reader.varint()?).ok()?;
        if count > reader.left() / size_of::<f64>() {
            return None;
        }
        let parts = (0..count).map(|_| reader.float()).collect::<Option<_>>()?;
        Some(Self { parts })
    }

    #[expect(clippy::float_cmp, reason = "the question is whether a sum was exact")]
    fn rounded(&self) -> f64 {
        let mut parts = self.parts.iter().rev().copied();
        let mut high = parts.next().unwrap_or(0.0);
        let mut low = 0.0;
        for part in parts.by_ref() {
            (high, low) = two_sum(high, part);
            if low != 0.0 {
                break;
            }
        }
        // `low` at exactly half a unit was rounded to even; what lies below it decides whether that was right.
        if let Some(below) = parts.next()
            && (low < 0.0) == (below < 0.0)
            && low != 0.0
        {
            let doubled = low * 2.0;
            let nudged = high + doubled;
            if nudged - high == doubled {
                high = nudged;
            }
        }
        high
    }
}

/// The rounded sum and its exact error (Knuth's two-sum; no branch on the magnitudes).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let b_rounded = sum - a;
    let a_rounded = sum - b_rounded;
    (sum, (a - a_rounded) + (b - b_rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> f64 {
        let mut sum = ExactSum::default();
        for value in values {
            sum.add(*value);
        }
        sum.plus_integer(0)
    }

    #[test]
    fn small_values_survive_large_ones() {
        assert_eq!(sum(&[1e100, 1.0, -1e100]).to_bits(), 1f64.to_bits());
        assert_eq!(sum(&[0.1; 10]).to_bits(), 1f64.to_bits());
    }

    #[test]
    fn ties_are_decided_by_what_lies_below() {
        let half_unit = 2f64.powi(-53);
        assert_eq!(sum(&[1.0, half_unit]).to_bits(), 1f64.to_bits());
        assert_eq!(sum(&[1.0, half_unit, 1e-60]).to_bits(), (1.0 + f64::EPSILON).to_bits());
    }

    #[test]
    fn the_order_does_not_matter() {
        let values = [3.7e15, -1.1, 5e-9, 8.25e3, -3.7e15, 1e-300, 0.3];
        let forward = sum(&values);
        for rotation in 0..values.len() {
            let mut rotated = values;
            rotated.rotate_left(rotation);
            assert_eq!(sum(&rotated).to_bits(), forward.to_bits());
        }
    }

    #[test]
    fn out_of_range_is_not_finite() {
        assert!(!sum(&[f64::MAX, f64::MAX]).is_finite());
        assert!(!sum(&[f64::MIN, f64::MIN]).is_finite());
    }

    #[test]
    fn a_running_total_may_leave_the_range_and_come_back() {
        for values in [[f64::MAX, f64::MAX, -f64::MAX, 1.0], [1.0, f64::MAX, -f64::MAX, f64::MAX]] {
            assert_eq!(sum(&values).to_bits(), f64::MAX.to_bits());
        }
        assert_eq!(sum(&[f64::MAX, 0.1, -f64::MAX]).to_bits(), 0.1f64.to_bits());
        assert_eq!(sum(&[1e300, 1e284, 1e300, -1e300]).to_bits(), (1e300f64 + 1e284).to_bits());
    }

    #[test]
    fn huge_values_and_small_ones_are_rounded_together() {
        let power = |exponent: u64| f64::from_bits((exponent + 1023) << 52);
        for exponent in [960, 995, 1023] {
            // Just above the middle between two floats.
            let values = [power(exponent), power(exponent - 53), f64::from_bits(1)];
            assert!(sum(&values) > power(exponent), "2^{exponent}");
        }
    }
}
