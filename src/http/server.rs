//! The listener: few connections, none for long.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::export::{self, ExportState};
use super::live::{self, ViewLimits};
use super::{HttpState, router};

/// The listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; set {key} to an address and port that are free here")]
pub struct BindError {
    /// What was asked for.
    pub address: SocketAddr,
    /// The setting that asked for it.
    pub key: &'static str,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

/// A server that has its port and answers once it runs.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    answers: Answers,
    limits: Limits,
}

/// Who answers.
#[derive(Debug)]
enum Answers {
    Service(HttpState),
    Export(ExportState),
}

/// What a client may take. Bodies are never read: no request needs one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time; further ones wait to be accepted.
    pub(super) connections: usize,
    /// From the moment a request may begin to the end of its header; also how long a connection may lie idle.
    pub(super) header: Duration,
    /// From accepting a connection to asking its end, so that no slow reader stays for good.
    pub(super) lifetime: Duration,
    /// From asking for a connection's end to ending it.
    pub(super) grace: Duration,
    /// Of those who watch the page.
    pub(super) views: ViewLimits,
}

impl Limits {
    pub(super) const DEFAULT: Self = Self {
        connections: 64,
        header: Duration::from_secs(20),
        lifetime: Duration::from_mins(5),
        grace: Duration::from_secs(5),
        views: ViewLimits::DEFAULT,
    };
    /// The largest request header; also what is buffered of an answer that its client does not take.
    pub(super) const BUFFER: usize = 16 * 1024;
    /// How long to wait when no connection can be accepted, as when there are no descriptors left.
    const RETRY: Duration = Duration::from_secs(1);
}

impl Server {
    /// Takes the port; with port 0, any that is free.
    pub async fn bind(address: SocketAddr, state: HttpState) -> Result<Self, BindError> {
        Self::listen(address, "http.listen", Answers::Service(state)).await
    }

    /// The same for an exporter.
    ///
    /// # Errors
    /// If the address is taken, or none of this host.
    pub async fn bind_export(address: SocketAddr, state: ExportState) -> Result<Self, BindError> {
        Self::listen(address, "export.postgres.listen", Answers::Export(state)).await
    }

    async fn listen(
        address: SocketAddr,
        key: &'static str,
        answers: Answers,
    ) -> Result<Self, BindError> {
        let fault = |cause| BindError { address, key, cause };
        let listener = TcpListener::bind(address).await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self { listener, address, answers, limits: Limits::DEFAULT })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[cfg(test)]
    pub(super) fn limited(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Answers until `shutdown` ends, then lets the requests under way end too, for a short while.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, answers, limits, .. } = self;
        let mut background = JoinSet::new();
        let router = match answers {
            Answers::Service(state) => {
                let (feed, maker) = live::feed(state.clone(), limits.views);
                background.spawn(maker.run());
                router(state, feed)
            }
            Answers::Export(state) => export::router(state),
        };
        let slots = Arc::new(Semaphore::new(limits.connections));
        let (stop, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (stream, slot) = accept(&listener, &slots) => {
                    let (router, stopped) = (router.clone(), stopped.clone());
                    connections.spawn(connection(stream, slot, router, limits, stopped));
                }
                Some(_) = connections.join_next() => {}
            }
        }
        drop((listener, stop));
        // The views end with what they show.
        background.shutdown().await;
        let ended = async { while connections.join_next().await.is_some() {} };
        if timeout(limits.grace, ended).await.is_err() {
            debug!(connections = connections.len(), "connections cut off");
        }
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed, so there is always a permit to wait for.
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "no connection accepted");
                sleep(Limits::RETRY).await;
            }
        }
    }
}

/// Serves one connection; its slot is free again when it ends.
async fn connection(
    stream: TcpStream,
    _slot: Option<OwnedSemaphorePermit>,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<()>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(Limits::BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stopped.changed() => None,
        () = sleep(limits.lifetime) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        timeout(limits.grace, connection).await.unwrap_or(Ok(()))
    };
    if let Err(error) = ended {
        debug!(error = &error as &dyn std::error::Error, "connection ended early");
    }
}
