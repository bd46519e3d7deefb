//! A table that is there already against the one that the configuration wants.

use std::collections::BTreeSet;

use super::table::{Column, list, names, quoted};

/// A column as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: String,
    /// PostgreSQL's own name of its type.
    pub(super) kind: String,
    pub(super) required: bool,
    /// The database fills it where nobody does.
    pub(super) filled: bool,
}

/// What is wrong with a table, each with the SQL that would put it right.
///
/// More columns are welcome as long as they need not be filled; `unique` has the columns of each unique index.
pub(super) fn differences(
    table: &str,
    wanted: &[Column],
    identity: &[&str],
    found: &[Found],
    unique: &[BTreeSet<String>],
) -> Vec<String> {
    let mut differences = Vec::new();
    for column in wanted {
        let name = quoted(&column.name);
        let kind = column.kind.name();
        match found.iter().find(|found| found.name == column.name) {
            None if column.required => differences.push(format!(
                "column {name} ({kind}) is missing, and rows that are there would need a value for it: drop both tables \
                 to fill them anew from the topic, or ALTER TABLE {table} ADD COLUMN {} DEFAULT ...;",
                column.definition()
            )),
            None => differences.push(format!(
                "column {name} is missing: ALTER TABLE {table} ADD COLUMN {};",
                column.definition()
            )),
            Some(found) if found.kind != kind => differences.push(format!(
                "column {name} is {}, and must be {kind}: ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind} USING \
                 {name}::{kind};",
                found.kind
            )),
            Some(found) if found.required && !column.required => differences.push(format!(
                "column {name} is NOT NULL, and some results have no value for it: ALTER TABLE {table} ALTER COLUMN {name} \
                 DROP NOT NULL;"
            )),
            Some(_) => {}
        }
    }
    let known: BTreeSet<&str> = names(wanted).into_iter().collect();
    for more in found.iter().filter(|found| !known.contains(found.name.as_str())) {
        if more.required && !more.filled {
            let name = quoted(&more.name);
            differences.push(format!(
                "column {name} is NOT NULL without a default, and nothing configured fills it: ALTER TABLE {table} ALTER \
                 COLUMN {name} DROP NOT NULL;"
            ));
        }
    }
    let wanted: BTreeSet<String> = identity.iter().map(|name| (*name).to_owned()).collect();
    if !unique.contains(&wanted) {
        let columns = list(identity);
        differences.push(format!(
            "no primary key or unique index is on exactly ({columns}): ALTER TABLE {table} ADD UNIQUE ({columns});"
        ));
    }
    differences
}
