//! Rights on Kafka that turn out to be missing.

use std::fmt;

/// An operation that the brokers refuse, and on what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRight {
    /// As ACLs call it.
    pub operation: &'static str,
    /// The kind of resource.
    pub resource: &'static str,
    /// Which one; several have commas between them.
    pub name: String,
}

impl MissingRight {
    pub(super) fn topic(operation: &'static str, name: impl Into<String>) -> Self {
        Self { operation, resource: "topic", name: name.into() }
    }

    pub(super) fn group(name: impl Into<String>) -> Self {
        Self { operation: "Read", resource: "group", name: name.into() }
    }

    pub(super) fn transactional_id(name: impl Into<String>) -> Self {
        Self { operation: "Write", resource: "transactional id", name: name.into() }
    }
}

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, resource, name } = self;
        write!(
            f,
            "the brokers refuse operation {operation} on {resource} `{name}`; give the user of this service the right to it"
        )
    }
}
