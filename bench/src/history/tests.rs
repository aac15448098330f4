use super::*;

#[test]
fn a_series_that_did_not_run_is_not_reported() {
    let copied = || Copied { changed_bytes: 2_048.0, copied_bytes: 1_024.0 };
    let series = Series {
        next: 0,
        runs: Vec::new(),
        full_copy: copied(),
        copies: Vec::new(),
        new_bytes: 0,
        tiers: 0,
        full_took: Duration::from_secs(1),
        after_series: Vec::new(),
        after_full: Vec::new(),
    };
    assert_eq!(series.table(&Options::default()), None);
    let of_runs = |copies: &[Copied]| copying::table(&series.full_copy, copies).rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>();
    assert_eq!(of_runs(&series.copies), ["a full run"].map(Figure::text));
    assert_eq!(of_runs(&[copied()]), ["a full run", "each of the series"].map(Figure::text));
}
