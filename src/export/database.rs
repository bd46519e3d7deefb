//! The database: one connection, and what one transaction of it does.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement, Transaction};

use super::batch::Batch;
use super::failure::DatabaseError;
use super::schema::{Found, differences};
use super::table::{Column, Layout, names};
use super::tls;
use crate::config::PostgresExport;
use crate::event_time::PartitionId;

/// The offset of the next record for each partition that the database knows.
pub(super) type Offsets = BTreeMap<PartitionId, i64>;

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is in the table, and the offsets are behind it.
    Committed,
    /// Another exporter has moved the offsets of one of its partitions; nothing was written.
    MovedOn,
}

/// A database that is connected to when it is needed.
#[derive(Debug)]
pub(super) struct Database {
    runtime: Arc<tokio::runtime::Runtime>,
    export: PostgresExport,
    layout: Layout,
    topic: String,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    upsert: Statement,
    /// Moves the bytes; ends with the connection.
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Database {
    pub(super) fn new(
        runtime: Arc<tokio::runtime::Runtime>,
        export: PostgresExport,
        layout: Layout,
        topic: String,
    ) -> Self {
        Self { runtime, export, layout, topic, connection: None }
    }

    /// The topic whose offsets it holds.
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// Connects, unless that is done, and sees to the tables.
    pub(super) fn connect(&mut self) -> Result<(), DatabaseError> {
        self.with(async |_, _, _| Ok(()))
    }

    /// Where reading goes on.
    pub(super) fn offsets(&mut self) -> Result<Offsets, DatabaseError> {
        self.with(async |connection, layout, topic| {
            let query = format!(
                "SELECT \"partition\", \"next_offset\" FROM {} WHERE \"topic\" = $1",
                layout.offsets_table()
            );
            let rows = connection.client.query(&query, &[&topic]).await?;
            rows.iter()
                .map(|row| {
                    let id = PartitionId { topic: 0, partition: row.try_get(0)? };
                    Ok((id, row.try_get(1)?))
                })
                .collect()
        })
    }

    /// Writes rows and offsets in one transaction. `stored` has the offsets that the database is to hold before it.
    pub(super) fn write(
        &mut self,
        batch: &Batch,
        stored: &Offsets,
    ) -> Result<Written, DatabaseError> {
        self.with(async |connection, layout, topic| {
            let arrays = batch.arrays(layout);
            let upsert = connection.upsert.clone();
            let transaction = connection.client.transaction().await?;
            // First the offsets: whoever has moved them is waited for, and wins.
            for (id, next) in batch.next() {
                if !move_offset(&transaction, layout, topic, *id, stored.get(id), *next).await? {
                    transaction.rollback().await?;
                    return Ok(Written::MovedOn);
                }
            }
            if batch.rows() > 0 {
                transaction.execute(&upsert, &arrays.parameters()).await?;
            }
            transaction.commit().await?;
            Ok(Written::Committed)
        })
    }

    /// Does something with the connection, which is made first if there is none, and given up if that fails.
    fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Connection, &Layout, &str) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let Self { runtime, export, layout, topic, connection: held } = self;
        let outcome = runtime.block_on(async {
            let connection = match held {
                Some(connection) => connection,
                None => held.insert(in_time(CONNECT_PATIENCE, open(export, layout)).await?),
            };
            in_time(PATIENCE, work(connection, layout, topic)).await
        });
        if outcome.is_err() {
            *held = None;
        }
        outcome
    }
}

/// An answer that does not come would hold the loop up, and with it the group.
async fn in_time<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    match tokio::time::timeout(patience, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(DatabaseError::Retry(format!("no answer within {patience:?}"))),
    }
}

async fn open(export: &PostgresExport, layout: &Layout) -> Result<Connection, DatabaseError> {
    let mut config = tokio_postgres::Config::new();
    config
        .host(&export.host)
        .port(export.port)
        .dbname(&export.database)
        .user(&export.user)
        .application_name("tidegate export")
        .ssl_mode(tls::mode(export.tls))
        .connect_timeout(CONNECT_PATIENCE);
    if let Some(password) = &export.password {
        config.password(password.expose());
    }
    let (mut client, connection) = config.connect(tls::connector(export)?).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = &error as &dyn std::error::Error, "the connection ended");
        }
    });
    prepare_tables(&mut client, export, layout).await?;
    let upsert = client.prepare(&layout.upsert()).await?;
    tracing::info!(
        host = export.host,
        port = export.port,
        database = export.database,
        table = layout.table(),
        "connected to the database"
    );
    Ok(Connection { client, upsert, driver })
}

