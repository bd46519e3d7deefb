//! Made-up topics that are right.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{KeyOf, Rules, Topics};
use crate::record::Record;

pub(crate) const BASE: i64 = 1_700_000_000_000;

pub(crate) fn rules() -> Rules {
    Rules {
        partitions: 2,
        bound: 1_000,
        window: 10_000,
        allowed_lateness: 0,
        time: "t",
        value: "v",
        key: KeyOf::Message,
        added: BTreeSet::new(),
    }
}

/// Topics, while they can still be changed.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rules: Rules,
    pub(crate) input: Vec<Record>,
    pub(crate) panes: Vec<Pane>,
    pub(crate) late: Vec<Record>,
    pub(crate) dead: Vec<Record>,
    /// Partition, offset and value of the records in windows.
    pub(crate) accepted: BTreeMap<Row, Vec<(i32, i64, i64)>>,
}

/// Partition, start of the window, key.
type Row = (i32, i64, String);

#[derive(Clone, Debug)]
pub(crate) struct Pane {
    /// -1 for all of them.
    pub(crate) partition: i32,
    pub(crate) start: i64,
    pub(crate) key: String,
    pub(crate) count: i64,
    pub(crate) sum: i128,
    pub(crate) timing: &'static str,
    pub(crate) index: usize,
    pub(crate) clock: i64,
}

impl World {
    /// What a service leaves whose clocks follow every record at once.
    pub(crate) fn right(rules: Rules) -> Self {
        let mut world = Self {
            rules,
            input: input(),
            panes: Vec::new(),
            late: Vec::new(),
            dead: Vec::new(),
            accepted: BTreeMap::new(),
        };
        let mut own = BTreeMap::from([(0, i64::MIN), (1, i64::MIN)]);
        for at in 0..world.input.len() {
            let Record { partition, offset, key, payload, .. } = world.input[at].clone();
            let Some(payload) = payload else { continue };
            let Ok(json) = serde_json::from_slice::<serde_json::Value>(&payload) else {
                world.be_dead(at);
                continue;
            };
            let shared = world.rules.key != KeyOf::Message;
            let least = |own: &BTreeMap<i32, i64>| own.values().copied().min().unwrap();
            let clock = if shared { least(&own) } else { own[&partition] };
            let (time, value) = (json["t"].as_i64().unwrap(), json["v"].as_i64().unwrap());
            let start = time - time.rem_euclid(10_000);
            if start + 9_999 + world.rules.allowed_lateness <= clock {
                world.be_late(partition, offset, clock);
            } else {
                let key = String::from_utf8(key.unwrap()).unwrap();
                let row = (if shared { -1 } else { partition }, start, key);
                world.accepted.entry(row.clone()).or_default().push((partition, offset, value));
                if start + 9_999 <= clock {
                    world.fire(&row, "late", clock);
                }
            }
            let mine = own.get_mut(&partition).unwrap();
            *mine = (*mine).max(time - 1_001);
            let clock = if shared { least(&own) } else { own[&partition] };
            world.fire_due(if shared { -1 } else { partition }, clock);
        }
        world
    }

    fn fire_due(&mut self, partition: i32, clock: i64) {
        let due = |row: &Row| {
            row.0 == partition && row.1 + 9_999 <= clock && self.of_row(row).next().is_none()
        };
        let due: Vec<_> = self.accepted.keys().filter(|row| due(row)).cloned().collect();
        for row in due {
            self.fire(&row, "on_time", clock);
        }
    }

    fn fire(&mut self, row: &Row, timing: &'static str, clock: i64) {
        let records = &self.accepted[row];
        let pane = Pane {
            partition: row.0,
            start: row.1,
            key: row.2.clone(),
            count: i64::try_from(records.len()).unwrap(),
            sum: records.iter().map(|(_, _, value)| i128::from(*value)).sum(),
            timing,
            index: self.of_row(row).count(),
            clock,
        };
        self.panes.push(pane);
    }

    fn of_row<'a>(&'a self, (partition, start, key): &'a Row) -> impl Iterator<Item = &'a Pane> {
        self.panes.iter().filter(move |pane| {
            pane.partition == *partition && pane.start == *start && pane.key == *key
        })
    }

