//! The bytes of one part; the module above describes them.

use std::collections::BTreeSet;

use super::{Layout, SavedPartition};
use crate::event_time::snapshot::{Reader, put_bytes, put_signed, put_varint};
use crate::event_time::{
    AggregateFunction, EntryView, EventTime, PartitionState, Reopened, Shard, ShardView,
    TimeWindow, Watermark,
};

/// What a part begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) snapshot: bool,
    pub(super) sequence: u64,
    pub(super) part: u64,
    pub(super) functions: Vec<AggregateFunction>,
}

impl Head {
    /// Appends it, as that of a part after which others come.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend([VERSION, if self.snapshot { SNAPSHOT } else { 0 }]);
        put_varint(bytes, self.sequence);
        put_varint(bytes, self.part);
        put_varint(bytes, self.functions.len() as u64);
        bytes.extend(self.functions.iter().map(|function| function.code()));
    }

    /// Reads what follows the version, and whether it is the last part.
    pub(super) fn read(reader: &mut Reader<'_>) -> Option<(Self, bool)> {
        let flags = reader.u8().filter(|flags| flags & !(SNAPSHOT | LAST) == 0)?;
        let (sequence, part) =
            (reader.varint().filter(|sequence| *sequence > 0)?, reader.varint()?);
        let codes = reader.bytes()?.iter();
        let functions =
            codes.map(|code| AggregateFunction::from_code(*code)).collect::<Option<_>>()?;
        let head = Self { snapshot: flags & SNAPSHOT != 0, sequence, part, functions };
        Some((head, flags & LAST != 0))
    }
}

/// Makes of a part the last one of its sequence.
pub(super) fn mark_last(part: &mut [u8]) {
    if let Some(flags) = part.get_mut(1) {
        *flags |= LAST;
    }
}

/// Appends an entry, and its window where that is another than the last entry's.
pub(super) fn write_entry(
    entry: &EntryView<'_>,
    last_window: &mut Option<TimeWindow>,
    bytes: &mut Vec<u8>,
) {
    let TimeWindow { start, end } = entry.window;
    if *last_window != Some(entry.window) {
        *last_window = Some(entry.window);
        put_varint(bytes, WINDOW);
        put_signed(bytes, start.0);
        put_varint(bytes, end.0.abs_diff(start.0));
        put_varint(bytes, entry.left as u64);
    }
    put_varint(bytes, entry.key.len() as u64 + KEY);
    bytes.extend_from_slice(entry.key);
    put_varint(bytes, u64::from(entry.panes) << 1 | u64::from(entry.discarded));
    entry.aggregates.write(bytes);
}

/// Appends that there are no more entries.
pub(super) fn end_entries(bytes: &mut Vec<u8>) {
    put_varint(bytes, END);
}

/// Reads the entries of a part into a shard, up to their end. Makes room for as many as a window is said to have, but
/// for no more than `room` in all, which it lessens.
pub(super) fn read_entries(
    reader: &mut Reader<'_>,
    functions: &[AggregateFunction],
    shard: &mut Shard,
    room: &mut usize,
) -> Option<()> {
    let mut window: Option<Reopened<'_>> = None;
    loop {
        match reader.varint()? {
            END => return Some(()),
            WINDOW => {
                let start = reader.signed()?;
                let end = start.checked_add_unsigned(reader.varint().filter(|size| *size > 0)?)?;
                let begun = TimeWindow { start: EventTime(start), end: EventTime(end) };
                let expected = usize::try_from(reader.varint()?).unwrap_or(usize::MAX).min(*room);
                *room -= expected;
                window = Some(shard.reopen(begun, expected, functions));
            }
            length => {
                let key = reader.take(length - KEY)?;
                let fired = reader.varint()?;
                let panes = u32::try_from(fired >> 1).ok()?;
                window.as_mut()?.put(key, panes, fired & 1 == 1, reader)?;
            }
        }
    }
}

/// What the last part ends with.
#[derive(Clone, Debug)]
pub(super) struct StateRecord {
    pub(super) clock: Watermark,
    pub(super) closed: EventTime,
    /// The starts of the windows excepted from that.
    pub(super) owed: BTreeSet<EventTime>,
    pub(super) layout: Layout,
    pub(super) partitions: Vec<SavedPartition>,
}

impl StateRecord {
    pub(super) fn write(
        shard: &ShardView<'_>,
        partitions: &[SavedPartition],
        layout: &Layout,
        bytes: &mut Vec<u8>,
    ) {
        put_signed(bytes, shard.clock().0.0);
        put_signed(bytes, shard.closed().0);
        let owed: Vec<_> = shard.owed().collect();
        put_varint(bytes, owed.len() as u64);
        for window in owed {
            put_signed(bytes, window.start.0);
        }
        put_bytes(bytes, layout.as_str().as_bytes());
        put_varint(bytes, partitions.len() as u64);
        for partition in partitions {
            put_bytes(bytes, partition.topic.as_bytes());
            put_varint(bytes, u64::from(partition.partition.unsigned_abs()));
            put_signed(bytes, partition.offset);
            put_signed(bytes, partition.state.watermark.0.0);
            put_bytes(bytes, &partition.state.generator);
            bytes.push(u8::from(partition.state.max_event_time.is_some()));
            if let Some(time) = partition.state.max_event_time {
                put_signed(bytes, time.0);
            }
        }
    }

    /// Reads it; nothing may follow.
    pub(super) fn read(mut reader: Reader<'_>) -> Option<Self> {
        let reader = &mut reader;
        let clock = Watermark(EventTime(reader.signed()?));
        let closed = EventTime(reader.signed()?);
        let owed = reader.varint()?;
        let owed = (0..owed).map(|_| reader.signed().map(EventTime)).collect::<Option<_>>()?;
        let layout = Layout::read(reader.bytes()?)?;
        let partitions = reader.varint()?;
        let partitions =
            (0..partitions).map(|_| SavedPartition::read(reader)).collect::<Option<_>>()?;
        (reader.left() == 0).then_some(Self { clock, closed, owed, layout, partitions })
    }
}

impl SavedPartition {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let topic = str::from_utf8(reader.bytes()?).ok()?.to_owned();
        let partition = i32::try_from(reader.varint()?).ok()?;
        let offset = reader.signed()?;
        let watermark = Watermark(EventTime(reader.signed()?));
        let generator = reader.bytes()?.to_vec();
        let max_event_time = match reader.u8()? {
            0 => None,
            1 => Some(EventTime(reader.signed()?)),
            _ => return None,
        };
        let state = PartitionState { watermark, generator, max_event_time, shard: None };
        Some(Self { topic, partition, offset, state })
    }
}

/// The format that is written.
pub(super) const VERSION: u8 = 1;

const LAST: u8 = 1;
const SNAPSHOT: u8 = 2;

const END: u64 = 0;
const WINDOW: u64 = 1;
/// Of this and all above it a key follows, of as many bytes as it is above this.
const KEY: u64 = 2;
