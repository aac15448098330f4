use basestream_bench::freshness::apart;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_apart_count_an_event_that_was_acknowledged() {
    let options = apart::Options { rates: vec![200], keys: 50, nodes: 2, seconds: 0.5, repeats: 2, probes: 20.0 };
    let folder = tempfile::tempdir().unwrap();
    let report = apart::run(&options, &programs(), folder.path(), "bench freshness-apart").await.unwrap();
    let rows = &report.tables[0].rows;
    assert!(rows.len() == 2 && rows.iter().all(|row| matches!(row[2], Figure::Count(probes) if probes > 2)), "{report}");
    assert_all_reported(&report);
}
