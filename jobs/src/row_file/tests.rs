//! A file of rows: its form by its name, and whole or not there.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Fields, Schema};
use types::ErrorKind;

use super::*;

fn rows() -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] =
        [("id", Arc::new(StringArray::from(vec![Some("a, \"b\""), None]))), ("n", Arc::new(Int64Array::from(vec![Some(3), None])))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

fn written(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let mut file = RowFile::create(&path, RowFileFormat::from_extension(&path).unwrap(), rows().schema_ref()).unwrap();
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
    let refused = RowFileFormat::from_extension(Path::new("scored.xlsx")).unwrap_err().to_string();
    assert!(refused.contains("scored.xlsx"), "{refused}");
}

#[test]
fn what_cannot_be_written_is_named_before_anything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("old.csv"), "").unwrap();
    std::fs::create_dir(at("folder.csv")).unwrap();
    let reported = |path: &Path, force: bool| {
        let mut mistakes = Mistakes::default();
        let format = RowFile::check(path, force, &mut mistakes);
        (format, mistakes.into_result().map_err(|mistake| mistake.to_string()).err().unwrap_or_default())
    };
    for good in [at("new.parquet"), at("folder.csv/new.csv"), "new.csv".into()] {
        assert_eq!(reported(&good, false).1, "", "{good:?}");
    }
    let of_csv = Some(RowFileFormat::Csv);
    assert_eq!(reported(&at("old.csv"), true), (of_csv, String::new()));
    for (path, force, format, expected) in [
        ("old.csv", false, of_csv, "already exists"),
        ("folder.csv", true, of_csv, "is a folder"),
        ("none/new.csv", false, of_csv, "there is no folder"),
        ("old.csv/new.csv", false, of_csv, "there is no folder"),
        ("new.txt", false, None, "names no format"),
        ("none/new.txt", false, None, "2 mistakes:\n- there is no folder"),
    ] {
        let (found, mistakes) = reported(&at(path), force);
        assert!(found == format && mistakes.contains(expected) && !mistakes.contains(".part"), "{path}: {mistakes}");
    }
}

#[test]
fn a_file_that_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scored.csv");
    let mut file = RowFile::create(&path, RowFileFormat::Csv, rows().schema_ref()).unwrap();
    file.write(&rows()).unwrap();
    drop(file);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_is_written_by_one_process_at_a_time_and_what_a_killed_one_left_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scored.csv");
    std::fs::write(folder.path().join("scored.csv.part"), "left by a process that was killed").unwrap();
    let begin = || RowFile::create(&path, RowFileFormat::Csv, rows().schema_ref());
    let mut first = begin().unwrap();
    let refused = begin().err().unwrap();
    assert!(refused.kind() == types::ErrorKind::Conflict && refused.message().contains("another process is writing"), "{refused}");
    first.write(&rows()).unwrap();
    first.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "id,n\n\"a, \"\"b\"\"\",3\n,\n");
    begin().unwrap().finish().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "id,n\n");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_cannot_be_begun_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = Field::new("nothing", DataType::Struct(Fields::empty()), true);
    let schema = Arc::new(Schema::new(vec![nothing]));
    assert!(RowFile::create(&folder.path().join("scored.parquet"), RowFileFormat::Parquet, &schema).is_err(), "it has no columns");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_the_source_of_the_error() {
    for (name, batches) in ["scored.csv", "scored.ndjson", "scored.parquet"].into_iter().flat_map(|name| [(name, 1), (name, 2_000)]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::os::unix::fs::symlink("/dev/full", folder.path().join(format!("{name}.part"))).unwrap();
        let mut file = created_alone(&path);
        let written = (0..batches).try_for_each(|_| file.write(&rows()));
        let error = written.and_then(|()| file.finish()).unwrap_err();
        assert!(error.is_of_full_disk() && error.message() == "the rows cannot be written", "{name} of {batches}: {error}");
    }
}

/// All processes of a machine have the same `/dev/full`: another run of this test may hold its lock.
#[cfg(target_os = "linux")]
fn created_alone(path: &Path) -> RowFile {
    let create = || RowFile::create(path, RowFileFormat::from_extension(path).unwrap(), rows().schema_ref());
    for _ in 0..3_000 {
        match create() {
            Err(error) if error.kind() == ErrorKind::Conflict => std::thread::sleep(std::time::Duration::from_millis(10)),
            file => return file.unwrap(),
        }
    }
    create().unwrap()
}
