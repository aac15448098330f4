use super::refusing::{Refused, RefusingStore};
use super::*;
use types::files::{CATALOG_IDENTITY, ObjectName, StoredObject};

fn name() -> ObjectName {
    ObjectName::States { checkpoint: Uuid::new_v4() }
}

/// Makes each of the named functions (`async fn(&ObjectStorage)`) a test in memory, in a folder, and in the bucket that
/// BASESTREAM_TEST_S3 (with AWS_*) names.
macro_rules! on_every_storage {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&crate::ObjectStorage::open("memory://").unwrap()).await;
            })*
        }
        mod in_a_folder {
            $(#[tokio::test]
            async fn $name() {
                let folder = tempfile::tempdir().unwrap();
                super::$name(&super::in_folder(&folder)).await;
            })*
        }
        mod on_s3 {
            $(#[tokio::test]
            #[ignore = "needs services: just test-services"]
            async fn $name() {
                let bucket = std::env::var("BASESTREAM_TEST_S3").expect("BASESTREAM_TEST_S3 names a bucket: just services up");
                let url = format!("{}/{}", bucket.trim_end_matches('/'), uuid::Uuid::new_v4());
                super::$name(&crate::ObjectStorage::open(&url).unwrap()).await;
            })*
        }
    };
}

on_every_storage!(
    what_is_stored_is_read_listed_and_deleted,
    the_same_content_may_be_stored_again_and_other_content_may_not,
    a_missing_or_damaged_file_is_named,
    an_upload_is_invisible_until_it_is_finished,
    an_upload_that_is_aborted_or_dropped_leaves_nothing,
    a_large_object_goes_up_in_parts,
    a_storage_belongs_to_the_first_catalog_that_takes_it,
);

fn in_folder(folder: &tempfile::TempDir) -> ObjectStorage {
    ObjectStorage::open(Url::from_directory_path(folder.path().join("new")).unwrap().as_str()).unwrap()
}

async fn what_is_stored_is_read_listed_and_deleted(storage: &ObjectStorage) {
    let name = name();
    let path = name.to_string();
    let stored = storage.put_new(&name, Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(stored, StoredObject { bytes: 5, checksum: crc32fast::hash(b"hello") });
    assert_eq!(storage.get(&path).await.unwrap(), "hello");
    assert_eq!(storage.get_checked(&path, stored.bytes, stored.checksum).await.unwrap(), "hello");
    assert_eq!(storage.get_range(&path, 1..3).await.unwrap(), "el");
    let listed = storage.list("states").await.unwrap();
    assert_eq!(listed.iter().map(|l| (l.path.as_str(), l.bytes)).collect::<Vec<_>>(), [(path.as_str(), 5)]);
    assert_eq!(storage.list("").await.unwrap(), listed);
    assert_eq!(storage.list("stat").await.unwrap(), []);
    storage.delete(&path).await.unwrap();
    storage.delete(&path).await.unwrap();
    assert_eq!(storage.list("").await.unwrap(), []);
}

async fn a_storage_belongs_to_the_first_catalog_that_takes_it(storage: &ObjectStorage) {
    assert_eq!(storage.owner().await.unwrap(), None);
    storage.take_for("first").await.unwrap();
    assert_eq!(storage.owner().await.unwrap().as_deref(), Some("first"));
    storage.take_for("first").await.unwrap();
    assert_eq!(storage.take_for("second").await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(storage.owner().await.unwrap().as_deref(), Some("first"));
}

#[tokio::test]
async fn a_damaged_owner_is_no_other_catalog_and_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let storage = in_folder(&folder);
    storage.take_for("first").await.unwrap();
    let file = folder.path().join("new").join(CATALOG_IDENTITY);
    let intact = std::fs::read(&file).unwrap();
    let mut flipped = intact.clone();
    flipped[0] ^= 1;
    for damaged in [&flipped[..], &intact[..4], b"", b"\xff\xff"] {
        std::fs::write(&file, damaged).unwrap();
        assert_eq!(storage.owner().await.unwrap(), None, "{damaged:?}");
        storage.take_for("first").await.unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), intact);
    }
}

async fn the_same_content_may_be_stored_again_and_other_content_may_not(storage: &ObjectStorage) {
    let name = name();
    storage.put_new(&name, Bytes::from_static(b"one")).await.unwrap();
    storage.put_new(&name, Bytes::from_static(b"one")).await.unwrap();
    let error = storage.put_new(&name, Bytes::from_static(b"two")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(&name.to_string()));
    assert_eq!(storage.get(&name.to_string()).await.unwrap(), "one");
}

