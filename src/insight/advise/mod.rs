//! Advise: which bound, idle timeout and allowed lateness fit a topic, and what each costs.
//!
//! [`Observations`] sees the records, in a sample that `tidegate advise` reads or in the running service; [`Advice`] is
//! worked out from them and from [`Terms`], and is written as text, JSON or a piece of configuration.
//!
//! The rules, where P99 and the like are percentiles of what was observed:
//!
//! - Every delay is transport (arrival - event time of records in order) + bound + emit interval + commit.
//! - **Bound**: P99 of the out-of-orderness. With a greatest delay, half as much again for what the sample has not shown,
//!   as far as the delay leaves room; what is left for the bound is shown beside the percentile.
//! - **Idle timeout**: at least 3 x the P99 gap of each partition and twice the batch period, at most what the delay
//!   allows: a partition falling silent costs the timeout and up to three emit intervals. Between the two, what is
//!   configured. Where the least is more than the most, the partition is named with the ways out.
//! - **Allowed lateness**: idle detection plus catching up, where records came late after their partition was idle.

mod advice;
mod desk;
mod findings;
mod observe;
mod pauses;
mod rules;
mod sketch;
mod text;

#[cfg(test)]
mod tests;

pub use advice::{
    Advice, Alternative, Contradiction, Delay, Finding, MaxDelay, PartitionAdvice, Recommendation,
    WhatIf,
};
pub use desk::Desk;
pub use observe::{Observations, Observed, Seen};
pub use pauses::{Batches, Pauses};
pub use rules::Terms;
pub use sketch::{Percentiles, Sketch};
