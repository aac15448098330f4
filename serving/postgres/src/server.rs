//! Accepts connections, and lets no more of them in than can be answered.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::tls::ServerTls;
use access::{Action, Authenticator, Object, Principal, may};
use bytes::BytesMut;
use serving::http::Protection;
use serving::{ClientListener, Node, OpenConnection, allowed_connections, tune_socket};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use types::{Result, threads};

use crate::cancel::Cancels;
use crate::connection::{Buffers, Connection};
use crate::login::{Caller, login};
use crate::metadata::Metadata;
use crate::problem::{SHUTTING_DOWN, SqlProblem, TOO_MANY_CONNECTIONS};
use crate::query::QueryEngine;
use crate::startup::{CLOSE_TIME, Handshake, STARTUP_TIME, StartupError, StartupMessage, Stream, begin_session, shake_hands};

/// For each client this many sockets may be open: of clients, of those that are refused because there is no room, and
/// of those that have sent nothing yet.
const SOCKETS_PER_CLIENT: usize = 2;
/// The metadata of this many principals that may not read every table is kept: their tables keep their OIDs.
const MAX_LIMITED: usize = 64;

/// Listens at `address` (port 0: any free one).
///
/// Errors: `Unavailable` when it cannot be listened on.
pub fn listen(address: SocketAddr) -> Result<ClientListener> {
    ClientListener::bind(address, "PostgreSQL")
}

/// Answers until `stop`; then statements under way are finished, and idle clients are disconnected. The task is to be
/// awaited.
///
/// Errors: when the tables of PostgreSQL's catalog cannot be made.
pub fn serve(node: Node, protection: &Protection, bound: ClientListener, stop: CancellationToken) -> Result<JoinHandle<Result<()>>> {
    let most = allowed_connections(SOCKETS_PER_CLIENT * node.limits().postgres_connections) / SOCKETS_PER_CLIENT;
    let server = Arc::new(Server {
        query_engine: QueryEngine { metadata: Metadata::new(node.clone())?, node },
        limited: Mutex::default(),
        authenticator: protection.authenticator.clone(),
        tls: protection.tls.clone(),
        cancels: Cancels::default(),
        clients: Arc::new(Semaphore::new(most)),
        most,
        stop,
    });
    info!(address = %bound.address, "answering PostgreSQL clients");
    // Everything a client asks is SQL: its connection is answered where that is.
    Ok(threads::QUERIES.spawn(async move { server.accept(bound).await }))
}

struct Server {
    query_engine: QueryEngine,
    /// The metadata of principals that may not read every table, those that connected last first.
    limited: Mutex<VecDeque<(Arc<Principal>, Metadata)>>,
    authenticator: Authenticator,
    tls: Option<ServerTls>,
    cancels: Cancels,
    clients: Arc<Semaphore>,
    /// How many clients may be connected.
    most: usize,
    stop: CancellationToken,
}

impl Server {
    async fn accept(self: Arc<Self>, bound: ClientListener) -> Result<()> {
        let answer = |socket: TcpStream| {
            let server = self.clone();
            async move {
                let ended = tokio::spawn(async move { server.answer(socket).await }).await;
                if ended.is_err_and(|error| error.is_panic()) {
                    tracing::error!("a PostgreSQL connection panicked");
                }
            }
        };
        bound.accept(SOCKETS_PER_CLIENT * self.most, &self.stop, answer, || ()).await
    }

    async fn answer(&self, socket: TcpStream) {
        tune_socket(&socket);
        match self.let_in(socket).await {
            Ok((connection, _place)) => {
                let _open = OpenConnection::count(metrics::gauge!("basestream_serving_postgres_connections"));
                connection.run(&self.stop).await;
            }
            Err(StartupError::Refused(stream, problem)) => refuse(stream, problem).await,
            Err(StartupError::Done) => {}
        }
    }

