//! The log's SQLite file: its tables, its connections and its topics.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous};
use sqlx::{Executor, Sqlite, Transaction};

use super::batch;
use crate::{LogSize, NewRecord};
use types::clocks::LatestTime;
use types::connections::{self, is_sqlite_busy};
use types::durable::{make_folder, sync_folder};
use types::outage::Attempts;
use types::tiles::Micros;
use types::{Error, ErrorKind, Result};

/// The format of the file, kept in SQLite's `user_version`.
const FORMAT: i64 = 1;
const FILE_NAME: &str = "log.db";
/// SQLite's write-ahead log.
const WAL_NAME: &str = "log.db-wal";
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a writer tries to begin while another one writes. SQLite itself would wait longer from try to try, up to a
/// tenth of a second, while others that came later begin.
const BUSY_RETRY: &str = "PRAGMA busy_timeout = 1";
const READERS: u32 = 4;
/// A commit after which the write-ahead log has this many pages (64 MiB) copies them to the file itself. The task in
/// `wal` does it before that.
const WAL_PAGES: &str = "8000";
/// How long the copying waits for what appends or reads. Other appends wait for it meanwhile.
const COPIER_TIMEOUT: Duration = Duration::from_millis(10);
/// SQLite accepts no BLOB over 1,000,000,000 bytes.
const MAX_RECORD_BYTES: usize = 256 << 20;

const TABLES: &str = "
    CREATE TABLE topic (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, identity TEXT NOT NULL, partitions INTEGER NOT NULL);
    CREATE TABLE topic_partition (topic_id INTEGER NOT NULL, number INTEGER NOT NULL, begin_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL, last_timestamp INTEGER NOT NULL, PRIMARY KEY (topic_id, number)) WITHOUT ROWID;
    CREATE TABLE batch (topic_id INTEGER NOT NULL, number INTEGER NOT NULL, base_offset INTEGER NOT NULL, records INTEGER NOT NULL,
        timestamp INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (topic_id, number, base_offset));
    CREATE TABLE lease (group_name TEXT NOT NULL, topic TEXT NOT NULL, number INTEGER NOT NULL, owner TEXT, epoch INTEGER NOT NULL,
        expires_at INTEGER NOT NULL, PRIMARY KEY (group_name, topic, number)) WITHOUT ROWID;
    CREATE TABLE member (group_name TEXT NOT NULL, topic TEXT NOT NULL, worker TEXT NOT NULL, instance TEXT NOT NULL,
        expires_at INTEGER NOT NULL, PRIMARY KEY (group_name, topic, worker)) WITHOUT ROWID;
    PRAGMA user_version = 1;";

/// How far the output of each sink is, by the partition that it reads, and who may append to it. Files of earlier
/// releases have no such tables.
const OUTPUT_TABLES: &str = "
    CREATE TABLE IF NOT EXISTS output (group_name TEXT NOT NULL, sink TEXT NOT NULL, identity TEXT NOT NULL, topic TEXT NOT NULL,
        number INTEGER NOT NULL, next_offset INTEGER NOT NULL, PRIMARY KEY (group_name, sink, identity, topic, number)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS output_owner (group_name TEXT NOT NULL, sink TEXT NOT NULL, identity TEXT NOT NULL, topic TEXT NOT NULL,
        number INTEGER NOT NULL, owner TEXT NOT NULL, PRIMARY KEY (group_name, sink, identity, topic, number)) WITHOUT ROWID;";

const SIZE: &str = "
    SELECT (SELECT coalesce(sum(end_offset - begin_offset), 0) FROM topic_partition), (page_count - freelist_count) * page_size
    FROM pragma_page_count, pragma_freelist_count, pragma_page_size";

/// How pages of the write-ahead log are copied to the file.
#[derive(Debug, Clone, Copy)]
pub(super) enum WalCopy {
    /// Those that are there when it begins.
    BesideAppends,
    /// All of them, while no append begins: the next one begins the write-ahead log anew.
    Last,
}

/// The write-ahead log's file as the system describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalState {
    length: Option<u64>,
    modified: Option<SystemTime>,
}

