//! Comparisons that DataFusion would simplify to others, in queries.
//!
//! - `x::decimal(18, 2) = 1.50` becomes `x = 1.500`, as if the cast did not round (apache/datafusion issue 23095), and
//!   a cast to fewer digits is not checked.
//! - `x NOT IN (1) OR x NOT IN (2)` becomes true, also where `x` is NULL (issue 24246).
//!
//! The value that is compared is passed through a function that DataFusion does not look into.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::as_computed;
use crate::plan::rewrite::{compared, each_expression};

#[derive(Debug)]
pub(super) struct ComparisonsStayAsWritten;

impl AnalyzerRule for ComparisonsStayAsWritten {
    fn name(&self) -> &str {
        "comparisons_stay_as_written"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, schema| Ok(kept(expr, schema)))
    }
}

fn kept(mut expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = false;
    if matches!(&expr, Expr::BinaryExpr(both) if matches!(both.op, Operator::And | Operator::Or)) {
        let mut lists = Vec::new();
        lists_apart(&mut expr, schema, &mut lists, &mut changed);
    }
    for operand in compared(&mut expr) {
        if loses_digits(operand, schema) {
            *operand = opaque(operand);
            changed = true;
        }
    }
    Transformed::new_transformed(expr, changed)
}

/// Makes the values of lists differ that are joined by AND and OR. `lists`: the values before.
fn lists_apart(expr: &mut Expr, schema: &DFSchema, lists: &mut Vec<Expr>, changed: &mut bool) {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            lists_apart(left, schema, lists, changed);
            lists_apart(right, schema, lists, changed);
        }
        Expr::Not(negated) => lists_apart(negated, schema, lists, changed),
        Expr::InList(list) if list.expr.nullable(schema).unwrap_or(true) => {
            while lists.contains(&list.expr) {
                *list.expr = opaque(&mut list.expr);
                *changed = true;
            }
            lists.push((*list.expr).clone());
        }
        _ => {}
    }
}

fn opaque(expr: &mut Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(as_computed(), vec![std::mem::take(expr)]))
}

/// Whether an expression is a cast to a type that does not hold all values of the type before.
fn loses_digits(expr: &Expr, schema: &DFSchema) -> bool {
    let (of, to) = match expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type()),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type()),
        _ => return false,
    };
    let Some((from, to)) = of.get_type(schema).ok().zip(Some(to)) else { return false };
    match (digits(&from), digits(to)) {
        (Some((whole, places)), Some((to_whole, to_places))) => to_whole < whole || to_places < places,
        _ => from.is_floating() && digits(to).is_some(),
    }
}

/// The digits before and after the point of an integer or a decimal.
fn digits(of: &DataType) -> Option<(i16, i16)> {
    Some(match of {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal32(digits, places)
        | DataType::Decimal64(digits, places)
        | DataType::Decimal128(digits, places)
        | DataType::Decimal256(digits, places) => (i16::from(*digits) - i16::from(*places), i16::from(*places)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch};
    use arrow::datatypes::Int64Type;
    use datafusion::prelude::SessionContext;

    use crate::plan::query_session_builder;

    /// Expected is what PostgreSQL 15 answers.
    #[tokio::test]
    async fn rows_are_found_as_the_condition_is_written() {
        let session = SessionContext::new_with_state(query_session_builder().build());
        let amounts = Decimal128Array::from(vec![Some(1495), Some(1499), Some(1504), Some(1505), Some(99_949), None]);
        let numbers = Int64Array::from(vec![Some(1), Some(2), Some(3), None, None, Some(9_999_999_999)]);
        let columns =
            [("dec", Arc::new(amounts.with_precision_and_scale(18, 3).unwrap()) as ArrayRef), ("n", Arc::new(numbers) as ArrayRef)];
        session.register_batch("t", RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()).unwrap();
        for (condition, expected) in [
            ("dec::decimal(18,2) = 1.50", 3),
            ("1.50 = dec::decimal(18,2)", 3),
            ("dec::decimal(18,2) IN (1.50, 1.51)", 4),
            ("dec::decimal(18,2) BETWEEN 1.50 AND 1.52", 4),
            ("dec::decimal(18,1) > 99.9", 0),
            ("dec::decimal(20,4) = 1.504", 1),
            ("n NOT IN (1) OR n NOT IN (2)", 4),
            ("NOT (n IN (1) AND n IN (2))", 4),
            ("(n IN (1) AND n IN (2)) IS NULL", 2),
            ("(n IN (1, 2) AND n IN (3, 4) AND n NOT IN (5)) IS NULL", 2),
            ("n IN (1, 2) AND n NOT IN (2, 3)", 1),
            ("(n IN (1, 2) AND n IN (2, 3)) OR (n IN (3) AND n IN (3, 4))", 2),
        ] {
            let rows = session.sql(&format!("SELECT count(*) FROM t WHERE {condition}")).await.unwrap().collect().await.unwrap();
            assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().value(0), expected, "{condition}");
        }
        let past = session.sql("SELECT count(*) FROM t WHERE n::int > 1").await.unwrap().collect().await;
        assert!(past.is_err(), "9999999999 is no INT: {past:?}");
    }
}
