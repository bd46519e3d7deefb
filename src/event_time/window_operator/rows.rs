//! The rows of one open window: each key, what it adds up to, and what became of it, in as few bytes as that takes.
//!
//! A row has its head (the length of the key and two marks, then how many panes were fired, four bytes each), the
//! accumulators, and the key. Rows stand one behind the other in the order of their arrival, in chunks, so that none is
//! ever moved; the place of its first byte is a row's name. A table of places finds a key's row.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::LimitExceeded;
use crate::event_time::aggregate::{
    AggregateFunction, Aggregates, LargeSums, Value, add_to, clear, read_all, width_of,
};
use crate::event_time::snapshot::Reader;

#[derive(Clone, Debug)]
pub(super) struct Rows {
    functions: Box<[AggregateFunction]>,
    /// How many bytes the accumulators of a row have.
    width: usize,
    chunks: Chunks,
    places: HashTable<u32>,
    hasher: RandomState,
    large: LargeSums,
}

/// A row as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    pub(super) key: &'a [u8],
    /// How many panes were fired of it.
    pub(super) panes: u32,
    /// Its contents were handed out by a discarding pane: the next record begins anew.
    pub(super) discarded: bool,
    pub(super) aggregates: Aggregates<'a>,
}

impl Rows {
    pub(super) fn new(functions: &[AggregateFunction]) -> Self {
        Self {
            functions: functions.into(),
            width: width_of(functions),
            chunks: Chunks::default(),
            places: HashTable::new(),
            hasher: RandomState::default(),
            large: LargeSums::default(),
        }
    }

