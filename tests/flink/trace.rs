//! A recorded scenario as it lies in a file, and the files of a folder. `README.md` beside this tells what the fields mean.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Debug, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    pub(crate) config: Config,
    pub(crate) trace: Vec<Step>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) window_ms: i64,
    pub(crate) offset_ms: i64,
    pub(crate) generator: Generator,
    pub(crate) out_of_orderness_ms: u64,
    pub(crate) idle_timeout_ms: Option<u64>,
    pub(crate) allowed_lateness_ms: u64,
    pub(crate) auto_watermark_interval_ms: Option<u64>,
    pub(crate) accumulation: Accumulation,
    pub(crate) subtasks: Vec<Vec<i32>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Generator {
    Bounded,
    Ascending,
    Punctuated,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Accumulation {
    Accumulate,
    Purge,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Step {
    #[serde(rename = "do")]
    pub(crate) action: Action,
    /// Processing time after the step.
    pub(crate) now: u64,
    /// The operator's watermark after the step.
    pub(crate) wm: i64,
    /// How many (key, window) entries are held after the step.
    pub(crate) open: usize,
    pub(crate) out: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "some keys say everything by being there")]
pub(crate) enum Action {
    Event {
        event: TracedEvent,
    },
    Advance {
        advance_ms: u64,
    },
    Emit {
        emit: Presence,
    },
    AddPartition {
        add_partition: i32,
    },
    RemovePartition {
        remove_partition: i32,
    },
    PausePartition {
        pause_partition: i32,
    },
    ResumePartition {
        resume_partition: i32,
    },
    Backpressure {
        backpressure: Backpressure,
    },
    Restart {
        restart: Presence,
    },
    /// Flink's own end of input, or one that fires whatever is open: the same drain here.
    End {
        end: Presence,
    },
}

#[derive(Debug, Deserialize)]
pub(crate) struct TracedEvent {
    pub(crate) partition: i32,
    pub(crate) key: String,
    pub(crate) ts: i64,
    pub(crate) value: i64,
    /// The watermark that the event carries, for the punctuated generator.
    pub(crate) wm: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Backpressure {
    pub(crate) on: bool,
}

/// A value that says nothing more than its key.
type Presence = IgnoredAny;

#[derive(Debug, Deserialize)]
#[serde(tag = "e", rename_all = "snake_case")]
pub(crate) enum Entry {
    Tick { now: u64 },
    Forward { ts: i64 },
    Late { key: String, ts: i64, value: i64, watermark: i64 },
    Lost,
    Pane(TracedPane),
    PartitionWatermark { partition: i32, watermark: i64 },
    PartitionStatus { partition: i32, status: String },
    SubtaskWatermark,
    SubtaskStatus,
    Watermark { watermark: i64 },
    Status,
    EndWatermarkDropped,
    Fatal,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TracedPane {
    pub(crate) key: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) count: i64,
    pub(crate) sum: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    pub(crate) watermark: i64,
}

/// All scenarios of a folder's `*.json`, `*.jsonl` and `*.jsonl.gz`, in order of file names.
pub(crate) fn scenarios(folder: &Path) -> Vec<Scenario> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

fn read(path: &Path) -> Vec<Scenario> {
    let name = path.file_name().unwrap().to_string_lossy();
    let open = || BufReader::new(File::open(path).unwrap());
    let parse = |text: &str| {
        serde_json::from_str(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let lines = |text: Box<dyn Read>| {
        let lines = BufReader::new(text).lines().map(Result::unwrap);
        lines.filter(|line| !line.trim().is_empty()).map(|line| parse(&line)).collect()
    };
    if name.ends_with(".json") {
        vec![parse(&fs::read_to_string(path).unwrap())]
    } else if name.ends_with(".jsonl") {
        lines(Box::new(open()))
    } else if name.ends_with(".jsonl.gz") {
        lines(Box::new(GzDecoder::new(open())))
    } else {
        Vec::new()
    }
}
