//! The only folder that knows rdkafka.

pub mod embedded;

pub mod load;
