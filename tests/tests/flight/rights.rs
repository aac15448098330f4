//! Who may ask and what it may read, where a principal is required.

use std::sync::Arc;

use access::{Authenticator, Keyring, NewToken, new_token};
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables};
use catalog::{Role, TokenRecord};
use futures::{StreamExt, TryStreamExt};
use serving::http::Protection;
use tonic::Code;
use types::vector::Vector;

use crate::server::{Client, SOON, Server, batches, fetch, one, refused, rows, status_of};

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

async fn with_token(server: &Server, token: &str) -> Client {
    let mut client = server.connect().await;
    client.set_token(token.to_owned());
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_reads_what_it_was_granted_and_nothing_else() {
    let (all, limited, writer) =
        (token("all", Role::Reader, &[]), token("some", Role::Reader, &["per_device"]), token("w", Role::Writer, &[]));
    let mut server = Server::protected(&protection(vec![all.1, limited.1, writer.1])).await;
    server.append(&[r#""device":"a""#, r#""device":"b""#]).await;

    let mut nobody = server.connect().await;
    assert_eq!(refused(&mut nobody, "SELECT 1").await.0, Code::Unauthenticated);
    // Before that is known, nothing but headers is read: this message would be too large.
    let long = format!("SELECT '{}'", "x".repeat(5 << 20));
    assert_eq!(status_of(nobody.execute(long, None).await.unwrap_err()).code(), Code::Unauthenticated);
    let mut wrong = with_token(&server, "bst_wrong").await;
    assert_eq!(refused(&mut wrong, "SELECT 1").await.0, Code::Unauthenticated);
    let error = wrong.get_tables(CommandGetTables::default()).await.unwrap_err();
    assert_eq!(status_of(error).code(), Code::Unauthenticated);

    let mut client = with_token(&server, &all.0).await;
    assert_eq!(one(&mut client, "SELECT sum(n) FROM per_device").await, "2");
    assert_eq!(one(&mut client, "SELECT count(*) FROM events").await, "2");
    let of_all = client.execute("SELECT count(*) FROM events".to_owned(), None).await.unwrap();

    let mut client = with_token(&server, &limited.0).await;
    assert_eq!(one(&mut client, "SELECT n FROM per_device WHERE device = 'a'").await, "1");
    for sql in [
        "SELECT * FROM events",
        "SELECT * FROM per_unit",
        "SELECT * FROM per_unit__batch",
        "SELECT d.n FROM per_device d JOIN per_unit u ON u.n = d.n",
        "WITH hidden AS (SELECT * FROM events) SELECT count(*) FROM hidden",
        "SELECT (SELECT count(*) FROM events) FROM per_device",
        "SELECT * FROM system.views",
    ] {
        assert_eq!(refused(&mut client, sql).await.0, Code::PermissionDenied, "{sql}");
        assert!(client.prepare(sql.to_owned(), None).await.is_err(), "{sql}");
    }
    // A ticket opens nothing by itself.
    let error = fetch(&mut client, of_all.clone()).await.err().unwrap();
    assert!(error.to_string().contains("may not read"), "{error}");
    assert!(fetch(&mut nobody, of_all).await.is_err());

    let shown = client.get_tables(CommandGetTables::default()).await.unwrap();
    let shown: Vec<_> = fetch(&mut client, shown).await.unwrap().try_collect().await.unwrap();
    let names: Vec<String> = rows(&shown).into_iter().map(|row| row[2].clone()).collect();
    assert_eq!(names, ["per_device", "per_device__batch", "per_device__speed"]);
    let schemas = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    let schemas: Vec<_> = fetch(&mut client, schemas).await.unwrap().try_collect().await.unwrap();
    assert_eq!(rows(&schemas), [["basestream", "public"]]);
    let keys = CommandGetPrimaryKeys { catalog: None, db_schema: None, table: "per_unit".into() };
    let keys = client.get_primary_keys(keys).await.unwrap();
    assert_eq!(
        fetch(&mut client, keys).await.unwrap().try_collect::<Vec<_>>().await.unwrap().iter().map(|b| b.num_rows()).sum::<usize>(),
        0
    );

    let mut client = with_token(&server, &writer.0).await;
    assert_eq!(refused(&mut client, "SELECT * FROM per_device").await.0, Code::PermissionDenied);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_has_only_streams_that_its_principal_may_know_of() {
    let (all, other) = (token("all", Role::Reader, &[]), token("other", Role::Reader, &["other"]));
    let mut server = Server::protected(&protection(vec![all.1, other.1])).await;
    server.append(&[r#""device":"a""#]).await;
    let whole = server.node.read_view().unwrap().vector;
    assert!(!whole.is_empty());
    for (token, expected) in [(all.0, whole), (other.0, Vector::new())] {
        let mut client = with_token(&server, &token).await;
        let info = client.execute("SELECT 1".to_owned(), None).await.unwrap();
        let mut answer = fetch(&mut client, info).await.unwrap();
        while answer.try_next().await.unwrap().is_some() {}
        let meta = answer.schema().unwrap().metadata()[flight_sql::META].clone();
        let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
        assert_eq!(meta["cut"], expected.token());
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_and_its_token_log_in_and_get_a_bearer() {
    let (secret, record) = token("ann", Role::Reader, &[]);
    let server = Server::protected(&protection(vec![record])).await;
    for (user, password) in [("ann", "bst_wrong"), ("bob", secret.as_str()), ("ann", ""), ("", &secret)] {
        let mut client = server.connect().await;
        assert!(client.handshake(user, password).await.is_err(), "{user}");
        assert_eq!(client.token(), None);
    }
    let mut client = server.connect().await;
    client.handshake("ann", &secret).await.unwrap();
    assert_eq!(client.token(), Some(&secret));
    assert_eq!(one(&mut client, "SELECT count(*) FROM per_device").await, "0");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_checked_where_none_is_required() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    assert_eq!(one(&mut client, "SELECT 1").await, "1");
    client.set_token("bst_wrong".to_owned());
    assert_eq!(refused(&mut client, "SELECT 1").await.0, Code::Unauthenticated);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_what_it_began() {
    let (secret, record) = token("gone", Role::Reader, &[]);
    let protection = protection(vec![record]);
    let server = Server::protected(&protection).await;
    let mut client = with_token(&server, &secret).await;
    let info = client.execute("SELECT value FROM range(0, 2000000000)".to_owned(), None).await.unwrap();
    let mut answer = fetch(&mut client, info).await.unwrap();
    answer.next().await.unwrap().unwrap();
    // Another token of the same name does not let the first one go on.
    protection.authenticator.keyring.set(vec![token("gone", Role::Reader, &[]).1]);
    let ended = async {
        loop {
            if let Err(error) = answer.next().await.unwrap() {
                break status_of(error);
            }
        }
    };
    let error = tokio::time::timeout(SOON, ended).await.expect("timed out: the rows go on");
    assert_eq!((error.code(), error.message()), (Code::Unauthenticated, "the token was revoked, or has expired"));
    assert!(batches(&mut client, "SELECT 1").await.is_err());
    server.stop().await;
}
