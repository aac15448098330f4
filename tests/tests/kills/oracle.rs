//! Runs the oracle: tests/oracle/oracle.py, which reads the log independently and computes the expected results.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::ledger::PartitionLine;
use serde_json::{Value, json};
use types::{Error, Result};

use crate::producer::LoggedRecord;
use crate::reader::Sample;
use crate::site::{STREAMS, Site};

/// The oracle's input.
pub struct OracleInput<'a> {
    pub site: &'a Site,
    pub records: &'a [LoggedRecord],
    pub samples: &'a [Sample],
    pub ledger: &'a [PartitionLine],
    /// Ids that were sent once, and ids that may have been sent more than once; all were acknowledged.
    pub once: &'a [String],
    pub at_least_once: &'a [String],
}

/// Runs the oracle; returns its findings.
pub fn ask(input: &OracleInput<'_>) -> Result<Value> {
    let python = basestream_tests::oracle::needed();
    let folder = input.site.project.folder.path();
    let mut log = serde_json::Map::new();
    for stream in STREAMS {
        log.insert(stream.to_owned(), source(input, stream, folder)?);
    }
    let answers = input.samples.iter();
    let answers: Vec<Value> = answers
        .map(|sample| json!({"view": sample.view, "of": sample.of, "cut": sample.cut, "as_of": sample.as_of, "rows": sample.rows}))
        .collect();
    let asked = json!({
        "log": log, "answers": answers, "ledger": sums(input.ledger),
        "ids": {"once": input.once, "at_least_once": input.at_least_once},
    });
    let path = folder.join("task.json");
    std::fs::write(&path, asked.to_string())?;
    let output = Command::new(python).arg(here().join("oracle.py")).arg(&path).output()?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(Error::corrupt(format!("the oracle says otherwise:\n{out}\n{err}")));
    }
    Ok(serde_json::from_str(&out)?)
}

/// The oracle reads Kafka's log with its own client. The embedded log can only be read by the product's reader.
fn source(input: &OracleInput<'_>, stream: &str, folder: &Path) -> Result<Value> {
    if let Some(servers) = input.site.urls.log.strip_prefix("kafka://") {
        return Ok(json!({"kafka": servers, "topic": input.site.topic_of(stream)}));
    }
    use base64::Engine;
    let path = folder.join(format!("{stream}.ndjson"));
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
    for record in input.records.iter().filter(|record| record.stream == stream) {
        let value = record.value.as_ref().map(|value| base64::engine::general_purpose::STANDARD.encode(value));
        let record = json!({"partition": record.partition, "offset": record.offset.0, "timestamp": record.timestamp, "value": value});
        writeln!(file, "{record}")?;
    }
    file.flush()?;
    Ok(json!({"file": path}))
}

/// The ledger's lines, summed per partition.
fn sums(lines: &[PartitionLine]) -> Vec<Value> {
    let mut sums: BTreeMap<(&str, i32), [i64; 4]> = BTreeMap::new();
    for line in lines {
        let sum = sums.entry((&line.stream, line.partition)).or_default();
        for (sum, add) in sum.iter_mut().zip([line.archived, line.duplicate, line.dead_lettered, line.absent]) {
            *sum += add;
        }
    }
    let line = |((stream, partition), [archived, duplicate, dead, absent]): ((&str, i32), [i64; 4])| json!({"stream": stream, "partition": partition, "archived": archived, "duplicate": duplicate, "dead_lettered": dead, "absent": absent});
    sums.into_iter().map(line).collect()
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("oracle")
}
