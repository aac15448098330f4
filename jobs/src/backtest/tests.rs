//! The file of a backtest: its form by its name, and whole or not there.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};

use super::*;

fn rows() -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(StringArray::from(vec![Some("a, \"b\""), None]))), ("n", Arc::new(Int64Array::from(vec![Some(3), None])))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

fn written(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut file = ScoredFile::create(&path, Format::of(&path).unwrap(), rows().schema_ref()).unwrap();
    file.write(&rows()).unwrap();
    assert!(!path.exists(), "it appears when it is whole");
    file.finish().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    (folder, path)
}

#[test]
fn the_name_says_how_a_file_is_written() {
    let (_folder, csv) = written("scored.csv");
    assert_eq!(std::fs::read_to_string(csv).unwrap(), "id,n\n\"a, \"\"b\"\"\",3\n,\n");
    let (_folder, lines) = written("scored.ndjson");
    assert_eq!(std::fs::read_to_string(lines).unwrap(), "{\"id\":\"a, \\\"b\\\"\",\"n\":3}\n{\"id\":null,\"n\":null}\n");
    let (_folder, parquet) = written("scored.parquet");
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(File::open(parquet).unwrap(), 100).unwrap();
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>(), [rows()]);
    let refused = Format::of(Path::new("scored.xlsx")).unwrap_err().to_string();
    assert!(refused.contains("scored.xlsx"), "{refused}");
}

#[test]
fn a_file_that_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scored.csv");
    let mut file = ScoredFile::create(&path, Format::Csv, rows().schema_ref()).unwrap();
    file.write(&rows()).unwrap();
    file.discard();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
