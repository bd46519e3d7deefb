//! `tidegate demo`

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;

use super::live::{Counts, Ended, LiveView};
use super::{Failure, Output, duration};
use crate::clock::Clock;
use crate::config::{Config, Sources, load};
use crate::generator::{Generator, GeneratorSettings, Silence};
use crate::insight::Tally;
use crate::kafka::Cluster;
use crate::kafka::embedded::EmbeddedBroker;
use crate::kafka::load::{Brokers, LoadSettings, Pace, RunningLoad};
use crate::pipeline::RunUntil;
use crate::service::Service;

/// Show the main job on a broker inside this process.
///
/// A generator writes orders of shops to 6 partitions: out of order, some late, some broken, and one partition falls
/// silent for 16 s of every 40. The service counts orders and adds up revenue per shop in windows of 10 s.
#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Print lines instead of a screen; so it does by itself where the output is no terminal.
    #[arg(long)]
    plain: bool,
    /// End after this long, such as `30s`.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    run_for: Option<Duration>,
    /// Orders per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Where the page, metrics and probes are; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

impl Demo {
    pub(super) fn execute(self, out: &mut Output) -> Result<(), Failure> {
        let plain = self.plain || !std::io::stdout().is_terminal();
        let broker = EmbeddedBroker::start(&[
            ("orders", PARTITIONS),
            ("orders-10s", 3),
            ("orders-late", 1),
            ("orders-dead", 1),
            ("demo-orders-changelog", PARTITIONS),
        ])?;
        let config = self.config(broker.bootstrap_servers())?;
        if plain {
            crate::log::start(&config.log);
        }
        let clock = Clock::start();
        let settings = LoadSettings {
            brokers: Brokers {
                bootstrap_servers: broker.bootstrap_servers().to_owned(),
                ..Brokers::default()
            },
            topic: "orders".to_owned(),
            pace: Pace::AsDue,
            duration: None,
            count: None,
        };
        let generator = GeneratorSettings {
            silence: Some(SILENCE),
            ..GeneratorSettings::new(SEED, PARTITIONS.unsigned_abs(), self.rate, Clock::wall())
        };
        let load = RunningLoad::start(settings, Generator::new(generator), clock)?;
        let service = Service::start(&config, Cluster::Embedded, RunUntil::Stopped)?;
        service.stop_on_signals()?;

        let view = LiveView {
            title: "tidegate demo: orders and revenue per shop, every 10 s of event time".to_owned(),
            topics: vec!["orders".to_owned()],
            link: Some(format!("http://{}/", service.address())),
            notes: vec![
                "The broker is a mock inside this process: it does not isolate transactions and keeps nothing.".to_owned(),
            ],
            color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let end = self.run_for.unwrap_or(Duration::MAX);
        let stop = service.stop().clone();
        let stopped = |wait: Duration| {
            stop.wait(wait.min(end.saturating_sub(clock.monotonic().0)));
            stop.requested() || clock.monotonic().0 >= end
        };
        let counts = || Some(counts(&service.metrics().totals()));
        let ended = if plain {
            view.run_plain(std::io::stdout(), service.watch(), counts, stopped)?
        } else {
            view.run(service.watch(), counts, stopped)?
        };
        load.stop();
        service.stop().request();
        let metrics = service.metrics().clone();
        service.wait()?;
        let report = load.join();
        if ended == Ended::Stopped {
            let counts = self::counts(&metrics.totals());
            out.line(format_args!("generated {report}"))?;
            out.line(format_args!(
                "read {} records: {} late, {} dead letters, {} tombstones",
                counts.records, counts.late, counts.dead_letters, counts.tombstones
            ))?;
        }
        Ok(())
    }

    fn config(&self, bootstrap_servers: &str) -> Result<Config, Failure> {
        let overrides = [
            format!("kafka.bootstrap_servers={bootstrap_servers}"),
            format!("http.listen={}", self.listen),
        ]
        .into_iter()
        .chain(SETTINGS.iter().map(|setting| (*setting).to_owned()))
        .collect();
        let loaded = load(&Sources { overrides, ..Sources::default() })
            .map_err(|faults| Failure::Configuration(super::lines(&faults)))?;
        Ok(loaded.config)
    }
}

fn counts(totals: &Tally) -> Counts {
    let partitions = totals.partitions.values();
    Counts {
        records: partitions.clone().map(|partition| partition.records).sum(),
        late: partitions.clone().flat_map(|partition| partition.late).sum(),
        dead_letters: totals.dead_letters.values().sum(),
        tombstones: partitions.map(|partition| partition.tombstones).sum(),
    }
}

/// The configuration of the demo: what a file of a user's own would hold.
const SETTINGS: [&str; 22] = [
    "kafka.group_id=demo",
    "kafka.instance_id=demo",
    // The mock lets the first member of a classic group wait for 3 s.
    "kafka.consumer.properties.\"group.protocol\"=consumer",
    "source[0].topic=orders",
    "source[0].timestamp.field=ts",
    "source[0].watermark.max_out_of_orderness=2s",
    "source[0].watermark.idle_timeout=5s",
    "window.size=10s",
    "window.allowed_lateness=5s",
    "key.from=message",
    "aggregate[0].name=orders",
    "aggregate[0].function=count",
    "aggregate[1].name=revenue_cents",
    "aggregate[1].function=sum",
    "aggregate[1].field=amount_cents",
    "aggregate[2].name=average_cents",
    "aggregate[2].function=avg",
    "aggregate[2].field=amount_cents",
    "results.topic=orders-10s",
    "late.topic=orders-late",
    "dead_letter.topic=orders-dead",
    "log.filter=warn",
];

const PARTITIONS: i32 = 6;

/// Longer than the idle timeout, and over within the first half minute.
const SILENCE: Silence = Silence {
    cycle: Duration::from_secs(40),
    from: Duration::from_secs(8),
    until: Duration::from_secs(24),
};

/// The same orders in every demo.
const SEED: u64 = 1;
