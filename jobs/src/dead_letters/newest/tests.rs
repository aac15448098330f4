use std::cell::RefCell;
use std::future::pending;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, new_null_array};
use storage::{dead_letter_schema, write_dead_letters};

use super::*;

fn reason(example: &str) -> FrequentReason {
    FrequentReason { example: example.to_owned(), count: 1, of: 1 }
}

fn file(stream: &str, path: &str) -> (Arc<str>, FileRecord) {
    let record = FileRecord {
        path: path.to_owned(),
        kind: FileKind::DeadLetters,
        checkpoint: None,
        run: None,
        subject: Some(stream.into()),
        bytes: 1,
        rows: 1,
        checksum: 0,
        min_event_time: None,
        max_event_time: None,
        marked_for_deletion: false,
    };
    (stream.into(), record)
}

/// Makes a report on these files, of which those of `slow` never come and those of `failing` cannot be fetched. Returns
/// which were tried.
async fn tried(newest: &mut NewestDeadLetters, files: &[(Arc<str>, FileRecord)], slow: &[&str], failing: &[&str]) -> Vec<String> {
    let tried = RefCell::new(Vec::new());
    let reason_in = |file: FileRecord| {
        tried.borrow_mut().push(file.path.clone());
        async move {
            match &*file.path {
                path if slow.contains(&path) => pending().await,
                path if failing.contains(&path) => Err(Error::unavailable("no storage")),
                path => Ok(Some(reason(path))),
            }
        }
    };
    newest.read(&files.iter().map(|(stream, file)| (stream.clone(), file)).collect(), reason_in).await;
    tried.into_inner()
}

#[tokio::test]
async fn a_file_that_takes_too_long_is_tried_again_only_where_its_stream_has_a_newer_one() {
    let mut newest = NewestDeadLetters::default();
    let files = [file("a", "a1"), file("b", "b1"), file("c", "c1")];
    assert_eq!(tried(&mut newest, &files, &["b1"], &[]).await, ["a1", "b1"]);
    assert_eq!(newest.found.keys().map(|stream| &**stream).collect::<Vec<_>>(), ["a"], "another file may have taken the time");
    assert_eq!(tried(&mut newest, &files, &["b1"], &[]).await, ["b1"], "it has all of the time");
    assert_eq!(tried(&mut newest, &files, &["b1"], &[]).await, ["c1"]);
    assert_eq!(tried(&mut newest, &files, &["b1"], &[]).await, [""; 0]);
    assert_eq!(newest.found["b"], ("b1".to_owned(), None));
    let files = [file("a", "a1"), file("b", "b2"), file("c", "c1")];
    assert_eq!(tried(&mut newest, &files, &[], &[]).await, ["b2"]);
    assert_eq!(newest.found["b"], ("b2".to_owned(), Some(reason("b2"))));
}

#[tokio::test]
async fn files_that_cannot_be_fetched_do_not_hold_up_those_of_other_streams() {
    let mut newest = NewestDeadLetters::default();
    let names: Vec<String> = (0..=FILES_PER_REPORT).map(|number| format!("s{number:02}")).collect();
    let files: Vec<_> = names.iter().map(|name| file(name, name)).collect();
    let (last, failing) = names.split_last().unwrap();
    let failing: Vec<&str> = failing.iter().map(String::as_str).collect();
    assert_eq!(tried(&mut newest, &files, &[], &failing).await, failing);
    let second = tried(&mut newest, &files, &[], &failing).await;
    assert_eq!((second.len(), &second[..2]), (FILES_PER_REPORT, &[last.clone(), names[0].clone()][..]));
    assert_eq!(newest.found.values().collect::<Vec<_>>(), [&(last.clone(), Some(reason(last)))]);
}

#[tokio::test]
async fn of_a_file_of_many_letters_the_first_ones_are_read() {
    let storage = ObjectStorage::open("memory://").unwrap();
    let rows = MAX_LETTERS + 1;
    let schema = dead_letter_schema();
    let columns = schema.fields().iter().map(|field| -> ArrayRef {
        match field.name().as_str() {
            "partition" => Arc::new(Int32Array::from(vec![0; rows])),
            "offset" => Arc::new((0..rows as i64).collect::<Int64Array>()),
            "source" | "reason" => Arc::new(StringArray::from(vec!["not JSON"; rows])),
            _ => new_null_array(field.data_type(), rows),
        }
    });
    let batch = RecordBatch::try_new(schema.clone(), columns.collect()).unwrap();
    let file = write_dead_letters(&storage, &"s".into(), Uuid::now_v7(), 1, vec![batch]).await.unwrap();
    let count = MAX_LETTERS as i64;
    let expected = FrequentReason { example: "not JSON".to_owned(), count, of: count };
    assert_eq!(most_frequent(&storage, file).await.unwrap(), Some(expected));
}
