use basestream_bench::report::Figure;
use basestream_bench::run_memory::{AGGREGATES, Options, run};

use super::{assert_all_reported, is_verdict, programs};

#[tokio::test(flavor = "multi_thread")]
async fn each_aggregate_is_run_with_one_key_and_with_many() {
    let options = Options { events: 2_000, keys: 50, limit_bytes: 256 << 20, ..Options::default() };
    let folder = tempfile::tempdir().unwrap();
    let report = run(&options, &programs(), folder.path(), "bench run-memory").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), 2 * AGGREGATES.len());
    for (nth, row) in rows.iter().enumerate() {
        assert_eq!(row[0], Figure::text(AGGREGATES[nth % AGGREGATES.len()]));
        assert!(matches!(&row[3], Figure::Bytes(own) if own.min > 1e6) && is_verdict(&row[4]), "{row:?}");
    }
    assert_all_reported(&report);
}
