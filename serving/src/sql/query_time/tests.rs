use std::sync::mpsc::channel;

use types::ErrorKind;

use super::*;
use crate::NodeSettings;
use crate::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_takes_long_to_plan_ends_in_its_time_and_others_are_planned_meanwhile() {
    let limits = ServingLimits { query_time: Some(Duration::from_secs(2)), ..ServingLimits::default() };
    let node = Harness::with_settings(|settings| NodeSettings { limits, ..settings }).await.node;
    let mut plannings = Vec::new();
    // More than there are threads that answer queries.
    for _ in 1..ServingLimits::default().concurrent_queries_per_principal {
        let (release, released) = channel::<()>();
        let planning = async move { Ok(released.recv().is_ok()) };
        let node = node.clone();
        plannings.push((release, tokio::spawn(async move { node.plan_apart(planning).await })));
    }
    let rows = node.query("SELECT 1", Vec::new()).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.iter().map(arrow::array::RecordBatch::num_rows).sum::<usize>(), 1);
    for (_release, planning) in plannings {
        let error = planning.await.unwrap().expect_err("nothing ends it");
        assert_eq!((error.kind(), error.fact("limit")), (ErrorKind::Unavailable, Some("serving.limits.query_time")));
        assert_eq!(error.reason(), Some(Reason::OutOfTime));
    }
}
