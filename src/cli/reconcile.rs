//! `tidegate reconcile`

use std::path::PathBuf;

use clap::Args;

use super::{Configuration, Failure, Output};
use crate::clock::Clock;
use crate::repair::{Reconciled, Target, reconcile};

/// Merge late records into the rows that were published: for each window and key with late records, a corrected row is
/// written to the results topic, with "timing": "correction" and the next index.
///
/// Reads the late topic to its present end, and commits how far it has come in the same transaction as the rows: stopped,
/// killed or run twice, each late record counts once. The service may run meanwhile.
#[derive(Debug, Args)]
#[command(
    after_help = "Takes the service's configuration: the rows have to be of the same windows, key and aggregates.\n\n\
                  count, sum, min and max are merged exactly, and avg where the row has count and sum of the same \
                  field. What was rounded (a sum of floats, an avg alone) is computed anew from the input topic. Where \
                  that has removed records, the late records are listed as not repaired, with topic, partition and \
                  offset, and the exit code is 3; they stay in the late topic, and the next run goes on behind them.\n\n\
                  tidegate reconcile --config orders.toml --dry-run\n\
                  tidegate reconcile --config orders.toml --to corrections.jsonl"
)]
pub(super) struct Reconcile {
    #[command(flatten)]
    configuration: Configuration,
    /// Write the corrected rows to this file instead, one JSON object a line, for another store. The file is replaced as a
    /// whole; no offset is moved, so the next run has these late records again.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    to: Option<PathBuf>,
    /// Only show what would be done.
    #[arg(long)]
    dry_run: bool,
    /// The most late records that are dealt with in one transaction.
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
}

impl Reconcile {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let config = self.configuration.load()?.config;
        let target = match self.to {
            Some(path) => Target::File(path),
            None if self.dry_run => Target::Nothing,
            None => Target::Results,
        };
        let batch = usize::try_from(self.batch).unwrap_or(usize::MAX);
        let done = reconcile(&config, &target, batch, Clock::start())?;
        show(&done, &target, out)?;
        match done.unrepaired.len() {
            0 => Ok(()),
            places => Err(Failure::NotRepaired(places)),
        }
    }
}

fn show(done: &Reconciled, target: &Target, out: &mut Output) -> Result<(), Failure> {
    let date = |ms: i64| {
        jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |at| at.to_string())
    };
    for (start, window) in &done.windows {
        let mut line = format!(
            "window {}: {} late records, {} rows corrected",
            date(*start),
            window.late,
            window.corrected
        );
        for (number, what) in [
            (window.created, "of them new"),
            (window.recomputed, "of them computed from the input"),
            (window.unchanged, "rows unchanged"),
        ] {
            if number > 0 {
                line = format!("{line}, {number} {what}");
            }
        }
        out.line(line)?;
    }
    if done.waiting > 0 {
        out.line(format_args!(
            "{} late records wait: their windows are not past window.allowed_lateness by the clocks in the late topic",
            done.waiting
        ))?;
    }
    for unrepaired in &done.unrepaired {
        out.line(format_args!("not repaired: {}: {}", unrepaired.what, unrepaired.why))?;
    }
    let rows: u64 = done.windows.values().map(|window| window.corrected).sum();
    let what = format!("{} late records, {rows} rows in {} windows", done.late, done.windows.len());
    let line = match target {
        Target::Results => format!("corrected: {what}"),
        Target::Nothing => format!("would be corrected: {what}; nothing was written"),
        Target::File(path) => format!("written to {}: {what}", path.display()),
    };
    out.line(line)?;
    Ok(())
}
