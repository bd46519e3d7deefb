//! `[export.postgres]`: the table that results are exported to, and how its database is reached.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{kafka, parse_listen, values};
use crate::config::export::{DatabaseTls, PostgresExport, RESERVED_COLUMNS, Secret};
use crate::config::fault::{Noted, Report};
use crate::config::key_path::KeyPath;
use crate::config::settings::{PostgresSettings, Settings};
use crate::config::{Aggregate, Key, KeyFrom};
use crate::event_time::Panes;

/// What the export depends on, as far as it could be read.
pub(super) struct Exported<'a> {
    pub(super) key: Option<&'a Key>,
    pub(super) aggregates: Option<&'a [Aggregate]>,
    pub(super) panes: Option<Panes>,
}

/// Where there is no table, nothing is exported; faults of the other keys are told all the same.
pub(super) fn parse(
    settings: &Settings,
    exported: &Exported<'_>,
    report: &mut Report<'_>,
) -> Result<Option<PostgresExport>, Noted> {
    let group = settings.kafka.group_id.as_deref();
    let settings = &settings.export.postgres;
    let section = KeyPath::of("export.postgres");
    let table = report.optional(&section.key("table"), settings.table.as_ref(), |text| {
        identifier(text, LONGEST_IDENTIFIER - OFFSETS_SUFFIX.len())
    });
    let mut value = |name: &str, text: &Option<String>, hint: &str| {
        report.value(&section.key(name), text.as_ref(), hint, values::filled)
    };
    let host = value("host", &settings.host, "write \"localhost\"");
    let database = value("database", &settings.database, "write the name of the database");
    let user = value("user", &settings.user, "write the name of the database user");
    let schema = report.value(
        &section.key("schema"),
        settings.schema.as_ref(),
        "write \"public\"",
        |text| identifier(text, LONGEST_IDENTIFIER),
    );
    let port = report.value(&section.key("port"), settings.port.as_ref(), "write 5432", |text| {
        values::whole(text, &(1..=u16::MAX))
    });
    let password = parse_password(settings, &section, report);
    let tls =
        report.value(&section.key("tls"), settings.tls.as_ref(), "write \"prefer\"", |text| {
            values::word(text, &TLS)
        });
    let tls_ca_file =
        report.optional(&section.key("tls_ca_file"), settings.tls_ca_file.as_ref(), readable);
    let group_id = parse_group(settings, group, &section, report);
    let create_tables = report.value(
        &section.key("create_tables"),
        settings.create_tables.as_ref(),
        "write true",
        values::flag,
    );
    let batch = parse_batch(settings, &section, report);
    let listen = report.value(
        &section.key("listen"),
        settings.listen.as_ref(),
        "write \"off\"",
        parse_listener,
    );
    let Some(table) = table? else { return Ok(None) };
    check_results(exported, &section, report);
    report.sound(&section, ())?;
    let (batch_rows, batch_interval) = batch?;
    Ok(Some(PostgresExport {
        table,
        schema: schema?,
        host: host?,
        port: port?,
        database: database?,
        user: user?,
        password: password?,
        tls: tls?,
        tls_ca_file: tls_ca_file?,
        group_id: group_id?,
        create_tables: create_tables?,
        batch_rows,
        batch_interval,
        listen: listen?,
    }))
}

fn parse_batch(
    settings: &PostgresSettings,
    section: &KeyPath,
    report: &mut Report<'_>,
) -> Result<(usize, Duration), Noted> {
    let rows = report.value(
        &section.key("batch_rows"),
        settings.batch_rows.as_ref(),
        "write 5000",
        |text| values::whole(text, &(1..=100_000)),
    );
    let interval = report.value(
        &section.key("batch_interval"),
        settings.batch_interval.as_ref(),
        "write \"1s\"",
        values::duration,
    );
    Ok((rows?, interval?))
}

pub(super) fn parse_listener(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        text => parse_listen(text).map(Some).map_err(|problem| format!("{problem}, or \"off\"")),
    }
}

