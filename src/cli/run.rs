//! `tidegate run`

use clap::Args;

use super::{Configuration, Failure};
use crate::pipeline::RunUntil;
use crate::{log, service};

/// Run the service.
#[derive(Debug, Args)]
pub(super) struct Run {
    #[command(flatten)]
    configuration: Configuration,
    /// Read to the end of the input as it is now, fire all open windows, commit and end. Needs all partitions of the
    /// input; silence plays no part in finding the end.
    #[arg(long)]
    until_end: bool,
}

impl Run {
    pub(super) fn execute(self) -> Result<(), Failure> {
        let loaded = self.configuration.load()?;
        log::start(&loaded.config.log);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let until = if self.until_end { RunUntil::End } else { RunUntil::Stopped };
        service::run(&loaded.config, until)?;
        Ok(())
    }
}
