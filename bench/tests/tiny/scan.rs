use basestream_bench::purchases::Purchases;
use basestream_bench::report::Figure;
use basestream_bench::scan;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn scans_have_the_rows_and_sums_of_the_events() {
    let options = scan::Options { purchases: Purchases::with_size(3_000, 400), repeats: 2, ..scan::Options::default() };
    let folder = tempfile::tempdir().unwrap();
    // Rows or sums that differ from the events are an error.
    let report = scan::run(&options, &programs(), folder.path(), "bench scan").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), 9, "{report}");
    let measured = rows.iter().filter(|row| matches!((&row[2], &row[3]), (Figure::Count(rows), Figure::Seconds(_)) if *rows > 0));
    assert_eq!(measured.count(), 8, "{report}");
    let held = rows.iter().filter(|row| ["met", "missed"].iter().any(|verdict| row[4].to_string().ends_with(verdict)));
    assert_eq!(held.count(), 5, "{report}");
    assert_all_reported(&report);
}
