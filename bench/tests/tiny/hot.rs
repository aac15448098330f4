use basestream_bench::hot;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_is_counted_while_others_are_asked() {
    let options = hot::Options {
        hot_events: 30_000,
        other_events: 2_000,
        keys: 50,
        clients: vec![2],
        rate: 200,
        backlog: 20_000,
        seconds: 0.5,
        repeats: 2,
    };
    let folder = tempfile::tempdir().unwrap();
    // A hot key that is counted otherwise is an error, and so is an answer that is none.
    let report = hot::run(&options, &programs(), folder.path(), "bench hot").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), 1 + 2 + 3 + 3, "{report}");
    assert!(rows.iter().all(|row| matches!(row[2], Figure::Count(1..))), "{report}");
    assert_eq!(report.tables[1].rows.len(), 4, "{report}");
    assert_eq!((report.tables[2].rows.len(), report.tables[3].rows.len()), (4, 2), "{report}");
    assert_all_reported(&report);
}
