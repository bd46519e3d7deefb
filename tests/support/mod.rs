//! What the tests against a real broker share.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

pub(crate) mod acls;
pub(crate) mod broker;
pub(crate) mod brokers;
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod endpoint;
pub(crate) mod job;
pub(crate) mod ledger;
pub(crate) mod oracle;
pub(crate) mod postgres;
pub(crate) mod process;
pub(crate) mod raw;
pub(crate) mod record;
pub(crate) mod rights;
pub(crate) mod secured;
