//! Decides which plans read only a few keys and compute little from them. They do not wait for a turn, and need no
//! threads of their own.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::expressions::{BinaryExpr, LikeExpr, Literal};

use super::source::SourceExec;

/// Operators whose output is small for small input. Joins, window functions and others may produce many rows from few.
const OPERATORS: [&str; 13] = [
    "AggregateExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "FilterExec",
    "GlobalLimitExec",
    "LocalLimitExec",
    "ProjectionExec",
    "RepartitionExec",
    "SortExec",
    "SortExec(TopK)",
    "SortPreservingMergeExec",
    "UnionExec",
];
/// Leaves with hardly any rows.
const EMPTY: [&str; 3] = ["EmptyExec", "PlaceholderRowExec", "ExplainExec"];

/// Calls of functions in a plan. Each takes a fraction of a millisecond for a long text.
pub(super) const FEW_CALLS: usize = 200;
/// A longer pattern of LIKE is one of many steps for each letter of a text.
const SHORT_PATTERN_BYTES: usize = 100;

pub(super) fn is_light(plan: &Arc<dyn ExecutionPlan>) -> DataFusionResult<bool> {
    Ok(reads_a_few_keys(plan) && computes_little(plan)?)
}

fn reads_a_few_keys(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    match children.is_empty() {
        false => OPERATORS.contains(&plan.name()) && children.into_iter().all(reads_a_few_keys),
        true => EMPTY.contains(&plan.name()) || is_light_leaf(&**plan),
    }
}

fn is_light_leaf(plan: &dyn ExecutionPlan) -> bool {
    if let Some(source) = plan.downcast_ref::<SourceExec>() {
        return source.is_light();
    }
    plan.downcast_ref::<DataSourceExec>().is_some_and(|source| source.data_source().downcast_ref::<MemorySourceConfig>().is_some())
}

/// Nothing interrupts what is computed from one batch.
fn computes_little(plan: &Arc<dyn ExecutionPlan>) -> DataFusionResult<bool> {
    let (mut calls, mut has_slow_call) = (0, false);
    plan.apply(|node| {
        node.apply_expressions(&mut |expr| {
            expr.apply(|expr| {
                calls += usize::from(expr.is::<ScalarFunctionExpr>());
                has_slow_call |= is_slow(expr);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(calls <= FEW_CALLS && !has_slow_call)
}

/// Returns true for what may take many steps for each letter of a text.
fn is_slow(expr: &Arc<dyn PhysicalExpr>) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    if let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() {
        return call.name().starts_with("regexp_") || call.name() == "levenshtein";
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        let pattern = like.pattern().downcast_ref::<Literal>().map(|literal| literal.value().try_as_str());
        return !matches!(pattern, Some(Some(pattern)) if pattern.is_none_or(|pattern| pattern.len() <= SHORT_PATTERN_BYTES));
    }
    expr.downcast_ref::<BinaryExpr>().is_some_and(|binary| matches!(binary.op(), RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch))
}
