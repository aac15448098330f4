//! Arrays of numbers that are compared with a decimal, or of decimals that are compared with a number, in queries:
//! `amount = ANY ($1)` is `amount IN (..)`. DataFusion takes such an array only if the type of its items fits into that
//! of the column, and clients send decimals of types with more digits.

use arrow::array::ListArray;
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast, in_list};
use datafusion::optimizer::AnalyzerRule;

use crate::plan::doubles::as_double;
use crate::plan::rewrite::each_expression;

/// The function that `= ANY (..)` becomes.
const ARRAY_HAS: &str = "array_has";

/// Runs before DataFusion's own coercion, when the arrays are literals, parameters included.
#[derive(Debug)]
pub(super) struct NumbersOfArraysAreCompared;

impl AnalyzerRule for NumbersOfArraysAreCompared {
    fn name(&self) -> &str {
        "numbers_of_arrays_are_compared"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, schema| {
            Ok(match as_list(&expr, schema) {
                Some(list) => Transformed::yes(list),
                None => Transformed::no(expr),
            })
        })
    }
}

/// Returns `item IN (..)` for a call that asks whether an array has the item. `None` if DataFusion compares the two
/// itself.
fn as_list(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let [array, item] = call.args.as_slice() else { return None };
    let (array, of_array) = literal(array).filter(|_| call.name() == ARRAY_HAS)?;
    let of_item = item.get_type(schema).ok()?;
    let are_numbers = of_array.is_numeric() && of_item.is_numeric();
    if !are_numbers || of_array == of_item || !(of_array.is_decimal() || of_item.is_decimal()) {
        return None;
    }
    // Nothing is known of what NULL has.
    let Some(values) = ScalarValue::convert_array_to_scalar_vec(array).ok()?.pop()? else {
        return Some(Expr::Literal(ScalarValue::Boolean(None), None));
    };
    let value = |value: ScalarValue| {
        let is_cast = value.data_type() != of_array;
        let value = Expr::Literal(value, None);
        let value = if is_cast { cast(value, of_array.clone()) } else { value };
        if of_item.is_floating() { as_double(value) } else { value }
    };
    let item = if of_array.is_floating() { cast(item.clone(), DataType::Float64) } else { item.clone() };
    Some(in_list(item, values.into_iter().map(value).collect(), false))
}

/// The array of a literal, which may be cast to another one, and the type of its items.
fn literal(expr: &Expr) -> Option<(&ListArray, DataType)> {
    match expr {
        Expr::Literal(ScalarValue::List(list), _) => Some((&**list, list.value_type())),
        Expr::Cast(cast) => match (literal(&cast.expr)?, cast.field.data_type()) {
            ((list, _), DataType::List(item)) => Some((list, item.data_type().clone())),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch};
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::plan::query_session_builder;

    fn decimals(values: &[Option<i128>], precision: u8, scale: i8) -> ScalarValue {
        let of = DataType::Decimal128(precision, scale);
        let items: Vec<ScalarValue> = values.iter().map(|value| ScalarValue::Decimal128(*value, precision, scale)).collect();
        ScalarValue::List(ScalarValue::new_list_nullable(&items, &of))
    }

    #[tokio::test]
    async fn numbers_of_an_array_are_compared_by_their_values() {
        let session = SessionContext::new_with_state(query_session_builder().build());
        let amounts = Decimal128Array::from(vec![Some(0), Some(10), Some(500), None]).with_precision_and_scale(18, 2).unwrap();
        let columns: [(&str, ArrayRef); 3] = [
            ("amount", Arc::new(amounts)),
            ("n", Arc::new(Int64Array::from(vec![0, 1, 5, 7]))),
            ("x", Arc::new(Float64Array::from(vec![0.0, 0.1, 5.0, 1e300]))),
        ];
        session.register_batch("t", RecordBatch::try_from_iter(columns).unwrap()).unwrap();
        let integers = ScalarValue::List(ScalarValue::new_list_nullable(&[ScalarValue::Int64(Some(5))], &DataType::Int64));
        let doubles = ScalarValue::List(ScalarValue::new_list_nullable(&[ScalarValue::Float64(Some(0.1))], &DataType::Float64));
        let null = ScalarValue::try_new_null(&integers.data_type()).unwrap();
        for (column, array, expected) in [
            ("amount", decimals(&[Some(1_000_000_000), Some(50_000_000_000)], 38, 10), "2"),
            ("amount", decimals(&[Some(1), Some(1_000)], 4, 3), "0"),
            ("amount", decimals(&[None, Some(100)], 4, 3), "1"),
            ("amount", decimals(&[], 38, 10), "0"),
            ("amount", integers, "1"),
            ("amount", doubles, "1"),
            ("amount", null, "0"),
            ("n", decimals(&[Some(50), Some(15)], 3, 1), "1"),
            ("x", decimals(&[Some(10), Some(500)], 38, 2), "2"),
        ] {
            let sql = format!("SELECT count(*) FROM t WHERE array_has($1, {column})");
            let asked = session.sql(&sql).await.unwrap().with_param_values(vec![array.clone()]).unwrap();
            let batches = asked.collect().await.unwrap_or_else(|error| panic!("{column} {array}: {error}"));
            assert_eq!(array_value_to_string(batches[0].column(0), 0).unwrap(), expected, "{column} {array}");
        }
    }
}
