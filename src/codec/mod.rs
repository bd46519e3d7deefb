//! Bytes to core types and back: records in, results, late records and dead letters out, state to and fro. Pure, like
//! the core.

pub mod changelog;
mod decode;
mod encode;
mod extract;
mod key;
mod number;
mod path;
mod reason;

pub use path::{FieldPath, FieldPathFault};

pub use reason::Reason;

pub use key::{KeyPart, KeyParts};

pub use decode::{Decoded, Decoder, RawRecord, Refusal};

#[cfg(test)]
mod tests;
pub(crate) use encode::partition_name;
pub use encode::{Encoded, Encoder, ResultRow};
