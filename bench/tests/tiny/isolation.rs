use basestream_bench::isolation;
use basestream_bench::purchases::Purchases;
use basestream_bench::report::Figure;

use super::{assert_all_reported, is_verdict, programs};

#[tokio::test(flavor = "multi_thread")]
async fn random_keys_are_looked_up_beside_scans_and_runs() {
    let options = isolation::Options { purchases: Purchases::with_size(20_000, 500), scanners: 2, seconds: 0.5, repeats: 2 };
    let folder = tempfile::tempdir().unwrap();
    // A scan or a lookup that is refused is an error.
    let report = isolation::run(&options, &programs(), folder.path(), "bench isolation").await.unwrap();
    let [lookups, aims] = &report.tables[..] else { panic!("{report}") };
    assert_eq!((lookups.rows.len(), aims.rows.len()), (8, 6), "{report}");
    assert!(lookups.rows.iter().all(|row| matches!(row[2], Figure::Count(2..))), "{report}");
    assert!(!lookups.rows[2][0].to_string().ends_with(" 0 scans"), "{report}");
    assert!(aims.rows.iter().all(|row| is_verdict(&row[3])), "{report}");
    assert_all_reported(&report);
}
