use basestream_bench::compaction;
use basestream_bench::report::Figure;

use super::{assert_all_reported, is_verdict, programs};

#[tokio::test(flavor = "multi_thread")]
async fn little_is_left_of_many_checkpoints_and_days() {
    let options =
        compaction::Options { checkpoints: 24, events_of_one: 5, keys: 10, days: 3, workers: 2, checkpoint_bytes: 100_000, commits: 5 };
    let folder = tempfile::tempdir().unwrap();
    let report = compaction::run(&options, &programs(), folder.path(), "bench compaction").await.unwrap();
    let [files, days] = &report.tables[..] else { panic!("{report}") };
    assert_eq!(files.rows[0][1..3], [Figure::Count(24), Figure::Count(1)], "{report}");
    assert!(files.rows[1..4].iter().all(|row| is_verdict(&row[3])), "{report}");
    assert_eq!(days.rows[0][1], Figure::Count(3 * 2 * 8_640), "{report}");
    assert!(matches!(days.rows[2][1], Figure::Count(1..20)), "{report}");
    assert!(matches!(days.rows[3][1], Figure::Count(720..900)), "an hour as it was committed, and little more: {report}");
    assert!(days.rows[5..].iter().all(|row| is_verdict(&row[2])), "{report}");
    assert_all_reported(&report);
}
