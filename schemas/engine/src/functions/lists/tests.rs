use arrow::array::{BooleanArray, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use proptest::prelude::*;

use super::super::tests::{inputs, lowered, lowered_grouped, merged, single, state_columns};
use super::*;

const CALLS: [&str; 9] = [
    "array_agg(x ORDER BY ts, seq)",
    "array_agg(x ORDER BY ts DESC NULLS LAST, seq)",
    "array_agg(x ORDER BY x, seq) IGNORE NULLS",
    "array_agg(make_array(ts, seq) ORDER BY seq)",
    "array_agg(DISTINCT x ORDER BY x)",
    "array_agg(DISTINCT x ORDER BY x DESC NULLS LAST) IGNORE NULLS",
    "string_agg(x, ', ' ORDER BY ts, seq)",
    "string_agg(x, NULL ORDER BY seq DESC)",
    "string_agg(DISTINCT x, '/' ORDER BY x)",
];

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("x", DataType::Utf8, true),
        Field::new("ts", DataType::Int64, true),
        Field::new("seq", DataType::Int64, false),
    ]))
}

/// Events in the order of `seq`, so that no two are equal in an order that ends with it.
fn batch(events: &[(Option<String>, Option<i64>)]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(events.iter().map(|event| event.0.clone()))),
        Arc::new(Int64Array::from_iter(events.iter().map(|event| event.1))),
        Arc::new(Int64Array::from_iter_values(0..events.len() as i64)),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn some_events(most: usize) -> impl Strategy<Value = Vec<(Option<String>, Option<i64>)>> {
    prop::collection::vec((prop::option::of("[a-c]{0,2}"), prop::option::of(0..5i64)), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_split_and_order_of_merging_gives_datafusions_value_of_everything(
        events in some_events(120),
        parts in prop::collection::vec(any::<u8>(), 120),
        order in prop::collection::vec(any::<u32>(), 1..7),
    ) {
        let batch = batch(&events);
        for call in CALLS {
            let (theirs, ours) = (lowered(call, &schema()), lowered_grouped(call, &schema()));
            let expected = single(&theirs, &batch);
            prop_assert_eq!(&single(&ours, &batch), &expected, "{}", call);
            prop_assert_eq!(&merged(&ours, &batch, &parts, &order), &expected, "merged, {}", call);
        }
    }

    /// Releases that had DataFusion's accumulators wrote states, too.
    #[test]
    fn states_are_datafusions(events in some_events(60), more in some_events(60)) {
        for call in CALLS {
            let calls = [lowered(call, &schema()), lowered_grouped(call, &schema())];
            let state = |call: &AggregateFunctionExpr, events: &[(Option<String>, Option<i64>)]| {
                let mut accumulator = call.create_accumulator().unwrap();
                accumulator.update_batch(&inputs(call, &batch(events))).unwrap();
                state_columns(accumulator.as_mut())
            };
            let [theirs, ours] = calls.each_ref().map(|call| state(call, &events));
            prop_assert_eq!(&theirs, &ours, "{}", call);
            // Whoever merges them. Events that tie would come in the order of arrival.
            if call.contains("DISTINCT") {
                let [merged_by_them, merged_by_us] = calls.each_ref().map(|call| {
                    let mut accumulator = call.create_accumulator().unwrap();
                    accumulator.merge_batch(&theirs).unwrap();
                    accumulator.merge_batch(&state(call, &more)).unwrap();
                    accumulator.evaluate().unwrap()
                });
                prop_assert_eq!(merged_by_them, merged_by_us, "{}", call);
            }
        }
    }

    #[test]
    fn groups_have_the_values_that_each_would_have_alone(
        events in some_events(120),
        of_groups in prop::collection::vec(0..5usize, 120),
        counts in prop::collection::vec(any::<bool>(), 120),
        first in 0..6usize,
    ) {
        let batch = batch(&events);
        let (groups, only) = (&of_groups[..events.len()], BooleanArray::from(counts[..events.len()].to_vec()));
        for call in CALLS {
            let (theirs, ours) = (lowered(call, &schema()), lowered_grouped(call, &schema()));
            let mut accumulator = ours.create_groups_accumulator().unwrap();
            accumulator.update_batch(&inputs(&ours, &batch), groups, Some(&only), 6).unwrap();
            let mut again = ours.create_groups_accumulator().unwrap();
            again.merge_batch(&accumulator.state(EmitTo::First(first)).unwrap(), &(0..first).collect::<Vec<_>>(), first).unwrap();
            again.merge_batch(&accumulator.state(EmitTo::All).unwrap(), &(first..6).collect::<Vec<_>>(), 6).unwrap();
            let values = [again.evaluate(EmitTo::First(first)).unwrap(), again.evaluate(EmitTo::All).unwrap()];
            let values = values.iter().flat_map(|values| (0..values.len()).map(|i| ScalarValue::try_from_array(values, i).unwrap()));
            for (group, value) in values.enumerate() {
                let rows = (0..events.len()).filter(|row| groups[*row] == group && only.value(*row)).map(|row| row as u64);
                let alone = take_record_batch(&batch, &UInt64Array::from_iter_values(rows)).unwrap();
                prop_assert_eq!(value, single(&theirs, &alone), "group {} of {}", group, call);
            }
        }
    }
}

#[test]
fn values_that_recur_are_kept_once() {
    let call = lowered_grouped("array_agg(DISTINCT x ORDER BY x)", &schema());
    let mut accumulator = call.create_groups_accumulator().unwrap();
    let events: Vec<(Option<String>, Option<i64>)> = (0..8_192).map(|i| (Some(format!("{:050}", i % 20)), None)).collect();
    let batch = batch(&events);
    for _ in 0..20 {
        accumulator.update_batch(&inputs(&call, &batch), &vec![0; events.len()], None, 1).unwrap();
        assert!(accumulator.size() < 1 << 20, "{} bytes", accumulator.size());
    }
    assert_eq!(accumulator.evaluate(EmitTo::All).unwrap().as_list::<i32>().value_length(0), 20);
}

#[test]
fn a_damaged_state_is_refused() {
    let call = lowered_grouped("array_agg(x ORDER BY ts, seq)", &schema());
    let state = |call: &str, events: usize| {
        let call = lowered_grouped(call, &schema());
        let mut accumulator = call.create_accumulator().unwrap();
        accumulator.update_batch(&inputs(&call, &batch(&vec![(None, None); events]))).unwrap();
        state_columns(accumulator.as_mut())
    };
    let (two, three) = (state("array_agg(x ORDER BY ts, seq)", 2), state("array_agg(x ORDER BY ts, seq)", 3));
    let merge = |states: &[ArrayRef]| call.create_accumulator().unwrap().merge_batch(states);
    merge(&two).unwrap();
    for damaged in [vec![], vec![two[0].clone()], vec![two[0].clone(), three[1].clone()], state("array_agg(x ORDER BY ts)", 2)] {
        assert!(merge(&damaged).is_err(), "{damaged:?}");
    }
}

#[test]
fn calls_without_an_order_are_datafusions() {
    for call in ["array_agg(x)", "string_agg(x, ',')", "sum(ts)"] {
        assert_eq!(lowered_grouped(call, &schema()).fun(), lowered(call, &schema()).fun(), "{call}");
    }
    assert_ne!(lowered_grouped("array_agg(DISTINCT x)", &schema()).fun(), lowered("array_agg(DISTINCT x)", &schema()).fun());
}

#[test]
fn an_order_of_lists_stays_datafusions() {
    let events = batch(&[("b", 2), ("c", 3), ("a", 1)].map(|(x, ts)| (Some(x.to_owned()), Some(ts))));
    let call = lowered_grouped("array_agg(x ORDER BY make_array(ts, seq))", &schema());
    assert!(!call.groups_accumulator_supported());
    for value in [single(&call, &events), merged(&call, &events, &[0, 1, 2], &[2, 0, 1])] {
        assert_eq!(value.to_string(), "[a, b, c]");
    }
}
