use basestream_bench::lookups_during_run;
use basestream_bench::purchases::Purchases;
use basestream_bench::report::Figure;

use super::{assert_all_reported, is_verdict, programs};

#[tokio::test(flavor = "multi_thread")]
async fn random_keys_are_looked_up_while_the_same_process_runs_batch() {
    let options = lookups_during_run::Options { purchases: Purchases::with_size(20_000, 500), clients: 2, seconds: 0.5, repeats: 2 };
    let folder = tempfile::tempdir().unwrap();
    // A run that fails is an error, and so is a lookup that is refused.
    let report = lookups_during_run::run(&options, &programs(), folder.path(), "bench lookups-during-run").await.unwrap();
    let [lookups, aims] = &report.tables[..] else { panic!("{report}") };
    assert_eq!(lookups.rows.len(), 4, "{report}");
    assert!(lookups.rows.iter().all(|row| matches!(row[2], Figure::Count(2..))), "{report}");
    assert_eq!(aims.rows.len(), 3, "{report}");
    assert!(aims.rows.iter().filter(|row| is_verdict(&row[2])).count() == 2, "{report}");
    assert_all_reported(&report);
}
