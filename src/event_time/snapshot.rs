//! Bytes of state: what a generator's snapshot and a shard's changelog are written in.
//!
//! A generator's snapshot is a number for its kind and version, then big-endian integers. The changelog has numbers of
//! as few bytes as they need (seven bits in each, the lowest first; a set top bit: more follow), signed ones zigzag.

pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(version: u8) -> Self {
        Self(vec![version])
    }

    pub(crate) fn i64(mut self, value: i64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Appends a number of as few bytes as it needs.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

/// The same for numbers of up to 128 bits.
pub(crate) fn put_wide(bytes: &mut Vec<u8>, mut value: u128) {
    while value > u128::from(u64::MAX) {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    put_varint(bytes, u64::try_from(value).unwrap_or(u64::MAX));
}

/// Appends a signed number: those near zero take few bytes.
pub(crate) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put_varint(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// The same for numbers of up to 128 bits.
pub(crate) fn put_wide_signed(bytes: &mut Vec<u8>, value: i128) {
    put_wide(bytes, ((value << 1) ^ (value >> 127)).cast_unsigned());
}

/// Appends bytes with their length before them.
pub(crate) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

/// Appends a float as it is, bit by bit.
pub(crate) fn put_float(bytes: &mut Vec<u8>, value: f64) {
    bytes.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Reads bytes back. Whatever they are, it neither panics nor takes more than is there: `None` says that they are not
/// what was asked for.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// `None` if the bytes are of another kind or version.
    pub(crate) fn new(bytes: &'a [u8], version: u8) -> Option<Self> {
        let (first, rest) = bytes.split_first()?;
        (*first == version).then_some(Self(rest))
    }

    /// All of the bytes.
    pub(crate) fn whole(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.array()?))
    }

    pub(crate) fn remaining_i64(&self) -> usize {
        self.0.len() / size_of::<i64>()
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        if let Some(first) = self.one_byte() { Some(first) } else { self.long_varint() }
    }

    fn long_varint(&mut self) -> Option<u64> {
        if let Some(value) = self.word() {
            return Some(value);
        }
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7F);
            // Of the tenth byte only one bit is left.
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// A number of one byte.
    #[inline]
    fn one_byte(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        if *first >= 0x80 {
            return None;
        }
        self.0 = rest;
        Some(u64::from(*first))
    }

    /// A number of at most eight bytes, where so many are left: all of them at once, since a restore reads millions.
    fn word(&mut self) -> Option<u64> {
        let word = u64::from_le_bytes(*self.0.first_chunk()?);
        let ends = !word & 0x8080_8080_8080_8080;
        // All bits up to the first that is set; all there are where none is.
        let value = word & (ends ^ ends.wrapping_sub(1)) & 0x7F7F_7F7F_7F7F_7F7F;
        let value = value & 0x007F_007F_007F_007F | (value & 0x7F00_7F00_7F00_7F00) >> 1;
        let value = value & 0x0000_3FFF_0000_3FFF | (value & 0x3FFF_0000_3FFF_0000) >> 2;
        let value = value & 0x0FFF_FFFF | (value & 0x0FFF_FFFF_0000_0000) >> 4;
        let length = ends.trailing_zeros() as usize / 8 + 1;
        // Where it has more bytes, the length is nine.
        if length > 8 {
            return None;
        }
        self.0 = self.0.get(length..)?;
        Some(value)
    }

    pub(crate) fn wide(&mut self) -> Option<u128> {
        if let Some(value) = self.one_byte().or_else(|| self.word()) {
            return Some(u128::from(value));
        }
        let mut value = 0;
        for shift in (0..128).step_by(7) {
            let byte = self.u8()?;
            let bits = u128::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(crate) fn wide_signed(&mut self) -> Option<i128> {
        let value = self.wide()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// A finite float.
    pub(crate) fn float(&mut self) -> Option<f64> {
        let value = f64::from_bits(u64::from_le_bytes(self.array()?));
        value.is_finite().then_some(value)
    }

    /// Bytes with their length before them.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.varint()?;
        self.take(length)
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        self.0.split_off(..usize::try_from(length).ok()?)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_as_few_bytes_as_they_need() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put_varint(&mut bytes, value);
                let mut wide = Vec::new();
                put_wide(&mut wide, u128::from(value));
                assert_eq!(bytes, wide);
                let bits = 64 - value.leading_zeros() as usize;
                assert_eq!(bytes.len(), bits.div_ceil(7).max(1), "{value}");
                assert_eq!(Reader::whole(&bytes).varint(), Some(value));
                assert_eq!(Reader::whole(&bytes).wide(), Some(u128::from(value)));
                for more in 1..12 {
                    for next in [0, 0x7F, 0x80, 0xFF] {
                        let bytes = [&bytes[..], &vec![next; more]].concat();
                        let mut reader = Reader::whole(&bytes);
                        assert_eq!((reader.varint(), reader.left()), (Some(value), more));
                        let mut reader = Reader::whole(&bytes);
                        assert_eq!((reader.wide(), reader.left()), (Some(value.into()), more));
                    }
                }
                bytes.clear();
                put_signed(&mut bytes, value.cast_signed());
                assert_eq!(Reader::whole(&bytes).signed(), Some(value.cast_signed()));
            }
        }
        for value in [0, 1, -1, i128::MAX, i128::MIN, i128::from(i64::MIN) * 3] {
            let mut bytes = Vec::new();
            put_wide_signed(&mut bytes, value);
            assert_eq!(Reader::whole(&bytes).wide_signed(), Some(value));
        }
    }

    #[test]
    fn what_is_too_long_or_cut_off_is_refused() {
        assert_eq!(Reader::whole(&[0xFF; 9]).varint(), None);
        assert_eq!(Reader::whole(&[0xFF; 30]).varint(), None);
        assert_eq!(Reader::whole(&[0xFF; 30]).wide(), None);
        let mut greatest = [0xFF; 10];
        greatest[9] = 1;
        assert_eq!(Reader::whole(&greatest).varint(), Some(u64::MAX));
        greatest[9] = 2;
        assert_eq!(Reader::whole(&greatest).varint(), None);
        assert_eq!(Reader::whole(&[5, 1, 2]).bytes(), None);
        let mut infinite = Vec::new();
        put_float(&mut infinite, f64::INFINITY);
        assert_eq!(Reader::whole(&infinite).float(), None);
    }
}
