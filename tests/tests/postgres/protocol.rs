//! Errors, cancelling, limits, and clients that do not keep to the protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio_postgres::{NoTls, Portal, SimpleQueryMessage};

use crate::server::{Server, error_of, one, texts};

/// A query that would take hours.
const ENDLESS: &str = "SELECT count(*) FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17";
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_their_sqlstate_and_their_place() {
    let server = Server::filled().await;
    let client = server.connect().await;
    for (sql, state, at) in [
        ("SELEC 1", "42601", Some("SELEC")),
        ("SELECT device FROM nowhere", "42P01", None),
        ("SELECT nothing FROM per_device", "42703", Some("nothing")),
        ("SELECT pg_nothing FROM per_device", "42703", Some("pg_nothing")),
        ("SELECT 1; SELECT nothing FROM per_device", "42703", Some("nothing")),
        ("SELECT 1 FROM per_device WHERE", "42601", None),
        ("SELECT nofunction(device) FROM per_device", "42883", None),
        ("SELECT pg_nofunction(device) FROM per_device", "42883", None),
        ("SELECT pg_catalog.nofunction(1)", "42883", None),
        ("INSERT INTO per_device VALUES (1)", "25006", None),
        ("CREATE TABLE t (a int)", "25006", None),
        ("COPY per_device FROM STDIN", "25006", None),
        ("COPY per_device TO '/tmp/x'", "42501", None),
        ("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'", "25006", None),
        ("EXPLAIN ANALYZE INSERT INTO per_device VALUES ('a', 1, 1)", "25006", None),
        ("WITH gone AS (DELETE FROM events RETURNING id) SELECT * FROM gone", "25006", None),
        ("SELECT 1 / 0", "22012", None),
        ("SELECT CAST('x' AS INT)", "22P02", None),
        ("SELECT n FROM per_device WHERE n = 'many'", "22P02", None),
        ("SELECT n + 9223372036854775807 FROM per_device WHERE device = 'a'", "22003", None),
        ("SELECT 1 LIMIT 9223372036854775807 + 1", "22003", None),
        ("SELECT gcd(-9223372036854775808, 0)", "22003", None),
        ("SELECT lcm(9223372036854775807, 9223372036854775806)", "22003", None),
        ("SELECT factorial(25)", "22003", None),
        ("SELECT round(9223372036854775807, -1)", "22003", None),
        ("SELECT CAST(1e37 AS DECIMAL(38,10))", "22003", None),
        ("SELECT sqrt(-1)", "2201F", None),
        ("SELECT power(CAST(0 AS DOUBLE), -1)", "2201F", None),
        ("SELECT DATE '2026-01-01' + INTERVAL '300000 years'", "22008", None),
        ("SELECT TIMESTAMPTZ '2026-01-01T00:00:00Z' + INTERVAL '300000 years'", "22008", None),
        ("SELECT n AS a, device AS a FROM per_device ORDER BY a", "42702", None),
        ("SELECT 'x'::boolean", "22P02", None),
        ("SELECT 'x'::interval", "22007", None),
        ("SELECT device FROM per_device WHERE device ~ '('", "2201B", None),
        ("SELECT n, interval FROM per_device", "42601", Some("interval")),
        ("COPY (SELECT device, from, n FROM per_device) TO STDOUT", "42601", Some("from")),
        ("COPY (SELECT device, nothing FROM per_device) TO STDOUT", "42703", Some("nothing")),
        ("COPY per_device (\"from\") TO STDOUT", "42703", None),
        ("SELECT 'x'::uuid", "22P02", None),
        ("SELECT n FROM per_unit WHERE unit = 'x'::uuid AND big = 1", "22P02", None),
        ("SELECT device::uuid FROM per_device", "22P02", None),
        ("SELECT '{a'::jsonb", "22P02", None),
        ("SELECT 'x'::timestamptz", "22007", None),
        ("SELECT 'x'::date", "22007", None),
        ("SELECT '2026-02-30'::date", "22008", None),
        ("SELECT '2026-02-30 10:00'::timestamptz", "22008", None),
        ("SELECT b'101'", "0A000", None),
        ("SELECT 'nope'::regclass", "42P01", None),
        ("SELECT ok = 'perhaps' FROM events", "22P02", None),
        ("SELECT ts AT TIME ZONE 'nowhere' FROM events", "22023", None),
        ("SELECT n FROM per_device WHERE device = ANY('a')", "22P02", None),
        ("SHOW nonsense", "42704", None),
        ("SET nonsense = 1", "42704", None),
        ("DECLARE c CURSOR FOR SELECT 1", "25P01", None),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "0A000", None),
        ("FETCH c", "34000", None),
        ("CLOSE c", "34000", None),
    ] {
        let error = client.simple_query(sql).await.expect_err(sql);
        let (found, message, position) = error_of(&error);
        assert_eq!(found, state, "{sql}: {message}");
        if let Some(word) = at {
            assert_eq!(position, Some(sql.find(word).unwrap() as u32 + 1), "{sql}: {message}");
        }
        // The same where it is prepared; several statements cannot be.
        if !sql.contains(';') {
            let error = match client.prepare(sql).await {
                Err(error) => error,
                Ok(statement) => client.query(&statement, &[]).await.expect_err(sql),
            };
            assert_eq!(error_of(&error).0, state, "{sql}");
        }
        assert_eq!(one(&client, "SELECT n FROM per_device WHERE device = 'a'").await, "1", "after {sql}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_transaction_waits_for_its_end() {
    let server = Server::filled().await;
    let client = server.connect().await;
    client.batch_execute("SET application_name = 'before'").await.unwrap();
    client.batch_execute("BEGIN; SET application_name = 'within'").await.unwrap();
    assert!(client.simple_query("SELECT nothing").await.is_err());
    for sql in ["SELECT 1", "SET x.y = 1"] {
        assert_eq!(error_of(&client.simple_query(sql).await.unwrap_err()).0, "25P02", "{sql}");
    }
    assert_eq!(error_of(&client.query("SELECT 1", &[]).await.unwrap_err()).0, "25P02");
    let ended = client.simple_query("COMMIT").await.unwrap();
    assert!(matches!(ended[..], [SimpleQueryMessage::CommandComplete(0)]), "{ended:?}");
    assert_eq!(one(&client, "SHOW application_name").await, "before");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_read_in_parts_by_texts() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let fetched = async |sql: &str| texts(&client, sql).await.concat().into_iter().flatten().collect::<Vec<_>>().join(" ");
    client
        .batch_execute("BEGIN; DECLARE \"a;b\" NO SCROLL CURSOR WITHOUT HOLD FOR SELECT value FROM range(0, 8) ORDER BY value")
        .await
        .unwrap();
    assert_eq!(fetched("FETCH \"a;b\"").await, "0");
    assert_eq!(fetched("FETCH NEXT FROM \"a;b\"").await, "1");
    assert_eq!(fetched("FETCH FORWARD 2 IN \"a;b\"; FETCH FORWARD FROM \"a;b\"").await, "2 3 4");
    assert_eq!(fetched("FETCH ALL FROM \"a;b\"").await, "5 6 7");
    let ended = client.simple_query("FETCH 5 FROM \"a;b\"").await.unwrap();
    let SimpleQueryMessage::RowDescription(columns) = &ended[0] else { panic!("{ended:?}") };
    assert_eq!((columns[0].name(), ended.len()), ("value", 2), "{ended:?}");
    client.batch_execute("CLOSE \"a;b\"; DECLARE \"a;b\" BINARY CURSOR FOR SELECT 'x'; FETCH ALL FROM \"a;b\"; CLOSE ALL").await.unwrap();
    assert_eq!(error_of(&client.simple_query("FETCH \"a;b\"").await.unwrap_err()).0, "34000");
    client.batch_execute("ROLLBACK").await.unwrap();

    // It ends with its transaction, also with that of a text.
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT 1; COMMIT; BEGIN").await.unwrap();
    assert_eq!(error_of(&client.simple_query("FETCH c").await.unwrap_err()).0, "34000");
    client.batch_execute("ROLLBACK").await.unwrap();
    for _ in 0..2 {
        assert_eq!(
            fetched("DECLARE c CURSOR FOR SELECT 1; DECLARE d CURSOR FOR SELECT 'x'; FETCH ALL FROM c; FETCH ALL FROM d").await,
            "1 x"
        );
    }
    server.stop().await;
}

/// JDBC's fetch size: a portal is asked for a few rows at a time.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_fetch_are_sent_in_parts_to_who_asks_for_parts() {
    let server = Server::filled().await;
    let mut client = server.connect().await;
    let transaction = client.transaction().await.unwrap();
    let part = async |portal: &Portal, rows: i32| {
        let rows = transaction.query_portal(portal, rows).await?;
        Ok::<_, tokio_postgres::Error>(rows.iter().map(|row| row.get(0)).collect::<Vec<i64>>())
    };
    transaction.batch_execute("DECLARE c CURSOR FOR SELECT value FROM range(0, 20) ORDER BY value").await.unwrap();
    let (five, rest) = (transaction.prepare("FETCH 5 FROM c").await.unwrap(), transaction.prepare("FETCH ALL FROM c").await.unwrap());
    let portal = transaction.bind(&five, &[]).await.unwrap();
    for expected in [&[0, 1][..], &[2, 3], &[4], &[], &[]] {
        assert_eq!(part(&portal, 2).await.unwrap(), expected);
    }
    // What is fetched next comes after all five, however many of them were read.
    let portal = transaction.bind(&five, &[]).await.unwrap();
    assert_eq!(part(&portal, 2).await.unwrap(), [5, 6]);
    let next: i64 = transaction.query_one("FETCH c", &[]).await.unwrap().get(0);
    assert_eq!(next, 10);
    let portal_of_all = transaction.bind(&rest, &[]).await.unwrap();
    assert_eq!(part(&portal_of_all, 4).await.unwrap(), [11, 12, 13, 14]);
    assert_eq!(part(&portal_of_all, 0).await.unwrap(), [15, 16, 17, 18, 19]);
    let error = part(&portal, 2).await.unwrap_err();
    assert_eq!(error_of(&error).0, "55000");
    drop((portal, portal_of_all));
    transaction.rollback().await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_ends_with_the_savepoint_after_which_it_was_declared() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let fetched = async |sql: &str| texts(&client, sql).await.concat().into_iter().flatten().collect::<Vec<_>>().join(" ");
    let failed = async |sql: &str| error_of(&client.simple_query(sql).await.unwrap_err()).0;
    for outside in ["SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"] {
        assert_eq!(failed(outside).await, "25P01", "{outside}");
    }
    client.batch_execute("BEGIN; DECLARE outer CURSOR FOR SELECT value FROM range(0, 9) ORDER BY value").await.unwrap();
    // As by a driver that leaves cursors of a failed transaction to the server.
    for expected in ["0", "1"] {
        client.batch_execute("SAVEPOINT s; DECLARE inner CURSOR FOR SELECT 'x'").await.unwrap();
        assert_eq!(fetched("FETCH inner; FETCH outer").await, format!("x {expected}"));
        assert_eq!(failed("SELECT nothing").await, "42703");
        client.batch_execute("ROLLBACK TO SAVEPOINT s").await.unwrap();
    }
    assert_eq!(failed("FETCH inner").await, "34000");
    client.batch_execute("ROLLBACK TO s; DECLARE inner CURSOR FOR SELECT 'x'; RELEASE SAVEPOINT s").await.unwrap();
    assert_eq!(fetched("FETCH inner; FETCH outer").await, "x 2");
    client.batch_execute("ROLLBACK; BEGIN; SAVEPOINT s; RELEASE s").await.unwrap();
    for released in ["RELEASE s", "ROLLBACK TO s"] {
        assert_eq!(failed(released).await, "3B001", "{released}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_cursor_are_passed_over() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let fetched = async |sql: &str| texts(&client, sql).await.concat().into_iter().flatten().collect::<Vec<_>>().join(" ");
    let moved = async |sql: &str| match client.simple_query(sql).await.unwrap()[..] {
        [SimpleQueryMessage::CommandComplete(rows)] => rows,
        ref other => panic!("{sql}: {other:?}"),
    };
    client.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT value FROM range(0, 20000) ORDER BY value").await.unwrap();
    assert_eq!(moved("MOVE c").await, 1);
    assert_eq!(moved("MOVE FORWARD 2 FROM c").await, 2);
    assert_eq!(fetched("FETCH c").await, "3");
    assert_eq!(moved("MOVE RELATIVE 9000 FROM c").await, 1);
    assert_eq!(fetched("FETCH RELATIVE 2 FROM c").await, "9005");
    assert_eq!(moved("MOVE ABSOLUTE 10000 FROM c").await, 1);
    assert_eq!(fetched("FETCH 2 FROM c").await, "10000 10001");
    assert_eq!(moved("MOVE ALL FROM c").await, 9_998);
    assert_eq!(moved("MOVE 5 FROM c").await, 0);
    assert_eq!(fetched("FETCH c").await, "");
    client.batch_execute("CLOSE c; DECLARE c CURSOR FOR SELECT value FROM range(0, 3) ORDER BY value").await.unwrap();
    assert_eq!(fetched("FETCH FIRST FROM c").await, "0");
    assert_eq!(error_of(&client.simple_query("MOVE ABSOLUTE 1 FROM c").await.unwrap_err()).0, "55000");
    // The same once all rows were read.
    for passed in ["MOVE ABSOLUTE 3 FROM c", "FETCH ABSOLUTE 1 FROM c"] {
        client.batch_execute("ROLLBACK; BEGIN; DECLARE c CURSOR FOR SELECT value FROM range(0, 3) ORDER BY value").await.unwrap();
        assert_eq!((moved("MOVE ALL FROM c").await, moved("MOVE ABSOLUTE 4 FROM c").await), (3, 0));
        assert_eq!(error_of(&client.simple_query(passed).await.unwrap_err()).0, "55000", "{passed}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_has_parameters_and_columns_as_its_query() {
    let server = Server::filled().await;
    let client = server.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let declare =
        client.prepare("DECLARE c CURSOR FOR SELECT device, n FROM per_device WHERE device = ANY($1) ORDER BY device").await.unwrap();
    assert_eq!((declare.params(), declare.columns().len()), (&[tokio_postgres::types::Type::TEXT_ARRAY][..], 0));
    client.execute(&declare, &[&vec!["a", "b", "none"]]).await.unwrap();
    for expected in ["a", "b"] {
        let row = client.query_one("FETCH FORWARD 1 FROM c", &[]).await.unwrap();
        assert_eq!((row.get::<_, &str>("device"), row.get::<_, i64>("n")), (expected, 1));
    }
    assert!(client.query("FETCH ALL FROM c", &[]).await.unwrap().is_empty());
    let fetch = client.prepare("FETCH ALL FROM c").await.unwrap();
    client.batch_execute("CLOSE c; DECLARE c CURSOR FOR SELECT 1.5").await.unwrap();
    assert_eq!(error_of(&client.query(&fetch, &[]).await.unwrap_err()).0, "0A000", "its columns were others");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_cannot_be_is_refused_when_it_is_declared() {
    let server = Server::filled().await;
    let client = server.connect().await;
    for (sql, state, at) in [
        ("DECLARE c CURSOR FOR SELECT 1; DECLARE c CURSOR FOR SELECT 2", "42P03", None),
        ("DECLARE c CURSOR FOR SELECT nothing FROM per_device", "42703", Some("nothing")),
        ("SELECT 1; DECLARE c CURSOR FOR SELECT nothing FROM per_device", "42703", Some("nothing")),
        ("DECLARE c CURSOR FOR SELECT n FROM per_device WHERE device = $1", "42P02", None),
        ("DECLARE c CURSOR FOR SELECT n FROM per_device FOR UPDATE", "25006", None),
    ] {
        client.batch_execute("BEGIN").await.unwrap();
        let error = client.simple_query(sql).await.expect_err(sql);
        let (found, message, position) = error_of(&error);
        assert_eq!((found.as_str(), position), (state, at.map(|word| sql.find(word).unwrap() as u32 + 1)), "{sql}: {message}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_statements_are_answered_in_turn() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let rows =
        texts(&client, "SELECT 1 AS a; SET application_name = ';'; SELECT n FROM per_device WHERE device = 'a'; SHOW application_name;")
            .await;
    assert_eq!(rows.concat(), [Some("1".to_owned()), Some("1".to_owned()), Some(";".to_owned())]);
    assert_eq!(client.simple_query("").await.unwrap().len(), 1);
    assert_eq!(client.simple_query(";; -- nothing").await.unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_cancelled_by_its_key() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let token = client.cancel_token();
    let cancelled = tokio::spawn(async move {
        // Again and again: one that comes before the query is for nothing.
        loop {
            token.cancel_query(NoTls).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    for _ in 0..2 {
        let ended = tokio::time::timeout(SOON, client.simple_query(ENDLESS)).await.expect("timed out: it is not cancelled");
        let (state, message, _) = error_of(&ended.unwrap_err());
        assert_eq!((state.as_str(), message.as_str()), ("57014", "canceling statement due to user request"));
        let ended = tokio::time::timeout(SOON, client.query(ENDLESS, &[])).await.expect("timed out: it is not cancelled");
        assert_eq!(error_of(&ended.unwrap_err()).0, "57014");
    }
    cancelled.abort();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_ends_when_its_time_is_over() {
    let server = Server::filled().await;
    let client = server.connect().await;
    client.batch_execute("SET statement_timeout = '50ms'").await.unwrap();
    let (state, message, _) = error_of(&client.simple_query(ENDLESS).await.unwrap_err());
    assert!(state == "57014" && message.contains("statement_timeout"), "{message}");
    client.batch_execute("RESET statement_timeout").await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM events").await, "3");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_sends_between_two_users_of_a_connection_is_answered() {
    let server = Server::filled().await;
    let client = server.connect().await;
    client.batch_execute("SET statement_timeout = 1000; SET TimeZone = 'Europe/Berlin'; SET extra_float_digits = 3").await.unwrap();
    assert_eq!(one(&client, "SELECT ts FROM events WHERE device = 'a'").await, "2026-03-01 11:01:00+01");
    client.batch_execute("DISCARD ALL").await.unwrap();
    assert_eq!(one(&client, "SHOW TimeZone").await, "UTC");
    client.batch_execute("SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL").await.unwrap();
    client
        .batch_execute("BEGIN READ ONLY; SAVEPOINT a; RELEASE SAVEPOINT a; ROLLBACK; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    assert_eq!(one(&client, "SHOW transaction_isolation").await, "repeatable read");
    assert!(texts(&client, "SHOW ALL").await.len() > 20);
    server.stop().await;
}

fn message(kind: &[u8], body: &[u8]) -> Vec<u8> {
    [kind, &((body.len() + 4) as i32).to_be_bytes(), body].concat()
}

fn startup() -> Vec<u8> {
    message(b"", b"\0\x03\0\0user\0raw\0\0")
}

/// What the server says to these bytes until it closes the connection, or says that it is ready.
fn said(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(bytes).unwrap();
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while let Ok(read) = socket.read(&mut part) {
        said.extend_from_slice(&part[..read]);
        if read == 0 || said.ends_with(b"Z\0\0\0\x05I") {
            break;
        }
    }
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_protocol_is_refused_and_hurts_nobody() {
    let server = Server::filled().await;
    let client = server.connect().await;
    let contains = |said: &[u8], text: &str| said.windows(text.len()).any(|part| part == text.as_bytes());
    for (bytes, expected) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "08P01"),
        (i32::MAX.to_be_bytes().to_vec(), "08P01"),
        ([0, 0, 0, 4].to_vec(), "08P01"),
        (message(b"", b"\0\x02\0\0"), "08P01"),
        (message(b"", b"\0\x03\0\0database\0x\0\0"), "28000"),
        ([startup(), b"Q\x7f\xff\xff\xff".to_vec()].concat(), "08P01"),
        ([startup(), message(b"Q", b"SELECT 1")].concat(), "08P01"),
        ([startup(), message(b"?", b"")].concat(), "08P01"),
        ([startup(), message(b"B", b"\0\0\0\x01")].concat(), "08P01"),
        ([startup(), message(b"p", b"secret\0"), message(b"S", b"")].concat(), "08P01"),
        ([startup(), message(b"E", b"none\0\0\0\0\0"), message(b"S", b"")].concat(), "34000"),
        ([startup(), message(b"Q", b"SELECT '\xff'\0")].concat(), "08P01"),
    ] {
        let said = tokio::task::block_in_place(|| said_all(&server, &bytes));
        assert!(contains(&said, expected), "{}: {}", String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&said));
        assert_eq!(one(&client, "SELECT n FROM per_device WHERE device = 'a'").await, "1");
    }
    server.stop().await;
}

/// The same, with what follows the first time that it is ready.
fn said_all(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(bytes).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    said
}

/// It keeps the files that its query reads, as a transaction does.
#[tokio::test(flavor = "multi_thread")]
async fn a_portal_with_rows_left_ends_with_its_connection_without_a_transaction_too() {
    let server = Server::filled().await;
    let bytes = [
        message(b"", b"\0\x03\0\0user\0raw\0options\0-c idle_in_transaction_session_timeout=50ms\0\0"),
        message(b"P", b"\0SELECT id FROM events\0\0\0"),
        message(b"B", b"\0\0\0\0\0\0\0\0"),
        message(b"E", b"\0\0\0\0\x01"),
        message(b"H", b""),
    ];
    let said = tokio::task::block_in_place(|| {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(SOON)).unwrap();
        socket.write_all(&bytes.concat()).unwrap();
        let mut said = Vec::new();
        socket.read_to_end(&mut said).expect("timed out: the portal is kept");
        String::from_utf8_lossy(&said).into_owned()
    });
    assert!(said.contains("s\0\0\0\x04"), "the portal was not suspended: {said}");
    assert!(said.contains("25P03"), "{said}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_wants_encryption_is_answered_that_there_is_none() {
    let server = Server::start().await;
    let ssl = message(b"", &80_877_103i32.to_be_bytes());
    let gss = message(b"", &80_877_104i32.to_be_bytes());
    let said = tokio::task::block_in_place(|| said(&server, &[gss, ssl, startup()].concat()));
    assert!(said.starts_with(b"NNR"), "{said:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_most_clients_others_are_refused_until_one_leaves() {
    let server = Server::start().await;
    tokio::task::block_in_place(|| {
        let mut clients = Vec::new();
        for _ in 0..500 {
            let mut socket = TcpStream::connect(server.address).unwrap();
            socket.write_all(&startup()).unwrap();
            socket.read_exact(&mut [0; 9]).unwrap();
            clients.push(socket);
        }
        let refused = said(&server, &startup());
        assert!(String::from_utf8_lossy(&refused).contains("53300"), "{refused:?}");
        drop(clients);
        let began = Instant::now();
        while !said(&server, &startup()).ends_with(b"Z\0\0\0\x05I") {
            assert!(began.elapsed() < SOON, "timed out: no place becomes free");
        }
    });
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_idle_clients_go() {
    let server = Server::start().await;
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    let ended = tokio::spawn(connection);
    client.batch_execute("SELECT 1").await.unwrap();
    server.stop().await;
    let error = ended.await.unwrap().unwrap_err();
    assert_eq!(error_of(&error).0, "57P01");
}
