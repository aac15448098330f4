use std::time::Duration;

use basestream_bench::ingest;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ingested_is_committed_and_counted_once() {
    let (events, keys, aggregates) = (20_000, vec![100, 10_000], vec![1, 5, 20]);
    let sources = vec!["embedded".to_owned()];
    let options = ingest::Options { events, keys, aggregates, sources, repeats: 1, sizes: vec![2_000], ..ingest::Options::default() };
    let folder = tempfile::tempdir().unwrap();
    // A record that is not committed, a ledger that does not balance, a count or sum that is wrong: each is an error.
    let report = ingest::run(&options, &programs(), folder.path(), "bench ingest").await.unwrap();
    assert_eq!((report.tables[0].rows.len(), report.tables[1].rows.len()), (10, 2));
    for row in &report.tables[0].rows {
        assert!(matches!(row[5], Figure::PerSecond(rate) if rate.median > 0.0) && row[11] != Figure::Count(0), "{row:?}");
    }
    assert_all_reported(&report);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs services: just test-services"]
async fn what_is_ingested_on_real_services_is_what_flink_counts() {
    let [_] = basestream_tests::services::needed(["BASESTREAM_TEST_KAFKA"]);
    let (events, keys, aggregates, sources) = (5_000, vec![100], vec![5], vec!["kafka".to_owned()]);
    let timeout = Duration::from_secs(120);
    let options = ingest::Options { events, keys, aggregates, sources, repeats: 1, sizes: Vec::new(), timeout };
    let folder = tempfile::tempdir().unwrap();
    // A wrong answer is an error, Flink's too where bench/peers/setup installed it. Some of its runs never end: they
    // are given up.
    let report = ingest::run(&options, &programs(), folder.path(), "bench ingest").await.unwrap();
    let reported = |row: &Vec<Figure>| matches!(row[5], Figure::PerSecond(_)) || row[0].to_string().contains("given up");
    assert!(report.tables[0].rows.iter().all(reported) && matches!(report.tables[0].rows[0][5], Figure::PerSecond(_)), "{report}");
    assert_all_reported(&report);
}
