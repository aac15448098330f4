use basestream_bench::alerts;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn each_device_that_falls_silent_has_one_record() {
    let options = alerts::Options { keys: 800, rate: 100, silence: 8, falling: 10, seconds: 4.0 };
    let folder = tempfile::tempdir().unwrap();
    // A record too few, too many or of another time is an error.
    let report = alerts::run(&options, &programs(), folder.path(), "bench alerts").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!((rows.len(), report.tables[1].rows.len()), (2, 2), "{report}");
    assert!(rows.iter().all(|row| matches!(row[1], Figure::Count(1..))), "{report}");
    assert_all_reported(&report);
}
