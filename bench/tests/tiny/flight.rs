use basestream_bench::flight;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn every_way_reads_the_whole_view() {
    let options = flight::Options { rows: 20_000, columns: 20, repeats: 2, ..flight::Options::default() };
    let folder = tempfile::tempdir().unwrap();
    // Rows that differ from the events are an error.
    let report = flight::run(&options, &programs(), folder.path(), "bench flight").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), 3 + usize::from(options.postgres.is_some()), "{report}");
    for row in rows {
        assert!(matches!((&row[3], &row[5]), (Figure::Number(rate), Figure::Number(wire)) if rate.min > 0.0 && wire.min > 1.0), "{row:?}");
    }
    assert_all_reported(&report);
}
