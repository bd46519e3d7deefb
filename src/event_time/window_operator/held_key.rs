//! A key as an open window holds it.

use std::ops::Deref;

/// The bytes of a key. Those of most keys are few and need no allocation of their own.
#[derive(Clone, Debug)]
pub(super) enum HeldKey {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl HeldKey {
    /// What it takes beside itself.
    pub(super) fn bytes_elsewhere(length: usize) -> usize {
        if length <= SHORT { 0 } else { length + ALLOCATION }
    }
}

impl From<&[u8]> for HeldKey {
    fn from(key: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match (u8::try_from(key.len()), bytes.get_mut(..key.len())) {
            (Ok(length), Some(place)) => {
                place.copy_from_slice(key);
                Self::Short { length, bytes }
            }
            _ => Self::Long(key.into()),
        }
    }
}

impl Deref for HeldKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Self::Long(bytes) => bytes,
        }
    }
}

/// So that it has 24 bytes.
const SHORT: usize = 22;

/// What an allocator adds to a key of its own.
const ALLOCATION: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_any_length_is_what_it_was() {
        assert_eq!(size_of::<HeldKey>(), 24);
        for length in [0, 1, 21, 22, 23, 24, 255, 256, 300, 70_000] {
            let key: Vec<u8> = (0..=255).cycle().take(length).collect();
            let held = HeldKey::from(&*key);
            assert_eq!(*held, *key, "{length}");
            assert_eq!(matches!(held, HeldKey::Long(_)), length > 22, "{length}");
            assert_eq!(HeldKey::bytes_elsewhere(length) == 0, length <= 22);
        }
    }
}
