//! Numbers that are the same for the same seed.

/// splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of a stream of its own, for something that has a number.
    pub(crate) fn stream(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below this.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// The same as a number with a sign.
    pub(crate) fn up_to(&mut self, end: u32) -> i64 {
        i64::try_from(self.below(u64::from(end))).unwrap()
    }

    /// From 0 to below 2^60.
    pub(crate) fn up_to_60_bits(&mut self) -> i64 {
        (self.next() >> 4).cast_signed()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = usize::try_from(self.below(u64::try_from(at).unwrap() + 1)).unwrap();
            items.swap(at, other);
        }
    }

    pub(crate) fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(items.len()).unwrap();
        if count == 0 {
            return None;
        }
        items.get(usize::try_from(self.below(count)).unwrap())
    }
}
