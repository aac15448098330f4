//! Errors, cancelling, limits and stopping; and clients that do not keep to the protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, Any, CommandStatementIngest, ProstMessageExt, TableDefinitionOptions,
};
use arrow_flight::{Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo, Ticket};
use basestream_tests::until;
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tokio::io::AsyncReadExt;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::server::{Client, ENDLESS, SOON, Server, batches, fetch, one, refused, status_of};

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_their_status_and_their_place() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    for (sql, code, said) in [
        ("SELEC 1", Code::InvalidArgument, "line: 1"),
        ("SELECT device FROM nowhere", Code::InvalidArgument, "there is no table \"nowhere\""),
        ("SELECT nothing FROM per_device", Code::InvalidArgument, "there is no column \"nothing\""),
        ("SELECT nothing\nFROM per_device", Code::InvalidArgument, "line: 1, column: 8"),
        ("", Code::InvalidArgument, "no query"),
        ("SELECT 1; SELECT 2", Code::InvalidArgument, "more than one query"),
        ("SELECT 1 / 0", Code::InvalidArgument, "division by zero"),
        ("INSERT INTO per_device VALUES (1)", Code::Unimplemented, "INSERT is not supported here"),
        ("CREATE TABLE t (a int)", Code::Unimplemented, "CREATE is not supported here"),
        ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'", Code::Unimplemented, "CREATE is not supported here"),
        ("EXPLAIN ANALYZE INSERT INTO per_device VALUES ('a', 1, 1)", Code::Unimplemented, "only queries are supported"),
        ("COPY per_device TO '/tmp/x'", Code::Unimplemented, "COPY is not supported here"),
    ] {
        let (found, message) = refused(&mut client, sql).await;
        assert!(found == code && message.contains(said), "{sql}: {found:?} {message}");
        assert_eq!(one(&mut client, "SELECT n FROM per_device WHERE device = 'a'").await, "1", "after {sql}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let unimplemented = |error: arrow_flight::error::FlightError| {
        let status = status_of(error);
        assert_eq!(status.code(), Code::Unimplemented);
        status.message().to_owned()
    };
    let message = unimplemented(client.execute_update("DELETE FROM events".to_owned(), None).await.unwrap_err());
    assert!(message.starts_with("CommandStatementUpdate is not supported: expected queries"), "{message}");
    let ingest = CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions { if_not_exist: 1, if_exists: 1 }),
        table: "events".into(),
        ..CommandStatementIngest::default()
    };
    let rows = batches(&mut client, "SELECT * FROM events").await.unwrap();
    unimplemented(client.execute_ingest(ingest, stream::iter(rows.into_iter().map(Ok))).await.unwrap_err());
    unimplemented(client.begin_transaction().await.unwrap_err());
    let error = status_of(client.execute("SELECT 1".to_owned(), Some("t".into())).await.unwrap_err());
    assert!(error.code() == Code::Unimplemented && error.message().contains("transactions"), "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_server_did_not_make_is_refused() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    for ticket in [&b""[..], b"nothing", b"\xff\xff\xff\xff"] {
        let error = client.inner_mut().do_get(Ticket::new(ticket.to_vec())).await.unwrap_err();
        assert!(matches!(error.code(), Code::InvalidArgument | Code::Unimplemented), "{error}");
        let action = Action::new("CreatePreparedStatement", ticket.to_vec());
        assert_eq!(client.inner_mut().do_action(action).await.unwrap_err().code(), Code::InvalidArgument);
    }
    // A message of more than 4 MiB is not taken.
    let long = "x".repeat(5 << 20);
    let error = status_of(client.execute(format!("SELECT '{long}'"), None).await.unwrap_err());
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    server.stop().await;
}

async fn cancel(client: &mut Client, info: &FlightInfo) -> i32 {
    let action = Action::new("CancelFlightInfo", CancelFlightInfoRequest::new(info.clone()).encode_to_vec());
    let result = client.inner_mut().do_action(action).await.unwrap().into_inner().next().await.unwrap().unwrap();
    CancelFlightInfoResult::decode(&*result.body).unwrap().status
}

