//! Advice as people read it, and as a piece of configuration.

use std::fmt::Write as _;

use super::Percentiles;
use super::advice::{Advice, PartitionAdvice, Recommendation};
use super::rules::{Terms, millis};
use crate::config::{Source, TimestampFrom, TimestampUnit};
use crate::insight::words::count;

/// One kind of percentiles of a partition.
type Of = fn(&PartitionAdvice) -> Option<Percentiles>;

impl Advice {
    /// All of it in lines of text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).unwrap_or_default();
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let over =
            self.observed_for_ms.map_or_else(String::new, |ms| format!(" over {}", span(ms)));
        writeln!(
            out,
            "{}: {} records in {} partition{}{over}; percentiles are within {}",
            self.topic,
            count(self.records),
            self.partitions.len(),
            if self.partitions.len() == 1 { "" } else { "s" },
            share(self.relative_error)
        )?;
        let tables: [(&str, Of); 3] = [
            ("out of order by", |partition| partition.out_of_orderness_ms),
            ("gaps between records", |partition| partition.gap_ms),
            ("transport (arrival - event time)", |partition| partition.transport_ms),
        ];
        for (what, of) in tables {
            self.table(out, what, of)?;
        }
        if let Some(late) = &self.late {
            let causes: Vec<_> =
                late.iter().map(|(cause, late)| format!("{} {cause}", count(*late))).collect();
            writeln!(out, "\nlate in this time: {}", causes.join(", "))?;
        }
        if !self.findings.is_empty() {
            writeln!(out, "\nodd:")?;
        }
        for finding in &self.findings {
            writeln!(out, "  {}{}", of_partition(finding.partition), finding.text)?;
        }
        let Some(fit) = &self.recommendation else {
            return writeln!(out, "\nthere is nothing to go by: no record that can be used");
        };
        let settings = [
            ("max_out_of_orderness", fit.max_out_of_orderness_ms),
            ("idle_timeout", fit.idle_timeout_ms),
            ("allowed_lateness", fit.allowed_lateness_ms),
        ];
        writeln!(out, "\nrecommended:")?;
        for ((name, ms), reason) in settings.into_iter().zip(&fit.reasons) {
            writeln!(out, "  {name:<20} = {:<8} {reason}", format!("\"{}\"", setting(ms)))?;
        }
        self.costs(out, fit)?;
        for contradiction in &self.contradictions {
            writeln!(out, "\ncontradiction: {}; the ways out:", contradiction.text)?;
            for way in &contradiction.ways {
                writeln!(out, "  - {way}")?;
            }
        }
        if let Some(asked) = &self.what_if {
            writeln!(
                out,
                "\nwith the bound at {}, {} of these records ({}) would have been late; results {} after the end of \
                 their window",
                span(asked.bound_ms),
                share(asked.late_share),
                count(asked.late_records),
                span(asked.delay_ms)
            )?;
        }
        Ok(())
    }

    fn table(
        &self,
        out: &mut String,
        what: &str,
        of: impl Fn(&PartitionAdvice) -> Option<Percentiles>,
    ) -> std::fmt::Result {
        let mut rows: Vec<_> = self.partitions.iter().filter_map(|p| Some((p, of(p)?))).collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{what:<34}{:>10}{:>10}{:>10}{:>10}{:>10}{:>12}",
            "P50", "P90", "P99", "P99.9", "max", "records"
        )?;
        let all = rows.len();
        if all > MOST_ROWS {
            rows.sort_by_key(|(partition, seen)| {
                (std::cmp::Reverse(seen.p99), partition.partition)
            });
            rows.truncate(MOST_ROWS);
        }
        for (partition, seen) in rows {
            let name = match partition.batch_period_ms.filter(|_| what.starts_with("gaps")) {
                Some(period) => {
                    format!("partition {}, every {}", partition.partition, span(period))
                }
                None => format!("partition {}", partition.partition),
            };
            let [p50, p90, p99, p99_9, max] =
                [seen.p50, seen.p90, seen.p99, seen.p99_9, seen.max].map(span);
            let records = count(partition.records);
            writeln!(
                out,
                "  {name:<32}{p50:>10}{p90:>10}{p99:>10}{p99_9:>10}{max:>10}{records:>12}"
            )?;
        }
        if all > MOST_ROWS {
            writeln!(out, "  and {} more partitions with a lower P99", all - MOST_ROWS)?;
        }
        Ok(())
    }

    fn costs(&self, out: &mut String, fit: &Recommendation) -> std::fmt::Result {
        let delay = fit.delay;
        writeln!(
            out,
            "  {} late; results {} after the end of their window (transport {} + bound {} + emit interval {} + commit \
             {}), {} while a partition falls silent",
            share(fit.late_share),
            span(delay.total_ms),
            span(delay.transport_ms),
            span(delay.bound_ms),
            span(delay.emit_interval_ms),
            span(delay.commit_ms),
            span(fit.delay_when_silent_ms)
        )?;
        writeln!(out, "\nother bounds, by windows of {}:", span(self.window_size_ms))?;
        for other in &self.alternatives {
            writeln!(
                out,
                "  {:<6}{:>9}: {:>8} late, results after {}",
                other.basis.to_uppercase(),
                span(other.bound_ms),
                share(other.late_share),
                span(other.delay_ms)
            )?;
        }
        if let Some(left) = &self.max_delay {
            writeln!(
                out,
                "  a delay of {} leaves {} for the bound: {} late; at P99 ({}): {}",
                span(left.asked_ms),
                span(left.room_ms),
                share(left.late_share_at_room),
                span(left.p99_ms),
                share(left.late_share_at_p99)
            )?;
        }
        match self.late_share_at_mean.filter(|late| *late > 0.0) {
            Some(late) => writeln!(
                out,
                "  the mean would be no guide: as the bound it would lose {}",
                share(late)
            ),
            None => Ok(()),
        }
    }
}

