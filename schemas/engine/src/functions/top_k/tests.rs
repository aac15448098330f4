use std::collections::BTreeMap;

use arrow::array::{BooleanArray, Date32Array, Decimal128Array, RecordBatch, StringViewArray, TimestampMicrosecondArray};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use proptest::prelude::*;

use super::super::tests::{inputs, lowered, merged, single, state_columns};
use super::*;

fn batch(values: impl Array + 'static) -> RecordBatch {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("x", values.data_type().clone(), true)]));
    RecordBatch::try_new(schema, vec![Arc::new(values)]).unwrap()
}

fn call(k: usize, batch: &RecordBatch) -> AggregateFunctionExpr {
    lowered(&format!("top_k(x, {k})"), &batch.schema())
}

fn columns(value: ScalarValue) -> Option<(ArrayRef, Vec<i64>)> {
    let ScalarValue::List(list) = value else { panic!("{value:?} is no list") };
    let rows = list.is_valid(0).then(|| list.value(0))?;
    let rows = rows.as_struct();
    Some((Arc::clone(rows.column(0)), rows.column(1).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec()))
}

fn numbers(value: ScalarValue) -> Option<Vec<(i64, i64)>> {
    let (values, counts) = columns(value)?;
    Some(values.as_primitive::<arrow::datatypes::Int64Type>().values().iter().copied().zip(counts).collect())
}

fn counted(values: &[Option<i64>]) -> Vec<(i64, i64)> {
    let mut counts = BTreeMap::new();
    for value in values.iter().flatten() {
        *counts.entry(*value).or_insert(0) += 1;
    }
    let mut counts: Vec<(i64, i64)> = counts.into_iter().collect();
    counts.sort_by_key(|(value, count)| (-count, *value));
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn below_its_capacity_any_split_and_order_of_merging_counts_exactly(
        values in prop::collection::vec(prop::option::of(prop_oneof![-12..12i64, any::<i64>()]), 0..300),
        parts in prop::collection::vec(any::<u8>(), 300),
        order in prop::collection::vec(any::<u32>(), 1..7),
        k in 1..=TOP_K_MAX,
    ) {
        let batch = batch(Int64Array::from(values.clone()));
        let call = call(k, &batch);
        let mut expected = counted(&values);
        expected.truncate(k);
        let expected = (!expected.is_empty()).then_some(expected);
        prop_assert_eq!(numbers(single(&call, &batch)), expected.clone());
        prop_assert_eq!(numbers(merged(&call, &batch, &parts, &order)), expected);
    }

    /// The guarantee of the sketch: a count is never too small and too great by at most the bound, and no value above
    /// the bound is missing.
    #[test]
    fn past_its_capacity_counts_keep_the_documented_bound(
        seed in any::<u64>(), different in 800..6_000u64,
        parts in prop::collection::vec(any::<u8>(), 251),
        order in prop::collection::vec(any::<u32>(), 1..7),
    ) {
        let mut random = seed | 1;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        // An even power makes small values frequent.
        let values: Vec<Option<i64>> = (0..20_000).map(|_| {
            let unit = (next() % 1_000_000) as f64 / 1e6;
            Some((unit.powi(4) * different as f64) as i64)
        }).collect();
        let parts: Vec<u8> = (0..values.len()).map(|i| parts[i % parts.len()]).collect();
        let truth = counted(&values);
        let true_count = |value: i64| truth.iter().find(|row| row.0 == value).map_or(0, |row| row.1);
        let bound = values.len() as f64 * 3.5 / MAP_SIZE as f64;
        let batch = batch(Int64Array::from(values.clone()));
        let call = call(TOP_K_MAX, &batch);
        for found in [single(&call, &batch), merged(&call, &batch, &parts, &order)] {
            let found = numbers(found).unwrap();
            for (value, count) in &found {
                let true_count = true_count(*value);
                prop_assert!((true_count..=true_count + bound as i64).contains(count), "{value}: {count}, truly {true_count}");
            }
            let least = found.last().unwrap().1;
            for (value, count) in truth.iter().filter(|row| row.1 as f64 > bound && row.1 > least) {
                prop_assert!(found.iter().any(|row| row.0 == *value), "{value} ({count}) is missing");
            }
        }
    }

    #[test]
    fn damaged_states_are_refused_without_a_panic(at in 0..200usize, with in any::<u8>(), cut in 0..400usize) {
        let batch = batch(Int64Array::from_iter_values((0..40).map(|i| i % 20)));
        let call = call(3, &batch);
        let mut accumulator = call.create_accumulator().unwrap();
        accumulator.update_batch(&inputs(&call, &batch)).unwrap();
        let Some(ScalarValue::Binary(Some(mut state))) = accumulator.state().unwrap().pop() else { panic!("the state is binary") };
        let length = state.len();
        state[at % length] = with;
        state.truncate(cut);
        // The bytes may also be a state of other values: that must not panic either.
        if accumulator.merge_batch(&[ScalarValue::Binary(Some(state)).to_array().unwrap()]).is_ok() {
            let _ = accumulator.evaluate();
        }
    }
}

