//! What held windows depend on, in words.

use std::fmt;

use crate::config::{Aggregate, Config, Key, KeyFrom, Missing, ValueType};
use crate::event_time::{Panes, TumblingWindows};

/// A short text that tells configurations apart whose windows cannot go on with each other's state.
///
/// Names of aggregates and the allowed lateness do not matter; the order of aggregates does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(String);

/// The layout of a configuration.
pub fn layout(config: &Config) -> Layout {
    Layout::new(config.windows, config.panes, &config.key, &config.aggregates)
}

impl Layout {
    /// The layout of these windows.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::codec::changelog::Layout;
    /// use tidegate::config::{Key, KeyFrom};
    /// use tidegate::event_time::{Panes, TumblingWindows};
    ///
    /// let windows = TumblingWindows::new(Duration::from_secs(60), 0).unwrap();
    /// let key = Key { from: KeyFrom::Fields(vec!["origin".to_owned()]), partial: false, across_topics: false };
    /// assert_eq!(
    ///     Layout::new(windows, Panes::Accumulating, &key, &[]).as_str(),
    ///     "windows=60000ms offset=0ms panes=accumulating key=fields(origin) shards=one aggregates="
    /// );
    /// ```
    pub fn new(
        windows: TumblingWindows,
        panes: Panes,
        key: &Key,
        aggregates: &[Aggregate],
    ) -> Self {
        let panes = match panes {
            Panes::Accumulating => "accumulating",
            Panes::Discarding => "discarding",
        };
        let key_text = match &key.from {
            KeyFrom::Message => "message".to_owned(),
            KeyFrom::Fields(fields) => {
                let fields: Vec<_> = fields.iter().map(|field| name(field)).collect();
                format!("fields({})", fields.join(","))
            }
        };
        let shards = if key.needs_all_partitions() { "one" } else { "per_partition" };
        let aggregates: Vec<_> = aggregates.iter().map(aggregate).collect();
        Self(format!(
            "windows={}ms offset={}ms panes={panes} key={key_text} shards={shards} aggregates={}",
            windows.size().as_millis(),
            windows.offset_ms(),
            aggregates.join(",")
        ))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn read(text: &[u8]) -> Option<Self> {
        Some(Self(str::from_utf8(text).ok()?.to_owned()))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn aggregate(aggregate: &Aggregate) -> String {
    let function = aggregate.function.name();
    let Some(field) = &aggregate.field else { return format!("{function}()") };
    let value_type = match aggregate.value_type {
        ValueType::Number => "number",
        ValueType::Integer => "integer",
        ValueType::Float => "float",
    };
    let missing = match aggregate.missing {
        Missing::Refuse => "",
        Missing::Skip => ":skip",
    };
    format!("{function}({}:{value_type}{missing})", name(field))
}

/// A field's name; in quotes where it could be taken for something else.
fn name(field: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if !field.is_empty() && field.chars().all(plain) {
        field.to_owned()
    } else {
        format!("{field:?}")
    }
}
