//! A stream's archive that is decoded again while its process is killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow::datatypes::DataType;
use basestream_tests::Harness;
use basestream_tests::process::{Project, free_port};
use catalog::{CheckpointRange, CheckpointRecord, DefinitionKind, checkpoint_commit};
use definitions::parse::parse_stream;
use engine::events::{OnMisfit, event_schema};
use jobs::backfill::{BackfillTarget, FileDecoding, Mode, Staged, survey};
use serde_json::Value;
use storage::{ArchiveUpload, ArchiveVersions};
use types::failpoint::BACKFILL;
use types::files::ObjectName;
use types::vector::PartitionId;
use uuid::Uuid;

use crate::heap::{Growth, alone};

const STREAM: &str = "CREATE STREAM pay (id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL, device TEXT, amount BIGINT OPTIONS (path = '$.amount'))
    WITH (topic = 'pay', format = 'json', event_time = 'ts', id = 'id', dedup_within = '1d', key = 'device')";
const SUMS: &str = "CREATE VIEW sums AS SELECT device, sum(amount) AS amount FROM pay GROUP BY device";
const RECORDS: i64 = 200;

fn project() -> Project {
    let http = format!("127.0.0.1:{}", free_port().unwrap());
    let settings = format!("[log]\npartitions = 2\n[speed]\ncheckpoint_interval = \"50ms\"\n[serving]\nhttp = \"{http}\"\n");
    let record = |n: i64| {
        let total = n * 1_000;
        format!("{{\"id\":\"e{n}\",\"ts\":\"2026-03-01T10:00:00Z\",\"device\":\"d{}\",\"amount\":{n},\"total\":{total}}}\n", n % 2)
    };
    let files = [
        ("basestream.toml", settings),
        ("streams/pay.sql", STREAM.to_owned()),
        ("views/sums.sql", SUMS.to_owned()),
        ("first.jsonl", (0..RECORDS / 2).map(record).collect()),
        ("second.jsonl", (RECORDS / 2..RECORDS).map(record).collect()),
    ];
    Project::from_files(&files, http).unwrap()
}

/// The sums of both devices.
fn amounts(project: &Project) -> Vec<String> {
    let answer = project.ok(&["query", "SELECT amount FROM sums ORDER BY device", "--json"]).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["rows"].as_array().unwrap().iter().map(|row| row["amount"].to_string().replace('"', "")).collect()
}

/// Until a worker has committed every record of the log.
fn wait_until_read(project: &Project) {
    let began = Instant::now();
    loop {
        let status: Value = serde_json::from_str(&project.ok(&["status", "--json"]).unwrap()).unwrap();
        let partitions = status["partitions"].as_array().unwrap();
        let read: i64 = partitions.iter().map(|partition| partition["next_offset"].as_i64().unwrap()).sum();
        if read > 0 && partitions.iter().all(|partition| partition["lag"] == 0) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "timed out: the log is not read to its end: {status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_archive_that_is_decoded_again_is_switched_to_whole_or_not_at_all_however_the_process_dies() {
    let project = project();
    project.ok(&["apply"]).unwrap();
    for file in ["first.jsonl", "second.jsonl"] {
        let path = project.folder.path().join(file);
        project.ok(&["ingest", "pay", path.to_str().unwrap()]).unwrap();
        let worker = project.start("speed").unwrap();
        wait_until_read(&project);
        assert_eq!(worker.terminate().unwrap(), Some(0));
    }
    project.ok(&["batch", "run", "sums"]).unwrap();
    let sum = |rest: i64, times: i64| ((0..RECORDS).filter(|n| n % 2 == rest).sum::<i64>() * times).to_string();
    let answers = |times: i64| vec![sum(0, times), sum(1, times)];
    assert_eq!(amounts(&project), answers(1));
    let paths = [("$.amount", 1), ("$.total", 1_000)];
    for (step, fault) in BACKFILL.iter().enumerate() {
        let ((_, before), (path, after)) = (paths[step % 2], paths[(step + 1) % 2]);
        std::fs::write(project.folder.path().join("streams/pay.sql"), STREAM.replace("$.amount", path)).unwrap();
        let killed = project.command(&["apply"]).unwrap().env("FAILPOINTS", format!("{fault}=return(kill)")).output().unwrap();
        assert_eq!(killed.status.code(), None, "{fault}: {}", String::from_utf8_lossy(&killed.stderr));
        let switched = *fault == "backfill.after_switch";
        assert_eq!(amounts(&project), answers(if switched { after } else { before }), "{fault}");
        project.ok(&["verify", "sums"]).unwrap();
        project.ok(&["apply"]).unwrap();
        assert_eq!(amounts(&project), answers(after), "{fault}");
        project.ok(&["verify", "sums", "--log"]).unwrap();
    }
    project.ok(&["batch", "run", "sums"]).unwrap();
    project.ok(&["verify", "sums"]).unwrap();
}

const WIDE: &str = "CREATE STREAM wide (ts TIMESTAMPTZ NOT NULL, n BIGINT) WITH (format = 'json', event_time = 'ts')";
const BATCHES: i64 = 100;
const ROWS: i64 = 1_000;
const PAD_BYTES: usize = 3_200;
/// The events take 320 MB, and half of that in their file.
const DECODED_BYTES: usize = 300 << 20;

/// A compacted file may be larger than memory, and several are decoded at once.
#[test]
fn a_large_file_is_decoded_again_in_parts() {
    alone("backfill::a_large_file_is_decoded_again_in_parts", || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let harness = Harness::new().await.unwrap();
            harness.define(&[(DefinitionKind::Stream, "wide", WIDE)]).await.unwrap();
            archive_wide(&harness).await;
            let definition = Arc::new(parse_stream(&WIDE.replace("n BIGINT", "n BIGINT, more BIGINT")).unwrap());
            let target = BackfillTarget { definition, version: 2, on_misfit: OnMisfit::Report };
            let (state, mut staged) = (harness.catalog.state().await.unwrap(), Staged::default());
            let mut found = survey(&harness.storage, &state, &target, &mut staged).await.unwrap();
            let decoding = FileDecoding { storage: &harness.storage, mode: Mode::Write, progress: &|_| {} };
            let growth = Growth::begin();
            let written = staged.decode(&state, &target, &mut found, decoding).await.unwrap();
            println!("{} MiB for a file of {} MiB", growth.bytes() >> 20, found.bytes >> 20);
            assert!(growth.bytes() < DECODED_BYTES, "{} bytes were held", growth.bytes());
            let replaced = staged.replaced(&found);
            assert_eq!((written, replaced.len(), replaced[0].new.rows), (1, 1, BATCHES * ROWS));
        });
    });
}

