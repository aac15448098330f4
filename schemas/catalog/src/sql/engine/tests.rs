use proptest::prelude::*;
use sqlx::postgres::PgSslMode;
use sqlx::sqlite::SqliteConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use types::ErrorKind;

use super::*;

fn path_of(url: &str) -> Option<String> {
    match location_of(url) {
        Ok(Location::File(path)) => Some(path.display().to_string()),
        _ => None,
    }
}

#[test]
fn a_sqlite_url_names_a_file() {
    assert_eq!(path_of("sqlite:///var/lib/catalog.db").as_deref(), Some("/var/lib/catalog.db"));
    assert_eq!(path_of("sqlite:///with%20a/blank b/catalog.db").as_deref(), Some("/with a/blank b/catalog.db"));
    assert_eq!(path_of("sqlite://folder/catalog.db").as_deref(), Some("folder/catalog.db"));
    assert!(matches!(location_of("sqlite::memory:"), Ok(Location::Memory)));
}

#[test]
fn a_wrong_url_is_the_callers_mistake() {
    for url in
        ["", "sqlite:", "sqlite://", "sqlite:///", "sqlite:///a.db?mode=ro", "mysql://h/db", "/var/catalog.db", "postgres://h:port/db"]
    {
        let error = location_of(url).err().unwrap_or_else(|| panic!("{url} was taken"));
        assert_eq!(error.kind(), ErrorKind::Input, "{url}: {error}");
    }
}

proptest! {
    #[test]
    fn a_password_is_never_shown(password in "[a-zA-Z0-9%$#?/@:!]{6,12}", port in "(5432|99999|x)") {
        for url in [
            format!("postgres://user:S3{password}@host:{port}/db"),
            format!("postgres://user@host:{port}/db?password=S3{password}"),
            format!("postgresql:user:S3{password}@host"),
            format!("mysql://user:S3{password}@host:{port}/db"),
        ] {
            let secret = format!("S3{}", &password[..4]);
            let shown = shown(&url);
            prop_assert!(!shown.contains(&secret), "{}", shown);
            if let Err(error) = location_of(&url) {
                prop_assert!(!format!("{error:?}").contains(&secret), "{}", error);
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_soon_said() {
    let started = std::time::Instant::now();
    let error = Engine::open("postgres://user:S3cret@127.0.0.1:1/db").await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = format!("{error:?}");
    assert!(text.contains("127.0.0.1:1/db") && !text.contains("S3cret"), "{text}");
    assert!(started.elapsed() < GREETING + Duration::from_secs(10));
}

/// The catalog of a process whose pool is open, on a server at this port.
fn on_server(port: u16) -> Engine {
    let options = PgConnectOptions::new().host("127.0.0.1").port(port).username("user").ssl_mode(PgSslMode::Disable);
    let pool = connections::pool::<Postgres>(2).acquire_timeout(Duration::from_millis(100));
    Engine::Postgres(pool.connect_lazy_with(options))
}

#[tokio::test]
async fn a_pool_that_waited_in_vain_says_that_the_server_refuses_connections() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let engine = on_server(closed.port());
    for error in [engine.read().await.err().unwrap(), engine.write().await.err().unwrap(), engine.number("SELECT 1").await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().to_lowercase().contains("refused (os error"), "{error}");
    }
}

#[tokio::test]
async fn a_pool_that_waited_in_vain_says_that_the_server_has_no_connection_left() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = on_server(listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let fields = b"SFATAL\0VFATAL\0C53300\0Msorry, too many clients already\0\0";
        while let Ok((mut client, _)) = listener.accept().await {
            let mut startup = [0; 1024];
            let _ = client.read(&mut startup).await;
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            let _ = client.write_all(&[&b"E"[..], &length, fields].concat()).await;
        }
    });
    let error = engine.read().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("sorry, too many clients already"), "{error}");
    server.abort();
}

#[test]
fn only_what_a_retry_can_heal_is_unavailable() {
    for code in ["08006", "40001", "40P01", "53300", "57P01", "55P03", "25006", "28P01", "3D000"] {
        assert_eq!(super::super::session::kind_of_sqlstate(code), ErrorKind::Unavailable, "{code}");
    }
    for code in ["42601", "42P01", "23514", "", "2"] {
        assert_eq!(super::super::session::kind_of_sqlstate(code), ErrorKind::Internal, "{code}");
    }
    // 517 is BUSY_SNAPSHOT.
    for code in [5, 6, 517, 13] {
        assert_eq!(super::super::session::kind_of_sqlite(code), ErrorKind::Unavailable, "{code}");
    }
    assert_eq!(super::super::session::kind_of_sqlite(26), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_file_that_another_connection_has_locked_is_known_by_the_code() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.path().join("catalog.db")).create_if_missing(true);
    let options = options.busy_timeout(Duration::ZERO);
    let mut holder = SqliteConnection::connect_with(&options).await.unwrap();
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut holder).await.unwrap();
    let refused = sqlx::query("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap_err();
    assert!(is_sqlite_busy(&refused), "{refused}");
    let unknown = sqlx::query("SELECT 1 FROM locked").execute(&mut holder).await.unwrap_err();
    assert!(!is_sqlite_busy(&unknown) && unknown.to_string().contains("locked"), "{unknown}");
}
