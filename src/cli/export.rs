//! `tidegate export`

use clap::{Args, Subcommand};

use super::{Configuration, Failure, Output};
use crate::pipeline::RunUntil;
use crate::{export, log};

/// Keep the results in a database too.
#[derive(Debug, Args)]
pub(super) struct Export {
    #[command(subcommand)]
    to: To,
}

#[derive(Debug, Subcommand)]
enum To {
    /// Keep a PostgreSQL table in which each window and key has its last pane.
    Postgres(Postgres),
}

/// Keep a PostgreSQL table in which each window and key has its last pane, until stopped (SIGTERM, SIGINT).
///
/// Reads the results topic as a consumer group of its own. Rows and offsets are written in one transaction of the
/// database, so a result has its effect exactly once, whatever is killed. Several exporters share the partitions.
#[derive(Debug, Args)]
#[command(
    after_help = "Takes the service's configuration with `export.postgres.table` in it, and the rest of \
                  [export.postgres] (`tidegate config --default`). The password is best in a file \
                  (export.postgres.password_file) or in TIDEGATE__EXPORT__POSTGRES__PASSWORD.\n\n\
                  tidegate export postgres --config orders.toml --set export.postgres.table=orders_per_minute \
                  --set export.postgres.host=db"
)]
struct Postgres {
    #[command(flatten)]
    configuration: Configuration,
    /// Read to the end of the results as they are now, write them and end. Needs all partitions of the topic.
    #[arg(long)]
    until_end: bool,
    /// Print the SQL that creates the tables, and connect to nothing.
    #[arg(long, conflicts_with = "until_end")]
    show_sql: bool,
}

impl Export {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let To::Postgres(postgres) = self.to;
        postgres.execute(out)
    }
}

impl Postgres {
    fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let loaded = self.configuration.load()?;
        let config = &loaded.config;
        let Some(export) = &config.postgres_export else {
            let fault = "export.postgres.table: is missing; write the table that the results go to";
            return Err(Failure::Configuration(vec![fault.to_owned()]));
        };
        if self.show_sql {
            out.line(export::show_sql(config, export))?;
            return Ok(());
        }
        log::start(&config.log);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let until = if self.until_end { RunUntil::End } else { RunUntil::Stopped };
        export::run(config, export, until).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the export ended");
            Failure::Other(Box::new(error))
        })
    }
}
