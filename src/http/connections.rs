//! The connections of a listener: so many at a time, and when there are more, one of whoever holds the most has to go.
//!
//! Nobody waits for a place. A client that holds all of them, with requests that never end, loses them one by one to those
//! that come: its own first, since it holds the most, and of those first one that has not asked anything yet. So a scrape is
//! answered while somebody else tries to take all places, and one client alone can use all of them.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{AbortHandle, JoinSet};

/// The connections that are open.
pub(super) struct Connections {
    most: usize,
    tasks: JoinSet<()>,
    /// By age.
    held: BTreeMap<u64, Held>,
    accepted: u64,
}

struct Held {
    network: IpAddr,
    asked: Asked,
    task: AbortHandle,
}

/// Whether a connection has brought a whole request.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked(Arc<AtomicBool>);

impl Asked {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self { most, tasks: JoinSet::new(), held: BTreeMap::new(), accepted: 0 }
    }

    /// Makes room for a connection from this address, if there is none. Whether another one had to go.
    pub(super) async fn make_room(&mut self, address: IpAddr) -> bool {
        let full = self.tasks.len() >= self.most;
        if full {
            let candidates =
                self.held.iter().map(|(age, held)| (*age, held.network, held.asked.get()));
            if let Some(held) =
                victim(candidates, network(address)).and_then(|age| self.held.get(&age))
            {
                held.task.abort();
            }
            while self.tasks.len() >= self.most && self.one_ended().await.is_some() {}
        }
        full
    }

    pub(super) fn spawn<F>(&mut self, address: IpAddr, serve: impl FnOnce(Asked) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let asked = Asked::default();
        let task = self.tasks.spawn(serve(asked.clone()));
        self.accepted += 1;
        self.held.insert(self.accepted, Held { network: network(address), asked, task });
    }

    /// Waits until one has ended; `None` where there is none.
    pub(super) async fn one_ended(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        self.held.retain(|_, held| held.task.id() != id);
        Some(())
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }
}

/// Which of the open connections (age, network, whether it has asked) has to go for one from `newcomer`.
fn victim(
    open: impl Iterator<Item = (u64, IpAddr, bool)> + Clone,
    newcomer: IpAddr,
) -> Option<u64> {
    let mut of_network = HashMap::from([(newcomer, 1_usize)]);
    for (_, network, _) in open.clone() {
        *of_network.entry(network).or_default() += 1;
    }
    let held = |network: IpAddr| of_network.get(&network).copied().unwrap_or(0);
    let first =
        open.min_by_key(|(age, network, asked)| (std::cmp::Reverse(held(*network)), *asked, *age));
    first.map(|(age, ..)| age)
}

/// Whom an address belongs to: with IPv6 a host has a whole /64 to itself.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        network(text.parse().unwrap())
    }

    #[test]
    fn who_holds_the_most_has_to_go_first_what_has_not_asked() {
        let (many, one, other) = (ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.3"));
        let open = [(1, one, false), (2, many, true), (3, many, false), (4, many, false)];
        for newcomer in [many, one, other] {
            assert_eq!(victim(open.into_iter(), newcomer), Some(3));
        }
        let all_asked = [(1, one, true), (2, many, true), (3, many, true)];
        assert_eq!(victim(all_asked.into_iter(), other), Some(2));
        // A newcomer counts: of two with as many, it is the one that would have more.
        let even = [(1, one, true), (2, many, true)];
        assert_eq!(victim(even.into_iter(), many), Some(2));
        assert_eq!(victim(even.into_iter(), other), Some(1));
        assert_eq!(victim([].into_iter(), other), None);
    }

    #[test]
    fn a_host_is_one_whatever_its_address_looks_like() {
        assert_eq!(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::ffff:1"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
    }
}
