//! Opening: one identity, known formats only, and commits that survive broken connections.

use super::*;
use types::vector::Offset;

on_every_engine!(
    an_opened_catalog_keeps_its_identity,
    concurrent_first_openings_agree_on_one_identity,
    a_newer_format_is_refused,
    an_older_format_is_migrated,
    a_commit_without_room_does_not_happen_and_the_next_one_does,
    clocks_are_compared_with_a_server_that_is_opened,
    what_ingest_remembers_of_a_file_is_found_by_an_index,
);

async fn an_opened_catalog_keeps_its_identity(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert!(state.identity.parse::<Uuid>().is_ok());
    let again = test.another().await;
    assert_eq!(again.identity(), state.identity);
    assert_eq!(again.state().await.unwrap(), state);
}

/// A file is on one machine: its processes have one clock.
async fn clocks_are_compared_with_a_server_that_is_opened(test: &TestCatalog) {
    let is_server = matches!(test.engine, Kind::Postgres { .. });
    assert_eq!(test.catalog.clock.is_due(std::time::Instant::now()), !is_server);
    assert!(test.catalog.clock_ahead().await.unwrap() < std::time::Duration::from_secs(5));
    assert!(test.catalog.outages().is_empty(), "{:?}", test.catalog.outages());
}

async fn concurrent_first_openings_agree_on_one_identity(test: &TestCatalog) {
    if test.engine == Kind::Memory {
        return;
    }
    let fresh = match &test.engine {
        Kind::Postgres { .. } => {
            test.tamper("DROP SCHEMA public CASCADE").await;
            test.tamper("CREATE SCHEMA public").await;
            test.url.clone()
        }
        _ => test.url.replace("catalog.db", "fresh.db"),
    };
    let openings = (0..6).map(|_| {
        let url = fresh.clone();
        tokio::spawn(async move { Catalog::open(&url).await.unwrap().identity().to_owned() })
    });
    let identities: Vec<String> = futures::future::join_all(openings).await.into_iter().map(|joined| joined.unwrap()).collect();
    assert!(identities.iter().all(|identity| *identity == identities[0]), "{identities:?}");
}

async fn a_newer_format_is_refused(test: &TestCatalog) {
    test.tamper("UPDATE meta SET format = 99").await;
    // A process that has it open must not write to a format that it does not know either.
    let open = test.catalog.commit(checkpoint_of(0, 10)).await.unwrap_err();
    assert_eq!(open.kind(), ErrorKind::Corrupt);
    if test.engine == Kind::Memory {
        return;
    }
    let error = Catalog::open(&test.url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("newer version") && error.to_string().contains("99"), "{error}");
}

/// A catalog as the first release left it: its records stay, and what came later can be written.
async fn an_older_format_is_migrated(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    test.catalog.commit(adds(vec![Add::Definition(definition("v", 1, DefinitionStatus::Active))])).await.unwrap();
    let later = [
        "DROP TABLE replay",
        "DROP TABLE damage",
        "DROP TABLE mark",
        "DROP TABLE token",
        "DROP TABLE worker",
        "DROP TABLE alert_progress",
        "DROP TABLE open_alert",
        "DROP TABLE alert_transition",
        "DROP TABLE parameter_value",
        "DROP TABLE alert_runner",
        "ALTER TABLE meta DROP COLUMN alerts_forgotten",
        "DROP TABLE pause",
        "DROP TABLE sink_claim",
        "DROP TABLE sink_switch",
        "DROP TABLE removed",
        "DROP INDEX file_by_checkpoint",
        "DROP INDEX checkpoint_by_written_revision",
        "ALTER TABLE checkpoint DROP COLUMN written_revision",
        "ALTER TABLE definition DROP COLUMN since",
        "ALTER TABLE definition DROP COLUMN kept_until",
        "ALTER TABLE definition DROP COLUMN rolled_back",
        "DROP INDEX definition_by_revision",
        "ALTER TABLE definition DROP COLUMN revision",
        "DROP INDEX run_by_version",
        "DROP INDEX run_compared",
        "DROP INDEX run_open",
        "DROP INDEX run_by_end",
        "ALTER TABLE run DROP COLUMN bytes_read",
        "ALTER TABLE run DROP COLUMN tiers",
        "ALTER TABLE run DROP COLUMN peak_resident_bytes",
        "ALTER TABLE run DROP COLUMN comparison",
        "ALTER TABLE run DROP COLUMN differences",
        "DROP INDEX run_recomputed",
        "ALTER TABLE run DROP COLUMN draft",
        "ALTER TABLE run DROP COLUMN beside",
        "DROP INDEX commits_by_revision",
    ];
    for drop in later {
        test.tamper(drop).await;
    }
    test.tamper("ALTER TABLE meta DROP COLUMN orphaned_before").await;
    test.tamper("ALTER TABLE run DROP COLUMN strategy").await;
    test.tamper("UPDATE meta SET format = 1").await;
    if test.engine == Kind::Memory {
        return;
    }
    let migrated = Catalog::open(&test.url).await.unwrap();
    let state = migrated.state().await.unwrap();
    assert_eq!(state.vector().get(&partition(0)), Offset(10));
    assert_eq!(state.definitions.live().map(|record| &*record.name).collect::<Vec<_>>(), ["v"]);
    let replay = ReplayedDeadLetters { partition: partition(0), start: Offset(1), end: Offset(2), replayed_at: 0 };
    migrated.commit(adds(vec![Add::ReplayedDeadLetters(replay.clone())])).await.unwrap();
    assert_eq!(migrated.replayed_dead_letters("payments").await.unwrap(), [replay]);
    migrated.close().await;
}

