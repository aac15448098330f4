use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use proptest::prelude::*;

use super::super::tests::{inputs, lowered, merged, single};
use super::*;

const CALLS: [&str; 16] = [
    "var(x)",
    "var_pop(x)",
    "stddev(x)",
    "stddev_pop(x)",
    "covar_samp(y, x)",
    "covar_pop(y, x)",
    "corr(y, x)",
    "regr_slope(y, x)",
    "regr_intercept(y, x)",
    "regr_count(y, x)",
    "regr_r2(y, x)",
    "regr_avgx(y, x)",
    "regr_avgy(y, x)",
    "regr_sxx(y, x)",
    "regr_syy(y, x)",
    "regr_sxy(y, x)",
];

type Pairs = Vec<(Option<f64>, Option<f64>)>;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("y", DataType::Float64, true), Field::new("x", DataType::Float64, true)]))
}

fn batch(rows: &Pairs) -> RecordBatch {
    let (y, x): (Float64Array, Float64Array) = (rows.iter().map(|row| row.0).collect(), rows.iter().map(|row| row.1).collect());
    RecordBatch::try_new(schema(), vec![Arc::new(y), Arc::new(x)]).unwrap()
}

/// The value under a GROUP BY: from the rows at once, or from a state of each row.
fn grouped(call: &str, rows: &RecordBatch, from_states: bool) -> ScalarValue {
    let call = lowered(call, &schema());
    let mut accumulator = call.create_groups_accumulator().unwrap();
    let (values, groups) = (inputs(&call, rows), vec![0; rows.num_rows()]);
    match from_states {
        true => {
            let states = accumulator.convert_to_state(&values, None).unwrap();
            accumulator.merge_batch(&states, &groups, 1).unwrap();
        }
        false => accumulator.update_batch(&values, &groups, None, 1).unwrap(),
    }
    ScalarValue::try_from_array(&accumulator.evaluate(EmitTo::All).unwrap(), 0).unwrap()
}

fn number(value: &ScalarValue) -> Option<f64> {
    match value {
        ScalarValue::Float64(value) => *value,
        ScalarValue::UInt64(value) => value.map(|value| value as f64),
        other => panic!("{other:?} is no number"),
    }
}

/// NULL, NaN and the infinities agree exactly; numbers to some digits of the greatest, if the inputs have a scale.
fn agrees(a: Option<f64>, b: Option<f64>, scale: Option<f64>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) if a.is_finite() && b.is_finite() => scale.is_none_or(|scale| (a - b).abs() <= scale),
        (Some(a), Some(b)) => a.is_nan() && b.is_nan() || a == b,
        _ => false,
    }
}

/// Every way of splitting the rows, and the order of the parts, gives the same value.
fn is_of_the_rows_alone(rows: &Pairs, parts: &[u8], order: &[u32], scale: Option<f64>) {
    let mut reversed = rows.clone();
    reversed.reverse();
    let (rows, reversed) = (batch(rows), batch(&reversed));
    for call in CALLS {
        let lowered = lowered(call, &schema());
        let at_once = number(&single(&lowered, &rows));
        let others = [
            number(&merged(&lowered, &rows, parts, order)),
            number(&single(&lowered, &reversed)),
            number(&grouped(call, &rows, false)),
            number(&grouped(call, &reversed, true)),
        ];
        for (way, other) in others.into_iter().enumerate() {
            assert!(agrees(at_once, other, scale), "{call}, way {way}: {at_once:?} and {other:?} of {rows:?}");
        }
    }
}

fn any_float() -> impl Strategy<Value = Option<f64>> {
    let infinite = prop_oneof![Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(f64::NAN)];
    let value = prop_oneof![
        6 => prop::sample::select(vec![0.1, 0.3, 1e15, 1e15 + 0.125, 4611686018427387904.0, -0.0, 0.0]),
        3 => prop::sample::select(vec![1e200, -1e200, f64::MAX, f64::MIN, 1e150, 1e-200, 5e-324, 1e-100]),
        1 => infinite,
        3 => any::<f64>().prop_filter("no value near the edge of a DOUBLE's squares", |value| {
            let size = value.abs().log10().abs();
            !(140.0..170.0).contains(&size)
        }),
    ];
    prop::option::weighted(0.9, value)
}

