//! Bytes to core types and back: records in, results, late records and dead letters out. Pure, like the core.

mod path;
mod reason;

pub use path::{FieldPath, FieldPathFault};

pub use reason::Reason;
