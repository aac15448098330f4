//! Who may connect and what it may read, where a principal is required.

use std::sync::Arc;

use access::{Authenticator, Keyring, NewToken, new_token};
use catalog::{Role, TokenRecord};
use serving::http::Protection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Error, NoTls};

use crate::server::{Server, error_of, one, texts};

pub fn token(name: &str, role: Role, views: &[&str]) -> (String, TokenRecord) {
    let views = views.iter().map(ToString::to_string).collect();
    new_token(NewToken { name: name.into(), role, views, streams: Vec::new(), created_by: "tests".into(), expires_at: None }, 0).unwrap()
}

pub fn protection(records: Vec<TokenRecord>) -> Protection {
    let keyring = Keyring::new().unwrap();
    keyring.set(records);
    Protection {
        authenticator: Authenticator { is_required: true, keyring, issuer: None, clock: Arc::new(|| 1) },
        public: Arc::default(),
        tls: None,
        hosts: Arc::default(),
    }
}

pub async fn log_in(server: &Server, user: &str, password: &str) -> Result<Client, Error> {
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address.port()).user(user).password(password).ssl_mode(SslMode::Disable);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn state(client: &Client, sql: &str) -> String {
    error_of(&client.simple_query(sql).await.unwrap_err()).0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reads_what_it_was_granted_and_nothing_else() {
    let (all, limited, writer) =
        (token("all", Role::Reader, &[]), token("some", Role::Reader, &["per_device"]), token("w", Role::Writer, &[]));
    let protection = protection(vec![all.1, limited.1, writer.1]);
    let mut server = Server::protected(&protection).await;
    server.append(&[r#""device":"a""#, r#""device":"b""#]).await;

    for (user, password) in [("all", limited.0.as_str()), ("nobody", &all.0), ("all", "")] {
        let refused = log_in(&server, user, password).await.map(|_| ()).unwrap_err();
        assert_eq!(error_of(&refused).0, "28P01", "{user}");
    }
    let client = log_in(&server, "all", &all.0).await.unwrap();
    assert_eq!(one(&client, "SELECT current_user").await, "all");
    assert_eq!(one(&client, "SELECT sum(n) FROM per_device").await, "2");
    assert_eq!(one(&client, "SELECT count(*) FROM events").await, "2");

    let client = log_in(&server, "some", &limited.0).await.unwrap();
    assert_eq!(one(&client, "SELECT n FROM per_device WHERE device = 'a'").await, "1");
    for sql in [
        "SELECT * FROM events",
        "SELECT * FROM per_unit",
        "SELECT * FROM per_unit__batch",
        "SELECT d.n FROM per_device d JOIN per_unit u ON u.n = d.n",
        "WITH hidden AS (SELECT * FROM events) SELECT count(*) FROM hidden",
        "SELECT (SELECT count(*) FROM events) FROM per_device",
        "COPY events TO STDOUT",
        "SELECT * FROM system.views",
        "SELECT * FROM nothing",
        "COPY nothing TO STDOUT",
    ] {
        assert_eq!(state(&client, sql).await, "42501", "{sql}");
    }
    // Which of the two answers says nothing of what is there either.
    for table in ["events", "nothing"] {
        assert_eq!(state(&client, &format!("SELECT pg_id FROM {table}")).await, "42P01", "{table}");
    }
    assert_eq!(
        client.prepare("SELECT * FROM events WHERE id = $1").await.map(|_| ()).map_err(|error| error_of(&error).0),
        Err("42501".into())
    );
    let shown = texts(&client, "SELECT relname FROM pg_catalog.pg_class WHERE relname IN ('per_device', 'per_unit', 'events')").await;
    assert_eq!(shown.concat(), [Some("per_device".to_owned())]);

    let client = log_in(&server, "w", &writer.0).await.unwrap();
    assert_eq!(state(&client, "SELECT * FROM per_device").await, "42501");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_what_it_began() {
    let (secret, record) = token("gone", Role::Reader, &[]);
    let protection = protection(vec![record]);
    let server = Server::protected(&protection).await;
    let client = log_in(&server, "gone", &secret).await.unwrap();
    assert_eq!(one(&client, "SELECT count(*) FROM per_device").await, "0");
    // Another token of the same name does not let the first one go on.
    protection.authenticator.keyring.set(vec![token("gone", Role::Reader, &[]).1]);
    assert_eq!(state(&client, "SELECT count(*) FROM per_device").await, "28000");
    assert!(client.simple_query("SELECT 1").await.unwrap_err().is_closed());
    server.stop().await;
}

/// What is a literal to one dialect is a chain of a hundred thousand terms to another, which would overflow the stack.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_too_deep_or_too_long_is_refused_in_every_dialect() {
    let server = Server::start().await;
    let client = server.connect().await;
    let chain = format!("1{}", "+1".repeat(100_000));
    for sql in [format!("COPY (SELECT {chain}) TO STDOUT"), format!("SELECT version(), q'[', {chain}, ']'"), format!("SELECT {chain}")] {
        let (_, message, _) = error_of(&client.simple_query(&sql).await.unwrap_err());
        assert!(message.contains("found more than"), "{message}");
    }
    let (state, message, _) = error_of(&client.simple_query(&format!("SELECT '{}'", "x".repeat(2 << 20))).await.unwrap_err());
    assert!(state == "54000" && message.contains("expected at most 2097152"), "{state} {message}");
    assert_eq!(one(&client, "SELECT 1").await, "1");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_login_a_client_takes_little() {
    let (_, record) = token("all", Role::Reader, &[]);
    let server = Server::protected(&protection(vec![record])).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let startup = b"\0\0\0\x13\0\x03\0\0user\0ann\0\0\0";
    socket.write_all(startup).await.unwrap();
    let mut asked = [0; 9];
    socket.read_exact(&mut asked).await.unwrap();
    assert_eq!((asked[0], asked[8]), (b'R', 10), "it asks for SASL");
    // A password of 16 MiB is refused by its length, before any of it came.
    socket.write_all(b"p\x01\0\0\0").await.unwrap();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("found a message of 16777216 bytes"), "{}", String::from_utf8_lossy(&rest));
    server.stop().await;
}
