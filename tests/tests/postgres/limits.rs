//! What is beyond a limit, as a PostgreSQL client gets it.

use std::pin::pin;
use std::time::Duration;

use basestream_tests::until;
use futures::{StreamExt, stream};
use serving::ServingLimits;
use serving::http::Protection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, error_of, one, texts};

const ENDLESS: &str = "SELECT count(*) FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17";
/// The same of PostgreSQL's catalog.
const ENDLESS_OF_CATALOG: &str =
    "SELECT count(*) FROM pg_type a, pg_type b, pg_type c, pg_type d WHERE a.typname || b.typname <> c.typname || d.typname";
const BRIEF: Duration = Duration::from_millis(100);
/// Long enough for a place to become free, on a busy machine, after the query in it has ended.
const TURN: Duration = Duration::from_secs(2);
/// How a client begins that needs no password.
const STARTUP: &[u8] = b"\0\0\0\x26\0\x03\0\0user\0ann\0database\0basestream\0\0";
/// For whom a place becomes free.
const LONG: Duration = Duration::from_secs(60);

async fn server(limits: ServingLimits) -> Server {
    let mut server = Server::limited(&Protection::none(std::sync::Arc::new(|| 0)).unwrap(), limits).await;
    server.append(&[r#""device":"a""#]).await;
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_turn_does_not_come_is_refused_and_a_lookup_is_answered() {
    let server = server(ServingLimits { concurrent_queries: 1, queue_wait: TURN, ..ServingLimits::default() }).await;
    let other = server.connect().await;
    for endless in [ENDLESS, ENDLESS_OF_CATALOG] {
        let busy = server.connect().await;
        let cancel = busy.cancel_token();
        let running = tokio::spawn(async move { busy.simple_query(endless).await });
        let mut refused = None;
        // It is answered while the other one is not under way yet.
        until("the query to be refused", async || {
            refused = other.simple_query("SELECT * FROM per_device").await.err();
            refused.is_some()
        })
        .await;
        let error = error_of(&refused.unwrap());
        assert_eq!(error.0, "53000", "{}", error.1);
        assert_eq!(one(&other, "SELECT n FROM per_device WHERE device = 'a'").await, "1");
        cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
        assert_eq!(error_of(&running.await.unwrap().unwrap_err()).0, "57014");
        assert_eq!(one(&other, "SELECT count(*) FROM per_device").await, "1");
    }
    server.stop().await;
}

/// A portal that waits for its client must not keep others from their turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_between_two_fetches_takes_no_place() {
    let server = server(ServingLimits { concurrent_queries: 1, queue_wait: LONG, ..ServingLimits::default() }).await;
    let (mut one_client, other) = (server.connect().await, server.connect().await);
    let transaction = one_client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT value FROM range(0, 100000)", &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 10).await.unwrap().len(), 10);
    assert_eq!(one(&other, "SELECT count(*) FROM per_device").await, "1");
    assert_eq!(transaction.query_portal(&portal, 0).await.unwrap().len(), 99_990);
    drop(transaction);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_between_two_fetches_takes_no_place() {
    let server = server(ServingLimits { concurrent_queries: 1, queue_wait: LONG, ..ServingLimits::default() }).await;
    let (reader, other) = (server.connect().await, server.connect().await);
    reader.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT value FROM range(0, 100000)").await.unwrap();
    assert_eq!(texts(&reader, "FETCH 10 FROM c").await.len(), 10);
    assert_eq!(one(&other, "SELECT count(*) FROM per_device").await, "1");
    assert_eq!(texts(&reader, "FETCH ALL FROM c").await.len(), 99_990);
    server.stop().await;
}

/// What it does not read is more than the system holds for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_its_client_does_not_read_takes_no_place() {
    let server = server(ServingLimits { concurrent_queries: 1, queue_wait: LONG, ..ServingLimits::default() }).await;
    let (slow, other) = (server.connect().await, server.connect().await);
    let large = "SELECT value, repeat('x', 1000) AS text FROM range(0, 100000)";
    let mut rows = pin!(slow.query_raw(large, Vec::<i32>::new()).await.unwrap());
    rows.next().await.unwrap().unwrap();
    assert_eq!(one(&other, "SELECT count(*) FROM per_device").await, "1");
    let mut read = 1;
    while let Some(row) = rows.next().await {
        row.unwrap();
        read += 1;
    }
    assert_eq!(read, 100_000);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn time_and_memory_have_their_states() {
    let limits = ServingLimits { query_time: Some(BRIEF), query_memory_bytes: Some(4 << 20), ..ServingLimits::default() };
    let server = server(limits).await;
    let client = server.connect().await;
    assert_eq!(error_of(&client.simple_query(ENDLESS).await.unwrap_err()).0, "57014");
    let large = "SELECT array_agg(CAST(value AS TEXT) || repeat('x', 1000)) AS texts FROM range(0, 100000)";
    let (state, message, _) = error_of(&client.simple_query(large).await.unwrap_err());
    assert!(state == "53200" || state == "57014", "{state}: {message}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_most_clients_others_are_refused() {
    let server = server(ServingLimits { postgres_connections: 2, ..ServingLimits::default() }).await;
    let (_first, second) = (server.connect().await, server.connect().await);
    let refused = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.err().unwrap();
    let (state, message, _) = error_of(&refused);
    assert!(state == "53300" && message.contains("at most 2"), "{state}: {message}");
    drop(second);
    until("a place", async || tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.is_ok()).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_are_let_go_and_ten_thousand_attempts_hurt_no_client() {
    let server = server(ServingLimits { postgres_connections: 2, ..ServingLimits::default() }).await;
    let client = server.connect().await;
    // With the client's as many as may be open, twice the clients: what comes after them is closed at once.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let address = server.address;
    let attempts = stream::iter(0..10_000).map(|_| async move {
        match TcpStream::connect(address).await {
            Ok(mut socket) => socket.read(&mut [0]).await.unwrap_or_default(),
            Err(_) => 0,
        }
    });
    let said = attempts.buffer_unordered(100).fold(0, async |sum, bytes| sum + bytes).await;
    assert_eq!(said, 0, "nothing is said to who says nothing");
    assert_eq!(one(&client, "SELECT n FROM per_device WHERE device = 'a'").await, "1");
    for socket in &mut silent {
        let ended = tokio::time::timeout(LONG, socket.read(&mut [0])).await.expect("timed out: it is kept");
        assert_eq!(ended.unwrap(), 0);
    }
    until("a place", async || tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.is_ok()).await;
    server.stop().await;
}

/// Its length is all that comes of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused_and_hurts_no_client() {
    let server = server(ServingLimits::default()).await;
    let client = server.connect().await;
    let query_of = |length: i32| [STARTUP, b"Q", length.to_be_bytes().as_slice()].concat();
    for bytes in [query_of((16 << 20) + 1), query_of(i32::MAX), query_of(-1), 10_001_i32.to_be_bytes().to_vec()] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(LONG, socket.read_to_end(&mut answer)).await;
        read.expect("timed out: the rest is waited for").unwrap();
        assert!(answer.windows(8).any(|field| field == b"\0C08P01\0"), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(one(&client, "SELECT n FROM per_device WHERE device = 'a'").await, "1");
    }
    server.stop().await;
}

/// A name takes memory as a text does.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_prepares_no_more_than_it_may_however_short_the_texts() {
    let server = server(ServingLimits::default()).await;
    let parse = |number: u8| {
        let name = [vec![b'a' + number], vec![b'x'; 15 << 20]].concat();
        let body = [name.as_slice(), b"\0SELECT 1\0\0\0".as_slice()].concat();
        [b"P".as_slice(), (body.len() as i32 + 4).to_be_bytes().as_slice(), body.as_slice()].concat()
    };
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(STARTUP).await.unwrap();
    for number in 0..5 {
        socket.write_all(&parse(number)).await.unwrap();
    }
    socket.write_all(b"S\0\0\0\x04").await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(LONG, socket.read_to_end(&mut answer)).await.expect("timed out: it is not closed").unwrap();
    assert!(answer.windows(7).any(|field| field == b"C53400\0"), "{}", String::from_utf8_lossy(&answer));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_startup_name_the_time_of_queries() {
    let mut server = server(ServingLimits::default()).await;
    server.append(&[r#""device":"a""#]).await;
    let url = format!("{} options='-c as_of=2026-03-01T10:01:00Z'", server.url());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(one(&client, "SELECT n FROM per_device WHERE device = 'a'").await, "1");
    assert_eq!(one(&server.connect().await, "SELECT n FROM per_device WHERE device = 'a'").await, "2");
    drop(client);
    server.stop().await;
}
