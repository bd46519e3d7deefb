//! A cluster of several real Kafka brokers on this machine: each is a controller too, and has a copy of everything.
//!
//! One of them may be killed at any moment, in the middle of a commit too, and nothing is lost that was acknowledged:
//! another one takes over what it led. A broker of one node cannot show that. Killed between its answer to a commit and
//! the markers of that commit, Kafka 4.4.0 passes over partitions that have no leader yet when it starts again, and may
//! never write them.
#![allow(clippy::allow_attributes, dead_code, reason = "no test target uses all of it")]

use super::broker::{Broker, Place};

/// Brokers of the test's own, numbered from 0. Dropping them kills them and removes their data.
#[derive(Debug)]
pub(crate) struct Brokers {
    nodes: Vec<Broker>,
}

impl Brokers {
    /// Starts three, with more server properties, and waits until all of them answer.
    pub(crate) fn start_with(properties: &[(&str, &str)]) -> Self {
        let places: Vec<_> = (0..COUNT).map(|_| Place::reserve()).collect();
        let voters: Vec<_> = (1..)
            .zip(&places)
            .map(|(id, place)| format!("{id}@127.0.0.1:{}", place.controller()))
            .collect();
        let voters = voters.join(",");
        let mut nodes: Vec<_> = (1..)
            .zip(places)
            .map(|(id, place)| {
                let id = format!("{id}");
                let own = [("node.id", id.as_str()), ("controller.quorum.voters", &voters)];
                Broker::format(place, &[&own, &OF_A_CLUSTER[..], properties].concat())
            })
            .collect();
        for node in &mut nodes {
            node.wait_until_formatted();
            node.launch();
        }
        for node in &nodes {
            node.wait_until_started();
        }
        Self { nodes }
    }

    /// What a client has to set as `bootstrap.servers`.
    pub(crate) fn bootstrap(&self) -> String {
        let addresses: Vec<_> = self.nodes.iter().map(Broker::bootstrap).collect();
        addresses.join(",")
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// One of them.
    pub(crate) fn node(&mut self, nth: usize) -> &mut Broker {
        self.nodes.get_mut(nth).unwrap()
    }
}

/// Copies on two of three are enough to go on with, and one that comes back soon leads again, so that each of them has
/// something to lose. A machine that is busy is not to be taken for a broker that has gone.
const OF_A_CLUSTER: [(&str, &str); 12] = [
    ("broker.session.timeout.ms", "5000"),
    ("controller.quorum.fetch.timeout.ms", "5000"),
    ("controller.quorum.election.timeout.ms", "3000"),
    ("default.replication.factor", "3"),
    ("min.insync.replicas", "2"),
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.min.isr", "2"),
    ("share.coordinator.state.topic.replication.factor", "3"),
    ("share.coordinator.state.topic.min.isr", "2"),
    ("auto.leader.rebalance.enable", "true"),
    ("leader.imbalance.check.interval.seconds", "10"),
];

const COUNT: usize = 3;
