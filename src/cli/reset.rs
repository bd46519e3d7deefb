//! `tidegate reset`

use std::sync::Arc;

use clap::Args;

use super::{Configuration, Failure, Output, agreed, count};
use crate::clock::Clock;
use crate::config::start;
use crate::kafka::reset::{Reset as Job, ResetPlan, ResetTo};

/// Begin anew: move the group's offsets and empty the changelog. What windows held is gone; results that were written
/// stay.
#[derive(Debug, Args)]
#[command(
    after_help = "Stop all instances first. From another place than \"current\" records are counted again, or not \
                        at all: results of windows that were written before may be written again, smaller."
)]
pub(super) struct Reset {
    #[command(flatten)]
    configuration: Configuration,
    /// Where the group reads on: "earliest", "latest", "current" (where it stands) or a time such as
    /// 2025-01-01T00:00:00Z, by the records' Kafka timestamps.
    #[arg(long, value_name = "PLACE", value_parser = place)]
    to: ResetTo,
    /// Do it without asking.
    #[arg(long)]
    yes: bool,
    /// Only show what would be done.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

fn place(text: &str) -> Result<ResetTo, String> {
    match text {
        "current" => Ok(ResetTo::Current),
        text => start(text).map(ResetTo::Start),
    }
}

impl Reset {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let loaded = self.configuration.load()?;
        let job = Job::new(&loaded.config, Clock::start(), Arc::new(|_, _| {}))?;
        let plan = job.plan(self.to)?;
        show(&plan, &loaded.config.kafka.group_id, out)?;
        if self.dry_run {
            return Ok(());
        }
        if !self.yes && !agreed(out)? {
            out.line("nothing was changed")?;
            return Ok(());
        }
        job.carry_out(&plan)?;
        out.line("done")?;
        Ok(())
    }
}

fn show(plan: &ResetPlan, group: &str, out: &mut Output) -> Result<(), Failure> {
    out.line(format_args!("group {group} reads on:"))?;
    let offset = |offset: Option<i64>| {
        offset.map_or_else(|| "nowhere yet".to_owned(), |offset| offset.to_string())
    };
    for planned in &plan.offsets {
        out.line(format_args!(
            "  {}/{}: {} -> {}",
            planned.topic,
            planned.partition,
            offset(planned.committed),
            offset(planned.to)
        ))?;
    }
    if plan.deletions.is_empty() {
        out.line("the changelog is empty")?;
    } else {
        out.line("the changelog is emptied; what open windows hold is gone:")?;
    }
    for deletion in &plan.deletions {
        out.line(format_args!(
            "  {}/{}: {} up to offset {}",
            deletion.topic,
            deletion.partition,
            count(usize::try_from(deletion.end - deletion.beginning).unwrap_or_default(), "offset"),
            deletion.end
        ))?;
    }
    Ok(())
}
