use basestream_bench::report::Figure;
use basestream_bench::sinks;

use super::{assert_told, programs};

#[tokio::test(flavor = "multi_thread")]
async fn every_event_has_its_record_at_a_rate_from_a_backlog_and_over_http() {
    let options = sinks::Options { rates: vec![300], events: 2_000, scored: 50, keys: 20, views: 3, seconds: 0.5, repeats: 2 };
    let folder = tempfile::tempdir().unwrap();
    // An event without a record, or with two, or out of order, is an error.
    let report = sinks::run(&options, &programs(), folder.path(), "bench sinks").await.unwrap();
    let rows = &report.tables[0].rows;
    assert!(rows.len() == 1 && rows.iter().all(|row| matches!(row[1], Figure::Count(records) if records > 50)), "{report}");
    assert!(matches!(&report.tables[1].rows[0][1], Figure::PerSecond(rate) if rate.min > 0.0), "{report}");
    let scored = &report.tables[2].rows;
    assert!(scored.len() == 4 && scored.iter().all(|row| matches!(row[2], Figure::Count(scored) if scored > 5)), "{report}");
    assert_told(&report);
}