/// Adds one large file to the archive, with raw records that hardly compress.
async fn archive_wide(harness: &Harness) {
    let schema = event_schema(&parse_stream(WIDE).unwrap());
    let (id, stream): (Uuid, Arc<str>) = (Uuid::now_v7(), "wide".into());
    let name = ObjectName::Archive { stream: stream.clone(), checkpoint: id };
    let versions = ArchiveVersions { decoded_by: 1, decided_by: 1 };
    let mut upload = ArchiveUpload::begin(&harness.storage, name, versions, schema.clone()).await.unwrap();
    let mut random = 1u64;
    for batch in 0..BATCHES {
        let offsets: Vec<i64> = (batch * ROWS..(batch + 1) * ROWS).collect();
        let mut value = |n: &i64| {
            let mut pad = String::with_capacity(PAD_BYTES);
            while pad.len() < PAD_BYTES {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pad.push_str(&format!("{:08x}", random >> 32));
            }
            format!(r#"{{"ts":"2026-03-01T10:00:00Z","n":{n},"more":{n},"pad":"{pad}"}}"#)
        };
        let values: Vec<String> = offsets.iter().map(&mut value).collect();
        let time = || Arc::new(TimestampMicrosecondArray::from(vec![1_772_359_200_000_000; offsets.len()]).with_timezone("UTC"));
        let columns: Vec<ArrayRef> = vec![
            time(),
            Arc::new(Int64Array::from(offsets.clone())),
            time(),
            Arc::new(StringArray::from_iter_values(offsets.iter().map(|_| "wide"))),
            Arc::new(Int32Array::from_iter_values(offsets.iter().map(|_| 0))),
            Arc::new(Int64Array::from(offsets.clone())),
            time(),
            new_null_array(&DataType::Binary, offsets.len()),
            Arc::new(BinaryArray::from_iter_values(&values)),
            new_null_array(&DataType::Binary, offsets.len()),
        ];
        upload.push(&RecordBatch::try_new(schema.clone(), columns).unwrap()).await.unwrap();
    }
    let file = upload.finish().await.unwrap();
    let range = CheckpointRange::of_events(PartitionId::new(stream, 0), 0, BATCHES * ROWS);
    let record = CheckpointRecord::new(id, "harness", basestream_tests::now(), vec![range]);
    harness.catalog.commit(checkpoint_commit(record, vec![file], &BTreeMap::new())).await.unwrap();
}
