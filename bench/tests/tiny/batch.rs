use basestream_bench::batch;
use basestream_bench::purchases::{Purchases, SMALL_AGGREGATES};
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_recompute_answers_as_everybody_does() {
    let options = batch::Options { purchases: Purchases::with_size(20_000, 1_500), repeats: 1, ..batch::Options::default() };
    let (programs, folder) = (programs(), tempfile::tempdir().unwrap());
    // Answers that differ are an error.
    let report = batch::run(&options, &programs, folder.path(), "bench batch").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), if programs.python.is_some() { 9 + usize::from(programs.polars_version().is_some()) } else { 3 });
    for row in rows {
        let reported = row[10].to_string();
        let count: usize = reported.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{reported}"));
        assert!(count > 1_000 && row.iter().any(|figure| matches!(figure, Figure::Seconds(_))), "{row:?}");
    }
    let held: Vec<String> =
        rows.iter().rev().take(2).flat_map(|row| [row[11].to_string(), row[12].to_string(), row[13].to_string()]).collect();
    assert!(programs.python.is_none() || held.iter().all(|figure| figure.ends_with("met") || figure.ends_with("missed")), "{held:?}");
    assert_eq!(report.tables[1].rows.len(), 2, "{report}");
    assert_all_reported(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_recompute_of_small_states_answers_as_everybody_does() {
    let purchases = Purchases { aggregates: SMALL_AGGREGATES, ..Purchases::with_size(5_000, 300) };
    let options = batch::Options { purchases, repeats: 1, ..batch::Options::default() };
    let (programs, folder) = (programs(), tempfile::tempdir().unwrap());
    let report = batch::run(&options, &programs, folder.path(), "bench batch --without-distinct").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), if programs.python.is_some() { 7 + usize::from(programs.polars_version().is_some()) } else { 3 });
    assert!(rows.iter().all(|row| row[10].to_string().ends_with("as all others")), "{report}");
}
