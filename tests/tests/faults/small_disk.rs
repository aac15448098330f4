//! The binary, runs and queries that spill, a node's copies, and remembered ids, on a real file system that runs full.
//! `BASESTREAM_TEST_SMALL_DISK` names a folder on one of 24 MiB: `tests/services/test disk` mounts it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basestream_tests::process::{Project, free_port};
use basestream_tests::small_disk::SmallDisk;
use basestream_tests::{Harness, now, until};
use batch::{Batch, RunMode, RunRequest, RunTime};
use catalog::{DefinitionKind, RunRecord};
use serde_json::Value;
use serving::ServingClock;
use types::{ErrorKind, Result};

use crate::table;

mod copies;
mod remembered_ids;
mod spills;

const STREAM: &str = "CREATE STREAM payments (k TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (event_time = 'ts', key = 'k');";
const VIEW: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM payments GROUP BY k;";
const EVENTS: usize = 20_000;
/// These are appended over HTTP while the disk is full: none of them is taken.
const REFUSED_EVENTS: usize = 12_000;
/// What the ballast leaves: less than either of them takes.
const ROOM_BYTES: u64 = 2 << 20;
const LONG: Duration = Duration::from_secs(120);
/// Keys of a thousand bytes each, and a run that cannot hold their states in memory, but on the disk.
const LONG_KEYS: usize = 10_000;
const LITTLE_MEMORY_BYTES: usize = 8 << 20;

/// Asks a running node, and remembers how much it has counted: no answer counts less than one before it.
struct NodeClient {
    http: String,
    counted: i64,
}

impl NodeClient {
    async fn get(&self, path: &str) -> Option<(u16, Value)> {
        let reply = reqwest::get(format!("http://{}{path}", self.http)).await.ok()?;
        Some((reply.status().as_u16(), reply.json().await.ok()?))
    }

    /// The status of appending these events.
    async fn append(&self, events: String) -> u16 {
        let url = format!("http://{}/v1/streams/payments/events", self.http);
        reqwest::Client::new().post(url).body(events).send().await.expect("the node answers").status().as_u16()
    }

    async fn look_up(&mut self) -> i64 {
        let (status, answer) = self.get("/v1/views/counts/row?k=k").await.expect("the node answers");
        let counted = answer["row"]["n"].as_i64().unwrap_or_else(|| panic!("{status}: {answer}"));
        assert!(counted >= self.counted, "{counted} after {}: {answer}", self.counted);
        self.counted = counted;
        counted
    }

