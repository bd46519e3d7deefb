//! `tidegate config`

use clap::Args;

use super::{Configuration, Failure, Output};
use crate::config::{default_toml, render_effective};

/// Print the configuration in effect.
#[derive(Debug, Args)]
pub(super) struct Config {
    #[command(flatten)]
    configuration: Configuration,
    /// Print the reference instead: every key with its meaning, its default and its environment variable.
    #[arg(long)]
    default: bool,
}

impl Config {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        if self.default {
            out.line(default_toml().trim_end())?;
        } else {
            out.line(render_effective(&self.configuration.load()?).trim_end())?;
        }
        Ok(())
    }
}
