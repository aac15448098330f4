use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::EmitTo;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::super::tests::{inputs, lowered};
use super::*;

/// The states of this release of DataFusion. If this test fails after an upgrade: raise the number of each function
/// whose lines changed in [`RAISED`] (unless the major version in the stamp already distinguishes the two), keep an old
/// file of states as a fixture, and replace this text with the one that the test prints.
const LAYOUTS: &str = include_str!("layouts.txt");

const CALLS: &[&str] = &[
    "count(*)",
    "count(t)",
    "count(DISTINCT i)",
    "count(DISTINCT t)",
    "count(DISTINCT d)",
    "sum(i)",
    "sum(f)",
    "sum(d)",
    "sum(DISTINCT i)",
    "avg(i)",
    "avg(f)",
    "avg(d)",
    "avg(DISTINCT f)",
    "min(i)",
    "min(t)",
    "min(ts)",
    "max(d)",
    "max(b)",
    "stddev(f)",
    "stddev_pop(f)",
    "var(f)",
    "var_pop(f)",
    "median(f)",
    "median(d)",
    "percentile_cont(f, 0.9)",
    "approx_distinct(i)",
    "approx_distinct(t)",
    "approx_median(f)",
    "approx_percentile_cont(f, 0.9)",
    "approx_percentile_cont(i, 0.9)",
    "array_agg(t ORDER BY ts, i)",
    "array_agg(DISTINCT t)",
    "first_value(t ORDER BY ts, i)",
    "last_value(d ORDER BY ts, i)",
    "nth_value(t, 2 ORDER BY ts, i)",
    "string_agg(t, ',' ORDER BY ts, i)",
    "bool_and(b)",
    "bool_or(b)",
    "bit_and(i)",
    "bit_or(i)",
    "bit_xor(i)",
    "corr(f, i)",
    "covar_pop(f, i)",
    "covar_samp(f, i)",
    "regr_slope(f, i)",
    "regr_intercept(f, i)",
    "regr_count(f, i)",
    "regr_r2(f, i)",
    "regr_avgx(f, i)",
    "regr_avgy(f, i)",
    "regr_sxx(f, i)",
    "regr_syy(f, i)",
    "regr_sxy(f, i)",
    "last_n(t, 2 ORDER BY ts, i)",
    "top_k(t, 2)",
    "sequence_match('(?1)(?2)', ts, b, i > 0)",
    "sequence_count('(?1)(?2)', ts, b, i > 0)",
    "window_funnel('1h', 'strict_order', ts, b, i > 0)",
    "retention(b, i < 0)",
    "session_count(ts, '30m')",
    "longest_gap(ts)",
];

fn events() -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("i", DataType::Int64, true),
        Field::new("f", DataType::Float64, true),
        Field::new("d", DataType::Decimal128(18, 2), true),
        Field::new("t", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
    ]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(Int64Array::from(vec![Some(6), None, Some(-2), Some(6)])),
            Arc::new(Float64Array::from(vec![Some(0.5), Some(4.0), None, Some(-1.25)])),
            Arc::new(Decimal128Array::from(vec![Some(150), Some(-20), Some(150), None]).with_precision_and_scale(18, 2).unwrap()),
            Arc::new(StringArray::from(vec![Some("b"), Some("a"), Some("b"), None])),
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)])),
            Arc::new(TimestampMicrosecondArray::from(vec![3, 1, 2, 4]).with_timezone("UTC")),
        ],
    )
    .unwrap()
}

/// Returns a value as text. Sets without a fixed order are sorted, and bytes are replaced by their checksum.
fn value_text(value: &ScalarValue, is_set: bool) -> String {
    match value {
        ScalarValue::Binary(Some(bytes)) => format!("{} bytes, CRC-32 {:08x}", bytes.len(), crc32fast::hash(bytes)),
        ScalarValue::List(list) if is_set => {
            let items = list.value(0);
            let mut items: Vec<String> = (0..items.len()).map(|i| ScalarValue::try_from_array(&items, i).unwrap().to_string()).collect();
            items.sort();
            format!("{{{}}}", items.join(", "))
        }
        value => value.to_string(),
    }
}

/// Returns the state as `AggregateExec` computes it under a GROUP BY.
fn grouped_state(aggregate: &AggregateFunctionExpr, columns: &[ArrayRef]) -> Vec<ScalarValue> {
    if !aggregate.groups_accumulator_supported() {
        let mut accumulator = aggregate.create_accumulator().unwrap();
        accumulator.update_batch(columns).unwrap();
        return accumulator.state().unwrap();
    }
    let mut accumulator = aggregate.create_groups_accumulator().unwrap();
    accumulator.update_batch(columns, &vec![0; columns[0].len()], None, 1).unwrap();
    let state = accumulator.state(EmitTo::All).unwrap();
    state.iter().map(|column| ScalarValue::try_from_array(column, 0).unwrap()).collect()
}

fn layouts() -> String {
    let batch = events();
    let mut text = String::new();
    for call in CALLS {
        let aggregate = lowered(call, &batch.schema());
        let types: Vec<String> = aggregate.state_fields().unwrap().iter().map(|field| type_text(field.data_type())).collect();
        let state = grouped_state(&aggregate, &inputs(&aggregate, &batch));
        let values: Vec<String> = state.iter().map(|value| value_text(value, aggregate.is_distinct())).collect();
        writeln!(text, "{call}\n    {}\n    {}", types.join("; "), values.join("; ")).unwrap();
    }
    text
}

#[test]
fn the_states_of_this_release_are_laid_out_as_they_were() {
    let found = layouts();
    assert!(found == LAYOUTS, "the layout of states has changed; the new layouts.txt would be:\n{found}");
}

#[test]
fn a_stamp_tells_types_apart_but_not_the_names_of_one_plan() {
    let list = |name: &str, item: DataType| {
        DataType::List(Arc::new(Field::new_list_field(DataType::Struct(vec![Field::new(name, item, true)].into()), true)))
    };
    let stamp = |data_type: DataType| state_stamp(&[("array_agg", [data_type])]);
    assert_eq!(stamp(list("seq@2", DataType::Int64)), stamp(list("seq@3", DataType::Int64)));
    assert_ne!(stamp(list("seq@2", DataType::Int64)), stamp(list("seq@2", DataType::Int32)));
    let timestamp = |unit, zone: Option<&str>| DataType::Timestamp(unit, zone.map(Into::into));
    assert_eq!(
        stamp(list("ts", timestamp(TimeUnit::Microsecond, Some("UTC")))),
        "datafusion 55; array_agg/1(List<Struct<Timestamp(us, UTC)>>)"
    );
    assert_ne!(stamp(timestamp(TimeUnit::Microsecond, None)), stamp(timestamp(TimeUnit::Microsecond, Some("UTC"))));
}

#[test]
fn a_function_that_was_never_raised_has_format_1() {
    assert_eq!(state_format("count"), 1);
    assert_eq!(state_format("a_users_own"), 1);
}
