//! `tidegate export postgres` with a real broker and a real PostgreSQL, which each test starts for itself: the table is
//! the topic, whatever is killed, and the dashboard of the results asks it for what it has.
//!
//! Needs PostgreSQL's server (Debian's package `postgresql`), which `tests/run` installs.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may panic, and shows a log where it does"
)]

#[path = "export/dashboard.rs"]
mod dashboard;
#[path = "export/flights.rs"]
mod flights;
#[path = "export/records.rs"]
mod records;
#[path = "export/refusals.rs"]
mod refusals;
#[path = "export/several.rs"]
mod several;
#[path = "export/table.rs"]
mod table;

mod support;
