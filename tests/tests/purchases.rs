//! Real input: 69,659 purchases, in event order and shuffled, with batch runs in between, compared with what an
//! independent engine (DuckDB, `examples/purchases/expected.py`) computed from the file.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use basestream_tests::Harness;
use batch::RunTime;
use catalog::DefinitionKind::{Stream, View};
use engine::fresh::Fresh;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use serving::{Node, ServingClock, StateSource, scan, scan_parts};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/purchases").join(name)
}

fn unzipped(name: &str) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(example(name)).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// The file's orders as JSON records, keyed by customer.
fn orders() -> Vec<(Option<String>, String)> {
    let text = unzipped("purchases.csv.gz");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader
        .records()
        .map(|row| {
            let row = row.unwrap();
            let json = format!(
                r#"{{"order_id":"{}","customer_id":"{}","ordered_on":"{}","units":{},"revenue":{}}}"#,
                &row[0], &row[1], &row[2], &row[3], &row[4]
            );
            (Some(row[1].to_owned()), json)
        })
        .collect()
}

/// Rows by customer, columns by name; NULL is empty.
type Table = BTreeMap<String, BTreeMap<String, String>>;

fn expected(name: &str) -> Table {
    let text = unzipped(name);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let row = |row: csv::StringRecord| (row[0].to_owned(), names.iter().cloned().zip(row.iter().map(str::to_owned)).collect());
    reader.records().map(|record| row(record.unwrap())).collect()
}

fn table(batches: &[RecordBatch]) -> Table {
    let options = FormatOptions::default();
    let mut rows = Table::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap()).collect();
        let names: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
        for row in 0..batch.num_rows() {
            let values: BTreeMap<String, String> =
                names.iter().cloned().zip(columns.iter().map(|column| column.value(row).to_string())).collect();
            rows.insert(values["customer_id"].clone(), values);
        }
    }
    rows
}

fn served(node: &Node) -> Table {
    let read_view = node.read_view().unwrap();
    let view = read_view.view("customers").unwrap();
    let wanted: Vec<usize> = (0..view.live.plan.columns.len()).collect();
    let source = StateSource::Layers { read_view: &read_view, view };
    let t = read_view.t_of(&view.live);
    let parts: Vec<RecordBatch> = (0..scan_parts(&source)).map(|part| scan(&view.live, &source, part, t, &wanted).unwrap().0).collect();
    table(&parts)
}

fn assert_same(served: &Table, expected: &Table) {
    assert!(!expected.is_empty(), "no customers to compare");
    assert_eq!(served.len(), expected.len(), "customers");
    for (customer, columns) in expected {
        for (name, value) in columns {
            assert_eq!(&served[customer][name], value, "{name} of {customer}");
        }
    }
}

async fn purchases(orders: Vec<(Option<String>, String)>, first_half: Option<&str>) {
    let harness = Harness::new().await.unwrap();
    let (stream, view) = (
        std::fs::read_to_string(example("streams/purchases.sql")).unwrap(),
        std::fs::read_to_string(example("views/customers.sql")).unwrap(),
    );
    harness.define(&[(Stream, "purchases", &stream), (View, "customers", &view)]).await.unwrap();
    let fresh = Fresh::default();
    let worker = harness.worker("one", Duration::from_millis(300), Some(fresh.clone()));
    let node = harness.node(ServingClock::Event, Some(fresh)).await.unwrap();
    let half: usize = 34_829;
    let mut sent = 0;
    for chunk in orders.chunks(half.div_ceil(4)) {
        // The first half ends exactly where the oracle's does.
        let (left, right) = chunk.split_at(half.saturating_sub(sent).min(chunk.len()));
        for part in [left, right].into_iter().filter(|part| !part.is_empty()) {
            harness.append("purchases", 4, part.to_vec()).await.unwrap();
            sent += part.len();
            if sent == half
                && let Some(name) = first_half
            {
                harness.committed("purchases", "purchases").await.unwrap();
                node.refresh().await.unwrap();
                assert_same(&served(&node), &expected(name));
            }
        }
        harness.batch("customers", RunTime::EventClock).await.unwrap();
        node.refresh().await.unwrap();
    }
    harness.committed("purchases", "purchases").await.unwrap();
    node.refresh().await.unwrap();
    let all = expected("expected.csv.gz");
    assert_same(&served(&node), &all);
    harness.batch("customers", RunTime::EventClock).await.unwrap();
    node.refresh().await.unwrap();
    assert_same(&served(&node), &all);
    worker.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_event_order_every_answer_is_the_independent_engines() {
    purchases(orders(), Some("expected_half.csv.gz")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shuffled_every_answer_is_the_same() {
    let mut orders = orders();
    orders.shuffle(&mut rand::rngs::StdRng::seed_from_u64(7));
    purchases(orders, None).await;
}