/// The open file: one writer connection, a few readers, and a connection that copies the write-ahead log.
#[derive(Debug)]
pub(super) struct Store {
    writer: SqlitePool,
    readers: SqlitePool,
    copier: SqlitePool,
    wal: PathBuf,
    pub(super) appends: Attempts,
    pub(super) renewals: Attempts,
    /// The latest timestamp of a record that was appended.
    pub(super) latest: LatestTime,
}

#[derive(Debug, Clone)]
pub(super) struct Topic {
    pub(super) id: i64,
    pub(super) identity: String,
    pub(super) partitions: i64,
}

impl Store {
    /// Opens `folder`'s log file, creating both if missing.
    pub(super) async fn open(folder: &Path) -> Result<Store> {
        make_folder(folder).map_err(|error| in_folder(error.into(), folder))?;
        let file = SqliteConnectOptions::new()
            .filename(folder.join(FILE_NAME))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("wal_autocheckpoint", WAL_PAGES)
            .optimize_on_close(false, None);
        // What a new file gets. Each connection that sets `auto_vacuum` begins a write with it, and the others must not
        // wait for one that appends.
        let new_file = file.clone().page_size(8192).auto_vacuum(SqliteAutoVacuum::Incremental);
        let writer = connect(&new_file).await.map_err(|error| in_folder(error, folder))?;
        let copier = connections::file_pool(1).connect_lazy_with(file.clone().busy_timeout(COPIER_TIMEOUT));
        let readers = connections::file_pool(READERS).connect_lazy_with(file.row_buffer_size(16));
        let (appends, renewals) = (Attempts::new("the log takes no records"), Attempts::new("the log's leases cannot be renewed"));
        let wal = folder.join(WAL_NAME);
        let store = Store { writer, readers, copier, wal, appends, renewals, latest: LatestTime::default() };
        store.make_tables().await.map_err(|error| in_folder(error, folder))?;
        sync_folder(folder).map_err(|error| in_folder(error.into(), folder))?;
        Ok(store)
    }

    async fn make_tables(&self) -> Result<()> {
        let mut write = self.write().await?;
        let (found,): (i64,) = sqlx::query_as("PRAGMA user_version").fetch_one(&mut *write).await.map_err(failed)?;
        match found {
            FORMAT => sqlx::raw_sql(OUTPUT_TABLES).execute(&mut *write).await.map_err(failed)?,
            0 => sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{TABLES} {OUTPUT_TABLES}"))).execute(&mut *write).await.map_err(failed)?,
            _ => return Err(Error::corrupt("the log file's format is unknown").with("found", found).with("expected", FORMAT)),
        };
        write.commit().await.map_err(failed)
    }