proptest! {
    #[test]
    fn whether_there_is_a_value_does_not_depend_on_how_rows_were_split(
        rows in prop::collection::vec((any_float(), any_float()), 0..12),
        parts in prop::collection::vec(any::<u8>(), 12),
        order in Just((0..5u32).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        is_of_the_rows_alone(&rows, &parts, &order, None);
    }

    #[test]
    fn equal_values_have_no_variance_however_they_were_split(
        x in any_float(),
        ys in prop::collection::vec(-1e6..1e6f64, 2..40),
        parts in prop::collection::vec(any::<u8>(), 40),
        order in Just((0..7u32).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let Some(x) = x.filter(|x| x.is_finite()) else { return Ok(()) };
        let rows: Pairs = ys.iter().map(|y| (Some(*y), Some(x))).collect();
        is_of_the_rows_alone(&rows, &parts, &order, None);
        let merged = |call: &str| number(&merged(&lowered(call, &schema()), &batch(&rows), &parts, &order));
        prop_assert_eq!((merged("var(x)"), merged("regr_sxx(y, x)")), (Some(0.0), Some(0.0)));
        prop_assert_eq!((merged("corr(y, x)"), merged("regr_slope(y, x)")), (None, None));
    }

    #[test]
    fn values_of_one_size_agree_with_the_textbook(
        rows in prop::collection::vec((-1e3..1e3f64, -1e3..1e3f64), 3..40),
        parts in prop::collection::vec(any::<u8>(), 40),
        order in Just((0..7u32).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let n = rows.len() as f64;
        let (my, mx) = (rows.iter().map(|row| row.0).sum::<f64>() / n, rows.iter().map(|row| row.1).sum::<f64>() / n);
        let sum = |of: fn(f64, f64) -> f64| rows.iter().map(|(y, x)| of(y - my, x - mx)).sum::<f64>();
        let (xx, yy, xy) = (sum(|_, x| x * x), sum(|y, _| y * y), sum(|y, x| x * y));
        let pairs: Pairs = rows.iter().map(|(y, x)| (Some(*y), Some(*x))).collect();
        let expected = [
            ("var(x)", xx / (n - 1.0)),
            ("stddev_pop(x)", (xx / n).sqrt()),
            ("covar_samp(y, x)", xy / (n - 1.0)),
            ("corr(y, x)", xy / (xx * yy).sqrt()),
            ("regr_slope(y, x)", xy / xx),
            ("regr_intercept(y, x)", my - xy / xx * mx),
            ("regr_r2(y, x)", xy * xy / (xx * yy)),
            ("regr_syy(y, x)", yy),
            ("regr_avgy(y, x)", my),
        ];
        for (call, expected) in expected {
            let found = number(&merged(&lowered(call, &schema()), &batch(&pairs), &parts, &order)).unwrap();
            prop_assert!((found - expected).abs() <= 1e-7 * expected.abs().max(1.0), "{call}: {found}, expected {expected}");
        }
    }
}

/// Once, `corr` of these was NaN under a GROUP BY and NULL without it.
#[test]
fn an_infinite_value_makes_corr_nan_in_every_layer() {
    let rows = vec![(Some(1.0), Some(f64::INFINITY)), (Some(2.0), Some(3.0)), (Some(4.0), Some(f64::NEG_INFINITY))];
    is_of_the_rows_alone(&rows, &[0, 1, 2], &[2, 0, 1], Some(1e-9));
    let call = lowered("corr(y, x)", &schema());
    assert!(number(&single(&call, &batch(&rows))).unwrap().is_nan());
    // Two pairs are needed, and a side whose values are all equal has no correlation with anything.
    assert_eq!(number(&single(&call, &batch(&rows[..1].to_vec()))), None);
    let constant = rows.iter().map(|(_, x)| (Some(0.1), *x)).collect();
    assert_eq!(number(&single(&call, &batch(&constant))), None);
}
