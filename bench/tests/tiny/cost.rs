use basestream_bench::cost;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_reported_per_event_and_per_key() {
    let options = cost::Options { events: vec![5_000, 10_000], keys: vec![50, 500], ..cost::Options::default() };
    let folder = tempfile::tempdir().unwrap();
    let report = cost::run(&options, &programs(), folder.path(), "bench cost").await.unwrap();
    assert_eq!(report.tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [4, 4]);
    for row in &report.tables[0].rows {
        // The text of an event has 260 bytes; what is stored of it is more than nothing and not much more than that.
        // The log's write-ahead log may still hold each event once or twice more.
        let bytes = row[3..7].iter().all(|figure| matches!(figure, Figure::Number(each) if (0.1..1_500.0).contains(&each.median)));
        assert!(bytes && matches!(row[8], Figure::Number(each) if each.median > 1.0), "{row:?}");
    }
    assert_all_reported(&report);
}