    /// Begins a transaction that holds the write lock from the start. Waits while another one holds it.
    pub(super) async fn write(&self) -> Result<Transaction<'static, Sqlite>> {
        let began = Instant::now();
        loop {
            match self.writer.begin_with("BEGIN IMMEDIATE").await {
                Err(error) if is_sqlite_busy(&error) && began.elapsed() < BUSY_TIMEOUT => {}
                begun => return begun.map_err(failed),
            }
        }
    }

    /// Copies pages of the write-ahead log to the file; returns whether it copied all that it was to copy.
    ///
    /// SQLite before 3.51.3 could damage the file where one copy follows another while records are appended.
    pub(super) async fn copy_wal(&self, copy: WalCopy) -> Result<bool> {
        let sql = match copy {
            WalCopy::BesideAppends => "PRAGMA wal_checkpoint(PASSIVE)",
            WalCopy::Last => "PRAGMA wal_checkpoint(RESTART)",
        };
        let (busy, pages, copied): (i64, i64, i64) = sqlx::query_as(sql).fetch_one(&self.copier).await.map_err(failed)?;
        Ok(busy == 0 && pages == copied)
    }

    /// What changes when a process writes to the log.
    pub(super) fn wal_state(&self) -> WalState {
        // Not by opening the file: closing it would release SQLite's locks.
        let file = std::fs::metadata(&self.wal).ok();
        WalState { length: file.as_ref().map(Metadata::len), modified: file.and_then(|file| file.modified().ok()) }
    }

    /// One connection.
    pub(super) fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    pub(super) fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// Returns the instances of all consumers that are members of a group.
    pub(super) async fn members(&self) -> Result<BTreeSet<String>> {
        let instances: Vec<(String,)> =
            sqlx::query_as("SELECT DISTINCT instance FROM member").fetch_all(&self.readers).await.map_err(failed)?;
        Ok(instances.into_iter().map(|(instance,)| instance).collect())
    }

    pub(super) async fn create_topic(&self, name: &str, partitions: u32, identity: &str, now: Micros) -> Result<u32> {
        if let Some(topic) = self.topic(name).await? {
            return Ok(topic.partitions as u32);
        }
        if name.is_empty() || partitions == 0 {
            return Err(Error::input("a topic needs a name and at least one partition").with("topic", name).with("partitions", partitions));
        }
        let mut write = self.write().await?;
        let made = sqlx::query("INSERT INTO topic (name, identity, partitions) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO NOTHING")
            .bind(name)
            .bind(identity)
            .bind(partitions)
            .execute(&mut *write)
            .await
            .map_err(failed)?;
        if made.rows_affected() == 1 {
            for number in 0..partitions {
                sqlx::query("INSERT INTO topic_partition VALUES (?1, ?2, 0, 0, ?3)")
                    .bind(made.last_insert_rowid())
                    .bind(number)
                    .bind(now)
                    .execute(&mut *write)
                    .await
                    .map_err(failed)?;
            }
        }
        write.commit().await.map_err(failed)?;
        Ok(self.expect_topic(name).await?.partitions as u32)
    }

    pub(super) async fn topic(&self, name: &str) -> Result<Option<Topic>> {
        let row: Option<(i64, String, i64)> = sqlx::query_as("SELECT id, identity, partitions FROM topic WHERE name = ?1")
            .bind(name)
            .fetch_optional(&self.readers)
            .await
            .map_err(failed)?;
        Ok(row.map(|(id, identity, partitions)| Topic { id, identity, partitions }))
    }

    pub(super) async fn expect_topic(&self, name: &str) -> Result<Topic> {
        self.topic(name).await?.ok_or_else(|| no_topic(name))
    }

    pub(super) async fn size(&self) -> Result<LogSize> {
        let (records, bytes): (i64, i64) = sqlx::query_as(SIZE).fetch_one(&self.readers).await.map_err(failed)?;
        Ok(LogSize { records: records as u64, bytes: bytes as u64 })
    }
}

/// Refuses a record that is too large for any batch.
pub(super) fn check_size(record: &NewRecord) -> Result<()> {
    match batch::size_of(record) {
        size if size > MAX_RECORD_BYTES => {
            Err(Error::new(ErrorKind::Limit, "a record is too large for the log").with("bytes", size).with("at most", MAX_RECORD_BYTES))
        }
        _ => Ok(()),
    }
}

/// Connects the writer's pool. Switching a new file to WAL does not wait for another process that does the same, so it
/// is retried.
async fn connect(file: &SqliteConnectOptions) -> Result<SqlitePool> {
    let mut attempt = 0;
    loop {
        let pool = connections::file_pool(1)
            .acquire_timeout(BUSY_TIMEOUT * 2)
            .after_connect(|connection, _| Box::pin(async move { connection.execute(BUSY_RETRY).await.map(drop) }));
        match pool.connect_with(file.clone()).await {
            Ok(pool) => return Ok(pool),
            Err(error) if attempt == 20 => return Err(failed(error)),
            Err(_) => attempt += 1,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(super) fn no_topic(name: &str) -> Error {
    Error::not_found("the log has no such topic").with("topic", name)
}

/// Converts an SQLite error: a damaged file is `Corrupt`, everything else may be temporary.
pub(super) fn failed(error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    match code.as_deref() {
        Some("11" | "26" | "267" | "523" | "779") => Error::corrupt("the log file is damaged").caused_by(error),
        _ => Error::unavailable("the log file could not be read or written").caused_by(error),
    }
}

fn in_folder(error: Error, folder: &Path) -> Error {
    error.with("folder", folder.display())
}
