//! The seconds of an interval: to PostgreSQL, a year of them has 365.25 days, and each month beyond whole years 30
//! days. DataFusion's `date_part('epoch', ..)` takes 30 days for every month.

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::functions::datetime;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::years_as_days;
use crate::plan::rewrite::each_expression;

/// Counts whole years of intervals in days before their seconds are counted. Runs after DataFusion's own coercion.
#[derive(Debug)]
pub struct EpochsOfYears;

impl AnalyzerRule for EpochsOfYears {
    fn name(&self) -> &str {
        "epochs_of_years"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        each_expression(plan, &|expr, schema| Ok(counted(expr, schema)))
    }
}

fn counted(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(mut call) if is_epoch_of_interval(&call, schema) => {
            if let [_, interval] = call.args.as_mut_slice() {
                let years = ScalarFunction::new_udf(Arc::new(years_as_days()), vec![std::mem::take(interval)]);
                *interval = Expr::ScalarFunction(years);
            }
            Transformed::yes(Expr::ScalarFunction(call))
        }
        other => Transformed::no(other),
    }
}

fn is_epoch_of_interval(call: &ScalarFunction, schema: &DFSchema) -> bool {
    let [Expr::Literal(part, _), interval] = call.args.as_slice() else { return false };
    call.func.name() == datetime::date_part().name()
        && part.try_as_str().flatten().is_some_and(|part| part.eq_ignore_ascii_case("epoch"))
        && matches!(interval.get_type(schema), Ok(DataType::Interval(IntervalUnit::MonthDayNano)))
}
