//! `tidegate advise`

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::{Configuration, Failure, Output, duration};
use crate::clock::Clock;
use crate::codec::{Decoded, Decoder, RawRecord};
use crate::config::{Config, Key, KeyFrom, Source};
use crate::event_time::MonotonicTime;
use crate::insight::advise::{Advice, Observations, Seen, Terms};
use crate::insight::words::count;
use crate::kafka::sample::{Sample, SampleSize};
use crate::pipeline::InputRecord;

/// Read a sample of a topic and say which bound, idle timeout and allowed lateness fit it. Only reads: it joins no group
/// and commits nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --config the event time is the record's Kafka timestamp, or what --field and --unit say; \
                  windows are of one minute, or --set window.size=1h. With --config records are read as the service \
                  would, and what it would refuse does not count."
)]
pub(super) struct Advise {
    #[command(flatten)]
    configuration: Configuration,
    /// The topic; with --config the first source's by default.
    #[arg(long, required_unless_present = "files")]
    topic: Option<String>,
    /// The brokers, `host:port`, separated by commas; by default those of the configuration.
    #[arg(long, value_name = "SERVERS")]
    bootstrap: Option<String>,
    /// Without --config: the field that holds the event time, such as `ts` or `meta.at`.
    #[arg(long, conflicts_with = "files")]
    field: Option<String>,
    /// The unit of --field: ms, s, us, ns or rfc3339.
    #[arg(long, requires = "field", default_value = "ms")]
    unit: String,
    /// The newest so many records of each partition.
    #[arg(long, value_name = "N", default_value_t = 20_000, conflicts_with = "last")]
    records: u64,
    /// What came within this time, such as `1h`, by the records' Kafka timestamps.
    #[arg(long, alias = "since", value_name = "DURATION", value_parser = duration)]
    last: Option<Duration>,
    /// The greatest delay of results after the end of their window, such as `30s`.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_delay: Option<Duration>,
    /// Say what this bound would cost.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    bound: Option<Duration>,
    /// How often producers send a batch, if that is known; otherwise it is looked for.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    batch_period: Option<Duration>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print only the recommendation, as a piece of configuration.
    #[arg(long, conflicts_with = "json")]
    snippet: bool,
}

impl Advise {
    pub(super) fn execute(mut self, out: &mut Output) -> Result<(), Failure> {
        self.fill_configuration();
        let config = self.configuration.load()?.config;
        let source = match &self.topic {
            None => config.sources.first().cloned(),
            Some(topic) => {
                let named = config.sources.iter().find(|source| source.topic == *topic).cloned();
                let by_pattern = || {
                    let mut patterns = config.patterns.iter();
                    let pattern = patterns.find(|pattern| pattern.pattern.matches(topic))?;
                    Some(pattern.source_of(topic))
                };
                named.or_else(by_pattern)
            }
        };
        let Some(source) = source else {
            let fault = match self.topic {
                Some(topic) => format!("topic `{topic}` is no source of the configuration"),
                None => {
                    "the configuration names no topic; give one that its pattern matches as --topic"
                        .to_owned()
                }
            };
            return Err(Failure::Other(fault.into()));
        };
        let advice = self.look(&config, &source)?;
        if self.json {
            let json = serde_json::to_string_pretty(&advice);
            out.line(json.map_err(|error| Failure::Other(error.into()))?)?;
        } else if self.snippet {
            let nothing = || Failure::Other("no record of the sample can be used".into());
            out.line(advice.snippet.as_deref().ok_or_else(nothing)?.trim_end())?;
        } else {
            out.line(advice.text())?;
            if let Some(snippet) = &advice.snippet {
                out.line(format_args!("as configuration:\n\n{}", snippet.trim_end()))?;
            }
        }
        Ok(())
    }

    /// Without a file the rest of what a configuration has to say does not matter.
    fn fill_configuration(&mut self) {
        let mut base = Vec::new();
        if self.configuration.files.is_empty() {
            let topic = self.topic.clone().unwrap_or_default();
            base.extend(WITHOUT_FILE.map(str::to_owned));
            base.push(format!("source[0].topic={topic}"));
            if let Some(field) = &self.field {
                base.push(format!("source[0].timestamp.field={field}"));
                base.push(format!("source[0].timestamp.unit={}", self.unit));
            } else {
                base.push("source[0].timestamp.from=record".to_owned());
            }
        }
        base.append(&mut self.configuration.overrides);
        base.extend(self.bootstrap.iter().map(|at| format!("kafka.bootstrap_servers={at}")));
        self.configuration.overrides = base;
    }

