use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::Schema;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;
use tokio::time::Instant;
use types::{ErrorKind, Reason};

use crate::harness::{Harness, event};
use crate::limits::ServingLimits;
use crate::sql::QueryResponse;
use crate::sql::light::FEW_CALLS;
use crate::sql::view::FEW_KEYS;
use crate::{Node, NodeSettings};

use super::*;

/// Takes hours, if it is let.
const ENDLESS: &str = "SELECT a.value FROM range(1, 2000000000) a CROSS JOIN range(1, 2000000000) b WHERE a.value * b.value = 17";
const BRIEF: Duration = Duration::from_millis(50);

/// A node, and what it stands on.
async fn node(limits: ServingLimits) -> (Harness, Node) {
    let harness = Harness::with_settings(|settings| NodeSettings { limits, ..settings }).await;
    let node = harness.node.clone();
    (harness, node)
}

fn one() -> ServingLimits {
    ServingLimits { concurrent_queries: 1, queue_wait: BRIEF, ..ServingLimits::default() }
}

async fn begin(node: &Node, sql: &str) -> Result<QueryResponse> {
    node.query(sql, Vec::new()).await
}

async fn rows(response: QueryResponse) -> Result<usize> {
    Ok(response.collect().await?.iter().map(RecordBatch::num_rows).sum())
}

