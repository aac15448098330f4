//! `x IN (SELECT ..)` within OR, NOT and other expressions of a condition is NULL where a NULL decides: `x` is NULL, or
//! the value is not among those of the subquery and a NULL is. DataFusion plans it as a join that marks each row as
//! found or not, so that `x NOT IN (SELECT ..) OR y` is true of a NULL. Here the NULLs are looked for too. Where the
//! condition is nothing else, or joined to others by AND, DataFusion's joins know of them, if `x` is a column and the
//! subquery names none of the query around it.
//!
//! Among the columns of a SELECT DataFusion has no such join: there the value is looked for with EXISTS, of which
//! [`ExistsInColumns`](super::exists::ExistsInColumns) makes a count of rows.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result, ScalarValue};
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Subquery, lit, not, scalar_subquery, when,
};
use datafusion::optimizer::AnalyzerRule;
use types::{Error, Reason};

const COMPARED: &str = "__compared_value";

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
            let schema = merge_schema(&node.inputs());
            match node {
                LogicalPlan::Filter(_) | LogicalPlan::Join(_) => {
                    node.map_expressions(|condition| with_nulls(condition, Place::Conjunct, &schema))
                }
                LogicalPlan::Projection(_) => {
                    let names = NamePreserver::new(&node);
                    node.map_expressions(|column| {
                        let name = names.save(&column);
                        Ok(with_nulls(column, Place::Column, &schema)?.update_data(|column| name.restore(column)))
                    })
                }
                other => Ok(Transformed::no(other)),
            }
        })?;
        Ok(decided.data)
    }
}

/// Where an expression is in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It, and others joined by AND, are the condition.
    Conjunct,
    /// Within OR: false and NULL are the same.
    Alternative,
    /// Its value is shown or computed with.
    Column,
}

fn with_nulls(expr: Expr, place: Place, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let in_expression = |expr: Expr| {
        expr.transform_up(|expr| match expr {
            Expr::InSubquery(found) => decided(found, place, schema),
            other => Ok(Transformed::no(other)),
        })
    };
    match expr {
        column if place == Place::Column => in_expression(column),
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let place = if op == Operator::Or { Place::Alternative } else { place };
            let (left, right) = (with_nulls(*left, place, schema)?, with_nulls(*right, place, schema)?);
            let changed = left.transformed || right.transformed;
            let both = Expr::BinaryExpr(BinaryExpr { left: Box::new(left.data), op, right: Box::new(right.data) });
            Ok(if changed { Transformed::yes(both) } else { Transformed::no(both) })
        }
        Expr::InSubquery(found) if is_joined(&found, found.negated, place) => Ok(Transformed::no(Expr::InSubquery(found))),
        Expr::Not(negated) => match &*negated {
            Expr::InSubquery(found) if place == Place::Conjunct && is_joined(found, !found.negated, place) => {
                Ok(Transformed::no(Expr::Not(negated)))
            }
            _ => in_expression(Expr::Not(negated)),
        },
        other => in_expression(other),
    }
}

/// Whether DataFusion's join for it is right. That of NOT IN is where it compares a column, and the subquery names
/// nothing of the query around it.
fn is_joined(found: &InSubquery, is_negated: bool, place: Place) -> bool {
    match (is_negated, place) {
        (false, _) => true,
        (true, Place::Conjunct) => found.subquery.outer_ref_columns.is_empty() && !found.expr.column_refs().is_empty(),
        (true, _) => false,
    }
}

/// `CASE WHEN x IN (..) THEN true WHEN a NULL decides THEN NULL ELSE false END`.
fn decided(found: InSubquery, place: Place, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let InSubquery { expr, subquery, negated } = found;
    let subquery = if place == Place::Column { with_name(&subquery)? } else { subquery };
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
    let is_found = match place {
        Place::Column => has_value(&expr, &subquery, schema)?,
        _ => Some(Expr::InSubquery(InSubquery { expr: expr.clone(), subquery: subquery.clone(), negated: false })),
    };
    let value = match (is_found, nulls.into_iter().reduce(Expr::or)) {
        (Some(is_found), Some(null_decides)) => {
            when(is_found, lit(true)).when(null_decides, lit(ScalarValue::Boolean(None))).otherwise(lit(false))?
        }
        (Some(is_found), None) if place == Place::Column => is_found,
        // Not a NOT IN by itself, of which DataFusion makes another join.
        (Some(is_found), None) if place == Place::Conjunct => when(is_found, lit(true)).otherwise(lit(false))?,
        _ => return Ok(Transformed::no(Expr::InSubquery(InSubquery { expr, subquery, negated }))),
    };
    Ok(Transformed::yes(if negated { not(value) } else { value }))
}

/// The subquery with a name for its column that nothing else has: DataFusion adds the columns that its conditions
/// compare with the query around it.
fn with_name(subquery: &Subquery) -> Result<Subquery> {
    let named = match subquery.subquery.as_ref().clone() {
        LogicalPlan::Projection(Projection { expr, input, .. }) => {
            LogicalPlanBuilder::from(input).project(expr.into_iter().map(|column| column.alias(COMPARED)))?
        }
        other => {
            let column = Expr::Column(Column::from(other.schema().qualified_field(0)));
            LogicalPlanBuilder::from(other).project([column.alias(COMPARED)])?
        }
    };
    Ok(subquery.with_plan(Arc::new(named.build()?)))
}

/// Whether a row of the subquery equals the value. `None` for a value that needs a subquery, or a column of a query
/// further out.
fn has_value(value: &Expr, of: &Subquery, schema: &DFSchema) -> Result<Option<Expr>> {
    if value.exists(|expr| Ok(is_subquery(expr) || matches!(expr, Expr::OuterReferenceColumn(..))))? {
        return Ok(None);
    }
    let mut outer_ref_columns = of.outer_ref_columns.clone();
    let value = value.clone().transform_up(|expr| match expr {
        Expr::Column(column) => {
            let outer = Expr::OuterReferenceColumn(schema.field_from_column(&column)?.clone(), column);
            outer_ref_columns.push(outer.clone());
            Ok(Transformed::yes(outer))
        }
        other => Ok(Transformed::no(other)),
    })?;
    let column = Expr::Column(Column::from(of.subquery.schema().qualified_field(0)));
    let equal = LogicalPlanBuilder::from(of.subquery.as_ref().clone()).filter(column.eq(value.data))?.build()?;
    let subquery = Subquery { subquery: Arc::new(equal), outer_ref_columns, spans: of.spans.clone() };
    Ok(Some(Expr::Exists(Exists { subquery, negated: false })))
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(expr, Expr::InSubquery(_) | Expr::Exists(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_))
}

fn allow_nested(expr: &Expr, plan: &LogicalPlan) -> Result<()> {
    let mut subqueries = 0_usize;
    let mut count = |expr: &Expr| {
        subqueries += usize::from(is_subquery(expr));
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
