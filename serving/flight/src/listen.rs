//! Accepts connections, encrypted where that is configured, and lets no more of them in than can be answered. One that
//! asks nothing at first, or no longer answers, is closed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::Authenticator;
use access::tls::ServerTls;
use arrow_flight::flight_service_server::FlightServiceServer;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serving::http::Protection;
use serving::{ClientListener, Lingering, Node, OpenConnection, allowed_connections, tune_socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::codegen::Service as _;
use tracing::{debug, info};
use types::{Result, threads};

use crate::login::caller;
use crate::service::Service;
use crate::status::{count, status};

/// This many clients may be connected.
const CONNECTIONS: usize = 500;
/// Calls under way on one connection.
const CALLS: u32 = 100;
/// From the connection to its first call, TLS included.
const FIRST_CALL: Duration = Duration::from_secs(10);
/// How often a client is asked whether it is there, and for how long it may be silent then.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// Of a call's headers.
const HEADER_BYTES: u32 = 64 << 10;
/// Of one message of a client.
const MESSAGE_BYTES: usize = 4 << 20;
/// What HTTP/2 names itself in TLS: gRPC clients accept nothing else.
const ALPN: &[u8] = b"h2";

/// Listens at `address` (port 0: any free one).
///
/// Errors: `Unavailable` when it cannot be listened on.
pub fn listen(address: SocketAddr) -> Result<ClientListener> {
    ClientListener::bind(address, "Flight SQL")
}

/// Answers until `stop`; then answers under way are finished. The task is to be waited for.
pub fn serve(node: Node, protection: &Protection, bound: ClientListener, stop: CancellationToken) -> JoinHandle<Result<()>> {
    let connection = Connection {
        calls: FlightServiceServer::new(Service::new(node)).max_decoding_message_size(MESSAGE_BYTES),
        authenticator: protection.authenticator.clone(),
        tls: protection.tls.clone(),
        stop,
    };
    info!(address = %bound.address, tls = protection.tls.is_some(), "answering Flight SQL clients");
    // Everything a client asks is SQL: its connection is answered where that is.
    threads::QUERIES.spawn(async move { accept(bound, connection).await })
}

async fn accept(bound: ClientListener, connection: Connection) -> Result<()> {
    let stop = connection.stop.clone();
    let refused = || metrics::counter!("basestream_serving_flight_refused_total").increment(1);
    bound.accept(allowed_connections(CONNECTIONS), &stop, move |socket| connection.clone().answer(socket), refused).await
}

/// What a connection is answered with.
#[derive(Clone)]
struct Connection {
    calls: FlightServiceServer<Service>,
    authenticator: Authenticator,
    tls: Option<ServerTls>,
    stop: CancellationToken,
}

impl Connection {
    async fn answer(self, socket: TcpStream) {
        let _open = OpenConnection::count(metrics::gauge!("basestream_serving_flight_connections"));
        let has_asked = Arc::new(AtomicBool::new(false));
        let mut answering = pin!(self.encrypted(socket, has_asked.clone()));
        let ended = tokio::select! {
            () = &mut answering => true,
            () = tokio::time::sleep(FIRST_CALL) => false,
        };
        if !ended && has_asked.load(Ordering::Relaxed) {
            answering.await;
        }
    }

    async fn encrypted(&self, socket: TcpStream, has_asked: Arc<AtomicBool>) {
        tune_socket(&socket);
        let Some(tls) = &self.tls else { return self.calls(socket, has_asked).await };
        let mut config = (*tls.config()).clone();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let accepted = tokio::select! {
            () = self.stop.cancelled() => return,
            accepted = TlsAcceptor::from(Arc::new(config)).accept(socket) => accepted,
        };
        match accepted {
            Ok(stream) => self.calls(stream, has_asked).await,
            Err(error) => debug!(%error, "a TLS connection failed"),
        }
    }

    async fn calls<S>(&self, stream: S, has_asked: Arc<AtomicBool>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (calls, authenticator) = (self.calls.clone(), self.authenticator.clone());
        let service = Asking { calls, authenticator, has_asked: has_asked.clone() };
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .max_concurrent_streams(CALLS)
            .max_header_list_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(Lingering::new(stream)), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = self.stop.cancelled() => {
                // There is nothing to finish for a client that has asked nothing: its greeting may never come.
                if !has_asked.load(Ordering::Relaxed) {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, "a connection ended");
        }
    }
}

/// Finds out who calls before anything but the headers is read, and notes that the caller may.
struct Asking {
    calls: FlightServiceServer<Service>,
    authenticator: Authenticator,
    has_asked: Arc<AtomicBool>,
}

impl hyper::service::Service<hyper::Request<Incoming>> for Asking {
    type Response = hyper::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = tonic::codegen::BoxFuture<Self::Response, Infallible>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        let (mut calls, authenticator, has_asked) = (self.calls.clone(), self.authenticator.clone(), self.has_asked.clone());
        Box::pin(async move {
            match caller(&authenticator, request.headers()).await {
                Ok(caller) => {
                    has_asked.store(true, Ordering::Relaxed);
                    request.extensions_mut().insert(caller);
                    // It is always ready.
                    calls.call(request).await
                }
                Err(error) => {
                    let refused = status(error);
                    count(&refused);
                    Ok(refused.into_http())
                }
            }
        })
    }
}