async fn a_missing_or_damaged_file_is_named(storage: &ObjectStorage) {
    let name = name();
    let path = name.to_string();
    for error in [storage.get(&path).await.unwrap_err(), storage.get_range(&path, 0..1).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&path));
    }
    let stored = storage.put_new(&name, Bytes::from_static(b"content")).await.unwrap();
    let errors = [
        storage.get_checked(&path, 8, stored.checksum).await.unwrap_err(),
        storage.get_checked(&path, 7, stored.checksum ^ 1).await.unwrap_err(),
        storage.get_range(&path, 5..9).await.unwrap_err(),
        storage.get_range(&path, 50..51).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(["found", "expected", path.as_str()].iter().all(|part| error.to_string().contains(part)), "{error}");
    }
}

async fn an_upload_is_invisible_until_it_is_finished(storage: &ObjectStorage) {
    let name = name();
    let part = Bytes::from(vec![7u8; 5 * 1024 * 1024 + 1]);
    let mut upload = storage.upload_writer(&name).await.unwrap();
    let mut whole = Vec::new();
    for _ in 0..5 {
        upload.write(part.clone()).await.unwrap();
        whole.extend_from_slice(&part);
    }
    assert_eq!(storage.list("").await.unwrap(), []);
    let stored = upload.finish().await.unwrap();
    assert_eq!(stored, StoredObject { bytes: whole.len() as i64, checksum: crc32fast::hash(&whole) });
    assert_eq!(storage.get_checked(&name.to_string(), stored.bytes, stored.checksum).await.unwrap(), whole);
    storage.delete(&name.to_string()).await.unwrap();
}

async fn an_upload_that_is_aborted_or_dropped_leaves_nothing(storage: &ObjectStorage) {
    for bytes in [10, MULTIPART_ABOVE_BYTES + 1] {
        for abort in [true, false] {
            let mut upload = storage.upload_writer(&name()).await.unwrap();
            upload.write(Bytes::from(vec![1; bytes])).await.unwrap();
            if abort { upload.abort().await } else { drop(upload) }
        }
    }
    assert_eq!(storage.list("").await.unwrap(), []);
    if let Some(local) = &storage.local {
        assert_eq!(std::fs::read_dir(local.folder.root().join(PARTIAL_FOLDER)).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_bucket_that_forbids_a_put_is_asked_once_and_is_an_outage_at_once() {
    let bucket = Arc::new(RefusingStore::new(Refused::Puts));
    let storage = ObjectStorage::over(bucket.clone()).unwrap();
    let error = storage.put_new(&name(), Bytes::from_static(b"content")).await.unwrap_err();
    assert_eq!((error.kind(), bucket.puts()), (ErrorKind::Unavailable, 1), "{error}");
    let outages = storage.outages();
    assert!(matches!(&outages[..], [outage] if outage.error.contains("403 Forbidden")), "{outages:?}");
}

#[test]
fn an_endpoint_with_a_password_is_refused_without_showing_it() {
    let options = |endpoint: &str| vec![("AWS_REGION".to_owned(), "a@b".to_owned()), ("AWS_ENDPOINT_URL".to_owned(), endpoint.to_owned())];
    assert!(check_endpoints(&options("http://127.0.0.1:9000")).is_ok());
    let error = check_endpoints(&options("http://key:hush@127.0.0.1:9000")).unwrap_err().to_string();
    assert!(error.contains("AWS_ENDPOINT_URL") && !error.contains("hush"), "{error}");
}

async fn a_large_object_goes_up_in_parts(storage: &ObjectStorage) {
    let name = name();
    let content = Bytes::from((0..MULTIPART_ABOVE_BYTES + 4321).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    let stored = storage.put_new(&name, content.clone()).await.unwrap();
    assert_eq!(storage.get_checked(&name.to_string(), stored.bytes, stored.checksum).await.unwrap(), content);
    storage.delete(&name.to_string()).await.unwrap();
}

#[test]
fn a_url_that_is_no_storage_is_answered_with_what_was_expected() {
    for url in ["", "nonsense", "ftp://host/x", "file://host/x"] {
        let error = ObjectStorage::open(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{url}");
        assert!(error.to_string().contains("storage url"), "{error}");
    }
}

#[tokio::test]
async fn what_a_crashed_writer_left_is_not_seen_and_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    let storage = in_folder(&folder);
    let local = storage.local.as_ref().unwrap();
    // A crash runs no destructors.
    let (mut file, partial) = local.folder.create_partial().unwrap();
    std::io::Write::write_all(&mut file, b"half a file").unwrap();
    std::mem::forget(partial);
    let again = ObjectStorage::open(Url::from_directory_path(local.folder.root()).unwrap().as_str()).unwrap();
    assert_eq!(again.list("").await.unwrap(), []);
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    assert_eq!(again.remove_partial_files(tomorrow, Duration::from_secs(3600)).await.unwrap(), 1);
}

#[tokio::test]
async fn handles_of_one_folder_share_an_address_and_memories_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let url = Url::from_directory_path(folder.path()).unwrap().to_string();
    let open = |url: &str| ObjectStorage::open(url).unwrap().object_store_url().clone();
    assert_eq!(open(&url), open(&url));
    assert_ne!(open("memory://"), open("memory://"));
}
