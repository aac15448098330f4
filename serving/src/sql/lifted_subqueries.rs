//! Subqueries within an aggregate, a window function, GROUP BY or ORDER BY, where DataFusion cannot compute them: they
//! become columns of a SELECT below, where it can. `count(*) FILTER (WHERE EXISTS (..))` counts by a column of that
//! SELECT.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;
use types::{Error, Reason};

/// Runs before the rules that make subqueries among columns computable.
#[derive(Debug)]
pub(super) struct SubqueriesAreColumns;

impl AnalyzerRule for SubqueriesAreColumns {
    fn name(&self) -> &str {
        "subqueries_are_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(lifted)?.data)
    }
}

fn lifted(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let input = match &node {
        LogicalPlan::Aggregate(aggregate) => aggregate.input.clone(),
        LogicalPlan::Window(window) => window.input.clone(),
        LogicalPlan::Sort(sort) => sort.input.clone(),
        _ => return Ok(Transformed::no(node)),
    };
    let (names, mut subqueries) = (NamePreserver::new(&node), Vec::new());
    let mut expressions = Vec::new();
    for expr in node.expressions() {
        let name = names.save(&expr);
        let expr = match expr {
            // It cannot have a name.
            sets @ Expr::GroupingSet(_) => Transformed::no(sets),
            expr => as_columns(expr, &mut subqueries)?,
        };
        expressions.push(expr.update_data(|expr| name.restore(expr)).data);
    }
    if subqueries.is_empty() {
        return Ok(Transformed::no(node));
    }
    if matches!(node, LogicalPlan::Sort(_)) {
        subqueries.iter().try_for_each(|subquery| allow_sorted_by(subquery, input.schema()))?;
    }
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let subqueries = subqueries.into_iter().enumerate().map(|(index, subquery)| subquery.alias(name_of(index)));
    let below = LogicalPlanBuilder::from(input.clone()).project(columns.chain(subqueries))?.build()?;
    let changed = node.with_new_exprs(expressions, vec![below])?;
    match node {
        LogicalPlan::Aggregate(_) => Ok(Transformed::yes(changed)),
        _ => {
            let columns = node.schema().columns().into_iter().map(Expr::Column);
            Ok(Transformed::yes(LogicalPlanBuilder::from(changed).project(columns)?.build()?))
        }
    }
}

/// Replaces the subqueries of an expression by the columns that they become, and adds those that are not known yet.
fn as_columns(expr: Expr, subqueries: &mut Vec<Expr>) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| {
        let is_computed_below = match &expr {
            Expr::Exists(_) | Expr::InSubquery(_) => true,
            Expr::ScalarSubquery(subquery) => !subquery.outer_ref_columns.is_empty(),
            _ => false,
        };
        if !is_computed_below {
            return Ok(Transformed::no(expr));
        }
        let index = subqueries.iter().position(|known| *known == expr).unwrap_or_else(|| {
            subqueries.push(expr);
            subqueries.len() - 1
        });
        Ok(Transformed::new(Expr::Column(Column::from_name(name_of(index))), true, TreeNodeRecursion::Jump))
    })
}

/// The planner adds the columns that rows are sorted by to those that are selected, but not those that a subquery
/// names.
fn allow_sorted_by(subquery: &Expr, selected: &DFSchema) -> types::Result<()> {
    let named = match subquery {
        Expr::Exists(Exists { subquery, .. }) | Expr::InSubquery(InSubquery { subquery, .. }) | Expr::ScalarSubquery(subquery) => {
            &subquery.outer_ref_columns
        }
        _ => return Ok(()),
    };
    for column in named {
        if let Expr::OuterReferenceColumn(_, column) = column
            && selected.index_of_column(column).is_err()
        {
            let message = format!("not supported: ORDER BY of a subquery that names {column}, which is not selected: select it");
            return Err(Error::input(message).with_reason(Reason::NotSupported));
        }
    }
    Ok(())
}

fn name_of(index: usize) -> String {
    format!("__subquery_{index}")
}
