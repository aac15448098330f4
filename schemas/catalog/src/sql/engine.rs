//! The two database engines of a catalog, and how to connect to one by its URL.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use sqlx::postgres::{PgConnectOptions, PgConnection, Postgres};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, PgPool, SqlitePool};
use url::Url;

use super::session::{Session, failed, failed_to_open};
use types::connections::{self, is_sqlite_busy};
use types::durable::{make_folder, sync_folder};
use types::redact::redacted_url;
use types::{Error, Result};

/// How long a statement waits for another writer, and a caller for a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a PostgreSQL server may take to accept a connection.
const GREETING: Duration = Duration::from_secs(5);
/// The same, for a connection that only finds out why the pool had none.
const GREETING_AGAIN: Duration = Duration::from_secs(2);
const READERS: u32 = 4;

#[derive(Clone)]
pub(super) enum Engine {
    /// Writes have a dedicated connection: SQLite has one writer, and readers need not wait for it.
    Sqlite {
        read: SqlitePool,
        write: SqlitePool,
    },
    Postgres(PgPool),
}

impl Engine {
    pub(super) async fn open(url: &str) -> Result<Self> {
        match location_of(url)? {
            Location::Memory => open_memory().await,
            Location::File(path) => open_file(&path).await,
            Location::Server(options) => open_server(*options).await,
        }
        .map_err(|error| error.with("catalog", shown(url)))
    }

    /// Begins a transaction that sees everything as of one point in time.
    pub(super) async fn read(&self) -> Result<Session> {
        let begun = match self {
            Engine::Sqlite { read, .. } => read.begin_with("BEGIN DEFERRED").await.map(Session::Sqlite),
            Engine::Postgres(pool) => pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map(Session::Postgres),
        };
        self.explained(begun).await
    }

    /// Begins a transaction that writes. On PostgreSQL it is ordered by the row lock that `meta::next_revision` takes
    /// first.
    pub(super) async fn write(&self) -> Result<Session> {
        let begun = match self {
            Engine::Sqlite { write, .. } => write.begin_with("BEGIN IMMEDIATE").await.map(Session::Sqlite),
            Engine::Postgres(pool) => pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await.map(Session::Postgres),
        };
        self.explained(begun).await
    }

    /// Reads one number, without a transaction.
    pub(super) async fn number(&self, sql: &'static str) -> Result<i64> {
        let read = match self {
            Engine::Sqlite { read, .. } => sqlx::query_scalar(sql).fetch_one(read).await,
            Engine::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await,
        };
        self.explained(read).await
    }

    /// Says why a pool had no connection in time. A pool tries again while a server refuses connections, or has none
    /// left, and then reports only that it waited; a single connection reports the server's error.
    async fn explained<T>(&self, outcome: sqlx::Result<T>) -> Result<T> {
        match (self, outcome) {
            (Engine::Postgres(pool), Err(sqlx::Error::PoolTimedOut)) => Err(why_none_in_time(pool).await),
            (_, outcome) => outcome.map_err(failed),
        }
    }

    /// True if the database is reached over a network.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self, Engine::Postgres(_))
    }

    /// Closes all connections; SQLite then checkpoints its write-ahead log into the file.
    pub(super) async fn close(&self) {
        match self {
            Engine::Sqlite { read, write } => {
                read.close().await;
                write.close().await;
            }
            Engine::Postgres(pool) => pool.close().await,
        }
    }
}

enum Location {
    Memory,
    File(PathBuf),
    Server(Box<PgConnectOptions>),
}

/// Returns the URL without its password and parameters, which must not be printed.
pub(super) fn shown(url: &str) -> String {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    // Redact before parsing: in `u:12/word@host` a parser takes `12` for the port and shows the rest.
    let redacted = redacted_url(url);
    if scheme == "sqlite" {
        return redacted;
    }
    match Url::parse(&redacted) {
        Ok(mut parsed) if parsed.has_host() => {
            // Both fail only if there is no password to hide.
            let _ = parsed.set_password(None);
            parsed.set_query(None);
            parsed.set_fragment(None);
            parsed.to_string()
        }
        _ if matches!(scheme, "postgres" | "postgresql") => format!("{scheme}://.."),
        _ => "..".to_owned(),
    }
}

fn location_of(url: &str) -> Result<Location> {
    let wrong = |why: &str| Error::input(format!("the catalog's URL is wrong: {why}")).with("url", shown(url));
    if url == "sqlite::memory:" {
        return Ok(Location::Memory);
    }
    if let Some(rest) = url.strip_prefix("sqlite:") {
        return file_of(rest).map(Location::File).ok_or_else(|| wrong("expected sqlite:///path/catalog.db or sqlite::memory:"));
    }
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        // The parser's own message could repeat the password.
        let options = PgConnectOptions::from_str(url).map_err(|_| wrong("expected postgres://user:password@host:port/database"))?;
        return Ok(Location::Server(Box::new(options)));
    }
    Err(wrong("expected sqlite:///path/catalog.db or postgres://user:password@host:port/database"))
}

