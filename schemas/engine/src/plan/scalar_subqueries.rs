//! A scalar subquery without a row is NULL. DataFusion takes one for NOT NULL where its column is: `(SELECT id FROM v
//! WHERE ..) IS NULL` would be false, and `SELECT (SELECT 1 FROM v WHERE ..)` would fail.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use crate::plan::rewrite::each_expression;

/// Declares such subqueries as values that may be NULL. Runs after DataFusion's own coercion.
#[derive(Debug)]
pub struct ScalarSubqueriesMayBeNull;

impl AnalyzerRule for ScalarSubqueriesMayBeNull {
    fn name(&self) -> &str {
        "scalar_subqueries_may_be_null"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_wrongly_declared(&plan)? {
            return Ok(plan);
        }
        each_expression(plan, &|expr, _| {
            Ok(if is_wrongly_declared(&expr) { Transformed::yes(nullable(expr)) } else { Transformed::no(expr) })
        })
    }
}

fn has_wrongly_declared(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(is_wrongly_declared(expr)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Whether the expression is a subquery that may have no row, over a column that is NOT NULL.
fn is_wrongly_declared(expr: &Expr) -> bool {
    let Expr::ScalarSubquery(subquery) = expr else { return false };
    let plan = &subquery.subquery;
    plan.schema().fields().first().is_some_and(|column| !column.is_nullable()) && !has_always_a_row(plan)
}

fn has_always_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_always_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_always_a_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(relation) => relation.produce_one_row,
        _ => false,
    }
}

fn nullable(subquery: Expr) -> Expr {
    let function = ScalarUDF::from(Nullable { signature: Signature::any(1, Volatility::Immutable) });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![subquery]))
}

/// Returns its argument, as a value that may be NULL. It has no name in SQL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nullable {
    signature: Signature,
}

impl ScalarUDFImpl for Nullable {
    fn name(&self) -> &str {
        "nullable"
    }

    /// As it was written.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(arguments.iter().map(|argument| argument.schema_name().to_string()).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value] => Ok(value.clone()),
            others => plan_err!("nullable was called with {} arguments: expected 1", others.len()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match arguments.arg_fields {
            [value] => Ok(Arc::new(value.as_ref().clone().with_nullable(true))),
            others => plan_err!("nullable was called with {} arguments: expected 1", others.len()),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match <[ColumnarValue; 1]>::try_from(arguments.args) {
            Ok([value]) => Ok(value),
            Err(others) => plan_err!("nullable was called with {} arguments: expected 1", others.len()),
        }
    }
}