    pub(crate) fn is_last(&self, pane: &Pane) -> bool {
        let row = (pane.partition, pane.start, pane.key.clone());
        self.of_row(&row).all(|other| other.index <= pane.index)
    }

    /// Puts a record into the late topic.
    pub(crate) fn be_late(&mut self, partition: i32, offset: i64, clock: i64) {
        let at = |record: &&Record| (record.partition, record.offset) == (partition, offset);
        let mut record = passed_on(self.input.iter().find(at).unwrap(), "late", self.late.len());
        let time = record.json()["t"].as_i64().unwrap();
        let start = time - time.rem_euclid(10_000);
        set_header(&mut record, "cause", &"out_of_order");
        set_header(&mut record, "window.start", &start);
        set_header(&mut record, "window.end", &(start + 10_000));
        set_header(&mut record, "watermark", &clock);
        set_header(&mut record, "lateness.ms", &(clock - time));
        self.late.push(record);
    }

    /// Puts a record into the dead letters.
    pub(crate) fn be_dead(&mut self, at: usize) {
        let record = passed_on(&self.input[at], "bad_json", self.dead.len());
        self.dead.push(record);
    }

    /// As a reader finds them.
    pub(crate) fn topics(&self) -> Topics {
        let results = (0..).zip(&self.panes).map(|(offset, pane)| result(offset, pane));
        Topics {
            input: self.input.clone(),
            results: results.collect(),
            late: self.late.clone(),
            dead: self.dead.clone(),
        }
    }
}

fn result(offset: i64, pane: &Pane) -> Record {
    let Pane { partition, start, key, count, sum, timing, index, clock } = pane;
    let end = start + 10_000;
    let payload = format!(
        r#"{{"window_start":{start},"window_end":{end},"key":"{key}","count":{count},"sum":{sum},"pane":{{"timing":"{timing}","index":{index}}}}}"#
    );
    let mut record = Record { offset, ..Record::of(0, payload) };
    record.key = Some(key.clone().into_bytes());
    let partition = if *partition < 0 { "all".to_owned() } else { partition.to_string() };
    set_header(&mut record, "watermark", &clock);
    set_header(&mut record, "partition", &partition);
    record
}

fn passed_on(record: &Record, reason: &str, offset: usize) -> Record {
    let mut passed = record.clone();
    set_header(&mut passed, "reason", &reason);
    set_header(&mut passed, "partition", &record.partition);
    set_header(&mut passed, "offset", &record.offset);
    passed.partition = 0;
    passed.offset = i64::try_from(offset).unwrap();
    passed
}

/// A number in a header that the service adds.
pub(crate) fn header(record: &Record, name: &str) -> i64 {
    record.header(&format!("tidegate.{name}")).unwrap().parse().unwrap()
}

pub(crate) fn set_header(record: &mut Record, name: &str, value: &impl ToString) {
    let name = format!("tidegate.{name}");
    record.headers.retain(|(held, _)| *held != name);
    record.headers.push((name, Some(value.to_string().into_bytes())));
}

/// Two partitions in turn, 400 records each: in disorder, some late, some broken, some tombstones; and one each that
/// closes all windows but its own.
fn input() -> Vec<Record> {
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        (random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 4) % below
    };
    let mut records = Vec::new();
    for nth in 0..401_i64 {
        for partition in 0..2 {
            let behind = if nth % 19 == 18 { 8_000 + next(20_000) } else { next(1_000) };
            let (mut key, mut time) = (next(2), BASE + nth * 400 - i64::try_from(behind).unwrap());
            if nth == 400 {
                (key, time) = (9, BASE + 3_600_000);
            }
            let value = next(1 << 60);
            let key = format!("k{key}-{partition}");
            let mut record =
                Record::of(partition, format!(r#"{{"k":"{key}","t":{time},"v":{value}}}"#));
            if nth % 17 == 16 {
                record.payload = Some(format!("no JSON {value}").into_bytes());
            } else if nth % 23 == 22 {
                record.payload = None;
            }
            record.key = Some(key.into_bytes());
            record.offset = nth;
            record.timestamp = Some(BASE + nth);
            record.headers = vec![("trace".to_owned(), Some(b"x".to_vec()))];
            records.push(record);
        }
    }
    records
}
