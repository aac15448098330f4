use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use super::*;
use types::ErrorKind;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("__offset", DataType::Int64, false), Field::new("text", DataType::Utf8, true)]))
}

fn batch(from: i64, rows: i64) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(from..from + rows);
    let texts = StringArray::from_iter((from..from + rows).map(|i| (i % 3 != 0).then(|| format!("row {i}"))));
    RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

fn options() -> ParquetOptions {
    ParquetOptions { row_group_rows: 100, growing_columns: vec!["__offset".to_owned()], ..ParquetOptions::default() }.with("stream", "s")
}

#[test]
fn a_file_reads_back_with_its_metadata() {
    let batches = [batch(0, 250), batch(250, 7)];
    let file = write_parquet(&batches, schema(), &options()).unwrap();
    let (metadata, read) = read_parquet(file).unwrap();
    let expected = BTreeMap::from([("format".to_string(), "1".to_string()), ("stream".to_string(), "s".to_string())]);
    assert_eq!(metadata, expected);
    let joined = arrow::compute::concat_batches(&schema(), &read).unwrap();
    assert_eq!(joined, batch(0, 257));
}

/// A reader of a compressed file sets up zstd for each of its columns.
#[test]
fn a_file_of_few_values_is_not_compressed() {
    let compressions = |batches: &[RecordBatch]| -> Vec<Compression> {
        let file = write_parquet(batches, schema(), &options()).unwrap();
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        reader.metadata().row_groups().iter().flat_map(|group| group.columns()).map(|column| column.compression()).collect()
    };
    assert_eq!(compressions(&[batch(0, 16), batch(16, 16)]), [Compression::UNCOMPRESSED; 2]);
    let all = batch(0, 5_000);
    assert!(compressions(std::slice::from_ref(&all)).iter().all(|compression| *compression == zstd()));
    assert!(compressions(&[all.slice(0, 16)]).iter().all(|compression| *compression == Compression::UNCOMPRESSED), "by its own rows");
}

#[test]
fn a_file_without_rows_reads_back() {
    let file = write_parquet(&[], schema(), &options()).unwrap();
    assert_eq!(read_parquet(file).unwrap().1, []);
}

#[test]
fn a_file_of_a_newer_release_is_refused() {
    let mut newer = options();
    newer.metadata.push(("format".to_string(), "2".to_string()));
    let file = write_parquet(&[batch(0, 1)], schema(), &newer).unwrap();
    let error = read_parquet(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("newer release") && error.to_string().contains('2'), "{error}");
}

#[test]
fn rows_that_do_not_fit_the_schema_are_an_error_and_no_panic() {
    let other = RecordBatch::try_from_iter([("x", Arc::new(Int64Array::from(vec![1])) as _)]).unwrap();
    assert!(write_parquet(&[other], schema(), &options()).is_err());
}

#[test]
fn a_cut_off_file_is_corrupt_at_every_byte() {
    let file = write_parquet(&[batch(0, 20)], schema(), &options()).unwrap();
    for length in 0..file.len() {
        assert_eq!(read_parquet(file.slice(..length)).unwrap_err().kind(), ErrorKind::Corrupt, "{length}");
    }
}

/// Other programs match columns by these ids, in files that are there.
#[test]
fn a_columns_id_is_that_of_its_name_in_every_file() {
    let known = ["__event_time", "__partition", "__offset", "amount"].map(field_id);
    assert_eq!(known, [17_018_393, 1_184_844_332, 1_499_201_974, 378_652_399]);
    let with_ids = ParquetOptions { field_ids: true, ..options() };
    for schema in [schema(), Arc::new(Schema::new(schema().fields().iter().rev().cloned().collect::<Vec<_>>()))] {
        let columns = schema.fields().iter().map(|field| batch(0, 9).column_by_name(field.name()).unwrap().clone()).collect();
        let rows = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let file = write_parquet(std::slice::from_ref(&rows), schema, &with_ids).unwrap();
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file.clone()).unwrap();
        for column in reader.parquet_schema().root_schema().get_fields() {
            assert_eq!(column.get_basic_info().id(), field_id(column.name()));
        }
        assert_eq!(read_parquet(file).unwrap().1, [rows], "they change nothing for our readers");
    }
}
