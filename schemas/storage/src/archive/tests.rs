use std::collections::BTreeSet;

use arrow::array::{Int32Array, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use proptest::prelude::*;

use super::*;
use types::sql_types::timestamp_type;
use types::vector::PartitionId;

fn schema(with_note: bool) -> SchemaRef {
    let mut fields = vec![
        Field::new("user", DataType::Utf8, false),
        Field::new(EVENT_TIME, timestamp_type(), false),
        Field::new(PARTITION, DataType::Int32, false),
        Field::new(OFFSET, DataType::Int64, false),
    ];
    if with_note {
        fields.insert(1, Field::new("note", DataType::Utf8, true));
    }
    Arc::new(Schema::new(fields))
}

/// Rows of the first definition, without `note`.
fn rows(places: &[(i32, i64)]) -> RecordBatch {
    RecordBatch::try_new(
        schema(false),
        vec![
            Arc::new(StringArray::from_iter_values(places.iter().map(|(p, o)| format!("{p}/{o}")))),
            Arc::new(TimestampMicrosecondArray::from_iter_values(places.iter().map(|(_, o)| 1000 - o)).with_timezone("UTC")),
            Arc::new(Int32Array::from_iter_values(places.iter().map(|(p, _)| *p))),
            Arc::new(Int64Array::from_iter_values(places.iter().map(|(_, o)| *o))),
        ],
    )
    .unwrap()
}

fn vector(stream: &str, entries: &[(i32, i64)]) -> Vector {
    entries.iter().map(|(p, o)| (PartitionId::new(stream, *p), Offset(*o))).collect()
}

async fn run(storage: &ObjectStorage, plan: Arc<dyn ExecutionPlan>) -> Vec<RecordBatch> {
    let context = SessionContext::new();
    storage.register(&context.runtime_env());
    datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap()
}

fn places(batches: &[RecordBatch]) -> BTreeSet<(i32, i64)> {
    let of_batch = |batch: &RecordBatch| {
        let partitions = batch.column_by_name(PARTITION).unwrap().as_primitive::<Int32Type>().clone();
        let offsets = batch.column_by_name(OFFSET).unwrap().as_primitive::<Int64Type>().clone();
        (0..batch.num_rows()).map(|row| (partitions.value(row), offsets.value(row))).collect::<Vec<_>>()
    };
    batches.iter().flat_map(of_batch).collect()
}

#[tokio::test]
async fn a_file_and_its_record_agree() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let checkpoint = Uuid::new_v4();
    let batches = vec![rows(&[(0, 1), (0, 2)]), rows(&[(1, 7)])];
    let record = write_archive(&storage, &"s".into(), checkpoint, 3, batches.clone()).await.unwrap();
    assert_eq!((record.rows, record.min_event_time, record.max_event_time), (3, Some(993), Some(999)));
    assert_eq!((record.checkpoint, record.subject.as_deref()), (Some(checkpoint), Some("s")));
    let file = storage.get_checked(&record.path, record.bytes, record.checksum).await.unwrap();
    let (metadata, _) = crate::parquet_file::read_parquet(file).unwrap();
    assert_eq!((metadata["stream"].as_str(), metadata["definition_version"].as_str()), ("s", "3"));
    let read: Vec<_> = read_archive(&storage, &record, None).await.unwrap().try_collect().await.unwrap();
    assert_eq!(places(&read), BTreeSet::from([(0, 1), (0, 2), (1, 7)]));
    let only = read_archive(&storage, &record, Some(&["user".to_string()])).await.unwrap();
    let only: Vec<_> = only.try_collect().await.unwrap();
    assert_eq!(only[0].schema().fields().len(), 1);
    assert!(read_archive(&storage, &record, Some(&["nothing".to_string()])).await.is_err());
}

#[tokio::test]
async fn rows_without_event_time_are_not_archived() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let without = rows(&[(0, 0)]).project(&[0, 2, 3]).unwrap();
    assert!(write_archive(&storage, &"s".into(), Uuid::new_v4(), 1, vec![without]).await.is_err());
    assert!(write_archive(&storage, &"s".into(), Uuid::new_v4(), 1, vec![]).await.is_err());
    assert_eq!(storage.list("").await.unwrap(), []);
}

#[tokio::test]
async fn parts_of_files_that_cannot_have_what_is_asked_for_are_left_out() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let mut files = Vec::new();
    for partition in 0..2 {
        let batch = rows(&[(partition, 0), (partition, 1)]);
        files.push(write_archive(&storage, &"s".into(), Uuid::new_v4(), 1, vec![batch]).await.unwrap());
    }
    let ranges = OffsetRanges { stream: "s".into(), from: Vector::new(), to: vector("s", &[(0, 9), (1, 9)]) };
    let found = async |predicate: Arc<dyn PhysicalExpr>| {
        let plan = pruned_archive_plan(&storage, &files, schema(true), &ranges, None, Some(predicate), 2).unwrap();
        places(&run(&storage, plan).await)
    };
    let is_before = binary(col("user", &schema(true)).unwrap(), Operator::Lt, Arc::new(Literal::new(ScalarValue::from("1"))));
    assert_eq!(found(is_before).await, BTreeSet::from([(0, 0), (0, 1)]));
    // These files are of before the column.
    let is_null = datafusion::physical_expr::expressions::is_null(col("note", &schema(true)).unwrap()).unwrap();
    assert_eq!(found(is_null).await.len(), 4);
}