#[tokio::test]
async fn a_catalog_in_a_file_outlives_a_power_loss() {
    let test = TestCatalog::file().await;
    // 2 is FULL.
    for (sql, expected) in [("PRAGMA synchronous", 2), ("PRAGMA foreign_keys", 1), ("PRAGMA busy_timeout", 10_000)] {
        let super::super::Engine::Sqlite { write, .. } = &test.catalog.engine else { unreachable!() };
        let found: i64 = sqlx::query_scalar(sql).fetch_one(write).await.unwrap();
        assert_eq!(found, expected, "{sql}");
    }
    let super::super::Engine::Sqlite { read, .. } = &test.catalog.engine else { unreachable!() };
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(read).await.unwrap();
    assert_eq!(mode, "wal");
    test.remove().await;
}

#[tokio::test]
async fn a_file_that_is_no_catalog_is_damaged_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalog.db");
    std::fs::write(&path, "not a database, but long enough to look like one".repeat(100)).unwrap();
    let error = Catalog::open(&format!("sqlite://{}", path.display())).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Corrupt, crate::FILE_DAMAGED));
    assert!(error.fact("catalog").is_some_and(|catalog| catalog.ends_with("catalog.db")), "{error}");
}

/// Connections are killed while checkpoints are committed: each happens exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs services: just test-services"]
async fn retried_commits_happen_once_while_connections_are_killed() {
    let test = TestCatalog::postgres().await;
    let Kind::Postgres { server, database } = &test.engine else { unreachable!() };
    let (server, database) = (server.clone(), database.clone());
    let killing = tokio::spawn(async move {
        let mut connection = PgConnection::connect(&server).await.unwrap();
        let mut killed = 0;
        loop {
            let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1 AND xact_start IS NOT NULL";
            let one: i64 = sqlx::query_scalar(sql).bind(&database).fetch_one(&mut connection).await.unwrap();
            killed += one;
            if killed >= 5 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        }
    });
    let (mut step, began) = (0, std::time::Instant::now());
    while !killing.is_finished() || step < 50 {
        assert!(began.elapsed() < std::time::Duration::from_secs(120), "timed out: fewer than five connections were killed");
        test.catalog.commit_with_retry(checkpoint_of(step * 10, step * 10 + 10)).await.unwrap();
        step += 1;
    }
    killing.await.unwrap();
    let state = test.catalog.state().await.unwrap();
    assert_eq!((state.revision, state.checkpoints.len() as i64), (step, step));
    test.remove().await;
}

#[tokio::test]
#[ignore = "needs services: just test-services"]
async fn no_statement_is_compiled_on_postgres() {
    let test = TestCatalog::postgres().await;
    let is_off = "SELECT count(*) FROM pg_settings WHERE name = 'jit' AND setting = 'off'";
    assert_eq!(test.catalog.engine.number(is_off).await.unwrap(), 1);
    test.remove().await;
}

/// It may come back: one that is being restored, or a login whose password is being changed.
#[tokio::test]
#[ignore = "needs services: just test-services"]
async fn a_database_that_is_gone_is_an_outage_and_at_the_start_a_wrong_setting_on_postgres() {
    let test = TestCatalog::postgres().await;
    let Kind::Postgres { server, database } = &test.engine else { unreachable!() };
    administer(server, format!("DROP DATABASE {database} WITH (FORCE)")).await;
    let error = test.catalog.revision().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(test.catalog.outages()[0].what, "the catalog cannot be read");
    let error = Catalog::open(&test.url).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    test.catalog.close().await;
}

/// Makes every commit of a checkpoint fail as on a full disk, or no longer.
async fn fill_disk(test: &TestCatalog, is_full: bool) {
    match (&test.engine, is_full) {
        // Of the connection that writes: no page can be added to the file.
        (Kind::File, true) => test.tamper("PRAGMA max_page_count = 1").await,
        (Kind::Postgres { .. }, true) => {
            let full = "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$";
            test.tamper(full).await;
            test.tamper("CREATE TRIGGER full_disk BEFORE INSERT ON checkpoint EXECUTE FUNCTION full_disk()").await;
        }
        (Kind::Postgres { .. }, false) => test.tamper("DROP FUNCTION full_disk CASCADE").await,
        _ => {}
    }
}

