//! `tidegate generate`

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, stdin};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Configuration, Failure, Output, duration, property};
use crate::clock::Clock;
use crate::config::{Log, LogFormat};
use crate::event_time::EventTime;
use crate::generator::{Generated, Generator, GeneratorSettings, Kind, Supply};
use crate::kafka::load::{Brokers, LoadSettings, Pace, RunningLoad, partitions};

/// Write the demo's records, or the lines of a file, to a topic of a real broker.
#[derive(Debug, Args)]
#[command(
    after_help = "With --config or --set the brokers are reached as the service of that configuration reaches them: its \
                  kafka.bootstrap_servers, [kafka.properties] and [kafka.oauth]. --bootstrap and --property win over it. \
                  Without, no configuration is read, from the environment neither."
)]
pub(super) struct Generate {
    #[command(flatten)]
    configuration: Configuration,
    /// The brokers to begin with, `host:port`, separated by commas. Default: those of the configuration, or
    /// `localhost:9092`.
    #[arg(long, value_name = "SERVERS")]
    bootstrap: Option<String>,
    /// The topic; it must be there.
    #[arg(long)]
    topic: String,
    /// A librdkafka property, for example for TLS; may be given several times.
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
    /// Send the lines of this file instead, each a record, as fast as the broker takes them; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "run_for", "seed"])]
    lines: Option<PathBuf>,
    /// With --lines: the JSON field whose text is the message key; without, records have none.
    #[arg(long, value_name = "FIELD", requires = "lines")]
    key: Option<String>,
    /// Records per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Stop after this long, such as `30s`.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    run_for: Option<Duration>,
    /// Stop after this many records.
    #[arg(long)]
    count: Option<u64>,
    /// The same seed gives the same records.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Generate {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        crate::log::start(&Log {
            format: LogFormat::Auto,
            filter: "warn".to_owned(),
            repeats: None,
        });
        let brokers = brokers(&self.configuration, self.bootstrap, self.properties)?;
        let clock = Clock::start();
        let partitions = partitions(&brokers, &self.topic, clock)?;
        let pace = if self.lines.is_some() { Pace::Unpaced } else { Pace::AsDue };
        let settings = LoadSettings {
            brokers,
            topic: self.topic,
            pace,
            duration: self.run_for,
            count: self.count,
        };
        let load = if let Some(path) = self.lines {
            RunningLoad::start(settings, LinesOf::open(&path, self.key)?, clock)?
        } else {
            let generator = GeneratorSettings::new(self.seed, partitions, self.rate, Clock::wall());
            RunningLoad::start(settings, Generator::new(generator), clock)?
        };
        let report = load.join();
        out.line(format_args!("sent {report}"))?;
        if report.failed > 0 {
            let lost =
                format!("{} of {} records were not delivered", report.failed, report.records);
            return Err(Failure::Other(lost.into()));
        }
        Ok(())
    }
}

fn brokers(
    configuration: &Configuration,
    bootstrap: Option<String>,
    properties: Vec<(String, String)>,
) -> Result<Brokers, Failure> {
    let mut brokers = Brokers::default();
    "localhost:9092".clone_into(&mut brokers.bootstrap_servers);
    if configuration.is_given() {
        let kafka = configuration.load()?.config.kafka;
        let of_the_service = kafka.properties.iter();
        brokers.properties =
            of_the_service.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        brokers.bootstrap_servers = kafka.bootstrap_servers;
        brokers.oauth = kafka.oauth;
    }
    if let Some(bootstrap) = bootstrap {
        brokers.bootstrap_servers = bootstrap;
    }
    brokers.properties.extend(properties);
    Ok(brokers)
}

/// The lines of a file, all due at once.
struct LinesOf {
    lines: Lines<Box<dyn BufRead + Send>>,
    key: Option<String>,
    start: EventTime,
    exhausted: bool,
}

impl LinesOf {
    fn open(path: &PathBuf, key: Option<String>) -> Result<Self, Failure> {
        let reader: Box<dyn BufRead + Send> = if path.as_os_str() == "-" {
            Box::new(BufReader::new(stdin()))
        } else {
            let file = File::open(path)
                .map_err(|error| Failure::Other(format!("{}: {error}", path.display()).into()))?;
            Box::new(BufReader::new(file))
        };
        Ok(Self { lines: reader.lines(), key, start: Clock::wall(), exhausted: false })
    }
}

impl Supply for LinesOf {
    fn start(&self) -> EventTime {
        self.start
    }

    fn next_due(&mut self, _until: EventTime) -> Option<Generated> {
        let line = match self.lines.next() {
            Some(Ok(line)) => line,
            end => {
                if let Some(Err(error)) = end {
                    tracing::warn!(%error, "the lines end early");
                }
                self.exhausted = true;
                return None;
            }
        };
        let field = self.key.as_ref().and_then(|name| {
            let record: serde_json::Value = serde_json::from_str(&line).ok()?;
            let value = record.get(name)?;
            Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        });
        Some(Generated {
            due: self.start,
            partition: Generated::BY_KEY,
            key: field,
            payload: Some(line.into_bytes()),
            event_time: self.start,
            kind: Kind::Ordinary,
        })
    }

    fn is_exhausted(&self) -> bool {
        self.exhausted
    }
}
