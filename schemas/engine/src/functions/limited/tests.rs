use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, UInt32Array};
use arrow::compute::{concat, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef, TimeUnit};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::aggregate::{AggregateFunctionExpr, LoweredAggregateBuilder};
use proptest::prelude::*;

use super::super::grouped;
use super::super::judged::taken_apart;
use super::super::tests::{analysed, inputs};
use super::*;
use crate::states::merge::groups_accumulator;

const CALLS: [&str; 13] = [
    "count(DISTINCT t)",
    "count(DISTINCT i)",
    "sum(DISTINCT i)",
    "median(i)",
    "percentile_cont(f, 0.5)",
    "array_agg(t ORDER BY ts)",
    "array_agg(i ORDER BY t DESC, ts)",
    "array_agg(DISTINCT t ORDER BY t)",
    "string_agg(t, ',' ORDER BY ts)",
    "sequence_count('(?1)', ts, i > 3)",
    "window_funnel('1h', 'strict_order', ts, i > 3)",
    "session_count(to_timestamp_micros(i * 700), '1ms')",
    "longest_gap(ts)",
];

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("i", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
        Field::new("t", DataType::Utf8, true),
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
    ]))
}

/// Lowers a call like a view's, without a limit or with one.
fn lowered(call: &str, limit_bytes: Option<u64>) -> Arc<AggregateFunctionExpr> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let plan = runtime.block_on(analysed(&format!("SELECT {call} FROM t"), &schema())).unwrap();
    let LogicalPlan::Projection(top) = &plan else { panic!("{plan}") };
    let LogicalPlan::Aggregate(aggregate) = &*top.input else { panic!("{plan}") };
    let call = grouped(aggregate.aggr_expr[0].clone());
    let call = limit_bytes.map_or(call.clone(), |limit| limited(call, limit));
    let input = aggregate.input.schema();
    let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    LoweredAggregateBuilder::new(&call, input, input.as_arrow(), &props, &context).with_name("x").build().unwrap().aggregate
}

type Event = (Option<i64>, Option<u8>);

