//! The configuration that the tests of the pipeline begin with.

use std::sync::LazyLock;

use tidegate::config::{Config, Sources, load};

/// Windows of 10 s, out of order by 1 s at most, never idle; key in field `k`, time in `ts` (ms), value in `v`; count
/// `n`, sum `sum`, greatest `max`.
pub(crate) fn config() -> Config {
    static CONFIG: LazyLock<Config> = LazyLock::new(|| {
        let environment = SETTINGS
            .map(|(name, value)| (format!("TIDEGATE__{name}"), value.to_owned()))
            .into_iter()
            .collect();
        let host_name = Some("host".to_owned());
        load(&Sources { environment, host_name, ..Sources::default() }).unwrap().config
    });
    CONFIG.clone()
}

const SETTINGS: [(&str, &str); 22] = [
    ("KAFKA__BOOTSTRAP_SERVERS", "nowhere:9092"),
    ("KAFKA__GROUP_ID", "group"),
    ("SOURCE__0__TOPIC", "in"),
    ("SOURCE__0__TIMESTAMP__FIELD", "ts"),
    ("SOURCE__0__TIMESTAMP__UNIT", "ms"),
    ("SOURCE__0__WATERMARK__STRATEGY", "bounded_out_of_orderness"),
    ("SOURCE__0__WATERMARK__MAX_OUT_OF_ORDERNESS", "1s"),
    ("SOURCE__0__WATERMARK__IDLE_TIMEOUT", "off"),
    ("WINDOW__SIZE", "10s"),
    ("KEY__FIELDS", "k"),
    ("AGGREGATE__0__NAME", "n"),
    ("AGGREGATE__0__FUNCTION", "count"),
    ("AGGREGATE__1__NAME", "sum"),
    ("AGGREGATE__1__FUNCTION", "sum"),
    ("AGGREGATE__1__FIELD", "v"),
    ("AGGREGATE__2__NAME", "max"),
    ("AGGREGATE__2__FUNCTION", "max"),
    ("AGGREGATE__2__FIELD", "v"),
    ("RESULTS__TOPIC", "results"),
    ("LATE__TOPIC", "late"),
    ("DEAD_LETTER__TOPIC", "dead"),
    ("GUARD__MAX_FUTURE", "1h"),
];
