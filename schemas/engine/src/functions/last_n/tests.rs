use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use proptest::prelude::*;

use super::super::tests::{inputs, lowered, merged, single, state_columns, try_lowered};
use super::*;

type Event = (Option<String>, i64, i64);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("x", DataType::Utf8, true),
        Field::new("ts", DataType::Int64, true),
        Field::new("seq", DataType::Int64, false),
    ]))
}

fn batch(events: &[Event]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(events.iter().map(|event| event.0.clone()))),
        Arc::new(Int64Array::from_iter(events.iter().map(|event| event.1))),
        Arc::new(Int64Array::from_iter(events.iter().map(|event| event.2))),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn texts(value: ScalarValue) -> Option<Vec<Option<String>>> {
    let ScalarValue::List(list) = value else { panic!("{value:?} is no list") };
    list.is_valid(0).then(|| list.value(0).as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect())
}

/// Returns the last n by sorting all events.
fn plainly(events: &[Event], n: usize) -> Option<Vec<Option<String>>> {
    let mut sorted = events.to_vec();
    sorted.sort_by(|a, b| (b.1, b.2, &b.0).cmp(&(a.1, a.2, &a.0)));
    (!events.is_empty()).then(|| sorted.into_iter().take(n).map(|event| event.0).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Small numbers, so that many events tie in time, and many in everything.
    #[test]
    fn any_split_and_order_of_merging_gives_the_last_n_of_everything(
        events in prop::collection::vec((prop::option::of("[a-c]{0,2}"), 0..20i64, 0..3i64), 0..120),
        parts in prop::collection::vec(any::<u8>(), 120),
        order in prop::collection::vec(any::<u32>(), 1..7),
        n in prop_oneof![1..6usize, 1..200usize],
    ) {
        let call = lowered(&format!("last_n(x, {n} ORDER BY ts, seq)"), &schema());
        let batch = batch(&events);
        prop_assert_eq!(texts(single(&call, &batch)), plainly(&events, n));
        prop_assert_eq!(texts(merged(&call, &batch, &parts, &order)), plainly(&events, n));
    }
}

#[test]
fn nulls_are_values_unless_they_are_ignored() {
    let events = batch(&[(Some("old".into()), 1, 0), (None, 2, 0), (Some("new".into()), 3, 0)]);
    let of = |call: &str| texts(single(&lowered(call, &schema()), &events)).unwrap();
    assert_eq!(of("last_n(x, 2 ORDER BY ts)"), [Some("new".into()), None]);
    assert_eq!(of("last_n(x, 2 ORDER BY ts) IGNORE NULLS"), [Some("new".into()), Some("old".into())]);
}

#[test]
fn the_order_may_be_descending_and_put_nulls_first() {
    let events = [(Some("a"), Some(1)), (Some("b"), None), (Some("c"), Some(2))];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(events.iter().map(|event| event.0))),
        Arc::new(Int64Array::from_iter(events.iter().map(|event| event.1))),
        Arc::new(Int64Array::from(vec![0, 0, 0])),
    ];
    let events = RecordBatch::try_new(schema(), columns).unwrap();
    let of = |call: &str| texts(single(&lowered(call, &schema()), &events)).unwrap().into_iter().flatten().collect::<String>();
    assert_eq!(of("last_n(x, 3 ORDER BY ts ASC NULLS LAST)"), "bca");
    assert_eq!(of("last_n(x, 3 ORDER BY ts ASC NULLS FIRST)"), "cab");
    assert_eq!(of("last_n(x, 3 ORDER BY ts DESC NULLS LAST)"), "bac");
}

#[test]
fn the_state_holds_n_rows_and_no_names_of_the_plan() {
    let call = lowered("last_n(x, 4 ORDER BY ts, seq)", &schema());
    let mut accumulator = call.create_accumulator().unwrap();
    for start in 0..50 {
        let events: Vec<Event> = (0..100).map(|i| (Some(format!("{i:0100}")), i, start)).collect();
        accumulator.update_batch(&inputs(&call, &batch(&events))).unwrap();
        assert!(accumulator.size() < 16_384, "the size is {}", accumulator.size());
    }
    let state = &state_columns(accumulator.as_mut())[0];
    assert_eq!(state.as_list::<i32>().value_length(0), 4);
    assert_eq!(state.data_type(), call.state_fields().unwrap()[0].data_type());
    assert!(state.data_type().to_string().contains("order_1"), "{}", state.data_type());
}

#[test]
fn the_state_may_be_read_after_it_was_taken_and_damaged_states_are_refused() {
    let call = lowered("last_n(x, 2 ORDER BY ts, seq)", &schema());
    let mut accumulator = call.create_accumulator().unwrap();
    accumulator.update_batch(&inputs(&call, &batch(&[(Some("a".into()), 1, 1)]))).unwrap();
    let state = state_columns(accumulator.as_mut());
    assert_eq!(texts(accumulator.evaluate().unwrap()).unwrap(), [Some("a".into())]);
    accumulator.merge_batch(&state).unwrap();
    assert!(accumulator.merge_batch(&[]).is_err());
    let other = lowered("last_n(x, 2 ORDER BY ts)", &schema()).create_accumulator().unwrap().state().unwrap()[0].to_array().unwrap();
    assert!(accumulator.merge_batch(&[other]).is_err());
}

#[test]
fn without_an_order_it_is_refused() {
    let call = try_lowered("last_n(x, 2)", &schema()).unwrap();
    let error = call.create_accumulator().unwrap_err().to_string();
    assert!(error.contains("ORDER BY"), "{error}");
}

#[test]
fn it_asks_for_no_sorted_input() {
    let call = lowered("last_n(x, 2 ORDER BY ts)", &schema());
    assert!(!call.order_sensitivity().hard_requires());
    assert_eq!(call.order_sensitivity(), AggregateOrderSensitivity::Beneficial);
    assert_eq!(call.order_bys().len(), 1, "the accumulator gets the ordering columns");
}

#[test]
fn values_may_be_lists_but_not_the_order() {
    let call = lowered("last_n(make_array(ts, seq), 2 ORDER BY ts)", &schema());
    let events = batch(&[(None, 1, 7), (None, 3, 8), (None, 2, 9)]);
    for value in [single(&call, &events), merged(&call, &events, &[0, 1, 2], &[2, 0, 1])] {
        assert_eq!(value.to_string(), "[[3, 8], [2, 9]]");
    }
    let error = lowered("last_n(x, 2 ORDER BY make_array(ts))", &schema()).create_accumulator().unwrap_err().to_string();
    assert!(error.contains("no total order"), "{error}");
}
