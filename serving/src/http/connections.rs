//! Connections: encrypted where that is configured, limited in number, and closed when they are idle.
//!
//! A client that opens connections and sends nothing, or a header byte by byte, keeps each for ten seconds; one that
//! takes nothing of its answer, for a minute. Connections past the limit are answered with 503 and closed.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::next_connection;
use access::tls::ServerTls;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use types::threads;

use super::stalled::Stalled;
use crate::limits::ServingLimits;
use crate::sockets::{allowed_connections, tune_socket};

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// At a time.
    connections: usize,
    /// From the connection to the end of the first request's header, TLS included.
    first_header: Duration,
    /// For the header of each request after it: also how long a connection may be idle.
    next_header: Duration,
    /// Of a request's header.
    header_bytes: usize,
    /// How long a client may take nothing of its answer.
    stalled: Duration,
}

impl Limits {
    pub(super) fn from_settings(limits: &ServingLimits) -> Self {
        Self {
            connections: allowed_connections(limits.http_connections),
            first_header: Duration::from_secs(10),
            next_header: Duration::from_secs(75),
            header_bytes: 64 << 10,
            stalled: Duration::from_secs(60),
        }
    }
}

/// At most this many refused connections are answered with 503 at a time; others are just closed.
const MAX_REFUSALS: usize = 256;
/// The time for one of these answers.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
const REFUSAL: &str = "{\"type\":\"urn:basestream:problem:busy\",\"title\":\"Service Unavailable\",\"status\":503,\
    \"detail\":\"the server has as many connections as it may: close those that are not used, or try again\"}";

/// Answers until `stop`; then requests under way are finished.
pub(super) async fn serve(listener: TcpListener, router: Router, tls: Option<ServerTls>, limits: Limits, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            stream = next_connection(&listener, "HTTP") => stream,
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            metrics::counter!("basestream_serving_http_connections_refused_total").increment(1);
            // On an encrypted connection it would come before the handshake.
            if let (Ok(refusal), None) = (refusals.clone().try_acquire_owned(), &tls) {
                connections.spawn(async move {
                    let _ = tokio::time::timeout(REFUSAL_TIME, refuse(stream)).await;
                    drop(refusal);
                });
            }
            continue;
        };
        // A token of its own: each time a connection wakes, it locks the one that it waits for.
        let (router, tls, stop) = (router.clone(), tls.clone(), stop.child_token());
        connections.spawn(async move {
            answer(stream, router, tls, limits, stop).await;
            drop(place);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Says why a connection is closed, and reads what was asked meanwhile: a client that still sends would not see the
/// answer.
async fn refuse(mut stream: TcpStream) {
    let length = REFUSAL.len();
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\nconnection: close";
    let answer = format!("{head}\r\ncontent-length: {length}\r\n\r\n{REFUSAL}");
    if stream.write_all(answer.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut asked = [0; 1024];
    while stream.read(&mut asked).await.is_ok_and(|read| read > 0) {}
}

async fn answer(stream: TcpStream, router: Router, tls: Option<ServerTls>, limits: Limits, stop: CancellationToken) {
    let has_asked = Arc::new(AtomicBool::new(false));
    let answering = async {
        tune_socket(&stream);
        let Some(tls) = tls else { return requests(stream, router, has_asked.clone(), limits, stop).await };
        match encrypted(&tls, stream).await {
            Ok(stream) => requests(stream, router, has_asked.clone(), limits, stop).await,
            Err(error) => debug!(%error, "a TLS connection failed"),
        }
    };
    let mut answering = pin!(answering);
    tokio::select! {
        () = &mut answering => return,
        () = tokio::time::sleep(limits.first_header) => {}
    }
    if has_asked.load(Ordering::Relaxed) {
        answering.await;
    }
}

/// Does the handshake apart: to sign with an RSA key takes longer than a millisecond, and any client may ask for it.
async fn encrypted<S>(tls: &ServerTls, stream: S) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = TlsAcceptor::from(tls.config()).accept(stream);
    AbortOnDropHandle::new(threads::QUERIES.spawn(handshake)).await.map_err(io::Error::other)?
}

async fn requests<S>(stream: S, router: Router, has_asked: Arc<AtomicBool>, limits: Limits, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = Asking { router: TowerToHyperService::new(router), has_asked };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.next_header)
        .max_header_size(limits.header_bytes)
        .serve_connection(TokioIo::new(Stalled::new(stream, limits.stalled)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended");
    }
}

/// Notes that a request came.
struct Asking {
    router: TowerToHyperService<Router>,
    has_asked: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for Asking {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.has_asked.store(true, Ordering::Relaxed);
        self.router.call(request)
    }
}

#[cfg(test)]
mod tests;
