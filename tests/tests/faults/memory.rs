//! A batch run under a small memory limit spills, and publishes the same snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use basestream_tests::{Harness, now};
use batch::{RunMode, RunRequest, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::{CheckpointRange, CheckpointRecord, RunRecord, checkpoint_commit};
use definitions::parse::parse_stream;
use engine::events::event_schema;
use serving::ServingClock;
use storage::write_archive;
use types::vector::PartitionId;
use uuid::Uuid;

use crate::table;

const STREAM: &str =
    "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT, u TEXT) WITH (format = 'json', event_time = 'ts', keep_raw = false)";
const VIEW: &str = "CREATE VIEW v WITH (windows = '10s, 30d') AS SELECT k, count(*) AS n, sum(x) AS x, avg(x) AS mean, count(DISTINCT u) AS us, \
    max(ts) AS newest, last_value(x ORDER BY ts) AS latest FROM s GROUP BY k";
const BASE: i64 = 1_772_366_400_000_000;

/// Adds events directly to the archive: a checkpoint of `rows` events, a fifth of them with the same key.
async fn archived(harness: &Harness, checkpoint: i64, rows: i64) {
    let definition = parse_stream(STREAM).unwrap();
    let all = || (0..rows).map(|i| i + checkpoint * rows);
    let mixed = |i: i64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64) as u64 >> 20) as i64;
    let times: Vec<i64> = all().map(|i| BASE - mixed(i) % 2_000_000_000_000).collect();
    let time = || Arc::new(TimestampMicrosecondArray::from(times.clone()).with_timezone("UTC"));
    let key = |i: i64| if i % 5 == 0 { "hot".to_owned() } else { format!("a key of some length {}", mixed(i) % 40_000) };
    let columns: Vec<ArrayRef> = vec![
        time(),
        Arc::new(all().map(|i| Some(key(i))).collect::<StringArray>()),
        Arc::new(all().map(|i| i % 1_000).collect::<Vec<_>>().into_iter().map(Some).collect::<Int64Array>()),
        Arc::new(all().map(|i| Some(format!("{}", mixed(i + 7) % 50))).collect::<StringArray>()),
        time(),
        Arc::new(StringArray::from_iter_values(all().map(|_| "s"))),
        Arc::new(Int32Array::from_iter_values(all().map(|_| 0))),
        Arc::new(Int64Array::from_iter_values(all())),
        time(),
    ];
    let batch = RecordBatch::try_new(event_schema(&definition), columns).unwrap();
    let id = Uuid::now_v7();
    let file = write_archive(&harness.storage, &"s".into(), id, 1, vec![batch]).await.unwrap();
    let range = CheckpointRange {
        clock: Some(BASE),
        max_event_time: Some(BASE),
        ..CheckpointRange::of_events(PartitionId::new("s", 0), checkpoint * rows, (checkpoint + 1) * rows)
    };
    let record = CheckpointRecord::new(id, "harness", now(), vec![range]);
    harness.catalog.commit(checkpoint_commit(record, vec![file], &BTreeMap::new())).await.unwrap();
}

async fn run(harness: &Harness, memory_limit_bytes: usize) -> RunRecord {
    let mut batch = harness.batch_layer(256 << 20);
    batch.settings.memory_limit_bytes = memory_limit_bytes;
    let request = RunRequest { mode: RunMode::Full, ..RunRequest::new("v", RunTime::EventClock) };
    batch.run(request, Arc::new(now), &|_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_spills_publishes_what_one_with_room_does() {
    crate::show_logs();
    let number = |name: &str, otherwise: i64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    let (events, limit_mib) = (number("BASESTREAM_SPILL_EVENTS", 24_000), number("BASESTREAM_SPILL_MIB", 8));
    let harness = Harness::new().await.unwrap();
    harness.define(&[(Stream, "s", STREAM), (View, "v", VIEW)]).await.unwrap();
    for checkpoint in 0..3 {
        archived(&harness, checkpoint, events / 3).await;
    }
    let with_room = run(&harness, 4 << 30).await;
    let node = harness.node(ServingClock::Event, None).await.unwrap();
    let expected = table(&node, "v");
    let spilled = run(&harness, (limit_mib as usize) << 20).await;
    println!("with room {} MiB, limited {} MiB", with_room.peak_memory_bytes >> 20, spilled.peak_memory_bytes >> 20);
    assert!(with_room.peak_memory_bytes > limit_mib << 20, "the limit is felt: {} bytes", with_room.peak_memory_bytes);
    assert!(spilled.peak_memory_bytes <= limit_mib << 20);
    assert_eq!((with_room.rows_written, with_room.events_read), (spilled.rows_written, spilled.events_read));
    node.refresh().await.unwrap();
    let found = table(&node, "v");
    assert_eq!(expected.len(), found.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}
