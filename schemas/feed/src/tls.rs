//! Connections in and out, encrypted or not.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_rustls::TlsConnector;
use tonic::transport::server::Connected;
use types::{Error, Result};

/// The name of gRPC's protocol in TLS (ALPN).
pub(crate) const ALPN: &str = "h2";

/// The size of the preface of HTTP/2, with which every client begins.
const PREFACE_BYTES: usize = 24;

/// A connection, encrypted or not.
pub(crate) struct FeedConnection {
    stream: Box<dyn Stream>,
    /// The rest of the preface, while a client has not sent all of it.
    preface: Option<AwaitedPreface>,
    /// Its place among the connections of a server.
    _place: Option<OwnedSemaphorePermit>,
}

/// The rest of a preface, and when it is due. HTTP/2 sends pings only after the preface.
struct AwaitedPreface {
    bytes: usize,
    due: Pin<Box<Sleep>>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl FeedConnection {
    /// Wraps a connection to a server.
    pub(crate) fn new(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self { stream: Box::new(stream), preface: None, _place: None }
    }

    /// Wraps a connection from a client, which has this time to send its preface.
    pub(crate) fn accepted(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        place: OwnedSemaphorePermit,
        preface_within: Duration,
    ) -> Self {
        let preface = AwaitedPreface { bytes: PREFACE_BYTES, due: Box::pin(tokio::time::sleep(preface_within)) };
        Self { stream: Box::new(stream), preface: Some(preface), _place: Some(place) }
    }
}

impl Connected for FeedConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for FeedConnection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let Some(preface) = &mut this.preface else { return read };
        preface.bytes = preface.bytes.saturating_sub(buffer.filled().len() - before);
        if preface.bytes == 0 {
            this.preface = None;
        } else if read.is_pending() && preface.due.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for FeedConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The files by which a node verifies workers, and those that it presents: PEM files, read with every connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTls {
    /// The authorities of the workers' certificates.
    pub ca: PathBuf,
    /// The node's own certificate, for workers that ask for one.
    pub identity: Option<ClientCertificate>,
}

/// The node's own certificate, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl ClientTls {
    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> Result<FeedConnection> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| {
            Error::input("a worker's address has no name that a certificate can have").with("found", host).caused_by(error)
        })?;
        let tls = self.clone();
        let config = tokio::task::spawn_blocking(move || tls.config()).await??;
        let connector = TlsConnector::from(Arc::new(config));
        let connected = connector.connect(name, stream).await;
        let stream = connected.map_err(|error| Error::unavailable("a connection to a worker cannot be encrypted").caused_by(error))?;
        Ok(FeedConnection::new(stream))
    }

    /// Reads the files, which blocks the thread.
    fn config(&self) -> Result<ClientConfig> {
        let unusable = |error: rustls::Error| Error::input("TLS cannot be set up").with("file", self.ca.display()).caused_by(error);
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(unusable)?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some(ClientCertificate { cert, key }) => {
                let wrong = |error| Error::input("there is no private key in the file").with("file", key.display()).caused_by(pem(error));
                let key = PrivateKeyDer::from_pem_file(key).map_err(wrong)?;
                builder.with_client_auth_cert(certificates(cert)?, key).map_err(unusable)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.as_bytes().to_vec()];
        Ok(config)
    }
}

/// Reads the certificates of a file, which has at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = || Error::input("there is no certificate in the file").with("file", file.display()).with("expected", "certificates as PEM");
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(|error| wrong().caused_by(pem(error)))?.collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong()),
        Err(error) => Err(wrong().caused_by(pem(error))),
    }
}

fn pem(error: rustls::pki_types::pem::Error) -> io::Error {
    io::Error::other(error.to_string())
}

impl fmt::Debug for FeedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FeedConnection")
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_client_that_does_not_send_its_whole_preface_is_disconnected_and_one_that_has_may_be_silent() {
        let accepted = |stream: DuplexStream| {
            let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            FeedConnection::accepted(stream, place, Duration::ZERO)
        };
        for bytes in [0, 1, PREFACE_BYTES - 1] {
            let (mut client, server) = duplex(PREFACE_BYTES);
            client.write_all(&vec![b'a'; bytes]).await.unwrap();
            let mut connection = accepted(server);
            for _ in 0..bytes {
                assert_eq!(connection.read_u8().await.unwrap(), b'a');
            }
            let read = tokio::time::timeout(Duration::from_secs(60), connection.read_u8()).await;
            assert_eq!(read.expect("timed out: it is not disconnected").unwrap_err().kind(), io::ErrorKind::TimedOut, "{bytes} bytes");
        }

        let (mut client, server) = duplex(PREFACE_BYTES);
        client.write_all(&[b'a'; PREFACE_BYTES]).await.unwrap();
        let mut connection = accepted(server);
        connection.read_exact(&mut [0; PREFACE_BYTES]).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), connection.read_u8()).await.is_err(), "it is disconnected");
    }

    /// A pipe stands for a file that is slow to read: who opens it waits for who writes it.
    #[tokio::test]
    async fn other_tasks_run_while_the_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        assert!(Command::new("mkfifo").arg(&ca).status().unwrap().success());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();

        let (runs, other_runs) = mpsc::channel();
        let pipe = ca.clone();
        let writing = std::thread::spawn(move || {
            let has_run = other_runs.recv_timeout(Duration::from_secs(60)).is_ok();
            std::fs::write(pipe, "no certificate").unwrap();
            has_run
        });
        let tls = ClientTls { ca, identity: None };
        let (connected, ()) = tokio::join!(tls.connect("localhost", stream), async { runs.send(()).unwrap() });
        assert!(connected.unwrap_err().message().contains("no certificate"));
        assert!(writing.join().unwrap(), "nothing else ran while the files were read");
    }
}