    /// Makes room for so many rows in the table.
    pub(super) fn reserve(&mut self, rows: usize) {
        let Self { width, chunks, places, hasher, .. } = self;
        places.reserve(rows, |place| hash(hasher, chunks, *width, *place));
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many bytes a row with this key takes.
    pub(super) fn bytes_of(&self, key: &[u8]) -> usize {
        HEAD + self.width + key.len() + PLACE
    }

    /// The row of a key. One that is new is made and empty, where it may be beside so many others; whether it is new.
    pub(super) fn of(
        &mut self,
        key: &[u8],
        may_be_made: impl FnOnce(usize) -> Result<(), LimitExceeded>,
    ) -> Result<(u32, bool), LimitExceeded> {
        let Self { width, chunks, places, hasher, .. } = self;
        let (width, rows) = (*width, places.len());
        let is_it = |place: &u32| key_at(chunks, width, *place) == Some(key);
        let rehash = |place: &u32| hash(hasher, chunks, width, *place);
        match places.entry(hasher.hash_one(key), is_it, rehash) {
            Entry::Occupied(held) => Ok((*held.get(), false)),
            Entry::Vacant(vacant) => {
                may_be_made(rows)?;
                let place =
                    chunks.append(width, key).ok_or(LimitExceeded::WindowBytes(MOST_BYTES))?;
                vacant.insert(place);
                Ok((place, true))
            }
        }
    }

    /// The rows in the order of their arrival.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.chunks.0).flat_map(move |(chunk, bytes)| {
            let mut next = 0;
            std::iter::from_fn(move || {
                let at = next;
                next += HEAD + self.width + head(bytes.get(at..)?)?.key_length;
                Some(chunk << CHUNK_BITS | u32::try_from(at).ok()?)
            })
        })
    }

    pub(super) fn key(&self, place: u32) -> Option<&[u8]> {
        key_at(&self.chunks, self.width, place)
    }

    /// How many panes were fired of a row.
    pub(super) fn panes(&self, place: u32) -> Option<u32> {
        Some(head(self.chunks.get(place)?)?.panes)
    }

    pub(super) fn get(&self, place: u32) -> Option<Row<'_>> {
        let row = self.chunks.get(place)?;
        let Head { marks, panes, .. } = head(row)?;
        let cells = row.get(HEAD..)?.get(..self.width)?;
        Some(Row {
            key: self.key(place)?,
            panes,
            discarded: marks & DISCARDED != 0,
            aggregates: Aggregates::new(&self.functions, cells, &self.large),
        })
    }

    /// Takes in one more record. Whether the row has changed for the first time since it was saved.
    pub(super) fn add(&mut self, place: u32, values: &[Option<Value>]) -> Option<bool> {
        let (word, rest) = self.chunks.get_mut(place)?.split_first_chunk_mut()?;
        let cells = rest.get_mut(PANES..)?.get_mut(..self.width)?;
        let before = u32::from_ne_bytes(*word);
        if before & DISCARDED != 0 {
            clear(cells, &self.functions, &mut self.large);
        }
        *word = (before & !DISCARDED | CHANGED).to_ne_bytes();
        add_to(cells, &self.functions, values, &mut self.large);
        Some(before & CHANGED == 0)
    }

    /// Counts a pane as fired. How many there were before, and whether the row has changed for the first time since it
    /// was saved.
    pub(super) fn fire(&mut self, place: u32, discards: bool) -> Option<(u32, bool)> {
        let Head { marks, key_length, panes } = head(self.chunks.get(place)?)?;
        let after = CHANGED | if discards { DISCARDED } else { 0 };
        self.put_head(place, key_length, after, panes.saturating_add(1))?;
        Some((panes, marks & CHANGED == 0))
    }

    /// Sets a row to what was saved of it.
    pub(super) fn put(
        &mut self,
        place: u32,
        panes: u32,
        discarded: bool,
        accumulators: &mut Reader<'_>,
    ) -> Option<()> {
        let Head { key_length, .. } = head(self.chunks.get(place)?)?;
        self.put_head(place, key_length, if discarded { DISCARDED } else { 0 }, panes)?;
        let cells = self.chunks.get_mut(place)?.get_mut(HEAD..)?.get_mut(..self.width)?;
        read_all(&self.functions, accumulators, cells, &mut self.large)
    }

    /// It is as it was saved.
    pub(super) fn mark_saved(&mut self, place: u32) {
        if let Some(Head { marks, key_length, panes }) = self.chunks.get(place).and_then(head) {
            self.put_head(place, key_length, marks & !CHANGED, panes);
        }
    }

    fn put_head(&mut self, place: u32, key_length: usize, marks: u32, panes: u32) -> Option<()> {
        let (word, rest) = self.chunks.get_mut(place)?.split_first_chunk_mut()?;
        *word = (u32::try_from(key_length).ok()? | marks).to_ne_bytes();
        *rest.first_chunk_mut()? = panes.to_ne_bytes();
        Some(())
    }
}

struct Head {
    /// [`DISCARDED`] and [`CHANGED`].
    marks: u32,
    key_length: usize,
    panes: u32,
}

fn head(row: &[u8]) -> Option<Head> {
    let (word, rest) = row.split_first_chunk()?;
    let word = u32::from_ne_bytes(*word);
    let key_length = (word & LONGEST_KEY) as usize;
    let panes = u32::from_ne_bytes(*rest.first_chunk()?);
    Some(Head { marks: word & !LONGEST_KEY, key_length, panes })
}

fn key_at(chunks: &Chunks, width: usize, place: u32) -> Option<&[u8]> {
    let row = chunks.get(place)?;
    row.get(HEAD + width..)?.get(..head(row)?.key_length)
}

fn hash(hasher: &RandomState, chunks: &Chunks, width: usize, place: u32) -> u64 {
    hasher.hash_one(key_at(chunks, width, place).unwrap_or_default())
}

/// Where the rows are. A place has the number of its chunk, and its own in there.
#[derive(Clone, Debug, Default)]
struct Chunks(Vec<Vec<u8>>);

