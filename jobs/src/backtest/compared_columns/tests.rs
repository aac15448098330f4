//! Which columns of two definitions are compared and summed, and what errors recommend.

use arrow::datatypes::Field;

use super::*;

fn columns(fields: &[(&str, DataType)]) -> Schema {
    Schema::new(fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect::<Vec<_>>())
}

#[test]
fn an_error_recommends_what_both_definitions_have() {
    let money = DataType::Decimal128(18, 2);
    let live = [("id", DataType::Utf8), ("revenue", money.clone()), ("units", DataType::Int64), ("decision", DataType::Utf8)];
    let (live, changed) = (columns(&live), columns(&[("id", DataType::Utf8), ("revenue", money), ("units", DataType::Utf8)]));
    let both = ComparedColumns { live: &live, changed: &changed };
    let verdict = |named| both.verdict(named).unwrap_err().to_string();
    let amount = |named| both.amount(Some(named)).unwrap_err().to_string();
    let choices = "(expected: --verdict with one of id, revenue, units)";
    assert_eq!(verdict(None), format!("no column of both definitions is named decision or verdict {choices}"));
    assert_eq!(verdict(Some("decision")), format!("the changed definition has no column \"decision\" {choices}"));
    let numbers = "(expected: --amount with one of revenue)";
    assert_eq!(amount("revenues"), format!("the live definition has no column \"revenues\": did you mean \"revenue\"? {numbers}"));
    assert_eq!(amount("decision"), format!("the changed definition has no column \"decision\" {numbers}"));
    assert_eq!(amount("units"), format!("the column \"units\" is TEXT {numbers}"));
    let other = columns(&[("other", DataType::Utf8)]);
    let apart = ComparedColumns { live: &live, changed: &other }.verdict(None).unwrap_err().to_string();
    assert!(apart.ends_with("(expected: --verdict with a column that both definitions have, and they share none)"), "{apart}");
}

#[test]
fn columns_that_are_not_named_are_those_of_the_usual_names() {
    let (number, text) = (("amount", DataType::Int64), ("amount", DataType::Utf8));
    let live = columns(&[("verdict", DataType::Utf8), number.clone()]);
    for (amount, summed) in [(number, true), (text, false)] {
        let changed = columns(&[amount, ("verdict", DataType::Int32), ("decision", DataType::Utf8)]);
        let both = ComparedColumns { live: &live, changed: &changed };
        assert_eq!(both.verdict(None).unwrap(), "verdict");
        assert_eq!(both.amount(None).unwrap().map(|column| column.name), summed.then(|| "amount".to_owned()));
    }
}
