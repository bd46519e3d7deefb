//! What never changes while the process runs: the build and the configuration.

use std::time::Duration;

use super::family::{Family, seconds, timestamp};
use crate::config::Config;
use crate::event_time::{EventTime, WatermarkStrategy};

/// What the metrics say about the build and the configuration.
#[derive(Clone, Debug)]
pub struct MetricsInfo {
    /// The version of the Kafka client library.
    pub librdkafka: String,
    /// [`Config::fingerprint`].
    pub config_sha256: String,
    /// The sources, by topic number.
    pub sources: Vec<SourceInfo>,
    /// The length of a window.
    pub window_size: Duration,
    /// How long after its end a window still takes records.
    pub allowed_lateness: Duration,
}

/// What the metrics say about a source.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// Its topic.
    pub topic: String,
    /// The name of its watermark strategy.
    pub strategy: String,
    /// After this much silence a partition is idle; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// The greatest bound that the strategy can come to, where it has one.
    pub max_out_of_orderness: Option<Duration>,
}

impl MetricsInfo {
    /// What is to be said about this configuration.
    pub fn new(config: &Config, librdkafka: impl Into<String>) -> Self {
        let sources = config.sources.iter().map(|source| SourceInfo {
            topic: source.topic.clone(),
            strategy: source.strategy.name().to_owned(),
            idle_timeout: source.idle_timeout,
            max_out_of_orderness: max_out_of_orderness(&source.strategy),
        });
        Self {
            librdkafka: librdkafka.into(),
            config_sha256: config.fingerprint.clone(),
            sources: sources.collect(),
            window_size: config.windows.size(),
            allowed_lateness: config.allowed_lateness,
        }
    }
}

/// The greatest bound that a strategy can come to; markers and foreign strategies have none that is known beforehand.
pub(super) fn max_out_of_orderness(strategy: &WatermarkStrategy) -> Option<Duration> {
    match strategy {
        WatermarkStrategy::AscendingTimestamps => Some(Duration::ZERO),
        WatermarkStrategy::BoundedOutOfOrderness { max_out_of_orderness } => {
            Some(*max_out_of_orderness)
        }
        WatermarkStrategy::Adaptive(settings) => Some(settings.ceiling.max(settings.floor)),
        WatermarkStrategy::Punctuated | WatermarkStrategy::Named(_) => None,
    }
}

pub(super) fn families(info: &MetricsInfo, start: EventTime) -> Vec<Family> {
    let build = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", option_env!("TIDEGATE_REVISION").unwrap_or("unknown")),
        ("librdkafka", info.librdkafka.as_str()),
    ];
    let mut pipeline = Family::gauge(
        "tidegate_pipeline_info",
        "Always 1; the labels say how the event time of a topic is followed and cut.",
    );
    let mut idle_timeout = Family::gauge(
        "tidegate_config_idle_timeout_seconds",
        "After this much silence a partition of the topic holds nobody back.",
    );
    let mut bound = Family::gauge(
        "tidegate_config_max_out_of_orderness_seconds",
        "The greatest out-of-orderness bound that the topic's strategy can come to.",
    );
    let window = format!("{:?}", info.window_size);
    for source in &info.sources {
        let topic = ("topic", source.topic.as_str());
        let strategy = ("strategy", source.strategy.as_str());
        let config = ("config_sha256", info.config_sha256.as_str());
        pipeline.push(&[topic, strategy, ("window", &window), config], 1.0);
        idle_timeout = idle_timeout.with(&[topic], source.idle_timeout.map(seconds));
        bound = bound.with(&[topic], source.max_out_of_orderness.map(seconds));
    }
    vec![
        Family::gauge("tidegate_build_info", "Always 1; the labels say what was built.")
            .with(&build, 1.0),
        Family::gauge("tidegate_start_timestamp_seconds", "When the service began.")
            .with(&[], timestamp(start)),
        Family::gauge("tidegate_config_window_size_seconds", "The length of a window.")
            .with(&[], seconds(info.window_size)),
        Family::gauge(
            "tidegate_config_allowed_lateness_seconds",
            "How long after its end a window still takes records and fires again.",
        )
        .with(&[], seconds(info.allowed_lateness)),
        pipeline,
        idle_timeout,
        bound,
    ]
}
