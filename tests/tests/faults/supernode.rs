//! A supernode with a million users, in every layer: its memory use is bounded, and every layer gives the same
//! estimate, flagged as one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use basestream_tests::{Harness, Worker, now, until};
use batch::{Batch, RunRequest, RunSettings, RunTime};
use catalog::DefinitionKind::{Stream, View};
use engine::events::format_timestamp;
use engine::fresh::Fresh;
use futures::TryStreamExt;
use jobs::served::NodeServed;
use jobs::verify::{Verifier, verify_view};
use serving::{Keys, Node, ServingClock};
use storage::{ESTIMATED, read_bucket};
use tokio_util::sync::CancellationToken;
use types::vector::{PartitionId, Vector};

use crate::heap::{Growth, alone};

mod events;

use events::{
    ACCOUNTS, ACCOUNTS_SQL, Event, HUB, LOGGED_IN, LOGINS, LOGINS_SQL, SMALL, USERS, VIEW, VIEW_SQL, hub_accounts, hub_logins, small,
    small_accounts, small_logins,
};

/// Linked devices and users of each device, and whether they are estimates.
type Answers = BTreeMap<String, (i64, i64, bool)>;

const PARTITIONS: u32 = 2;
const LINKED_DEVICES: &str = "linked_devices_30d";
const LINKED_USERS: &str = "users_30d";

/// Users of the hub in the log before the first worker starts, and the minimum number that it commits. The last ones
/// are in fresh layers.
const EARLY: usize = 950_000;
const COMMITTED: usize = 600_000;
const CHECKPOINT_BYTES: usize = 32 << 20;
const MEMORY_LIMIT_BYTES: usize = 64 << 20;

/// Two epochs of a quarter of [`CHECKPOINT_BYTES`], their layers while they are merged and encoded, and 16 waiting
/// fetches. All events and edges of the hub would take some 150 MiB more.
const SPEED_BYTES: usize = 128 << 20;
/// Ten thousand neighbours, and a flag for each of a million rows, take some ten MiB. All neighbours, stored like those
/// that a walk follows, would take some 280 bytes each: 270 MiB.
const WALK_BYTES: usize = 16 << 20;
/// [`MEMORY_LIMIT_BYTES`], and memory that is not reserved: files that are read, encoded and mapped. Sorting the hub's
/// bucket in memory would take some 400 MiB.
const BATCH_BYTES: usize = 128 << 20;

/// - **Speed**: a million accounts pass from the log through workers, most of them to checkpoints. An epoch is
///   checkpointed at a quarter of `checkpoint_bytes` and then dropped: no memory is kept per key.
/// - **Serving**, without a snapshot and with one: a query holds the sample, `max_degree` neighbours, and hashes the
///   others a few thousand at a time. (States after the cut, of any view, are in the node's memory; those of a snapshot
///   are mapped.)
/// - **Batch**: edges are partitioned, sorted and written under `memory_limit`, spilling; the join walks them as a
///   query does, from mapped files.
///
/// The sample is the same in all layers, and so is the estimate.
#[test]
fn a_supernode_of_a_million_users_takes_bounded_memory_in_every_layer() {
    alone("supernode::a_supernode_of_a_million_users_takes_bounded_memory_in_every_layer", || {
        crate::show_logs();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(every_layer());
        runtime.shutdown_timeout(Duration::from_secs(1));
    });
}

