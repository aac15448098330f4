//! Casts of DOUBLEs to decimals as in PostgreSQL: `1.005::float8::numeric(10,2)` is 1.01.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::decimal_of_double;
use crate::plan::rewrite::each_expression;

/// Runs after DataFusion's own coercion.
#[derive(Debug)]
pub struct DecimalsOfDoubles;

impl AnalyzerRule for DecimalsOfDoubles {
    fn name(&self) -> &str {
        "decimals_of_doubles"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, schema| Ok(converted(expr, schema)))
    }
}

fn converted(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let (operand, to, safe) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
        _ => return Transformed::no(expr),
    };
    match (operand.get_type(schema), to) {
        (Ok(DataType::Float64), DataType::Decimal128(precision, scale)) => {
            let function = Arc::new(decimal_of_double(*precision, *scale, safe));
            Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![(**operand).clone()])))
        }
        _ => Transformed::no(expr),
    }
}
