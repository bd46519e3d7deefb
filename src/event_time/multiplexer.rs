//! Many partition watermarks into one: the least of the active ones.

use super::time::{EventTime, Watermark};

/// Whether a channel takes part in the minimum (Flink: `WatermarkStatus`).
///
/// ```
/// use tidegate::event_time::{WatermarkOutput, WatermarkStatus};
///
/// let mut output = WatermarkOutput::default();
/// output.mark_idle();
/// assert_eq!(output.status(), Some(WatermarkStatus::Idle));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatermarkStatus {
    /// The channel holds the others back to its own watermark.
    Active,
    /// The channel is silent and holds nobody.
    Idle,
}

/// Where a channel stands in the multiplexer.
pub(crate) type ChannelId = usize;

/// Holds one watermark and one status per channel and finds the least active watermark
/// (Flink: `WatermarkOutputMultiplexer`, `CombinedWatermarkStatus`).
///
/// A tournament tree keeps the minimum: reading it is one look, an update climbs only as far as a minimum changes
/// and never more than log2(channels) steps. The never-back rule belongs to the owner, who also sees candidates
/// below the highest.
#[derive(Debug, Default)]
pub(crate) struct WatermarkMultiplexer {
    slots: Vec<Slot>,
    /// The second half are the leaves; a leaf that is idle or free holds the greatest time.
    tree: Vec<EventTime>,
    free: Vec<ChannelId>,
    registered: usize,
    active: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    watermark: Watermark,
    /// `None`: nobody is registered here.
    status: Option<WatermarkStatus>,
}

impl WatermarkMultiplexer {
    /// Takes in a channel, active and with the watermark it brings along.
    pub(crate) fn register(&mut self, watermark: Watermark) -> ChannelId {
        let slot = Slot { watermark, status: Some(WatermarkStatus::Active) };
        let channel = self.free.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(channel) {
            Some(reused) => *reused = slot,
            None => self.slots.push(slot),
        }
        self.registered += 1;
        self.active += 1;
        if self.slots.len() * 2 > self.tree.len() {
            self.rebuild();
        } else {
            self.climb(channel);
        }
        channel
    }

    /// Forgets a channel. What it held is let go at the next look at the candidate.
    pub(crate) fn unregister(&mut self, channel: ChannelId) {
        let Some(slot) = self.slots.get_mut(channel) else { return };
        let Some(status) = slot.status.take() else { return };
        self.registered -= 1;
        self.active -= usize::from(status == WatermarkStatus::Active);
        self.free.push(channel);
        self.climb(channel);
    }

    /// Raises a channel's watermark; a lower one changes nothing. Whether it rose.
    pub(crate) fn raise(&mut self, channel: ChannelId, watermark: Watermark) -> bool {
        match self.slots.get_mut(channel) {
            Some(slot) if watermark > slot.watermark => slot.watermark = watermark,
            _ => return false,
        }
        self.climb(channel);
        true
    }

    /// Sets a channel's status. Whether it changed.
    pub(crate) fn set_status(&mut self, channel: ChannelId, status: WatermarkStatus) -> bool {
        let Some(slot) = self.slots.get_mut(channel) else { return false };
        if slot.status.is_none() || slot.status == Some(status) {
            return false;
        }
        slot.status = Some(status);
        match status {
            WatermarkStatus::Active => self.active += 1,
            WatermarkStatus::Idle => self.active -= 1,
        }
        self.climb(channel);
        true
    }

    /// The channel's own watermark.
    pub(crate) fn watermark(&self, channel: ChannelId) -> Watermark {
        self.slots.get(channel).map_or(Watermark::NONE, |slot| slot.watermark)
    }

    /// The channel's status.
    pub(crate) fn status(&self, channel: ChannelId) -> WatermarkStatus {
        self.slots.get(channel).and_then(|slot| slot.status).unwrap_or(WatermarkStatus::Idle)
    }

    /// The least watermark of the active channels; `None` without an active one.
    pub(crate) fn least_active(&self) -> Option<Watermark> {
        (self.active > 0).then(|| Watermark(self.tree.get(1).copied().unwrap_or(EventTime::MIN)))
    }

    /// The active channel whose watermark is the least: who holds the others back.
    pub(crate) fn holder(&self) -> Option<ChannelId> {
        let least = self.least_active()?;
        self.slots.iter().position(|slot| {
            slot.status == Some(WatermarkStatus::Active) && slot.watermark == least
        })
    }

    /// The greatest watermark of all registered channels, idle or not.
    pub(crate) fn greatest(&self) -> Option<Watermark> {
        self.slots.iter().filter(|slot| slot.status.is_some()).map(|slot| slot.watermark).max()
    }

    /// Whether there are channels and all of them are idle.
    pub(crate) fn all_idle(&self) -> bool {
        self.registered > 0 && self.active == 0
    }

    fn leaf(slot: Slot) -> EventTime {
        match slot.status {
            Some(WatermarkStatus::Active) => slot.watermark.0,
            Some(WatermarkStatus::Idle) | None => EventTime::MAX,
        }
    }

    /// Writes the channel's leaf and renews the minima above it, up to the first that stays as it was.
    fn climb(&mut self, channel: ChannelId) {
        let Some(slot) = self.slots.get(channel) else { return };
        let mut node = self.tree.len() / 2 + channel;
        let mut value = Self::leaf(*slot);
        while let Some(held) = self.tree.get_mut(node) {
            if *held == value {
                return;
            }
            *held = value;
            if node <= 1 {
                return;
            }
            let sibling = self.tree.get(node ^ 1).copied().unwrap_or(EventTime::MAX);
            value = value.min(sibling);
            node /= 2;
        }
    }

    fn rebuild(&mut self) {
        let leaves = self.slots.len().next_power_of_two();
        let mut tree = vec![EventTime::MAX; leaves * 2];
        for (leaf, slot) in tree.iter_mut().skip(leaves).zip(&self.slots) {
            *leaf = Self::leaf(*slot);
        }
        for node in (1..leaves).rev() {
            let least = |i: usize| tree.get(i).copied().unwrap_or(EventTime::MAX);
            let value = least(node * 2).min(least(node * 2 + 1));
            if let Some(held) = tree.get_mut(node) {
                *held = value;
            }
        }
        self.tree = tree;
    }
}
