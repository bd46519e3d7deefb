//! The messages of a changelog partition into the shard that they are of.

use super::part::{Head, StateRecord, VERSION, read_entries};
use super::write::Log;
use super::{Layout, SavedPartition, ShardWriter};
use crate::event_time::snapshot::Reader;
use crate::event_time::{AggregateFunction, Shard, ShardId, TimeWindow, Watermark, WindowSettings};

/// Why a changelog cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangelogFault {
    /// Another format.
    #[error(
        "it is written in format {found}, and this tidegate knows formats up to {VERSION}: a newer tidegate wrote it; \
         run that version again, or a newer one"
    )]
    Version {
        /// The format's number.
        found: u8,
    },
    /// Not what was written.
    #[error("it is damaged: {what} at byte {at} of the message of slot {slot}")]
    Malformed {
        /// What is not right.
        what: &'static str,
        /// Where in the message's value.
        at: usize,
        /// Which message.
        slot: u32,
    },
    /// A message without a slot.
    #[error("a message has a key of {length} bytes; those of a changelog have 4")]
    Key {
        /// How long the key is.
        length: usize,
    },
    /// Commits are missing.
    #[error("commit sequence {after} is followed by {found}: what lies between is missing")]
    Gap {
        /// The last one before.
        after: u64,
        /// The next one found.
        found: u64,
    },
    /// What the changes were made to is missing.
    #[error("it holds changes, and no snapshot before them: its beginning is missing")]
    NoSnapshot,
    /// Windows of another configuration are open.
    #[error(
        "it holds {windows} windows that have not fired and were kept under another configuration: that was `{written}`, \
         this is `{wanted}`; run the old configuration with `tidegate run --until-end`, which fires them, or give them \
         up with `tidegate reset`"
    )]
    LayoutChanged {
        /// The layout they were kept under.
        written: Layout,
        /// The layout in force.
        wanted: Layout,
        /// How many they are.
        windows: usize,
    },
}

/// Takes the messages of one changelog partition in their order and makes a shard of them.
///
/// A sequence counts once its last part has come, and a change once the snapshot before it has: what compaction has left
/// of older generations is passed over.
#[derive(Debug)]
pub struct Restorer {
    settings: WindowSettings,
    layout: Layout,
    shard: Shard,
    taken: Option<Taken>,
    incoming: Option<Incoming>,
    /// Memory of parts that were taken in: to touch new memory takes longer than to copy a part.
    spare: Vec<Vec<u8>>,
    /// Whether a complete sequence was passed over for want of a snapshot.
    passed_over: bool,
    /// Whether there was one of another layout.
    past: bool,
}

/// What the last complete sequence says.
#[derive(Debug)]
struct Taken {
    functions: Vec<AggregateFunction>,
    record: StateRecord,
    log: Log,
    slot: u32,
}

/// A sequence whose last part has not come yet.
#[derive(Debug)]
struct Incoming {
    head: Head,
    /// What a snapshot holds so far.
    shard: Shard,
    /// Changes so far, to be made once all of them are there.
    parts: Vec<Part>,
    /// How many parts have come.
    count: u64,
    bytes: usize,
    /// For so many entries room may still be made before they have come.
    room: usize,
}

/// What follows the head of a part.
#[derive(Debug)]
struct Part {
    slot: u32,
    value_bytes: usize,
    rest: Vec<u8>,
}

/// A shard as it was at the last complete sequence.
#[derive(Debug)]
pub struct Restored {
    /// The windows and their clock; nothing of it counts as changed.
    pub shard: Shard,
    /// The source partitions.
    pub partitions: Vec<SavedPartition>,
    /// Goes on writing where the sequence ends.
    pub writer: ShardWriter,
    /// Whether it was written under another layout: then it holds no windows.
    pub layout_changed: bool,
    /// How many entries were dropped for that; they had fired and waited for late records.
    pub dropped: usize,
}

impl Restorer {
    /// For a shard under these settings.
    pub fn new(settings: &WindowSettings, layout: &Layout) -> Self {
        Self {
            settings: settings.clone(),
            layout: layout.clone(),
            shard: empty(),
            taken: None,
            incoming: None,
            spare: Vec::new(),
            passed_over: false,
            past: false,
        }
    }

    /// Takes one message.
    pub fn take(&mut self, key: Option<&[u8]>, value: &[u8]) -> Result<(), ChangelogFault> {
        let key = key.unwrap_or_default();
        let slot = key.try_into().map(u32::from_be_bytes);
        let slot = slot.map_err(|_| ChangelogFault::Key { length: key.len() })?;
        let mut reader = Reader::whole(value);
        if let Some(found) = reader.u8().filter(|version| *version != VERSION) {
            return Err(ChangelogFault::Version { found });
        }
        let head = Head::read(&mut reader);
        let (head, last) = head.ok_or_else(|| malformed("no head", value.len(), &reader, slot))?;
        let begins = head.part == 0;
        let mut incoming = match self.incoming.take() {
            _ if begins => Incoming::new(head),
            Some(incoming) if incoming.goes_on_with(&head) => incoming,
            // The rest of a sequence whose beginning was replaced, or which was begun anew.
            _ => return Ok(()),
        };
        incoming.count += 1;
        incoming.bytes += key.len() + value.len();
        incoming.room += ROOM * value.len() / (incoming.head.functions.len() + 6);
        let mut part = Part { slot, value_bytes: value.len(), rest: Vec::new() };
        if incoming.head.snapshot {
            let Incoming { head, shard, room, .. } = &mut incoming;
            read_entries(&mut reader, &head.functions, shard, room)
                .filter(|()| last || reader.left() == 0)
                .ok_or_else(|| malformed("no entry", part.value_bytes, &reader, slot))?;
        }
        if last {
            return self.complete(incoming, &part, reader);
        }
        if !incoming.head.snapshot {
            part.rest = self.spare.pop().unwrap_or_default();
            part.rest.extend_from_slice(reader.rest());
            incoming.parts.push(part);
        }
        self.incoming = Some(incoming);
        Ok(())
    }

