use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Int64Array};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use types::ErrorKind;

fn states(tiles: &[i64]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] = [
        (TILE, Arc::new(Int64Array::from(tiles.to_vec()))),
        ("state", Arc::new(BinaryArray::from_iter_values(tiles.iter().map(|t| t.to_be_bytes())))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn section(view: &str, version: u32, tiles: &[&[i64]]) -> Section {
    let batches = tiles.iter().map(|tiles| states(tiles)).collect();
    Section { view: view.into(), version, stamp: "stamp 1".into(), schema: states(&[]).schema(), batches, failures: Failures::default() }
}

fn range() -> SegmentRange {
    SegmentRange { partition: PartitionId::new("s", 2), start: Offset(4), end: Offset(9) }
}

fn name() -> ObjectName {
    ObjectName::States { checkpoint: Uuid::new_v4() }
}

#[tokio::test]
async fn sections_read_back_one_by_one() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let sections = vec![section("a", 1, &[&[30, 10], &[20]]), section("a", 2, &[]), section("b-1", 1, &[&[-5]])];
    let record = write_states_object(&storage, &name(), sections, vec![range()]).await.unwrap();
    assert_eq!((record.rows, record.kind), (4, types::files::FileKind::States));
    let object = StatesObject::open(&storage, &record).await.unwrap();
    assert_eq!(object.ranges(), [range()]);
    let first = object.section("a", 1).unwrap();
    assert_eq!((first.rows, first.min_tile, first.max_tile, first.stamp.as_str()), (3, Some(10), Some(30), "stamp 1"));
    assert_eq!(object.read_section(first).await.unwrap(), [states(&[30, 10]), states(&[20])]);
    let empty = object.section("a", 2).unwrap();
    assert_eq!((empty.rows, empty.min_tile), (0, None));
    assert_eq!(object.read_section(empty).await.unwrap(), []);
    assert_eq!(object.read_section(object.section("b-1", 1).unwrap()).await.unwrap(), [states(&[-5])]);
    assert!(object.section("b-1", 2).is_none());
}

#[tokio::test]
async fn an_object_without_sections_reads_back() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let record = write_states_object(&storage, &name(), Vec::new(), Vec::new()).await.unwrap();
    assert_eq!(StatesObject::open(&storage, &record).await.unwrap().sections(), []);
}

#[tokio::test]
async fn a_footer_larger_than_the_first_read_is_read() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let sections: Vec<_> = (0..700).map(|i| section(&format!("a_view_with_a_long_name_{i}"), 1, &[&[i]])).collect();
    let record = write_states_object(&storage, &name(), sections, Vec::new()).await.unwrap();
    let object = StatesObject::open(&storage, &record).await.unwrap();
    let last = object.section("a_view_with_a_long_name_699", 1).unwrap();
    assert!(record.bytes as u64 - last.offset - last.length > FIRST_READ_BYTES);
    assert_eq!(object.read_section(last).await.unwrap(), [states(&[699])]);
}

/// Opens an object and reads all of it.
async fn read_all(storage: &ObjectStorage, record: &FileRecord) -> Result<()> {
    let object = StatesObject::open(storage, record).await?;
    for section in object.sections() {
        object.read_section(section).await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_cut_and_every_flipped_byte_is_found_and_named() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let sections = vec![section("a", 1, &[&[1, 2]]), section("b", 1, &[&[3]])];
    let record = write_states_object(&storage, &name(), sections, vec![range()]).await.unwrap();
    let content = storage.get(&record.path).await.unwrap();
    for at in 0..content.len() {
        let mut flipped = content.to_vec();
        flipped[at] ^= 1 << (at % 8);
        for damaged in [Bytes::from(flipped), content.slice(..at)] {
            let path = name();
            storage.put_new(&path, damaged).await.unwrap();
            let wrong = FileRecord { path: path.to_string(), ..record.clone() };
            let found = read_all(&storage, &wrong).await;
            // The first magic is read by nobody: a flip in it does no harm.
            if at < MAGIC.len() && found.is_ok() {
                continue;
            }
            let error = found.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error}");
            assert!(error.to_string().contains(&wrong.path), "{error}");
            storage.delete(&wrong.path).await.unwrap();
        }
    }
}

#[tokio::test]
async fn damage_in_a_section_names_the_section_and_spares_the_others() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let sections = vec![section("a", 1, &[&[1, 2]]), section("b", 7, &[&[3]])];
    let record = write_states_object(&storage, &name(), sections, Vec::new()).await.unwrap();
    let whole = StatesObject::open(&storage, &record).await.unwrap();
    let mut content = storage.get(&record.path).await.unwrap().to_vec();
    content[whole.section("b", 7).unwrap().offset as usize + 3] ^= 4;
    let path = name();
    storage.put_new(&path, content.into()).await.unwrap();
    let object = StatesObject::open(&storage, &FileRecord { path: path.to_string(), ..record }).await.unwrap();
    assert!(object.read_section(object.section("a", 1).unwrap()).await.is_ok());
    let error = object.read_section(object.section("b", 7).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("b-7"), "{error}");
}

#[tokio::test]
async fn an_object_that_went_away_is_reported_with_its_whole_length() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let record = write_states_object(&storage, &name(), vec![section("a", 1, &[&[1, 2]])], Vec::new()).await.unwrap();
    let object = StatesObject::open(&storage, &record).await.unwrap();
    storage.delete(&record.path).await.unwrap();
    let error = object.read_section(object.section("a", 1).unwrap()).await.unwrap_err();
    assert_eq!((error.kind(), error.fact("file")), (ErrorKind::Corrupt, Some(record.path.as_str())));
    assert_eq!(error.fact("expected"), Some(format!("{} bytes", record.bytes).as_str()));
}

#[tokio::test]
async fn an_object_of_a_newer_release_is_refused() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let json = br#"{"format": 2, "parts": 7}"#;
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(json);
    content.extend_from_slice(&(json.len() as u32).to_le_bytes());
    content.extend_from_slice(&crc32fast::hash(json).to_le_bytes());
    content.extend_from_slice(MAGIC);
    let stored = storage.put_new(&name(), content.clone().into()).await.unwrap();
    let path = name();
    storage.put_new(&path, content.into()).await.unwrap();
    let error = StatesObject::open(&storage, &path.record(stored, 0, None)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("newer release"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_refused_without_a_panic(mut content in proptest::collection::vec(any::<u8>(), 0..200), with_magic in any::<bool>()) {
        if with_magic {
            content.extend_from_slice(MAGIC);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let opened = runtime.block_on(async {
            let storage = ObjectStorage::open("memory://").unwrap();
            let path = name();
            let stored = storage.put_new(&path, content.into()).await.unwrap();
            StatesObject::open(&storage, &path.record(stored, 0, None)).await
        });
        prop_assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[tokio::test]
async fn another_whole_object_under_the_same_name_is_found() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let expected = write_states_object(&storage, &name(), vec![section("a", 1, &[&[1]])], Vec::new()).await.unwrap();
    let other = write_states_object(&storage, &name(), vec![section("b", 1, &[&[1]])], Vec::new()).await.unwrap();
    assert_eq!(expected.bytes, other.bytes);
    let error = StatesObject::open(&storage, &FileRecord { path: other.path, ..expected }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
