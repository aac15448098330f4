use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::parquet_file::{ParquetOptions, write_parquet};
use crate::scan::{read_file, read_file_as, read_file_from, read_files_from, scan_files};
use counted_store::CountedStore;
use types::ErrorKind;
use types::files::ObjectName;

mod counted_store;

/// `rows` rows of incompressible text, so that a file can be made larger than the first read.
fn batch(rows: usize) -> RecordBatch {
    let texts = (0..rows).map(|i| {
        (0..8)
            .map(|j| format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&[(i + j).to_le_bytes(), i.to_le_bytes()].concat())))
            .collect::<String>()
    });
    let columns: [(&str, ArrayRef); 2] =
        [("number", Arc::new(Int64Array::from_iter_values(0..rows as i64))), ("text", Arc::new(StringArray::from_iter_values(texts)))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn encode(rows: usize) -> Bytes {
    encode_in_groups(rows, 1000)
}

fn encode_in_groups(rows: usize, row_group_rows: usize) -> Bytes {
    let batch = batch(rows);
    let options = ParquetOptions { row_group_rows, ..ParquetOptions::default() };
    write_parquet(std::slice::from_ref(&batch), batch.schema(), &options).unwrap()
}

async fn stored(storage: &ObjectStorage, content: Bytes) -> KnownFile {
    let name = ObjectName::States { checkpoint: Uuid::new_v4() };
    let stored = storage.put_new(&name, content).await.unwrap();
    KnownFile { path: name.to_string(), bytes: stored.bytes, checksum: stored.checksum }
}

async fn read(storage: &ObjectStorage, file: KnownFile) -> Result<Vec<RecordBatch>> {
    read_file(storage, file, None).await?.try_collect().await
}

async fn scan(storage: &ObjectStorage, file: KnownFile) -> Result<Vec<RecordBatch>> {
    let context = SessionContext::new();
    storage.register(&context.runtime_env());
    let plan = scan_files(storage, vec![file], batch(0).schema(), vec![0, 1], None, 2)?;
    Ok(datafusion::physical_plan::collect(plan, context.task_ctx()).await?)
}

fn joined(batches: &[RecordBatch]) -> RecordBatch {
    arrow::compute::concat_batches(&batch(0).schema(), batches).unwrap()
}

#[tokio::test]
async fn small_and_large_files_read_as_they_were_written() {
    let storage = ObjectStorage::open("memory://").unwrap();
    for rows in [0, 1, 5000] {
        let content = encode(rows);
        assert_eq!(rows == 5000, content.len() as u64 > FIRST_READ_BYTES);
        let file = stored(&storage, content).await;
        assert_eq!(joined(&read(&storage, file.clone()).await.unwrap()), batch(rows));
        assert_eq!(scan(&storage, file).await.unwrap().iter().map(|b| b.num_rows()).sum::<usize>(), rows);
    }
}

#[tokio::test]
async fn row_groups_of_lesser_values_are_not_read() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let content = encode(5000);
    let known = stored(&storage, content.clone()).await;
    let first_chunk = VerifiedReader::new(storage.clone(), known.clone()).metadata().await.unwrap().row_group(0).column(0).byte_range();
    let mut damaged = content.to_vec();
    damaged[first_chunk.0 as usize] ^= 1;
    let path = stored(&storage, damaged.into()).await.path;
    let rows = async |column: &str, least: i64| -> Result<usize> {
        let file = KnownFile { path: path.clone(), ..known.clone() };
        let batches: Vec<RecordBatch> =
            read_file_from(&storage, file, Some(&["number".into()]), Some((column, least))).await?.try_collect().await?;
        Ok(batches.iter().map(RecordBatch::num_rows).sum())
    };
    // Row groups have a thousand rows.
    assert_eq!(rows("number", 2_500).await.unwrap(), 3_000);
    assert_eq!(rows("number", 3_000).await.unwrap(), 2_000);
    assert_eq!(rows("number", 5_000).await.unwrap(), 0);
    assert_eq!(rows("number", 0).await.unwrap_err().kind(), ErrorKind::Corrupt, "the first one is damaged");
    assert!(rows("text", 2_500).await.is_err() && rows("none", 2_500).await.is_err(), "nothing is known of the column");
}