/// The recommendation as a piece of configuration.
pub(super) fn snippet(advice: &Advice, fit: &Recommendation, terms: &Terms) -> String {
    let mut lines = vec![
        format!(
            "# From {} records: {} late, results {} after the end of their window.",
            count(advice.records),
            share(fit.late_share),
            span(fit.delay.total_ms)
        ),
        "[[source]]".to_owned(),
        format!("topic = {}", quoted(&terms.topic)),
    ];
    lines.extend(terms.source.iter().cloned());
    lines.push(format!(
        "watermark = {{ max_out_of_orderness = \"{}\", idle_timeout = \"{}\" }}",
        setting(fit.max_out_of_orderness_ms),
        setting(fit.idle_timeout_ms)
    ));
    lines.push("[window]".to_owned());
    lines.push(format!("size = \"{}\"", setting(millis(terms.window_size))));
    lines.push(format!("allowed_lateness = \"{}\"", setting(fit.allowed_lateness_ms)));
    lines.push(String::new());
    lines.join("\n")
}

/// What a source says besides its topic and its watermark, as the configuration writes it.
pub(super) fn source(source: &Source) -> Vec<String> {
    let unit = match source.timestamp.unit {
        TimestampUnit::Milliseconds => "ms",
        TimestampUnit::Seconds => "s",
        TimestampUnit::Microseconds => "us",
        TimestampUnit::Nanoseconds => "ns",
        TimestampUnit::Rfc3339 => "rfc3339",
    };
    let naive = if source.timestamp.naive_is_utc { ", naive = \"utc\"" } else { "" };
    let timestamp = match &source.timestamp.from {
        TimestampFrom::Record => "from = \"record\"".to_owned(),
        TimestampFrom::Field(path) => {
            format!("field = {}, unit = \"{unit}\"{naive}", quoted(&path.to_string()))
        }
        TimestampFrom::Header(name) => {
            format!("header = {}, unit = \"{unit}\"{naive}", quoted(name))
        }
    };
    let mut lines = vec![format!("timestamp = {{ {timestamp} }}")];
    if let Some(heartbeat) = &source.heartbeat {
        lines.push(format!(
            "heartbeat = {{ field = {}, equals = {}, counts_as = \"{}\", watermark = {} }}",
            quoted(&heartbeat.field.to_string()),
            quoted(&heartbeat.equals),
            if heartbeat.is_activity { "activity" } else { "silence" },
            heartbeat.carries_watermark
        ));
    }
    if !source.fields.is_empty() {
        let fields = source.fields.iter();
        let fields =
            fields.map(|(name, path)| format!("{} = {}", quoted(name), quoted(&path.to_string())));
        lines.push(format!("fields = {{ {} }}", fields.collect::<Vec<_>>().join(", ")));
    }
    lines
}

/// A text in quotes; what JSON escapes, TOML reads.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn of_partition(partition: Option<i32>) -> String {
    partition.map_or_else(String::new, |partition| format!("partition {partition}: "))
}

/// A duration as the configuration writes it: `161m`, `9s`, `9500ms`.
pub(super) fn setting(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}

/// A duration in one unit: `350 ms`, `6.0 s`, `161 min`, `21.7 h`.
pub(super) fn span(ms: u64) -> String {
    let tenths = |unit: u64| {
        let tenths = (ms + unit / 20) / (unit / 10);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match ms {
        0 => "0 s".to_owned(),
        1..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{} s", tenths(1_000)),
        120_000..600_000 => format!("{} min", tenths(60_000)),
        600_000..14_400_000 => format!("{} min", (ms + 30_000) / 60_000),
        14_400_000..172_800_000 => format!("{} h", tenths(3_600_000)),
        _ => format!("{} d", tenths(86_400_000)),
    }
}

/// A share in per cent, with as many places as it needs.
pub(super) fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        ..0.001 => "under 0.001 %".to_owned(),
        ..0.1 => format!("{percent:.3} %"),
        ..1.0 => format!("{percent:.2} %"),
        ..99.95 if percent.fract() > 0.05 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Of more partitions than this, those with the highest P99 are shown.
const MOST_ROWS: usize = 20;

#[cfg(test)]
mod text_tests {
    use super::*;

    #[test]
    fn durations_and_shares_are_short() {
        let spans = [0, 350, 6_000, 90_000, 150_000, 9_660_000, 78_120_000, 400_000_000].map(span);
        assert_eq!(
            spans,
            ["0 s", "350 ms", "6.0 s", "90.0 s", "2.5 min", "161 min", "21.7 h", "4.6 d"]
        );
        let settings = [0, 350, 9_000, 9_500, 9_660_000].map(setting);
        assert_eq!(settings, ["0s", "350ms", "9s", "9500ms", "161m"]);
        let shares = [0.0, 0.000_001, 0.0001, 0.0062, 0.102, 0.5, 1.0].map(share);
        assert_eq!(
            shares,
            ["0 %", "under 0.001 %", "0.010 %", "0.62 %", "10.2 %", "50 %", "100 %"]
        );
    }
}
