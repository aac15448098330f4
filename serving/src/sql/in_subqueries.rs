//! `x IN (SELECT ..)` within OR, NOT and other expressions of a condition is NULL where a NULL decides: `x` is NULL, or
//! the value is not among those of the subquery and a NULL is. DataFusion plans it as a join that marks each row as
//! found or not, so that `x NOT IN (SELECT ..) OR y` is true of a NULL. Here the NULLs are looked for too. Where the
//! condition is nothing else, or joined to others by AND, DataFusion's joins know of them.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, ScalarValue};
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, not, scalar_subquery, when,
};
use datafusion::optimizer::AnalyzerRule;
use types::{Error, Reason};

/// Subqueries within one such subquery, of which each is written up to three times.
const MOST_SUBQUERIES: usize = 40;

/// Runs after [`ComparedSubqueriesHaveNames`](super::compared_subqueries::ComparedSubqueriesHaveNames), which makes
/// such expressions of `= ANY` and `<> ALL`.
#[derive(Debug)]
pub(super) struct NullsAmongSubqueries;

impl AnalyzerRule for NullsAmongSubqueries {
    fn name(&self) -> &str {
        "nulls_among_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let decided = plan.transform_up_with_subqueries(|node| {
            if !matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            node.map_expressions(|condition| with_nulls(condition, Place::Conjunct, &schema))
        })?;
        Ok(decided.data)
    }
}

/// Where an expression is in a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It, and others joined by AND, are the condition.
    Conjunct,
    /// Within OR: false and NULL are the same.
    Alternative,
}

fn with_nulls(expr: Expr, place: Place, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let place = if op == Operator::Or { Place::Alternative } else { place };
            let (left, right) = (with_nulls(*left, place, schema)?, with_nulls(*right, place, schema)?);
            let changed = left.transformed || right.transformed;
            let both = Expr::BinaryExpr(BinaryExpr { left: Box::new(left.data), op, right: Box::new(right.data) });
            Ok(if changed { Transformed::yes(both) } else { Transformed::no(both) })
        }
        Expr::InSubquery(found) if place == Place::Conjunct || !found.negated => Ok(Transformed::no(Expr::InSubquery(found))),
        Expr::Not(negated) if place == Place::Conjunct && matches!(&*negated, Expr::InSubquery(_)) => {
            Ok(Transformed::no(Expr::Not(negated)))
        }
        other => other.transform_up(|expr| match expr {
            Expr::InSubquery(found) => decided(found, schema),
            other => Ok(Transformed::no(other)),
        }),
    }
}

/// `CASE WHEN x IN (..) THEN true WHEN a NULL decides THEN NULL ELSE false END`.
fn decided(found: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let InSubquery { expr, subquery, negated } = found;
    let plan = &subquery.subquery;
    allow_nested(&expr, plan)?;
    let column = plan.schema().qualified_field(0);
    let mut nulls = Vec::new();
    if expr.nullable(schema)? {
        nulls.push((*expr).clone().is_null().and(has_rows(&subquery, plan.as_ref().clone())?));
    }
    if column.1.is_nullable() {
        let is_null = Expr::Column(Column::from(column)).is_null();
        nulls.push(has_rows(&subquery, LogicalPlanBuilder::from(plan.as_ref().clone()).filter(is_null)?.build()?)?);
    }
    let Some(null_decides) = nulls.into_iter().reduce(Expr::or) else {
        return Ok(Transformed::no(Expr::InSubquery(InSubquery { expr, subquery, negated })));
    };
    let is_found = Expr::InSubquery(InSubquery { expr, subquery, negated: false });
    let value = when(is_found, lit(true)).when(null_decides, lit(ScalarValue::Boolean(None))).otherwise(lit(false))?;
    Ok(Transformed::yes(if negated { not(value) } else { value }))
}

fn allow_nested(expr: &Expr, plan: &LogicalPlan) -> Result<()> {
    let mut subqueries = 0_usize;
    let mut count = |expr: &Expr| {
        subqueries += usize::from(matches!(expr, Expr::InSubquery(_) | Expr::Exists(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)));
        Ok(if subqueries > MOST_SUBQUERIES { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    };
    expr.apply(&mut count)?;
    plan.apply_with_subqueries(|node| node.apply_expressions(|expr| expr.apply(&mut count)))?;
    match subqueries > MOST_SUBQUERIES {
        true => {
            let message = "not supported: IN of subqueries within one another, and within OR or NOT, so deep: write NOT EXISTS";
            Err(Error::input(message).with_reason(Reason::NotSupported).into())
        }
        false => Ok(()),
    }
}

/// Whether a plan, made from this subquery, has rows: `(SELECT count(*) > 0 FROM ..)`, or EXISTS if it names columns of
/// the query around it.
fn has_rows(of: &Subquery, plan: LogicalPlan) -> Result<Expr> {
    if !of.outer_ref_columns.is_empty() {
        return Ok(Expr::Exists(Exists { subquery: of.with_plan(Arc::new(plan)), negated: false }));
    }
    let count = count_all();
    let number = Expr::Column(Column::from_name(count.schema_name().to_string()));
    let plan = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), [count])?.project([number.gt(lit(0_i64))])?.build()?;
    Ok(scalar_subquery(Arc::new(plan)))
}
