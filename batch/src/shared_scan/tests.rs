use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::util::display::array_value_to_string;
use datafusion::prelude::SessionContext;
use definitions::StreamDefinition;
use definitions::parse::parse_stream;
use engine::events::plan_schema;
use futures::TryStreamExt;
use proptest::prelude::*;
use storage::write_archive;
use types::columns::{EVENT_TIME, OFFSET, PARTITION, SOURCE};
use types::vector::{Offset, PartitionId, Vector};
use uuid::Uuid;

use super::*;
use crate::recompute::scan_archive;

const THREADS: usize = 2;
const ROWS: i64 = 700;

fn stream_definition() -> StreamDefinition {
    parse_stream("CREATE STREAM s (ts TIMESTAMPTZ NOT NULL, k TEXT, n BIGINT) WITH (format = 'json', event_time = 'ts')").unwrap()
}

/// A storage with this many archive files, of offsets that follow each other.
async fn archive(files: i64) -> (ObjectStorage, Vec<FileRecord>) {
    let (storage, schema) = (ObjectStorage::open("memory://").unwrap(), plan_schema(&stream_definition()));
    let fields: Vec<_> = schema.fields().iter().cloned().collect();
    let mut records = Vec::new();
    for file in 0..files {
        let offsets: ArrayRef = Arc::new(Int64Array::from_iter_values(file * ROWS..(file + 1) * ROWS));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("k{}", row % 7))));
        let zeros: ArrayRef = Arc::new(Int64Array::from_value(0, ROWS as usize));
        let column = |name: &str| match name {
            "k" | SOURCE => texts.clone(),
            PARTITION => zeros.clone(),
            EVENT_TIME | OFFSET | "ts" | "n" => offsets.clone(),
            other => panic!("an unknown column {other}"),
        };
        let columns = fields.iter().map(|field| cast(&column(field.name()), field.data_type()).unwrap()).collect();
        let batch = RecordBatch::try_new(Arc::new(arrow::datatypes::Schema::new(fields.clone())), columns).unwrap();
        records.push(write_archive(&storage, &"s".into(), Uuid::now_v7(), 1, vec![batch]).await.unwrap());
    }
    (storage, records)
}

/// What becomes of a run.
#[derive(Debug, Clone)]
enum Fate {
    Reads,
    /// It fails before it reads.
    Leaves,
    /// It fails after its first batch of each partition.
    Fails,
}

#[derive(Debug, Clone)]
struct Run {
    fate: Fate,
    files: Vec<bool>,
    cut: i64,
    with_n: bool,
}

fn run() -> impl Strategy<Value = Run> {
    let fate = prop_oneof![4 => Just(Fate::Reads), 1 => Just(Fate::Leaves), 1 => Just(Fate::Fails)];
    let run = (fate, prop::collection::vec(any::<bool>(), 4), 0..4 * ROWS + 10, any::<bool>());
    run.prop_map(|(fate, files, cut, with_n)| Run { fate, files, cut, with_n })
}

impl Run {
    fn columns(&self, schema: &SchemaRef) -> Vec<usize> {
        let names = if self.with_n { vec!["k", "n", PARTITION, OFFSET] } else { vec!["k", PARTITION, OFFSET] };
        let mut columns: Vec<usize> = names.iter().map(|name| schema.index_of(name).unwrap()).collect();
        columns.sort_unstable();
        columns
    }

    fn files(&self, all: &[FileRecord]) -> Vec<FileRecord> {
        all.iter().zip(&self.files).filter(|(_, wanted)| **wanted).map(|(file, _)| file.clone()).collect()
    }
}

fn slice_up_to(cut: i64) -> Slice {
    Slice { number: 0, from: Vector::new(), to: at(cut), files: Vec::new() }
}

fn at(offset: i64) -> Vector {
    [(PartitionId::new("s", 0), Offset(offset))].into_iter().collect()
}