/// SQLite ends a transaction by itself on a full disk, and its connection is of no use after that.
async fn a_commit_without_room_does_not_happen_and_the_next_one_does(test: &TestCatalog) {
    test.catalog.commit(checkpoint_of(0, 10)).await.unwrap();
    // A database in memory has one connection for as long as it lives.
    if test.engine == Kind::Memory {
        return;
    }
    let before = test.catalog.state().await.unwrap();
    for _ in 0..3 {
        fill_disk(test, true).await;
        let mut commit = checkpoint_of(10, 20);
        commit.add.extend((0..2_000).map(|number| Add::File(file(&format!("archive/{number}")))));
        let error = test.catalog.commit(commit).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(test.catalog.outages()[0].what, "the catalog cannot be written");
        fill_disk(test, false).await;
        assert_eq!(test.catalog.state().await.unwrap(), before);
    }
    test.catalog.commit(checkpoint_of(10, 20)).await.unwrap();
    assert!(test.catalog.outages().is_empty());
    assert_eq!(test.catalog.state().await.unwrap().vector().get(&partition(0)), Offset(20));
}

/// What a reader pays for a commit follows the commit, not the history: nothing is found by going through a table.
#[tokio::test]
async fn what_is_new_is_found_by_an_index() {
    let test = TestCatalog::memory().await;
    for step in 0..50 {
        test.catalog.commit(checkpoint_of(step * 10, step * 10 + 10)).await.unwrap();
    }
    test.tamper("ANALYZE").await;
    let super::super::Engine::Sqlite { read, .. } = &test.catalog.engine else { unreachable!() };
    for sql in [super::super::checkpoint::SINCE.sqlite, super::super::file::SINCE.sqlite, super::super::definition::SINCE] {
        let explained = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(explained).bind(49_i64).fetch_all(read).await.unwrap();
        let steps: Vec<&str> = steps.iter().map(|(.., step)| step.as_str()).collect();
        let tables = [" checkpoint", " file", " definition"];
        let of_tables: Vec<&&str> = steps.iter().filter(|step| tables.iter().any(|table| step.contains(table))).collect();
        assert!(!of_tables.is_empty() && of_tables.iter().all(|step| step.starts_with("SEARCH")), "{sql}: {steps:?}");
        // Nor is a long result held to be sorted.
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
    }
    test.remove().await;
}

/// A view may have had many versions, each with a thousand runs.
#[tokio::test]
async fn the_next_version_that_has_runs_is_found_by_an_index() {
    let test = TestCatalog::memory().await;
    let super::super::Engine::Sqlite { read, .. } = &test.catalog.engine else { unreachable!() };
    let explained = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", super::super::run::RECENT_RUNS));
    let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(explained).bind(0_i64).bind(0_i64).bind(0_i64).fetch_all(read).await.unwrap();
    assert!(steps.iter().any(|(.., step)| step.contains("(view_name=? AND version>?)")), "{steps:?}");
    test.remove().await;
}

/// A stream may have had many files, each with a record for every sixty lines that were left out.
async fn what_ingest_remembers_of_a_file_is_found_by_an_index(test: &TestCatalog) {
    let sql = super::super::ingest::BEGINNING;
    match &test.catalog.engine {
        super::super::Engine::Sqlite { read, .. } => {
            let explained = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(explained).bind("payments").bind("f").fetch_all(read).await.unwrap();
            assert!(steps.iter().any(|(.., step)| step.contains("(stream=? AND fingerprint>? AND fingerprint<?)")), "{steps:?}");
        }
        super::super::Engine::Postgres(pool) => {
            let mut transaction = pool.begin().await.unwrap();
            // PostgreSQL scans a small table whatever indexes it has.
            sqlx::query("SET LOCAL enable_seqscan = off").execute(&mut *transaction).await.unwrap();
            let explained = sqlx::AssertSqlSafe(format!("EXPLAIN {sql}"));
            let lines: Vec<(String,)> = sqlx::query_as(explained).bind("payments").bind("f").fetch_all(&mut *transaction).await.unwrap();
            let is_range = |line: &str| line.contains("Index Cond") && line.contains("fingerprint >= ") && line.contains("fingerprint < ");
            assert!(lines.iter().any(|(line,)| is_range(line)), "{lines:?}");
        }
    }
}

#[tokio::test]
async fn many_checkpoints_come_in_few_rows_and_each_once() {
    const COMMITS: i64 = 600;
    let test = TestCatalog::memory().await;
    let super::super::Engine::Sqlite { read, .. } = &test.catalog.engine else { unreachable!() };
    for step in 0..COMMITS {
        test.catalog.commit(checkpoint_of(step * 10, step * 10 + 10)).await.unwrap();
    }
    for since in [0, 1, 87, 88, 300, COMMITS - 1, COMMITS, COMMITS + 1] {
        let rows: Vec<(String,)> = sqlx::query_as(super::super::checkpoint::SINCE.sqlite).bind(since).fetch_all(read).await.unwrap();
        let records = rows.iter().flat_map(|(packed,)| serde_json::from_str::<Vec<serde_json::Value>>(packed).unwrap());
        let mut revisions: Vec<i64> = records.map(|record| record[3].as_i64().unwrap()).collect();
        revisions.sort_unstable();
        assert!(rows.len() <= 512 && revisions.iter().copied().eq(since + 1..=COMMITS), "after {since}: {revisions:?}");
    }
    test.remove().await;
}
