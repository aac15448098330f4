use std::sync::Arc;

use arrow::array::{Decimal128Array, Float64Array, Int64Array, ListArray, StringArray};
use arrow::datatypes::Float64Type;

use super::*;

fn floats(values: &[Option<f64>]) -> ArrayRef {
    Arc::new(values.iter().copied().collect::<Float64Array>())
}

fn column(functions: &[&str]) -> PlainColumn {
    PlainColumn {
        name: "c".into(),
        is_key: false,
        functions: functions.iter().map(|f| (*f).into()).collect(),
        is_total: functions == ["count"] || functions == ["sum"],
        sql: String::new(),
        distinct: None,
        near: None,
    }
}

fn same(a: f64, b: f64, tolerance: Tolerance) -> bool {
    equal(&floats(&[Some(a)]), 0, &floats(&[Some(b)]), 0, tolerance)
}

#[test]
fn floats_may_differ_by_rounding_and_no_more() {
    assert!(same(0.1 + 0.2, 0.3, Tolerance::EXACT));
    assert!(same(1e15, 1e15 + 0.25, Tolerance::EXACT));
    assert!(!same(1.0, 1.000_001, Tolerance::EXACT));
    assert!(same(f64::NAN, f64::NAN, Tolerance::EXACT));
    assert!(same(f64::INFINITY, f64::INFINITY, Tolerance::EXACT));
    assert!(!same(f64::INFINITY, f64::NEG_INFINITY, Tolerance::EXACT));
    assert!(!same(f64::NAN, 1.0, Tolerance::EXACT));
}

#[test]
fn null_is_null_alone_but_for_answers_without_nan() {
    let (null, nan, zero) = (floats(&[None]), floats(&[Some(f64::NAN)]), floats(&[Some(0.0)]));
    assert!(equal(&null, 0, &null, 0, Tolerance::EXACT));
    assert!(!equal(&null, 0, &nan, 0, Tolerance::EXACT));
    let json = Tolerance::EXACT.given(None, true);
    assert!(equal(&null, 0, &nan, 0, json));
    assert!(!equal(&null, 0, &zero, 0, json) && !equal(&zero, 0, &null, 0, json));
}

#[test]
fn exact_types_are_compared_exactly_and_lists_part_by_part() {
    let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![100, 101]).with_precision_and_scale(18, 2).unwrap());
    assert!(equal(&decimals, 0, &decimals, 0, Tolerance::EXACT) && !equal(&decimals, 0, &decimals, 1, Tolerance::EXACT));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    assert!(!equal(&texts, 0, &texts, 1, Tolerance::EXACT));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>([
        Some(vec![Some(0.3), None]),
        Some(vec![Some(0.1 + 0.2), None]),
        Some(vec![Some(0.3)]),
    ]));
    assert!(equal(&lists, 0, &lists, 1, Tolerance::EXACT) && !equal(&lists, 0, &lists, 2, Tolerance::EXACT));
}

#[test]
fn estimates_have_their_tolerance() {
    let median = Tolerance::for_column(&column(&["approx_median"]));
    assert!(median.is_approximate() && same(100.0, 101.0, median) && !same(100.0, 110.0, median));
    let distinct = Tolerance::for_column(&column(&["approx_distinct"]));
    assert!(!distinct.is_approximate());
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1000, 1001]));
    assert!(!equal(&numbers, 0, &numbers, 1, distinct));
    let top = Tolerance::for_column(&column(&["top_k"]));
    assert!(!equal(&numbers, 0, &numbers, 1, top.given(Some(10), false)));
    assert!(equal(&numbers, 0, &numbers, 1, top.given(Some(TOP_K_CAPACITY as i64 + 1), false)));
}

#[test]
fn an_estimate_is_held_to_its_bound_and_one_of_different_values_from_above() {
    let count = |number: i64| Arc::new(Int64Array::from(vec![number])) as ArrayRef;
    let holds = |column: &PlainColumn, served: i64| equal(&count(served), 0, &count(10_000), 0, Tolerance::of_crowded(column, 999.0));
    let (pairs, means) = (column(&["count"]), column(&["avg"]));
    let different = PlainColumn { sql: "count(DISTINCT l.device_id)".into(), ..column(&["count"]) };
    assert_eq!([8_999, 9_000, 11_000, 11_001].map(|served| holds(&pairs, served)), [false, true, true, false]);
    assert_eq!([1, 11_998, 12_000].map(|served| holds(&different, served)), [true, true, false]);
    assert!(holds(&means, -7));
}

#[test]
fn a_percentile_may_be_another_one_near_it_and_no_farther() {
    let digest = Tolerance::for_column(&column(&["approx_percentile_cont"]));
    assert!(same(101.0, 100.0, digest) && !same(104.0, 100.0, digest));
    let near = digest.between(Some([90.0, 110.0]));
    assert!(same(104.0, 100.0, near) && same(91.0, 100.0, near));
    assert!(!same(114.0, 100.0, near) && !same(86.0, 100.0, near));
    // In descending order what is above is less.
    assert!(same(104.0, 100.0, digest.between(Some([110.0, 90.0]))));
    assert!(!same(104.0, 100.0, Tolerance::EXACT.between(Some([90.0, 110.0]))));
}