/// `///path/catalog.db` is absolute and may be percent-encoded; `//folder/catalog.db` is relative to the working
/// directory.
fn file_of(rest: &str) -> Option<PathBuf> {
    if rest.contains(['?', '#']) {
        return None;
    }
    let path = rest.strip_prefix("//").unwrap_or(rest);
    let path = match path.starts_with('/') {
        true => Url::parse(&format!("file://{path}")).ok()?.to_file_path().ok()?,
        false => PathBuf::from(path),
    };
    path.file_name().is_some().then_some(path)
}

/// How many rows the thread of a reading connection is ahead of who reads them. With few, the two wait for each other
/// at each row of a long answer.
const BUFFERED_ROWS: usize = 1_024;

fn sqlite_settings(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // NORMAL may lose the last commits in a power loss.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(PATIENCE)
        // Its warnings of slow statements have their whole texts: `Session` reports them in short.
        .disable_statement_logging()
}

async fn open_memory() -> Result<Engine> {
    let options = SqliteConnectOptions::from_str("sqlite::memory:").map_err(failed)?;
    let options = sqlite_settings(options).journal_mode(SqliteJournalMode::Memory);
    // The data lives as long as its one connection, so the connection must never be closed, whatever its age or state.
    let pool = SqlitePoolOptions::new().min_connections(1).max_connections(1).idle_timeout(None).max_lifetime(None);
    let pool = pool.test_before_acquire(false).connect_with(options).await.map_err(failed)?;
    Ok(Engine::Sqlite { read: pool.clone(), write: pool })
}

async fn open_file(path: &Path) -> Result<Engine> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let in_folder = |error: std::io::Error| Error::from(error).with("folder", folder.display());
    make_folder(folder).map_err(in_folder)?;
    let options = sqlite_settings(SqliteConnectOptions::new().filename(path));
    // Switching to WAL is the one statement that does not wait for other processes that open the file at the same
    // moment.
    let write = (|| writer(options.clone()))
        .retry(ExponentialBuilder::default().with_min_delay(Duration::from_millis(20)).with_total_delay(Some(PATIENCE)).with_jitter())
        .when(is_sqlite_busy)
        .await
        .map_err(failed)?;
    let read = connections::file_pool(READERS).connect_lazy_with(options.row_buffer_size(BUFFERED_ROWS));
    sync_folder(folder).map_err(in_folder)?;
    Ok(Engine::Sqlite { read, write })
}

async fn writer(options: SqliteConnectOptions) -> sqlx::Result<SqlitePool> {
    connections::file_pool(1).connect_with(options).await
}

async fn open_server(options: PgConnectOptions) -> Result<Engine> {
    let options = options.disable_statement_logging().application_name("basestream").options([
        ("client_min_messages", "warning"),
        // A writer that hangs halfway must not block all others forever.
        ("lock_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "30s"),
        // Before its tables are analyzed, the server takes the read of the state for a long one. To compile it costs up
        // to a second of processor time at each read; to run it, milliseconds.
        ("jit", "off"),
    ]);
    // A pool retries a refused connection until its timeout; a single connection reports the error at once.
    let greeting = tokio::time::timeout(GREETING, PgConnection::connect_with(&options)).await;
    let unreachable = || Error::unavailable("the catalog's PostgreSQL server did not answer");
    match greeting {
        Err(_) => return Err(unreachable().with("waited", format!("{} s", GREETING.as_secs()))),
        Ok(Err(error @ (sqlx::Error::Io(_) | sqlx::Error::Tls(_)))) => return Err(unreachable().caused_by(error)),
        Ok(Err(error)) => return Err(failed_to_open(error)),
        Ok(Ok(connection)) => connection.close().await.map_err(failed)?,
    }
    let pool = connections::pool::<Postgres>(READERS * 2).acquire_timeout(PATIENCE);
    Ok(Engine::Postgres(pool.connect_lazy_with(options)))
}

async fn why_none_in_time(pool: &PgPool) -> Error {
    let options = pool.connect_options();
    match tokio::time::timeout(GREETING_AGAIN, PgConnection::connect_with(&options)).await {
        Err(_) => Error::unavailable("the catalog's PostgreSQL server does not accept connections")
            .with("waited", format!("{} s", (PATIENCE + GREETING_AGAIN).as_secs())),
        Ok(Err(error)) => failed(error),
        Ok(Ok(connection)) => {
            // It served its purpose. An error while it is closed changes nothing.
            let _ = connection.close().await;
            Error::unavailable("all of this process's connections to the catalog's database are in use")
                .with("connections", pool.options().get_max_connections())
                .with("waited", format!("{} s", PATIENCE.as_secs()))
        }
    }
}

#[cfg(test)]
mod tests;
