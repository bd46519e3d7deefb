//! What goes wrong with the database, named by what the caller must do.

use std::error::Error as _;

use tokio_postgres::error::SqlState;

/// Why something could not be done in the database.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseError {
    /// Connect anew after a while, and go on from what the database holds.
    #[error("{0}")]
    Retry(String),
    /// End with this error.
    #[error("{0}")]
    Fatal(String),
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let said = in_words(&error);
        match error.code() {
            Some(code) if is_for_good(code) => Self::Fatal(said),
            // Refused credentials and certificates have no code where the client is the one to refuse.
            None if CLIENTS_OWN.iter().any(|kind| said.starts_with(kind))
                && !by_the_network(&error) =>
            {
                Self::Fatal(said)
            }
            _ => Self::Retry(said),
        }
    }
}

/// The classes of errors that waiting does not mend: what is asked for is wrong, is not there, or is not allowed. All
/// others (the connection, resources, a shutdown, a rollback, the system) may be over a moment later.
fn is_for_good(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    FOR_GOOD.contains(&class) && *code != SqlState::READ_ONLY_SQL_TRANSACTION
}

/// With detail and hint, as the server gives them.
fn in_words(error: &tokio_postgres::Error) -> String {
    let Some(server) = error.as_db_error() else {
        let mut said = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !said.contains(&more) {
                said = format!("{said}: {more}");
            }
            cause = error.source();
        }
        return said;
    };
    let said = format!("{} (SQLSTATE {})", server.message(), server.code().code());
    let more = [server.detail(), server.hint()].into_iter().flatten();
    more.fold(said, |said, more| said + "; " + more)
}

/// Whether what failed is the connection that it went over.
fn by_the_network(error: &tokio_postgres::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        let ssl =
            error.downcast_ref::<openssl::ssl::Error>().and_then(openssl::ssl::Error::io_error);
        if ssl.is_some() || error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Feature not supported, data, integrity, authorization, catalog, schema, syntax and rights, check option, limits.
const FOR_GOOD: [&str; 9] = ["0A", "22", "23", "28", "3D", "3F", "42", "44", "54"];

/// How the client's own refusals begin.
const CLIENTS_OWN: [&str; 3] =
    ["error performing TLS handshake", "authentication error", "invalid configuration"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waiting_does_not_mend_is_told_from_what_it_may() {
        for code in [
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_CATALOG_NAME,
            SqlState::UNDEFINED_TABLE,
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            SqlState::NOT_NULL_VIOLATION,
        ] {
            assert!(is_for_good(&code), "{code:?}");
        }
        for code in [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::DISK_FULL,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::CONNECTION_FAILURE,
        ] {
            assert!(!is_for_good(&code), "{code:?}");
        }
    }
}
