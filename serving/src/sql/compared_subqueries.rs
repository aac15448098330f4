//! `x > ANY (SELECT ..)` and `x > ALL (SELECT ..)`. DataFusion finds the column of such a subquery by its name: where
//! the query around it has one of the same name, it compares that with itself. Here the subquery gets a name that
//! nothing else has. `= ANY` becomes IN, and `<> ALL` becomes NOT IN.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::{InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::optimizer::AnalyzerRule;
use types::{Error, Reason};

const COMPARED: &str = "__compared";
const AMONG_COLUMNS: &str = "not supported: ANY or ALL of a subquery outside of WHERE, HAVING and ON; \
    write a comparison with (SELECT max(..) ..) or (SELECT min(..) ..)";

/// Runs after DataFusion's own coercion.
#[derive(Debug)]
pub(super) struct ComparedSubqueriesHaveNames;

impl AnalyzerRule for ComparedSubqueriesHaveNames {
    fn name(&self) -> &str {
        "compared_subqueries_have_names"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let named = plan.transform_up_with_subqueries(|node| {
            let is_condition = matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let named = expr.transform_up(with_name)?;
                if !is_condition && named.data.exists(|expr| Ok(matches!(expr, Expr::SetComparison(_))))? {
                    return Err(Error::input(AMONG_COLUMNS).with_reason(Reason::NotSupported).into());
                }
                Ok(named.update_data(|expr| name.restore(expr)))
            })
        })?;
        Ok(named.data)
    }
}

fn with_name(expr: Expr) -> Result<Transformed<Expr>> {
    let comparison = match expr {
        Expr::SetComparison(comparison) => comparison,
        other => return Ok(Transformed::no(other)),
    };
    let SetComparison { expr, subquery, op, quantifier } = comparison;
    Ok(Transformed::yes(match (quantifier, op) {
        (SetQuantifier::Any, Operator::Eq) => Expr::InSubquery(InSubquery::new(expr, subquery, false)),
        (SetQuantifier::All, Operator::NotEq) => Expr::InSubquery(InSubquery::new(expr, subquery, true)),
        (quantifier, op) => {
            let named = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone()).alias(COMPARED)?.build()?;
            Expr::SetComparison(SetComparison::new(expr, subquery.with_plan(Arc::new(named)), op, quantifier))
        }
    }))
}
