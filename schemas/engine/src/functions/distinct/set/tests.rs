use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Float64Array, ListArray, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::Field;
use proptest::prelude::*;

use super::*;

/// A state row: a list of values, or NULL with something under it.
type Row = (bool, Vec<Option<u8>>);

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec((prop::bool::weighted(0.9), prop::collection::vec(prop::option::weighted(0.9, 0..20u8), 0..6)), 0..8)
}

fn lists(rows: &[Row], text: bool) -> ArrayRef {
    let items = || rows.iter().flat_map(|(_, items)| items).map(|item| item.map(|item| item.to_string()));
    let items: ArrayRef = match text {
        true => Arc::new(items().collect::<StringArray>()),
        // 0 and -0 are one value.
        false => Arc::new(items().map(|item| item.map(|item| -item.parse::<f64>().unwrap() + 3.0 - 3.0)).collect::<Float64Array>()),
    };
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|(_, items)| items.len()));
    let valid: NullBuffer = rows.iter().map(|(valid, _)| *valid).collect::<Vec<bool>>().into();
    let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
    Arc::new(ListArray::try_new(item, offsets, items, Some(valid)).unwrap())
}

fn set(states: &ArrayRef) -> DistinctSet {
    DistinctSet::of_fields(&[Arc::new(Field::new("x", states.data_type().clone(), true))]).unwrap()
}

proptest! {
    #[test]
    fn a_set_counts_what_it_took_in_and_what_is_on_top_each_once(kept in rows(), more in rows(), top in prop::collection::vec(rows(), 0..3), text in any::<bool>()) {
        let mut of_kept = set(&lists(&kept, text));
        of_kept.add(&lists(&kept, text)).unwrap();
        of_kept.add(&lists(&more, text)).unwrap();
        let on_top: Vec<ArrayRef> = top.iter().map(|rows| lists(rows, text)).collect();
        let all: BTreeSet<u8> = [&kept, &more].into_iter().chain(&top).flatten().filter(|(valid, _)| *valid).flat_map(|(_, items)| items.iter().flatten().copied()).collect();
        prop_assert_eq!(of_kept.size_with(&on_top).unwrap().values, all.len() as i64);
        let below: BTreeSet<u8> = [&kept, &more].into_iter().flatten().filter(|(valid, _)| *valid).flat_map(|(_, items)| items.iter().flatten().copied()).collect();
        prop_assert_eq!(of_kept.size_with(&[]).unwrap().values, below.len() as i64, "what is on top is not taken in");
    }
}

#[test]
fn a_slice_of_states_is_taken_in_alone() {
    let states = lists(&[(true, vec![Some(1), Some(2)]), (true, vec![Some(3)]), (true, vec![Some(4), None])], true);
    let mut of_slice = set(&states);
    of_slice.add(&states.slice(1, 1)).unwrap();
    assert_eq!(of_slice.size_with(&[states.slice(2, 1)]).unwrap().values, 2);
    assert!(of_slice.memory_bytes() > 0);
}

#[test]
fn states_of_other_aggregates_have_no_set() {
    let number = Arc::new(Field::new("n", DataType::Int64, true));
    assert!(DistinctSet::of_fields(std::slice::from_ref(&number)).is_none());
    assert!(DistinctSet::of_fields(&[number.clone(), number]).is_none());
    assert!(DistinctSet::of_fields(&[]).is_none());
}
