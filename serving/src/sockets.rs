//! Accepts the connections of every protocol, up to a limit, counts them, and sets the options of their sockets.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use access::next_connection;
use metrics::Gauge;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::{Error, Result, open_files};

/// After this time without a byte, the system asks whether the other side is still there, and how often until it gives
/// up.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 4;

/// An address at which clients of a protocol connect. Connections made before [`ClientListener::accept`] wait.
#[derive(Debug)]
pub struct ClientListener {
    listener: StdListener,
    pub address: SocketAddr,
    protocol: &'static str,
}

impl ClientListener {
    /// Listens at `address` (port 0: any free one).
    ///
    /// Errors: `Unavailable` when it cannot be listened on.
    pub fn bind(address: SocketAddr, protocol: &'static str) -> Result<ClientListener> {
        let cannot = |error: io::Error| {
            Error::unavailable(format!("cannot listen for {protocol} clients")).with("address", address).caused_by(error)
        };
        let listener = StdListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Ok(ClientListener { listener, address, protocol })
    }

    /// Answers connections until `stop`, at most `places` at a time; then waits for those that are being answered. A
    /// connection without a place is closed, and `refused` called.
    pub async fn accept<F>(self, places: usize, stop: &CancellationToken, answer: impl Fn(TcpStream) -> F, refused: impl Fn()) -> Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::from_std(self.listener)?;
        let (places, tasks) = (Arc::new(Semaphore::new(places)), TaskTracker::new());
        loop {
            let socket = tokio::select! {
                () = stop.cancelled() => break,
                socket = next_connection(&listener, self.protocol) => socket,
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                refused();
                continue;
            };
            let answering = answer(socket);
            tasks.spawn(async move {
                answering.await;
                drop(place);
            });
        }
        drop(listener);
        tasks.close();
        tasks.wait().await;
        Ok(())
    }
}

/// A connection in the gauge of those that are open. It leaves the gauge when this is dropped, so also where answering
/// it panics.
pub struct OpenConnection(Gauge);

impl OpenConnection {
    /// Counts a connection until the value is dropped.
    pub fn count(gauge: Gauge) -> OpenConnection {
        gauge.increment(1.0);
        OpenConnection(gauge)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// Answers go out at once, and a client that has vanished (its machine lost power, say) is noticed within two minutes.
pub fn tune_socket(socket: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_TRIES);
    // Without either the connection works.
    let _ = socket.set_nodelay(true);
    let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive);
}

/// How many connections of `wanted` a protocol may have: others of this process's files have to be opened beside them.
pub fn allowed_connections(wanted: usize) -> usize {
    let files = open_files::raise().and_then(|files| usize::try_from(files).ok());
    let allowed = files.map_or(wanted, |files| wanted.min((files / 2).max(1)));
    if allowed < wanted {
        tracing::warn!(wanted, allowed, "fewer connections than the setting allows: the process may open few files (ulimit -n)");
    }
    allowed
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_client_without_a_place_is_closed_and_one_with_a_place_is_waited_for() {
        let listener = ClientListener::bind(([127, 0, 0, 1], 0).into(), "test").unwrap();
        let (address, stop) = (listener.address, CancellationToken::new());
        let (may_end, refusals) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let ended = may_end.clone();
        let answer = move |mut socket: TcpStream| {
            let ended = ended.clone();
            async move {
                socket.write_all(b"a").await.unwrap();
                ended.acquire().await.unwrap().forget();
            }
        };
        let (counted, stopped) = (refusals.clone(), stop.clone());
        let refused = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let task = tokio::spawn(async move { listener.accept(1, &stopped, answer, refused).await });
        let mut first = TcpStream::connect(address).await.unwrap();
        assert_eq!(first.read_u8().await.unwrap(), b'a');
        let mut second = TcpStream::connect(address).await.unwrap();
        assert!(second.read_u8().await.is_err(), "the second client has no place");
        assert_eq!(refusals.load(Ordering::Relaxed), 1);

        stop.cancel();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!task.is_finished(), "the first client is not waited for");
        may_end.add_permits(1);
        task.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_panics_is_no_longer_counted() {
        let count = Arc::new(AtomicU64::new(0));
        let gauge = Gauge::from_arc(count.clone());
        let shown = || f64::from_bits(count.load(Ordering::Acquire));
        let first = OpenConnection::count(gauge.clone());
        let second = tokio::spawn(async move {
            let _open = OpenConnection::count(gauge);
            panic!("while the second connection is answered");
        });
        assert!(second.await.is_err_and(|error| error.is_panic()));
        assert_eq!(shown(), 1.0);
        drop(first);
        assert_eq!(shown(), 0.0);
    }

    #[tokio::test]
    async fn a_connection_asks_whether_its_client_is_still_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        tune_socket(&socket);
        assert!(SockRef::from(&socket).keepalive().unwrap() && socket.nodelay().unwrap());
        drop(client);
    }

    #[test]
    fn connections_leave_files_to_others() {
        assert_eq!(allowed_connections(10), 10);
        let most = allowed_connections(usize::MAX);
        assert!((128..usize::MAX).contains(&most), "{most}");
    }
}
