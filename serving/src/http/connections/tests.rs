use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use access::tls::TlsFiles;
use axum::routing::get;
use futures::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use certificates::{Authority, server_name};

// The crate of the tests depends on this one.
#[path = "../../../../tests/src/certificates.rs"]
mod certificates;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);
const PROTOCOL: &str = "http/1.1";
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl Server {
    async fn start(router: Router, tls: Option<ServerTls>, limits: Limits) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let task = AbortOnDropHandle::new(tokio::spawn(serve(listener, router, tls, limits, stop.clone())));
        Server { address, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

fn limits() -> Limits {
    Limits { connections: 100, first_header: LONG, next_header: LONG, header_bytes: 4096, stalled: LONG }
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// What comes until the server closes.
async fn rest(mut connection: impl AsyncRead + Unpin) -> String {
    let mut all = Vec::new();
    let read = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut all)).await;
    let _ = read.expect("timed out: the server does not close the connection");
    String::from_utf8_lossy(&all).into_owned()
}

async fn ask(mut connection: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let _ = connection.write_all(b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    rest(connection).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_send_a_header_is_closed() {
    let server = Server::start(hello(), None, Limits { first_header: SHORT, ..limits() }).await;
    assert_eq!(rest(server.connect().await).await, "");
    // One byte after another keeps it no longer.
    let (reading, mut writing) = server.connect().await.into_split();
    let drip = tokio::spawn(async move {
        let _ = writing.write_all(b"GET / HTTP/1.1\r\nx: ").await;
        while writing.write_all(b"y").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(!rest(reading).await.contains("hello"));
    drip.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_kept_for_a_while_for_its_next_request() {
    let server = Server::start(hello(), None, Limits { next_header: SHORT, ..limits() }).await;
    let mut connection = server.connect().await;
    connection.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    assert!(rest(connection).await.ends_with("hello"), "it is closed by the server");
}

/// The time limit is for headers: a query may take longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_under_way_is_not_cut_off() {
    // Enough for a header on a busy machine.
    let first_header = 20 * SHORT;
    let slow = Router::new().route("/", get(move || async move { tokio::time::sleep(2 * first_header).await }));
    let server = Server::start(slow, None, Limits { first_header, ..limits() }).await;
    assert!(ask(server.connect().await).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_is_too_large_is_refused() {
    let server = Server::start(hello(), None, limits()).await;
    let mut connection = server.connect().await;
    let header = format!("GET / HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\r\n", "x".repeat(5000));
    let _ = connection.write_all(header.as_bytes()).await;
    assert!(rest(connection).await.starts_with("HTTP/1.1 431"));
    let mut connection = server.connect().await;
    let many: String = (0..200).map(|number| format!("h{number}: x\r\n")).collect();
    let _ = connection.write_all(format!("GET / HTTP/1.1\r\nhost: test\r\n{many}\r\n").as_bytes()).await;
    assert!(rest(connection).await.starts_with("HTTP/1.1 431"));
    assert!(ask(server.connect().await).await.ends_with("hello"));
}

/// Ten thousand attempts, most of which say nothing: no more than the limit are ever answered at a time, others get
/// the reason or, if they come all at once, are just closed.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_connections_take_no_more_than_the_limit() {
    const MOST: usize = 16;
    let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counting, highest) = (now.clone(), peak.clone());
    let handler = move || {
        let (counting, highest) = (counting.clone(), highest.clone());
        async move {
            highest.fetch_max(counting.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            counting.fetch_sub(1, Ordering::SeqCst);
            "hello"
        }
    };
    let server = Server::start(Router::new().route("/", get(handler)), None, Limits { connections: MOST, ..limits() }).await;
    let address = server.address;
    let attempts = stream::iter(0..10_000).map(move |number| async move {
        match TcpStream::connect(address).await {
            Ok(connection) if number % 10 == 0 => match ask(connection).await {
                answer if answer.ends_with("hello") => (1, 0),
                refusal if refusal.starts_with("HTTP/1.1 503") && refusal.contains("as many connections") => (0, 1),
                closed if closed.is_empty() => (0, 0),
                other => panic!("{other}"),
            },
            _ => (0, 0),
        }
    });
    let (answered, refused) = attempts.buffer_unordered(200).fold((0, 0), |sum, one| async move { (sum.0 + one.0, sum.1 + one.1) }).await;
    assert!(answered > 0 && refused > 0 && answered + refused <= 1_000, "{answered} answered, {refused} refused");
    assert!(ask(server.connect().await).await.ends_with("hello"), "the server is as it was");
    assert!(peak.load(Ordering::SeqCst) <= MOST, "{peak:?} at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_most_connections_others_are_refused_until_one_ends() {
    let server = Server::start(hello(), None, Limits { connections: 1, ..limits() }).await;
    let mut first = server.connect().await;
    first.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let mut answered = [0; 12];
    first.read_exact(&mut answered).await.unwrap();
    let refusal = ask(server.connect().await).await;
    assert!(refusal.starts_with("HTTP/1.1 503") && refusal.contains("retry-after: 1"), "{refusal}");
    let body: serde_json::Value = serde_json::from_str(refusal.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((&body["status"], &body["type"]), (&503.into(), &"urn:basestream:problem:busy".into()));
    drop(first);
    let began = Instant::now();
    while !ask(server.connect().await).await.ends_with("hello") {
        assert!(began.elapsed() < PATIENCE, "timed out: no place becomes free");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The answer is larger than what the system holds for a client.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_of_its_answer_is_let_go() {
    let (made, mut ends) = tokio::sync::mpsc::channel::<()>(1);
    let endless = Router::new().route(
        "/",
        get(move || {
            let kept = made.clone();
            let pieces = stream::repeat_with(move || {
                let _ = &kept;
                Ok::<_, Infallible>(bytes::Bytes::from_static(&[b'x'; 1 << 16]))
            });
            async move { Body::from_stream(pieces) }
        }),
    );
    let server = Server::start(endless, None, Limits { stalled: SHORT, ..limits() }).await;
    let mut stalled = server.connect().await;
    stalled.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    server.stop.cancel();
    // The server ends only once the body, and what it is made from, is gone.
    tokio::time::timeout(LONG, server.task).await.expect("timed out: it waits for the client").unwrap();
    assert!(ends.try_recv().is_err());
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_finishes_requests_and_closes_what_is_idle() {
    let (begun, mut begins) = tokio::sync::mpsc::channel(1);
    let release = Arc::new(Semaphore::new(0));
    let waiting = release.clone();
    let handler = move || {
        let (begun, waiting) = (begun.clone(), waiting.clone());
        async move {
            let _ = begun.send(()).await;
            drop(waiting.acquire().await);
            "hello"
        }
    };
    let server = Server::start(Router::new().route("/", get(handler)), None, limits()).await;
    let idle = server.connect().await;
    let asked = tokio::spawn(ask(server.connect().await));
    begins.recv().await.unwrap();
    server.stop.cancel();
    assert_eq!(rest(idle).await, "");
    release.add_permits(1);
    assert!(asked.await.unwrap().ends_with("hello"));
    server.task.await.unwrap();
}

/// A server's TLS, with the authority of its certificate.
fn tls_in(folder: &Path) -> (ServerTls, Authority) {
    let authority = Authority::new().unwrap();
    authority.write_server(folder).unwrap();
    let files = TlsFiles { client_ca: None, ..files_in(folder) };
    (ServerTls::load(files, &[PROTOCOL]).unwrap(), authority)
}

/// Notes on which threads it is read.
struct NotedStream {
    stream: DuplexStream,
    readers: Arc<Mutex<BTreeSet<String>>>,
}

impl AsyncRead for NotedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.readers.lock().unwrap().insert(thread::current().name().unwrap_or_default().to_owned());
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for NotedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_handshake_is_done_on_the_threads_for_longer_queries() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, _) = tls_in(folder.path());
    let (mut client, stream) = tokio::io::duplex(1 << 10);
    client.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let readers: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    assert!(encrypted(&tls, NotedStream { stream, readers: readers.clone() }).await.is_err());
    assert_eq!(*readers.lock().unwrap(), BTreeSet::from(["queries".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_plain_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, authority) = tls_in(folder.path());
    let server = Server::start(hello(), Some(tls), Limits { first_header: SHORT * 100, ..limits() }).await;

    let plain = ask(server.connect().await).await;
    assert!(!plain.contains("HTTP/1.1") && !plain.contains("hello"), "{plain}");

    assert!(ask_as(&server, &authority, None).await.contains("hello"));
}

fn files_in(folder: &Path) -> TlsFiles {
    TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem"), client_ca: Some(folder.join("ca.pem")) }
}

/// The answer to a client that trusts `trusted`, with a certificate of `own`; empty if it is refused, which with TLS
/// 1.3 may come with the first answer.
async fn ask_as(server: &Server, trusted: &Authority, own: Option<&Authority>) -> String {
    let connector = trusted.connector(own, PROTOCOL).unwrap();
    match connector.connect(server_name().unwrap(), server.connect().await).await {
        Ok(stream) => ask(stream).await,
        Err(_) => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_certificate_where_an_authority_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    ours.write_server(folder.path()).unwrap();
    ours.write_own(folder.path()).unwrap();
    let tls = ServerTls::load(files_in(folder.path()), &[PROTOCOL]).unwrap();
    let server = Server::start(hello(), Some(tls.clone()), limits()).await;
    assert!(ask_as(&server, &ours, Some(&ours)).await.ends_with("hello"));
    assert_eq!(ask_as(&server, &ours, None).await, "", "without a certificate");
    assert_eq!(ask_as(&server, &ours, Some(&other)).await, "", "with one of another authority");

    // A file that changes is used by the next connection.
    other.write_own(folder.path()).unwrap();
    assert!(tls.reload().unwrap());
    assert!(ask_as(&server, &ours, Some(&other)).await.ends_with("hello"));
    assert_eq!(ask_as(&server, &ours, Some(&ours)).await, "", "with one of the authority before");
    assert_eq!(ask_as(&server, &ours, None).await, "", "without a certificate after the change");
}