#[tokio::test]
async fn several_files_read_whole_have_the_rows_of_each_and_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for url in ["memory://".to_owned(), format!("file://{}", folder.path().display())] {
        let storage = ObjectStorage::open(&url).unwrap();
        let mut files = Vec::new();
        for rows in [5, 5000, 0] {
            files.push(stored(&storage, encode(rows)).await);
        }
        let columns = vec!["number".to_owned()];
        let read = async |files: Vec<KnownFile>, least: i64| {
            let read = read_files_from(&storage, files, columns.clone(), ("number", least)).await?;
            Ok::<_, Error>(read.iter().map(|rows| rows.iter().map(RecordBatch::num_rows).sum()).collect::<Vec<usize>>())
        };
        assert_eq!(read(files.clone(), 0).await.unwrap(), [5, 5000, 0]);
        assert_eq!(read(files.clone(), 2_500).await.unwrap(), [0, 3_000, 0]);

        let mut flipped = encode(5).to_vec();
        flipped[10] ^= 1;
        let damaged = stored(&storage, flipped.into()).await.path;
        for path in [damaged, "states/none".to_owned()] {
            let wrong = KnownFile { path: path.clone(), ..files[0].clone() };
            let error = read(vec![files[1].clone(), wrong], 0).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&path), "{error}");
        }
        let unknown = read_files_from(&storage, files, vec!["none".to_owned()], ("number", 0)).await.unwrap_err();
        assert!(unknown.to_string().contains("none"), "{unknown}");
    }
}

#[tokio::test]
async fn every_cut_and_every_flipped_byte_of_a_small_file_is_found() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let content = encode(5);
    let written = KnownFile { path: String::new(), bytes: content.len() as i64, checksum: crc32fast::hash(&content) };
    for at in 0..content.len() {
        let mut flipped = content.to_vec();
        flipped[at] ^= 1 << (at % 8);
        for damaged in [Bytes::from(flipped), content.slice(..at)] {
            let path = stored(&storage, damaged).await.path;
            let error = read(&storage, KnownFile { path: path.clone(), ..written.clone() }).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{at}: {error}");
            assert!(error.to_string().contains(&path), "{error}");
            storage.delete(&path).await.unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn damage_anywhere_in_a_large_file_is_found_by_streams_and_by_plans(place in 0.0..1.0f64, bit in 0..8u32, cut in any::<bool>(), from_end in any::<bool>()) {
        static CONTENT: std::sync::LazyLock<Bytes> = std::sync::LazyLock::new(|| encode(5000));
        // Half of the cases hit the footer and the page index.
        let place = if from_end { 1.0 - place / 50.0 } else { place };
        let at = ((CONTENT.len() - 1) as f64 * place) as usize;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let storage = ObjectStorage::open("memory://").unwrap();
            let mut damaged = CONTENT.to_vec();
            if cut { damaged.truncate(at) } else { damaged[at] ^= 1 << bit }
            let path = stored(&storage, damaged.into()).await.path;
            let file = KnownFile { path, bytes: CONTENT.len() as i64, checksum: crc32fast::hash(&CONTENT) };
            for error in [read(&storage, file.clone()).await.unwrap_err(), scan(&storage, file.clone()).await.unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                assert!(error.to_string().contains(&file.path), "{error}");
            }
        });
    }

    #[test]
    fn a_table_of_pieces_reads_back(lengths in proptest::collection::vec((1..1_000_000u64, any::<u32>()), 0..20)) {
        let mut pieces: Vec<Piece> = Vec::new();
        for (length, checksum) in lengths {
            let start = pieces.last().map_or(0, |piece| piece.range.end);
            pieces.push(Piece { range: start..start + length, checksum });
        }
        prop_assert_eq!(Piece::parse_table(Piece::table(&pieces).as_bytes()), Some(pieces));
    }

    #[test]
    fn no_text_makes_the_table_parser_panic(text in "basestream-pieces\\[[0-9a-f:,\\]]{0,60}") {
        let _ = Piece::parse_table(text.as_bytes());
    }
}

