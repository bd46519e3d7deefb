//! A group as its coordinator sees it: members that come and go, and partitions that wander between them, always given
//! up by one before another gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate::event_time::PartitionId;
use tidegate::pipeline::Polled;

use super::State;
use super::client::{MAX_POLL_INTERVAL, SESSION_TIMEOUT};
use crate::random::Random;

pub(super) type MemberId = u64;

/// The group coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    random: Random,
    last: MemberId,
    members: BTreeMap<MemberId, Member>,
    /// The partitions that it knows of.
    known: BTreeSet<PartitionId>,
}

#[derive(Clone, Debug)]
struct Member {
    client: usize,
    owned: BTreeSet<PartitionId>,
    target: BTreeSet<PartitionId>,
    /// What it has been asked to give up.
    revoking: BTreeSet<PartitionId>,
}

impl Group {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, last: 0, members: BTreeMap::new(), known: BTreeSet::new() }
    }

    /// The clients that are members, as far as the group knows.
    pub(crate) fn clients(&self) -> impl Iterator<Item = usize> {
        self.members.values().map(|member| member.client)
    }

    /// Who has a partition.
    pub(crate) fn owner(&self, id: PartitionId) -> Option<usize> {
        self.members.values().find(|member| member.owned.contains(&id)).map(|member| member.client)
    }

    /// Who is to have what: about the same number each; if this says so, mostly what it has already.
    fn choose_targets(&mut self, sticky: bool) {
        let random = &mut self.random;
        let mut ids: Vec<_> = self.members.keys().copied().collect();
        random.shuffle(&mut ids);
        let (partitions, members) = (self.known.len(), ids.len().max(1));
        let mut free = self.known.clone();
        for (place, id) in ids.iter().enumerate() {
            let quota = partitions / members + usize::from(place < partitions % members);
            let member = self.members.get_mut(id).unwrap();
            let mut kept: Vec<_> = member.owned.intersection(&free).copied().collect();
            if !sticky {
                kept = free.iter().copied().collect();
            }
            random.shuffle(&mut kept);
            kept.truncate(quota);
            free.retain(|id| !kept.contains(id));
            member.target = kept.into_iter().collect();
        }
        for (place, id) in ids.iter().enumerate() {
            let quota = partitions / members + usize::from(place < partitions % members);
            let member = self.members.get_mut(id).unwrap();
            while member.target.len() < quota
                && let Some(id) = free.pop_first()
            {
                member.target.insert(id);
            }
        }
    }
}

impl State {
    /// A client becomes a member.
    pub(super) fn join_group(&mut self, client: usize) {
        let Some(group) = &mut self.group else { return };
        group.last += 1;
        let member = Member {
            client,
            owned: BTreeSet::new(),
            target: BTreeSet::new(),
            revoking: BTreeSet::new(),
        };
        group.members.insert(group.last, member);
        let tells = group.random.chance(50);
        self.clients[client].consumer.member = Some(group.last);
        self.rebalance();
        let events = &mut self.clients[client].consumer.events;
        if tells && events.is_empty() {
            // That it has nothing yet.
            events.push_back(Polled::Assigned(Vec::new()));
        }
    }

    /// A client is a member no longer; what it had is free.
    pub(super) fn leave_group(&mut self, client: usize) {
        let Some(group) = &mut self.group else { return };
        let member = self.clients[client].consumer.member.take();
        if member.is_some_and(|member| group.members.remove(&member).is_some()) {
            self.rebalance();
        }
    }

    /// Whether the group still knows this client; `false` too while it has moved on and the client does not know it.
    pub(super) fn may_commit(&self, client: usize) -> bool {
        let Some(group) = &self.group else { return true };
        let consumer = &self.clients[client].consumer;
        !consumer.stale && consumer.member.is_some_and(|member| group.members.contains_key(&member))
    }

    /// Whether the group has thrown this client out.
    pub(super) fn is_thrown_out(&self, client: usize) -> bool {
        let Some(group) = &self.group else { return false };
        let member = self.clients[client].consumer.member;
        member.is_some_and(|member| !group.members.contains_key(&member))
    }

    /// Decides anew who is to have what, and says so.
    fn rebalance(&mut self) {
        self.assign_anew(true);
    }

    /// Somebody wants partitions elsewhere.
    pub(crate) fn stir(&mut self) {
        self.assign_anew(false);
    }

    fn assign_anew(&mut self, sticky: bool) {
        let made = self.made();
        let Some(group) = &mut self.group else { return };
        group.known = made;
        group.choose_targets(sticky);
        for member in group.members.values_mut() {
            let away = member.owned.difference(&member.target).copied();
            let new: Vec<_> = away.filter(|id| !member.revoking.contains(id)).collect();
            let consumer = &mut self.clients[member.client].consumer;
            if group.random.chance(20) {
                consumer.stale = true;
            }
            if !new.is_empty() {
                member.revoking.extend(&new);
                consumer.events.push_back(Polled::Revoking(new));
            }
        }
        self.hand_out();
    }

    /// Gives partitions that nobody has to those who are to have them.
    fn hand_out(&mut self) {
        let Some(group) = &mut self.group else { return };
        let mut free = group.known.clone();
        for member in group.members.values() {
            free.retain(|id| !member.owned.contains(id));
        }
        for member in group.members.values_mut() {
            let new: Vec<_> = member.target.intersection(&free).copied().collect();
            if !new.is_empty() {
                member.owned.extend(&new);
                self.clients[member.client].consumer.events.push_back(Polled::Assigned(new));
            }
        }
    }

    /// A client has given up what it was asked for.
    pub(super) fn released(&mut self, client: usize, partitions: &[PartitionId]) {
        let Some(group) = &mut self.group else { return };
        let member = self.clients[client].consumer.member;
        let Some(member) = member.and_then(|member| group.members.get_mut(&member)) else { return };
        for id in partitions {
            if member.revoking.remove(id) {
                member.owned.remove(id);
            }
        }
        self.hand_out();
    }

    /// Throws out who has not been heard of, and looks whether the topics have grown.
    pub(super) fn look_after_the_group(&mut self) {
        let made = self.inputs.values().filter(|partition| partition.made <= self.clock).count();
        let Some(group) = &mut self.group else { return };
        let mut changed = group.known.len() != made && !group.members.is_empty();
        let silent_for = |client: usize| {
            let since = self.clients[client].silent_since;
            since.map_or(Duration::ZERO, |since| self.clock.saturating_sub(since))
        };
        group.members.retain(|_, member| {
            let stays = silent_for(member.client) <= SESSION_TIMEOUT;
            changed |= !stays;
            stays
        });
        if changed {
            self.rebalance();
        }
    }

    /// The same of one who does not poll: it leaves by itself.
    pub(super) fn leave_if_stuck(&mut self, client: usize) {
        let last_poll = self.clients[client].consumer.last_poll;
        if self.group.is_some() && self.clock.saturating_sub(last_poll) > MAX_POLL_INTERVAL {
            let member = self.clients[client].consumer.member;
            self.leave_group(client);
            // It learns of that like one that was thrown out.
            self.clients[client].consumer.member = member;
        }
    }
}
