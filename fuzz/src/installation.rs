//! A small installation in memory: streams, views and one checkpoint of events, served by a real node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use bytes::Bytes;
use catalog::{
    Add, Catalog, CheckpointRange, CheckpointRecord, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus, checkpoint_commit,
};
use definitions::parse::parse_stream;
use engine::events::{Decoder, EventBatchBuilder};
use engine::functions::Functions;
use serving::{Node, NodeSettings, ServingClock, WantedViews};
use storage::{ObjectStorage, write_archive};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tower::ServiceExt;
use types::record::Record;
use types::vector::{Offset, PartitionId};
use uuid::Uuid;

pub const STREAMS: [&str; 2] = [
    "CREATE STREAM payments (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount DECIMAL(18,2) NOT NULL, status TEXT NOT NULL, \
        n BIGINT, x DOUBLE, day DATE, ok BOOLEAN) \
        WITH (format = 'json', event_time = 'ts', id = 'id', dedup_within = '10m', key = 'device')",
    "CREATE STREAM logins (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, ip TEXT) WITH (format = 'json', event_time = 'ts')",
];
const VIEWS: [(&str, &str); 3] = [
    (
        "velocity",
        "CREATE VIEW velocity WITH (windows = '1h, 7d') AS SELECT device, count(*) AS n, sum(amount) AS amount, \
         max(ts) FILTER (WHERE within(ts, 'all')) AS last_seen, top_k(status, 2) AS statuses FROM payments GROUP BY device",
    ),
    ("totals", "CREATE VIEW totals AS SELECT count(*) AS n, sum(amount) AS amount FROM payments"),
    ("typed", "CREATE VIEW typed AS SELECT n, day, ok, ts, amount, x, count(*) AS c FROM payments GROUP BY n, day, ok, ts, amount, x"),
];
const EVENTS: [&str; 3] = [
    r#"{"id":"1","ts":"2026-03-02T11:30:00Z","device":"a","amount":10.00,"status":"ok","n":1,"x":0.5,"day":"2026-03-02","ok":true}"#,
    r#"{"id":"2","ts":"2026-03-01T10:00:00Z","device":"b","amount":5.50,"status":"no","n":-9223372036854775808}"#,
    r#"{"id":"3","ts":"2026-03-01T10:20:00Z","device":null,"amount":1.25,"status":"ok","x":-1e300}"#,
];
/// 2026-03-02T12:00:00Z.
const NOW: i64 = 1_772_452_800_000_000;

/// Where the log and the local copies are.
pub fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("basestream-fuzz-{}", std::process::id()))
}

/// A runtime with one thread, so that a run of a target depends on its bytes alone.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"))
}

pub async fn node() -> &'static Node {
    static NODE: OnceCell<Node> = OnceCell::const_new();
    NODE.get_or_init(|| async { open().await.expect("the installation opens") }).await
}

/// Handles a request as the server would, and returns the status and the body.
pub async fn answer(request: Request<Body>) -> (u16, Bytes) {
    static ROUTES: OnceCell<Router> = OnceCell::const_new();
    let routes = ROUTES.get_or_init(|| async {
        let log = event_log::open(&format!("file://{}/log", folder().display()), &BTreeMap::new()).await.expect("a log");
        let protection = serving::http::Protection::none(Arc::new(|| 0)).expect("no protection");
        serving::http::routes(node().await.clone(), log, None, protection)
    });
    let response = routes.await.clone().oneshot(request).await.expect("a router answers");
    let status = response.status().as_u16();
    (status, to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default())
}

async fn open() -> types::Result<Node> {
    let catalog = Catalog::open("sqlite::memory:").await?;
    let storage = ObjectStorage::open("memory://")?;
    let mut add: Vec<Add> = Vec::new();
    for sql in STREAMS {
        add.push(definition(DefinitionKind::Stream, &parse_stream(sql)?.name, sql));
    }
    add.extend(VIEWS.map(|(name, sql)| definition(DefinitionKind::View, name, sql)));
    catalog.commit(Commit { id: Uuid::now_v7(), add, ..Commit::default() }).await?;
    checkpoint(&catalog, &storage).await?;
    let settings = NodeSettings {
        name: "fuzz".into(),
        views: WantedViews::All,
        clock: ServingClock::Wall,
        at_once: false,
        cache: folder(),
        cache_bytes: None,
        poll: Duration::from_secs(3600),
        lease: Duration::from_secs(3600),
        memory_limit_bytes: 64 << 20,
        max_rebuilt_events: 500_000,
        query_timeout: Duration::from_secs(30),
        limits: serving::ServingLimits::default(),
        hot_keys: serving::HotKeySettings::default(),
    };
    Node::open(catalog, storage, Functions::standard(), None, settings, Arc::new(|| NOW)).await
}

async fn checkpoint(catalog: &Catalog, storage: &ObjectStorage) -> types::Result<()> {
    let stream = Arc::new(parse_stream(STREAMS[0])?);
    let decoder = Decoder::new(stream.clone())?;
    let mut builder = EventBatchBuilder::new(&stream);
    for (offset, text) in EVENTS.iter().enumerate() {
        let record = Record { offset: Offset(offset as i64), timestamp: NOW, key: None, value: Some((*text).into()), headers: Vec::new() };
        builder.append(&decoder.decode(Some(text.as_bytes()))?, 0, &record)?;
    }
    let id = Uuid::now_v7();
    let file = write_archive(storage, &stream.name, id, 1, vec![builder.finish()?]).await?;
    let range = CheckpointRange {
        partition: PartitionId::new("payments", 0),
        start: Offset(0),
        end: Offset(EVENTS.len() as i64),
        archived: EVENTS.len() as i64,
        duplicate: 0,
        dead_lettered: 0,
        absent: 0,
        clock: Some(NOW),
        max_event_time: Some(NOW),
        complete_to: Some(NOW),
    };
    let identities = BTreeMap::from([(range.partition.clone(), "log".to_owned())]);
    let record = CheckpointRecord { id, worker: "fuzz".into(), committed_at: NOW, revision: 0, ranges: vec![range] };
    catalog.commit(checkpoint_commit(record, vec![file], &identities)).await?;
    Ok(())
}

fn definition(kind: DefinitionKind, name: &str, sql: &str) -> Add {
    let sql = sql.to_owned();
    Add::Definition(DefinitionRecord {
        kind,
        name: name.into(),
        version: 1,
        sql,
        status: DefinitionStatus::Active,
        created_at: 0,
        since: 0,
        kept_until: None,
        rolled_back: false,
    })
}
