use basestream_bench::report::Figure;
use basestream_bench::start;

use super::{assert_all_reported, is_verdict, programs};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_starts_again_and_counts_all_that_was_committed_and_one_ends_when_it_is_asked_to() {
    let options = start::Options {
        keys: vec![300],
        events_per_key: 3,
        checkpoints: 5,
        checkpoint_events: 40,
        repeats: 1,
        stop_checkpoints: 1_200,
        restart_checkpoints: 12,
        restart_events: 16,
        restart_partitions: 6,
    };
    let folder = tempfile::tempdir().unwrap();
    // A row that lacks events of the snapshot or of the segments is an error.
    let report = start::run(&options, &programs(), folder.path(), "bench start").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), 2, "{report}");
    for row in rows {
        assert!(matches!(&row[2..4], [Figure::Count(segments @ 5..), Figure::Count(200)] if *segments < 20), "{row:?}");
        assert!(matches!(&row[5..8], [Figure::Seconds(_), Figure::Seconds(_), Figure::Seconds(_)]), "{row:?}");
    }
    let [stop] = &report.tables[1].rows[..] else { panic!("{report}") };
    assert!(matches!(&stop[..3], [Figure::Count(1_200), Figure::Seconds(_), Figure::Seconds(_)]) && is_verdict(&stop[3]), "{stop:?}");
    // The window of deduplication holds all checkpoints, and none.
    for (row, dedup_within) in report.tables[2].rows.iter().zip(["1d", "1s"]) {
        assert!(matches!(&row[..2], [Figure::Count(12..), Figure::Count(6)]) && row[2] == Figure::text(dedup_within), "{row:?}");
        assert!(matches!(&row[3..5], [Figure::Seconds(_), Figure::Seconds(_)]) && is_verdict(&row[5]), "{row:?}");
    }
    assert_eq!(report.tables[2].rows.len(), 2, "{report}");
    assert_all_reported(&report);
}
