//! An alert whose topic takes no records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{ALERT_STALLED, Flaky, Fresh, MUCH, Process, ServingClock, append, harness, put_out, state, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_whose_topic_takes_no_records_says_so_and_puts_each_begin_out_once_it_does() {
    let harness = harness(&[("much", MUCH)]).await;
    let is_refused = Arc::new(AtomicBool::new(true));
    let (log, fresh) = (Flaky::refusing(harness.log.clone(), &is_refused), Fresh::default());
    let node = harness.node(ServingClock::Wall, Some(fresh.clone())).await.unwrap();
    let process = Process::start_on(log, node, Some(fresh), &harness, "w0");
    append(&harness, &[(0, 3), (1, 1)]).await;
    until("the process to say it", async || {
        let outage = process.stalled.outage();
        outage.is_some_and(|outage| outage.what == ALERT_STALLED && outage.error.starts_with("the alert \"much\": the log does not answer"))
    })
    .await;
    append(&harness, &[(1, 2)]).await;
    assert!(put_out(&harness, "much").await.is_empty());
    is_refused.store(false, Ordering::Relaxed);
    until("both records", async || put_out(&harness, "much").await.len() == 2).await;
    until("the process to say no more of it", async || process.stalled.outage().is_none()).await;
    process.finish().await;
    for (key, records) in put_out(&harness, "much").await {
        let states: Vec<&str> = records.iter().map(|record| state(Some(record))).collect();
        assert_eq!(states, ["began"], "{key}");
    }
}

/// As where only one of two processes may write to the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_cannot_put_records_out_leaves_the_alert_to_one_that_can() {
    let harness = harness(&[("much", MUCH)]).await;
    let (log, fresh) = (Flaky::refusing(harness.log.clone(), &Arc::new(AtomicBool::new(true))), Fresh::default());
    let node = harness.node(ServingClock::Wall, Some(fresh.clone())).await.unwrap();
    let process = Process::start_on(log, node, Some(fresh), &harness, "w0");
    append(&harness, &[(0, 3)]).await;
    until("the process to say it", async || process.stalled.outage().is_some()).await;
    let other = Process::start(&harness, "w1", false, &Arc::default()).await;
    until("the record", async || put_out(&harness, "much").await.len() == 1).await;
    process.finish().await;
    other.finish().await;
}
