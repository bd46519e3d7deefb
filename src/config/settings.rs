//! The settings as written: tables of text, in the shape of `config/default.toml`.
//!
//! Every value stays text here, and every key may be absent: what it means and whether it must be there is for the
//! reading of [`Settings`] into a `Config`, which names all faults at once. Numbers and flags become text on the way, as
//! they are text in the environment anyway.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::properties::Properties;

/// Everything that can be written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct Settings {
    pub(super) kafka: KafkaSettings,
    pub(super) source: Vec<SourceSettings>,
    pub(super) window: WindowSettings,
    pub(super) watermark: WatermarkSettings,
    pub(super) alignment: AlignmentSettings,
    pub(super) key: KeySettings,
    pub(super) aggregate: Vec<AggregateSettings>,
    pub(super) guard: GuardSettings,
    pub(super) limits: LimitsSettings,
    pub(super) results: ResultsSettings,
    pub(super) late: TopicSettings,
    pub(super) dead_letter: TopicSettings,
    pub(super) topics: TopicsSettings,
    pub(super) delivery: DeliverySettings,
    pub(super) export: ExportSettings,
    pub(super) http: HttpSettings,
    pub(super) admin: AdminSettings,
    pub(super) log: LogSettings,
    pub(super) service: ServiceSettings,
}

/// `[kafka]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct KafkaSettings {
    pub(super) bootstrap_servers: Option<String>,
    pub(super) group_id: Option<String>,
    pub(super) instance_id: Option<String>,
    pub(super) static_membership: Option<String>,
    pub(super) properties: Properties,
    pub(super) consumer: ClientSettings,
    pub(super) producer: ClientSettings,
    pub(super) oauth: OAuthSettings,
}

/// `[kafka.consumer]`, `[kafka.producer]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct ClientSettings {
    pub(super) properties: Properties,
}

/// `[kafka.oauth]`
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct OAuthSettings {
    pub(super) token_endpoint: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<String>,
    pub(super) client_secret_file: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) extensions: Option<String>,
    pub(super) ca_file: Option<String>,
}

impl fmt::Debug for OAuthSettings {
    /// The secret is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthSettings")
            .field("token_endpoint", &self.token_endpoint)
            .finish_non_exhaustive()
    }
}

/// `[[source]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct SourceSettings {
    pub(super) topic: Option<String>,
    pub(super) topics: Option<Words>,
    pub(super) pattern: Option<String>,
    pub(super) timestamp: TimestampSettings,
    pub(super) watermark: StrategySettings,
    pub(super) partitions: Vec<PartitionSettings>,
    pub(super) heartbeat: HeartbeatSettings,
    pub(super) guard: GuardSettings,
    pub(super) fields: BTreeMap<String, String>,
    pub(super) start: Option<String>,
    pub(super) on_missing: Option<String>,
}

/// `[[source.partitions]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct PartitionSettings {
    pub(super) ids: Option<Words>,
    pub(super) max_out_of_orderness: Option<String>,
    pub(super) idle_timeout: Option<String>,
}

/// `[source.heartbeat]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct HeartbeatSettings {
    pub(super) field: Option<String>,
    pub(super) equals: Option<String>,
    pub(super) counts_as: Option<String>,
    pub(super) watermark: Option<String>,
}

/// `[source.timestamp]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct TimestampSettings {
    pub(super) field: Option<String>,
    pub(super) header: Option<String>,
    pub(super) from: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) naive: Option<String>,
}

/// `[source.watermark]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct StrategySettings {
    pub(super) strategy: Option<String>,
    pub(super) max_out_of_orderness: Option<String>,
    pub(super) idle_timeout: Option<String>,
    pub(super) marker: Option<String>,
    pub(super) margin: Option<String>,
    pub(super) buckets: Option<String>,
    pub(super) bucket_width: Option<String>,
    pub(super) floor: Option<String>,
    pub(super) ceiling: Option<String>,
    pub(super) initial: Option<String>,
}

