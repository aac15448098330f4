//! The same rows by DuckDB, an independent engine: joins on times, and ASOF JOIN.

use std::collections::BTreeMap;
use std::process::Command;

use super::{Known, Micros, Row, Site, Value, json};

fn lines(values: impl Iterator<Item = Value>) -> String {
    values.map(|value| format!("{value}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the oracle: just test-oracle"]
async fn training_data_is_what_other_programs_join() {
    let python = basestream_tests::oracle::needed();
    let seed = rand::random();
    let site = Site::new(seed).await;
    let folder = tempfile::tempdir().unwrap();
    let event = |event: &super::Event| {
        let (partition, offset) = event.place;
        let [time, clock]: [Micros; 2] = [event.time, event.clock];
        json!({ "stream": event.stream, "partition": partition, "offset": offset, "time": time, "clock": clock, "k": event.k, "u": event.u, "x": event.x })
    };
    let row = |(id, row): (usize, &Row)| json!({ "id": id, "k": row.k, "u": row.u, "t": row.t });
    std::fs::write(folder.path().join("events.ndjson"), lines(site.events.iter().map(event))).unwrap();
    std::fs::write(folder.path().join("spine.ndjson"), lines(site.rows.iter().enumerate().map(row))).unwrap();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle/training.py");
    let output = Command::new(python).arg(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let by_duckdb: BTreeMap<String, Vec<Value>> = serde_json::from_slice(&output.stdout).unwrap();
    for (name, exclusive, known) in [
        ("inclusive event", false, Known::Event),
        ("exclusive event", true, Known::Event),
        ("inclusive log", false, Known::Log),
        ("exclusive log", true, Known::Log),
    ] {
        let found = site.trained(exclusive, known, super::LITTLE_MEMORY).await.unwrap();
        assert_eq!((found.len(), by_duckdb[name].len()), (super::ROWS, super::ROWS));
        for (found, expected) in found.iter().zip(&by_duckdb[name]) {
            for (column, value) in expected.as_object().unwrap() {
                assert_eq!(&found[column], value, "seed {seed}, {name}, {column} of {found}");
            }
        }
    }
}
