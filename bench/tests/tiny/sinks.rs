use basestream_bench::report::{Figure, Report};
use basestream_bench::sinks;

use super::{assert_all_reported, programs};

fn options() -> sinks::Options {
    sinks::Options {
        rates: vec![300],
        events: 2_000,
        sources: vec!["embedded".into()],
        peer_rates: Vec::new(),
        peer_events: 0,
        checkpoints: vec![1],
        scored: 0,
        keys: 20,
        views: 3,
        seconds: 0.5,
        repeats: 2,
        ..sinks::Options::default()
    }
}

/// One log: records at a rate, and of a backlog.
fn assert_measured(report: &Report, log: &str) {
    let [at_rate] = &report.tables[0].rows[..] else { panic!("{report}") };
    assert!(at_rate[0] == Figure::text(log) && matches!(at_rate[2], Figure::Count(records) if records > 50), "{report}");
    let [backlog] = &report.tables[1].rows[..] else { panic!("{report}") };
    assert!(backlog[0] == Figure::text(log) && matches!(backlog[2], Figure::PerSecond(rate) if rate.min > 0.0), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_has_its_record_at_a_rate_from_a_backlog_and_over_http() {
    let folder = tempfile::tempdir().unwrap();
    // An event without a record, or with two, or out of order, is an error.
    let options = sinks::Options { scored: 50, ..options() };
    let report = sinks::run(&options, &programs(), folder.path(), "bench sinks").await.unwrap();
    assert_measured(&report, "embedded log");
    let scored = &report.tables[2].rows;
    assert!(scored.len() == 4 && scored.iter().all(|row| matches!(row[2], Figure::Count(scored) if scored > 5)), "{report}");
    assert_eq!(report.tables.len(), 3, "{report}");
    assert_all_reported(&report);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn every_event_has_its_record_on_kafka() {
    let [_] = basestream_tests::services::needed(["BASESTREAM_TEST_KAFKA"]);
    let folder = tempfile::tempdir().unwrap();
    let options = sinks::Options { sources: vec!["kafka".into()], ..options() };
    let report = sinks::run(&options, &programs(), folder.path(), "bench sinks").await.unwrap();
    assert_measured(&report, "Kafka");
    assert_all_reported(&report);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn what_a_sink_puts_out_on_real_services_is_what_flink_does() {
    let folder = tempfile::tempdir().unwrap();
    let options = sinks::Options { sources: Vec::new(), peer_rates: vec![300], peer_events: 5_000, keys: 50, repeats: 1, ..options() };
    // A record without an event, or with another count or sum of its account, is an error.
    let report = sinks::run(&options, &programs(), folder.path(), "bench sinks").await.unwrap();
    // Without Flink, a note says so.
    match &report.tables[3..] {
        [left_out] => assert!(left_out.notes.iter().any(|note| note.contains("Flink is not installed")), "{report}"),
        [backlog, at_rate] => {
            // With checkpoints both, and Flink also without.
            assert_eq!((backlog.rows.len(), at_rate.rows.len()), (3, 2), "{report}");
            let is_ratio = |row: &Vec<Figure>, column: usize| matches!(row[column], Figure::Ratio(ratio) if ratio.min > 0.0);
            assert!(is_ratio(&backlog.rows[0], 4) && is_ratio(&backlog.rows[0], 5) && is_ratio(&at_rate.rows[0], 6), "{report}");
            assert!(at_rate.rows.iter().all(|row| matches!(row[3], Figure::Count(records) if records > 50)), "{report}");
        }
        _ => panic!("{report}"),
    }
    assert_all_reported(&report);
}
