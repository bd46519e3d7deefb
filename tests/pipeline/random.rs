//! Numbers out of a seed.

/// Numbers out of a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// The same for a place in a list.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.place(of.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for place in (1..list.len()).rev() {
            list.swap(place, self.place(place + 1));
        }
    }

    /// Small numbers as often as large ones: of each size as many.
    pub(crate) fn of_any_size(&mut self, end: u64) -> u64 {
        let sizes = u64::from(end.ilog2()) + 1;
        let size = self.below(sizes);
        (1 << size) - 1 + self.below(1 << size)
    }

    /// Another source of numbers.
    pub(crate) fn branch(&mut self) -> Self {
        Self(self.next())
    }
}