/// The rows of a plan as sorted lines.
async fn lines(plan: Arc<dyn ExecutionPlan>, session: &SessionContext) -> Result<Vec<String>> {
    let reading = (0..plan.output_partitioning().partition_count()).map(|partition| {
        let batches = plan.execute(partition, session.task_ctx());
        async move { batches?.try_collect::<Vec<RecordBatch>>().await }
    });
    let batches: Vec<RecordBatch> = futures::future::try_join_all(reading).await?.into_iter().flatten().collect();
    let all = concat_batches(&plan.schema(), &batches).unwrap();
    let line = |row: usize| all.columns().iter().map(|column| array_value_to_string(column, row).unwrap()).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = (0..all.num_rows()).map(line).collect();
    lines.sort_unstable();
    Ok(lines)
}

async fn fail_after_first(plan: Arc<dyn ExecutionPlan>, session: &SessionContext) {
    for partition in 0..plan.output_partitioning().partition_count() {
        let mut batches = plan.execute(partition, session.task_ctx()).unwrap();
        let _ = batches.next().await;
    }
}

/// Makes these runs together; each that reads is compared with one that reads alone. Returns how many rows were
/// compared.
async fn made_together(runs: Vec<Run>) -> usize {
    let (storage, files) = archive(4).await;
    let (definition, session) = (stream_definition(), SessionContext::new());
    storage.register(&session.runtime_env());
    let schema = plan_schema(&definition);
    let places = SharedScan::for_runs(&"s".into(), runs.len());
    let each = runs.into_iter().zip(places).map(|(run, place)| {
        let (storage, session, schema, definition, files) = (&storage, &session, &schema, &definition, run.files(&files));
        async move {
            let (columns, slice) = (run.columns(schema), slice_up_to(run.cut));
            let reads = ArchiveRead {
                storage,
                stream: "s",
                files: files.clone(),
                schema: schema.clone(),
                columns: &columns,
                slice: &slice,
                threads: THREADS,
                context: session.task_ctx(),
            };
            match run.fate {
                Fate::Leaves => {
                    drop(place);
                    return 0;
                }
                Fate::Fails => {
                    let rows = place.join(reads).unwrap().unwrap();
                    fail_after_first(rows, session).await;
                    return 0;
                }
                Fate::Reads => {}
            }
            let rows = place.join(reads).unwrap().unwrap();
            let found = lines(rows, session).await.unwrap();
            let alone = scan_archive(storage, definition, &columns, (&files, &slice.ranges(&definition.name)), THREADS).unwrap();
            assert_eq!(found, lines(alone, session).await.unwrap(), "{run:?}");
            found.len()
        }
    });
    futures::future::join_all(each).await.into_iter().sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The law of sharing: whatever the others read, and however they end, a run reads the rows that it would read
    /// alone.
    #[test]
    fn a_run_reads_what_it_would_read_alone(runs in prop::collection::vec(run(), 1..5)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let made = async { tokio::time::timeout(std::time::Duration::from_secs(120), made_together(runs)).await };
        prop_assert!(runtime.block_on(made).is_ok(), "a run waits for ever");
    }

    /// Every file is read once, for all that read it; what more of them read comes first.
    #[test]
    fn a_file_is_read_once_for_all_its_readers(wanted in prop::collection::vec(prop::collection::vec(any::<bool>(), 5), 0..5)) {
        let file = |number: usize| FileRecord { path: number.to_string(), ..a_file() };
        let of_reader = |wanted: &Vec<bool>| (0..5).filter(|number| wanted[*number]).map(file).collect::<Vec<_>>();
        let files: Vec<Vec<FileRecord>> = wanted.iter().map(of_reader).collect();
        let groups = by_readers(&files.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for number in 0..5 {
            let readers: Vec<usize> = (0..wanted.len()).filter(|reader| wanted[*reader][number]).collect();
            let found: Vec<_> = groups.iter().filter(|(_, files)| files.contains(&file(number))).map(|(readers, _)| readers.clone()).collect();
            prop_assert_eq!(found, if readers.is_empty() { vec![] } else { vec![readers] });
        }
        prop_assert!(groups.windows(2).all(|pair| pair[0].0.len() >= pair[1].0.len()));
    }
}

fn a_file() -> FileRecord {
    use types::files::StoredObject;
    let name = types::files::ObjectName::Archive { stream: "s".into(), checkpoint: Uuid::nil() };
    name.record(StoredObject { bytes: 1, checksum: 0 }, 1, None)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_reads_another_stream_reads_alone_and_nobody_waits_for_it() {
    let (storage, files) = archive(1).await;
    let (session, schema) = (SessionContext::new(), plan_schema(&stream_definition()));
    storage.register(&session.runtime_env());
    let columns: Vec<usize> = (0..schema.fields().len()).filter(|at| schema.field(*at).name() != SOURCE).collect();
    let slice = slice_up_to(ROWS);
    let [one, other]: [SharedScan; 2] = SharedScan::for_runs(&"s".into(), 2).try_into().ok().unwrap();
    let reads = |stream| ArchiveRead {
        storage: &storage,
        stream,
        files: files.clone(),
        schema: schema.clone(),
        columns: &columns,
        slice: &slice,
        threads: THREADS,
        context: session.task_ctx(),
    };
    assert!(other.join(reads("another")).unwrap().is_none());
    let rows = one.join(reads("s")).unwrap().unwrap();
    assert_eq!(lines(rows, &session).await.unwrap().len(), ROWS as usize);
    assert!(one.join(reads("s")).unwrap().is_none(), "a place is taken once");
}

/// Runs that are at the same slice share its scan, and one that is ahead waits for them.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_read_in_slices_share_each_until_they_leave() {
    let (storage, files) = archive(4).await;
    let (session, schema) = (SessionContext::new(), plan_schema(&stream_definition()));
    storage.register(&session.runtime_env());
    let columns: Vec<usize> = (0..schema.fields().len()).filter(|at| schema.field(*at).name() != SOURCE).collect();
    let places = SharedScan::for_runs(&"s".into(), 3);
    let each = places.into_iter().zip([0, 1, 4]).map(|(place, first)| {
        let (storage, session, schema, columns, files) = (&storage, &session, &schema, &columns, &files);
        async move {
            let mut read = Vec::new();
            // Those that go on where an earlier run was begin later; none reads the last slice but the first run.
            for number in first..if first == 0 { 4 } else { 3 } {
                let (from, to) = (at(i64::from(number) * ROWS), at(i64::from(number + 1) * ROWS));
                let slice = Slice { number, from, to, files: Vec::new() };
                let reads = ArchiveRead {
                    storage,
                    stream: "s",
                    files: vec![files[number as usize].clone()],
                    schema: schema.clone(),
                    columns,
                    slice: &slice,
                    threads: THREADS,
                    context: session.task_ctx(),
                };
                let rows = place.join(reads).unwrap().expect("it has a place");
                read.extend(lines(rows, session).await.unwrap());
            }
            place.leave();
            read.len() as i64
        }
    });
    let reading = futures::future::join_all(each);
    let read = tokio::time::timeout(std::time::Duration::from_secs(120), reading).await.expect("timed out: a run waits for ever");
    assert_eq!(read, [4 * ROWS, 2 * ROWS, 0]);
}

/// As when the storage fails: no run takes a part of the archive for all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_fails_fails_each_run_and_names_the_file() {
    let (storage, files) = archive(2).await;
    let (session, schema) = (SessionContext::new(), plan_schema(&stream_definition()));
    storage.register(&session.runtime_env());
    storage.delete(&files[1].path).await.unwrap();
    let columns: Vec<usize> = (0..schema.fields().len()).filter(|at| schema.field(*at).name() != SOURCE).collect();
    let slice = slice_up_to(2 * ROWS);
    let places = SharedScan::for_runs(&"s".into(), 2);
    let reading = places.iter().map(|place| {
        let reads = ArchiveRead {
            storage: &storage,
            stream: "s",
            files: files.clone(),
            schema: schema.clone(),
            columns: &columns,
            slice: &slice,
            threads: THREADS,
            context: session.task_ctx(),
        };
        place.join(reads).unwrap().unwrap()
    });
    let plans: Vec<_> = reading.collect();
    for outcome in futures::future::join_all(plans.into_iter().map(|plan| lines(plan, &session))).await {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(&files[1].path), "{error}");
    }
}
