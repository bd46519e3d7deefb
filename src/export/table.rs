//! The tables as the configuration wants them, and the SQL that makes and fills them.

use crate::config::{Aggregate, Config, KeyFrom, PostgresExport, ValueType};
use crate::event_time::AggregateFunction;

/// The type of a column, by the name that PostgreSQL itself gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    Text,
    Integer,
    BigInt,
    Numeric,
    Double,
    Timestamp,
}

impl ColumnType {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
            Self::Numeric => "numeric",
            Self::Double => "double precision",
            Self::Timestamp => "timestamp with time zone",
        }
    }

    /// The type that holds every value of an aggregate. Integers of records are of up to 64 bits, their sums have no
    /// limit, and without `type` an aggregate may be an integer in one row and a float in another.
    fn of(aggregate: &Aggregate) -> Self {
        match (aggregate.function, aggregate.value_type) {
            (AggregateFunction::Count, _)
            | (AggregateFunction::Min | AggregateFunction::Max, ValueType::Integer) => Self::BigInt,
            (AggregateFunction::Avg, _) | (_, ValueType::Float) => Self::Double,
            (
                AggregateFunction::Sum | AggregateFunction::Min | AggregateFunction::Max,
                ValueType::Integer | ValueType::Number,
            ) => Self::Numeric,
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: ColumnType,
    pub(super) required: bool,
}

impl Column {
    fn required(name: &str, kind: ColumnType) -> Self {
        Self { name: name.to_owned(), kind, required: true }
    }

    fn optional(name: &str, kind: ColumnType) -> Self {
        Self { name: name.to_owned(), kind, required: false }
    }

    /// As `CREATE TABLE` and `ADD COLUMN` have it.
    pub(super) fn definition(&self) -> String {
        let required = if self.required { " NOT NULL" } else { "" };
        format!("{} {}{required}", quoted(&self.name), self.kind.name())
    }
}

/// Which rows there are and what is in them.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    schema: String,
    table: String,
    /// The names of the key's fields, or `key` for the message key.
    pub(super) keys: Vec<String>,
    /// Whether a key's fields may be of several types: `1` and `"1"` are two keys.
    pub(super) typed_keys: bool,
    /// Whether rows of one key and window are told apart by the partition of the input.
    pub(super) partition: Option<PartitionFrom>,
    /// The names of the aggregates, and the types of their columns.
    pub(super) aggregates: Vec<(String, ColumnType)>,
}

/// Where a result says which partition of the input it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartitionFrom {
    /// In its header `tidegate.partition`: keys that move when the topic grows have two rows.
    Header,
    /// In the field `partition`: partial results.
    Field,
}

impl Layout {
    pub(super) fn new(config: &Config, export: &PostgresExport) -> Self {
        let (keys, typed_keys, partition) = match &config.key.from {
            KeyFrom::Message => {
                // One shard for all partitions has one row.
                let of_one = (!config.key.needs_all_partitions()).then_some(PartitionFrom::Header);
                (vec!["key".to_owned()], false, of_one)
            }
            KeyFrom::Fields(fields) => {
                (fields.clone(), true, config.key.partial.then_some(PartitionFrom::Field))
            }
        };
        let column = |aggregate: &Aggregate| (aggregate.name.clone(), ColumnType::of(aggregate));
        Self {
            schema: export.schema.clone(),
            table: export.table.clone(),
            keys,
            typed_keys,
            partition,
            aggregates: config.aggregates.iter().map(column).collect(),
        }
    }

