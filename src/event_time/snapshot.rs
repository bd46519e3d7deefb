//! Bytes of a generator's snapshot: a number for its kind and version, then big-endian integers.

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

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// `None` if the bytes are of another kind or version.
    pub(crate) fn new(bytes: &'a [u8], version: u8) -> Option<Self> {
        let (first, rest) = bytes.split_first()?;
        (*first == version).then_some(Self(rest))
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i64::from_be_bytes(*value))
    }

    pub(crate) fn remaining_i64(&self) -> usize {
        self.0.len() / size_of::<i64>()
    }
}
