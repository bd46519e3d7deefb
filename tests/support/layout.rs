//! The layout of windows whose settings are made by hand.

use tidegate::codec::changelog::Layout;
use tidegate::config::{Aggregate, Key, KeyFrom, Missing, ValueType};
use tidegate::event_time::{AggregateFunction, Sharding, SubtaskSettings};

/// That of aggregates of one field, with the key in a field where one shard has all.
pub(crate) fn layout_of(settings: &SubtaskSettings) -> Layout {
    let aggregate = |function: &AggregateFunction| Aggregate {
        name: String::new(),
        function: *function,
        field: Some("value".to_owned()),
        value_type: ValueType::Number,
        missing: Missing::Skip,
    };
    let aggregates: Vec<_> = settings.window.aggregates.iter().map(aggregate).collect();
    let from = match settings.sharding {
        Sharding::OneForAll => KeyFrom::Fields(vec!["key".to_owned()]),
        Sharding::PerPartition => KeyFrom::Message,
    };
    let key = Key { from, partial: false, across_topics: false };
    Layout::new(settings.window.windows, settings.window.panes, &key, &aggregates)
}