impl Chunks {
    /// What there is from a place on.
    fn get(&self, place: u32) -> Option<&[u8]> {
        self.0.get((place >> CHUNK_BITS) as usize)?.get((place & IN_CHUNK) as usize..)
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut [u8]> {
        self.0.get_mut((place >> CHUNK_BITS) as usize)?.get_mut((place & IN_CHUNK) as usize..)
    }

    /// Appends an empty row. Where it would lead the last chunk over its size, it begins another, which it may exceed.
    fn append(&mut self, width: usize, key: &[u8]) -> Option<u32> {
        let length = u32::try_from(key.len()).ok().filter(|length| *length <= LONGEST_KEY)?;
        let row = HEAD + width + key.len();
        let left = self.0.last().map_or(0, |chunk| CHUNK.saturating_sub(chunk.len()));
        if row > left {
            if self.0.len() == MOST_CHUNKS {
                return None;
            }
            // The first one grows with a small window.
            let capacity = if self.0.is_empty() { row } else { row.max(CHUNK) };
            self.0.push(Vec::with_capacity(capacity));
        }
        let number = u32::try_from(self.0.len() - 1).ok()?;
        let chunk = self.0.last_mut()?;
        let place = number << CHUNK_BITS | u32::try_from(chunk.len()).ok()?;
        chunk.extend_from_slice(&length.to_ne_bytes());
        chunk.resize(chunk.len() + PANES + width, 0);
        chunk.extend_from_slice(key);
        Some(place)
    }
}

/// The length of the key and the marks, then the panes.
const HEAD: usize = size_of::<u32>() + PANES;
const PANES: usize = size_of::<u32>();

/// Its contents were handed out by a discarding pane.
const DISCARDED: u32 = 1 << 31;
/// It is not as it was last saved.
const CHANGED: u32 = 1 << 30;
/// A message of Kafka's has fewer bytes.
const LONGEST_KEY: u32 = CHANGED - 1;

/// How many bytes a chunk has, unless it has a single row that is longer.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 16;
const IN_CHUNK: u32 = (1 << CHUNK_BITS) - 1;
/// Their number and a place in one of them have 32 bits.
const MOST_CHUNKS: usize = 1 << (u32::BITS - CHUNK_BITS);
const MOST_BYTES: usize = MOST_CHUNKS * CHUNK;

/// A place in the table, with its mark there, at the table's usual load.
const PLACE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_time::AggregateValue;

    const FUNCTIONS: [AggregateFunction; 3] =
        [AggregateFunction::Count, AggregateFunction::Sum, AggregateFunction::Min];

    fn row_of(rows: &mut Rows, key: &[u8]) -> (u32, bool) {
        rows.of(key, |_| Ok(())).unwrap()
    }

    #[test]
    fn keys_of_any_length_keep_their_rows() {
        let mut rows = Rows::new(&FUNCTIONS);
        let lengths = [0, 1, 7, 8, 15, 16, 22, 23, 255, 256, 70_000];
        let key = |length| -> Vec<u8> { (0..=255).cycle().take(length).collect() };
        let mut made = Vec::new();
        for length in lengths {
            let (place, is_new) = row_of(&mut rows, &key(length));
            assert!(is_new, "{length}");
            rows.add(place, &[Some(Value::Integer(length.try_into().unwrap())); 3]).unwrap();
            made.push(place);
        }
        assert_eq!(rows.places().collect::<Vec<_>>(), made);
        assert_eq!(rows.len(), lengths.len());
        for (length, place) in lengths.into_iter().zip(made) {
            assert_eq!(row_of(&mut rows, &key(length)), (place, false));
            let row = rows.get(place).unwrap();
            assert_eq!(row.key, key(length));
            let expected = AggregateValue::Integer(length.try_into().unwrap());
            let values: Vec<_> = row.aggregates.values().collect();
            assert_eq!(values, [AggregateValue::Integer(1), expected, expected]);
        }
    }

