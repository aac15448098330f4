use basestream_bench::freshness;
use basestream_bench::report::Figure;

use super::{assert_all_reported, is_verdict, programs};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_acknowledged_is_counted_also_on_real_services() {
    let sources = vec!["embedded".to_owned(), "kafka".to_owned()];
    let options =
        freshness::Options { rates: vec![200], keys: 50, sources, seconds: 0.5, repeats: 2, probes: 40.0, building_events: 20_000 };
    let folder = tempfile::tempdir().unwrap();
    // One that is not counted, or twice, or any that arrived and is not counted in the end, is an error.
    let report = freshness::run(&options, &programs(), folder.path(), "bench freshness").await.unwrap();
    let rows = &report.tables[0].rows;
    assert!(!rows.is_empty() && rows.iter().all(|row| matches!(row[2], Figure::Count(probes) if probes > 2)), "{report}");
    // A view that is not built by a run, or counts other events, is an error.
    let [before, during] = &report.tables[1].rows[..] else { panic!("{report}") };
    let is_probed = |row: &Vec<Figure>| matches!(row[2], Figure::Count(probes) if probes > 2);
    let has_memory = |row: &Vec<Figure>| matches!(row[6], Figure::Bytes(own) if own.min > 1e6);
    assert!([before, during].into_iter().all(|row| is_probed(row) && has_memory(row)), "{report}");
    let [Figure::Ratio(_), noise, memory, Figure::Seconds(_)] = &during[7..] else { panic!("{report}") };
    assert!(is_verdict(noise) && is_verdict(memory), "{report}");
    assert_all_reported(&report);
}
