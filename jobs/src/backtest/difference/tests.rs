//! Two definitions compared: counts, sums and examples by both verdicts.

use std::sync::Arc;

use arrow::array::{Decimal128Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray};

use super::*;

fn comparison(amount: Option<DataType>) -> VerdictComparison {
    VerdictComparison {
        verdict: "decision".to_owned(),
        amount: amount.is_some().then(|| "amount".to_owned()),
        amount_type: amount.unwrap_or(DataType::Float64),
        id: Some("id".to_owned()),
        cells: BTreeMap::new(),
    }
}

/// Scored rows: live and changed verdict, and amounts in hundredths.
fn rows(values: &[(&str, &str, Option<i128>, Option<i128>)]) -> RecordBatch {
    let cents = |amounts: Vec<Option<i128>>| Arc::new(Decimal128Array::from(amounts).with_precision_and_scale(18, 2).unwrap()) as ArrayRef;
    let (live, changed) = (values.iter().map(|row| row.0), values.iter().map(|row| row.1));
    let count = values.len() as i64;
    let columns: [(&str, ArrayRef); 8] = [
        ("id", Arc::new(StringArray::from_iter((0..count).map(|row| (row != 1).then(|| format!("e{row}")))))),
        ("_changed_id", Arc::new(StringArray::from_iter_values((0..count).map(|row| format!("c{row}"))))),
        ("amount", cents(values.iter().map(|row| row.2).collect())),
        ("_changed_amount", cents(values.iter().map(|row| row.3).collect())),
        ("_partition", Arc::new(Int32Array::from_iter_values((0..count).map(|_| 3)))),
        ("_offset", Arc::new(Int64Array::from_iter_values(0..count))),
        ("_event_time", Arc::new(TimestampMicrosecondArray::from_iter_values(0..count).with_timezone("UTC"))),
        (VERDICT, Arc::new(StringArray::from_iter_values(live))),
    ];
    let changed: (&str, ArrayRef) = (CHANGED_VERDICT, Arc::new(StringArray::from_iter_values(changed)));
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().chain([changed]).map(|(name, column)| (name, column, true))).unwrap()
}

#[test]
fn events_are_counted_by_both_verdicts_with_sums_and_examples() {
    let mut comparison = comparison(Some(DataType::Decimal128(38, 2)));
    let allowed = ("allow", "allow", Some(100), Some(999));
    comparison.add(&rows(&[allowed, ("(none)", "deny", None, Some(250)), ("allow", "deny", Some(5), Some(7))])).unwrap();
    comparison.add(&rows(&[allowed, ("allow", "deny", None, Some(7)), ("allow", "(none)", Some(11), None)])).unwrap();
    let found = comparison.finish();
    let cells: Vec<_> = found.cells.iter().map(|cell| (&*cell.live, &*cell.changed, cell.events, cell.amount.clone().unwrap())).collect();
    let expected = [
        ("(none)", "deny", 1, json!("2.50")),
        ("allow", "(none)", 1, json!("0.11")),
        ("allow", "allow", 2, json!("2.00")),
        ("allow", "deny", 2, json!("0.05")),
    ];
    assert_eq!(cells, expected);
    assert_eq!(found.different, 4);
    let examples: Vec<_> = found.examples.iter().map(|example| (example.offset, example.id.as_deref().unwrap())).collect();
    assert_eq!(examples, [(1, "c1"), (2, "e2"), (2, "e2"), (1, "c1")]);
}

#[test]
fn verdicts_that_are_numbers_are_in_the_order_of_their_values() {
    let found_in = |values: &[(&str, &str, Option<i128>, Option<i128>)]| {
        let mut comparison = comparison(None);
        comparison.add(&rows(values)).unwrap();
        comparison.finish()
    };
    let numbers = found_in(&[
        ("10", "9.5", None, None),
        ("2", "11", None, None),
        ("2", "9.5", None, None),
        ("-3", "(none)", None, None),
        ("(null)", "2", None, None),
    ]);
    assert_eq!(numbers.verdicts(), (vec!["(null)", "-3", "2", "10"], vec!["(none)", "2", "9.5", "11"]));
    let pairs: Vec<(&str, &str)> = numbers.cells.iter().map(|cell| (&*cell.live, &*cell.changed)).collect();
    assert_eq!(pairs, [("(null)", "2"), ("-3", "(none)"), ("2", "9.5"), ("2", "11"), ("10", "9.5")]);
    let words = found_in(&[("10", "9", None, None), ("9", "low", None, None)]);
    assert_eq!(words.verdicts(), (vec!["10", "9"], vec!["9", "low"]));
}

#[test]
fn few_examples_are_kept_and_a_column_of_many_values_is_no_verdict() {
    let mut few = comparison(None);
    (0..3).for_each(|_| few.add(&rows(&[("a", "b", None, None), ("a", "b", None, None)])).unwrap());
    let found = few.finish();
    assert_eq!((found.cells[0].events, found.cells[0].amount.clone(), found.examples.len()), (6, None, EXAMPLES));
    let texts: Vec<String> = (0..=MAX_CELLS).map(|number| number.to_string()).collect();
    let many: Vec<_> = texts.iter().map(|text| (text.as_str(), "x", None, None)).collect();
    let refused = comparison(None).add(&rows(&many)).unwrap_err();
    assert!(refused.to_string().contains("more than 1000 pairs"), "{refused}");
}

#[test]
fn integers_and_decimals_are_added_exactly() {
    let decimal = |scale| DataType::Decimal128(18, scale);
    assert_eq!(sum_type(&[DataType::Int32, decimal(2)]), DataType::Decimal128(38, 2));
    assert_eq!(sum_type(&[DataType::Int64, DataType::Int64]), DataType::Decimal128(38, 0));
    assert_eq!(sum_type(&[decimal(2), DataType::Float64]), DataType::Float64);
    let sum = |exact| Counted { exact, ..Counted::default() }.sum(&DataType::Decimal128(38, 0));
    assert_eq!((sum(7), sum(1 << 60)), (json!(7), json!("1152921504606846976")));
}

#[test]
fn an_amount_that_does_not_fit_is_not_left_out_of_the_sum() {
    let refused = comparison(Some(DataType::Decimal128(38, 36))).add(&rows(&[("a", "a", Some(100), Some(10_000))])).unwrap_err();
    assert_eq!(refused.message(), "an amount has more than 38 digits");
}
