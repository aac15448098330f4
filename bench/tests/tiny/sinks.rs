use basestream_bench::report::Figure;
use basestream_bench::sinks;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn every_event_has_its_record_at_a_rate_from_a_backlog_and_over_http() {
    let options =
        sinks::Options { rates: vec![300], events: 2_000, peer_events: 0, scored: 50, keys: 20, views: 3, seconds: 0.5, repeats: 2 };
    let folder = tempfile::tempdir().unwrap();
    // An event without a record, or with two, or out of order, is an error.
    let report = sinks::run(&options, &programs(), folder.path(), "bench sinks").await.unwrap();
    let rows = &report.tables[0].rows;
    assert!(rows.len() == 1 && rows.iter().all(|row| matches!(row[1], Figure::Count(records) if records > 50)), "{report}");
    assert!(matches!(&report.tables[1].rows[0][1], Figure::PerSecond(rate) if rate.min > 0.0), "{report}");
    let scored = &report.tables[2].rows;
    assert!(scored.len() == 4 && scored.iter().all(|row| matches!(row[2], Figure::Count(scored) if scored > 5)), "{report}");
    assert_all_reported(&report);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn what_a_sink_puts_out_on_real_services_is_what_flink_does() {
    let options =
        sinks::Options { rates: Vec::new(), events: 0, peer_events: 5_000, scored: 0, keys: 50, views: 1, seconds: 0.5, repeats: 1 };
    let folder = tempfile::tempdir().unwrap();
    let report = sinks::run(&options, &programs(), folder.path(), "bench sinks").await.unwrap();
    let beside = report.tables.last().unwrap();
    // Without Flink, a note says so.
    match beside.rows.len() {
        0 => assert!(beside.notes.iter().any(|note| note.contains("Flink is not installed")), "{report}"),
        _ => assert_eq!(beside.rows.len(), 2, "{report}"),
    }
}
