//! Event time, pure: no clock, no input or output, no log; it cannot fail.
//!
//! Time comes in as an argument, effects go out as data. The words are the field's:
//!
//! - **event time**: when a record happened, by its own account;
//! - **watermark**: the promise that no record at or below it is still expected;
//! - **out-of-orderness bound**: how far a record may come behind the greatest timestamp so far;
//! - **idleness**: a partition that is silent for longer than its timeout holds nobody back;
//! - **subtask**: one thread with its partitions, whose watermark is the least of the active ones;
//! - **tumbling window**: a stretch of event time `[start, end)`, side by side without gaps;
//! - **firing**, **pane**: a window's contents for a key, handed out when the watermark passes the end, and again for
//!   each late record within the **allowed lateness**;
//! - **late record**: one whose window is past that; it goes to the **late topic**;
//! - **shard**: windows with one clock that move together between instances.
//!
//! What holds at all times:
//!
//! 1. A record is judged by the watermark as it was before the record.
//! 2. The subtask watermark and each shard's clock never go back.
//! 3. A window fires on time once for each key, and only if it has data.
//! 4. The same inputs in the same order give the same outputs in the same order.

mod aggregate;
mod alignment;
mod event;
mod facts;
mod multiplexer;
mod settings;
mod shard;
pub(crate) mod snapshot;
mod subtask;
mod time;
mod watermark;
mod window;
mod window_operator;

pub use time::{EventTime, MonotonicTime, Now, PartitionId, Watermark};

pub use event::{Event, Heartbeat, Marker};

pub use watermark::{
    Adaptive, AdaptiveSettings, BoundedOutOfOrderness, NamedStrategy, Punctuated,
    WatermarkGenerator, WatermarkOutput, WatermarkStrategy,
};

pub use multiplexer::WatermarkStatus;

pub use window::{TimeWindow, TumblingWindows};

pub use aggregate::{Accumulator, AggregateFunction, AggregateValue, Aggregates, Sum, Value};

pub(crate) use window_operator::{EntryView, Reopened};
pub use window_operator::{LimitExceeded, Panes, StateLimits, Timing, WindowSettings};

pub(crate) use shard::ShardView;
pub use shard::{Shard, ShardId, Sharding};

pub use settings::{AllIdle, SubtaskSettings, TopicSettings};

pub use alignment::{Aligned, Paused, Unread};

pub use facts::{
    Assigned, Disposition, LateCause, Lateness, Output, Pane, PartitionState, PartitionView,
};

pub use subtask::Subtask;
