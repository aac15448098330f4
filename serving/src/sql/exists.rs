//! Rewrites `EXISTS` among the columns of a SELECT, where DataFusion cannot compute it, to a count of rows.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Distinct, Expr, FetchType, Limit, LogicalPlan, LogicalPlanBuilder, SkipType, lit, scalar_subquery};
use datafusion::optimizer::AnalyzerRule;

/// Runs after DataFusion's own coercion.
#[derive(Debug)]
pub(super) struct ExistsInColumns;

impl AnalyzerRule for ExistsInColumns {
    fn name(&self) -> &str {
        "exists_in_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_exists_in_columns(&plan)? {
            return Ok(plan);
        }
        let counted = plan.transform_up_with_subqueries(|node| {
            let node = match node {
                LogicalPlan::Projection(_) => in_columns(node)?,
                other => Transformed::no(other),
            };
            // Such a column may be NULL, for all that DataFusion knows.
            node.map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(counted.data)
    }
}

fn has_exists_in_columns(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Projection(projection) = node {
            for column in &projection.expr {
                found |= column.exists(|expr| Ok(matches!(expr, Expr::Exists(_))))?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

fn in_columns(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    node.map_expressions(|column| {
        let name = names.save(&column);
        let counted = column.transform_up(|expr| match expr {
            Expr::Exists(exists) if !may_have_a_row_of_nothing(&exists)? => Ok(Transformed::yes(counted(exists)?)),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(counted.update_data(|column| name.restore(column)))
    })
}

/// Whether the subquery is a correlated aggregate without GROUP BY: it has a row even where nothing matches, but
/// DataFusion then finds none.
fn may_have_a_row_of_nothing(exists: &Exists) -> Result<bool> {
    let is_ungrouped = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty()));
    Ok(!exists.subquery.outer_ref_columns.is_empty() && exists.subquery.subquery.exists(is_ungrouped)?)
}

/// `(SELECT count(*) > 0 FROM ..)`.
fn counted(Exists { subquery, negated }: Exists) -> Result<Expr> {
    let rows = rows(Arc::unwrap_or_clone(subquery.subquery))?;
    // One row is enough. Below a LIMIT, DataFusion does not find the columns of the query around it.
    let is_correlated = !rows.all_out_ref_exprs().is_empty();
    let rows = LogicalPlanBuilder::from(rows);
    let rows = if is_correlated { rows } else { rows.limit(0, Some(1))? };
    let count = count_all();
    let number = Expr::Column(Column::from_name(count.schema_name().to_string()));
    let condition = if negated { number.eq(lit(0_i64)) } else { number.gt(lit(0_i64)) };
    let plan = rows.aggregate(Vec::<Expr>::new(), [count])?.project([condition])?.build()?;
    Ok(scalar_subquery(Arc::new(plan)))
}

/// Returns the plan without nodes that do not affect whether it has rows.
fn rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) => rows(Arc::unwrap_or_clone(projection.input)),
        LogicalPlan::SubqueryAlias(alias) => rows(Arc::unwrap_or_clone(alias.input)),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => rows(Arc::unwrap_or_clone(sort.input)),
        LogicalPlan::Distinct(Distinct::All(input)) => rows(Arc::unwrap_or_clone(input)),
        LogicalPlan::Limit(limit) if keeps_a_row(&limit)? => rows(Arc::unwrap_or_clone(limit.input)),
        other => Ok(other),
    }
}

fn keeps_a_row(limit: &Limit) -> Result<bool> {
    let keeps_first = matches!(limit.get_skip_type()?, SkipType::Literal(0));
    Ok(keeps_first && matches!(limit.get_fetch_type()?, FetchType::Literal(Some(1..))))
}
