//! What every protocol asks of the system for its connections.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use types::open_files;

/// After this time without a byte, the system asks whether the other side is still there, and how often until it gives
/// up.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_TRIES: u32 = 4;

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
    use super::*;

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
