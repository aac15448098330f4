use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray, StructArray, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Field, Int32Type};
use definitions::parse::parse_stream;
use event_log::{Consumer, Fetched, NewRecord, PartitionBounds, Subscription, TopicPartition};
use tempfile::TempDir;
use types::ErrorKind;
use types::vector::Offset;

use super::*;

/// A log of one partition in memory that can be made to fail.
#[derive(Debug, Default)]
struct MemoryLog {
    appends: Mutex<Vec<Vec<NewRecord>>>,
    /// The index of the append that fails, counted from 0.
    fail_at: Option<usize>,
    /// How many of the next appends fail.
    fails_next: AtomicUsize,
    /// Texts of records that it does not take; others of the same append it does.
    refused: Vec<String>,
}

impl MemoryLog {
    fn records(&self) -> Vec<NewRecord> {
        self.appends.lock().unwrap().concat()
    }

    fn values(&self) -> Vec<String> {
        self.records().iter().map(|record| String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap()).collect()
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn create_topic(&self, _: &str, _: u32) -> Result<u32> {
        Ok(1)
    }

    async fn bounds(&self, _: &str) -> Result<Vec<PartitionBounds>> {
        Ok(vec![PartitionBounds { partition: 0, begin: Offset(0), end: Offset(self.records().len() as i64) }])
    }

    async fn identity(&self, _: &str) -> Result<String> {
        Ok("memory".into())
    }

    async fn append(&self, _: &str, records: Vec<NewRecord>) -> Result<Vec<(i32, Offset)>> {
        let mut appends = self.appends.lock().unwrap();
        if Some(appends.len()) == self.fail_at || take_one(&self.fails_next) {
            return Err(Error::unavailable("the log is set to fail"));
        }
        let begin = appends.iter().map(Vec::len).sum::<usize>() as i64;
        let offsets = (begin..begin + records.len() as i64).map(|offset| (0, Offset(offset))).collect();
        appends.push(records);
        Ok(offsets)
    }

    async fn append_each(&self, topic: &str, records: Vec<NewRecord>) -> Vec<Result<(i32, Offset)>> {
        let is_refused = |record: &NewRecord| self.refused.iter().any(|text| record.value.as_deref() == Some(text.as_bytes()));
        let taken = records.iter().filter(|record| !is_refused(record)).cloned().collect();
        let mut places = match self.append(topic, taken).await {
            Ok(places) => places.into_iter(),
            Err(error) => return records.iter().map(|_| Err(error.copied())).collect(),
        };
        let outcome = |record| match is_refused(record) {
            true => Err(Error::limit("the record is too large")),
            false => places.next().map(Ok).unwrap(),
        };
        records.iter().map(outcome).collect()
    }

    async fn read(&self, _: &TopicPartition, _: Offset, _: usize) -> Result<Fetched> {
        Err(Error::internal("not read in these tests"))
    }

    async fn subscribe(&self, _: Subscription) -> Result<Consumer> {
        Err(Error::internal("not consumed in these tests"))
    }
}

#[derive(Default)]
struct MemoryProgress {
    saved: Mutex<HashMap<(String, String), i64>>,
    /// How many of the next saves fail, after this many that do not.
    fails: AtomicUsize,
    fails_after: AtomicUsize,
}

/// Counts down; false once it is at 0.
fn take_one(count: &AtomicUsize) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl PositionStore for MemoryProgress {
    async fn load_all(&self, stream: &str, prefix: &str) -> Result<HashMap<String, i64>> {
        let saved = self.saved.lock().unwrap();
        let found = saved.iter().filter(|((of, name), _)| of == stream && name.starts_with(prefix));
        Ok(found.map(|((_, name), number)| (name.clone(), *number)).collect())
    }

    async fn save(&self, stream: &str, numbers: Vec<(String, i64)>) -> Result<()> {
        if !take_one(&self.fails_after) && take_one(&self.fails) {
            return Err(Error::unavailable("the catalog's disk is full"));
        }
        self.saved.lock().unwrap().extend(numbers.into_iter().map(|(name, number)| ((stream.to_owned(), name), number)));
        Ok(())
    }
}

/// A folder, a log, and the saved positions.
struct Bench {
    folder: TempDir,
    log: MemoryLog,
    progress: MemoryProgress,
    stream: Arc<StreamDefinition>,
    options: IngestOptions,
}

const PAYMENTS: &str = "CREATE STREAM payments (
    event_id TEXT NOT NULL, ts TIMESTAMPTZ NOT NULL OPTIONS (path = '$.created'), amount DECIMAL(18,2) NOT NULL,
    device TEXT OPTIONS (path = '$.device.id'), ok BOOLEAN
) WITH (event_time = 'ts', id = 'event_id', key = 'device')";

