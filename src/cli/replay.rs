//! `tidegate replay`

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};

use super::{Configuration, Failure, Output, agreed};
use crate::clock::Clock;
use crate::codec::Reason;
use crate::repair::{Replay as Job, ReplayPlan, Selection};

/// Send dead letters back to the topics they came from, after what was wrong has been fixed: the configuration, or a
/// limit. Shows first what it would send, and asks.
///
/// A record goes back with its key, payload, headers and Kafka timestamp, to the partition it was in. Each dead letter is
/// sent once, whatever is killed and however often this runs; those that are not chosen stay for another run.
#[derive(Debug, Args)]
#[command(
    after_help = "A record that is sent back carries the header tidegate.replayed (how often). If it becomes a dead \
                  letter again it is left out from then on, unless --again is given, so that nothing goes round in \
                  circles. The service judges it like any other record: if its window is closed by now it is late, and \
                  `tidegate reconcile` adds it.\n\nWhich ones have been sent is written to the dead-letter topic, in \
                  the same transaction: a record with the header tidegate.replay.receipt and their offsets.\n\n\
                  tidegate replay --from dead-letter --config orders.toml --reason ts_past --reason ts_missing --dry-run\n\
                  tidegate replay --from dead-letter --config orders.toml --since 2026-03-01T00:00:00Z --yes"
)]
pub(super) struct Replay {
    #[command(flatten)]
    configuration: Configuration,
    /// Which topic is read.
    #[arg(long, value_name = "TOPIC")]
    from: From,
    /// Only those with this reason; may be given several times.
    #[arg(long = "reason", value_name = "REASON", value_parser = reason)]
    reasons: Vec<String>,
    /// Only those whose record has a Kafka timestamp at or after this one, such as 2026-03-01T00:00:00Z. It is that of
    /// the original record, not the time at which it became a dead letter.
    #[arg(long, value_name = "TIME")]
    since: Option<jiff::Timestamp>,
    /// Only those whose record has a Kafka timestamp before this one.
    #[arg(long, value_name = "TIME")]
    until: Option<jiff::Timestamp>,
    /// Only those whose record has this message key, as text. A key in a field does not count: the payload of a dead letter
    /// may not be readable.
    #[arg(long)]
    key: Option<String>,
    /// Also those that were sent back before and became dead letters again.
    #[arg(long)]
    again: bool,
    /// Do it without asking.
    #[arg(long)]
    yes: bool,
    /// Only show what would be done.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// The most dead letters that are sent in one transaction.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
}

/// What is sent back. Late records are merged by `tidegate reconcile`: sent back they would be late again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum From {
    /// The dead-letter topic of the configuration.
    DeadLetter,
}

fn reason(text: &str) -> Result<String, String> {
    let names = Reason::ALL.map(Reason::name);
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("there is no such reason; those there are: {}", names.join(", ")))
}

impl Replay {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let From::DeadLetter = self.from;
        let config = self.configuration.load()?.config;
        let selection = Selection {
            reasons: self.reasons.into_iter().collect::<BTreeSet<_>>(),
            since: self.since.map(jiff::Timestamp::as_millisecond),
            until: self.until.map(jiff::Timestamp::as_millisecond),
            key: self.key.map(String::into_bytes),
            again: self.again,
        };
        let mut job = Job::new(&config, selection, Clock::start())?;
        let plan = job.plan()?;
        show(&plan, &config.dead_letter_topic, out)?;
        if self.dry_run || plan.count() == 0 {
            return Ok(());
        }
        if !self.yes && !agreed(out)? {
            out.line("nothing was sent")?;
            return Ok(());
        }
        let batch = usize::try_from(self.batch).unwrap_or(usize::MAX);
        let sent = job.carry_out(&plan, batch)?;
        out.line(format_args!("sent {}", dead_letters(sent)))?;
        Ok(())
    }
}

fn show(plan: &ReplayPlan, topic: &str, out: &mut Output) -> Result<(), Failure> {
    out.line(format_args!("to be sent back from {topic}: {}", dead_letters(plan.count())))?;
    for ((topic, reason), number) in &plan.chosen {
        out.line(format_args!("  {reason}: {number} to {topic}"))?;
    }
    if !plan.examples.is_empty() {
        out.line("such as:")?;
    }
    for (reason, place, detail) in &plan.examples {
        out.line(format_args!("  {place}: {reason}: {detail}"))?;
    }
    for (unfit, (number, places)) in &plan.unfit {
        let (what, why) = (dead_letters(*number), unfit.why());
        let more = if u64::try_from(places.len()).is_ok_and(|shown| shown < *number) {
            ", ..."
        } else {
            ""
        };
        out.line(format_args!("cannot be sent back: {what}; {why}: {}{more}", places.join(", ")))?;
    }
    if plan.again > 0 {
        out.line(format_args!(
            "left out: {} sent back before and dead again; --again sends them too",
            plan.again
        ))?;
    }
    out.line(format_args!("not chosen: {}; sent back before: {}", plan.others, plan.sent_before))?;
    Ok(())
}

fn dead_letters(number: u64) -> String {
    format!("{number} dead letter{}", if number == 1 { "" } else { "s" })
}