async fn ask(node: &Node, sql: &str) -> Result<usize> {
    rows(begin(node, sql).await?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_reads_a_few_keys_waits_for_nobody() {
    let (_harness, node) = node(one()).await;
    let running = begin(&node, ENDLESS).await.unwrap();
    let lookup_of = |keys: usize| {
        let keys: Vec<String> = (0..keys).map(|key| format!("'{key}'")).collect();
        format!("SELECT * FROM velocity WHERE device IN ({})", keys.join(", "))
    };
    let calls = |calls: usize| {
        let calls: Vec<String> = (0..calls).map(|call| format!("upper(device || '{call}')")).collect();
        format!("SELECT {} FROM velocity WHERE device = 'a'", calls.join(", "))
    };
    let like = |letters: usize| format!("SELECT n_7d FROM velocity WHERE device = 'a' AND device || 'b' LIKE '{}_'", "%b".repeat(letters));
    for light in [
        "SELECT 1",
        &calls(FEW_CALLS),
        &like(10),
        &lookup_of(FEW_KEYS),
        "SELECT * FROM velocity WHERE device = 'a'",
        "SELECT device, n_7d + 1 AS n FROM velocity WHERE device IN ('a', 'b') AND n_7d > 1 ORDER BY n LIMIT 3",
        "SELECT count(*) FROM velocity WHERE device = 'a'",
        "EXPLAIN SELECT * FROM velocity",
        "SELECT * FROM totals",
    ] {
        ask(&node, light).await.unwrap_or_else(|error| panic!("{light}: {error}"));
    }
    for heavy in [
        "SELECT * FROM velocity",
        "SELECT value FROM range(0, 3)",
        &calls(FEW_CALLS + 1),
        &like(100),
        "SELECT n_7d FROM velocity WHERE device = 'a' AND device || 'b' LIKE device",
        "SELECT n_7d FROM velocity WHERE device = 'a' AND device || 'b' ~ 'a.*b'",
        "SELECT n_7d, regexp_count(device, 'a{2}') FROM velocity WHERE device = 'a'",
        &lookup_of(FEW_KEYS + 1),
        "SELECT * FROM velocity a JOIN velocity b ON a.device = b.device WHERE a.device = 'a'",
    ] {
        let error = ask(&node, heavy).await.expect_err(heavy);
        assert_eq!((error.kind(), error.fact("limit")), (ErrorKind::Busy, Some("serving.limits.queue_wait")), "{heavy}");
    }
    drop(running);
    ask(&node, "SELECT * FROM velocity").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_whose_rows_nobody_takes_leaves_its_place_and_takes_one_again() {
    let (_harness, node) = node(one()).await;
    let mut paused = begin(&node, "SELECT value FROM range(0, 30000)").await.unwrap();
    let first = paused.batches.next().await.unwrap().unwrap().num_rows();
    paused.turn.pause();
    assert_eq!(ask(&node, "SELECT value FROM range(0, 10)").await.unwrap(), 10);
    let running = begin(&node, ENDLESS).await.unwrap();
    // It is not refused: what is sent of its answer would be lost.
    let error = ask(&node, "SELECT value FROM range(0, 10)").await.expect_err("another query runs");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(paused.batches.next().now_or_never().is_none(), "another query runs");
    drop(running);
    assert_eq!(first + rows(paused).await.unwrap(), 30_000, "no row was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_ends_when_its_time_is_over() {
    let (_harness, node) = node(ServingLimits { query_time: Some(Duration::from_secs(2)), ..one() }).await;
    let error = ask(&node, ENDLESS).await.expect_err("it takes hours");
    assert_eq!((error.kind(), error.fact("limit")), (ErrorKind::Unavailable, Some("serving.limits.query_time")));
    assert!(error.reason() == Some(Reason::OutOfTime) && error.message().contains("2s"), "{error}");
    assert_eq!(ask(&node, "SELECT value FROM range(0, 10)").await.unwrap(), 10, "its place is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_of_many_rows_with_many_ends_soon_after_it_is_cancelled() {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    for condition in ["a.value * b.value % 7 = 3", "a.value % 2 = b.value % 2"] {
        let sql = format!("SELECT count(*) FROM range(0, 500000) a JOIN range(0, 500000) b ON {condition}");
        let plan = session.sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        let (plan, context) = (yielding(plan).unwrap(), session.task_ctx());
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let counting = tokio::spawn(async move {
            begun.send(()).unwrap();
            collect(plan, context).await
        });
        has_begun.await.unwrap();
        counting.abort();
        // Without a break, it goes through hundreds of millions of pairs many times.
        let ended = tokio::time::timeout(Duration::from_secs(30), counting).await.expect(condition);
        assert!(ended.unwrap_err().is_cancelled(), "{condition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_no_more_rows_than_may_be() {
    let (_harness, node) = node(ServingLimits { result_rows: Some(10), ..one() }).await;
    assert_eq!(ask(&node, "SELECT value FROM range(0, 10)").await.unwrap(), 10);
    let error = ask(&node, "SELECT value FROM range(0, 11)").await.expect_err("one more");
    assert_eq!((error.kind(), error.fact("limit")), (ErrorKind::Limit, Some("serving.limits.result_rows")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_keeps_to_the_limits_of_queries() {
    const SHARE: usize = 4 << 20;
    let (harness, node) = node(ServingLimits { result_rows: Some(1), query_memory_bytes: Some(SHARE), ..ServingLimits::default() }).await;
    let of_device = |id: &str, device: &str| event(id, "2026-03-02T11:30:00Z", device, "1.00", "ok");
    harness.fresh(0, &[of_device("1", "a"), of_device("2", "b")]).await;
    assert_eq!(ask(&node, "SELECT n_7d FROM velocity WHERE device = 'a'").await.unwrap(), 1);
    let both = begin(&node, "SELECT n_7d FROM velocity WHERE device IN ('a', 'b')").await.unwrap();
    let error = rows(both).await.expect_err("two rows");
    assert_eq!((error.kind(), error.fact("limit")), (ErrorKind::Limit, Some("serving.limits.result_rows")));

    let before = node.runtime().memory_reserved();
    let held = begin(&node, "SELECT n_7d FROM velocity WHERE device = 'a'").await.unwrap();
    assert_eq!(held.hold(SHARE + 1).expect_err("more than one query may have").kind(), ErrorKind::Limit);
    held.hold(SHARE).unwrap();
    assert_eq!(node.runtime().memory_reserved(), before + SHARE);
    drop(held);
    assert_eq!(node.runtime().memory_reserved(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_past_its_share_of_the_memory_names_the_setting_and_others_go_on() {
    let (_harness, node) = node(ServingLimits { query_memory_bytes: Some(4 << 20), ..ServingLimits::default() }).await;
    let texts = |count: u32| format!("SELECT array_agg(CAST(value AS TEXT) || repeat('x', 100)) AS texts FROM range(0, {count})");
    let other = begin(&node, "SELECT value FROM range(0, 30000)").await.unwrap();
    let error = ask(&node, &texts(200_000)).await.expect_err("20 MB do not fit 4 MiB");
    assert_eq!((error.kind(), error.fact("limit")), (ErrorKind::Limit, Some("serving.limits.query_memory")), "{error}");
    assert_eq!(rows(other).await.unwrap(), 30_000);
    assert_eq!(ask(&node, &texts(1_000)).await.unwrap(), 1);
    // Tasks of a query that ended give it back when they are dropped.
    let began = Instant::now();
    while node.runtime().memory_reserved() >= 1 << 20 {
        assert!(began.elapsed() < Duration::from_secs(60), "timed out: {} bytes are still counted", node.runtime().memory_reserved());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_past_the_memory_of_its_principal_names_the_setting() {
    let (_harness, node) = node(ServingLimits { memory_per_principal_bytes: Some(4 << 20), ..ServingLimits::default() }).await;
    let error = ask(&node, "SELECT array_agg(CAST(value AS TEXT) || repeat('x', 100)) AS texts FROM range(0, 200000)").await;
    let error = error.expect_err("20 MB do not fit 4 MiB");
    assert_eq!((error.kind(), error.fact("limit")), (ErrorKind::Limit, Some("serving.limits.memory_per_principal")), "{error}");
    assert_eq!(ask(&node, "SELECT value FROM range(0, 10)").await.unwrap(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_reads_much_runs_on_threads_of_its_own() {
    let session = datafusion::prelude::SessionContext::new();
    let thread = datafusion::logical_expr::create_udf(
        "thread",
        vec![arrow::datatypes::DataType::Int64],
        arrow::datatypes::DataType::Utf8,
        datafusion::logical_expr::Volatility::Volatile,
        Arc::new(|_| {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            Ok(datafusion::logical_expr::ColumnarValue::Scalar(datafusion::common::ScalarValue::Utf8(Some(name))))
        }),
    );
    session.register_udf(thread);
    let plan = session.sql("SELECT DISTINCT thread(value) AS t FROM range(0, 10)").await.unwrap().create_physical_plan().await.unwrap();
    let batches: Vec<_> = made_apart(plan, session.task_ctx()).collect().await;
    let shown = arrow::util::pretty::pretty_format_batches(&batches.into_iter().map(|batch| batch.unwrap()).collect::<Vec<_>>()).unwrap();
    let threads: Vec<String> = shown.to_string().lines().skip(3).map(|line| line.trim_matches(['|', ' ']).to_owned()).collect();
    assert_eq!(threads[0], "scans", "{shown}");
}

#[tokio::test]
async fn one_batch_is_made_ahead_of_those_that_were_taken() {
    let made = Arc::new(AtomicUsize::new(0));
    let (counted, schema) = (made.clone(), Arc::new(Schema::empty()));
    let batch = RecordBatch::new_empty(schema.clone());
    let batches = stream::repeat_with(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok::<_, DataFusionError>(batch.clone())
    });
    let (room, mut ahead) = mpsc::channel(MADE_AHEAD);
    let making = tokio::spawn(make(Box::pin(RecordBatchStreamAdapter::new(schema, batches)), room));
    for taken in 1..4 {
        ahead.recv().await.unwrap().unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(made.load(Ordering::Relaxed), taken + 1);
    }
    drop(ahead);
    making.await.unwrap();
}
