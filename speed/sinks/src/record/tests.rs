//! Which key a record has.

use std::sync::Arc;

use arrow::array::{Int64Array, StringArray};

use super::*;

fn keys_of(column: Option<&ArrayRef>, events: &RecordBatch) -> Vec<Option<Bytes>> {
    let keys = RecordKeys::new(column, events).unwrap();
    (0..events.num_rows()).map(|row| keys.key_of_row(row, row as u32).unwrap()).collect()
}

#[test]
fn a_key_is_the_value_of_a_column_as_text_or_the_key_of_the_event() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(-7), None]));
    let of_events: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![Some(b"a".as_slice()), None]));
    let events = RecordBatch::try_from_iter([(KEY, of_events)]).unwrap();
    assert_eq!(keys_of(None, &events), [Some(Bytes::from("a")), None]);
    assert_eq!(keys_of(Some(&texts), &events), [Some(Bytes::from("b")), None]);
    assert_eq!(keys_of(Some(&numbers), &events), [Some(Bytes::from("-7")), None]);
    let events_without_keys = RecordBatch::try_from_iter([("x", numbers)]).unwrap();
    assert_eq!(keys_of(None, &events_without_keys), [None::<Bytes>, None]);
}
