use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use url::Url;
use uuid::Uuid;

use super::*;
use crate::{Section, write_archive, write_states_object};
use types::ErrorKind;
use types::failures::Failures;
use types::files::ObjectName;

fn batch(rows: i64) -> RecordBatch {
    let times = TimestampMicrosecondArray::from_iter_values(0..rows).with_timezone("UTC");
    let numbers = Int64Array::from_iter_values((0..rows).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64)));
    RecordBatch::try_from_iter([("__event_time", Arc::new(times) as ArrayRef), ("x", Arc::new(numbers))]).unwrap()
}

async fn put(storage: &ObjectStorage, path: &str, content: Vec<u8>) {
    storage.store.put_opts(&object_path(path).unwrap(), content.into(), Default::default()).await.unwrap();
}

#[tokio::test]
async fn the_damaged_bytes_of_a_large_file_and_the_damaged_section_of_an_object_are_named() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let archive = write_archive(&storage, &"s".into(), Uuid::now_v7(), 1, vec![batch(200_000)]).await.unwrap();
    let read = AtomicU64::new(0);
    check_file(&storage, &archive, |bytes| {
        read.fetch_add(bytes, Ordering::Relaxed);
    })
    .await
    .unwrap();
    assert_eq!(read.into_inner() as i64, archive.bytes);
    let mut content = storage.get(&archive.path).await.unwrap().to_vec();
    content[1000] ^= 1;
    put(&storage, &archive.path, content).await;
    let error = check_file(&storage, &archive, |_| {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the checksum of its bytes ") && error.to_string().contains(&archive.path), "{error}");

    let section = |view: &str| Section {
        view: view.into(),
        version: 1,
        stamp: "x".into(),
        schema: batch(1).schema(),
        batches: vec![batch(100)],
        failures: Failures::default(),
    };
    let name = ObjectName::States { checkpoint: Uuid::now_v7() };
    let states = write_states_object(&storage, &name, vec![section("one"), section("two")], vec![]).await.unwrap();
    check_file(&storage, &states, |_| {}).await.unwrap();
    let at = StatesObject::open(&storage, &states).await.unwrap().section("two", 1).unwrap().offset as usize;
    let mut content = storage.get(&states.path).await.unwrap().to_vec();
    content[at + 9] ^= 1;
    put(&storage, &states.path, content).await;
    let error = check_file(&storage, &states, |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("section: two-1"), "{error}");
}

#[tokio::test]
async fn a_missing_a_short_and_a_long_file_are_damage() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let file = write_archive(&storage, &"s".into(), Uuid::now_v7(), 1, vec![batch(10)]).await.unwrap();
    let content = storage.get(&file.path).await.unwrap().to_vec();
    let longer = [content.clone(), vec![0]].concat();
    for (wrong, what) in [(content[..content.len() - 1].to_vec(), "length"), (vec![], "length"), (longer, "length")] {
        put(&storage, &file.path, wrong).await;
        let error = check_file(&storage, &file, |_| {}).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains(what), "{error}");
    }
    storage.delete(&file.path).await.unwrap();
    let error = check_file(&storage, &file, |_| {}).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Corrupt, "a stored file is missing"));
}

#[tokio::test]
async fn a_file_that_its_disk_cannot_read_is_damage_to_every_reader() {
    let failed = object_store::Error::Generic { store: "LocalFileSystem", source: Box::new(std::io::Error::from_raw_os_error(5)) };
    let error = known_to_be_there(about(failed, "a"), "a", 7);
    assert_eq!((error.kind(), error.message()), (ErrorKind::Corrupt, "a stored file cannot be read"));
    assert!(error.fact("found").is_some_and(|found| found.contains("os error 5")) && error.fact("file") == Some("a"), "{error}");

    // A folder in a file's place cannot be read either.
    let folder = tempfile::tempdir().unwrap();
    let storage = ObjectStorage::open(Url::from_directory_path(folder.path()).unwrap().as_str()).unwrap();
    let name = ObjectName::States { checkpoint: Uuid::now_v7() };
    let states = write_states_object(&storage, &name, Vec::new(), Vec::new()).await.unwrap();
    let archive = write_archive(&storage, &"s".into(), Uuid::now_v7(), 1, vec![batch(10)]).await.unwrap();
    for file in [&states, &archive] {
        let path = folder.path().join(&file.path);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(check_file(&storage, file, |_| {}).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert_eq!(StatesObject::open(&storage, &states).await.err().map(|error| error.kind()), Some(ErrorKind::Corrupt));
    let mut reader = VerifiedReader::new(storage.clone(), (&archive).into());
    assert_eq!(reader.metadata().await.unwrap_err().kind(), ErrorKind::Corrupt);
    let read = storage.get_each_checked(&[(&archive).into()]).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt);
}