async fn every_layer() {
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, ACCOUNTS, ACCOUNTS_SQL), (Stream, LOGINS, LOGINS_SQL), (View, VIEW, VIEW_SQL)]).await.unwrap();
    checkpoint_most(&harness).await;
    let fresh = Fresh::default();
    let node = harness.node(ServingClock::Event, Some(fresh.clone())).await.unwrap();
    let worker = show_the_rest(&harness, &node, fresh).await;
    let from_segments_and_fresh_layers = answers(&node, "segments and fresh layers").await;
    events::check(&from_segments_and_fresh_layers);

    worker.finish().await.unwrap();
    run(&harness).await;
    node.refresh().await.unwrap();
    let read_view = node.read_view().unwrap();
    let loaded = read_view.view(VIEW).unwrap();
    assert!(loaded.snapshot.is_some() && loaded.layers.is_empty() && read_view.fresh.is_empty(), "all of it is in the snapshot");
    assert_eq!(answers(&node, "a snapshot").await, from_segments_and_fresh_layers, "the sample is the same");
    assert_eq!(joined(&harness, &node).await, from_segments_and_fresh_layers, "the rows of the join are the answers");

    let (catalog, storage, functions) = (harness.catalog.clone(), harness.storage.clone(), harness.functions.clone());
    // Plain SQL over a million users holds its groups in memory, and a fair pool gives each of its operators a small
    // part.
    let verifier = Verifier { catalog, storage, functions, memory_limit: 16 << 30, temp_dir: None };
    let report = verify_view(&verifier, VIEW, &NodeServed(node.clone()), now()).await.unwrap();
    assert!(report.is_equal(), "{:?}", report.differences);
    assert_eq!((report.rows, report.crowded), (SMALL as u64 + 1, 1));
}

/// A separate worker, like a `basestream speed` process, moves most of the hub's accounts from the log to checkpoints.
async fn checkpoint_most(harness: &Harness) {
    append(harness, ACCOUNTS, hub_accounts(0..EARLY)).await;
    append(harness, LOGINS, hub_logins(0..LOGGED_IN / 2)).await;
    let growth = Growth::begin();
    let worker = start(harness, "one", CHECKPOINT_BYTES, None);
    until("most accounts to be committed", async || {
        assert!(!worker.task.is_finished(), "the worker ended");
        let committed = harness.catalog.state().await.unwrap().vector();
        committed.iter().filter(|(partition, _)| &*partition.stream == ACCOUNTS).map(|(_, next)| next.0).sum::<i64>() >= COMMITTED as i64
    })
    .await;
    worker.finish().await.unwrap();
    bounded("a worker", growth.bytes(), SPEED_BYTES);
}

/// Another worker shows the rest in fresh layers, and commits none of it yet.
async fn show_the_rest(harness: &Harness, node: &Node, fresh: Fresh) -> Worker {
    append(harness, ACCOUNTS, hub_accounts(EARLY..USERS).chain(small_accounts())).await;
    append(harness, LOGINS, hub_logins(LOGGED_IN / 2..LOGGED_IN).chain(small_logins())).await;
    let mut ends = Vector::new();
    for stream in [ACCOUNTS, LOGINS] {
        for bounds in harness.log.bounds(stream).await.unwrap() {
            ends.set(PartitionId::new(stream, bounds.partition), bounds.end);
        }
    }
    let worker = start(harness, "two", 2 << 30, Some(fresh));
    until("the rest to be shown", async || {
        assert!(!worker.task.is_finished(), "the worker ended");
        node.read_view().unwrap().vector.covers(&ends)
    })
    .await;
    let read_view = node.read_view().unwrap();
    let loaded = read_view.view(VIEW).unwrap();
    let of_layers: usize = loaded.layers.iter().map(|layer| layer.run.rows()).sum();
    let of_fresh: usize = read_view.fresh_of(&loaded.live).map(|rows| rows.len()).sum();
    assert!(loaded.snapshot.is_none() && of_layers >= COMMITTED, "{of_layers} edges in segments");
    assert!(of_fresh >= USERS - EARLY, "{of_fresh} edges in fresh layers");
    worker
}

fn start(harness: &Harness, name: &str, checkpoint_bytes: usize, fresh: Option<Fresh>) -> Worker {
    let mut speed = harness.speed(name, Duration::from_secs(3_600), fresh);
    speed.settings.checkpoint_bytes = checkpoint_bytes;
    let stop = CancellationToken::new();
    let token = stop.clone();
    Worker { stop, task: tokio::spawn(async move { speed.run(token).await }) }
}