    /// The last complete sequence.
    pub fn sequence(&self) -> Option<u64> {
        self.taken.as_ref().map(|taken| taken.log.sequence)
    }

    /// How many (window, key) entries there are.
    pub fn entries(&self) -> usize {
        self.shard.entry_count()
    }

    /// The shard as it was at the last complete sequence; `None` if there is none.
    pub fn finish(mut self, shard: ShardId) -> Result<Option<Restored>, ChangelogFault> {
        let Some(taken) = self.taken.take() else {
            return if self.passed_over { Err(ChangelogFault::NoSnapshot) } else { Ok(None) };
        };
        let StateRecord { clock, closed, layout, partitions, .. } = taken.record;
        self.shard.id = shard;
        self.shard.own_clock = Some(clock);
        let mut log = taken.log;
        let layout_changed = layout != self.layout;
        let mut dropped = 0;
        if layout_changed {
            let windows = self.shard.unfired_windows();
            if windows > 0 {
                let wanted = self.layout;
                return Err(ChangelogFault::LayoutChanged { written: layout, wanted, windows });
            }
            dropped = self.shard.entry_count();
            self.shard.close(closed, &self.settings);
            self.shard.close_all();
            log.has_snapshot = false;
        } else {
            let is_ours =
                |window: TimeWindow| self.settings.windows.assign(window.start) == Some(window);
            if taken.functions != self.settings.aggregates || !self.shard.windows().all(is_ours) {
                let what = "windows or aggregates that are none of the layout's";
                return Err(ChangelogFault::Malformed { what, at: 0, slot: taken.slot });
            }
            self.shard.close(closed, &self.settings);
            self.shard.drop_freed(&self.settings);
        }
        let writer = ShardWriter::going_on(log, self.past);
        Ok(Some(Restored { shard: self.shard, partitions, writer, layout_changed, dropped }))
    }

    /// Takes in a sequence whose last part is there.
    fn complete(
        &mut self,
        incoming: Incoming,
        last: &Part,
        mut reader: Reader<'_>,
    ) -> Result<(), ChangelogFault> {
        let Incoming { head, shard, parts, bytes, mut room, .. } = incoming;
        let Head { snapshot, sequence, functions, .. } = head;
        let mut log = Log::default();
        if snapshot {
            self.shard = shard;
        } else {
            let Some(taken) = &self.taken else {
                self.passed_over = true;
                return Ok(());
            };
            log = taken.log.clone();
            if sequence < log.sequence {
                return Ok(());
            }
            if sequence > log.sequence + 1 {
                return Err(ChangelogFault::Gap { after: log.sequence, found: sequence });
            }
            if functions != taken.functions {
                let what = "other aggregates than before";
                return Err(malformed(what, last.value_bytes, &reader, last.slot));
            }
            for mut part in parts {
                let mut reader = Reader::whole(&part.rest);
                read_entries(&mut reader, &functions, &mut self.shard, &mut room)
                    .filter(|()| reader.left() == 0)
                    .ok_or_else(|| malformed("no entry", part.value_bytes, &reader, part.slot))?;
                part.rest.clear();
                self.spare.push(part.rest);
            }
            read_entries(&mut reader, &functions, &mut self.shard, &mut room)
                .ok_or_else(|| malformed("no entry", last.value_bytes, &reader, last.slot))?;
        }
        let state = reader.rest().to_vec();
        let record = StateRecord::read(Reader::whole(&state));
        let record = record
            .ok_or_else(|| malformed("no state record", last.value_bytes, &reader, last.slot))?;
        self.shard.drop_closed(record.closed, &record.owed);
        self.past |= record.layout != self.layout;
        log.take(sequence, snapshot, last.slot.saturating_add(1), bytes, state);
        self.taken = Some(Taken { functions, record, log, slot: last.slot });
        Ok(())
    }
}

impl Incoming {
    fn new(head: Head) -> Self {
        Self { head, shard: empty(), parts: Vec::new(), count: 0, bytes: 0, room: 0 }
    }

    fn goes_on_with(&self, head: &Head) -> bool {
        *head == Head { part: self.count, ..self.head.clone() }
    }
}

/// It gets its name and its clock in the end.
fn empty() -> Shard {
    Shard::restored(ShardId::All, Watermark::NONE)
}

/// Room is made for at most so many times the entries that fit into the bytes that have come. Those of a window that
/// has more are moved a few times, and of damaged bytes no more comes than this.
const ROOM: usize = 8;

fn malformed(
    what: &'static str,
    value_bytes: usize,
    reader: &Reader<'_>,
    slot: u32,
) -> ChangelogFault {
    ChangelogFault::Malformed { what, at: value_bytes - reader.left(), slot }
}
