//! `tidegate check`

use clap::Args;

use super::{Configuration, Failure, Output, count};

/// Read the configuration and say everything that is wrong with it.
#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    configuration: Configuration,
}

impl Check {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let loaded = self.configuration.load()?;
        for warning in &loaded.warnings {
            out.line(format_args!("warning: {warning}"))?;
        }
        out.line(format_args!(
            "the configuration is good ({})",
            count(loaded.warnings.len(), "warning")
        ))?;
        Ok(())
    }
}
