//! Keys for which JSON has no number, of which the catalog keeps as JSON that they are open.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use basestream_tests::{Harness, records_of, until};
use catalog::DefinitionKind;
use serde_json::{Value, json};

use super::{PARTITIONS, Process, now, show_logs, state};

const STREAM: &str = "CREATE STREAM s (ts TIMESTAMPTZ NOT NULL OPTIONS (unit = 'us'), x DOUBLE) WITH (topic = 'in', event_time = 'ts')";
/// The logarithm of a negative number is NaN, and that of zero minus infinity.
const VIEW: &str = "CREATE VIEW logarithms AS SELECT ln(x) AS k, count(*) AS n FROM s GROUP BY ln(x)";
const TWICE: &str = "CREATE ALERT twice WITH (topic = 'twice') AS SELECT k, n FROM logarithms WHERE n >= 2";

/// Each of these numbers two times.
async fn append(harness: &Harness, numbers: &[Option<f64>]) {
    let event = |x: &Option<f64>| (None, json!({ "ts": now(), "x": x }).to_string());
    harness.append("in", PARTITIONS, numbers.iter().chain(numbers).map(event).collect()).await.unwrap();
}

async fn until_put_out(harness: &Harness, count: usize) -> Vec<Value> {
    until("records of the alert", async || records_of(&*harness.log, "twice").await.unwrap().len() >= count).await;
    let records = records_of(&*harness.log, "twice").await.unwrap();
    records.iter().map(|(_, record)| serde_json::from_slice(record.value.as_deref().unwrap()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_null_nan_and_infinite_begin_once_each_though_their_process_dies() {
    show_logs();
    let harness = Harness::new().await.unwrap();
    harness.log.create_topic("in", PARTITIONS).await.unwrap();
    harness.log.create_topic("twice", 1).await.unwrap();
    let definitions =
        [(DefinitionKind::Stream, "s", STREAM), (DefinitionKind::View, "logarithms", VIEW), (DefinitionKind::Alert, "twice", TWICE)];
    harness.define(&definitions).await.unwrap();
    let failed = Arc::new(AtomicUsize::new(0));

    let process = Process::start(&harness, "w1", true, &failed).await;
    append(&harness, &[Some(1.0), Some(-1.0), Some(0.0), None]).await;
    until_put_out(&harness, 4).await;
    process.kill().await;

    let process = Process::start(&harness, "w2", true, &failed).await;
    append(&harness, &[Some(2.0)]).await;
    let records = until_put_out(&harness, 5).await;
    process.finish().await;
    assert_eq!(records.len(), 5, "{records:#?}");
    assert!(records.iter().all(|record| state(Some(record)) == "began"), "{records:#?}");
    let ids: BTreeSet<&str> = records.iter().map(|record| record["_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 5, "{records:#?}");
}
