//! The guarantees under faults: nothing lost, nothing counted twice, one plain SELECT served exactly.

#![allow(clippy::unwrap_used)]

mod alerts;
mod backfill;
mod beside;
mod building;
mod compaction;
mod damage;
mod definitions;
mod documented;
mod full_disk;
mod gaps;
mod given_up;
mod heap;
mod incremental;
mod memory;
mod random;
mod replay;
mod run_memory;
mod scheduling;
mod sinks;
mod site;
mod slices;
mod small_disk;
mod speed_memory;
mod supernode;
mod takeover;
mod training;
mod trimming;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use basestream_tests::Harness;
use catalog::{Add, Commit, DefinitionKind, DefinitionRecord, DefinitionStatus};
use serving::{Node, ReadView, StateSource, scan, scan_parts};
use uuid::Uuid;

/// Enables logs as RUST_LOG requests.
fn show_logs() {
    let logs = tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).with_test_writer();
    let _ = logs.try_init();
}

/// The seeds of a test: as many as `BASESTREAM_SEEDS` says, or this many.
fn seeds(count: u64) -> std::ops::RangeInclusive<u64> {
    let asked = std::env::var("BASESTREAM_SEEDS").ok();
    let count = asked.map_or(count, |text| text.parse().unwrap_or_else(|_| panic!("BASESTREAM_SEEDS is {text}: expected a number")));
    assert!(count > 0, "no seed is tried");
    1..=count
}

fn record(kind: DefinitionKind, name: &str, version: u32, sql: &str, status: DefinitionStatus) -> DefinitionRecord {
    DefinitionRecord {
        kind,
        name: name.into(),
        version,
        sql: sql.into(),
        status,
        created_at: basestream_tests::now(),
        since: basestream_tests::now(),
        kept_until: None,
        rolled_back: false,
    }
}

async fn put(harness: &Harness, records: Vec<DefinitionRecord>) {
    let commit = Commit { id: Uuid::now_v7(), add: records.into_iter().map(Add::Definition).collect(), ..Commit::default() };
    harness.catalog.commit(commit).await.unwrap();
}

/// The rows of an SQL query as lines of text.
async fn rows(node: &Node, sql: &str) -> Vec<String> {
    let batches = node.query(sql, Vec::new()).await.unwrap().collect().await.unwrap();
    batches.iter().flat_map(lines_of).collect()
}

fn lines_of(rows: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> = rows.columns().iter().map(|c| ArrayFormatter::try_new(c.as_ref(), &options).unwrap()).collect();
    (0..rows.num_rows()).map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join(" ")).collect()
}

/// All rows of a view as sorted lines of text.
fn table(node: &Node, name: &str) -> Vec<String> {
    table_at(&node.read_view().unwrap(), name)
}

/// The sum of a view's last column, a count.
fn counted(node: &Node, name: &str) -> i64 {
    let count = |line: &String| line.rsplit(' ').next()?.parse::<i64>().ok();
    table(node, name).iter().filter_map(count).sum()
}

/// Same as `table`, at one position.
fn table_at(read_view: &ReadView, name: &str) -> Vec<String> {
    let view = read_view.view(name).unwrap();
    let wanted: Vec<usize> = (0..view.live.plan.columns.len()).collect();
    let source = StateSource::Layers { read_view, view };
    let t = read_view.t_of(&view.live);
    let mut lines: Vec<String> = Vec::new();
    for part in 0..scan_parts(&source) {
        let rows = scan(&view.live, &source, part, t, &wanted).unwrap().0;
        lines.extend(lines_of(&rows));
    }
    lines.sort();
    lines
}