    /// The table, as SQL names it.
    pub(super) fn table(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.table))
    }

    /// The table of the offsets, as SQL names it.
    pub(super) fn offsets_table(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&format!("{}_offsets", self.table)))
    }

    /// All columns, in the order of [`super::batch::Arrays`].
    pub(super) fn columns(&self) -> Vec<Column> {
        let mut columns = self.identity();
        columns.push(Column::required("window_end", ColumnType::Timestamp));
        columns.extend(self.aggregates.iter().map(|(name, kind)| Column::optional(name, *kind)));
        columns.push(Column::optional("overflow", ColumnType::Text));
        columns.push(Column::required("pane_index", ColumnType::BigInt));
        columns.push(Column::required("pane_timing", ColumnType::Text));
        columns.push(Column::required("updated_at", ColumnType::Timestamp));
        columns
    }

    /// The columns that tell one row from all others. The time comes first, since charts ask for a stretch of time.
    pub(super) fn identity(&self) -> Vec<Column> {
        let mut columns = vec![Column::required("window_start", ColumnType::Timestamp)];
        columns.extend(self.keys.iter().map(|name| Column::required(name, ColumnType::Text)));
        if self.typed_keys {
            columns.push(Column::required("key_types", ColumnType::Text));
        }
        if self.partition.is_some() {
            columns.push(Column::required("partition", ColumnType::Integer));
        }
        columns
    }

    pub(super) fn offsets_columns() -> Vec<Column> {
        vec![
            Column::required("topic", ColumnType::Text),
            Column::required("partition", ColumnType::Integer),
            Column::required("next_offset", ColumnType::BigInt),
            Column::required("updated_at", ColumnType::Timestamp),
        ]
    }

    pub(super) fn create_table(&self) -> String {
        create(&self.table(), &self.columns(), &names(&self.identity()))
    }

    pub(super) fn create_offsets_table(&self) -> String {
        create(&self.offsets_table(), &Self::offsets_columns(), &["topic", "partition"])
    }

    /// Writes rows that come as one array for each column but the last. A row that is there is replaced unless its pane
    /// is a later one.
    pub(super) fn upsert(&self) -> String {
        let columns = self.columns();
        let (mut arrays, mut selected, mut inserted) = (Vec::new(), Vec::new(), Vec::new());
        let written = columns.iter().filter(|column| column.name != "updated_at");
        for (column, number) in written.clone().zip(1..) {
            let sent = self.sent_as(column);
            arrays.push(format!("${number}::{sent}[]"));
            selected.push(format!("c{number}::{}", column.kind.name()));
            inserted.push(quoted(&column.name));
        }
        let aliases: Vec<_> = (1..=arrays.len()).map(|number| format!("c{number}")).collect();
        let identity = self.identity();
        let replaced = columns.iter().filter(|column| !identity.contains(column));
        let replaced: Vec<_> =
            replaced.map(|column| format!("{0} = EXCLUDED.{0}", quoted(&column.name))).collect();
        format!(
            "INSERT INTO {table} AS held ({inserted}, \"updated_at\")\n\
             SELECT {selected}, now()\n\
             FROM unnest({arrays}) AS new({aliases})\n\
             ON CONFLICT ({identity}) DO UPDATE SET {replaced}\n\
             WHERE held.\"pane_index\" <= EXCLUDED.\"pane_index\"",
            table = self.table(),
            inserted = inserted.join(", "),
            selected = selected.join(", "),
            arrays = arrays.join(", "),
            aliases = aliases.join(", "),
            identity = list(&names(&identity)),
            replaced = replaced.join(", "),
        )
    }

    /// Aggregates travel as the text that the result has, so that PostgreSQL alone makes numbers of them.
    fn sent_as(&self, column: &Column) -> &'static str {
        let is_aggregate = self.aggregates.iter().any(|(name, _)| *name == column.name);
        if is_aggregate { ColumnType::Text.name() } else { column.kind.name() }
    }
}

/// A name as SQL takes it, whatever is in it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Names with commas between them.
pub(super) fn list(names: &[&str]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

pub(super) fn names(columns: &[Column]) -> Vec<&str> {
    columns.iter().map(|column| column.name.as_str()).collect()
}

fn create(table: &str, columns: &[Column], key: &[&str]) -> String {
    let lines: Vec<_> = columns.iter().map(|column| format!("  {}", column.definition())).collect();
    format!("CREATE TABLE {table} (\n{},\n  PRIMARY KEY ({})\n)", lines.join(",\n"), list(key))
}
