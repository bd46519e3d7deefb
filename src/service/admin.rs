//! The listener for admin calls, and what they do to the service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Stop;
use crate::clock::Clock;
use crate::config::Admin;
use crate::http::{AdminError, AdminState, DrainAsked, Server};
use crate::insight::Watches;
use crate::metrics::Metrics;

/// Where admin calls are answered.
#[derive(Debug)]
pub(super) struct AdminListener {
    address: SocketAddr,
    running: JoinHandle<()>,
    /// Dropped, it lets the answers under way end, and takes no more calls.
    stop: oneshot::Sender<()>,
}

impl AdminListener {
    pub(super) fn start(
        runtime: &Runtime,
        admin: &Admin,
        metrics: &Metrics,
        watches: &Watches,
        clock: Clock,
        service: &Stop,
    ) -> Result<Self, AdminError> {
        let state = AdminState {
            token: admin.token.clone(),
            metrics: metrics.clone(),
            watches: watches.clone(),
            clock: clock.reader(),
            drain: Arc::new(drains(service.clone())),
            log: crate::log::control(),
        };
        let server = runtime.block_on(Server::bind_admin(admin, state))?;
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let running = runtime.spawn(server.run(async { stopped.await.unwrap_or_default() }));
        tracing::info!(%address, tls = admin.tls.is_some(), "listening for admin calls");
        Ok(Self { address, running, stop })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more calls. Who asked for a drain that is done already is told so.
    pub(super) fn end(self, runtime: &Runtime) {
        let Self { running, stop, .. } = self;
        drop(stop);
        let answered = runtime.block_on(async { timeout(LAST_ANSWERS, running).await });
        answered.map(drop).unwrap_or_default();
    }
}

fn drains(service: Stop) -> impl Fn() -> DrainAsked {
    move || {
        if service.requested() {
            DrainAsked::Stopping
        } else if service.drain() {
            DrainAsked::Now
        } else {
            DrainAsked::Before
        }
    }
}

/// Longer than a drain's answer waits for the subtasks.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