/// Whether the offset was where it should be, and is moved.
async fn move_offset(
    transaction: &Transaction<'_>,
    layout: &Layout,
    topic: &str,
    id: PartitionId,
    stored: Option<&i64>,
    next: i64,
) -> Result<bool, DatabaseError> {
    let table = layout.offsets_table();
    let parameters: Vec<&(dyn ToSql + Sync)> = vec![&topic, &id.partition, &next];
    let changed = if let Some(stored) = stored {
        let update = format!(
            "UPDATE {table} SET \"next_offset\" = $3, \"updated_at\" = now() \
             WHERE \"topic\" = $1 AND \"partition\" = $2 AND \"next_offset\" = $4"
        );
        transaction.execute(&update, &[&parameters[..], &[stored]].concat()).await?
    } else {
        let insert = format!(
            "INSERT INTO {table} (\"topic\", \"partition\", \"next_offset\", \"updated_at\") \
             VALUES ($1, $2, $3, now()) ON CONFLICT DO NOTHING"
        );
        transaction.execute(&insert, &parameters).await?
    };
    Ok(changed == 1)
}

/// Creates the tables that are missing, and looks at those that are there.
async fn prepare_tables(
    client: &mut Client,
    export: &PostgresExport,
    layout: &Layout,
) -> Result<(), DatabaseError> {
    let encoding: String = client.query_one("SHOW server_encoding", &[]).await?.try_get(0)?;
    if encoding != "UTF8" {
        return Err(DatabaseError::Fatal(format!(
            "database \"{}\" has the encoding {encoding}, which does not hold every key; create one with ENCODING 'UTF8'",
            export.database
        )));
    }
    let (table, offsets) = (layout.table(), layout.offsets_table());
    let transaction = client.transaction().await?;
    // Two exporters may start at the same moment.
    transaction.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", &[&table]).await?;
    let has_table = exists(&transaction, &table).await?;
    let has_offsets = exists(&transaction, &offsets).await?;
    if !(export.create_tables || has_table && has_offsets) {
        return Err(DatabaseError::Fatal(format!(
            "table {} does not exist; create it (`tidegate export postgres --show-sql`), or set \
             export.postgres.create_tables = true",
            if has_table { offsets } else { table }
        )));
    }
    if !has_table {
        transaction.batch_execute(&layout.create_table()).await?;
        tracing::info!(table, "table created");
    }
    if !has_offsets {
        transaction.batch_execute(&layout.create_offsets_table()).await?;
        tracing::info!(table = offsets, "table created");
    } else if !has_table {
        // They say what was in the table that is gone.
        transaction.execute(&format!("DELETE FROM {offsets}"), &[]).await?;
        tracing::warn!(
            table = offsets,
            "offsets of a table that is gone: reading from the beginning"
        );
    }
    let identity = layout.identity();
    let wanted = [
        (&table, layout.columns(), names(&identity)),
        (&offsets, Layout::offsets_columns(), vec!["topic", "partition"]),
    ];
    for (table, columns, identity) in wanted {
        check(&transaction, table, &columns, &identity).await?;
    }
    transaction.commit().await?;
    Ok(())
}

async fn exists(transaction: &Transaction<'_>, table: &str) -> Result<bool, DatabaseError> {
    let found = transaction.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await?;
    Ok(found.try_get(0)?)
}

async fn check(
    transaction: &Transaction<'_>,
    table: &str,
    columns: &[Column],
    identity: &[&str],
) -> Result<(), DatabaseError> {
    let mut found = Vec::new();
    for row in transaction.query(COLUMNS, &[&table]).await? {
        found.push(Found {
            name: row.try_get(0)?,
            kind: row.try_get(1)?,
            required: row.try_get(2)?,
            filled: row.try_get(3)?,
        });
    }
    let mut unique = Vec::new();
    for row in transaction.query(UNIQUE_INDEXES, &[&table]).await? {
        let columns: Vec<String> = row.try_get(0)?;
        unique.push(columns.into_iter().collect::<BTreeSet<_>>());
    }
    let differences = differences(table, columns, identity, &found, &unique);
    if differences.is_empty() {
        return Ok(());
    }
    Err(DatabaseError::Fatal(format!(
        "table {table} is not as the configuration wants it (`tidegate export postgres --show-sql`):\n  {}",
        differences.join("\n  ")
    )))
}

/// Name, type, whether it must be filled, whether the database fills it.
const COLUMNS: &str = "
    SELECT attname::text, format_type(atttypid, atttypmod), attnotnull,
           atthasdef OR attidentity <> '' OR attgenerated <> ''
    FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
    ORDER BY attnum";

/// The columns of each index that decides on conflicts.
const UNIQUE_INDEXES: &str = "
    SELECT array_agg(a.attname::text)
    FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indimmediate AND i.indisvalid
      AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
    GROUP BY i.indexrelid";

/// How long the database may take for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take for a batch.
const PATIENCE: Duration = Duration::from_secs(30);