    /// Lets a client in that says who it is, if there is a place for it.
    async fn let_in(&self, socket: TcpStream) -> Result<(Connection, SemaphorePermit<'_>), StartupError> {
        let mut buffer = BytesMut::new();
        let begun = Instant::now();
        let handshake = self.handshake(socket, &mut buffer).await?;
        let time_left = STARTUP_TIME.saturating_sub(begun.elapsed());
        let LoggedIn { stream, client, caller } = self.logged_in(handshake, &mut buffer, time_left).await?;
        // A client takes a place once it has said who it is.
        let Ok(place) = self.clients.try_acquire() else { return Err(StartupError::Refused(stream, self.too_many_clients())) };
        let key = self.cancels.register();
        let mut out = BytesMut::new();
        let session = begin_session(&client, &key, &mut out).and_then(|session| Ok((session, self.acting_for(&caller.principal)?)));
        let (session, query_engine) = match session {
            Ok(begun) => begun,
            Err(problem) => return Err(StartupError::Refused(stream, problem)),
        };
        let buffers = Buffers { read: buffer, out };
        Ok((Connection::new(stream, buffers, session, query_engine, caller, key), place))
    }

    async fn handshake(&self, socket: TcpStream, buffer: &mut BytesMut) -> Result<Handshake, StartupError> {
        let handshake = tokio::select! {
            () = self.stop.cancelled() => return Err(StartupError::Done),
            handshake = timeout(STARTUP_TIME, shake_hands(socket, buffer, &self.cancels, self.tls.as_ref())) => handshake,
        };
        handshake.unwrap_or_else(|_| {
            debug!("a PostgreSQL connection said nothing in time");
            Err(StartupError::Done)
        })
    }

    async fn logged_in(&self, handshake: Handshake, buffer: &mut BytesMut, time_left: Duration) -> Result<LoggedIn, StartupError> {
        let Handshake { mut stream, client, certificate } = handshake;
        if self.stop.is_cancelled() {
            return Err(StartupError::Refused(stream, SqlProblem::fatal(SHUTTING_DOWN, "the server is stopping")));
        }
        let login = login(&mut stream, buffer, &client.user, &self.authenticator, certificate.as_deref());
        match timeout(time_left, login).await {
            Ok(Ok(caller)) => Ok(LoggedIn { stream, client, caller }),
            Ok(Err(problem)) => Err(StartupError::Refused(stream, problem)),
            Err(_) => {
                debug!("a PostgreSQL client did not log in in time");
                Err(StartupError::Done)
            }
        }
    }

    fn too_many_clients(&self) -> SqlProblem {
        metrics::counter!("basestream_serving_postgres_refused_total").increment(1);
        let problem = SqlProblem::fatal(TOO_MANY_CONNECTIONS, format!("sorry, too many clients already: at most {}", self.most));
        problem
            .with_hint("close connections that are not used, put a connection pool in front, or raise serving.limits.postgres_connections")
    }

    /// What answers this principal: it finds in the metadata what it may read.
    fn acting_for(&self, principal: &Arc<Principal>) -> Result<QueryEngine> {
        let node = self.query_engine.node.acting_for(principal.clone());
        if may(principal, Action::Read, Object::System("tables")) {
            return Ok(QueryEngine { node, metadata: self.query_engine.metadata.clone() });
        }
        let mut limited = self.limited.lock().unwrap_or_else(PoisonError::into_inner);
        let known = limited.iter().position(|(known, _)| known == principal).and_then(|place| limited.remove(place));
        let metadata = match known {
            Some((_, metadata)) => metadata,
            None => Metadata::new(node.clone())?,
        };
        limited.truncate(MAX_LIMITED - 1);
        limited.push_front((principal.clone(), metadata.clone()));
        Ok(QueryEngine { node, metadata })
    }
}

/// A client that has said who it is.
struct LoggedIn {
    stream: Box<dyn Stream>,
    client: StartupMessage,
    caller: Caller,
}

/// Says why a client is not let in.
async fn refuse(mut socket: Box<dyn Stream>, problem: SqlProblem) {
    let mut out = BytesMut::new();
    if crate::frames::put(&mut out, problem.message()).is_ok() {
        let _ = timeout(STARTUP_TIME, socket.write_all(&out)).await;
        let _ = timeout(CLOSE_TIME, socket.shutdown()).await;
    }
}