async fn append(harness: &Harness, stream: &str, events: impl Iterator<Item = Event>) {
    let mut records = events
        .map(|(ts, user, device)| (None, format!(r#"{{"ts":"{}","user_id":"{user}","device_id":"{device}"}}"#, format_timestamp(ts))));
    loop {
        let some: Vec<(Option<String>, String)> = records.by_ref().take(50_000).collect();
        if some.is_empty() {
            return;
        }
        harness.append(stream, PARTITIONS, some).await.unwrap();
    }
}

/// Returns the answers for all devices. The hub is looked up three times, and the lowest memory use is compared with
/// its bound, because the worker may be merging layers meanwhile.
async fn answers(node: &Node, from: &str) -> Answers {
    let mut answers = Answers::new();
    let mut least = usize::MAX;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let growth = Growth::begin();
        let answer = ask(node, HUB).await;
        least = least.min(growth.bytes());
        answers.insert(HUB.to_owned(), answer);
    }
    bounded(&format!("a lookup over {from}"), least, WALK_BYTES);
    for device in (0..SMALL).map(small) {
        let answer = ask(node, &device).await;
        answers.insert(device, answer);
    }
    answers
}

async fn ask(node: &Node, device: &str) -> (i64, i64, bool) {
    let keys = Keys::Text(vec![vec![("device_id".to_owned(), device.to_owned())]]);
    let response = node.lookup(VIEW, keys, None).await.unwrap();
    assert_eq!(response.found, [true], "{device}");
    let flagged = response.meta.approximate;
    assert!(flagged.is_empty() || flagged == [LINKED_DEVICES, LINKED_USERS], "all values are flagged, or none: {flagged:?}");
    (number(&response.rows, LINKED_DEVICES, 0), number(&response.rows, LINKED_USERS, 0), !flagged.is_empty())
}

/// A batch run with little memory; its final join is measured separately.
async fn run(harness: &Harness) {
    let settings = RunSettings {
        memory_limit_bytes: MEMORY_LIMIT_BYTES,
        threads: 2,
        temp_dir: None,
        lease: Duration::from_secs(30),
        report_every: batch::REPORT_EVERY,
        events_per_bucket: batch::EVENTS_PER_BUCKET,
        events_per_slice: u64::MAX,
    };
    let (catalog, storage, functions) = (harness.catalog.clone(), harness.storage.clone(), harness.functions.clone());
    let batch = Batch::new(catalog, storage, harness.replay_log(), functions, settings, "harness");
    let request = RunRequest::new(VIEW, RunTime::EventClock);
    let (all, states, join) = (Growth::begin(), AtomicUsize::new(0), Mutex::new(None));
    // Called for each bucket that is written: after the last one comes the join.
    let progress = |_: i64| {
        states.fetch_max(all.bytes(), Ordering::Relaxed);
        *join.lock().unwrap() = Some(Growth::begin());
    };
    let record = batch.run(request, Arc::new(now), &progress).await.unwrap();
    let join = join.lock().unwrap().take().map(|growth| growth.bytes()).unwrap();
    assert!(record.peak_memory_bytes <= MEMORY_LIMIT_BYTES as i64, "{record:?}");
    bounded("a batch run", states.load(Ordering::Relaxed), BATCH_BYTES);
    bounded("its join", join, WALK_BYTES);
}

/// The rows that the last run joined, each with its own flag.
async fn joined(harness: &Harness, node: &Node) -> Answers {
    let snapshot = node.read_view().unwrap().view(VIEW).unwrap().snapshot.clone().unwrap();
    let joined = snapshot.manifest.joined.as_ref().unwrap();
    assert!(joined.estimated, "the table is flagged as a whole");
    let mut rows = Answers::new();
    for file in &joined.files {
        let mut batches = read_bucket(&harness.storage, file).await.unwrap();
        while let Some(batch) = batches.try_next().await.unwrap() {
            let devices = batch.column_by_name("device_id").unwrap().as_string::<i32>();
            let estimated = batch.column_by_name(ESTIMATED).unwrap().as_boolean();
            for row in 0..batch.num_rows() {
                let values = (number(&batch, LINKED_DEVICES, row), number(&batch, LINKED_USERS, row), estimated.value(row));
                rows.insert(devices.value(row).to_owned(), values);
            }
        }
    }
    rows
}

fn number(rows: &RecordBatch, column: &str, row: usize) -> i64 {
    rows.column_by_name(column).unwrap().as_primitive::<Int64Type>().value(row)
}

fn bounded(what: &str, bytes: usize, most: usize) {
    println!("{what}: {:.1} MiB, at most {}", bytes as f64 / f64::from(1 << 20), most >> 20);
    assert!(bytes <= most, "{what} held {bytes} bytes more than before, expected at most {most}");
}
