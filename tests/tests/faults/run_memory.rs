//! What a batch run holds: at most a fifth more than its limit, and of lists in an order at most two fifths more, for
//! each aggregate, with one key and with many.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use basestream_tests::{Harness, now};
use batch::{RunMode, RunRequest, RunTime};
use catalog::DefinitionKind::{Stream, View};
use catalog::{CheckpointRange, CheckpointRecord, RunStatus, checkpoint_commit};
use definitions::parse::parse_stream;
use engine::events::event_schema;
use storage::write_archive;
use types::ErrorKind;
use types::vector::PartitionId;
use uuid::Uuid;

use crate::heap::{Growth, alone};

const EVENTS: i64 = 300_000;
const EVENTS_PER_FILE: i64 = 50_000;
const MANY_KEYS: i64 = 100_000;
const LIMIT_BYTES: usize = 32 << 20;
const BASE: i64 = 1_772_366_400_000_000;

/// One of each kind of state.
pub const AGGREGATES: [&str; 31] = [
    "count(*)",
    "sum(x)",
    "sum(d)",
    "avg(d)",
    "max(u)",
    "count(DISTINCT u)",
    "count(DISTINCT x)",
    "sum(DISTINCT x)",
    "median(x)",
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY x)",
    "approx_distinct(u)",
    "approx_median(x)",
    "first_value(u ORDER BY ts)",
    "array_agg(u ORDER BY ts)",
    "array_agg(DISTINCT u ORDER BY u)",
    "string_agg(u, ',' ORDER BY ts)",
    "last_n(u, 20)",
    "top_k(u, 20)",
    "var_pop(x)",
    "corr(x, d)",
    "sequence_match('(?1)(?2)', ts, x >= 0, x > 10)",
    "window_funnel('1h', ts, x >= 0, x > 10)",
    "session_count(ts, '1s')",
    "longest_gap(ts)",
    "retention(x > 5, x > 10)",
    "avg(x)",
    "last_value(u ORDER BY ts)",
    "stddev(x)",
    "regr_slope(x, d)",
    "sequence_count('(?1).*(?2)', ts, x >= 0, x > 10)",
    "window_funnel('1d', 'strict_order', ts, x >= 0, x > 10)",
];

/// The stream `one` has one key, and `many` has a key for every few events.
fn stream_sql(name: &str) -> String {
    format!(
        "CREATE STREAM {name} (ts TIMESTAMPTZ NOT NULL, k TEXT, x BIGINT, d DECIMAL(18, 2), u TEXT) \
         WITH (format = 'json', event_time = 'ts', keep_raw = false)"
    )
}

/// A number that does not grow with `i`, but depends on it alone.
pub fn mixed(i: i64) -> i64 {
    (i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64) as u64 >> 20) as i64
}

async fn archive(harness: &Harness, stream: &str, keys: i64) {
    let definition = parse_stream(&stream_sql(stream)).unwrap();
    for (number, from) in (0..EVENTS).step_by(EVENTS_PER_FILE as usize).enumerate() {
        let all = || from..from + EVENTS_PER_FILE;
        let times: Vec<i64> = all().map(|i| BASE + mixed(i) % 86_400_000_000).collect();
        let time = || Arc::new(TimestampMicrosecondArray::from(times.clone()).with_timezone("UTC"));
        let decimals = Decimal128Array::from_iter_values(all().map(i128::from)).with_precision_and_scale(18, 2).unwrap();
        let columns: Vec<ArrayRef> = vec![
            time(),
            Arc::new(StringArray::from_iter_values(all().map(|i| format!("key {:08}", mixed(i) % keys)))),
            Arc::new(Int64Array::from_iter_values(all())),
            Arc::new(decimals),
            Arc::new(StringArray::from_iter_values(all().map(|i| format!("a value of some length {i:08}")))),
            time(),
            Arc::new(StringArray::from_iter_values(all().map(|_| stream))),
            Arc::new(Int32Array::from_iter_values(all().map(|_| 0))),
            Arc::new(Int64Array::from_iter_values(all())),
            time(),
        ];
        let batch = RecordBatch::try_new(event_schema(&definition), columns).unwrap();
        let id = Uuid::now_v7();
        let file = write_archive(&harness.storage, &stream.into(), id, 1, vec![batch]).await.unwrap();
        let from = number as i64 * EVENTS_PER_FILE;
        let range = CheckpointRange {
            clock: Some(BASE),
            max_event_time: Some(BASE),
            ..CheckpointRange::of_events(PartitionId::new(stream, 0), from, from + EVENTS_PER_FILE)
        };
        let record = CheckpointRecord::new(id, "harness", now(), vec![range]);
        harness.catalog.commit(checkpoint_commit(record, vec![file], &BTreeMap::new())).await.unwrap();
    }
}

#[test]
fn a_run_of_any_aggregate_holds_little_more_than_its_limit() {
    alone("run_memory::a_run_of_any_aggregate_holds_little_more_than_its_limit", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::new().await.unwrap();
            let (mut past, mut near) = (Vec::new(), 0);
            for (stream, keys) in [("one", 1), ("many", MANY_KEYS)] {
                harness.define(&[(Stream, stream, &stream_sql(stream))]).await.unwrap();
                archive(&harness, stream, keys).await;
                for (number, aggregate) in AGGREGATES.iter().enumerate() {
                    let (held, reserved) = held_by_a_run(&harness, stream, &format!("{stream}_{number}"), aggregate).await;
                    println!("{aggregate} of {stream}: {} MiB held, {reserved:?} reserved", held >> 20);
                    // What Partial has of one key cannot be handed on early: it may be refused, within the limit.
                    assert!(reserved.is_some() || keys == 1, "{aggregate} of many keys is refused");
                    near += usize::from(reserved.is_some_and(|reserved| reserved > LIMIT_BYTES / 2));
                    // On a busy machine a quarter more was seen of these.
                    let most = if aggregate.contains("_agg(u") { 1.4 } else { 1.2 };
                    if held as f64 > most * LIMIT_BYTES as f64 {
                        past.push(format!("{aggregate} of {stream}: {held} bytes"));
                    }
                }
            }
            assert!(near > AGGREGATES.len() / 2, "only {near} runs came near the limit");
            assert!(past.is_empty(), "expected at most {LIMIT_BYTES} bytes and a fifth, or two fifths of lists: {past:#?}");
        });
    });
}

/// The growth of the heap while a view's run is under way, and what the run says it reserved at most; `None` if it was
/// refused.
async fn held_by_a_run(harness: &Harness, stream: &str, view: &str, aggregate: &str) -> (usize, Option<usize>) {
    let sql = format!("CREATE VIEW {view} AS SELECT k, {aggregate} AS a FROM {stream} GROUP BY k");
    harness.define(&[(View, view, &sql)]).await.unwrap();
    let mut batch = harness.batch_layer(LIMIT_BYTES);
    batch.settings.events_per_bucket = 50_000;
    let request = RunRequest { mode: RunMode::Full, ..RunRequest::new(view, RunTime::EventClock) };
    let growth = Growth::begin();
    let run = batch.run(request, Arc::new(now), &|_| {}).await;
    let held = growth.bytes();
    match run {
        Ok(run) => {
            assert_eq!(run.status, RunStatus::Succeeded, "{aggregate} of {stream}");
            (held, Some(run.peak_memory_bytes as usize))
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Limit, "{aggregate} of {stream}: {error}");
            (held, None)
        }
    }
}
