//! Checks calls of our aggregates, and of DataFusion's aggregates that allocate as much memory as a number says. The
//! checks run during analysis, so that errors are reported before the query runs.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, WindowFunctionDefinition};

use super::bounds::{bound, not_distinct};
use super::last_n::{LAST_N, LAST_N_MAX};
use super::sequences;
use super::top_k::{TOP_K, TOP_K_MAX};

/// The most centroids of an approximate percentile, which allocates them at once for each group.
const CENTROIDS_MAX: usize = 10_000;

/// Adds the check to a registry that takes part in analysis. Others are left unchanged.
pub(super) fn register_check(registry: &mut dyn FunctionRegistry) -> Result<()> {
    match registry.register_function_rewrite(Arc::new(CheckCalls)) {
        Err(DataFusionError::NotImplemented(_)) => Ok(()),
        outcome => outcome,
    }
}

/// A rewrite that changes nothing: DataFusion's analyzer passes it every expression, and it may refuse one.
#[derive(Debug)]
struct CheckCalls;

impl FunctionRewrite for CheckCalls {
    fn name(&self) -> &str {
        "check_basestream_calls"
    }

    fn rewrite(&self, expr: Expr, _schema: &DFSchema, _config: &ConfigOptions) -> Result<Transformed<Expr>> {
        match &expr {
            Expr::AggregateFunction(call) => {
                check(call)?;
                check_centroids(call.func.name(), &call.params.args)?;
            }
            Expr::WindowFunction(call) => {
                if let WindowFunctionDefinition::AggregateUDF(function) = &call.fun {
                    check_centroids(function.name(), &call.params.args)?;
                }
            }
            _ => {}
        }
        Ok(Transformed::no(expr))
    }
}

fn check(call: &AggregateFunction) -> Result<()> {
    let name = call.func.name();
    let literals: Vec<Option<&ScalarValue>> = call.params.args.iter().map(literal_of).collect();
    sequences::check(name, &literals)?;
    let greatest = match name {
        LAST_N => LAST_N_MAX,
        TOP_K => TOP_K_MAX,
        _ => return Ok(()),
    };
    bound(name, "second", literals.get(1).copied().flatten(), greatest)?;
    not_distinct(name, call.params.distinct)
}

/// The expression sorted by `WITHIN GROUP` is the first argument here.
fn check_centroids(name: &str, args: &[Expr]) -> Result<()> {
    let (place, centroids) = match name {
        "approx_percentile_cont" => ("third", args.get(2)),
        "approx_percentile_cont_with_weight" => ("fourth", args.get(3)),
        _ => return Ok(()),
    };
    let Some(centroids) = centroids else { return Ok(()) };
    bound(name, place, literal_of(centroids), CENTROIDS_MAX)?;
    Ok(())
}

fn literal_of(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}
