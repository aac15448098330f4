//! Rewrites expressions of a plan depending on their types, before DataFusion's own coercion.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Union};

/// Rewrites every expression of the plan and of its subqueries, from the leaves up. `change` gets an expression and the
/// schema of the columns that it can name. Columns keep their names.
pub(super) fn each_expression(plan: LogicalPlan, change: &impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>) -> Result<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(|node| in_node(node, change))?.data)
}

/// Returns the operands that an expression compares with one another; none of one that compares nothing.
pub(super) fn compared(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::BinaryExpr(both) if both.op.supports_propagation() => vec![both.left.as_mut(), both.right.as_mut()],
        Expr::Between(between) => vec![between.expr.as_mut(), between.low.as_mut(), between.high.as_mut()],
        Expr::InList(list) => std::iter::once(list.expr.as_mut()).chain(&mut list.list).collect(),
        Expr::Case(case) => match case.expr.as_deref_mut() {
            Some(compared) => std::iter::once(compared).chain(case.when_then_expr.iter_mut().map(|(when, _)| when.as_mut())).collect(),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn in_node(node: LogicalPlan, change: &impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = &node {
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
    }
    let names = NamePreserver::new(&node);
    let node = node.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| change(expr, &schema))?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })?;
    let has_changed = node.transformed;
    // The type of an expression, here or below, may have changed.
    node.map_data(|node| match node {
        LogicalPlan::Values(values) if has_changed => LogicalPlanBuilder::values(values.values)?.build(),
        LogicalPlan::Union(union) if lacks_nulls(&union) => Ok(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?)),
        other => other.recompute_schema(),
    })
}

/// Whether the schema of a union declares a column NOT NULL that may be NULL in one of its inputs now. DataFusion keeps
/// the declared schema when it recomputes a union's, and then cannot plan an aggregate over it.
fn lacks_nulls(union: &Union) -> bool {
    let may_be_null =
        |column: usize| union.inputs.iter().any(|input| input.schema().fields().get(column).is_some_and(|of| of.is_nullable()));
    union.schema.fields().iter().enumerate().any(|(column, field)| !field.is_nullable() && may_be_null(column))
}
