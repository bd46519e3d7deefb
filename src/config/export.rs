//! Where the results are exported to.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::properties::HIDDEN;

/// The table of a PostgreSQL database that has the last pane of each window and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresExport {
    /// The table; beside it there is `<table>_offsets`.
    pub table: String,
    /// The schema of both.
    pub schema: String,
    /// Name or address of the server, or the folder of its Unix socket.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The database.
    pub database: String,
    /// Who connects.
    pub user: String,
    /// The user's password, where it needs one.
    pub password: Option<Secret>,
    /// Whether the connection is encrypted, and what is verified.
    pub tls: DatabaseTls,
    /// The certificates of the authorities that are trusted; `None`: the system's.
    pub tls_ca_file: Option<PathBuf>,
    /// The consumer group that reads the results topic.
    pub group_id: String,
    /// Whether missing tables are created.
    pub create_tables: bool,
    /// The most rows of one database transaction.
    pub batch_rows: usize,
    /// The longest time between reading a result and writing it.
    pub batch_interval: Duration,
    /// Where metrics and probes of the exporter are; `None`: nowhere.
    pub listen: Option<SocketAddr>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for whom it is meant.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// What is asked of the connection to the database; the words and their meaning are those of libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseTls {
    /// Not encrypted.
    Disable,
    /// Encrypted if the server can; nothing is verified.
    Prefer,
    /// Encrypted; nothing is verified.
    Require,
    /// Encrypted; the certificate must be by a trusted authority and for this host.
    VerifyFull,
}

/// Columns that the table has whatever is configured, and those that PostgreSQL keeps for itself. Fields and aggregates
/// of an exported job have other names.
pub const RESERVED_COLUMNS: [&str; 14] = [
    "key_types",
    "partition",
    "window_start",
    "window_end",
    "overflow",
    "pane_index",
    "pane_timing",
    "updated_at",
    "tableoid",
    "xmin",
    "cmin",
    "xmax",
    "cmax",
    "ctid",
];
