use arrow::array::{ArrayRef, Int64Array};
use futures::TryStreamExt;

use super::*;
use types::ErrorKind;
use types::tiles::Level;

fn batch(from: i64, rows: i64) -> RecordBatch {
    RecordBatch::try_from_iter([("key", Arc::new(Int64Array::from_iter_values(from..from + rows)) as ArrayRef)]).unwrap()
}

fn manifest(files: Vec<BucketFile>) -> Manifest {
    Manifest {
        format: MANIFEST_FORMAT,
        view: "v".into(),
        version: 2,
        run: Uuid::from_u128(77),
        cut: "s/0:17,s/1:4".parse().unwrap(),
        stamp: "stamp".into(),
        base: Tier { bucket_count: 4, files, pruned_at: None },
        deltas: vec![],
        floors: vec![(Level::Second1, Some(-5)), (Level::All, None)],
        edges_from: EdgesFrom::default(),
        left_out: None,
        max_event_time: Some(9),
        made_at: 10,
        recomputed_at: None,
        gaps: 0,
        events: 21,
        expired: 1,
        rows: 18,
        failures: Failures::default(),
        joined: None,
    }
}

fn entry(bucket: u32) -> BucketFile {
    BucketFile { bucket, path: format!("b{bucket}"), bytes: 1, crc32: 2, rows: 3 }
}

#[tokio::test]
async fn a_manifest_reads_back_and_finds_its_buckets() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let manifest = manifest(vec![entry(0), entry(3)]);
    let record = write_manifest(&storage, &manifest).await.unwrap();
    assert_eq!(record.run, Some(manifest.run));
    let read = read_manifest(&storage, &record).await.unwrap();
    assert_eq!(read, manifest);
    assert_eq!((read.base.file_of(3), read.base.file_of(1)), (Some(&entry(3)), None));
}

#[tokio::test]
async fn a_manifest_that_misses_its_buckets_is_not_written() {
    let storage = ObjectStorage::open("memory://").unwrap();
    for files in [vec![entry(1), entry(0)], vec![entry(1), entry(1)], vec![entry(4)]] {
        assert!(write_manifest(&storage, &manifest(files)).await.is_err());
    }
}

#[tokio::test]
async fn a_delta_is_checked_and_read_back_like_the_base() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let with = |delta: Tier| Manifest { deltas: vec![delta], ..manifest(vec![entry(0)]) };
    let whole = with(Tier { bucket_count: 2, files: vec![entry(0), entry(1)], pruned_at: Some(7) });
    assert_eq!(Manifest::format_of(&whole.edges_from, &whole.deltas), 3);
    let record = write_manifest(&storage, &whole).await.unwrap();
    assert_eq!(read_manifest(&storage, &record).await.unwrap(), whole);
    assert_eq!(whole.state_files().map(|file| file.bucket).collect::<Vec<_>>(), [0, 0, 1]);
    assert!(write_manifest(&storage, &with(Tier { bucket_count: 1, files: vec![entry(1)], pruned_at: None })).await.is_err());
}

#[test]
fn unknown_fields_are_ignored_and_a_newer_format_is_refused() {
    let mut json = serde_json::to_value(manifest(vec![])).unwrap();
    json["new_in_a_minor_release"] = 1.into();
    assert_eq!(Manifest::parse(json.to_string().as_bytes()).unwrap(), manifest(vec![]));
    json["format"] = (MANIFEST_FORMAT + 1).into();
    let error = Manifest::parse(json.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("newer release"), "{error}");
    assert_eq!(Manifest::parse(b"{}").unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Stored snapshots and the catalog's text of them: a manifest of the first format loads for ever.
#[test]
fn a_manifest_of_the_first_format_loads() {
    let text = r#"{"format":1,"view":"v","version":2,"run":"00000000-0000-0000-0000-00000000004d","cut":"s/0:17,s/1:4",
        "stamp":"stamp","bucket_count":4,"files":[{"bucket":3,"path":"b3","bytes":1,"crc32":2,"rows":3}],
        "floors":[["Second1",-5],["All",null]],"max_event_time":9,"made_at":10,"events":21,"filtered":2,"expired":1,"rows":18}"#;
    assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), Manifest { format: 1, ..manifest(vec![entry(3)]) });
}

#[tokio::test]
async fn a_bucket_streams_out_and_in() {
    let folder = tempfile::tempdir().unwrap();
    let url = url::Url::from_directory_path(folder.path()).unwrap();
    let storage = ObjectStorage::open(url.as_str()).unwrap();
    let run = Uuid::new_v4();
    let view: Arc<str> = "v".into();
    let begin = |bucket| {
        let metadata = vec![("stamp".to_string(), "x".to_string())];
        let name = ObjectName::Bucket { view: view.clone(), version: 2, run, bucket };
        BucketWriter::begin(&storage, name, bucket, batch(0, 0).schema(), metadata)
    };
    let mut writer = begin(5).await.unwrap();
    for part in 0..20 {
        writer.push(&batch(part * 10_000, 10_000)).await.unwrap();
    }
    assert_eq!(storage.list("").await.unwrap(), []);
    let (entry, record) = writer.finish().await.unwrap();
    assert_eq!((entry.bucket, entry.rows, record.rows), (5, 200_000, 200_000));
    assert_eq!((record.run, record.subject.as_deref(), record.bytes), (Some(run), Some("v"), entry.bytes));
    let read: Vec<_> = read_bucket(&storage, &entry).await.unwrap().try_collect().await.unwrap();
    assert_eq!(arrow::compute::concat_batches(&batch(0, 0).schema(), &read).unwrap(), batch(0, 200_000));

    let mut unfinished = begin(6).await.unwrap();
    unfinished.push(&batch(0, 100_000)).await.unwrap();
    drop(unfinished);
    drop(begin(7).await.unwrap());
    assert_eq!(storage.list("").await.unwrap().len(), 1);
}
