//! The catalog on every engine: SQLite in memory and in a file, and the PostgreSQL that `BASESTREAM_TEST_POSTGRES`
//! names.

use std::collections::BTreeMap;
use types::files::{FileKind, FileRecord};
use types::vector::PartitionId;

use sqlx::{Connection, PgConnection};
use tempfile::TempDir;
use url::Url;
use uuid::Uuid;

use super::Catalog;
use super::session::values;
use crate::*;
use types::{ErrorKind, Result};

mod alerts;
mod commits;
mod damages;
mod leases;
mod opening;
mod parameters;
mod pauses;
mod states;
mod tokens;
mod workers;

/// A catalog of one engine, made for one test.
struct TestCatalog {
    catalog: Catalog,
    url: String,
    engine: Kind,
    _folder: Option<TempDir>,
}

#[derive(PartialEq)]
enum Kind {
    Memory,
    File,
    Postgres { server: String, database: String },
}

impl TestCatalog {
    async fn memory() -> Self {
        let url = "sqlite::memory:".to_owned();
        TestCatalog { catalog: Catalog::open(&url).await.unwrap(), url, engine: Kind::Memory, _folder: None }
    }

    async fn file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/new folder/catalog.db", folder.path().display());
        TestCatalog { catalog: Catalog::open(&url).await.unwrap(), url, engine: Kind::File, _folder: Some(folder) }
    }

    /// A database of its own on the test server.
    async fn postgres() -> Self {
        let server = std::env::var("BASESTREAM_TEST_POSTGRES").expect("BASESTREAM_TEST_POSTGRES names a server: just services up");
        let database = format!("catalog_{}", Uuid::new_v4().simple());
        administer(&server, format!("CREATE DATABASE {database}")).await;
        let mut url = Url::parse(&server).unwrap();
        url.set_path(&database);
        let url = url.to_string();
        let catalog = Catalog::open(&url).await.unwrap();
        TestCatalog { catalog, url, engine: Kind::Postgres { server, database }, _folder: None }
    }

    /// Another handle, with connections of its own where the engine allows it.
    async fn another(&self) -> Catalog {
        match self.engine {
            Kind::Memory => self.catalog.clone(),
            _ => Catalog::open(&self.url).await.unwrap(),
        }
    }

    async fn remove(self) {
        self.catalog.close().await;
        if let Kind::Postgres { server, database } = &self.engine {
            administer(server, format!("DROP DATABASE {database} WITH (FORCE)")).await;
        }
    }

    /// Runs a statement behind the catalog's back.
    async fn tamper(&self, sql: &'static str) {
        let mut session = self.catalog.engine.write().await.unwrap();
        session.execute(sql, values![]).await.unwrap();
        session.commit().await.unwrap();
    }
}

async fn administer(server: &str, sql: String) {
    let mut connection = PgConnection::connect(server).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Makes each of the named functions (`async fn(&TestCatalog)`) a test on each engine.
macro_rules! on_every_engine {
    ($($name:ident),* $(,)?) => {
        mod sqlite_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let test = crate::sql::tests::TestCatalog::memory().await;
                super::$name(&test).await;
                test.remove().await;
            })*
        }
        mod sqlite_file {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let test = crate::sql::tests::TestCatalog::file().await;
                super::$name(&test).await;
                test.remove().await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "needs services: just test-services"]
            async fn $name() {
                let test = crate::sql::tests::TestCatalog::postgres().await;
                super::$name(&test).await;
                test.remove().await;
            })*
        }
    };
}
use on_every_engine;

fn partition(number: i32) -> PartitionId {
    PartitionId::new("payments", number)
}

fn range(number: i32, start: i64, end: i64) -> CheckpointRange {
    CheckpointRange { clock: Some(end), max_event_time: Some(end + 1), ..CheckpointRange::of_events(partition(number), start, end) }
}

fn checkpoint(ranges: Vec<CheckpointRange>) -> CheckpointRecord {
    CheckpointRecord::new(Uuid::new_v4(), "worker", 7, ranges)
}

fn definition(name: &str, version: u32, status: DefinitionStatus) -> DefinitionRecord {
    DefinitionRecord {
        kind: DefinitionKind::View,
        name: name.into(),
        version,
        sql: "SELECT 1".into(),
        status,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    }
}

/// A checkpoint over one range of partition 0, with one file.
fn checkpoint_of(start: i64, end: i64) -> Commit {
    let record = checkpoint(vec![range(0, start, end)]);
    let file = FileRecord { checkpoint: Some(record.id), ..file(&format!("archive/{}", record.id)) };
    checkpoint_commit(record, vec![file], &BTreeMap::from([(partition(0), "log-1".to_owned())]))
}

fn file(path: &str) -> FileRecord {
    FileRecord {
        path: path.into(),
        kind: FileKind::Archive,
        checkpoint: None,
        run: None,
        subject: Some("payments".into()),
        bytes: 10,
        rows: 2,
        checksum: u32::MAX,
        min_event_time: Some(-5),
        max_event_time: None,
        marked_for_deletion: false,
    }
}

fn run(view: &str) -> RunRecord {
    RunRecord {
        id: Uuid::new_v4(),
        view: view.into(),
        version: 1,
        status: RunStatus::Requested,
        scheduled_for: Some(60),
        attempt: 1,
        started_at: None,
        ended_at: None,
        cut: None,
        strategy: None,
        events_read: 0,
        rows_written: 0,
        bytes_written: 0,
        peak_memory_bytes: 0,
        bytes_read: 0,
        tiers: 0,
        peak_resident_bytes: 0,
        comparison: None,
        draft: None,
        beside: false,
        error: None,
    }
}

fn snapshot(view: &str, cut: &str) -> SnapshotRecord {
    SnapshotRecord {
        view: view.into(),
        version: 1,
        run: Uuid::new_v4(),
        cut: cut.parse().unwrap(),
        manifest: "manifest".into(),
        published_at: 9,
    }
}

fn adds(add: Vec<Add>) -> Commit {
    Commit { add, ..Commit::default() }
}

fn expects(expect: Expect) -> Commit {
    Commit { expect: vec![expect], ..Commit::default() }
}

/// The text of a conflict; anything else fails the test.
fn conflict<T: std::fmt::Debug>(outcome: Result<T>) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    error.to_string()
}
