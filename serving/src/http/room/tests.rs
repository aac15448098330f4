use arrow::array::{BinaryArray, Int64Array, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Schema};

use super::*;

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let field = |(index, column): (usize, &ArrayRef)| Field::new(format!("c{index}"), column.data_type().clone(), true);
    let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn list(items: ArrayRef) -> ArrayRef {
    let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([items.len()]), items, None))
}

#[test]
fn a_row_that_has_no_room_is_refused_before_any_of_it_is_written() {
    let texts = [
        "x".repeat(MAX_JSON_BYTES + 1),
        // Six bytes each once they are escaped.
        "\u{1}".repeat(MAX_JSON_BYTES / 6 + 1),
        "\"".repeat(MAX_JSON_BYTES / 2 + 1),
    ];
    for text in texts {
        let text: ArrayRef = Arc::new(StringArray::from(vec![text]));
        for column in [text.clone(), list(text)] {
            let batch = batch(vec![Arc::new(Int64Array::from(vec![7])), column]);
            let mut out = b"before".to_vec();
            let error = append(&mut out, &RowWriter::new(batch.schema_ref()), &batch, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
            assert!(out == b"before" && out.capacity() < 1024, "{} bytes were written", out.capacity());
        }
    }
}

#[test]
fn rows_are_appended_as_long_as_there_is_room() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(MAX_JSON_BYTES / 4)]));
    let batch = batch(vec![text]);
    let writer = RowWriter::new(batch.schema_ref());
    let mut out = Vec::new();
    for _ in 0..3 {
        append(&mut out, &writer, &batch, 0).unwrap();
    }
    let written = out.len();
    assert_eq!(append(&mut out, &writer, &batch, 0).unwrap_err().kind(), ErrorKind::Limit, "its name and brackets have no room");
    assert!(written > MAX_JSON_BYTES / 4 * 3);
}

/// However full the page is.
#[test]
fn a_row_that_other_rows_leave_no_room_for_is_the_first_of_the_next_page() {
    let texts = [MAX_JSON_BYTES / 8 * 3, MAX_JSON_BYTES / 4 * 3, MAX_JSON_BYTES + 1].map(|bytes| "x".repeat(bytes));
    let texts: ArrayRef = Arc::new(StringArray::from(Vec::from(texts)));
    let batch = batch(vec![texts]);
    let writer = RowWriter::new(batch.schema_ref());
    let mut page = b"[".to_vec();
    assert!(append_to_page(&mut page, &writer, &batch, 0, true).unwrap());
    let end = page.len();
    assert!(!append_to_page(&mut page, &writer, &batch, 1, false).unwrap());
    assert_eq!(page.len(), end, "nothing of it is in this page");
    let mut next = b"[".to_vec();
    assert!(append_to_page(&mut next, &writer, &batch, 1, true).unwrap());
    let error = append_to_page(&mut b"[".to_vec(), &writer, &batch, 2, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "no page has room for it: {error}");
}

#[test]
fn a_row_is_never_said_to_take_more_than_it_does() {
    let texts: ArrayRef =
        Arc::new(StringArray::from(vec![Some("plain"), None, Some("\"\\\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}\u{e9}\u{1f600}/")]));
    let rows = batch(vec![
        texts.clone(),
        Arc::new(BinaryArray::from(vec![Some(b"ab".as_slice()), None, Some(b"abcd".as_slice())])),
        Arc::new(Int64Array::from(vec![Some(1), None, Some(1 << 60)])),
    ]);
    let nested = batch(vec![list(texts), list(Arc::new(Int64Array::from(vec![1, 2, 3]))), list(Arc::new(Int64Array::from(vec![0i64; 0])))]);
    for batch in [rows, nested] {
        for row in 0..batch.num_rows() {
            let mut out = Vec::new();
            RowWriter::new(batch.schema_ref()).write(&mut out, &batch, row).unwrap();
            assert!(row_bytes(&batch, row, escaped_bytes) <= out.len(), "{}", String::from_utf8_lossy(&out));
        }
    }
    let text = "\"\\\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}\u{e9}";
    assert_eq!(escaped_bytes(text) + 2, serde_json::to_string(text).unwrap().len());
}