impl Bench {
    fn new(stream: &str) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            log: MemoryLog::default(),
            progress: MemoryProgress::default(),
            stream: Arc::new(parse_stream(stream).unwrap()),
            options: IngestOptions { patience: Duration::ZERO, ..IngestOptions::default() },
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    async fn ingest(&self, path: &Path) -> Result<Summary> {
        ingest(&self.log, &self.progress, self.stream.clone(), &Input::File(path.into()), &self.options, |_| {}).await
    }
}

fn payment(id: usize) -> String {
    format!(r#"{{"event_id":"e{id}","created":"2024-05-01T12:00:00Z","amount":"{id}.5"}}"#)
}

fn payments(ids: std::ops::Range<usize>) -> String {
    ids.map(|id| payment(id) + "\n").collect()
}

#[tokio::test]
async fn json_lines_go_to_the_log_as_they_stand_with_key_and_id() {
    let bench = Bench::new(PAYMENTS);
    let first = r#"{"event_id" : "a", "created":"2024-05-01T12:00:00Z","amount":1,"device":{"id":"d1"},"more":[1]}"#;
    let path = bench.write("p.jsonl", format!("\u{feff}{first}\r\n\n  \n{}", payment(7)));
    let mut seen = Vec::new();
    let input = Input::File(path.clone());
    let summary =
        ingest(&bench.log, &bench.progress, bench.stream.clone(), &input, &bench.options, |progress| seen.push(progress)).await.unwrap();
    assert_eq!((summary.records, summary.rejected, summary.skipped), (2, 0, 0));
    assert_eq!(bench.log.values(), [first, &payment(7)]);
    let records = bench.log.records();
    assert_eq!((records[0].key.as_deref(), records[0].partition_by.as_deref()), (Some(&b"d1"[..]), Some(&b"a"[..])));
    assert_eq!((records[1].key.as_deref(), records[1].partition_by.as_deref()), (None, Some(&b"e7"[..])));
    let length = std::fs::metadata(&path).unwrap().len();
    assert_eq!(seen.last(), Some(&IngestProgress { records: 2, rejected: 0, bytes_done: length, bytes_total: Some(length) }));
}

#[tokio::test]
async fn csv_cells_become_json_at_their_columns_paths() {
    let bench = Bench::new(PAYMENTS);
    let text = "EVENT_ID;created;amount;device.id;ok;note\na;2024-05-01 12:00:00;1.50;d1;True;\"x; \"\"y\"\"\"\nb;2024-05-01;2;;;\n";
    let summary = bench.ingest(&bench.write("p.csv", text)).await.unwrap();
    assert_eq!((summary.records, summary.rejected), (2, 0), "{:?}", summary.first_rejected);
    assert_eq!(
        bench.log.values(),
        [
            r#"{"event_id":"a","created":"2024-05-01 12:00:00Z","amount":1.50,"device":{"id":"d1"},"ok":true,"note":"x; \"y\""}"#,
            r#"{"event_id":"b","created":"2024-05-01T00:00:00Z","amount":2,"device":{}}"#,
        ]
    );
}

#[tokio::test]
async fn commas_tabs_and_byte_order_marks_are_seen() {
    for (name, text) in
        [("comma.csv", "\u{feff}event_id,ts,amount\na,2024-05-01,1\n"), ("tab.tsv", "\"event_id\"\tts\tamount\r\na\t2024-05-01\t1\r\n")]
    {
        let bench = Bench::new(PAYMENTS);
        assert_eq!(bench.ingest(&bench.write(name, text)).await.unwrap().records, 1, "{name}");
    }
}

#[tokio::test]
async fn a_file_without_a_column_that_must_be_is_refused_at_once() {
    let bench = Bench::new(PAYMENTS);
    let error = bench.ingest(&bench.write("p.csv", "event_id,created,device\na,2024-05-01,d\n")).await.unwrap_err();
    assert!(
        error.message().contains("no column \"amount\", which is NOT NULL in stream payments: it has event_id, created, device"),
        "{error}"
    );
    assert!(error.to_string().contains("p.csv"));
    assert!(bench.log.records().is_empty());
}

#[tokio::test]
async fn a_csv_column_fills_the_column_that_has_its_words() {
    let bench = Bench::new(PAYMENTS);
    let text = "Event ID,created,Amount,Device\na,2024-05-01,1,d\n";
    assert_eq!(bench.ingest(&bench.write("p.csv", text)).await.unwrap().records, 1);
    assert_eq!(bench.log.values(), [r#"{"event_id":"a","created":"2024-05-01T00:00:00Z","amount":1,"device":{"id":"d"}}"#]);
    let two = bench.ingest(&bench.write("q.csv", "Event ID,event-id,created,amount\na,b,2024-05-01,1\n")).await.unwrap_err();
    assert!(two.message().contains("no column \"event_id\""), "{two}");
}

#[tokio::test]
async fn csv_rows_that_are_wrong_are_reported_with_their_lines() {
    let bench = Bench::new(PAYMENTS);
    let text = "event_id,created,amount\na,2024-05-01,1\nb,2024-05-01\nc,2024-05-01,\"x\ny\"\nd,never,1\n,2024-05-01,1\n";
    let summary = bench.ingest(&bench.write("p.csv", text)).await.unwrap();
    assert_eq!((summary.records, summary.rejected), (1, 4));
    let reported: Vec<(u64, &str)> = summary.first_rejected.iter().map(|rejected| (rejected.number, rejected.error.as_str())).collect();
    assert_eq!(reported[0], (3, "found 2 cells, expected 3 as in the header"));
    assert!(
        reported[1].0 == 4 && reported[1].1.starts_with(r#"column amount ($.amount): found "x\ny", expected DECIMAL(18,2)"#),
        "{reported:?}"
    );
    assert!(reported[2].0 == 6 && reported[2].1.contains("found \"never\", expected TIMESTAMPTZ"), "{reported:?}");
    assert_eq!(reported[3], (7, "column event_id ($.event_id): found nothing, expected TEXT NOT NULL"));
}

#[tokio::test]
async fn numbers_of_another_format_are_refused_until_it_is_named_and_read_exactly_then() {
    let mut bench = Bench::new(PAYMENTS);
    let path = bench.write("p.csv", "event_id;ts;amount\na;2024-05-01;6.027,90\nb;2024-05-01;5\nc;2024-05-01;1.234\n");
    let error = bench.ingest(&path).await.unwrap_err();
    assert_eq!(error.message(), "the numbers of the column \"amount\" are not written as 1234.56: found 6.027,90");
    assert_eq!(error.fact("expected"), Some("--numbers \"1.234,56\""));
    let rows: String = (0..9).map(|i| format!("{i};2024-05-01;1,{i}5\n")).collect();
    let error = bench.ingest(&bench.write("d.csv", format!("event_id;ts;amount\nx;2024-05-01;n/a\n{rows}"))).await.unwrap_err();
    assert_eq!(error.message(), "the numbers of the column \"amount\" are not written as 1234.56: found 1,05", "a text is no excuse");
    assert!(bench.log.values().is_empty(), "nothing was appended");

    bench.options.shape.numbers = Some(NumberFormat::PointComma);
    assert_eq!(bench.ingest(&path).await.unwrap().records, 3);
    let amounts: Vec<String> = bench.log.values().iter().map(|value| value.split("\"amount\":").nth(1).unwrap().to_owned()).collect();
    assert_eq!(amounts, ["6027.90}", "5}", "1234}"]);

    let rejected = bench.ingest(&bench.write("q.csv", "event_id;ts;amount\nd;2024-05-01;12.34\n")).await.unwrap();
    assert_eq!((rejected.records, rejected.left_out), (0, 1));
    assert!(rejected.first_rejected[0].error.ends_with("found \"12.34\", expected a number written as 1.234,56"), "{rejected:?}");
}

#[tokio::test]
async fn compressed_files_are_read_through_all_their_members() {
    let bench = Bench::new(PAYMENTS);
    let gz = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let both = [gz(&payments(0..3)), gz(&payments(3..5))].concat();
    assert_eq!(bench.ingest(&bench.write("p.jsonl.gz", &both)).await.unwrap().records, 5);
    let csv = gz("event_id,ts,amount\nz,2024-05-01,1\n");
    assert_eq!(bench.ingest(&bench.write("p.csv.gz", csv)).await.unwrap().records, 1);
    let broken = bench.write("broken.jsonl.gz", &both[..both.len() - 12]);
    let error = bench.ingest(&broken).await.unwrap_err();
    assert!(error.to_string().contains("broken.jsonl.gz"), "{error}");
    let named_so = bench.write("packed.csv", gz("event_id,ts,amount\ny,2024-05-01,1\n"));
    assert_eq!(bench.ingest(&named_so).await.unwrap().records, 1, "known by its first bytes");
    assert_eq!(bench.ingest(&bench.write("plain.jsonl.gz", payments(7..9))).await.unwrap().records, 2, "not by its name");
    assert!(bench.ingest(&bench.write("none.jsonl.gz", "")).await.is_err(), "cut off before its first byte");
}

#[tokio::test]
async fn a_compressed_file_that_is_cut_off_says_what_went_in_and_goes_on_when_it_is_whole() {
    let bench = Bench::new(PAYMENTS);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(payments(0..5_000).as_bytes()).unwrap();
    let whole = encoder.finish().unwrap();
    let path = bench.write("p.jsonl.gz", &whole[..whole.len() / 2]);
    let error = bench.ingest(&path).await.unwrap_err();
    let done = bench.log.records().len();
    assert!((1..5_000).contains(&done), "{done}");
    assert_eq!(error.message(), format!("the input cannot be read past line {done}"));
    assert_eq!(
        error.fact("in the log"),
        Some(&*format!("{done} records before it; a repeat continues after them and sends nothing twice"))
    );
    let summary = bench.ingest(&bench.write("p.jsonl.gz", &whole)).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (done as i64, (5_000 - done) as i64));
}

#[tokio::test]
async fn a_quote_that_is_never_closed_takes_no_record_and_the_corrected_file_goes_on_there() {
    let bench = Bench::new(PAYMENTS);
    let row = |id: usize| format!("e{id},2024-05-01,1,note {id}\r\n");
    let csv = |stray: &str| {
        let before: String = (0..49).map(row).collect();
        let after: String = (50..99).map(row).collect();
        format!("event_id,ts,amount,note\r\n{before}e49,2024-05-01,1,{stray}note 49\r\n{after}")
    };
    let path = bench.write("p.csv", csv("\""));
    for _ in 0..2 {
        let error = bench.ingest(&path).await.unwrap_err();
        assert_eq!((error.message(), error.fact("line")), ("the quote opened on line 51 is never closed", Some("51")));
        assert_eq!(error.fact("in the log"), Some("49 records before it; a repeat continues after them and sends nothing twice"));
        assert_eq!(bench.log.records().len(), 49);
    }
    let summary = bench.ingest(&bench.write("p.csv", csv(""))).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (49, 50));
    assert!(bench.log.values()[49].contains("\"note\":\"note 49\""), "{}", bench.log.values()[49]);
}

#[tokio::test]
async fn lines_are_counted_alike_whatever_ends_them() {
    for end in ["\n", "\r\n"] {
        let bench = Bench::new(PAYMENTS);
        let lines = ["event_id,ts,amount", "a,2024-05-01,1", "", "b,never,1", "c,2024-05-01,\"1", "\"", "d,never,1", ""];
        let summary = bench.ingest(&bench.write("p.csv", lines.join(end))).await.unwrap();
        let reported: Vec<u64> = summary.first_rejected.iter().map(|rejected| rejected.number).collect();
        assert_eq!(reported, [4, 7], "{end:?}: {:?}", summary.first_rejected);
    }
}

fn parquet_file(path: &Path) {
    let device: ArrayRef = Arc::new(StringArray::from(vec![Some("d1"), None]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("event_id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("created", Arc::new(TimestampNanosecondArray::from(vec![1_714_564_800_123_456_789, -1]))),
        ("amount", Arc::new(Float64Array::from(vec![0.1, 1e15]))),
        ("device", Arc::new(StructArray::from(vec![(Arc::new(Field::new("id", DataType::Utf8, true)), device)]))),
        ("status", Arc::new(DictionaryArray::<Int32Type>::from_iter(["ok", "ok"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn parquet_rows_become_json_of_their_columns_types() {
    let bench = Bench::new(PAYMENTS);
    let path = bench.path("p.parquet");
    parquet_file(&path);
    let summary = bench.ingest(&path).await.unwrap();
    assert_eq!((summary.records, summary.rejected), (2, 0), "{:?}", summary.first_rejected);
    assert_eq!(
        bench.log.values(),
        [
            r#"{"event_id":"1","created":"2024-05-01T12:00:00.123456Z","amount":0.1,"device":{"id":"d1"},"status":"ok"}"#,
            r#"{"event_id":"2","created":"1969-12-31T23:59:59.999999Z","amount":1000000000000000.0,"device":{},"status":"ok"}"#,
        ]
    );
    assert_eq!(bench.ingest(&path).await.unwrap().skipped, 2);
    assert!(bench.ingest(&bench.write("no.parquet", "PAR1 not")).await.unwrap_err().to_string().contains("no.parquet"));
}

#[tokio::test]
async fn a_repeat_does_not_double_also_under_another_name() {
    let bench = Bench::new(PAYMENTS);
    let path = bench.write("p.jsonl", payments(0..100));
    assert_eq!(bench.ingest(&path).await.unwrap().records, 100);
    let moved = bench.path("moved.jsonl");
    std::fs::rename(path, &moved).unwrap();
    let summary = bench.ingest(&moved).await.unwrap();
    assert_eq!((summary.records, summary.skipped), (0, 100));
}

#[tokio::test]
async fn appended_lines_go_on_whatever_the_files_size() {
    let bench = Bench::new(PAYMENTS);
    // The last steps exceed the first MiB, which identifies large files.
    let mut done = 0;
    for step in [1, 2, 50, 9_000, 10_000, 30_000] {
        let path = bench.write("p.jsonl", payments(0..step));
        let summary = bench.ingest(&path).await.unwrap();
        assert_eq!((summary.skipped, summary.records), (done as i64, (step - done) as i64));
        done = step;
    }
    assert!(std::fs::metadata(bench.path("p.jsonl")).unwrap().len() > 2 << 20);
    assert_eq!(bench.log.values().join("\n") + "\n", payments(0..30_000));
}

#[tokio::test]
async fn files_that_begin_alike_are_not_taken_for_one_another() {
    let bench = Bench::new(PAYMENTS);
    assert_eq!(bench.ingest(&bench.write("one.jsonl", payments(0..10))).await.unwrap().records, 10);
    let other = payment(0) + "\n" + &payments(20..40);
    assert_eq!(bench.ingest(&bench.write("other.jsonl", other)).await.unwrap().records, 21);
    // Neither hides how far the other one is, whichever grows.
    let summary = bench.ingest(&bench.write("one.jsonl", payments(0..12))).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (10, 2));
    let other = payment(0) + "\n" + &payments(20..43);
    let summary = bench.ingest(&bench.write("other.jsonl", other)).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (21, 3));
}

#[tokio::test]
async fn a_file_of_one_line_without_an_end_goes_on_once_it_has_grown() {
    let bench = Bench::new(PAYMENTS);
    assert_eq!(bench.ingest(&bench.write("p.jsonl", payment(0))).await.unwrap().records, 1);
    let summary = bench.ingest(&bench.write("p.jsonl", payments(0..3))).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (1, 2));
    let header = "event_id,ts,amount\n";
    let rows = ["1,2024-05-01T12:00:00Z,1.00", "2,2024-05-01T12:00:00Z,2.00"];
    let path = bench.write("p.csv", format!("{header}{}", rows[0]));
    assert_eq!(bench.ingest(&path).await.unwrap().records, 1);
    let summary = bench.ingest(&bench.write("p.csv", format!("{header}{}\n{}", rows[0], rows[1]))).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (1, 1));
}

#[tokio::test]
async fn what_an_older_version_saved_of_a_file_that_has_grown_is_found() {
    let bench = Bench::new(PAYMENTS);
    bench.ingest(&bench.write("p.jsonl", payments(0..10))).await.unwrap();
    let heads = bench.progress.load_all("payments", "head-").await.unwrap();
    assert_eq!(heads.len(), 1);
    for (name, length) in heads {
        // It had one number for all files with this head.
        let (head, _) = name.rsplit_once('-').unwrap();
        let mut saved = bench.progress.saved.lock().unwrap();
        saved.insert(("payments".to_owned(), head.to_owned()), length);
        saved.remove(&("payments".to_owned(), name));
    }
    let summary = bench.ingest(&bench.write("p.jsonl", payments(0..11))).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (10, 1));
}

#[tokio::test]
async fn after_a_failure_a_repeat_goes_on_where_the_log_acknowledged() {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.batch_records = 10;
    bench.log.fail_at = Some(3);
    let path = bench.write("p.jsonl", payments(0..95));
    let error = bench.ingest(&path).await.unwrap_err();
    assert!(error.to_string().contains("set to fail") && error.to_string().contains("records_done: 30"), "{error}");
    bench.log.fail_at = None;
    let summary = bench.ingest(&path).await.unwrap();
    assert_eq!((summary.skipped, summary.records), (30, 65));
    assert_eq!(bench.log.values().join("\n") + "\n", payments(0..95));
    let appends = bench.log.appends.lock().unwrap();
    assert!(appends.len() > 5 && appends.iter().all(|batch| batch.len() <= 10));
}

#[tokio::test]
async fn rejected_records_are_all_counted_and_the_first_reported() {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.batch_records = 7;
    let mixed: String = (0..50).map(|id| format!("{}\n{{\"event_id\":\"x{id}\"}}\n", payment(id))).collect();
    let path = bench.write("p.jsonl", mixed);
    let summary = bench.ingest(&path).await.unwrap();
    assert_eq!((summary.records, summary.rejected, summary.first_rejected.len()), (50, 50, 20));
    assert_eq!(summary.first_rejected[19].number, 40);
    assert_eq!(summary.reasons.by_count(), [("column ts ($.created): found nothing, expected TIMESTAMPTZ NOT NULL", 50)]);
    assert_eq!(summary.first_rejected[0].error, "column ts ($.created): found nothing, expected TIMESTAMPTZ NOT NULL");
    let again = bench.ingest(&path).await.unwrap();
    assert_eq!((again.skipped, again.records, again.rejected, again.left_out), (50, 0, 0, 50));
}

#[tokio::test]
async fn invalid_records_go_to_the_log_when_asked() {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.produce_invalid = true;
    let summary = bench.ingest(&bench.write("p.jsonl", "not json\n")).await.unwrap();
    assert_eq!((summary.records, summary.rejected), (1, 1));
    assert_eq!(bench.log.values(), ["not json"]);
}

#[tokio::test]
async fn a_last_line_that_is_still_being_written_is_read_again() {
    let bench = Bench::new(PAYMENTS);
    let whole = payments(0..3);
    let path = bench.write("p.jsonl", &whole[..whole.len() - 5]);
    let summary = bench.ingest(&path).await.unwrap();
    assert_eq!((summary.records, summary.rejected), (2, 1));
    bench.write("p.jsonl", &whole);
    let summary = bench.ingest(&path).await.unwrap();
    assert_eq!((summary.skipped, summary.records, summary.rejected), (2, 1, 0));
}

#[tokio::test]
async fn what_was_left_out_is_sent_once_when_it_is_asked_for() {
    let mut bench = Bench::new(PAYMENTS);
    // The first line that is no event is in the log; the others of the file that grew are not.
    bench.options.produce_invalid = true;
    bench.ingest(&bench.write("p.jsonl", payments(0..1) + "bad 0\n")).await.unwrap();
    bench.options.produce_invalid = false;
    let path = bench.write("p.jsonl", payments(0..1) + "bad 0\nbad 1\n" + &payments(1..2) + "bad 2\n");
    let plain = bench.ingest(&path).await.unwrap();
    assert_eq!((plain.records, plain.skipped, plain.rejected, plain.left_out), (1, 2, 2, 2));
    let repeat = bench.ingest(&path).await.unwrap();
    assert_eq!((repeat.records, repeat.skipped, repeat.rejected, repeat.left_out), (0, 3, 0, 2));

    bench.options = IngestOptions { produce_invalid: true, batch_records: 1, ..bench.options };
    let path = bench.write("p.jsonl", std::fs::read_to_string(&path).unwrap() + "bad 3\n");
    bench.log.fail_at = Some(bench.log.appends.lock().unwrap().len() + 1);
    bench.ingest(&path).await.unwrap_err();
    bench.log.fail_at = None;
    let rest = bench.ingest(&path).await.unwrap();
    assert_eq!((rest.records, rest.skipped, rest.rejected, rest.left_out), (2, 4, 2, 0));
    assert_eq!(rest.first_rejected.iter().map(|rejected| rejected.number).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(bench.log.values(), [&payment(0), "bad 0", &payment(1), "bad 1", "bad 2", "bad 3"]);
    assert_eq!(bench.ingest(&path).await.unwrap().records, 0);
}

fn priced(id: usize, amount: &str) -> String {
    format!(r#"{{"event_id":"e{id}","created":"2024-05-01T12:00:00Z","amount":"{amount}"}}"#)
}

#[tokio::test]
async fn what_was_left_out_and_became_valid_is_sent_once() {
    for produce_invalid in [false, true] {
        let mut bench = Bench::new(PAYMENTS);
        let lines = [priced(0, "1.234"), priced(1, "1.23"), "bad 2".to_owned(), priced(3, "5.678")];
        let path = bench.write("p.jsonl", lines.join("\n") + "\n");
        assert_eq!(bench.ingest(&path).await.unwrap().left_out, 3);

        bench.stream = Arc::new(parse_stream(&PAYMENTS.replace("DECIMAL(18,2)", "DECIMAL(18,3)")).unwrap());
        bench.options = IngestOptions { produce_invalid, batch_records: 1, ..bench.options };
        bench.log.fail_at = Some(2);
        bench.ingest(&path).await.unwrap_err();
        bench.log.fail_at = None;
        let rest = bench.ingest(&path).await.unwrap();
        let sent = i64::from(produce_invalid);
        assert_eq!((rest.records, rest.skipped, rest.rejected, rest.left_out), (1 + sent, 2, sent, 1 - sent));
        assert_eq!(bench.ingest(&path).await.unwrap().records, 0);
        let mut values = bench.log.values();
        values.sort();
        let mut expected = lines.to_vec();
        expected.retain(|line| produce_invalid || line != "bad 2");
        expected.sort();
        assert_eq!(values, expected);
    }
}

#[tokio::test]
async fn a_csv_row_goes_to_the_dead_letters_as_an_object_unless_that_would_be_an_event() {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.produce_invalid = true;
    bench.options.shape.numbers = Some(NumberFormat::PointComma);
    let text = "event_id;ts;amount\na;2024-05-01;n/a\nb;2024-05-01;12.34\nc;2024-05-01\n";
    let summary = bench.ingest(&bench.write("p.csv", text)).await.unwrap();
    assert_eq!((summary.records, summary.rejected), (3, 3));
    let values = bench.log.values();
    let object = r#"{"event_id":"a","created":"2024-05-01T00:00:00Z","amount":"n/a"}"#;
    assert_eq!(values, [object, r#"["b","2024-05-01","12.34"]"#, r#"["c","2024-05-01"]"#]);
    let decoder = Decoder::new(bench.stream.clone()).unwrap();
    let reason = decoder.decode(Some(object.as_bytes())).unwrap_err().to_string();
    assert!(reason.starts_with("column amount") && reason.contains("n/a"), "{reason}");
}

#[tokio::test]
async fn numbers_that_are_read_in_another_format_later_are_sent_once() {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.shape.numbers = Some(NumberFormat::CommaPoint);
    let path = bench.write("p.csv", "event_id;ts;amount\na;2024-05-01;6.027,90\nb;2024-05-01;5\n");
    assert_eq!(bench.ingest(&path).await.unwrap().left_out, 1);
    bench.options.shape.numbers = Some(NumberFormat::PointComma);
    let rest = bench.ingest(&path).await.unwrap();
    assert_eq!((rest.records, rest.skipped, rest.left_out), (1, 1, 0));
    assert_eq!(bench.log.values().len(), 2);
}

#[tokio::test]
async fn which_records_were_left_out_is_remembered_however_many() {
    let mut bench = Bench::new(PAYMENTS);
    let line = |id: usize| if id.is_multiple_of(3) { priced(id, "1.23") } else { priced(id, "1.234") };
    let path = bench.write("p.jsonl", (0..300).map(|id| line(id) + "\n").collect::<String>());
    bench.options.batch_records = 7;
    assert_eq!(bench.ingest(&path).await.unwrap().left_out, 200);
    bench.stream = Arc::new(parse_stream(&PAYMENTS.replace("DECIMAL(18,2)", "DECIMAL(18,3)")).unwrap());
    // The file has another name in the catalog once it has grown.
    let path = bench.write("p.jsonl", (0..310).map(|id| line(id) + "\n").collect::<String>());
    bench.options.batch_records = 50;
    bench.log.refused = vec![line(100)];
    bench.ingest(&path).await.unwrap_err();
    bench.log.refused.clear();
    bench.ingest(&path).await.unwrap();
    let mut values = bench.log.values();
    assert_eq!(values.len(), 310);
    values.sort();
    values.dedup();
    assert_eq!(values.len(), 310);
}

#[tokio::test]
async fn of_what_an_older_version_left_out_only_the_number_is_known() {
    let mut bench = Bench::new(PAYMENTS);
    let path = bench.write("p.jsonl", payments(0..1) + "bad 0\nbad 1\n" + &priced(2, "1.234") + "\n");
    assert_eq!(bench.ingest(&path).await.unwrap().left_out, 3);
    bench.progress.saved.lock().unwrap().retain(|(_, name), _| !name.contains("-left-out-"));

    let repeat = bench.ingest(&path).await.unwrap();
    assert_eq!((repeat.records, repeat.skipped, repeat.left_out), (0, 1, 3));
    bench.stream = Arc::new(parse_stream(&PAYMENTS.replace("DECIMAL(18,2)", "DECIMAL(18,3)")).unwrap());
    bench.options.produce_invalid = true;
    for (records, left_out) in [(2, 1), (0, 1)] {
        let repeat = bench.ingest(&path).await.unwrap();
        assert_eq!((repeat.records, repeat.left_out), (records, left_out), "which is valid by now is not known");
    }
    assert_eq!(bench.log.values(), [&payment(0), "bad 0", "bad 1"]);
}

#[tokio::test]
async fn a_line_that_never_ends_is_rejected_and_the_next_one_read() {
    let bench = Bench::new(PAYMENTS);
    let path = bench.write("p.jsonl", format!("{}\n{}\n", "x".repeat(20 << 20), payment(1)));
    let summary = bench.ingest(&path).await.unwrap();
    assert_eq!((summary.records, summary.rejected), (1, 1));
    assert_eq!(summary.first_rejected[0].error, "found a line of more than 16 MiB, expected one JSON object");
}

#[tokio::test]
async fn what_is_no_file_of_records_is_refused() {
    let bench = Bench::new(PAYMENTS);
    let refused = async |path: PathBuf| bench.ingest(&path).await.unwrap_err().to_string();
    assert!(refused(bench.write("p.json", " [{}]")).await.contains("found a JSON array"));
    assert!(refused(bench.write("p.txt", "")).await.contains("does not show its format"));
    assert!(refused(bench.write("p.csv", "")).await.contains("the CSV file is empty"));
    assert!(refused(bench.path("none.jsonl")).await.contains("cannot be read"));
    assert!(refused(bench.folder.path().join(".")).await.contains("format"));
    assert_eq!(bench.ingest(&bench.write("empty.jsonl", "")).await.unwrap().records, 0);
}

#[tokio::test]
async fn a_position_that_is_not_saved_is_waited_for_and_a_repeat_doubles_nothing() {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.batch_records = 10;
    // The names of the file are saved first, and then the position after each of the ten batches.
    bench.progress.fails_after = AtomicUsize::new(4);
    bench.progress.fails = AtomicUsize::new(3);
    let path = bench.write("p.jsonl", payments(0..100));
    assert_eq!(bench.ingest(&path).await.unwrap().records, 100);
    assert_eq!(bench.progress.fails.load(Ordering::SeqCst), 0, "it failed");
    assert_eq!(bench.ingest(&path).await.unwrap().records, 0);
    assert_eq!(bench.log.values().join("\n") + "\n", payments(0..100));
}

#[tokio::test]
async fn a_log_that_takes_nothing_is_waited_for() {
    let mut bench = Bench::new(PAYMENTS);
    bench.log.fails_next = AtomicUsize::new(5);
    let path = bench.write("p.jsonl", payments(0..10));
    assert!(bench.ingest(&path).await.is_err(), "without patience");
    bench.options.patience = Duration::from_secs(60);
    let summary = bench.ingest(&path).await.unwrap();
    assert_eq!((summary.records, bench.log.fails_next.load(Ordering::SeqCst)), (10, 0));
}

#[tokio::test]
async fn of_a_batch_that_the_log_took_in_part_a_repeat_sends_the_rest() {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.batch_records = 200;
    bench.log.refused = [3, 150].map(payment).into();
    let path = bench.write("p.jsonl", payments(0..200));
    for _ in 0..2 {
        let error = bench.ingest(&path).await.unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
        assert_eq!(bench.log.records().len(), 198);
    }
    // The file has another name in the catalog once it has grown.
    bench.log.refused = vec![payment(3)];
    let path = bench.write("p.jsonl", payments(0..250));
    bench.ingest(&path).await.unwrap_err();
    bench.log.refused.clear();
    let last = bench.ingest(&path).await.unwrap();
    assert_eq!((last.records, last.skipped), (51, 199), "record 3 and the last 50");
    let mut values = bench.log.values();
    values.sort();
    values.dedup();
    assert_eq!((values.len(), bench.log.records().len()), (250, 250));
}

/// What is wrong during one run: records that the log refuses, and how many appends and saves fail.
type Faults = (Vec<usize>, usize, usize, usize);

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_fails_each_record_is_in_the_log_once(
        batch_records in 1..40usize,
        runs in proptest::collection::vec((proptest::collection::vec(0..90usize, 0..8), 0..3usize, 0..12usize, 0..3usize), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(each_record_once(batch_records, runs));
    }
}

async fn each_record_once(batch_records: usize, runs: Vec<Faults>) {
    let mut bench = Bench::new(PAYMENTS);
    bench.options.batch_records = batch_records;
    let path = bench.write("p.jsonl", payments(0..90));
    for (refused, appends, fails_after, fails) in runs {
        bench.log.refused = refused.into_iter().map(payment).collect();
        bench.log.fails_next = appends.into();
        bench.progress.fails_after = fails_after.into();
        bench.progress.fails = fails.into();
        let _ = bench.ingest(&path).await;
    }
    bench.log.refused.clear();
    bench.log.fails_next = AtomicUsize::new(0);
    (bench.progress.fails_after, bench.progress.fails) = Default::default();
    bench.ingest(&path).await.unwrap();
    let mut values = bench.log.values();
    values.sort();
    let mut expected: Vec<String> = (0..90).map(payment).collect();
    expected.sort();
    assert_eq!(values, expected);
}

/// A log that was restored from an earlier copy, or another one, does not have what the catalog remembers.
#[tokio::test]
async fn a_log_that_lost_what_an_earlier_run_appended_is_refused_and_again_appends_all_of_it() {
    let mut bench = Bench::new(PAYMENTS);
    let line = |n: i32| format!("{{\"event_id\":\"e{n}\",\"created\":\"2026-01-01T00:00:00Z\",\"amount\":\"1\"}}\n");
    let path = bench.folder.path().join("payments.jsonl");
    std::fs::write(&path, (0..10).map(line).collect::<String>()).unwrap();
    let input = Input::File(path);
    let run = async |bench: &Bench| {
        ingest(&bench.log, &bench.progress, bench.stream.clone(), &input, &bench.options, |_| {})
            .await
            .map(|ran| (ran.records, ran.skipped))
    };
    assert_eq!(run(&bench).await.unwrap(), (10, 0));
    assert_eq!(run(&bench).await.unwrap(), (0, 10));
    bench.log = MemoryLog::default();
    let refused = run(&bench).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("appended 10 records of this file, and the log has lost records since"), "{refused}");
    assert!(bench.log.records().is_empty());
    bench.options.again = true;
    assert_eq!(run(&bench).await.unwrap(), (10, 0));
    bench.options.again = false;
    assert_eq!(run(&bench).await.unwrap(), (0, 10));
}

#[tokio::test]
async fn a_file_that_a_removed_stream_appended_to_the_topic_is_refused_unless_it_is_to_be_sent_again() {
    let in_topic = PAYMENTS.replace("WITH (", "WITH (topic = 'in', ");
    let mut bench = Bench::new(&in_topic);
    let path = bench.write("p.jsonl", payments(0..10));
    bench.ingest(&path).await.unwrap();
    bench.stream = Arc::new(parse_stream(&in_topic.replace("STREAM payments", "STREAM paid")).unwrap());
    bench.options.removed = vec!["another".into(), "payments".into()];
    let refused = bench.ingest(&path).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("the topic has 10 records of this file already: the stream \"payments\""), "{refused}");
    let other = bench.write("q.jsonl", payments(10..12));
    assert_eq!(bench.ingest(&other).await.unwrap().records, 2);
    assert_eq!(bench.log.records().len(), 12);
    bench.options.again = true;
    assert_eq!(bench.ingest(&path).await.unwrap().records, 10);
    bench.options.again = false;
    assert_eq!(bench.ingest(&path).await.unwrap().skipped, 10, "it is known by this stream now");
}
