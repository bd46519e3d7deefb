//! The command line.

pub mod live;
