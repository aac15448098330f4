//! Texts that are compared with decimals, in queries: as in PostgreSQL, `amount > '0.005'` compares with 0.005.
//! DataFusion rounds the text to the places of the column, and would compare with 0.01.

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL128_MAX_SCALE, DataType, i256};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::events::spelling::decimal;
use crate::plan::rewrite::{compared, each_expression};

/// Runs before DataFusion's own coercion, when the texts are literals, parameters included.
#[derive(Debug)]
pub(super) struct TextsKeepTheirPlaces;

impl AnalyzerRule for TextsKeepTheirPlaces {
    fn name(&self) -> &str {
        "texts_keep_their_places"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, schema| Ok(kept(expr, schema)))
    }
}

fn kept(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = as_decimals(&mut compared(&mut expr), schema);
    Transformed::new_transformed(expr, changed)
}

/// If one expression is a decimal, makes decimals of the literals that are texts. Returns whether anything changed.
fn as_decimals(all: &mut [&mut Expr], schema: &DFSchema) -> bool {
    if !all.iter().any(|expr| text_of(expr).is_some()) {
        return false;
    }
    let beside = all.iter().find_map(|expr| decimal_type(&expr.get_type(schema).ok()?));
    let Some((precision, scale, is_wide)) = beside else { return false };
    let mut changed = false;
    for expr in all.iter_mut() {
        if let Some(value) = text_of(expr).and_then(|text| decimal_beside(text.trim(), precision, scale, is_wide)) {
            **expr = Expr::Literal(value, None);
            changed = true;
        }
    }
    changed
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str()?,
        _ => None,
    }
}

/// The digits of a decimal, those of them after the point, and whether it has 256 bits.
fn decimal_type(of: &DataType) -> Option<(u8, i8, bool)> {
    match of {
        DataType::Decimal128(precision, scale) => Some((*precision, *scale, false)),
        DataType::Decimal256(precision, scale) => Some((*precision, *scale, true)),
        _ => None,
    }
}

/// Returns the number in a text, exactly: of the type that it is compared with, by which the rows of keys are found, or
/// with digits of its own. One with more digits than both types hold in 128 bits has 256. `None` for a text that is no
/// number, and for one with more than 38 digits.
fn decimal_beside(text: &str, precision: u8, scale: i8, is_wide: bool) -> Option<ScalarValue> {
    if !is_wide && let Some(value) = decimal(text, precision, scale) {
        return Some(ScalarValue::Decimal128(Some(value), precision, scale));
    }
    let own = |places: i8| decimal(text, DECIMAL128_MAX_PRECISION, places).map(|value| (value, places));
    let (value, places) = (0..=DECIMAL128_MAX_SCALE).find_map(own)?;
    let written = value.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1);
    let digits = u8::try_from(written).ok()?.max(places.unsigned_abs());
    let whole = |digits: u8, places: i8| i16::from(digits) - i16::from(places);
    let common = whole(precision, scale).max(whole(digits, places)) + i16::from(scale.max(places));
    Some(match common <= i16::from(DECIMAL128_MAX_PRECISION) {
        true => ScalarValue::Decimal128(Some(value), digits, places),
        false => ScalarValue::Decimal256(Some(i256::from_i128(value)), digits, places),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, RecordBatch};
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::plan::query_session_builder;

    #[test]
    fn a_number_has_the_type_beside_it_if_that_holds_all_of_its_places() {
        let beside = |text: &str| decimal_beside(text, 18, 2, false);
        assert_eq!(beside("0.0100"), Some(ScalarValue::Decimal128(Some(1), 18, 2)));
        assert_eq!(beside("1e-2"), Some(ScalarValue::Decimal128(Some(1), 18, 2)));
        assert_eq!(beside("-0.005"), Some(ScalarValue::Decimal128(Some(-5), 3, 3)));
        assert_eq!(beside("12345678901234567.5"), Some(ScalarValue::Decimal128(Some(123_456_789_012_345_675), 18, 1)));
        assert_eq!(decimal_beside("0.00000000001", 38, 10, false), Some(ScalarValue::Decimal256(Some(i256::from_i128(1)), 11, 11)));
        assert_eq!(decimal_beside("0.5", 76, 38, true), Some(ScalarValue::Decimal256(Some(i256::from_i128(5)), 1, 1)));
        assert_eq!((beside("x"), beside("")), (None, None));
    }

    #[tokio::test]
    async fn a_text_that_is_compared_with_a_decimal_is_not_rounded() {
        let session = SessionContext::new_with_state(query_session_builder().build());
        let amounts = Decimal128Array::from(vec![Some(0), Some(1), Some(-1), None]).with_precision_and_scale(18, 2).unwrap();
        let large = Decimal128Array::from(vec![Some(0), Some(1), Some(10i128.pow(37)), None]).with_precision_and_scale(38, 10).unwrap();
        let columns = [("amount", Arc::new(amounts) as ArrayRef), ("large", Arc::new(large) as ArrayRef)];
        session.register_batch("t", RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        for (condition, expected) in [
            ("amount = '0.01'", "1"),
            ("amount = '1e-2'", "1"),
            ("amount = '0.001'", "0"),
            ("amount <= '0.005'", "2"),
            ("'0.004' <= amount", "1"),
            ("amount <> '0.001'", "3"),
            ("amount IS NOT DISTINCT FROM '0.001'", "0"),
            ("amount IN ('0.001', '0.01')", "1"),
            ("amount BETWEEN '0.004' AND '0.006'", "0"),
            ("CASE amount WHEN '0.001' THEN true ELSE false END", "0"),
            ("amount = CAST('0.001' AS DECIMAL(18,2))", "1"),
            ("amount < '12345678901234567890'", "3"),
            ("large > '0.00000000001'", "2"),
            ("large / 3 > '0.3'", "1"),
        ] {
            let sql = format!("SELECT count(*) FROM t WHERE {condition}");
            let batches = session.sql(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).collect().await;
            let batches = batches.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(array_value_to_string(batches[0].column(0), 0).unwrap(), expected, "{condition}");
        }
    }
}