/// A name that PostgreSQL takes whole: it would cut a longer one off without an error.
fn identifier(text: &str, most: usize) -> Result<String, String> {
    let text = values::filled(text)?;
    if text.contains('\0') {
        return Err(format!("{text:?} has a zero byte in it; PostgreSQL takes none"));
    }
    if text.len() > most {
        return Err(format!("has {} bytes; a name has at most {most} here", text.len()));
    }
    Ok(text)
}

fn parse_password(
    settings: &PostgresSettings,
    section: &KeyPath,
    report: &mut Report<'_>,
) -> Result<Option<Secret>, Noted> {
    let file_key = section.key("password_file");
    match (&settings.password, &settings.password_file) {
        (Some(_), Some(_)) => {
            Err(report.fault(&file_key, "there is also `password`; give one of them"))
        }
        (None, Some(_)) => report
            .optional(&file_key, settings.password_file.as_ref(), kafka::read_secret)
            .map(|password| password.map(Secret::new)),
        (password, None) => Ok(password.clone().map(Secret::new)),
    }
}

pub(super) fn readable(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    std::fs::File::open(path)
        .map(|_| path.to_owned())
        .map_err(|error| format!("cannot read {text}: {error}"))
}

/// A group of its own: the service's reads other topics.
fn parse_group(
    settings: &PostgresSettings,
    service: Option<&str>,
    section: &KeyPath,
    report: &mut Report<'_>,
) -> Result<String, Noted> {
    let key = section.key("group_id");
    let group = report.optional(&key, settings.group_id.as_ref(), values::filled)?;
    match (group, service) {
        (Some(group), Some(service)) if group == service => {
            let problem =
                "is kafka.group_id, whose members read the input; give the export another group";
            Err(report.fault(&key, problem))
        }
        (Some(group), _) => Ok(group),
        // Without the service's group there is a fault already, and nothing comes of this.
        (None, service) => Ok(format!("{}-export-postgres", service.unwrap_or_default())),
    }
}

/// What a table of last panes can hold.
fn check_results(exported: &Exported<'_>, section: &KeyPath, report: &mut Report<'_>) {
    if exported.panes == Some(Panes::Discarding) {
        report.fault(
            &section.key("table"),
            "holds the last pane of each window, but with window.panes = \"discarding\" each pane has only what is new; \
             write window.panes = \"accumulating\", or export nothing",
        );
    }
    if exported.key.is_some_and(|key| key.partial && key.across_topics) {
        report.fault(
            &section.key("table"),
            "tells rows apart by the partition of the input, and with several topics and key.partial that is not enough; \
             write key.partial = false, or export nothing",
        );
    }
    let mut columns: Vec<(KeyPath, &str)> = Vec::new();
    if let Some(Key { from: KeyFrom::Fields(fields), .. }) = exported.key {
        let list = KeyPath::of("key.fields");
        columns
            .extend(fields.iter().zip(0..).map(|(name, place)| (list.place(place), name.as_str())));
    }
    let list = KeyPath::of("aggregate");
    columns.extend(
        exported
            .aggregates
            .unwrap_or_default()
            .iter()
            .zip(0..)
            .map(|(aggregate, place)| (list.place(place).key("name"), aggregate.name.as_str())),
    );
    for (key, name) in columns {
        if RESERVED_COLUMNS.contains(&name) {
            let problem = format!(
                "\"{name}\" is a column that every exported table has (export.postgres); give it another name"
            );
            report.fault(&key, problem);
        } else if let Err(problem) = identifier(name, LONGEST_IDENTIFIER) {
            report.fault(&key, format!("as a column (export.postgres): {problem}"));
        }
    }
}

/// PostgreSQL's `NAMEDATALEN` less the byte that ends it.
const LONGEST_IDENTIFIER: usize = 63;

/// What the name of the table with the offsets ends in.
const OFFSETS_SUFFIX: &str = "_offsets";

const TLS: [(&str, DatabaseTls); 4] = [
    ("disable", DatabaseTls::Disable),
    ("prefer", DatabaseTls::Prefer),
    ("require", DatabaseTls::Require),
    ("verify-full", DatabaseTls::VerifyFull),
];
