//! Every benchmark at a tiny size, through its processes: none of them rots, and its answers are right. Times are not judged.

use std::path::PathBuf;

use basestream_bench::report::{Figure, Report};
use basestream_bench::{Programs, freshness, ingest, links_batch, links_lookup};

#[path = "tiny/batch.rs"]
mod batch;
#[path = "tiny/lookup.rs"]
mod lookup;

fn programs() -> Programs {
    Programs {
        bench: PathBuf::from(env!("CARGO_BIN_EXE_bench")),
        basestream: basestream_tests::process::binary().unwrap(),
        python: basestream_tests::oracle::python(),
    }
}

/// Its JSON is what it was, and both of its texts tell every row.
fn assert_told(report: &Report) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    report.write_json(&path).unwrap();
    assert_eq!(Report::read_json(&path).unwrap().markdown(), report.markdown());
    for row in report.tables.iter().flat_map(|table| &table.rows) {
        let name = row[0].to_string();
        assert!(report.to_string().contains(&name) && report.markdown().contains(&name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_answer_of_a_linked_view_is_everybodys() {
    let options = links_batch::Options { graph: links_batch::graph(0.0005), repeats: 1, ..links_batch::Options::default() };
    let (programs, folder) = (programs(), tempfile::tempdir().unwrap());
    // Answers that differ are an error.
    let report = links_batch::run(&options, &programs, folder.path(), "bench links-batch").await.unwrap();
    let rows = &report.tables[0].rows;
    assert_eq!(rows.len(), if programs.python.is_some() { 7 } else { 4 });
    for row in rows {
        let told = row.last().unwrap().to_string();
        let count: usize = told.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{told}"));
        assert!(count > 100 && row.iter().any(|figure| matches!(figure, Figure::Seconds(_))), "{row:?}");
    }
    let parts = &report.tables[1].rows;
    assert_eq!(parts.len(), 3, "{report}");
    assert_told(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_a_linked_view_are_what_its_events_say() {
    let options = links_lookup::Options { degrees: vec![3, 30], devices: 60, seconds: 0.2, repeats: 2, rate: 500, checked: 20 };
    let folder = tempfile::tempdir().unwrap();
    // A lookup that is not what the events say is an error.
    let report = links_lookup::run(&options, &programs(), folder.path(), "bench links-lookup").await.unwrap();
    let (lookups, sizes) = (&report.tables[0], &report.tables[1]);
    assert_eq!((lookups.rows.len(), sizes.rows.len()), (8, 2));
    for row in &lookups.rows {
        assert!(matches!(row[3], Figure::Count(asked) if asked > 0), "{row:?}");
    }
    let counted = lookups.rows.iter().filter(|row| matches!(row.last(), Some(Figure::PerSecond(rate)) if rate.median > 0.0));
    assert_eq!(counted.count(), 4, "{report}");
    assert_told(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ingested_is_committed_and_counted_once() {
    let (events, keys, aggregates) = (20_000, vec![100, 10_000], vec![1, 20]);
    let sources = vec!["embedded".to_owned()];
    let options = ingest::Options { events, keys, aggregates, sources, repeats: 1, sizes: vec![2_000], ..ingest::Options::default() };
    let folder = tempfile::tempdir().unwrap();
    // A record that is not committed, a ledger that does not balance, a count or sum that is wrong: each is an error.
    let report = ingest::run(&options, &programs(), folder.path(), "bench ingest").await.unwrap();
    assert_eq!((report.tables[0].rows.len(), report.tables[1].rows.len()), (4, 1));
    for row in &report.tables[0].rows {
        assert!(matches!(row[5], Figure::PerSecond(rate) if rate.median > 0.0) && row[11] != Figure::Count(0), "{row:?}");
    }
    assert_told(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ingested_on_real_services_is_what_flink_counts() {
    let Some([_]) = basestream_tests::services::needed("ingest from Kafka", ["BASESTREAM_TEST_KAFKA"]) else { return };
    let (events, keys, aggregates, sources) = (5_000, vec![100], vec![5], vec!["kafka".to_owned()]);
    let options = ingest::Options { events, keys, aggregates, sources, repeats: 1, sizes: Vec::new(), ..ingest::Options::default() };
    let folder = tempfile::tempdir().unwrap();
    // So is what Flink says, where bench/peers/setup installed it.
    let report = ingest::run(&options, &programs(), folder.path(), "bench ingest").await.unwrap();
    assert!(report.tables[0].rows.iter().all(|row| matches!(row[5], Figure::PerSecond(_))), "{report}");
    assert_told(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_was_acknowledged_is_counted() {
    let sources = vec!["embedded".to_owned(), "kafka".to_owned()];
    let options = freshness::Options { rates: vec![200], keys: 50, sources, seconds: 0.5, repeats: 2, probes: 40.0 };
    let folder = tempfile::tempdir().unwrap();
    // One that is not counted, or twice, or any that arrived and is not counted in the end, is an error.
    let report = freshness::run(&options, &programs(), folder.path(), "bench freshness").await.unwrap();
    let rows = &report.tables[0].rows;
    assert!(!rows.is_empty() && rows.iter().all(|row| matches!(row[2], Figure::Count(probes) if probes > 2)), "{report}");
    assert_told(&report);
}
