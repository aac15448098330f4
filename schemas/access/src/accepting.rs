//! Accepts connections, the same for every protocol.

use std::io;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// After an error of the system (no file handles, say) nothing is accepted for this time.
const AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// Waits for a connection. While the system accepts none, it is asked again and again.
pub async fn next_connection(listener: &TcpListener, protocol: &'static str) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => return socket,
            Err(error) if is_of_client(error.kind()) => {}
            Err(error) => {
                tracing::warn!(%error, protocol, "a connection cannot be accepted");
                tokio::time::sleep(AFTER_A_FAILURE).await;
            }
        }
    }
}

/// Whether a connection was not accepted because its client has closed it meanwhile: others are accepted at once.
fn is_of_client(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_leaves_keeps_no_other_client_waiting() {
        use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Other, OutOfMemory};
        assert_eq!([ConnectionAborted, ConnectionReset, OutOfMemory, Other].map(is_of_client), [true, true, false, false]);
    }
}
