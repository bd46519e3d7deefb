//! The listener: few connections, none for long.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use openssl::ssl::SslAcceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::admin::{self, AdminState};
use super::connections::{Asked, Connections};
use super::export::{self, ExportState};
use super::live::{self, ViewLimits};
use super::{HttpState, router, tls};
use crate::config::Admin;

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

/// The admin listener cannot be there.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Its port.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Its certificate.
    #[error("{0}")]
    Tls(String),
}

/// A server that has its port and answers once it runs.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    answers: Answers,
    limits: Limits,
    tls: Option<SslAcceptor>,
}

/// Who answers.
enum Answers {
    Service(HttpState),
    Export(ExportState),
    Admin(AdminState),
}

/// What a client may take. Bodies are only read of admin calls with the right token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time; a further one takes the place of another, see [`Connections`].
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
    /// Fewer call here, and none for long.
    pub(super) const ADMIN: Self = Self {
        connections: 16,
        header: Duration::from_secs(10),
        lifetime: Duration::from_mins(1),
        grace: Duration::from_secs(1),
        views: ViewLimits::DEFAULT,
    };
    /// The largest request header; also what is buffered of an answer that its client does not take.
    pub(super) const BUFFER: usize = 16 * 1024;
    /// How long to wait when no connection can be accepted, as when there are no descriptors left.
    const RETRY: Duration = Duration::from_secs(1);
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
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

    /// The same for admin calls.
    ///
    /// # Errors
    /// As above, or what is wrong with the certificate.
    pub async fn bind_admin(admin: &Admin, state: AdminState) -> Result<Self, AdminError> {
        let tls = admin.tls.as_ref().map(tls::acceptor).transpose().map_err(AdminError::Tls)?;
        let server = Self::listen(admin.listen, "admin.listen", Answers::Admin(state)).await?;
        Ok(Self { tls, limits: Limits::ADMIN, ..server })
    }

    async fn listen(
        address: SocketAddr,
        key: &'static str,
        answers: Answers,
    ) -> Result<Self, BindError> {
        let fault = |cause| BindError { address, key, cause };
        let listener = TcpListener::bind(address).await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self { listener, address, answers, limits: Limits::DEFAULT, tls: None })
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
        let Self { listener, answers, limits, tls, .. } = self;
        let mut background = JoinSet::new();
        let router = match answers {
            Answers::Service(state) => {
                let (feed, maker) = live::feed(state.clone(), limits.views);
                background.spawn(maker.run());
                router(state, feed)
            }
            Answers::Export(state) => export::router(state),
            Answers::Admin(state) => {
                background.spawn(admin::look_after_the_log(state.clone()));
                admin::router(state)
            }
        };
        let (stop, stopped) = watch::channel(());
        let serving = Serving { router, tls, limits, stopped };
        let mut connections = Connections::new(limits.connections);
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                (stream, peer) = accept(&listener) => {
                    if connections.make_room(peer.ip()).await {
                        debug!(%peer, "more connections than there may be: one of who holds the most is cut off");
                    }
                    let serving = serving.clone();
                    connections.spawn(peer.ip(), |asked| connection(stream, peer, asked, serving));
                }
                Some(()) = connections.one_ended() => {}
            }
        }
        drop((listener, stop));
        // The views end with what they show.
        background.shutdown().await;
        let ended = async { while connections.one_ended().await.is_some() {} };
        if timeout(limits.grace, ended).await.is_err() {
            debug!(connections = connections.len(), "connections cut off");
        }
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "no connection accepted");
                sleep(Limits::RETRY).await;
            }
        }
    }
}

/// What every connection needs.
#[derive(Clone)]
struct Serving {
    router: Router,
    tls: Option<SslAcceptor>,
    limits: Limits,
    stopped: watch::Receiver<()>,
}

/// Who is asking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Serves one connection.
async fn connection(stream: TcpStream, peer: SocketAddr, asked: Asked, serving: Serving) {
    let Some(acceptor) = &serving.tls else { return serve(stream, peer, asked, serving).await };
    match timeout(serving.limits.header, tls::accept(acceptor, stream)).await {
        Ok(Ok(stream)) => serve(stream, peer, asked, serving).await,
        Ok(Err(error)) => debug!(%peer, %error, "no TLS"),
        Err(_) => debug!(%peer, "no TLS in time"),
    }
}

async fn serve<S>(stream: S, peer: SocketAddr, asked: Asked, serving: Serving)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Serving { router, limits, mut stopped, .. } = serving;
    let router = TowerToHyperService::new(router);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        asked.set();
        request.extensions_mut().insert(Peer(peer));
        let router = router.clone();
        async move {
            // Requests that come in a row, without waiting for their answers, wait for those of others.
            yield_now().await;
            router.call(request).await
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_buf_size(Limits::BUFFER)
        .serve_connection(TokioIo::new(stream), answer);
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
