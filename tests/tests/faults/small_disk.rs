//! The binary on a real file system that runs full. `BASESTREAM_TEST_SMALL_DISK` names a folder on one of
//! 24 MiB: `tests/services/test disk` mounts it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use basestream_tests::process::{Project, free_port};
use serde_json::Value;

const STREAM: &str = "CREATE STREAM payments (k TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL) WITH (event_time = 'ts', key = 'k');";
const VIEW: &str = "CREATE VIEW counts AS SELECT k, count(*) AS n FROM payments GROUP BY k;";
const EVENTS: usize = 20_000;
/// What the ballast leaves: less than the events take.
const ROOM_BYTES: u64 = 2 << 20;
const LONG: Duration = Duration::from_secs(120);

/// Fills the disk but for [`ROOM_BYTES`].
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("ballast");
    let mut ballast = File::create(&path).unwrap();
    let chunk = vec![1; 64 << 10];
    while ballast.write_all(&chunk).is_ok() {}
    let length = ballast.metadata().unwrap().len();
    assert!(length < 64 << 20, "expected a small disk, found room for {length} bytes");
    ballast.set_len(length - ROOM_BYTES).unwrap();
    path
}

/// Asks a running node, and remembers how much it has counted: no answer counts less than one before it.
struct Asked {
    http: String,
    counted: i64,
}

impl Asked {
    async fn get(&self, path: &str) -> Option<(u16, Value)> {
        let reply = reqwest::get(format!("http://{}{path}", self.http)).await.ok()?;
        Some((reply.status().as_u16(), reply.json().await.ok()?))
    }

    async fn look_up(&mut self) -> i64 {
        let (status, answer) = self.get("/v1/views/counts/row?k=k").await.expect("the node answers");
        let counted = answer["row"]["n"].as_i64().unwrap_or_else(|| panic!("{status}: {answer}"));
        assert!(counted >= self.counted, "{counted} after {}: {answer}", self.counted);
        self.counted = counted;
        counted
    }

    async fn until(&mut self, what: &str, mut is_so: impl AsyncFnMut(&mut Asked) -> bool) {
        let begun = Instant::now();
        while !is_so(self).await {
            assert!(begun.elapsed() < LONG, "never: {what}; counted {}", self.counted);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a small disk: tests/services/test disk"]
async fn whatever_runs_full_on_a_small_disk_goes_on_by_itself_and_counts_each_event_once() {
    let disk = std::env::var("BASESTREAM_TEST_SMALL_DISK").expect("BASESTREAM_TEST_SMALL_DISK names a folder: tests/services/test disk");
    let disk = tempfile::tempdir_in(disk).unwrap();
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
    let project = Project::of_files(&files, http.clone()).unwrap();
    project.ok(&["apply"]).unwrap();
    let up = project.start("up").unwrap();
    let mut asked = Asked { http, counted: 0 };
    asked.until("ready", async |asked| asked.get("/readyz").await.is_some_and(|(status, _)| status == 200)).await;

    let ballast = fill(disk.path());
    let events = project.folder.path().join("events.jsonl").display().to_string();
    let mut ingest = project.command(&["ingest", "payments", &events]).unwrap();
    let mut waiting = ingest.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    asked
        .until("full", async |asked| {
            asked.look_up().await;
            asked.get("/readyz").await.is_some_and(|(status, _)| status == 503)
        })
        .await;
    let status: Value = serde_json::from_slice(&project.run(&["status", "--json"]).unwrap().stdout).unwrap();
    let faults: Vec<&str> = status["problems"].as_array().unwrap().iter().filter_map(|problem| problem["fault"].as_str()).collect();
    assert!(faults.iter().any(|fault| ["node_not_ready", "catalog_unreachable"].contains(fault)), "{faults:?}");
    for _ in 0..100 {
        asked.look_up().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    std::fs::remove_file(ballast).unwrap();
    // The first one ends by itself or gave up; another one sends what is missing, and nothing twice.
    waiting.wait().unwrap();
    project.ok(&["ingest", "payments", &events]).unwrap();
    asked.until("all are counted", async |asked| asked.look_up().await == EVENTS as i64).await;
    asked.until("ready", async |asked| asked.get("/readyz").await.is_some_and(|(status, _)| status == 200)).await;
    asked
        .until("committed", async |_| {
            let status: Value = serde_json::from_str(&project.ok(&["status", "--json"]).unwrap()).unwrap();
            status["partitions"].as_array().unwrap().iter().all(|partition| partition["lag"] == 0)
        })
        .await;
    assert_eq!(asked.look_up().await, EVENTS as i64);
    project.ok(&["verify", "counts"]).unwrap();
    assert_eq!(up.terminate().unwrap(), Some(0), "{}", project.log_of("up"));
}