fn batch(events: &[Event]) -> RecordBatch {
    let text = |text: u8| ["", "a", "bb", "ccc", "\u{1F600}"][text as usize % 5];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(events.iter().map(|(i, _)| *i).collect::<Int64Array>()),
        Arc::new(events.iter().map(|(i, _)| i.map(|i| i as f64)).collect::<Float64Array>()),
        Arc::new(events.iter().map(|(_, t)| t.map(text)).collect::<StringArray>()),
        Arc::new(TimestampMicrosecondArray::from_iter_values(0..events.len() as i64).with_timezone("UTC")),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// The state of some events, with as many groups as there are.
fn state(aggregate: &Arc<AggregateFunctionExpr>, events: &RecordBatch) -> Vec<ArrayRef> {
    let mut accumulator = groups_accumulator(aggregate).unwrap();
    accumulator.update_batch(&inputs(aggregate, events), &vec![0; events.num_rows()], None, 1).unwrap();
    accumulator.state(EmitTo::All).unwrap()
}

/// States merged into one, as a state.
fn merged(aggregate: &Arc<AggregateFunctionExpr>, states: &[&Vec<ArrayRef>]) -> Vec<ArrayRef> {
    let mut accumulator = groups_accumulator(aggregate).unwrap();
    states.iter().for_each(|state| accumulator.merge_batch(state, &[0], 1).unwrap());
    accumulator.state(EmitTo::All).unwrap()
}

/// The value of states that are merged together, and whether it is past the limit.
fn value(aggregate: &Arc<AggregateFunctionExpr>, states: &[&Vec<ArrayRef>]) -> (ScalarValue, bool) {
    let fields = (0..states[0].len()).map(|field| {
        let columns: Vec<&dyn Array> = states.iter().map(|state| &*state[field]).collect();
        concat(&columns).unwrap()
    });
    let fields: Vec<ArrayRef> = fields.collect();
    let mut accumulator = groups_accumulator(aggregate).unwrap();
    accumulator.merge_batch(&fields, &vec![0; states.len()], 1).unwrap();
    let (values, flaws) = taken_apart(&accumulator.evaluate(EmitTo::All).unwrap()).unwrap();
    (ScalarValue::try_from_array(&values, 0).unwrap(), flaws.is_valid(0))
}

proptest! {
    #[test]
    fn a_value_is_past_the_limit_exactly_if_all_its_values_together_are(
        events in prop::collection::vec((prop::option::weighted(0.9, 0..12i64), prop::option::weighted(0.9, 0..5u8)), 1..24),
        parts in prop::collection::vec(0..4u32, 24),
        between in prop::collection::vec(0..3usize, 4),
        limit in 0..300u64,
        call in prop::sample::select(CALLS.to_vec()),
    ) {
        let (plain, limited) = (lowered(call, None), lowered(call, Some(limit)));
        let all = batch(&events);
        let of_all = state(&plain, &all);
        let is_past = row_bytes(&of_all)[0] > limit;
        let mut states = Vec::new();
        for part in 0..4 {
            let rows: UInt32Array = (0..events.len() as u32).filter(|row| parts[*row as usize] == part).collect();
            if !rows.is_empty() {
                states.push(state(&limited, &take_record_batch(&all, &rows).unwrap()));
            }
        }
        // Some states are merged before: they are marked, or not, on the way.
        let mut halfway: Vec<Vec<ArrayRef>> = Vec::new();
        for of in 0..3 {
            let together: Vec<&Vec<ArrayRef>> = states.iter().enumerate().filter(|(at, _)| between[*at] == of).map(|(_, state)| state).collect();
            if !together.is_empty() {
                halfway.push(merged(&limited, &together));
            }
        }
        let expected = {
            let mut accumulator = groups_accumulator(&plain).unwrap();
            accumulator.merge_batch(&of_all, &[0], 1).unwrap();
            ScalarValue::try_from_array(&accumulator.evaluate(EmitTo::All).unwrap(), 0).unwrap()
        };
        for states in [states.iter().collect::<Vec<_>>(), halfway.iter().collect()] {
            let (value, found) = value(&limited, &states);
            prop_assert_eq!(found, is_past, "{} of {} bytes at {}", call, row_bytes(&of_all)[0], limit);
            match is_past {
                true => prop_assert!(value.is_null()),
                false => prop_assert_eq!(value, expected.clone(), "{}", call),
            }
        }
        // What is stored is bounded, too.
        for state in states.iter().chain(&halfway) {
            let fields = state.split_last().unwrap().1;
            prop_assert!(row_bytes(fields)[0] <= limit);
        }
    }
}

#[test]
fn a_group_past_the_limit_does_not_touch_its_neighbours() {
    for call in CALLS {
        let aggregate = lowered(call, Some(60));
        let events = batch(&(0..40).map(|at| (Some(at), Some(at as u8))).collect::<Vec<_>>());
        let (small, large) = (state(&aggregate, &events.slice(0, 1)), state(&aggregate, &events.slice(1, 39)));
        let states: Vec<ArrayRef> = large.iter().zip(&small).map(|(large, small)| concat(&[large, small, large, small]).unwrap()).collect();
        let mut accumulator = groups_accumulator(&aggregate).unwrap();
        accumulator.merge_batch(&states, &[0, 1, 2, 3], 4).unwrap();
        accumulator.merge_batch(&states, &[2, 1, 0, 3], 4).unwrap();
        let (values, flaws) = taken_apart(&accumulator.evaluate(EmitTo::All).unwrap()).unwrap();
        let is_different = call.contains("DISTINCT t") || call.contains("DISTINCT i");
        let is_past = |group: usize| flaws.is_valid(group);
        // Five texts of nine bytes at most are under the limit, each once.
        let large_is_past = call != "count(DISTINCT t)" && !call.starts_with("array_agg(DISTINCT");
        assert_eq!([is_past(0), is_past(1), is_past(2), is_past(3)], [large_is_past, false, large_is_past, false], "{call} {is_different}");
        // One time has no gap.
        assert!(call.starts_with("longest_gap") || (values.is_valid(1) && values.is_valid(3)), "{call}");
    }
}

#[test]
fn what_collects_is_decided_from_the_function_and_its_state() {
    let is_limited = |call: &str| {
        let aggregate = lowered(call, None);
        collects(aggregate.fun().name(), aggregate.is_distinct(), &aggregate.state_fields().unwrap())
    };
    for call in CALLS {
        assert!(is_limited(call), "{call}");
    }
    for call in ["count(*)", "sum(i)", "min(t)", "max(DISTINCT i)", "last_n(t, 3 ORDER BY ts)", "first_value(t ORDER BY ts)", "top_k(t, 3)"]
    {
        assert!(!is_limited(call), "{call}");
    }
    for call in ["approx_distinct(t)", "approx_median(f)", "approx_percentile_cont(f, 0.5)", "avg(i)", "bool_and(i > 0)"] {
        assert!(!is_limited(call), "{call}");
    }
}