    #[test]
    fn rows_of_many_chunks_are_found_and_come_in_order() {
        let mut rows = Rows::new(&FUNCTIONS);
        let key = |nth: u32| match nth % 1_000 {
            999 => vec![b'l'; 70_000 + nth as usize],
            _ => format!("key {nth}").into_bytes(),
        };
        let made: Vec<_> = (0..5_000).map(|nth| row_of(&mut rows, &key(nth))).collect();
        assert!(made.iter().all(|(_, is_new)| *is_new));
        assert!(rows.chunks.0.len() >= 10, "{}", rows.chunks.0.len());
        let too_long = |chunk: &&Vec<u8>| chunk.len() > CHUNK;
        assert_eq!(rows.chunks.0.iter().filter(too_long).count(), 5, "each has its own");
        assert!(rows.places().eq(made.iter().map(|(place, _)| *place)));
        for (nth, (place, _)) in (0..5_000).zip(made) {
            assert_eq!(row_of(&mut rows, &key(nth)), (place, false));
            assert_eq!(rows.key(place), Some(&*key(nth)));
        }
    }

    #[test]
    fn a_window_that_can_hold_no_more_refuses_new_keys_and_takes_those_it_has() {
        let mut rows = Rows::new(&FUNCTIONS);
        let (held, _) = row_of(&mut rows, b"held");
        rows.chunks.0.resize_with(MOST_CHUNKS, || vec![0; 1]);
        rows.chunks.0[MOST_CHUNKS - 1].resize(CHUNK, 0);
        let refused = Err(LimitExceeded::WindowBytes(1 << 32));
        assert_eq!(rows.of(b"new", |_| Ok(())), refused);
        assert_eq!(row_of(&mut rows, b"held"), (held, false));
    }

    #[test]
    fn a_row_takes_what_it_is_said_to_take() {
        let mut rows = Rows::new(&FUNCTIONS);
        row_of(&mut rows, b"sixteen bytes ..");
        let bytes = rows.chunks.get(0).unwrap().len();
        assert_eq!(bytes + PLACE, rows.bytes_of(b"sixteen bytes .."));
        assert_eq!(bytes, 8 + 8 + 12 + 9 + 16);
        // A key may be as long as its marks leave room for.
        let word = LONGEST_KEY | CHANGED | DISCARDED;
        assert_eq!((word & LONGEST_KEY, word & !LONGEST_KEY), (LONGEST_KEY, CHANGED | DISCARDED));
    }

    #[test]
    fn a_sum_that_does_not_fit_is_one_of_the_window_and_takes_its_place_again() {
        let mut rows = Rows::new(&FUNCTIONS);
        let (place, _) = row_of(&mut rows, b"a");
        for _ in 0..3 {
            rows.add(place, &[Some(Value::Float(0.5)); 3]).unwrap();
            rows.fire(place, true).unwrap();
        }
        let sum = |rows: &Rows| rows.get(place).unwrap().aggregates.values().nth(1);
        assert_eq!(sum(&rows), Some(AggregateValue::Float(0.5)), "each time it began anew");
        let mut bytes = Vec::new();
        rows.get(place).unwrap().aggregates.write(&mut bytes);
        for _ in 0..3 {
            rows.add(place, &[Some(Value::Integer(i64::MAX)); 3]).unwrap();
            rows.put(place, 1, false, &mut Reader::whole(&bytes)).unwrap();
        }
        assert_eq!(sum(&rows), Some(AggregateValue::Float(0.5)));
        assert_eq!(rows.large.len(), 1);
    }

    #[test]
    fn a_row_is_new_to_be_saved_once_until_it_is_saved() {
        let mut rows = Rows::new(&FUNCTIONS);
        let (place, _) = row_of(&mut rows, b"a");
        let one = [Some(Value::Integer(1)); 3];
        assert_eq!((rows.add(place, &one), rows.add(place, &one)), (Some(true), Some(false)));
        rows.mark_saved(place);
        assert_eq!(
            (rows.fire(place, false), rows.fire(place, false)),
            (Some((0, true)), Some((1, false)))
        );
        assert_eq!(rows.panes(place), Some(2));
        assert_eq!(rows.key(place), Some(&b"a"[..]), "the marks are not of its length");
    }
}
