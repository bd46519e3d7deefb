//! The broker in memory as the changelog that a client reads back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate::event_time::PartitionId;
use tidegate::pipeline::{Changelog, ChangelogEvent, OutputTopic, SourceError};

use super::client::{Client, Reading};
use super::{Call, Place, Plant};

fn place(at: PartitionId) -> Place {
    (OutputTopic::Changelog(at.topic), at.partition)
}

impl Changelog for Client {
    fn ensure(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        let mut state = self.ask(Call::Ensure)?;
        for at in partitions {
            state.outputs.entry(place(*at)).or_default();
        }
        Ok(())
    }

    fn open(&mut self, partitions: &BTreeSet<PartitionId>) -> Result<(), SourceError> {
        let mut state = self.ask(Call::Open)?;
        let plant = state.plant;
        let mut reading = BTreeMap::new();
        for at in partitions {
            let log = state.outputs.get(&place(*at));
            let log = log.unwrap_or_else(|| panic!("nobody has made sure that {at:?} is there"));
            let beginning = log.beginning();
            let end =
                if plant == Some(Plant::EndIsLastStable) { log.last_stable() } else { log.end() };
            let end = end.max(beginning);
            reading.insert(*at, Reading { beginning, end, position: beginning, told: false });
        }
        state.clients[self.number].reading = reading;
        Ok(())
    }

    fn poll(
        &mut self,
        timeout: Duration,
        _most: usize,
        take: &mut dyn FnMut(&[ChangelogEvent<'_>]),
    ) -> Result<usize, SourceError> {
        let mut state = self.ask(Call::ReadChangelog)?;
        let state = &mut *state;
        let plant = state.plant;
        let slow = state.mood.slow_reading;
        if state.mood.random.chance(slow) {
            let until = state.clock + timeout;
            state.pass_until(until);
            return Ok(0);
        }
        for (at, reading) in &mut state.clients[self.number].reading {
            if reading.told {
                continue;
            }
            let log = &state.outputs[&place(*at)];
            if reading.position < log.beginning() && reading.position < reading.end {
                return Err(SourceError::Retry("the offset is out of range".to_owned()));
            }
            let next = match plant {
                Some(Plant::AbortedStateTaken) => log.next_uncommitted(reading.position),
                _ => log.next_committed(reading.position),
            };
            match next {
                Ok((offset, held)) if offset < reading.end => {
                    reading.position = offset + 1;
                    let mut value = held.message.payload.clone().unwrap();
                    if plant == Some(Plant::ClockStays) {
                        without_clock(&mut value);
                    }
                    let key = held.message.key.as_deref();
                    take(&[ChangelogEvent::Message { partition: *at, offset, key, value: &value }]);
                    let of_group = state.offsets.get(at).and_then(|committed| committed.mark);
                    if plant == Some(Plant::EndIsTheGroups)
                        && of_group.is_some_and(|mark| ended_by(&value) == Some(mark.sequence))
                    {
                        reading.end = reading.position;
                    }
                    return Ok(1);
                }
                Ok((offset, _)) => reading.position = offset,
                Err(position) => reading.position = position,
            }
            if reading.position >= reading.end {
                reading.told = true;
                take(&[ChangelogEvent::End(*at)]);
                return Ok(1);
            }
        }
        let until = state.clock + timeout;
        state.pass_until(until);
        Ok(0)
    }

    fn progress(&self) -> BTreeMap<PartitionId, (u64, u64)> {
        let of = |reading: &Reading| {
            let all = reading.end.abs_diff(reading.beginning);
            (reading.position.abs_diff(reading.beginning).min(all), all)
        };
        self.with(|client| client.reading.iter().map(|(at, reading)| (*at, of(reading))).collect())
    }

    fn close(&mut self) {
        self.with(|client| client.reading.clear());
    }
}

/// The sequence that ends with this part: after the version and the flags, seven bits in each byte, the lowest first.
fn ended_by(value: &[u8]) -> Option<u64> {
    let length = 1 + value[2..].iter().position(|byte| *byte < 0x80)?;
    let bytes = value[2..][..length].iter().rev();
    let sequence = bytes.fold(0, |sequence, byte| (sequence << 7) | u64::from(byte & 0x7F));
    (value[1] & 1 == 1).then_some(sequence)
}

/// Takes the clock, and how far windows are closed, out of a state record, which begins with them; they stand in front
/// of a list of windows (here one without any), and that in front of the layout's text.
fn without_clock(value: &mut Vec<u8>) {
    let layout = b"windows=";
    let Some(text) = value.windows(layout.len()).position(|bytes| bytes == layout) else { return };
    // The numbers in front of it, the last first: the text's length, how many windows, how far closed, the clock.
    let number_before = |end: usize| {
        let begin = value[..end - 1].iter().rposition(|byte| *byte < 0x80);
        begin.map_or(0, |last_of_another| last_of_another + 1)
    };
    let length = number_before(text);
    let owed = number_before(length);
    if value[owed..length] != [0] {
        return;
    }
    let closed = number_before(owed);
    let clock = number_before(closed);
    // The least 64-bit number, zigzag: all bits set.
    let mut none = vec![0xFF; 9];
    none.push(0x01);
    value.splice(clock..owed, [none.clone(), none].concat());
}
