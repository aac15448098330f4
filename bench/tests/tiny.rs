//! Every benchmark at a tiny size, through its processes: none of them rots, and its answers are right. Times are not
//! judged.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use basestream_bench::report::{Figure, Report};
use basestream_bench::{Programs, links_batch, links_lookup};

#[path = "tiny/alerts.rs"]
mod alerts;
#[path = "tiny/batch.rs"]
mod batch;
#[path = "tiny/compaction.rs"]
mod compaction;
#[path = "tiny/cost.rs"]
mod cost;
#[path = "tiny/flight.rs"]
mod flight;
#[path = "tiny/freshness.rs"]
mod freshness;
#[path = "tiny/freshness_apart.rs"]
mod freshness_apart;
#[path = "tiny/history.rs"]
mod history;
#[path = "tiny/hot.rs"]
mod hot;
#[path = "tiny/ingest.rs"]
mod ingest;
#[path = "tiny/isolation.rs"]
mod isolation;
#[path = "tiny/lookup.rs"]
mod lookup;
#[path = "tiny/lookups_during_run.rs"]
mod lookups_during_run;
#[path = "tiny/run_memory.rs"]
mod run_memory;
#[path = "tiny/scan.rs"]
mod scan;
#[path = "tiny/sinks.rs"]
mod sinks;
#[path = "tiny/start.rs"]
mod start;

fn programs() -> Programs {
    Programs {
        bench: PathBuf::from(env!("CARGO_BIN_EXE_bench")),
        basestream: basestream_tests::process::binary().unwrap(),
        python: basestream_tests::oracle::python(),
    }
}

/// Its JSON is what it was, and both of its texts tell every row.
fn assert_all_reported(report: &Report) {
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
        let reported = row[10].to_string();
        let count: usize = reported.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{reported}"));
        assert!(count > 100 && row.iter().any(|figure| matches!(figure, Figure::Seconds(_))), "{row:?}");
        assert!(matches!((&row[8], &row[9]), (Figure::Bytes(peak), Figure::Bytes(own)) if own.min > 0.0 && own.max < peak.max), "{row:?}");
    }
    let held = rows.iter().filter(|row| row.len() == 12 && is_verdict(&row[11]));
    assert_eq!(held.count(), 3, "{report}");
    let parts = &report.tables[1].rows;
    assert_eq!(parts.len(), 3, "{report}");
    assert_all_reported(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_of_a_linked_view_are_what_its_events_say() {
    let options = links_lookup::Options { degrees: vec![3, 30], devices: 60, seconds: 0.2, repeats: 2, rate: 500, checked: 20 };
    let folder = tempfile::tempdir().unwrap();
    // A lookup that is not what the events say is an error.
    let report = links_lookup::run(&options, &programs(), folder.path(), "bench links-lookup").await.unwrap();
    let [lookups, sizes, new_links] = &report.tables[..] else { panic!("{report}") };
    assert_eq!((lookups.rows.len(), sizes.rows.len()), (8, 2));
    for row in &lookups.rows {
        assert!(matches!(row[3], Figure::Count(asked) if asked > 0), "{row:?}");
    }
    let counts = |row: &Vec<Figure>| matches!(row.last(), Some(Figure::PerSecond(rate)) if rate.median > 0.0);
    // On a busy machine one of four stretches of 0.2 s may end before an event is counted.
    assert!(lookups.rows.iter().any(counts), "{report}");
    assert_new_links(&new_links.rows);
    assert_all_reported(&report);
}

/// Of one degree, idle and while events arrive: ten new links in each of two stretches. Any that is not counted, or in
/// the end not once, is an error.
fn assert_new_links(rows: &[Vec<Figure>]) {
    let [idle, busy] = rows else { panic!("{rows:?}") };
    for row in rows {
        let milliseconds = |column: usize| match &row[column] {
            Figure::Milliseconds(spread) => *spread,
            other => panic!("{other:?}"),
        };
        let (p50, p99, slowest) = (milliseconds(3), milliseconds(4), milliseconds(6));
        assert!(p50.min > 0.0 && p50.median <= p99.median && p99.max <= slowest.max && slowest.max < 60_000.0, "{row:?}");
        assert!(row[2] == Figure::Count(20) && is_verdict(&row[5]), "{row:?}");
    }
    assert_eq!(idle[7..], [Figure::Absent, Figure::Absent]);
    let is_rate = |figure: &Figure| matches!(figure, Figure::PerSecond(rate) if rate.median > 0.0);
    assert!(busy.len() == 9 && busy[7..].iter().all(is_rate), "{busy:?}");
}

fn is_verdict(figure: &Figure) -> bool {
    ["met", "missed"].iter().any(|verdict| figure.to_string().ends_with(verdict))
}
