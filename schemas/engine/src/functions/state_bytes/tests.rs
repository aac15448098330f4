use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int32Array, Int64Array, ListArray, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Int64Type};

use super::*;

fn list(items: ArrayRef, lengths: &[usize]) -> ArrayRef {
    let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths.iter().copied()), items, None))
}

#[test]
fn each_value_counts_eight_bytes_and_the_length_of_its_text() {
    let numbers: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), Some(2), None]),
        None,
        Some(vec![]),
        Some(vec![Some(3)]),
    ]));
    assert_eq!(row_bytes(&[numbers]), [16, 0, 0, 8]);
    let texts = list(Arc::new(StringArray::from(vec![Some("a"), Some(""), None, Some("\u{e9}\u{e9}")])), &[2, 2]);
    assert_eq!(row_bytes(&[texts]), [17, 12]);
}

#[test]
fn the_width_of_a_type_does_not_matter_because_a_plan_may_cast_it() {
    let wide = list(Arc::new(Decimal128Array::from(vec![1, 2])), &[2]);
    let narrow = list(Arc::new(Int32Array::from(vec![1, 2])), &[2]);
    assert_eq!(row_bytes(&[wide]), row_bytes(&[narrow]));
}

#[test]
fn the_fields_of_a_state_count_together_and_what_is_no_list_counts_nothing() {
    let order = StructArray::from(vec![
        (Arc::new(Field::new("a", DataType::Int64, true)), Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        (Arc::new(Field::new("b", DataType::Utf8, true)), Arc::new(StringArray::from(vec!["s", "s"])) as ArrayRef),
    ]);
    let values = list(Arc::new(StringArray::from(vec![None, Some("xyz")])), &[1, 1]);
    let orders = list(Arc::new(order), &[1, 1]);
    let count: ArrayRef = Arc::new(Int64Array::from(vec![7, 7]));
    assert_eq!(row_bytes(&[values, orders, count]), [17, 28]);
}