/// `[window]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct WindowSettings {
    pub(super) size: Option<String>,
    pub(super) offset: Option<String>,
    pub(super) allowed_lateness: Option<String>,
    pub(super) panes: Option<String>,
}

/// `[watermark]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct WatermarkSettings {
    pub(super) emit_interval: Option<String>,
    pub(super) all_idle: Option<String>,
}

/// `[alignment]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct AlignmentSettings {
    pub(super) max_drift: Option<String>,
}

/// `[key]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct KeySettings {
    pub(super) fields: Option<Words>,
    pub(super) from: Option<String>,
    pub(super) partial: Option<String>,
}

/// `[[aggregate]]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct AggregateSettings {
    pub(super) name: Option<String>,
    pub(super) function: Option<String>,
    pub(super) field: Option<String>,
    #[serde(rename = "type")]
    pub(super) value_type: Option<String>,
    pub(super) missing: Option<String>,
}

/// `[guard]`, `[source.guard]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct GuardSettings {
    pub(super) max_future: Option<String>,
    pub(super) min_timestamp: Option<String>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct LimitsSettings {
    pub(super) open_windows: Option<String>,
    pub(super) keys_per_window: Option<String>,
    pub(super) state_bytes: Option<String>,
}

/// `[results]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct ResultsSettings {
    pub(super) topic: Option<String>,
    pub(super) key: Option<String>,
    pub(super) progress: Option<String>,
    pub(super) timestamps: Option<String>,
    pub(super) integers: Option<String>,
}

/// `[late]`, `[dead_letter]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct TopicSettings {
    pub(super) topic: Option<String>,
}

/// `[topics]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct TopicsSettings {
    pub(super) create: Option<String>,
    pub(super) partitions: Option<String>,
    pub(super) replication_factor: Option<String>,
}

/// `[delivery]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct DeliverySettings {
    pub(super) guarantee: Option<String>,
    pub(super) commit_interval: Option<String>,
    pub(super) transaction_timeout: Option<String>,
}

/// `[export]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct ExportSettings {
    pub(super) postgres: PostgresSettings,
}

/// `[export.postgres]`
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct PostgresSettings {
    pub(super) table: Option<String>,
    pub(super) schema: Option<String>,
    pub(super) host: Option<String>,
    pub(super) port: Option<String>,
    pub(super) database: Option<String>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<String>,
    pub(super) tls: Option<String>,
    pub(super) tls_ca_file: Option<String>,
    pub(super) group_id: Option<String>,
    pub(super) create_tables: Option<String>,
    pub(super) batch_rows: Option<String>,
    pub(super) batch_interval: Option<String>,
    pub(super) listen: Option<String>,
}

impl fmt::Debug for PostgresSettings {
    /// The password is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings").field("table", &self.table).finish_non_exhaustive()
    }
}

/// `[http]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct HttpSettings {
    pub(super) listen: Option<String>,
}

/// `[admin]`
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct AdminSettings {
    pub(super) listen: Option<String>,
    pub(super) token: Option<String>,
    pub(super) token_file: Option<String>,
    pub(super) tls_certificate_file: Option<String>,
    pub(super) tls_key_file: Option<String>,
}

impl fmt::Debug for AdminSettings {
    /// The token is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminSettings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct LogSettings {
    pub(super) format: Option<String>,
    pub(super) filter: Option<String>,
    pub(super) repeats: Option<String>,
    pub(super) repeat_interval: Option<String>,
}

/// `[service]`
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(super) struct ServiceSettings {
    pub(super) subtasks: Option<String>,
    pub(super) shutdown_timeout: Option<String>,
}

/// A list of words: an array, or one text with commas, which is all that the environment can hold.
#[derive(Debug)]
pub(super) struct Words(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordsVisitor;

        impl<'de> Visitor<'de> for WordsVisitor {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of words")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Words, E> {
                Ok(Words(text.split(',').map(|word| word.trim().to_owned()).collect()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element()? {
                    words.push(word);
                }
                Ok(Words(words))
            }
        }

        deserializer.deserialize_any(WordsVisitor)
    }
}