/// Of files that the first request reads whole, of larger ones, of one with a column chunk that begins before the first
/// request, and of one whose footer is larger than it.
#[tokio::test]
async fn each_byte_of_a_file_is_read_once() {
    let (one, many) = (encode_in_groups(5000, 5000), encode_in_groups(4000, 1));
    let footer = u32::from_le_bytes(many[many.len() - 8..][..4].try_into().unwrap());
    assert!(u64::from(footer) > FIRST_READ_BYTES, "{footer}");
    for content in [encode(5), encode(2500), encode(5000), one, many] {
        let counted = CountedStore::over_memory();
        let storage = ObjectStorage::over(counted.clone()).unwrap();
        let file = stored(&storage, content.clone()).await;
        read(&storage, file.clone()).await.unwrap();
        assert_eq!(counted.take_read_bytes(), content.len() as u64);
        VerifiedReader::new(storage, file).check_all().await.unwrap();
        assert_eq!(counted.take_read_bytes(), content.len() as u64);
    }
}

#[tokio::test]
async fn another_file_under_the_same_name_is_found() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let (one, other) = (encode(4000), encode(4001));
    let file = stored(&storage, other).await;
    let expected = KnownFile { path: file.path, bytes: one.len() as i64, checksum: crc32fast::hash(&one) };
    assert_eq!(read(&storage, expected).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_missing_file_is_damage_for_streams_and_for_plans() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let file = KnownFile { path: "states/none.states".into(), bytes: 1000, checksum: 0 };
    assert_eq!(read(&storage, file.clone()).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let error = scan(&storage, file).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.context().iter().any(|(key, value)| *key == "file" && value == "states/none.states"), "{error}");
}

#[tokio::test]
async fn a_column_that_is_not_read_does_not_have_to_be_whole() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let content = encode(5000);
    let known = stored(&storage, content.clone()).await;
    let mut reader = VerifiedReader::new(storage.clone(), known.clone());
    let text_chunk = reader.metadata().await.unwrap().row_group(0).column(1).byte_range();
    let mut damaged = content.to_vec();
    damaged[text_chunk.0 as usize + 10] ^= 1;
    let file = KnownFile { path: stored(&storage, damaged.into()).await.path, ..known };
    let numbers: Vec<RecordBatch> = read_file(&storage, file.clone(), Some(&["number".into()])).await.unwrap().try_collect().await.unwrap();
    assert_eq!(numbers.iter().map(|b| b.num_rows()).sum::<usize>(), 5000);
    assert_eq!(read(&storage, file).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn an_older_files_missing_column_is_null_and_another_type_is_refused() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let file = stored(&storage, encode(3)).await;
    let target = |name: &str, data_type: DataType, nullable| {
        Arc::new(Schema::new(vec![Field::new(name, data_type, nullable), Field::new("number", DataType::Int64, false)]))
    };
    let added = target("added", DataType::Int32, true);
    let rows: Vec<RecordBatch> = read_file_as(&storage, file.clone(), added.clone()).await.unwrap().try_collect().await.unwrap();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int32Array::new_null(3)), Arc::new(Int64Array::from(vec![0, 1, 2]))];
    assert_eq!(rows, [RecordBatch::try_new(added, columns).unwrap()]);

    let refused = [(target("added", DataType::Int32, false), "added"), (target("text", DataType::Int32, true), "text")];
    for (schema, column) in refused {
        let Err(streamed) = read_file_as(&storage, file.clone(), schema.clone()).await else { panic!("{column} was taken") };
        let context = SessionContext::new();
        storage.register(&context.runtime_env());
        let plan = scan_files(&storage, vec![file.clone()], schema, vec![0, 1], None, 1).unwrap();
        let scanned = Error::from(datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap_err());
        for error in [streamed, scanned] {
            assert_eq!(error.kind(), ErrorKind::Input, "{error}");
            assert!(error.to_string().contains(column) && error.to_string().contains(&file.path), "{error}");
        }
    }
}
