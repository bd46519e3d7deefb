//! What the page shows: where everything stands now, what has happened lately, and how disordered the records are.
//!
//! All of it is made from what the loops publish anyway, outside of them. What is kept is bounded: a ring of points and
//! a ring of events in the [`Journal`]; and so is what is sent, whatever the number of partitions and windows.

mod disorder;
mod journal;
mod lanes;
mod outcomes;
mod picture;
#[cfg(test)]
mod tests;

pub use disorder::{Bound, Class, Disorder, OfTopic};
pub use journal::{Event, Journal, Point};
pub use lanes::{Lane, Lanes, Rest};
pub use outcomes::Outcomes;
pub use picture::{Fired, Open, Picture, Process, Windows};