/// As older clients ask.
async fn cancel_query(client: &mut Client, info: &FlightInfo) -> i32 {
    let request = ActionCancelQueryRequest { info: info.encode_to_vec().into() };
    let action = Action::new("CancelQuery", request.as_any().encode_to_vec());
    let result = client.inner_mut().do_action(action).await.unwrap().into_inner().next().await.unwrap().unwrap();
    Any::decode(&*result.body).unwrap().unpack::<ActionCancelQueryResult>().unwrap().unwrap().result
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_cancelled_by_its_ticket() {
    let server = Server::start().await;
    let (mut client, mut other) = (server.connect().await, server.connect().await);
    // One that has no rows yet, and one that has many.
    for sql in [ENDLESS, "SELECT value FROM range(0, 2000000000)"] {
        for is_older in [false, true] {
            let info = client.execute(sql.to_owned(), None).await.unwrap();
            let (mut asking, asked) = (client.clone(), info.clone());
            let running =
                tokio::spawn(async move { fetch(&mut asking, asked).await?.try_fold(0, async |n, batch| Ok(n + batch.num_rows())).await });
            let cancelled = async {
                // One that comes before the query is for nothing.
                while if is_older { cancel_query(&mut other, &info).await } else { cancel(&mut other, &info).await }
                    != CancelStatus::Cancelled as i32
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(SOON, cancelled).await.expect("timed out: there is nothing to cancel");
            let error = tokio::time::timeout(SOON, running).await.expect("timed out: it is not cancelled").unwrap().unwrap_err();
            assert!(error.to_string().contains("the query was cancelled"), "{error}");
        }
    }
    let info = client.execute("SELECT 1".to_owned(), None).await.unwrap();
    assert_eq!(cancel(&mut other, &info).await, CancelStatus::NotCancellable as i32);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_its_query() {
    let server = Server::start().await;
    let mut other = server.connect().await;
    // First a call of a connection that stays, then the connection with its call.
    for stays in [true, false] {
        // To ask would end it. It takes milliseconds on a machine that is not busy; on a busy one another is asked
        // about later.
        let mut ended = false;
        for seconds in [1, 5, 10, 20] {
            let mut client = server.connect().await;
            let _connection = stays.then(|| client.clone());
            let info = client.execute(ENDLESS.to_owned(), None).await.unwrap();
            let asked = info.clone();
            let running = tokio::spawn(async move { fetch(&mut client, asked).await.map(|_| ()) });
            tokio::time::sleep(Duration::from_millis(300)).await;
            running.abort();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            ended = cancel(&mut other, &info).await == CancelStatus::NotCancellable as i32;
            if ended {
                break;
            }
        }
        assert!(ended, "it still runs");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_idle_clients_go_and_finishes_what_is_under_way() {
    let server = Server::start().await;
    let _idle = {
        let mut client = server.connect().await;
        batches(&mut client, "SELECT 1").await.unwrap();
        client
    };
    let _silent = TcpStream::connect(server.address).unwrap();
    let mut client = server.connect().await;
    let info = client.execute("SELECT value, value * 2 AS double FROM range(0, 3000000)".to_owned(), None).await.unwrap();
    let mut answer = fetch(&mut client, info).await.unwrap();
    let mut found = answer.next().await.unwrap().unwrap().num_rows();
    server.begin_to_stop();
    while let Some(batch) = answer.next().await {
        found += batch.unwrap().num_rows();
    }
    assert_eq!(found, 3_000_000);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_protocol_is_refused_and_hurts_nobody() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
        let ended = tokio::task::block_in_place(|| {
            let mut socket = TcpStream::connect(server.address).unwrap();
            socket.set_read_timeout(Some(SOON)).unwrap();
            socket.write_all(bytes).unwrap();
            socket.shutdown(std::net::Shutdown::Write).unwrap();
            socket.read_to_end(&mut Vec::new())
        });
        assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
        assert_eq!(one(&mut client, "SELECT 1").await, "1");
    }
    server.stop().await;
}

/// The length of the frame is all that comes of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_frame_and_a_header_that_are_too_large_are_refused_and_hurt_nobody() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let mut with_long_header = client.clone();
    with_long_header.set_header("x-long", "x".repeat(70 << 10));
    assert!(batches(&mut with_long_header, "SELECT 1").await.is_err());
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    let answer = tokio::task::block_in_place(|| {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\xff\xff\xff\0\0\0\0\0\x01").unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        answer
    });
    // GOAWAY with FRAME_SIZE_ERROR.
    assert!(answer.ends_with(b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x06"), "{answer:?}");
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_attempts_hurt_no_client() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    let address = server.address;
    // With the client's as many as may be open: what comes after them is closed at once.
    let mut silent = Vec::new();
    for _ in 0..499 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    // Whoever has a place is greeted.
    let attempts = stream::iter(0..10_000).map(|_| async move {
        match tokio::net::TcpStream::connect(address).await {
            Ok(mut socket) => usize::from(socket.read(&mut [0]).await.is_ok_and(|read| read > 0)),
            Err(_) => 0,
        }
    });
    let greeted = attempts.buffer_unordered(100).fold(0, async |sum, greeted| sum + greeted);
    let asked = async {
        for _ in 0..20 {
            assert_eq!(one(&mut client, "SELECT 1").await, "1");
        }
    };
    let (greeted, ()) = tokio::join!(greeted, asked);
    assert!(greeted < 10_000, "nobody was refused");
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    drop(silent);
    until("a place", async || match Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await {
        Ok(channel) => batches(&mut Client::new(channel), "SELECT 1").await.is_ok(),
        Err(_) => false,
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_most_clients_others_are_closed_until_one_leaves() {
    let server = Server::start().await;
    tokio::task::block_in_place(|| {
        let is_closed = |socket: &mut TcpStream, patience: Duration| {
            socket.set_read_timeout(Some(patience)).unwrap();
            socket.read(&mut [0]).is_ok_and(|read| read == 0)
        };
        let clients: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(server.address).unwrap()).collect();
        assert!(is_closed(&mut TcpStream::connect(server.address).unwrap(), SOON));
        drop(clients);
        let began = Instant::now();
        while is_closed(&mut TcpStream::connect(server.address).unwrap(), Duration::from_millis(500)) {
            assert!(began.elapsed() < SOON, "timed out: no place becomes free");
        }
    });
    let mut client = server.connect().await;
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_nothing_is_closed() {
    let server = Server::start().await;
    let began = Instant::now();
    let mut socket = TcpStream::connect(server.address).unwrap();
    let read = tokio::task::block_in_place(|| {
        socket.set_read_timeout(Some(SOON)).unwrap();
        // The beginning of HTTP/2, and nothing after it.
        socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        socket.read_to_end(&mut Vec::new())
    });
    assert!(read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    // Before it is asked whether it is there.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    server.stop().await;
}