    fn look(&self, config: &Config, source: &Source) -> Result<Advice, Failure> {
        let clock = Clock::start();
        let size = self.last.map_or(SampleSize::Records(self.records), SampleSize::Last);
        let sample = Sample::open(config, &source.topic, size, clock, Arc::new(|_, _| {}))?;
        let mut decoder = if self.configuration.files.is_empty() {
            let nothing =
                Key { from: KeyFrom::Fields(Vec::new()), partial: false, across_topics: false };
            Decoder::new(source, &nothing, &[])
        } else {
            Decoder::new(source, &config.key, &config.aggregates)
        };
        // A sample is one stretch: no part of it is older than another.
        let now = MonotonicTime::default();
        let mut observations = Observations::new(config.windows, config.allowed_lateness);
        observations.keep(&sample.partitions().collect(), now);
        let mut progress = Bar::new(sample.total(), clock);
        let wall = Clock::wall();
        sample.read(|record, left| {
            let Some(record) = record else { return progress.show(left) };
            let raw = RawRecord {
                key: record.key(),
                payload: record.payload(),
                timestamp: record.timestamp(),
                timestamp_header: decoder.timestamp_header().and_then(|name| record.header(name)),
            };
            let (id, offset) = (record.partition(), record.offset());
            match decoder.decode(raw, wall) {
                Ok(Decoded::Event(event)) => {
                    let arrival = record.timestamp().filter(|ms| *ms >= 0);
                    let arrival = arrival.map(crate::event_time::EventTime);
                    let event_time = event.timestamp;
                    observations.on_event(
                        id,
                        Seen { offset, event_time, arrival, late: None },
                        now,
                    );
                }
                Ok(Decoded::Tombstone | Decoded::Heartbeat(_)) => {}
                Err(refusal) => observations.on_refusal(id, offset, &refusal, now),
            }
        })?;
        let terms = Terms {
            max_delay: self.max_delay,
            bound: self.bound,
            batch_period: self.batch_period,
            ..Terms::new(config, source)
        };
        Ok(Advice::new(&observations.of_topic(Sample::NUMBER), &terms))
    }
}

/// How far reading has come: a bar that stays in its place on a terminal, a line now and then elsewhere.
struct Bar {
    total: u64,
    clock: Clock,
    begun: MonotonicTime,
    shown: MonotonicTime,
    on_terminal: bool,
}

impl Bar {
    fn new(total: u64, clock: Clock) -> Self {
        let now = clock.monotonic();
        let on_terminal = std::io::stderr().is_terminal();
        Self { total, clock, begun: now, shown: now, on_terminal }
    }

    fn show(&mut self, left: u64) {
        const WIDTH: u64 = 30;
        let now = self.clock.monotonic();
        let every = if self.on_terminal { Duration::ZERO } else { Duration::from_secs(5) };
        if left > 0 && now.since(self.shown) < every {
            return;
        }
        self.shown = now;
        let read = self.total.saturating_sub(left);
        let of = format!("{} of {} records", count(read), count(self.total));
        let passed = now.since(self.begun).as_secs();
        let mut err = std::io::stderr().lock();
        // Nothing depends on it: where standard error is gone, nobody looks.
        let told = if self.on_terminal {
            let full = usize::try_from(read * WIDTH / self.total.max(1)).unwrap_or(0);
            let end = if left == 0 { "\n" } else { "" };
            write!(err, "\r[{:-<30}] {of}, {passed} s {end}", "#".repeat(full))
        } else {
            writeln!(err, "read {of} in {passed} s")
        };
        told.and_then(|()| err.flush()).unwrap_or_default();
    }
}

/// What a configuration has to say and is of no interest here.
const WITHOUT_FILE: [&str; 9] = [
    "kafka.group_id=tidegate-advise",
    "source[0].watermark.max_out_of_orderness=0s",
    "window.size=1m",
    "key.from=message",
    "aggregate[0].name=records",
    "aggregate[0].function=count",
    "results.topic=none",
    "late.topic=none-late",
    "dead_letter.topic=none-dead",
];
