use basestream_bench::alerts;
use basestream_bench::report::Figure;

use super::{assert_all_reported, programs};

#[tokio::test(flavor = "multi_thread")]
async fn each_device_that_falls_silent_or_comes_into_a_ring_has_one_record() {
    let options =
        alerts::Options { keys: 800, rate: 100, silence: 8, falling: 10, seconds: 4.0, ring_nodes: 300, ring_rate: 100, rings: 10 };
    let folder = tempfile::tempdir().unwrap();
    // A record too few, too many, of another time or with other links is an error.
    let report = alerts::run(&options, &programs(), folder.path(), "bench alerts").await.unwrap();
    let [silences, costs, rings, costs_of_rings] = &report.tables[..] else { panic!("{report}") };
    assert_eq!((silences.rows.len(), costs.rows.len(), rings.rows.len(), costs_of_rings.rows.len()), (2, 2, 1, 2), "{report}");
    // On a busy machine a stretch may end before the first one is due.
    assert!(silences.rows.iter().chain(&rings.rows).any(|row| matches!(row[1], Figure::Count(1..))), "{report}");
    assert_all_reported(&report);
}