#[tokio::test]
async fn a_plan_has_the_asked_columns_and_null_where_an_old_file_lacks_one() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let record = write_archive(&storage, &"s".into(), Uuid::new_v4(), 1, vec![rows(&[(0, 0), (0, 1), (0, 2)])]).await.unwrap();
    let ranges = OffsetRanges { stream: "s".into(), from: vector("s", &[(0, 1)]), to: vector("s", &[(0, 9)]) };
    let plan = archive_plan(&storage, &[record], schema(true), &ranges, Some(&[1, 0]), 4).unwrap();
    let names: Vec<String> = plan.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["note", "user"]);
    let batches = run(&storage, plan).await;
    let batch = arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_eq!(batch.column(0).null_count(), 2);
    assert_eq!(batch.column(1).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["0/1", "0/2"]);
}

#[tokio::test]
async fn a_plan_over_a_thousand_partitions_is_built_and_run() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let all: Vec<(i32, i64)> = (0..1000).map(|p| (p, 5)).collect();
    let record = write_archive(&storage, &"s".into(), Uuid::new_v4(), 1, vec![rows(&all)]).await.unwrap();
    let ranges = OffsetRanges {
        stream: "s".into(),
        from: vector("s", &[(3, 6)]),
        to: all.iter().map(|(p, _)| (PartitionId::new("s", *p), Offset(6))).collect(),
    };
    let plan = archive_plan(&storage, &[record], schema(false), &ranges, None, 2).unwrap();
    assert_eq!(places(&run(&storage, plan).await).len(), 999);
}

#[tokio::test]
async fn nothing_to_read_is_an_empty_plan() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let nowhere = OffsetRanges { stream: "s".into(), from: Vector::new(), to: vector("other", &[(0, 9)]) };
    let everything = OffsetRanges { stream: "s".into(), from: Vector::new(), to: vector("s", &[(0, 9)]) };
    for ranges in [nowhere, everything] {
        let plan = archive_plan(&storage, &[], schema(true), &ranges, Some(&[0]), 2).unwrap();
        assert_eq!(plan.schema().fields().len(), 1);
        assert_eq!(run(&storage, plan).await.iter().map(|b| b.num_rows()).sum::<usize>(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However rows lie in files, a plan gives exactly those between the vectors; two adjacent plans give each row
    /// once.
    #[test]
    fn a_plan_gives_exactly_the_rows_between_two_vectors(
        places_of_files in proptest::collection::vec(proptest::collection::btree_set((0..3i32, 0..40i64), 1..30), 1..4),
        from in proptest::collection::btree_map(0..4i32, 0..45i64, 0..4),
        to in proptest::collection::btree_map(0..4i32, 0..45i64, 0..4),
        partitions in 1..4usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (found, expected) = runtime.block_on(async {
            let storage = ObjectStorage::open("memory://").unwrap();
            let mut files = Vec::new();
            let mut all = Vec::new();
            for file in &places_of_files {
                let file: Vec<_> = file.iter().copied().collect();
                files.push(write_archive(&storage, &"s".into(), Uuid::new_v4(), 1, vec![rows(&file)]).await.unwrap());
                all.extend(file);
            }
            let as_vector = |map: &std::collections::BTreeMap<i32, i64>| vector("s", &map.iter().map(|(p, o)| (*p, *o)).collect::<Vec<_>>());
            let ranges = OffsetRanges { stream: "s".into(), from: as_vector(&from), to: as_vector(&to) };
            let plan = archive_plan(&storage, &files, schema(true), &ranges, None, partitions).unwrap();
            let mut found: Vec<_> = Vec::new();
            for batch in run(&storage, plan).await {
                let partition = batch.column_by_name(PARTITION).unwrap().as_primitive::<Int32Type>().clone();
                let offset = batch.column_by_name(OFFSET).unwrap().as_primitive::<Int64Type>().clone();
                found.extend((0..batch.num_rows()).map(|row| (partition.value(row), offset.value(row))));
            }
            let within = |(p, o): &(i32, i64)| *o >= *from.get(p).unwrap_or(&0) && *o < *to.get(p).unwrap_or(&0);
            all.retain(within);
            found.sort_unstable();
            all.sort_unstable();
            (found, all)
        });
        prop_assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn dead_letters_read_back() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let schema = crate::dead_letter_schema();
    let nulls: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["topic"])),
        Arc::new(Int32Array::from(vec![1])),
        Arc::new(Int64Array::from(vec![9])),
        arrow::array::new_null_array(&timestamp_type(), 1),
        Arc::new(StringArray::from(vec!["not JSON"])),
        arrow::array::new_null_array(&DataType::Binary, 1),
        arrow::array::new_null_array(&DataType::Binary, 1),
        arrow::array::new_null_array(&DataType::Binary, 1),
    ];
    let batch = RecordBatch::try_new(schema, nulls).unwrap();
    let record = crate::write_dead_letters(&storage, &"s".into(), Uuid::new_v4(), 3, vec![batch.clone()]).await.unwrap();
    let read = crate::dead_letters::read_dead_letters(&storage, &record).await.unwrap();
    assert_eq!(read.try_collect::<Vec<_>>().await.unwrap(), std::slice::from_ref(&batch));
    let reasons = crate::dead_letters::read_dead_letter_reasons(&storage, &record).await.unwrap();
    assert_eq!(reasons.try_collect::<Vec<_>>().await.unwrap(), [batch.project(&[4]).unwrap()]);
    assert!(crate::write_dead_letters(&storage, &"s".into(), Uuid::new_v4(), 3, vec![rows(&[(0, 0)])]).await.is_err());
}
