//! The aggregation key as the bytes that the core holds, compares and sorts.
//!
//! One part per key field: a tag, then the value, such that the order of the bytes is the order of the parts: booleans
//! before integers before text, integers by value, text by its UTF-8. In all parts but the last a zero byte of text is
//! followed by 0xFF and the text ends with two zero bytes.

use std::borrow::Cow;

const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INTEGER: u8 = 3;
const TEXT: u8 = 4;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart<'a> {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i128),
    /// A text; the empty one is a key like any other.
    Text(Cow<'a, str>),
}

impl KeyPart<'_> {
    /// Appends the part. `last`: no other follows.
    pub(crate) fn write(&self, last: bool, bytes: &mut Vec<u8>) {
        match self {
            Self::Bool(value) => bytes.push(if *value { TRUE } else { FALSE }),
            Self::Integer(value) => {
                bytes.push(INTEGER);
                // With the sign bit turned round, the order of the bytes is that of the numbers.
                bytes.extend_from_slice(&(value ^ i128::MIN).to_be_bytes());
            }
            Self::Text(text) => {
                bytes.push(TEXT);
                if last {
                    bytes.extend_from_slice(text.as_bytes());
                    return;
                }
                for byte in text.bytes() {
                    bytes.push(byte);
                    if byte == 0 {
                        bytes.push(0xFF);
                    }
                }
                bytes.extend_from_slice(&[0, 0]);
            }
        }
    }

    /// The part as plain text.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Integer(value) => Cow::Owned(value.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// Reads the parts back, in their order.
#[derive(Clone, Debug)]
pub struct KeyParts<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> KeyParts<'a> {
    /// The parts of a key with this many fields.
    pub fn new(key: &'a [u8], fields: usize) -> Self {
        Self { rest: key, left: fields }
    }

    fn text(&mut self) -> Cow<'a, str> {
        if self.left == 0 {
            let text = std::mem::take(&mut self.rest);
            return String::from_utf8_lossy(text);
        }
        let mut text = Vec::new();
        while let Some((byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            if *byte == 0 {
                let marker = self.rest.split_off_first();
                if marker != Some(&0xFF) {
                    break;
                }
            }
            text.push(*byte);
        }
        Cow::Owned(String::from_utf8_lossy(&text).into_owned())
    }
}

impl<'a> Iterator for KeyParts<'a> {
    type Item = KeyPart<'a>;

    fn next(&mut self) -> Option<KeyPart<'a>> {
        self.left = self.left.checked_sub(1)?;
        match *self.rest.split_off_first()? {
            FALSE => Some(KeyPart::Bool(false)),
            TRUE => Some(KeyPart::Bool(true)),
            INTEGER => {
                let (bytes, rest) = self.rest.split_first_chunk()?;
                self.rest = rest;
                Some(KeyPart::Integer(i128::from_be_bytes(*bytes) ^ i128::MIN))
            }
            _ => Some(KeyPart::Text(self.text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(parts: &[KeyPart<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            part.write(i + 1 == parts.len(), &mut bytes);
        }
        bytes
    }

    fn text(text: &str) -> KeyPart<'_> {
        KeyPart::Text(Cow::Borrowed(text))
    }

    #[test]
    fn parts_come_back_as_they_were() {
        for parts in [
            vec![text("")],
            vec![text("a\0b"), text("c\0")],
            vec![KeyPart::Integer(-7), KeyPart::Bool(true), text("x")],
            vec![text("\0\0"), KeyPart::Bool(false)],
        ] {
            let bytes = key(&parts);
            assert_eq!(KeyParts::new(&bytes, parts.len()).collect::<Vec<_>>(), parts);
        }
    }

    #[test]
    fn the_order_of_bytes_is_the_order_of_parts() {
        let ordered = [
            vec![KeyPart::Bool(false), text("z")],
            vec![KeyPart::Bool(true), text("a")],
            vec![KeyPart::Integer(i128::from(i64::MIN)), text("a")],
            vec![KeyPart::Integer(-1), text("a")],
            vec![KeyPart::Integer(0), text("a")],
            vec![KeyPart::Integer(10), text("a")],
            vec![text(""), text("z")],
            vec![text("a"), text("b")],
            vec![text("a\0"), text("a")],
            vec![text("ab"), text("a")],
        ];
        let keys: Vec<_> = ordered.iter().map(|parts| key(parts)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
    }
}
