use basestream_bench::history;
use basestream_bench::purchases::Purchases;
use basestream_bench::report::Figure;

use super::{assert_all_reported, is_verdict, programs};

#[tokio::test(flavor = "multi_thread")]
async fn runs_cost_what_is_new() {
    let purchases = Purchases { strategy: types::Strategy::Incremental, ..Purchases::with_size(20_000, 300) };
    let options =
        history::Options { purchases, graph: history::links::graph(0.005), repeats: 2, runs: 6, lookups: 50, together_events: 20_000 };
    let folder = tempfile::tempdir().unwrap();
    // A run that recomputes where it should add, or runs where nothing is new, is an error.
    let report = history::run(&options, &programs(), folder.path(), "bench history").await.unwrap();
    let [runs, series, copied, slices, beside, links, together] = &report.tables[..] else { panic!("{report}") };
    let read: Vec<_> = runs.rows.iter().map(|row| row[1].clone()).collect();
    assert_eq!(read, [16_286, 16, 162, 1_628, 0].map(Figure::Count), "{report}");
    assert!(runs.rows[1..].iter().all(|row| is_verdict(&row[4])), "{report}");
    assert!(matches!(series.rows[4][1], Figure::Count(2..6)), "{report}");
    // Each of the series copies something, and less than all.
    let [full, each] = [0, 1].map(|row| match &copied.rows[row][2] {
        Figure::Number(kib) => *kib,
        other => panic!("{other:?}: {report}"),
    });
    assert!(each.min > 0.0 && each.max < full.min && copied.rows.iter().all(|row| is_verdict(&row[3])), "{report}");
    assert!(slices.rows.len() == 3 && slices.rows[1..].iter().all(|row| is_verdict(&row[2])), "{report}");
    assert_eq!(beside.rows.len(), 3, "{report}");
    let read: Vec<_> = links.rows.iter().map(|row| row[1].clone()).collect();
    assert_eq!(read, [9_183, 8, 81, 818].map(Figure::Count), "{report}");
    assert!(links.rows[1..].iter().all(|row| is_verdict(&row[4])), "{report}");
    assert!(together.rows.len() == 2 && is_verdict(&together.rows[1][2]), "{report}");
    assert_all_reported(&report);
}
