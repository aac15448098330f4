use basestream_bench::freshness;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_acknowledged_is_counted_also_on_real_services() {
    let sources = vec!["embedded".to_owned(), "kafka".to_owned()];
    let options = freshness::Options { rates: vec![200], keys: 50, sources, seconds: 0.5, repeats: 2, probes: 40.0 };
    let folder = tempfile::tempdir().unwrap();
    // One that is not counted, or twice, or any that arrived and is not counted in the end, is an error.
    let report = freshness::run(&options, &programs(), folder.path(), "bench freshness").await.unwrap();
    let rows = &report.tables[0].rows;
    assert!(!rows.is_empty() && rows.iter().all(|row| matches!(row[2], Figure::Count(probes) if probes > 2)), "{report}");
    assert_all_reported(&report);
}
