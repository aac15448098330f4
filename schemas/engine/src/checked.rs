//! Expressions whose arithmetic fails where a result does not fit its type: integers do not wrap around, and decimals
//! have no more digits than their type.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, Literal, NegativeExpr};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use types::Result;
use within_digits::WithinDigits;

mod within_digits;

/// The expression over a row of `schema`, with arithmetic that fails instead of wrapping around.
pub(crate) fn physical(expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    Ok(checked_physical(expr, schema)?)
}

/// The same, with DataFusion's error.
pub(crate) fn checked_physical(expr: &Expr, schema: &DFSchema) -> DataFusionResult<Arc<dyn PhysicalExpr>> {
    let expr = create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    Ok(expr.transform_up(|node| checked(node, schema))?.data)
}

/// Makes arithmetic fail where integers would wrap around, and decimals have more digits than their type.
fn checked(node: Arc<dyn PhysicalExpr>, schema: &DFSchema) -> DataFusionResult<Transformed<Arc<dyn PhysicalExpr>>> {
    let any: &dyn std::any::Any = node.as_ref();
    if let Some(binary) = any.downcast_ref::<BinaryExpr>()
        && matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply)
    {
        let checked: Arc<dyn PhysicalExpr> = Arc::new(binary.clone().with_fail_on_overflow(true));
        return Ok(Transformed::yes(match within_digits::is_clipped(&checked.data_type(schema.as_arrow())?) {
            true => Arc::new(WithinDigits::new(checked)),
            false => checked,
        }));
    }
    if let Some(negative) = any.downcast_ref::<NegativeExpr>() {
        let data_type = negative.arg().data_type(schema.as_arrow())?;
        if is_signed_integer(&data_type) {
            let zero: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::new_zero(&data_type)?));
            let difference = BinaryExpr::new(zero, Operator::Minus, negative.arg().clone());
            return Ok(Transformed::yes(Arc::new(difference.with_fail_on_overflow(true))));
        }
    }
    Ok(Transformed::no(node))
}

fn is_signed_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64)
}