    async fn until(&mut self, what: &str, mut is_so: impl AsyncFnMut(&mut NodeClient) -> bool) {
        let begun = Instant::now();
        while !is_so(self).await {
            assert!(begun.elapsed() < LONG, "timed out: {what}; counted {}", self.counted);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a small disk: tests/services/test disk"]
async fn whatever_runs_full_on_a_small_disk_goes_on_by_itself_and_counts_each_event_once() {
    let mut disk = SmallDisk::seen().expect("BASESTREAM_TEST_SMALL_DISK names a folder: tests/services/test disk");
    let at = |name: &str| disk.path().join(name).display().to_string();
    let http = format!("127.0.0.1:{}", free_port().unwrap());
    let settings = format!(
        "[storage]\nurl = \"file://{}\"\n[catalog]\nurl = \"sqlite://{}\"\n[log]\nurl = \"file://{}\"\npartitions = 2\n\
         [speed]\ncheckpoint_interval = \"1s\"\n[serving]\nhttp = \"{http}\"\ncache_dir = \"{}\"\n",
        at("storage"),
        at("catalog.db"),
        at("log"),
        at("cache"),
    );
    let event = |number: usize| format!("{{\"k\":\"k\",\"ts\":\"2026-01-01T00:00:00Z\",\"pad\":\"{:0200}\"}}\n", number * 7_919);
    let files = [
        ("basestream.toml", settings),
        ("streams/payments.sql", STREAM.into()),
        ("views/counts.sql", VIEW.into()),
        ("events.jsonl", (0..EVENTS).map(event).collect()),
    ];
    let project = Project::from_files(&files, http.clone()).unwrap();
    project.ok(&["apply"]).unwrap();
    let up = project.start("up").unwrap();
    let mut client = NodeClient { http, counted: 0 };
    client.until("ready", async |client| client.get("/readyz").await.is_some_and(|(status, _)| status == 200)).await;

    disk.fill(ROOM_BYTES).unwrap();
    let events = project.folder.path().join("events.jsonl").display().to_string();
    let mut ingest = project.command(&["ingest", "payments", &events]).unwrap();
    let mut waiting = ingest.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    client
        .until("full", async |client| {
            client.look_up().await;
            client.get("/readyz").await.is_some_and(|(status, _)| status == 503)
        })
        .await;
    let status: Value = serde_json::from_slice(&project.run(&["status", "--json"]).unwrap().stdout).unwrap();
    let faults: Vec<&str> = status["problems"].as_array().unwrap().iter().filter_map(|problem| problem["fault"].as_str()).collect();
    assert!(faults.iter().any(|fault| ["node_not_ready", "catalog_unreachable"].contains(fault)), "{faults:?}");
    assert_eq!(client.append((0..REFUSED_EVENTS).map(event).collect()).await, 503);
    for _ in 0..100 {
        client.look_up().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    disk.give_space().unwrap();
    // The first one ends by itself or gave up; another one sends what is missing, and nothing twice.
    waiting.wait().unwrap();
    project.ok(&["ingest", "payments", &events]).unwrap();
    // The process that could not append does it now.
    assert_eq!(client.append(event(EVENTS)).await, 202);
    let all = EVENTS as i64 + 1;
    client.until("all are counted", async |client| client.look_up().await == all).await;
    client.until("ready", async |client| client.get("/readyz").await.is_some_and(|(status, _)| status == 200)).await;
    client
        .until("committed", async |_| {
            let status: Value = serde_json::from_str(&project.ok(&["status", "--json"]).unwrap()).unwrap();
            status["partitions"].as_array().unwrap().iter().all(|partition| partition["lag"] == 0)
        })
        .await;
    assert_eq!(client.look_up().await, all);
    project.ok(&["verify", "counts"]).unwrap();
    assert_eq!(up.terminate().unwrap(), Some(0), "{}", project.log_of("up"));
}

async fn run(batch: &Batch) -> Result<RunRecord> {
    let request = RunRequest { mode: RunMode::Full, ..RunRequest::new("counts", RunTime::EventClock) };
    batch.run(request, Arc::new(now), &|_| {}).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a small disk: tests/services/test disk"]
async fn a_run_that_spills_on_a_small_disk_fails_while_it_is_full_and_leaves_nothing_there() {
    let mut disk = SmallDisk::seen().expect("BASESTREAM_TEST_SMALL_DISK names a folder: tests/services/test disk");
    let room_bytes = disk.room_bytes().unwrap();
    let temp_dir = disk.path().join("spilled");
    // All else is on another disk.
    let harness = Harness::new().await.unwrap();
    let definitions = [(DefinitionKind::Stream, "payments", STREAM), (DefinitionKind::View, "counts", VIEW)];
    harness.define(&definitions.map(|(kind, name, sql)| (kind, name, sql.trim_end_matches(';')))).await.unwrap();
    for first in (0..LONG_KEYS).step_by(1_000) {
        let event = |number: usize| (Some(number.to_string()), format!(r#"{{"k":"{number:x<1000}","ts":"2026-01-01T00:00:00Z"}}"#));
        harness.append("payments", 1, (first..first + 1_000).map(event).collect()).await.unwrap();
    }
    harness.commit_at_once("one", &[("payments", "payments")]).await.unwrap();
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    let expected = table(&node, "counts");
    assert_eq!(expected.len(), LONG_KEYS);

    let mut batch = harness.batch_layer(LITTLE_MEMORY_BYTES);
    batch.settings.temp_dir = Some(temp_dir.clone());
    batch.settings.events_per_bucket = LONG_KEYS as u64 / 20;
    disk.fill(0).unwrap();
    let error = run(&batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("No space left"), "{error}");
    assert_eq!(error.fact("folder"), Some(&*temp_dir.display().to_string()), "{error}");
    assert_eq!(error.fact("setting"), Some("batch.temp_dir"), "{error}");
    assert!(harness.catalog.state().await.unwrap().snapshot("counts", 1).is_none());
    node.refresh().await.unwrap();
    assert!(table(&node, "counts") == expected, "another answer after a run that failed");

    disk.give_space().unwrap();
    let is_empty = || std::fs::read_dir(&temp_dir).unwrap().next().is_none();
    until("what the failed run spilled to be gone", async || is_empty() && disk.room_bytes().unwrap() >= room_bytes).await;
    let made = run(&batch).await.unwrap();
    assert_eq!(made.events_read, LONG_KEYS as i64);
    assert!(harness.catalog.state().await.unwrap().snapshot("counts", 1).is_some());
    node.refresh().await.unwrap();
    assert!(table(&node, "counts") == expected, "another answer from the snapshot");
    until("what the run spilled to be gone", async || is_empty() && disk.room_bytes().unwrap() >= room_bytes).await;
}
