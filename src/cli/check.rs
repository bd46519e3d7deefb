//! `tidegate check`

use std::time::Duration;

use clap::Args;

use super::{Configuration, Failure, Output, count, duration};
use crate::clock::Clock;
use crate::config::Loaded;
use crate::kafka::inspect::{Report, Terms, Verdict, inspect};

/// Read the configuration and say everything that is wrong with it; with --connect look at the cluster too.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --connect nothing is connected to. With it each line of the list says what was looked at, what \
                  was found (ok, note, warning, fault, not looked at) and what to do. It reads only: it joins no group, \
                  begins no transaction and creates nothing, so it may be used beside a running service. Exit code: 0 \
                  without a fault, 1 with one, 78 where the configuration itself is wrong."
)]
pub(super) struct Check {
    #[command(flatten)]
    configuration: Configuration,
    /// Reach the cluster as the service would: brokers, TLS, credentials, rights, topics, group, state, transactions.
    #[arg(long)]
    connect: bool,
    /// How long each step may take.
    #[arg(long, requires = "connect", value_name = "DURATION", value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// Also write: a topic `<group_id>-check-...` is created, gets a record in a transaction under an id of its own, is
    /// read back and deleted. Proves transactions and measures how far the clocks are apart.
    #[arg(long, requires = "connect")]
    write_probe: bool,
    /// Print JSON.
    #[arg(long, requires = "connect")]
    json: bool,
}

impl Check {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let loaded = self.configuration.load()?;
        if self.connect {
            return self.look(&loaded, out);
        }
        for warning in &loaded.warnings {
            out.line(format_args!("warning: {warning}"))?;
        }
        out.line(format_args!(
            "the configuration is good ({})",
            count(loaded.warnings.len(), "warning")
        ))?;
        Ok(())
    }

    fn look(&self, loaded: &Loaded, out: &mut Output) -> Result<(), Failure> {
        let terms = Terms { timeout: self.timeout, write_probe: self.write_probe };
        let mut report = inspect(&loaded.config, terms, Clock::start());
        let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        report.put_first(&warnings);
        if self.json {
            let json = serde_json::to_string_pretty(&report);
            out.line(json.map_err(|error| Failure::Other(error.into()))?)?;
        } else {
            for finding in &report.findings {
                out.line(finding)?;
            }
        }
        let faults = report.count(Verdict::Fault);
        if faults == 0 {
            if !self.json {
                out.line(summary(&report))?;
            }
            return Ok(());
        }
        Err(Failure::Other(summary(&report).into()))
    }
}

fn summary(report: &Report) -> String {
    format!(
        "{}, {}, {} not looked at",
        count(report.count(Verdict::Fault), "fault"),
        count(report.count(Verdict::Warning), "warning"),
        report.count(Verdict::NotLookedAt)
    )
}