#[test]
fn a_state_that_says_it_is_huge_is_refused_before_memory_is_taken() {
    let batch = batch(StringArray::from(vec!["b"]));
    let call = call(1, &batch);
    let mut accumulator = call.create_accumulator().unwrap();
    accumulator.update_batch(&inputs(&call, &batch)).unwrap();
    let state = state_columns(accumulator.as_mut());
    for at in [3, 4] {
        let mut bytes = state[0].as_binary::<i32>().value(0).to_vec();
        bytes[at] = 30;
        let error = accumulator.merge_batch(&[ScalarValue::Binary(Some(bytes)).to_array().unwrap()]).unwrap_err();
        assert!(error.to_string().contains("slots"), "{error}");
    }
}

/// Checks that values come back in their own type and order.
fn comes_back(values: impl Array + Clone + 'static) {
    let batch = batch(values.clone());
    let call = call(100, &batch);
    let (found, counts) = columns(merged(&call, &batch, &[1, 2, 3, 4, 5, 6, 7, 8], &[3, 1, 2])).unwrap();
    assert_eq!(found.to_data(), arrow::compute::sort(&values, None).unwrap().to_data());
    assert!(counts.iter().all(|count| *count == 1), "{counts:?}");
}

#[test]
fn values_come_back_in_their_own_type() {
    comes_back(StringArray::from(vec!["10", "9", "", "ä"]));
    comes_back(BooleanArray::from(vec![false, true]));
    comes_back(Int64Array::from(vec![10, 9, i64::MIN, i64::MAX]));
    comes_back(Date32Array::from(vec![10, -9, i32::MIN, i32::MAX]));
    comes_back(TimestampMicrosecondArray::from(vec![10, -9, i64::MIN, i64::MAX]).with_timezone("UTC"));
    let widest = 10i128.pow(38) - 1;
    comes_back(Decimal128Array::from(vec![10, -9, widest, -widest, 1]).with_precision_and_scale(38, 2).unwrap());
}

#[test]
fn text_views_are_counted_like_text() {
    let batch = batch(StringViewArray::from(vec!["a string that is longer than twelve bytes", "b", "b"]));
    let (values, counts) = columns(single(&call(2, &batch), &batch)).unwrap();
    assert_eq!(values.data_type(), &DataType::Utf8View);
    assert_eq!((values.as_string_view().value(0), counts), ("b", vec![2, 1]));
}

#[test]
fn the_state_is_bounded_and_so_is_memory() {
    let texts = |from: usize| StringArray::from_iter_values((from..from + 1_000).map(|i| format!("{i:036}")));
    let first = batch(texts(0));
    let call = call(5, &first);
    let mut accumulator = call.create_accumulator().unwrap();
    for from in (0..20_000).step_by(1_000) {
        accumulator.update_batch(&inputs(&call, &batch(texts(from)))).unwrap();
        assert!(accumulator.size() < 128 * 1024, "the size is {}", accumulator.size());
    }
    let state = state_columns(accumulator.as_mut());
    let bytes = state[0].as_binary::<i32>().value(0).len();
    assert!(bytes <= TOP_K_CAPACITY * (12 + 36) + 64, "the state has {bytes} bytes");
}

#[test]
fn the_format_is_the_one_of_data_sketches() {
    let batch = batch(StringArray::from(vec!["b"]));
    let call = call(1, &batch);
    let mut accumulator = call.create_accumulator().unwrap();
    accumulator.update_batch(&inputs(&call, &batch)).unwrap();
    let state = state_columns(accumulator.as_mut());
    let expected = b"\x04\x01\x0a\x0a\x03\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0b";
    assert_eq!(state[0].as_binary::<i32>().value(0), expected);
}
